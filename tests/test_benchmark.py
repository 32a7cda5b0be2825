"""recipes/measure/benchmark.py as a user runs it. No test here requires any speed."""

import json
import signal
import subprocess
import sys
import tracemalloc
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from commands import SMALL, run

from nmt.data.folder import DataFolder

import benchmark  # isort: skip # `stand_ins` has added its folder to the path

TINY = ["--arch=transformer_tiny", *SMALL, "--batch-tokens=300", "--device-tokens=500", "--device=cpu", "--updates=1"]


@pytest.fixture
def no_interpreters(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets the commands whose start is measured run in this process."""

    def started(command: list[str], *, input: str, **_: object) -> "subprocess.CompletedProcess[str]":
        done = run(*command[3:], stdin=input.encode(), code=None)
        return subprocess.CompletedProcess(command, done.code, done.stdout.decode(), done.stderr)

    monkeypatch.setattr(benchmark.subprocess, "run", started)


def ended(*arguments: str | Path) -> Any:
    """Runs a benchmark and returns how it ends: 0, the code of a signal, or an error message."""
    with pytest.raises(SystemExit) as raised:
        benchmark.main(*map(str, arguments))
    return raised.value.code


def measured(*arguments: str | Path) -> dict[str, Any]:
    """Runs a benchmark twice, checks the order of its figures, and returns its report."""
    with redirect_stdout(StringIO()) as output:
        assert ended(*arguments, "--repeats=2", "--json") == 0
    report: dict[str, Any] = json.loads(output.getvalue())
    for figure in report["figures"].values():
        assert figure["min"] <= figure["median"] <= figure["max"]
        assert figure["max"] > 0
    return report


@pytest.mark.usefixtures("no_interpreters")
def test_training_is_measured_on_data_and_on_generated_sentences(
    trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    profile = tmp_path / "profile.json"
    report = measured("train", *TINY, "--data", trained / "data", "--profile", profile)
    assert set(report["figures"]) >= {"speed", "padding", "peak memory", "start-up", "achieved", "utilisation"}
    assert report["model"].startswith("N 1+1, d_model 32")
    assert (report["--batch-tokens"], report["--device"]) == (300, "cpu")
    assert len(report["figures"]["speed"]["values"]) == 2
    assert json.loads(profile.read_text())["traceEvents"]
    generated = ["--vocab-size=500", "--mean-length=9", "--repeats=1"]
    assert ended("train", *TINY, *generated) == 0
    assert "target tok/s" in capsys.readouterr().out


def test_training_that_cannot_start_ends_the_benchmark(trained: Path) -> None:
    """This test also starts a true interpreter."""
    message = ended("train", *TINY, "--data", trained / "data", "--device-tokens=5")
    assert "nmt train, started by the benchmark, failed: --device-tokens 5 is too small" in message


@pytest.mark.usefixtures("no_interpreters")
def test_translation_is_measured_with_a_checkpoint_and_with_an_untrained_model(trained: Path) -> None:
    model, options = trained / "run" / "average.safetensors", ["--device=cpu", "--max-length-offset=3"]
    translated = run("generate", model, "--input", trained / "test.en", *options, "--output-format=jsonl").stdout
    tokens = sum(len(json.loads(line)["hypotheses"][0]["pieces"]) + 1 for line in translated.splitlines())
    command = ["generate", "--checkpoint", model, "--input", trained / "test.en", *options]
    for workers in ("1", "2"):
        figures = measured(*command, f"--workers={workers}")["figures"]
        for output, speed in zip(figures["output"]["values"], figures["speed"]["values"], strict=True):
            assert output / speed == pytest.approx(tokens / 10)
        if workers == "1" or sys.platform == "linux":  # other systems do not tell the memory of several processes
            assert figures["peak memory" if workers == "1" else "memory of all processes"]["min"] > 100
    untrained = ["--arch=transformer_tiny", "--lines=2", "--vocab-size=50", "--max-length-offset=0", "--device=cpu"]
    report = measured("generate", *untrained, "--beam=2")
    assert (report["model"], report["lines"], report["--beam"]) == ("transformer_tiny, untrained", 2, 2)


def test_measuring_preprocessing_leaves_no_data_folder(trained: Path, tmp_path: Path) -> None:
    langs = ["--source-lang=en", "--target-lang=de", "--vocab-size=330", "--workers=1"]
    corpora = ["--train", trained / "train", "--valid", trained / "valid", "--dest", tmp_path / "data"]
    assert "lines/s" in json.dumps(measured("preprocess", *langs, *corpora))
    like = trained / "run" / "best.safetensors"
    assert measured("preprocess", *langs[:2], "--like", like, *corpora)["subwords"] == str(like)
    assert not list(tmp_path.iterdir())


def test_batching_is_measured_on_data_and_generated_sentences(trained: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    traced, opened = [], DataFolder.open

    def recorded(path: str) -> DataFolder:
        traced.append(tracemalloc.is_tracing())
        return opened(path)

    monkeypatch.setattr(benchmark.DataFolder, "open", recorded)
    report = measured("batching", "--data", trained / "data", "--batch-tokens=400", "--device-tokens=400")
    assert traced == [False, False, False, True]  # to warm up, twice for the time, and for the memory
    assert report["pairs"] == len(opened(trained / "data").split("train"))
    assert set(report["figures"]) >= {"opening", "planning an epoch", "memory of a plan", "median update", "padding"}
    figures = measured("batching", "--pairs=3000", "--vocab-size=100", "--batch-tokens=2000")["figures"]
    assert figures["smallest update"]["median"] <= figures["largest update"]["median"] < 2200


def test_generated_corpora_have_the_requested_lengths(tmp_path: Path) -> None:
    generated = benchmark.Generated(vocab_size=1000, mean_length=20, pairs=5000)
    generated.write(tmp_path / "data")
    data = DataFolder.open(tmp_path / "data")
    assert len(data.split("valid")) < 1000
    split = data.split("train")
    source, target = np.asarray(split.source.lengths), np.asarray(split.target.lengths)
    assert np.mean(source) == pytest.approx(21, rel=0.05)  # with EOS
    assert np.mean(target) == pytest.approx(21, rel=0.05)
    assert np.corrcoef(source, target)[0, 1] > 0.8
    assert 4 <= split.source.tokens.min() < split.source.tokens.max() < 1000
    codec = generated.codec()
    assert len(codec.source) == 1000
    assert [len(ids) + 1 for ids in codec.encode_source(generated.sentences(codec)[:50])] == source[:50].tolist()


def test_options_that_contradict_each_other_are_refused(trained: Path, tmp_path: Path) -> None:
    assert "either --checkpoint, or --arch" in ended("generate", "--beam=2")
    model = ["--checkpoint", trained / "run" / "best.safetensors"]
    assert "give --input with --checkpoint only" in ended("generate", *model)
    (tmp_path / "empty").touch()
    assert "is empty" in ended("generate", *model, "--input", tmp_path / "empty")
    options = ["--arch=transformer_tiny", "--data", trained / "data", "--profile", tmp_path / "none" / "profile.json"]
    assert "profile.json cannot be written" in ended("train", *options)


def test_the_report_shows_the_median_and_the_range() -> None:
    report = benchmark.Report({"device": "CPU", "pairs": 8000})
    report.add("speed", "tok/s", 1200, 800, 1000)
    report.add("memory", "MiB", 2.5)
    rows = ["device  CPU", " pairs  8,000", " speed  1,000 tok/s  (800 to 1,200, median of 3)", "memory  2.50 MiB"]
    assert str(report).splitlines() == rows


def test_a_signal_leaves_no_generated_data_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(benchmark, "add_batching_figures", lambda *_, **__: signal.raise_signal(signal.SIGTERM))
    assert ended("batching", "--pairs=10", "--vocab-size=50") == 128 + signal.SIGTERM
    assert not list(tmp_path.iterdir())
