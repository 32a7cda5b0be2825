"""Training in fp16 with a loss scale, on a CPU as far as torch supports it."""

from pathlib import Path

import forks
import pytest
import torch
from commands import SMALL, TRAIN, assert_resumes, run, train, valid_losses, weights

import nmt
from nmt.config import RuntimeConfig, TrainConfig
from nmt.model import device
from nmt.model.device import resolve
from nmt.training import optimizer as optimizer_module
from nmt.training.optimizer import LossScale, Optimizer

NLL = ["--dropout=0", "--valid-metric=nll"]


def scale_of(folder: Path, update: int) -> dict[str, float]:
    return dict(nmt.load_checkpoint(folder / f"state-{update:08d}.safetensors").training["loss_scale"])


@pytest.fixture(scope="module")
def five_updates(trained: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns a run folder of five updates in fp16, each with a validation."""
    folder = tmp_path_factory.mktemp("fp16") / "run"
    said = train(trained / "data", folder, *NLL, "--max-updates=5", "--valid-updates=1", "--precision=fp16")
    assert "fp16" in said
    return folder


def test_training_in_fp16_stays_close_to_training_in_fp32(trained: Path, five_updates: Path, tmp_path: Path) -> None:
    """Only the first updates are compared: rounding alone makes two courses differ, and more with each update.

    With eight other seeds, the losses differed by at most 1e-4 in the first five updates, and by 4e-4 in ten.
    """
    train(trained / "data", tmp_path, *NLL, "--max-updates=5", "--valid-updates=1")
    assert valid_losses(five_updates) == pytest.approx(valid_losses(tmp_path), rel=1e-3)
    best = five_updates / "best.safetensors"
    assert all(weight.dtype == torch.float32 for weight in weights(best).values())
    run("generate", best, "--precision=fp16", "--device=cpu", stdin=b"ba de\n")


def test_two_ranks_have_the_scale_and_the_loss_of_one(trained: Path, five_updates: Path, tmp_path: Path) -> None:
    options = [*NLL, "--max-updates=5", "--valid-updates=1", "--precision=fp16"]
    forks.run_ranks(2, "train", trained / "data", f"--save-dir={tmp_path}", *TRAIN, *SMALL, *options)
    assert scale_of(five_updates, 5) == scale_of(tmp_path, 5)
    assert valid_losses(tmp_path) == pytest.approx(valid_losses(five_updates), rel=1e-3)


def test_the_scale_does_not_change_the_step() -> None:
    """The reference is the step on the unscaled gradient, also with clipping."""
    for clip_norm in (None, 0.5):
        config = TrainConfig(save_dir="run", clip_norm=clip_norm)
        found = []
        for scale in (None, LossScale(torch.device("cpu"))):
            torch.manual_seed(0)
            weight = torch.nn.Parameter(torch.randn(5))
            optimizer = Optimizer([weight], 64, config, scale)
            for update in (1, 2, 3):
                weight.grad = torch.randn(5) * (scale.scale if scale else 1.0)
                norm, skipped = optimizer.step(update)
                assert not skipped
            found.append((weight.detach(), norm))
        torch.testing.assert_close(found[1], found[0])


def test_the_scale_falls_after_an_overflow_and_rises_after_many_good_updates(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(optimizer_module, "_GROWTH_UPDATES", 3)
    scale, found = LossScale(torch.device("cpu")), []
    for skipped in (1.0, 1.0, 0.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0):
        scale.update(torch.tensor(skipped))
        found.append(scale.scale.item() / 2**16)
    assert found == [0.5, 0.25, 0.25, 0.25, 0.5, 0.5, 0.25, 0.25, 0.25, 0.5]


def test_overflowing_updates_are_skipped_until_the_scale_fits_and_a_resumed_run_keeps_the_scale(
    trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(optimizer_module, "_FIRST", 2.0**28)
    options = ["--precision=fp16", "--valid-metric=nll", "--max-skipped-updates=16"]
    said = []

    def train_until(folder: Path, update: int) -> None:
        said.append(train(trained / "data", folder, *options, f"--max-updates={update}"))

    assert_resumes(train_until, tmp_path, [4, 12, 16])
    skipped = said[0].count("was skipped")
    assert 3 < skipped < 15
    assert scale_of(tmp_path / "whole", 16)["scale"] == 2.0 ** (28 - skipped)
    assert scale_of(tmp_path / "whole", 16) == scale_of(tmp_path / "resumed", 16)
    assert valid_losses(tmp_path / "whole")[16] < 5


@pytest.mark.parametrize("bf16, capability, expected", [
    (True, (9, 0), "bf16"), (False, (7, 5), "fp16"), (False, (7, 0), "fp16"), (False, (6, 1), "fp32"),
])  # fmt: skip
def test_auto_chooses_fp16_on_gpus_without_bf16(
    monkeypatch: pytest.MonkeyPatch, bf16: bool, capability: tuple[int, int], expected: str
) -> None:
    monkeypatch.setattr(device, "_gpus", lambda: 1)
    monkeypatch.setattr(torch.cuda, "set_device", lambda _: None)
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation: bf16)  # noqa: ARG005
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: capability)
    assert resolve(RuntimeConfig()).precision == expected
