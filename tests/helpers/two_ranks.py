"""Trainings on two ranks, and fixtures for their tests."""

from pathlib import Path

import forks
import pytest
from commands import SMALL, TRAIN, run
from conftest import invented_pairs, write_pairs

OPTIONS = [*TRAIN, *SMALL, "--save-updates=5", "--log-updates=5", "--valid-updates=10", "--valid-metric=nll"]
LAST = "snapshot-00000020.safetensors"


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns a data folder with 21 validation pairs, which two ranks share unequally."""
    folder = tmp_path_factory.mktemp("distributed")
    train, valid = (write_pairs(folder / name, invented_pairs(n, n)) for name, n in (("train", 300), ("valid", 21)))
    options = ["--source-lang=en", "--target-lang=de", "--vocab-size=330", f"--train={train}", f"--valid={valid}"]
    run("preprocess", *options, "--workers=1", f"--dest={folder}/data")
    return folder / "data"


def command(data: Path | str, folder: Path, *extra: str) -> list[str]:
    return ["train", str(data), "--save-dir", str(folder), *OPTIONS, "--max-updates=20", *extra]


@pytest.fixture(scope="module")
def uninterrupted(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns the run folder of a training of 20 updates on two ranks."""
    folder = tmp_path_factory.mktemp("uninterrupted") / "run"
    forks.run_ranks(*command(data, folder))
    return folder
