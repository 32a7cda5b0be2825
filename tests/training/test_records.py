"""Damaged lines of metrics.jsonl stop no training and cost no other records."""

import json
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
    "lists without end": b"[" * 100_000,
    "not an object": b"[1, 2]",
    "zeros": bytes(100),
    "without a kind": b'{"update": 0}',
    "without an update": b'{"kind": "start"}',
    "update that is text": record("start", "1", {}),
    "train without a figure": record("train", 10, {k: v for k, v in TRAIN.items() if k != "flops"}),
    "infinite when read": GOOD[0].replace(b"0", b'0, "flops": 1e999'),
    "train with text": record("train", 10, TRAIN | {"loss": "2"}),
}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "metrics.jsonl"


@pytest.mark.parametrize("name", BAD)
def test_a_damaged_line_is_skipped_with_a_warning(path: Path, name: str, capfd: pytest.CaptureFixture[str]) -> None:
    path.write_bytes(b"\n".join([*GOOD[:1], BAD[name], *GOOD[1:], BAD[name]]))
    assert MetricsFile(path).records() == [json.loads(line) for line in GOOD]
    said = " ".join(capfd.readouterr().err.split())
    assert f"warning: skipped 2 damaged lines of {path}, the first is line 2" in said
    MetricsFile(path).rewind(10)
    assert path.read_bytes().splitlines() == [*GOOD[:1], BAD[name], *GOOD[1:3], BAD[name]]
    MetricsFile(path).append("other", {"update": 11})
    assert MetricsFile(path).records()[-1]["update"] == 11


def test_a_training_that_starts_anew_removes_even_a_validation_before_the_first_update(path: Path) -> None:
    path.write_bytes(GOOD[0] + b"\n" + record("valid", 0, VALID) + b"\n")
    MetricsFile(path).rewind(0)
    assert path.read_bytes() == GOOD[0] + b"\n"


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


def test_a_log_that_cannot_be_read_is_named(path: Path) -> None:
    path.mkdir()
    with pytest.raises(NmtError, match=r"metrics\.jsonl cannot be read .*; give the --save-dir of a training"):
        MetricsFile(path).records()
    with pytest.raises(NmtError, match=r"metrics\.jsonl cannot be read .*; move it away"):
        MetricsFile(path).rewind(0)
