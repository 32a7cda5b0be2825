"""What runs on a GPU, against the same on the CPU; skipped where there is none."""

from pathlib import Path

import pytest
import torch
from commands import SMALL, TRAIN, run, train

import nmt
from nmt.config import RuntimeConfig, SearchConfig
from nmt.data.batching import make_plan
from nmt.data.loader import make_update
from nmt.data.store import DataFolder
from nmt.training.loss import TrainingLoss

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
GPU = ["--device=cuda"]


def test_training_on_a_gpu_is_that_on_a_cpu(trained: Path, tmp_path: Path) -> None:
    options = ["--max-updates=5", "--dropout=0", "--no-valid-bleu"]
    train(trained / "data", tmp_path / "cpu", *options)
    train(trained / "data", tmp_path / "gpu", *options, *GPU)
    cpu, gpu = (nmt.load_checkpoint(tmp_path / n / "snapshot-00000005.pt").weights for n in ("cpu", "gpu"))
    for name, expected in cpu.items():
        torch.testing.assert_close(gpu[name], expected, rtol=0, atol=1e-4, msg=name)


def test_bf16_and_resuming(trained: Path, tmp_path: Path) -> None:
    options = [*TRAIN, *SMALL, *GPU, "--precision=bf16", "--no-valid-bleu"]
    run("train", trained / "data", "--save-dir", tmp_path, *options, "--max-updates=10")
    log = run("train", trained / "data", "--save-dir", tmp_path, *options, "--max-updates=20").stderr
    assert "resumed from" in log


def test_translations_on_a_gpu_are_those_on_a_cpu(trained: Path) -> None:
    lines = (trained / "valid.en").read_text().splitlines()
    cpu, gpu = (
        nmt.Translator.load(trained / "run" / "average.pt", runtime=RuntimeConfig(device=device, precision="fp32"))
        for device in ("cpu", "cuda")
    )
    assert gpu.translate(lines, SearchConfig()) == cpu.translate(lines, SearchConfig())


def test_an_update_does_not_wait_for_the_gpu(trained: Path) -> None:
    """Copy, forward and backward pass without a single synchronisation."""
    split = DataFolder.open(trained / "data").split("train")
    plan = make_plan(split.source.lengths, split.target.lengths, batch_tokens=800, groups=2, seed=1, epoch=0)
    batch = make_update(split, plan, 0, 800, 0, 1).batches[0]
    model = TrainingLoss(nmt.Translator.load(trained / "run" / "average.pt").models[0].cuda().train(), 0.1)
    torch.cuda.set_sync_debug_mode("error")
    try:
        loss, _ = model(batch.to(torch.device("cuda")))
        loss.backward()
    finally:
        torch.cuda.set_sync_debug_mode("default")
