"""Modules of users add architectures, losses and scorers: the examples of docs/extending.md."""

import json
import re
from pathlib import Path

import forks
import pytest
import torch
from commands import failed, run
from torch.nn import functional as F

from nmt.config import ModelConfig
from nmt.data.folder import DataFolder
from nmt.data.loader import make_micro_batch
from nmt.model.transformer import Transformer
from nmt.text.subword import PAD
from nmt.training.loss import TrainingLoss

DOCS = Path(__file__).parents[1] / "docs" / "extending.md"
ONE_UPDATE = [
    "--max-updates=1", "--batch-tokens=300", "--device-tokens=500", "--valid-metric=nll", "--device=cpu",
    "--precision=fp32",
]  # fmt: skip


@pytest.fixture(scope="module")
def module(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns a file with all examples."""
    path = tmp_path_factory.mktemp("user") / "mine.py"
    path.write_text("\n".join(re.findall("```python\n(.*?)```", DOCS.read_text(), re.DOTALL)))
    return path


def test_an_architecture_and_a_loss_of_a_user_are_trained_and_recorded(trained: Path, module: Path) -> None:
    options = [f"--user-module={module}", "--arch=tiny_wide", "--criterion=focal", *ONE_UPDATE]
    command = "train", trained / "data", f"--save-dir={trained}/mine", "--minutes=0.2"
    forks.run(*command, *options)
    forks.run(*command, "--max-updates=2")  # resumes with these options
    facts = json.loads(run("info", trained / "mine" / "best.safetensors", "--json").stdout)
    assert (facts["model"]["d_ff"], facts["model"]["activation"]) == (512, "gelu")
    assert facts["provenance"]["options"]["criterion"] == "focal"


def test_a_loss_gets_all_logits_and_labels_without_padding(trained: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Cross-entropy given as a loss of a user has the value and the gradients of the toolkit's own."""
    monkeypatch.setattr("nmt.training.loss.LOGIT_ROWS", {"cpu": 7})
    torch.manual_seed(1)
    data = DataFolder.open(trained / "data")
    sizes = {"encoder_layers": 1, "decoder_layers": 1, "d_model": 8, "d_ff": 8, "heads": 2, "d_k": 4, "d_v": 4}
    config = ModelConfig(**sizes, dropout=0.0, output_bias=True)
    model = Transformer(config, len(data.codec.source), len(data.codec.target), shared=True).double()
    batch = make_micro_batch(data.split("valid"), [range(5), range(5, 9)])  # type: ignore[list-item]
    assert (batch.labels_M == PAD).any()
    values = []
    for criterion in (None, lambda logits, labels: F.cross_entropy(logits.double(), labels, reduction="sum")):
        loss, nll = TrainingLoss(model, 0.0, criterion=criterion)(batch)
        values.append([loss, nll, *torch.autograd.grad(loss, list(model.parameters()))])
    for ours, theirs in zip(*values, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("options", [["--beam=2"], ["--sample"]])
def test_a_scorer_of_a_user_changes_what_search_finds(trained: Path, module: Path, options: list[str]) -> None:
    command = ["generate", trained / "run" / "best.safetensors", "--output-format=jsonl", "--device=cpu", *options]
    command.append("--max-length-offset=10")
    lines = (trained / "valid.en").read_bytes().split(b"\n")[:6]
    text = b"\n".join(lines) + b"\n"
    repeats = []
    for more in ([], [f"--user-module={module}", "--scorer=no-repeats", "--workers=2"]):
        outputs = map(json.loads, forks.run(*command, *more, stdin=text).output.splitlines())
        pieces = [hypothesis["pieces"] for line in outputs for hypothesis in line["hypotheses"]]
        repeats.append(sum(len(sentence) - len(set(sentence)) for sentence in pieces))
    assert repeats[1] < repeats[0]


def test_a_scorer_that_forbids_everything_is_named(trained: Path, tmp_path: Path) -> None:
    (tmp_path / "never.py").write_text(
        "from nmt.extensions import register_scorer\n"
        "register_scorer('never')(lambda codec: lambda tokens, log_probs: log_probs * float('inf'))\n"
    )
    options = [f"--user-module={tmp_path}/never.py", "--scorer=never", "--device=cpu"]
    done = forks.run("generate", trained / "run" / "best.safetensors", *options, stdin=b"Ba.\n", code=1)
    assert "--scorer never leaves no piece that may be next" in done.errors


@pytest.mark.parametrize("content, message", [
    ("import no_such_package", "cannot be loaded (No module named 'no_such_package'); correct the module"),
    ("def", "cannot be loaded (invalid syntax (wrong.py, line 1)); correct the module"),
    ("", "--scorer x is unknown; no --user-module registers one"),
    ("from nmt.extensions import *\nregister_architecture('transformer_big', None)", "transformer_big is registered"),
])  # fmt: skip
def test_modules_that_cannot_be_used_are_refused(trained: Path, tmp_path: Path, content: str, message: str) -> None:
    (tmp_path / "wrong.py").write_text(content)
    checkpoint = trained / "run" / "best.safetensors"
    command = ["generate", checkpoint, f"--user-module={tmp_path}/wrong.py", "--scorer=x", "--device=cpu"]
    assert message in failed(*command, stdin=b"Ba.\n")
    assert "nowhere.py is not a file; check the path" in failed(
        "generate", checkpoint, f"--user-module={tmp_path}/nowhere.py"
    )
