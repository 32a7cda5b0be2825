"""Which checkpoint is the best, and when training stops early: scripted sequences of scores, worked out by hand."""

import math
import signal
from pathlib import Path
from unittest.mock import DEFAULT, Mock

import forks
import pytest
from commands import SMALL, TRAIN, failed, records, run, same_weights, train
from hypothesis import given
from hypothesis import strategies as st

import nmt
from nmt.errors import StoppedError
from nmt.training import loop
from nmt.training.records import Scores, ranked, without_improvement
from nmt.training.validation import Validation

NAN = math.nan


def bleu_validations(*scores: float) -> list[Scores]:
    """Returns validations with these BLEU scores and an ever better loss."""
    return [Scores(10 * i, 9.0 - i, bleu) for i, bleu in enumerate(scores, start=1)]


def nll_validations(*losses: float) -> list[Scores]:
    return [Scores(10 * i, nll) for i, nll in enumerate(losses, start=1)]


@pytest.mark.parametrize("validations, metric, expected", [
    (bleu_validations(0.0), "bleu", [True]),
    (bleu_validations(NAN, NAN, 0.0, NAN), "bleu", [True, False, True, False]),
    (bleu_validations(3.0, 2.0, 3.0, 3.5), "bleu", [True, False, True, True]),  # a tie, decided by the loss
    (bleu_validations(0.0, 0.0, 0.0), "bleu", [True, True, True]),
    (nll_validations(2.0, 2.0, 1.0, 1.5), "nll", [True, False, True, False]),
    (nll_validations(NAN, math.inf, 7.0), "nll", [True, False, True]),
])  # fmt: skip
def test_every_better_validation_is_the_best(validations: list[Scores], metric: str, expected: list[bool]) -> None:
    verdicts = [ranked(validations[: i + 1], metric)[0] is validations[i] for i in range(len(validations))]
    assert verdicts == expected


@pytest.mark.parametrize("validations, min_delta, expected", [
    (bleu_validations(1.0, 2.0, 3.0), 0.0, [0, 0, 0]),
    (bleu_validations(3.0, 2.0, 2.5, 2.9, 3.1), 0.0, [0, 1, 2, 3, 0]),
    (bleu_validations(3.0, NAN, NAN, 3.1), 0.0, [0, 1, 2, 0]),
    (bleu_validations(0.0, 0.0, 0.0, 0.0), 0.0, [0, 0, 0, 0]),  # the loss improves while BLEU is 0
    (bleu_validations(3.0, 3.4, 3.8, 4.2), 0.5, [0, 1, 0, 1]),  # small gains add up
    (bleu_validations(3.0, 3.5, 3.6), 0.5, [0, 1, 0]),  # a gain must be larger than --min-delta
    (bleu_validations(3.0, 3.0, 3.0), 0.5, [0, 1, 2]),  # and so must a gain of the loss, except while BLEU is 0
    (bleu_validations(0.0, 0.0, 0.0), 0.5, [0, 0, 0]),
    ([Scores(1, 5.0, 0.0), Scores(2, 5.0, 0.0), Scores(3, 6.0, 0.0)], 0.0, [0, 1, 2]),
])  # fmt: skip
def test_missing_improvement_is_counted(validations: list[Scores], min_delta: float, expected: list[int]) -> None:
    counts = [without_improvement(validations[: i + 1], ["bleu"], min_delta) for i in range(len(validations))]
    assert counts == expected


def test_one_of_several_metrics_that_improves_is_enough() -> None:
    validations = [Scores(1, 5.0, 10.0), Scores(2, 4.0, 9.0), Scores(3, 4.5, 11.0), Scores(4, 4.5, 11.0)]
    assert without_improvement(validations, ["bleu"], 0.0) == 1
    early_validations = [Scores(update, nll=2.0) for update in range(1, 9)]  # of a training that then asked for BLEU
    assert without_improvement([*early_validations, *validations], ["bleu"], 0.0) == 1
    assert [without_improvement(validations[:n], ["nll", "bleu"], 0.0) for n in (1, 2, 3, 4)] == [0, 0, 0, 1]


@given(st.lists(st.sampled_from([0.0, 1.0, 2.0, NAN]), min_size=1, max_size=9), st.integers(1, 9))
def test_the_best_are_those_that_no_other_beats(scores: list[float], count: int) -> None:
    validations = bleu_validations(*scores)
    kept = [scores.update for scores in ranked(validations, "bleu")][:count]
    assert len(kept) == len(set(kept)) == min(count, len(scores))
    quality = {v.update: v.quality("bleu") for v in validations}
    left = [quality[update] for update in quality if update not in kept]
    assert all(quality[update] >= other for update in kept for other in left)
    assert kept[0] == next(update for update in quality if quality[update] == max(quality.values()))


def script(monkeypatch: pytest.MonkeyPatch, scores: list[float]) -> None:
    """Makes the validations find these BLEU scores, one after the other."""
    left = iter(scores)
    monkeypatch.setattr(loop, "validate", lambda t: Validation(Scores(t.counters.update, 5.0, next(left))))


OPTIONS = ["--max-updates=14", "--valid-updates=2", "--save-updates=1", "--patience=3"]


@pytest.mark.parametrize("scores, stop, best", [
    ([1.0, 3.0, 2.0, 3.0, 2.9, 9.0], 10, 4),
    ([NAN, NAN, NAN, NAN, 1.0], 8, 2),
    ([0.0, 0.0, 1.0, 0.0, 0.5, 0.0], 12, 6),
    ([float(i) for i in range(7)], 14, 14),
])  # fmt: skip
def test_training_stops_when_patience_is_over(
    trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, scores: list[float], stop: int, best: int
) -> None:
    script(monkeypatch, scores)
    said = train(trained / "data", tmp_path, *OPTIONS)
    assert [record["update"] for record in records(tmp_path, "valid")] == list(range(2, stop + 1, 2))
    assert (f"stopped at update {stop}, because bleu did not improve in 3 validations" in said) == (stop < 14)
    assert (tmp_path / f"snapshot-{stop:08d}.safetensors").exists()
    assert same_weights(tmp_path / "best.safetensors", tmp_path / f"snapshot-{best:08d}.safetensors")
    page = run("report", tmp_path, "--output=-").stdout.decode()
    reason = "--patience ended it, because bleu did not improve in 3 validations"
    assert (f'"status":"finished early","message":"{reason}"' in page) == (stop < 14)
    assert ('"status":"finished","message":""' in page) == (stop == 14)
    assert "nothing to do: " in train(trained / "data", tmp_path, *OPTIONS)


def test_the_best_by_another_metric_or_on_other_lines_is_not_compared(
    trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # nll and BLEU. Where they cannot be compared, a resumed training begins with a validation.
    scores = iter([(1.0, 9.0), (5.0, 2.0), (4.0, 3.0), (3.0, 4.0), (2.5, 1.0), (6.0, 9.0), (5.0, 2.0), (2.0, 8.0)])
    monkeypatch.setattr(loop, "validate", lambda t: Validation(Scores(t.counters.update, *next(scores))))
    options = ["--valid-updates=1", "--save-updates=1"]
    train(trained / "data", tmp_path, *options, "--max-updates=2")
    assert same_weights(tmp_path / "best.safetensors", tmp_path / "snapshot-00000001.safetensors")
    train(trained / "data", tmp_path, *options, "--max-updates=4", "--valid-metric=nll")
    assert same_weights(tmp_path / "best.safetensors", tmp_path / "snapshot-00000004.safetensors")
    train(trained / "data", tmp_path, *options, "--max-updates=5", "--valid-metric=nll", "--valid-lines=3")
    assert same_weights(tmp_path / "best.safetensors", tmp_path / "snapshot-00000004.safetensors")
    train(trained / "data", tmp_path, *options, "--max-updates=6", "--valid-metric=bleu", "--valid-lines=3")
    assert same_weights(tmp_path / "best.safetensors", tmp_path / "snapshot-00000006.safetensors")


def test_interruptions_do_not_prolong_it(trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script(monkeypatch, [1.0, 3.0, 2.0, 3.0, 2.9, 9.0])
    calls = [DEFAULT] * 5 + [StoppedError, DEFAULT, DEFAULT] * 3  # before updates 6, 8 and 10
    monkeypatch.setattr(loop, "train_update", Mock(wraps=loop.train_update, side_effect=calls))
    for _ in range(3):
        run("train", trained / "data", f"--save-dir={tmp_path}", *TRAIN, *SMALL, *OPTIONS, code=75)
    said = train(trained / "data", tmp_path, *OPTIONS)
    assert "at update 10, because bleu did not improve in 3 validations; best.safetensors is of update 4" in said


def test_training_stops_after_the_same_update_on_all_ranks(trained: Path, tmp_path: Path) -> None:
    options = ["--max-updates=9", "--valid-updates=1", "--patience=2", "--min-delta=100", "--valid-metric=nll"]
    forks.run_ranks("train", trained / "data", f"--save-dir={tmp_path}", *TRAIN, *SMALL, *options)
    assert [record["update"] for record in records(tmp_path, "valid")] == [1, 2, 3]


def test_training_never_resumes_before_the_update_of_its_best_checkpoint(trained: Path, tmp_path: Path) -> None:
    options = ["--max-updates=9", "--valid-updates=2", "--save-updates=100", "--valid-metric=nll"]
    killed = forks.At("nmt.training.loop.train_update", call=6, do=signal.SIGKILL)
    command = "train", trained / "data", f"--save-dir={tmp_path}", *TRAIN, *SMALL, *options
    forks.run(*command, before=killed, code=-signal.SIGKILL)
    best = nmt.load_checkpoint(tmp_path / "best.safetensors").provenance["update"]
    assert (tmp_path / f"state-{best:08d}.safetensors").exists()


def test_the_best_checkpoints_are_averaged(trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script(monkeypatch, [1.0, 3.0, 2.0, 5.0, 2.9, 4.0])
    folder = tmp_path / "run"
    train(trained / "data", folder, "--max-updates=12", "--valid-updates=2", "--save-updates=2", "--keep-best=3")
    assert sorted(path.name for path in folder.glob("best-*")) == [f"best-{n:08d}.safetensors" for n in (4, 8, 12)]
    best, same = tmp_path / "best.safetensors", tmp_path / "same.safetensors"
    for updates in ((8, 12), (4, 8, 12)):
        said = run("average-checkpoints", folder, f"--best={len(updates)}", f"--output={best}").stderr
        assert f"average of {', '.join(f'best-{update:08d}.safetensors' for update in updates)}" in said
        snapshots = [folder / f"snapshot-{update:08d}.safetensors" for update in updates]
        run("average-checkpoints", *snapshots, f"--output={same}")
        assert same_weights(best, same)
    said = run("average-checkpoints", folder, "--best=1", f"--output={best}").stderr
    assert "average of best.safetensors" in said  # best-00000008 may be of an earlier --keep-best
    said = failed("average-checkpoints", folder, "--best=4", f"--output={best}")
    assert "holds 3 checkpoints best-NUMBER.safetensors, but --best is 4; give a smaller --best" in said
    said = failed("average-checkpoints", folder, "--last=2", "--best=1", f"--output={best}")
    assert "--last and --best were both given; leave out one of them" in said
    said = failed("average-checkpoints", same, "--best=3", f"--output={best}")
    assert f"--best takes checkpoints from run folders, but {same} is a file; leave out --best" in said


def test_chrf_and_the_loss_can_decide(trained: Path, tmp_path: Path) -> None:
    said = train(trained / "data", tmp_path / "run", "--max-updates=1", "--valid-metric=chrf", "--valid-metric=nll")
    assert ", chrF " in said and "BLEU" not in said
    (record,) = records(tmp_path / "run", "valid")
    assert isinstance(record["chrf"], float) and record["bleu"] is record["paper_bleu"] is None
    run("report", tmp_path / "run", "--output", tmp_path / "report.html")
