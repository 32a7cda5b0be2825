"""Every damage to a data folder is found, and reported in one sentence that names the file."""

import json
import os
import shutil
from collections.abc import Callable
from itertools import count
from pathlib import Path
from threading import Event
from typing import Any

import numpy as np
import pytest
from checkpoints import change
from test_store import CODEC, write

from nmt.data import verification
from nmt.data.batching import make_plan
from nmt.data.loader import updates
from nmt.data.store import DataFolder
from nmt.data.verification import Verification, verify
from nmt.data.writer import SplitWriter, StoreWriter, flatten
from nmt.errors import DataChanged, NmtError


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return write(tmp_path / "data", {"train": [([4, 5], [6]), ([7], [8, 9, 10])], "valid": [([12], [11])]})


def change_meta(store: Path, key: str, value: Any) -> None:
    """Changes a value of meta.json; see `change`."""
    meta = json.loads((store / "meta.json").read_text())
    change(meta, key, value)
    (store / "meta.json").write_text(json.dumps(meta))


@pytest.mark.parametrize(
    ("key", "value", "found"),
    [
        ("splits/train/pairs", "x", "splits.train.pairs is 'x' instead of a whole number"),
        ("splits/train/pairs", -1, "splits.train.pairs is -1"),
        ("splits/train/pairs", True, "splits.train.pairs is True"),
        ("splits/train/pairs", 2.0, "splits.train.pairs is 2.0"),
        ("splits/train/pairs", float("nan"), "Out of range"),
        ("splits/train/pairs", 2**63, "splits.train.pairs is 9223372036854775808"),
        ("splits/train/source_tokens", ..., "splits.train.source_tokens is missing"),
        ("splits/train/source_sha256", [1], "splits.train.source_sha256 is"),
        ("splits/valid/target_text_sha256", "0" * 63, "splits.valid.target_text_sha256 is"),
        ("splits/train/dropped", {"empty": None}, "splits.train.dropped.empty is None"),
        ("splits/valid", 7, "splits.valid is 7 instead of an object"),
        ("splits/trains", {}, "a key of splits is 'trains'"),
        ("splits", [], "splits is"),
        ("vocab_sizes/source", 331, "vocab_sizes.source is 331, but the subword model has 330 pieces"),
        ("vocab_sizes/source", 2**40, "vocab_sizes.source is 1,099,511,627,776, but"),
        ("vocab_sizes/source", "330", "vocab_sizes.source is '330'"),
        ("subword_sha256/source", None, "subword_sha256.source is None"),
        ("options/max_length", "9", "options.max_length is '9'"),
        ("schema_version", True, "schema_version is True"),
        ("schema_version", ..., "schema_version is missing"),
        ("text", 7, "text processing"),
        ("text", ..., "text processing"),
        ("text/source_lang", "a/b", "source_lang is 'a/b'"),
        ("text/source_lang", "a\0b", "source_lang is 'a"),
        ("text/source_lang", "", "source_lang is ''"),
        ("text/source_lang", "\ud800", "surrogates"),
        ("text/source_tokenizer", 7, "source_tokenizer is 7"),
        ("text/target_tokenizer", "none ", "target_tokenizer is 'none '"),
        ("text/normalize_punctuation", "target", "normalize_punctuation is 'target'"),
        ("text/lowercase", "no", "lowercase is 'no'"),
        ("text/subword", ["bpe"], "subword is"),
        ("text/more", 1, "more"),
    ],
)
def test_damaged_meta_is_found_when_the_folder_is_opened(store: Path, key: str, value: Any, found: str) -> None:
    change_meta(store, key, value)
    with pytest.raises(NmtError) as error:
        DataFolder.open(store)
    assert str(error.value).startswith(f"{store}/meta.json is damaged")
    assert found in str(error.value)


def test_a_language_that_is_too_long_for_a_file_name_is_refused(store: Path) -> None:
    change_meta(store, "text/source_lang", "a" * 300)
    with pytest.raises(NmtError, match=r"tokens cannot be read \(File name too long\); copy the data folder again"):
        DataFolder.open(store)


@pytest.mark.parametrize("text", [b"[" * 100_000, b'{"a":' * 990 + b"1" + b"}" * 990, b"[]", b"\xff", b"", b"NaN"])
def test_meta_that_is_not_a_json_object_is_refused(store: Path, text: bytes) -> None:
    (store / "meta.json").write_bytes(text)
    with pytest.raises(NmtError, match=r"meta\.json is damaged \("):
        DataFolder.open(store)


@pytest.mark.parametrize("name", ["meta.json", "subword.model", "train.en.tokens"])
def test_a_pipe_in_place_of_a_file_is_refused_at_once(store: Path, name: str) -> None:
    (store / name).unlink()
    os.mkfifo(store / name)
    with pytest.raises(NmtError, match=rf"{name} .*is not a regular file"):
        DataFolder.open(store)


# Offsets


@pytest.mark.parametrize(
    ("offsets", "found"),
    [
        ([-1, 1, 2, 3], "sentence 1 starts at token -1 instead of 0"),
        ([0, 1, 2, 2**62], "the last sentence ends at token 4,611,686,018,427,387,904 instead of 3"),
        ([0, 5, 2, 3], "sentence 2 starts at token 5 and ends at token 2"),
        ([0, -1, 2, 3], "sentence 1 starts at token 0 and ends at token -1"),
        # All 64-bit differences of these offsets are positive, because they overflow.
        (
            [0, 2**62 + 1, -(2**62) - 1, 3],
            "sentence 2 starts at token 4,611,686,018,427,387,905 and ends at token -4,611,686,018,427,387,905",
        ),
    ],
)
def test_damaged_offsets_are_found_when_the_split_is_opened(tmp_path: Path, offsets: list[int], found: str) -> None:
    pairs = [([4], [6, 7]), ([5], [8, 9]), ([6], [10])]
    store = write(tmp_path / "data", {"train": pairs, "valid": pairs})
    for split in ("train", "valid"):
        path = store / f"{split}.en.offsets"
        path.write_bytes(np.array(offsets, "<i8").tobytes())
        with pytest.raises(NmtError) as error:
            DataFolder.open(store).split(split)
        assert str(error.value).startswith(f"{path} is damaged: {found}; copy the data folder again")


def test_a_decrease_of_offsets_is_found_at_the_end_of_a_block_and_of_the_file(tmp_path: Path) -> None:
    """Offsets are checked in blocks of 2^18 sentences."""
    pairs = (1 << 18) + 5
    with StoreWriter.at(tmp_path / "data") as writer:
        with SplitWriter(writer.folder, "train", CODEC.config, raw=False) as split:
            lengths = np.ones(pairs, dtype=np.int64)
            split.append(*[flatten([], 330)._replace(tokens=np.full(pairs, 4, "<u2"), lengths=lengths)] * 2)
        writer.finish(CODEC, {"train": split.counts}, {})
    path = tmp_path / "data" / "train.en.offsets"
    good = np.fromfile(path, "<i8")
    for sentence in ((1 << 18) - 1, 1 << 18, pairs - 1):
        bad = good.copy()
        bad[sentence] = bad[sentence + 1] + 1
        bad.tofile(path)
        with pytest.raises(NmtError, match=rf"sentence {sentence + 1:,} starts"):
            DataFolder.open(tmp_path / "data").split("train")


def test_a_training_sentence_longer_than_max_length_counts_as_damage(store: Path) -> None:
    change_meta(store, "options/max_length", 2)
    data = DataFolder.open(store)
    with pytest.raises(NmtError, match=r"train\.de\.offsets is damaged: sentence 2 has 3 pieces instead of at most 2"):
        data.split("train")
    change_meta(store, "options/max_length", 3)
    DataFolder.open(store).split("train")
    change_meta(store, "options", {})
    DataFolder.open(store).split("train")


def test_a_validation_sentence_may_be_longer_than_max_length(tmp_path: Path) -> None:
    store = write(tmp_path / "data", {"train": [([4], [5])], "valid": [([6] * 9, [7])]})
    change_meta(store, "options/max_length", 2)
    assert len(DataFolder.open(store).split("valid").source[0]) == 9


# Files that change while they are in use


@pytest.mark.parametrize("change", [Path.unlink, lambda path: os.truncate(path, 2), lambda path: os.truncate(path, 99)])
@pytest.mark.parametrize("name", ["train.en.tokens", "train.de.offsets"])
def test_a_change_of_a_file_in_use_is_noticed(store: Path, name: str, change: Callable[[Path], None]) -> None:
    split = DataFolder.open(store).split("train")
    plan = make_plan(np.array([3, 2]), np.array([2, 4]), batch_tokens=9, groups=1, seed=1, epoch=0)
    split.check_files()
    change(store / name)
    message = rf"{name} (is missing|has \d+ bytes instead of \d+); restore the data folder and start the same"
    with pytest.raises(DataChanged, match=message):
        split.check_files()
    with pytest.raises(DataChanged, match=message):
        next(updates(split, plan, 9))


def test_a_folder_that_disappears_before_a_split_is_opened_is_reported(store: Path) -> None:
    data = DataFolder.open(store)
    store.rename(store.with_name("gone"))
    with pytest.raises(DataChanged, match=r"train\.en\.tokens cannot be read"):
        data.split("train")
    with pytest.raises(DataChanged, match=r"valid\.en\.txt cannot be read \(No such file or directory\)"):
        data.raw_lines("valid", "en")


@pytest.mark.parametrize(
    ("text", "found"),
    [(b"", "has 0 lines instead of 1"), (b"a\nb\n", "has 2 lines instead of 1"), (b"\xff\n", "byte 1 is not UTF-8")],
)
def test_raw_text_that_does_not_match_its_split_is_refused(store: Path, text: bytes, found: str) -> None:
    (store / "valid.en.txt").write_bytes(text)
    with pytest.raises(DataChanged, match=rf"valid\.en\.txt .*{found}"):
        DataFolder.open(store).raw_lines("valid", "en")


# Hashes

HASHED = [
    f"{split}.{lang}.{kind}"
    for split, kinds in {"train": ("tokens", "offsets"), "valid": ("tokens", "offsets", "txt")}.items()
    for lang in ("en", "de")
    for kind in kinds
]


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize("name", HASHED)
def test_verification_finds_damage_in_every_file(store: Path, name: str) -> None:
    verify(DataFolder.open(store))
    flip(store / name)
    message = rf"{name} is damaged: it does not have the SHA-256 that meta\.json records; copy the data folder again"
    for _ in range(2):
        with pytest.raises(NmtError, match=message):
            verify(DataFolder.open(store))


def test_a_verified_file_is_hashed_again_only_if_it_changes(store: Path) -> None:
    verify(DataFolder.open(store))
    tokens = store / "train.en.tokens"
    found = tokens.stat()
    flip(tokens)
    os.utime(tokens, ns=(found.st_atime_ns, found.st_mtime_ns))
    verify(DataFolder.open(store))
    copy = shutil.copytree(store, store.with_name("copy"))  # the copy has the same times but other inodes
    os.utime(tokens, ns=(found.st_atime_ns, found.st_mtime_ns + 1))
    for damaged in (store, copy):
        with pytest.raises(NmtError, match="is damaged"):
            verify(DataFolder.open(damaged))


def test_other_hashes_in_meta_count_as_a_change(store: Path) -> None:
    verify(DataFolder.open(store))
    change_meta(store, "splits/train/source_offsets_sha256", "0" * 64)
    with pytest.raises(NmtError, match=r"train\.en\.offsets is damaged"):
        verify(DataFolder.open(store))


def test_older_folders_are_verified_with_the_hashes_that_they_record(store: Path) -> None:
    before = DataFolder.open(store).fingerprint
    for side in ("source", "target"):
        change_meta(store, f"splits/valid/{side}_text_sha256", ...)
        for split in ("train", "valid"):
            change_meta(store, f"splits/{split}/{side}_offsets_sha256", ...)
    (store / "valid.en.txt").write_text("another\n")
    data = DataFolder.open(store)
    verify(data)
    assert data.fingerprint == before
    flip(store / "valid.en.tokens")
    with pytest.raises(NmtError, match=r"valid\.en\.tokens is damaged"):
        verify(data)


def link_elsewhere(path: Path) -> None:
    path.symlink_to(path.parent.parent / "elsewhere")


@pytest.mark.parametrize(
    "put",
    [
        link_elsewhere,
        os.mkfifo,
        Path.mkdir,
        lambda path: path.write_bytes(b"[" * 100_000),
        lambda path: path.write_text("[]"),
        lambda path: path.write_text('{"train.en.tokens": [[], 1, null]}'),
        lambda path: path.write_bytes(b"\xff"),
    ],
)
def test_any_file_in_place_of_the_record_of_verification_is_harmless(store: Path, put: Callable[[Path], None]) -> None:
    (store.parent / "elsewhere").write_text("mine")
    put(store / ".verified.json")
    verify(DataFolder.open(store))
    assert (store.parent / "elsewhere").read_text() == "mine"
    assert not list(store.glob("*partial*"))
    flip(store / "train.en.tokens")
    with pytest.raises(NmtError, match="is damaged"):
        verify(DataFolder.open(store))


def test_a_file_that_cannot_be_hashed_is_named(store: Path) -> None:
    (store / "valid.de.txt").unlink()
    with pytest.raises(NmtError, match=r"valid\.de\.txt cannot be read \(No such file or directory\)"):
        verify(DataFolder.open(store))


def test_a_long_verification_is_announced_once_and_a_signal_ends_the_wait(
    store: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    end, waits, ended = Event(), count(), []

    def ends_after_three_waits() -> bool:
        if next(waits) == 3:
            end.set()
        return False

    monkeypatch.setattr(verification, "_QUIET_SECONDS", 0.0)
    monkeypatch.setattr(verification, "_POLL_SECONDS", 0.001)
    monkeypatch.setattr(verification, "verify", lambda _: ended.append(end.wait(60)))
    assert Verification(DataFolder.open(store)).error(ends_after_three_waits) is None
    assert capfd.readouterr().err.count("verifying the files of") == 1
    assert ended == [True]
    end.clear()
    assert Verification(DataFolder.open(store)).error(lambda: True) is None
    assert ended == [True]
    end.set()
