"""Every damage to a data folder is found, and reported in one sentence that names the file."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
from checkpoints import change
from test_store import write

from nmt.data.folder import DataFolder
from nmt.errors import NmtError


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return write(tmp_path / "data", {"train": [([4, 5], [6]), ([7], [8, 9, 10])], "valid": [([12], [11])]})


@pytest.mark.parametrize(
    ("key", "value"),
    [("splits/train/pairs", 3), ("splits/valid", {}), ("text/lowercase", 1), ("files", ...), ("sha256", "0" * 64)],
)
def test_any_change_of_meta_is_found(store: Path, key: str, value: Any) -> None:
    meta = json.loads((store / "meta.json").read_text())
    change(meta, key, value)
    (store / "meta.json").write_text(json.dumps(meta))
    with pytest.raises(NmtError, match=r"meta\.json is damaged or was edited: it does not have the SHA-256"):
        DataFolder.open(store)


@pytest.mark.parametrize(
    "text", [b"[" * 100_000, b"[]", b"7", b"{}", b"\xff", b"", b'{"schema_version": 2}', b'{"schema_version": 2'],
)  # fmt: skip
def test_meta_that_is_not_a_json_object_is_refused(store: Path, text: bytes) -> None:
    (store / "meta.json").write_bytes(text)
    with pytest.raises(NmtError, match=r"meta\.json is damaged \("):
        DataFolder.open(store)


def test_a_folder_that_disappears_before_a_split_is_opened_is_reported(store: Path) -> None:
    data = DataFolder.open(store)
    store.rename(store.with_name("gone"))
    with pytest.raises(NmtError, match=r"train\.en\.tokens is missing; copy the data folder again"):
        data.split("train")
    with pytest.raises(NmtError, match=r"valid\.en\.txt is missing; copy the data folder again"):
        data.raw_lines("valid", "en")


FILES = ["subword.model"] + [
    f"{split}.{lang}.{kind}"
    for split, kinds in {"train": ("tokens", "offsets"), "valid": ("tokens", "offsets", "txt")}.items()
    for lang in ("en", "de")
    for kind in kinds
]


@pytest.mark.parametrize("name", FILES)
def test_every_file_is_checked_by_its_size_and_by_its_hash(store: Path, name: str) -> None:
    DataFolder.open(store).verify()
    data = bytearray((store / name).read_bytes())
    data[data.index(b"ba") + 1 if name == "subword.model" else -1] ^= 1
    (store / name).write_bytes(data)
    opened = DataFolder.open(store)
    with pytest.raises(NmtError, match=rf"{name} is damaged: its SHA-256 is not that in meta\.json; copy the data"):
        opened.verify()
    (store / name).write_bytes(data[:-1])
    with pytest.raises(NmtError, match=rf"{name} has {len(data) - 1:,} bytes instead of {len(data):,}; copy the data"):
        DataFolder.open(store)
    (store / name).unlink()
    with pytest.raises(NmtError, match=rf"{name} is missing; copy the data folder again"):
        opened.verify()
    with pytest.raises(NmtError, match=rf"{name} is missing; copy the data folder again"):
        DataFolder.open(store)


def test_a_signal_ends_verification(store: Path) -> None:
    os.truncate(store / "valid.de.txt", 0)
    (store / "valid.de.txt").write_bytes(b"other\n"[: len("de 0\n")])
    DataFolder.open(store).verify(lambda: True)
