"""The moving average of the weights: its values, and where it is used. test_mixing.py shows that it resumes."""

from pathlib import Path

import pytest
import torch
from commands import TRAIN, run, same_weights, train, valid_losses, weights

OPTIONS = ["--valid-metric=nll", "--save-updates=1"]


@pytest.fixture(scope="module")
def averaged(trained: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns a run folder of five updates with an average, whose decay reaches its maximum at the third."""
    folder = tmp_path_factory.mktemp("ema") / "run"
    train(trained / "data", folder, *OPTIONS, "--max-updates=5", "--ema=0.3")
    return folder


def test_checkpoints_have_the_average_and_training_is_not_changed(
    trained: Path, averaged: Path, tmp_path: Path
) -> None:
    """The reference computes the average in float64 from the weights after each update of a training without it."""
    train(trained / "data", tmp_path, *OPTIONS, "--max-updates=5")
    average: dict[str, torch.Tensor] = {}
    for update in range(1, 6):
        raw = weights(tmp_path / f"snapshot-{update:08d}.safetensors")
        decay = min(0.3, (1 + update) / (10 + update))
        average = {name: decay * average.get(name, w.double()) + (1 - decay) * w.double() for name, w in raw.items()}
        found = weights(averaged / f"snapshot-{update:08d}.safetensors")
        for name in raw:
            torch.testing.assert_close(found[name].double(), average[name], rtol=0, atol=1e-6)
    assert same_weights(tmp_path / "state-00000005.safetensors", averaged / "state-00000005.safetensors")


def test_validation_uses_the_average(trained: Path, averaged: Path, tmp_path: Path) -> None:
    (loss,) = valid_losses(averaged).values()
    run("train", trained / "data", f"--init-from={averaged}/best.safetensors", f"--save-dir={tmp_path}", *TRAIN[1:],
        *OPTIONS, "--max-updates=1")  # fmt: skip
    assert valid_losses(tmp_path)[0] == pytest.approx(loss, abs=1e-6)


def test_an_average_can_begin_and_end_when_training_resumes(trained: Path, tmp_path: Path) -> None:
    train(trained / "data", tmp_path, *OPTIONS, "--max-updates=2")
    said = train(trained / "data", tmp_path, *OPTIONS, "--max-updates=4", "--ema=0.5")
    assert "changed option: --ema was None and is now 0.5" in said
    assert not same_weights(tmp_path / "state-00000004.safetensors", tmp_path / "snapshot-00000004.safetensors")
    train(trained / "data", tmp_path, *OPTIONS, "--max-updates=6")
    assert same_weights(tmp_path / "state-00000006.safetensors", tmp_path / "snapshot-00000006.safetensors")
