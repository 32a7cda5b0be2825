"""CTranslate2 gives the same probabilities with an exported model as this toolkit."""

import json
import sys
from dataclasses import replace
from pathlib import Path

import ctranslate2
import pytest
import torch
from checkpoints import CONFIG, FP32, saved, small_checkpoint
from commands import LANGS, failed, run, train

import nmt
from nmt.text.subword import BOS, EOS, with_eos


def trained_and_exported(data: Path, folder: Path, *options: str) -> Path:
    """Trains a small model, exports it to model/ in the folder `folder`, and returns the checkpoint."""
    train(data, folder / "run", "--valid-metric=nll", *options)
    run("export", folder / "run" / "best.safetensors", "--output", folder / "model")
    return folder / "run" / "best.safetensors"


def pieces(translator: nmt.Translator, lines: list[str]) -> list[list[str]]:
    return [translator.codec.source.pieces(ids) for ids in translator.codec.encode_source(lines)]


def check_probabilities(checkpoint: Path, folder: Path, sources: list[str], targets: list[str]) -> None:
    """Checks that both toolkits give every token of the targets, EOS included, the same probability."""
    ours, theirs = nmt.Translator.load(checkpoint, runtime=FP32), ctranslate2.Translator(str(folder))
    ids = [with_eos(ids).tolist() for ids in ours.codec.encode_target(targets)]
    found = theirs.score_batch(pieces(ours, sources), [ours.codec.target.pieces(line[:-1]) for line in ids])
    for source, labels, scored in zip(ours.codec.encode_source(sources), ids, found, strict=True):
        with torch.no_grad():
            (logits,) = ours.models[0](torch.tensor([[*source, EOS]]), torch.tensor([[BOS, *labels[:-1]]]))
            expected = logits.log_softmax(-1)[range(len(labels)), labels]
        torch.testing.assert_close(torch.tensor(scored.log_probs), expected, rtol=0, atol=1e-4)


def test_probabilities_and_text_processing_are_the_same(trained: Path, tmp_path: Path) -> None:
    average, exported = trained / "run" / "average.safetensors", tmp_path / "model"
    run("export", average, "--format", "ctranslate2", "--output", exported)
    sources, targets = ((trained / f"test.{lang}").read_text().splitlines() for lang in ("en", "de"))
    check_probabilities(average, exported, sources, targets)
    config = json.loads((exported / "config.json").read_text())
    assert config["text"]["target_tokenizer"] == "moses-de"
    assert (exported / "subword.model").read_bytes() == (trained / "data" / "subword.model").read_bytes()
    assert "already exists" in failed("export", average, "--output", exported)


def test_separate_vocabularies_and_int8_are_exported(trained: Path, tmp_path: Path) -> None:
    corpora = ["--train", trained / "train", "--valid", trained / "valid"]
    run("preprocess", *LANGS, *corpora, "--dest", tmp_path / "data", "--vocab-size=310", "--separate-vocab")
    checkpoint = trained_and_exported(tmp_path / "data", tmp_path, "--max-updates=2")
    assert {path.name for path in (tmp_path / "model").glob("subword*")} == {"subword.en.model", "subword.de.model"}
    check_probabilities(checkpoint, tmp_path / "model", ["Ba de."], ["ed ab !"])
    run("export", checkpoint, "--output", tmp_path / "int8", "--quantization", "int8")
    sizes = [(tmp_path / name / "model.bin").stat().st_size for name in ("int8", "model")]
    assert sizes[0] < sizes[1]
    assert ctranslate2.Translator(str(tmp_path / "int8")).compute_type.startswith("int8")


@pytest.mark.parametrize("variant", [
    ["--norm=pre"],
    ["--learned-positions=600"],
    ["--attention-biases", "--output-bias", "--activation=gelu"],
    ["--activation=swish", "--sinusoids=fairseq"],
])  # fmt: skip
def test_variants_of_the_model_have_the_same_probabilities(trained: Path, tmp_path: Path, variant: list[str]) -> None:
    checkpoint = trained_and_exported(trained / "data", tmp_path, *variant, "--max-updates=3")
    check_probabilities(checkpoint, tmp_path / "model", ["Ba de.", "Ki lo mu na."], ["ed ab !", "an"])


def test_models_that_cannot_be_exported_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    command = ["export", tmp_path / "model.safetensors", "--output", tmp_path / "model"]
    for options, message in (
        ({"d_k": 2}, "has d_model 8, heads 2, d_k 2 and d_v 4"),
        ({"attention": "additive", "attention_window": 5}, "does not support --attention or --attention-window"),
    ):
        saved(small_checkpoint(0, replace(CONFIG, **options)), tmp_path / "model.safetensors")
        assert message in failed(*command)
    monkeypatch.setitem(sys.modules, "ctranslate2.specs", None)
    assert "pip install ctranslate2" in failed(*command)
    assert not (tmp_path / "model").exists()


def test_a_model_card_may_hold_bytes_that_are_not_utf_8(tmp_path: Path) -> None:
    checkpoint = saved(small_checkpoint(0), tmp_path / "model.safetensors")
    run("export", checkpoint, "--data=a\udcff", "--license=é", "--output", tmp_path / "model")
    card = (tmp_path / "model" / "README.md").read_text()
    assert "## Data\n\na\\udcff\n" in card
    assert "## Licence\n\né\n" in card


def test_a_model_card_has_only_the_names_of_files(tmp_path: Path) -> None:
    provenance = {"options": {"save_dir": "/a/run", "init_from": None, "user_module": "/a/mine.py"}}
    checkpoint = saved(replace(small_checkpoint(0), provenance=provenance), tmp_path / "model.safetensors")
    run("export", checkpoint, "--output", tmp_path / "model")
    card = (tmp_path / "model" / "README.md").read_text()
    assert '"user_module": "mine.py"' in card
    assert "/a/" not in card


def test_the_help_names_the_extra() -> None:
    assert "'attention-nmt[onnx]'" in " ".join(run("export", "--help").stdout.decode().split())
