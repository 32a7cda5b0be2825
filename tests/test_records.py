"""Damaged lines of metrics.jsonl stop no training and cost no other records."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from nmt.errors import NmtError
from nmt.training.records import MetricsFile

TRAIN: dict[str, Any] = {
    "train_seconds": 1.5, "flops": 1e12, "loss": 2.0, "ppl": 9.0, "lr": 0.1, "gradient_norm": None,
    "target_tokens_per_second": 100.0,
}  # fmt: skip
VALID: dict[str, Any] = {"train_seconds": 2.0, "ppl": 3.0, "bleu": None, "samples": []}


def record(kind: str, update: Any, values: dict[str, Any]) -> bytes:
    return json.dumps({"kind": kind, "update": update, **values}).encode()


GOOD = [record("start", 0, {}), record("train", 10, TRAIN), record("valid", 10, VALID), record("train", 20, TRAIN)]
BAD = {
    "not UTF-8": b'{"kind": "start", "update": 0, "device": "\xff"}',
    "half a line": b'{"kind": "train", "upda',
    "not a number": record("train", 10, TRAIN | {"note": float("nan")}),
    "infinite when read": GOOD[1].replace(b"1.5", b"1e999"),
    "lists without end": b"[" * 100_000,
    "deep": b'{"kind": "x", "update": 0, "y": ' + b"[" * 500 + b"]" * 500 + b"}",
    "a number of 5,000 digits": b'{"kind": "x", "update": ' + b"9" * 5000 + b"}",
    "a huge number": b'{"kind": "x", "update": ' + b"9" * 400 + b"}",
    "a huge figure": GOOD[1].replace(b"1.5", b"9" * 400),
    "half a surrogate pair": b'{"kind": "x", "update": 0, "device": "\\ud800"}',
    "not an object": b"[1, 2]",
    "zeros": bytes(100),
    "without a kind": b'{"update": 0}',
    "kind of another type": b'{"kind": ["train"], "update": 0}',
    "without an update": b'{"kind": "start"}',
    "negative update": record("start", -1, {}),
    "fraction of an update": record("start", 1.5, {}),
    "update that is text": record("start", "1", {}),
    "update that is true": record("start", True, {}),
    "train without a figure": record("train", 10, {k: v for k, v in TRAIN.items() if k != "flops"}),
    "train with text": record("train", 10, TRAIN | {"loss": "2"}),
    "samples that are none": record("valid", 10, VALID | {"samples": [{"source": "a"}]}),
}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "metrics.jsonl"


def write(path: Path, lines: list[bytes]) -> None:
    path.write_bytes(b"".join(line + b"\n" for line in lines))


def warnings(capfd: pytest.CaptureFixture[str]) -> str:
    return " ".join(capfd.readouterr().err.split())


@pytest.mark.parametrize("name", BAD)
def test_a_damaged_line_is_left_out_and_moved_when_training_resumes(
    path: Path, name: str, capfd: pytest.CaptureFixture[str]
) -> None:
    lines = [*GOOD[:1], BAD[name], *GOOD[1:], BAD[name]]
    write(path, lines)
    assert MetricsFile(path).records() == [json.loads(line) for line in GOOD]
    assert f"warning: skipped 2 damaged lines of {path} (the first is line 2)" in warnings(capfd)
    assert path.read_bytes().splitlines() == lines
    assert not path.with_name("metrics.jsonl.damaged").exists()
    MetricsFile(path).rewind(10)
    assert f"moved 2 damaged lines of {path} (the first is line 2) to metrics.jsonl.damaged" in warnings(capfd)
    assert path.read_bytes().splitlines() == GOOD[:3]
    assert path.with_name("metrics.jsonl.damaged").read_bytes() == 2 * (BAD[name] + b"\n")
    assert MetricsFile(path).records() == [json.loads(line) for line in GOOD[:3]]
    assert warnings(capfd) == ""


def test_a_line_that_is_still_being_written_gets_no_warning(path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path.write_bytes(GOOD[0] + b"\n" + GOOD[1][:-5])
    assert len(MetricsFile(path).records()) == 1
    assert warnings(capfd) == ""
    MetricsFile(path).rewind(10)
    assert "line 2 of" in warnings(capfd)
    assert path.read_bytes() == GOOD[0] + b"\n"
    path.write_bytes(GOOD[0] + b"\n" + GOOD[1])
    MetricsFile(path).rewind(10)
    assert path.read_bytes() == GOOD[0] + b"\n" + GOOD[1] + b"\n"


def test_damaged_lines_of_several_runs_are_collected(path: Path) -> None:
    for name in ("not an object", "zeros"):
        write(path, [BAD[name], GOOD[0]])
        MetricsFile(path).rewind(0)
    assert path.with_name("metrics.jsonl.damaged").read_bytes() == BAD["not an object"] + b"\n" + BAD["zeros"] + b"\n"


def test_appended_records_are_read(path: Path) -> None:
    metrics = MetricsFile(path)
    metrics.rewind(0)
    assert not path.exists()
    metrics.append("train", {"update": 1, **TRAIN, "loss": float("nan")})
    metrics.append("valid", {"update": 1, **VALID})
    metrics.append("other", {"update": 2})
    assert [(r["kind"], r["update"], r.get("loss")) for r in metrics.records()] == [
        ("train", 1, None), ("valid", 1, None), ("other", 2, None),
    ]  # fmt: skip


@pytest.mark.parametrize("make", [Path.mkdir, os.mkfifo, lambda path: path.symlink_to("metrics.jsonl")])
def test_a_log_that_is_not_a_regular_file_is_refused(path: Path, make: Any) -> None:
    make(path)
    with pytest.raises(NmtError, match=r"metrics\.jsonl cannot be read .*; give the --save-dir of a training"):
        MetricsFile(path).records()
    with pytest.raises(NmtError, match=r"metrics\.jsonl cannot be (read|written) "):
        MetricsFile(path).rewind(0)
        MetricsFile(path).append("start", {"update": 0})


def test_moving_damaged_lines_changes_no_files_behind_links(path: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_bytes(b"mine\n" + GOOD[0] + b"\n")
    path.with_name("metrics.jsonl.damaged").symlink_to(elsewhere)
    write(path, [BAD["zeros"], GOOD[0]])
    with pytest.raises(NmtError, match=r"metrics\.jsonl\.damaged cannot be written"):
        MetricsFile(path).rewind(0)
    path.with_name("metrics.jsonl.damaged").unlink()
    path.unlink()
    path.symlink_to(elsewhere)
    MetricsFile(path).rewind(0)
    assert elsewhere.read_bytes() == b"mine\n" + GOOD[0] + b"\n"
    assert path.read_bytes() == GOOD[0] + b"\n"
    assert not list(tmp_path.glob(".*"))
