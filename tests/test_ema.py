"""The moving average of the weights: its values, where it is used, and resuming."""

from pathlib import Path

import pytest
import torch
from checkpoints import resumable_checkpoint
from commands import SMALL, TRAIN, assert_resumes, run, same_weights, train, valid_losses, weights

from nmt.checkpoint import save_checkpoint
from nmt.errors import NmtError
from nmt.training.run_folder import RunFolder

EVERY = ["--save-updates=1", "--valid-updates=100", "--valid-metric=nll"]


def test_checkpoints_have_the_average_and_training_is_not_changed(trained: Path, tmp_path: Path) -> None:
    """The reference computes the average in float64 from the weights after each update of a training without it."""
    train(trained / "data", tmp_path / "plain", "--max-updates=12", *EVERY)
    train(trained / "data", tmp_path / "ema", "--max-updates=12", "--ema=0.7", *EVERY)
    average: dict[str, torch.Tensor] = {}
    for update in range(1, 13):
        raw = weights(tmp_path / "plain" / f"snapshot-{update:08d}.pt")
        decay = min(0.7, (1 + update) / (10 + update))
        average = {name: decay * average.get(name, w.double()) + (1 - decay) * w.double() for name, w in raw.items()}
        found = weights(tmp_path / "ema" / f"snapshot-{update:08d}.pt")
        for name in raw:
            torch.testing.assert_close(found[name].double(), average[name], rtol=0, atol=1e-6)
    states = [weights(tmp_path / folder / "state-00000012.pt") for folder in ("plain", "ema")]
    assert all(torch.equal(states[0][name], states[1][name]) for name in states[0])


def test_validation_uses_the_average(trained: Path, tmp_path: Path) -> None:
    train(trained / "data", tmp_path / "run", "--max-updates=10", "--ema=0.9", *EVERY)
    (loss,) = valid_losses(tmp_path / "run").values()
    sizes = [option for option in TRAIN if not option.startswith("--arch")]
    run("train", trained / "data", f"--init-from={tmp_path}/run/best.pt", f"--save-dir={tmp_path}/again", *sizes,
        "--max-updates=1", "--valid-metric=nll")  # fmt: skip
    assert valid_losses(tmp_path / "again")[0] == pytest.approx(loss, abs=1e-6)


def test_a_resumed_average_is_the_same_to_the_last_bit(trained: Path, tmp_path: Path) -> None:
    def train_until(folder: Path, update: int) -> None:
        train(trained / "data", folder, f"--max-updates={update}", "--ema=0.99", "--valid-metric=nll")

    assert_resumes(train_until, tmp_path, [4, 13, 20])


def test_an_average_can_begin_and_end_when_training_resumes(trained: Path, tmp_path: Path) -> None:
    train(trained / "data", tmp_path / "run", "--max-updates=5", "--valid-metric=nll")
    said = train(trained / "data", tmp_path / "run", "--max-updates=10", "--ema=0.5", "--valid-metric=nll")
    assert "changed option: --ema was None and is now 0.5" in said
    train(trained / "data", tmp_path / "run", "--max-updates=15", "--valid-metric=nll")
    assert same_weights(tmp_path / "run" / "state-00000015.pt", tmp_path / "run" / "snapshot-00000015.pt")


def test_two_ranks_keep_the_average_of_one(trained: Path, tmp_path: Path) -> None:
    for ranks in (1, 2):
        options = ["--max-updates=10", "--ema=0.9", "--valid-metric=nll", "--dropout=0", f"--gpus={ranks}"]
        train(trained / "data", tmp_path / str(ranks), *options)
    one, two = (weights(tmp_path / str(ranks) / "snapshot-00000010.pt") for ranks in (1, 2))
    for name in one:
        torch.testing.assert_close(one[name], two[name], rtol=0, atol=5e-5)


@pytest.mark.parametrize("averages", [None, [1], {"x": torch.zeros(1)}, "shape"])
def test_a_damaged_average_is_noticed(tmp_path: Path, averages: object) -> None:
    checkpoint = resumable_checkpoint(2)
    wrong = {name: torch.zeros(1) for name in checkpoint.weights} if averages == "shape" else averages
    checkpoint.training["average"] = wrong
    save_checkpoint(checkpoint, tmp_path / "state-00000002.pt")
    with pytest.raises(NmtError, match="its average"):
        RunFolder(tmp_path).newest_state()


def test_an_average_needs_a_decay_below_one(trained: Path, tmp_path: Path) -> None:
    said = run("train", trained / "data", f"--save-dir={tmp_path}/run", *TRAIN, *SMALL, "--ema=1", code=1).stderr
    assert "--ema must be above 0 and below 1, but is 1.0" in said
