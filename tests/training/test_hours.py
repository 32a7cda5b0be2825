"""`nmt train --hours`: the choices for corpora and machines of all sizes, the clock, and what remains without it."""

import hashlib
import pkgutil
import re
import shutil
import signal
import tomllib
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import forks
import pytest
from commands import SMALL, TRAIN, failed, records, run, same_weights
from hypothesis import given
from hypothesis import strategies as st

import nmt
from nmt.config import TrainConfig
from nmt.data.folder import DataFolder
from nmt.errors import NmtError, StoppedError
from nmt.model.architectures import model_config
from nmt.training import clock as clock_module
from nmt.training import hours, loop
from nmt.training.clock import Choice, Clock, CorpusSize, choose_by_updates
from nmt.training.hours import choose
from nmt.training.run_folder import RunFolder
from nmt.training.state import Training

WMT14 = CorpusSize(36_000_000, 1_100_000_000)
MULTI30K = CorpusSize(29_000, 446_000)
# Tokens a second of two cores and of a large GPU.
CPU = {"transformer_mini": 22_000.0, "transformer_tiny": 14_000.0, "transformer_base": 1300.0, "transformer_big": 400.0}
GPU = {
    "transformer_mini": 1_000_000.0,
    "transformer_tiny": 900_000.0,
    "transformer_base": 300_000.0,
    "transformer_big": 100_000.0,
}


def values(choices: dict[str, Choice]) -> dict[str, Any]:
    return {name: choice.value for name, choice in choices.items()}


def chosen(corpus: CorpusSize, seconds: float, speeds: dict[str, float], **options: Any) -> dict[str, Any]:
    return values(choose(corpus, seconds, options, speeds.__getitem__))


@given(
    corpus=st.builds(
        lambda pairs, length: CorpusSize(pairs, pairs * length), st.integers(1, 40_000_000), st.integers(1, 200)
    ),
    seconds=st.floats(6, 1e6),
    speed=st.floats(1, 1e7),
)
def test_every_plan_can_be_trained_and_uses_the_time(corpus: CorpusSize, seconds: float, speed: float) -> None:
    choices = choose(corpus, seconds, {}, lambda _: speed)
    plan = values(choices)
    dropout = plan.pop("dropout", 0.1)
    model_config(plan["arch"], dropout=dropout)
    config = TrainConfig(save_dir="run", **plan)
    assert config.warmup_updates <= config.max_updates
    possible = min(speed * seconds, 500 * corpus.tokens)
    assert config.max_updates == pytest.approx(max(1, possible / config.batch_tokens), rel=0.01, abs=1)
    assert config.max_updates <= 500 * corpus.updates_per_epoch(config.batch_tokens)
    assert all(choice.reason for choice in choices.values())


@given(
    updates=st.integers(1, 1_000_000),
    seconds=st.floats(1e-3, 1e3),
    validation=st.floats(0, 1e4),
    save=st.floats(0, 1e4),
)
def test_validations_and_saves_take_a_tenth_of_the_time(
    updates: int, seconds: float, validation: float, save: float
) -> None:
    """The validation and the save at the end are always made."""
    choices = choose_by_updates(updates, {}, seconds, validation, save)
    options = {name: choice.value for name, choice in choices.items()}
    total = updates * seconds
    for cost, every in ((validation, options["valid_updates"]), (save, options["save_updates"])):
        assert (updates // every) * cost <= total / 30 * 1.001
    averaged = options["average_last"] * options["save_updates"]
    assert averaged <= updates * 6 / 28 or options["average_last"] == 1


def test_the_settings_of_multi30k_come_out() -> None:
    plan = chosen(MULTI30K, 15 * 60, CPU)
    assert plan["arch"] == "transformer_tiny"
    assert (plan["dropout"], plan["batch_tokens"], plan["batch_groups"]) == (0.2, 2500, 4)
    assert (plan["max_updates"], plan["warmup_updates"], plan["save_updates"]) == (5040, 840, 180)


@pytest.mark.parametrize("updates, warmup", [(2, 1), (300, 100), (1199, 399), (1200, 400), (3000, 500), (90_000, 4000)])
def test_the_learning_rate_reaches_its_peak_early_enough(updates: int, warmup: int) -> None:
    assert choose_by_updates(updates, {}, 1.0, 1.0)["warmup_updates"].value == warmup


@pytest.mark.parametrize("updates, counts", [(15, (15, 15, 15)), (5040, (28, 10, 50))])
def test_reasons_count_what_will_be_written(updates: int, counts: tuple[int, ...]) -> None:
    choices = choose(MULTI30K, 15 * 60, {"max_updates": updates}, CPU.__getitem__)
    expected = "makes about {} checkpoints", "validates about {} times", "prints about {} lines"
    reasons = [choices[name].reason for name in ("save_updates", "valid_updates", "log_updates")]
    assert reasons == [text.format(count) for text, count in zip(expected, counts, strict=True)]


def test_corpora_of_any_size_have_sensible_plans() -> None:
    small = chosen(CorpusSize(50, 1000), 3600, CPU)  # an hour is far too long for 50 pairs
    assert small["max_updates"] * small["batch_tokens"] == 500 * 1000
    assert small["batch_tokens"] < 1000
    assert small["dropout"] == 0.3
    assert chosen(MULTI30K, 5 * 60, CPU)["arch"] == "transformer_mini"
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
    assert set(asked) == {"transformer_mini", "transformer_tiny"}


def test_an_architecture_that_cannot_be_trained_is_not_chosen() -> None:
    def speed(arch: str) -> float:
        if arch == "transformer_base":
            raise NmtError("--device-tokens 2048 is too small")
        return GPU[arch]

    assert choose(WMT14, 24 * 3600, {}, speed)["arch"].value == "transformer_tiny"


def test_what_is_given_stays_and_the_rest_follows_from_it() -> None:
    plan = chosen(MULTI30K, 900, CPU, arch="transformer_base", batch_tokens=5000, dropout=0.25, save_minutes=1.0)
    assert not plan.keys() & {"arch", "batch_tokens", "dropout", "save_updates"}
    assert plan["max_updates"] == 1300 * 900 // 5000
    assert chosen(MULTI30K, 900, CPU, max_updates=1000)["valid_updates"] == 100
    given = {updates: chosen(MULTI30K, 900, CPU, max_updates=updates) for updates in (1000, 1_000_000)}
    assert [plan["dropout"] for plan in given.values()] == [0.0, 0.3]  # of 6 epochs and 6,000
    tuned = chosen(MULTI30K, 900, CPU | {"model": 14_000.0}, arch="model", init_from="model")
    assert (tuned["lr_scale"], tuned["warmup_updates"]) == (0.3, 100)
    assert "lr_scale" not in chosen(MULTI30K, 900, CPU, init_from="model", lr_schedule="inverse-sqrt", lr=1e-4)
    assert "dropout" not in chosen(MULTI30K, 900, CPU | {"table3_d_dropout0.0": 1300.0}, arch="table3_d_dropout0.0")


# Commands


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """Makes each look at the clock last 0.1 seconds, and the measured update of 2,500 tokens 6.25 seconds."""
    looks = count()  # what comes next is the number of looks so far
    time = SimpleNamespace(monotonic=lambda: next(looks) / 10)
    for module in (loop, hours, clock_module):
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
    said = run("train", trained / "data", "--save-dir", first, "--minutes=0.1", *OPTIONS).stderr
    assert next(clock) == pytest.approx(60, abs=10)
    assert "--optimizer muon           needs fewer updates than adam" in said
    assert "--dropout 0" not in said
    options = options_of(first)
    # The measurement gave 6 updates of a second, but they look at the clock less than ten times.
    assert 6 < options["max-updates"] < 30
    (end,) = records(first, "end")
    assert (end["outcome"], end["update"]) == ("finished", options["max-updates"])
    run("report", first, "--output", tmp_path / "report.html")
    assert '"status":"finished"' in (tmp_path / "report.html").read_text()
    run("train", "--config", first / "config.toml", "--save-dir", second)
    assert same_weights(first / "average.safetensors", second / "average.safetensors")
    assert options["average-last"] == 1  # of less than 200 updates
    last = first / f"snapshot-{options['max-updates']:08d}.safetensors"
    assert same_weights(first / "average.safetensors", last)


class VirtualTime:
    """The time of a training on a machine where an update, a validation and a save take the given seconds.

    Only the first update is computed.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, measured: float, update: float, others: float) -> None:
        self.now, self.spent, self.validated, self.saved = 0.0, 0.0, list[int](), list[int]()
        train_update, validate, save, results = loop.train_update, loop.validate, RunFolder.save, list[Any]()

        def trained(training: Training, batches: Any) -> Any:
            self.now += update
            if results:
                training.counters.update += 1
                training.counters.update_in_epoch += 1
            else:
                results.append(train_update(training, batches))
            return results[0]

        def validated(training: Training) -> Any:
            self.now, self.spent = self.now + others, self.spent + others
            self.validated.append(training.counters.update)
            return validate(training)

        def saved(folder: RunFolder, checkpoint: Any, kind: str, update: int, keep: int) -> Any:
            if kind == "snapshot":
                self.now, self.spent = self.now + others, self.spent + others
                self.saved.append(update)
            return save(folder, checkpoint, kind, update, keep)

        for module in (loop, hours, clock_module):
            monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: self.now))
        monkeypatch.setattr(hours, "seconds_per_update", lambda *_: measured)
        monkeypatch.setattr(loop, "train_update", trained)
        monkeypatch.setattr(loop, "validate", validated)
        monkeypatch.setattr(RunFolder, "save", saved)
        monkeypatch.setattr(loop, "has_room_for_copies", lambda _: False)  # so that training waits for it


@pytest.mark.parametrize("measured, update, others", [(1, 1, 0), (1, 10, 15), (10, 1, 0.2), (1, 10, 150)])
def test_the_plan_follows_the_speed_of_the_machine(
    trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, measured: float, update: float, others: float
) -> None:
    virtual = VirtualTime(monkeypatch, measured, update, others)
    options = ["--arch=transformer_tiny", *OPTIONS]
    said = run("train", trained / "data", "--save-dir", tmp_path / "run", "--minutes=25", *options).stderr
    updates = options_of(tmp_path / "run")["max-updates"]
    assert 1500 - 2 * update - others < virtual.now < 1500 + 2 * update + 2 * others
    assert updates == virtual.saved[-1] == virtual.validated[-1]
    if others < 100:
        assert virtual.spent <= 150
        assert len(virtual.validated) in range(3, 14) and len(virtual.saved) in range(3, 34)
    else:  # one validation and one save at the end, after those that the measured speed promised to be cheap
        assert len(virtual.validated) <= 2 and len(virtual.saved) <= 2
    assert ("for a good model, give more time" in said.splitlines()[-1]) == (updates < 100)
    assert ("updates fit into the time" in said) == (measured != update)


@pytest.mark.parametrize(("save_updates", "pauses", "writes", "updates"), [
    (None, {}, {}, 1100),
    (None, {"state": 60}, {}, 540),  # as long as the updates between two states
    (50, {"state": 60}, {"state": 40}, 520),
    (None, {"snapshot": 30, "state": 30}, {}, 540),
    (50, {"snapshot": 50}, {"best": 10, "snapshot": 40}, 525),
])  # fmt: skip
def test_saves_leave_less_time_for_updates(
    save_updates: int | None, pauses: dict[str, float], writes: dict[str, float], updates: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """Hundred updates took a second each. The last files are waited for at the end."""
    now = 0.0
    monkeypatch.setattr(clock_module, "time", SimpleNamespace(monotonic=lambda: now))
    config = TrainConfig(save_dir="run", save_minutes=1.0, save_updates=save_updates, valid_updates=10**6)
    given = {"warmup_updates", "average_last", "keep_checkpoints", "valid_updates", "log_updates"}
    saving = "save_updates" if save_updates else "save_minutes"
    clock = Clock(1100.0, CorpusSize(10**9, 10**9), config, given | {saving})
    clock.start(config)
    for kind, seconds in pauses.items():
        clock.pause(kind, seconds, config)
    clock.writes |= writes
    now = 100.0 + sum(pauses.values())
    assert clock.options(100, config)["max_updates"] == updates


def test_options_that_are_given_do_not_follow_the_speed(
    trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    virtual = VirtualTime(monkeypatch, 10, 1, 1)
    options = ["--arch=transformer_tiny", *OPTIONS, "--valid-updates=7", "--average-last=3"]
    run("train", trained / "data", "--save-dir", tmp_path / "run", "--minutes=2", *options)
    assert {update % 7 for update in virtual.validated[:-1]} == {0}
    assert options_of(tmp_path / "run")["average-last"] == 3


@pytest.mark.usefixtures("clock")
def test_a_checkpoint_decides_the_architecture(trained: Path, tmp_path: Path) -> None:
    tuned = *OPTIONS[:3], "--batch-tokens=400", f"--init-from={trained}/run/best.safetensors"
    said = run("train", trained / "data", "--save-dir", tmp_path / "run", "--minutes=0.1", *tuned).stderr
    assert f"measuring the speed of {trained}/run/best.safetensors …" in said
    assert "--optimizer muon" in said and "--lr-scale 0.3" in said
    assert "--arch" not in said and "--dropout" not in said
    assert re.search(
        r"only \d+ updates? fit into the time; for a good model, give more time, or a smaller --batch", said
    )
    assert records(tmp_path / "run", "end")[-1]["outcome"] == "finished"
    base_checkpoint, tuned_checkpoint = (
        nmt.load_checkpoint(path / "best.safetensors") for path in (trained / "run", tmp_path / "run")
    )
    assert tuned_checkpoint.model_config == base_checkpoint.model_config


def test_training_ends_with_an_average(trained: Path, tmp_path: Path) -> None:
    saves = "--save-updates=1", "--save-minutes=1e-9", "--average-last=3", "--keep-checkpoints=2"  # three are kept
    command = "train", trained / "data", f"--save-dir={tmp_path}/run", *TRAIN, *SMALL, *saves, "--max-updates=6"
    forks.run(*command, before=forks.At("os.replace", matching="average"), code=-signal.SIGKILL)
    run(*command)
    assert not list((tmp_path / "run").glob("*partial*"))
    run("average-checkpoints", tmp_path / "run", "--last=3", "--output", tmp_path / "average.safetensors")
    assert same_weights(tmp_path / "run" / "average.safetensors", tmp_path / "average.safetensors")
    more = *command, "--max-updates=8", "--dropout=0.2"
    forks.run(*more, "--resume-changed", before=forks.At("os.replace", matching="average"), code=-signal.SIGKILL)
    said = run(*more).stderr
    assert "nothing to do" in said and "average.safetensors, the average of the last " in said
    run("average-checkpoints", tmp_path / "run", "--last=3", "--output", tmp_path / "average.safetensors")
    assert same_weights(tmp_path / "run" / "average.safetensors", tmp_path / "average.safetensors")
    assert nmt.load_checkpoint(tmp_path / "average.safetensors").model_config.dropout == 0.2
    (tmp_path / "run" / "state-00000008.safetensors").unlink()
    run(*more, "--clip-norm=0.1")  # repeats update 8
    run("average-checkpoints", tmp_path / "run", "--last=3", "--output", tmp_path / "average.safetensors")
    assert same_weights(tmp_path / "run" / "average.safetensors", tmp_path / "average.safetensors")
    for snapshot in sorted((tmp_path / "run").glob("snapshot-*"))[:2]:
        snapshot.unlink()
    assert "the average of the last" not in run(*more, "--clip-norm=0.1").stderr  # it would be of fewer checkpoints
    assert same_weights(tmp_path / "run" / "average.safetensors", tmp_path / "average.safetensors")


@pytest.mark.usefixtures("clock")
def test_a_training_that_was_stopped_resumes_with_its_choices(
    trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stopped, repeated = tmp_path / "stopped", tmp_path / "again"
    command = "train", trained / "data", "--save-dir", stopped, "--minutes=0.1", *OPTIONS

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
    run("train", "--config", stopped / "config.toml", "--save-dir", repeated)
    assert same_weights(stopped / "average.safetensors", repeated / "average.safetensors")


@pytest.mark.parametrize("options, said", [
    (["--max-updates=3"], "training ends at update 3 and not by the clock, because --max-updates is given"),
    (["--lr-schedule=linear", "--lr=0.003"], "and not by the clock, because --lr-schedule linear needs it"),
])  # fmt: skip
@pytest.mark.usefixtures("clock")
def test_the_number_of_updates_does_not_change_where_it_must_stay(
    trained: Path, tmp_path: Path, options: list[str], said: str
) -> None:
    log = run("train", trained / "data", "--save-dir", tmp_path / "run", "--minutes=0.1", *OPTIONS, *options).stderr
    assert said in log
    planned = re.search(r"--max-updates (\d+) ", log)
    assert options_of(tmp_path / "run")["max-updates"] == (int(planned[1]) if planned else 3)


@pytest.mark.usefixtures("clock")
def test_a_small_corpus_is_not_trained_on_for_more_epochs_than_help(
    trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (hours, clock_module):
        monkeypatch.setattr(module, "MOST_EPOCHS", 20)
    for lang in ("en", "de"):
        (tmp_path / f"few.{lang}").write_text("".join(f"{word}\n" for word in ("one", "two")))
    langs = ["--source-lang=en", "--target-lang=de", f"--train={tmp_path}/few", f"--valid={tmp_path}/few"]
    model = f"--like={trained}/run/average.safetensors"
    run("preprocess", *langs, model, f"--dest={tmp_path}/data", "--workers=1")
    said = run("train", tmp_path / "data", "--save-dir", tmp_path / "run", "--hours=10", *OPTIONS[:-1]).stderr
    assert "20 epochs; more do not help" in said
    assert options_of(tmp_path / "run")["max-updates"] == 20
    # Several processes get the clock too, which ends the training if they are slower than the measurement.
    launched: list[str] = []
    monkeypatch.setattr("nmt.training.hours.launch", lambda arguments, *_: launched.extend(arguments))
    run("train", tmp_path / "data", f"--save-dir={tmp_path}/two", "--hours=10", "--gpus=2", *OPTIONS[:-1])
    assert "--minutes" in launched


@pytest.mark.parametrize("place", ["nmt.training.hours.seconds_per_update", "nmt.training.loop.TrainingLoop.run"])
@pytest.mark.usefixtures("clock")
def test_a_second_training_is_refused_before_it_measures(
    trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    """It starts while the first one measures, or trains without having saved a state."""
    command = "train", trained / "data", f"--save-dir={tmp_path}/run", "--minutes=0.1", *OPTIONS
    function, errors = pkgutil.resolve_name(place), list[str]()

    def patched(*arguments: Any) -> Any:
        monkeypatch.setattr(place, function)
        with monkeypatch.context() as patch:
            patch.setattr(hours, "with_choices", lambda *_: pytest.fail("the second training measures"))
            errors.append(failed(*command))
        return function(*arguments)

    monkeypatch.setattr("nmt.training.run_folder._LOCK_SECONDS", 0.0)
    monkeypatch.setattr(place, patched)
    run(*command)
    assert errors == [f"error: another training uses {tmp_path}/run; wait until it ends, or give another --save-dir"]


@pytest.mark.usefixtures("clock")
def test_the_data_folder_is_verified_once(trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sha256, digests = hashlib.sha256, list[Any]()

    def counted() -> Any:
        digests.append(sha256())
        return digests[-1]

    monkeypatch.setattr("nmt.data.folder.hashlib", SimpleNamespace(sha256=counted))
    run("train", trained / "data", f"--save-dir={tmp_path}/run", "--minutes=0.1", *OPTIONS)
    assert len(digests) == len(DataFolder.open(trained / "data").meta.files)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_during_the_measurement_ends_the_command(
    trained: Path, tmp_path: Path, number: signal.Signals
) -> None:
    early = forks.At("nmt.training.hours.seconds_per_update", do=number, after=True)
    command = "train", trained / "data", "--save-dir", tmp_path / "run", "--minutes=0.1", *OPTIONS
    assert "nothing is saved" in forks.run(*command, before=early, code=75).errors
    assert not (tmp_path / "run").exists()


def test_what_is_damaged_or_missing_is_said_before_the_measurement(trained: Path, tmp_path: Path) -> None:
    run_folder = tmp_path / "run"
    command = "train", trained / "data", "--save-dir", run_folder, *OPTIONS
    assert "is the data folder" in failed(*command, "--minutes=1", "--save-dir", trained / "data")
    assert not (trained / "data" / ".lock").exists()
    run(*command, "--arch=transformer_tiny", "--max-updates=1")
    (run_folder / "config.toml").unlink()
    assert "config.toml, which has its options, is missing; give the options without" in failed(*command, "--minutes=1")
    damaged = Path(shutil.copytree(trained / "data", tmp_path / "damaged"))
    tokens = damaged / "train.en.tokens"
    tokens.write_bytes(bytes(len(tokens.read_bytes())))
    command = "train", damaged, "--save-dir", tmp_path / "other", *OPTIONS
    assert "train.en.tokens" in failed(*command, "--minutes=1")


@pytest.mark.parametrize("flags, said", [
    (["--minutes=5", "--init-from=x"], "x does not exist"),
    (["--hours=1", "--minutes=5"], "--minutes 5.0 does not work with --hours 1.0; leave out one"),
])  # fmt: skip
def test_what_contradicts_the_time_is_refused(trained: Path, tmp_path: Path, flags: list[str], said: str) -> None:
    assert said in failed("train", trained / "data", "--save-dir", tmp_path / "run", *flags)
    assert not (tmp_path / "run").exists()


def test_torchrun_is_refused(trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RANK", "WORLD_SIZE"):
        monkeypatch.setenv(name, "0")
    command = "train", trained / "data", f"--save-dir={tmp_path}/run", *OPTIONS, "--minutes=1", "--max-updates=3"
    assert "--hours and --minutes do not work with torchrun; give --gpus" in failed(*command)


@pytest.mark.nightly
def test_two_ranks_that_save_by_the_clock_end_in_time(trained: Path, tmp_path: Path) -> None:
    """They look at the time together, although each of them decides by itself when it is time to save."""
    options = ["--minutes=0.2", "--save-minutes=0.01", "--gpus=2", *OPTIONS]
    run("train", trained / "data", "--save-dir", tmp_path / "run", *options)
    assert records(tmp_path / "run", "end")[-1]["outcome"] == "finished"
