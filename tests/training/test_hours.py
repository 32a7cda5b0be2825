"""`nmt train --hours`: the choices for corpora and machines of all sizes, the clock, and what remains without it."""

import importlib
import tomllib
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from commands import SMALL, failed, records, run, same_weights
from hypothesis import given
from hypothesis import strategies as st

from nmt.config import TrainConfig
from nmt.errors import StoppedError
from nmt.model.architectures import model_config
from nmt.training import hours, loop
from nmt.training.hours import Choice, Corpus, choose

WMT14 = Corpus(36_000_000, 1_100_000_000)
MULTI30K = Corpus(29_000, 446_000)
# Tokens a second of two cores and of a large GPU.
CPU = {"transformer_tiny": 14_000.0, "transformer_base": 1300.0, "transformer_big": 400.0}
GPU = {"transformer_tiny": 900_000.0, "transformer_base": 300_000.0, "transformer_big": 100_000.0}


def values(choices: dict[str, Choice]) -> dict[str, Any]:
    return {name: choice.value for name, choice in choices.items()}


def chosen(corpus: Corpus, seconds: float, speeds: dict[str, float], **options: Any) -> dict[str, Any]:
    return values(choose(corpus, seconds, options, speeds.__getitem__)[0])


@given(
    corpus=st.builds(
        lambda pairs, length: Corpus(pairs, pairs * length), st.integers(1, 40_000_000), st.integers(1, 200)
    ),
    seconds=st.floats(6, 1e6),
    speed=st.floats(1, 1e7),
)
def test_every_plan_can_be_trained_and_uses_the_time(corpus: Corpus, seconds: float, speed: float) -> None:
    choices, by_clock = choose(corpus, seconds, {}, lambda _: speed)
    plan = values(choices)
    dropout = plan.pop("dropout", 0.1)
    model_config(plan["arch"], dropout=dropout)
    config = TrainConfig(save_dir="run", **plan)
    assert config.warmup_updates <= config.max_updates
    possible = min(speed * seconds, 500 * corpus.tokens)
    assert config.max_updates == max(1, int(possible / config.batch_tokens))
    assert by_clock == (speed * seconds < 500 * corpus.tokens)
    assert all(choice.reason for choice in choices.values())


def test_the_settings_of_multi30k_come_out() -> None:
    plan = chosen(MULTI30K, 15 * 60, CPU)
    assert plan["arch"] == "transformer_tiny"
    assert (plan["dropout"], plan["batch_tokens"], plan["batch_groups"]) == (0.2, 2500, 4)
    assert (plan["max_updates"], plan["warmup_updates"], plan["save_updates"]) == (5040, 840, 180)


def test_corpora_of_any_size_have_sensible_plans() -> None:
    small = chosen(Corpus(50, 1000), 3600, CPU)  # an hour is far too long for 50 pairs
    assert small["max_updates"] * small["batch_tokens"] == 500 * 1000
    assert small["batch_tokens"] < 1000
    assert small["dropout"] == 0.3
    assert chosen(WMT14, 3600, CPU)["arch"] == "transformer_tiny"
    assert chosen(WMT14, 8 * 3600, GPU)["arch"] == "transformer_base"
    days = chosen(WMT14, 3 * 24 * 3600, GPU)
    assert (days["arch"], days["batch_tokens"], days["warmup_updates"]) == ("transformer_big", 25_000, 4000)
    assert "dropout" not in days  # the paper's


def test_the_speed_of_a_large_architecture_is_measured_only_where_it_could_be_chosen() -> None:
    asked = []

    def speed(arch: str) -> float:
        asked.append(arch)
        return CPU[arch]

    choose(WMT14, 3600, {}, speed)
    assert set(asked) == {"transformer_tiny"}


def test_what_is_given_stays_and_the_rest_follows_from_it() -> None:
    plan = chosen(MULTI30K, 900, CPU, arch="transformer_base", batch_tokens=5000, dropout=0.25, save_minutes=1.0)
    assert not plan.keys() & {"arch", "batch_tokens", "dropout", "save_updates"}
    assert plan["max_updates"] == 1300 * 900 // 5000
    choices, by_clock = choose(MULTI30K, 900, {"max_updates": 1000}, CPU.__getitem__)
    assert not by_clock
    assert values(choices)["valid_updates"] == 100


# Commands


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """Makes each look at the clock last 0.1 seconds, and the measured update of 2,500 tokens 6.25 seconds."""
    looks = count()  # what comes next is the number of looks so far
    time = SimpleNamespace(monotonic=lambda: next(looks) / 10)
    for module in (loop, importlib.import_module("nmt.cli.train")):
        monkeypatch.setattr(module, "time", time)
    monkeypatch.setattr(hours, "seconds_per_update", lambda *_: 1.0 / 400 * 2500)
    return looks


OPTIONS = ["--precision=fp32", "--device=cpu", "--device-tokens=2000", *SMALL, "--batch-tokens=400"]


def options_of(folder: Path) -> dict[str, Any]:
    return tomllib.loads((folder / "config.toml").read_text())


def test_training_ends_in_time_and_repeats_without_the_clock(
    trained: Path, tmp_path: Path, clock: Iterator[int]
) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    said = run("train", trained / "data", "--save-dir", first, "--minutes=0.3", *OPTIONS).stderr
    assert next(clock) == pytest.approx(180, abs=10)
    assert "--optimizer muon           needs fewer updates than adam" in said
    assert "--dropout 0" not in said
    options = options_of(first)
    # The measurement gave 18 updates of a second, but they look at the clock less than ten times.
    assert 18 < options["max-updates"] < 90
    (end,) = records(first, "end")
    assert (end["outcome"], end["update"]) == ("finished", options["max-updates"])
    run("report", first, "--output", tmp_path / "report.html")
    assert '"status":"finished"' in (tmp_path / "report.html").read_text()
    run("train", "--config", first / "config.toml", "--save-dir", second)
    assert same_weights(first / "average.safetensors", second / "average.safetensors")
    run("average-checkpoints", first, "--last=10", "--output", tmp_path / "average.safetensors")
    assert same_weights(first / "average.safetensors", tmp_path / "average.safetensors")


@pytest.mark.usefixtures("clock")
def test_a_training_that_was_stopped_resumes_with_its_choices(
    trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stopped, again = tmp_path / "stopped", tmp_path / "again"
    command = "train", trained / "data", "--save-dir", stopped, "--minutes=0.3", *OPTIONS

    def stop(*_: object) -> None:
        raise StoppedError("asked to stop")

    with monkeypatch.context() as patch:
        patch.setattr(loop.TrainingLoop, "_validate", stop)
        run(*command, code=75)
    options = options_of(stopped)
    said = run(*command).stderr
    assert "has a training state; resuming with the options in" in said
    assert options_of(stopped) == options
    assert records(stopped, "end")[-1]["update"] == options["max-updates"]
    run("train", "--config", stopped / "config.toml", "--save-dir", again)
    assert same_weights(stopped / "average.safetensors", again / "average.safetensors")


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--minutes=5", "--init-from=x"], "--init-from does not go with --hours and --minutes; give --max-updates"),
        (["--hours=1", "--minutes=5"], "--hours and --minutes were both given; leave out one of them"),
    ],
)
def test_what_contradicts_the_time_is_refused(trained: Path, tmp_path: Path, flags: list[str], said: str) -> None:
    assert said in failed("train", trained / "data", "--save-dir", tmp_path / "run", *flags)
    assert not (tmp_path / "run").exists()
