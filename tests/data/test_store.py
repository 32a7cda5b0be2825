"""A data folder is read as it was written, never looks complete when it is not, and shows every damage."""

import dataclasses
import json
import os
import resource
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from checkpoints import TEXT_CONFIG, change
from conftest import invented_pairs
from hypothesis import given, settings
from hypothesis import strategies as st

from nmt.data.arrays import TokenArray
from nmt.data.folder import DataFolder, SplitWriter, complete, flatten, token_type
from nmt.errors import NmtError
from nmt.files import new_folder
from nmt.text.codec import TextCodec
from nmt.text.subword import Subword

TEXT = [line for pair in invented_pairs(200) for line in pair]
MODEL, OTHER = Subword.train(TEXT, "bpe", 330), Subword.train(TEXT[::2], "bpe", 310)
CODEC = TextCodec(TEXT_CONFIG, MODEL, MODEL)
SEPARATE = TextCodec(dataclasses.replace(TEXT_CONFIG, joint_vocab=False), MODEL, OTHER)

Pairs = list[tuple[list[int], list[int]]]


def write(dest: Path, splits: dict[str, Pairs], codec: TextCodec = CODEC, chunk: int = 3) -> Path:
    done = {}
    with new_folder(dest, "--dest") as folder:
        for name, pairs in splits.items():
            with SplitWriter(folder, name, codec.config, raw=codec.config.trained if name != "train" else ()) as split:
                for start in range(0, len(pairs), chunk):
                    sides = zip(*pairs[start : start + chunk], strict=True)
                    split.append(*(flatten(list(side), len(codec.source)) for side in sides))
                if name != "train":
                    split.append_raw(*[[f"{lang} {i}" for i in range(len(pairs))] for lang in ("en", "de")])
            done[name] = split.meta
        complete(folder, codec, done, {"seed": 1})
    return dest


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return write(tmp_path / "data", {"train": [([4, 5], [6]), ([7], [8, 9, 10])], "valid": [([12], [11])]})


sentences = st.lists(st.integers(4, 329), max_size=6)
pair_lists = st.lists(st.tuples(sentences, sentences), max_size=8)


@settings(max_examples=30)
@given(train=pair_lists, valid=pair_lists, chunk=st.integers(1, 4), separate=st.booleans())
def test_sentences_are_read_as_they_were_written(
    tmp_path_factory: pytest.TempPathFactory, train: Pairs, valid: Pairs, chunk: int, separate: bool
) -> None:
    path = tmp_path_factory.mktemp("store") / "data"
    codec = SEPARATE if separate else CODEC
    data = DataFolder.open(write(path, {"train": train, "valid": valid}, codec, chunk))
    for name, pairs in (("train", train), ("valid", valid)):
        split = data.split(name)
        assert len(split) == len(split.source) == len(split.target) == len(pairs)
        for side, array in enumerate((split.source, split.target)):
            assert [array[i].tolist() for i in range(len(array))] == [pair[side] for pair in pairs]
            lengths = [len(pair[side]) + 1 for pair in pairs]
            assert np.asarray(array.lengths).dtype == np.int32
            assert np.asarray(array.lengths).tolist() == lengths == array.lengths[np.arange(len(pairs))].tolist()
            assert array.lengths.total == sum(lengths)
    assert data.codec.config == codec.config
    assert data.codec.encode_target(TEXT) == codec.encode_target(TEXT)


def test_a_token_takes_two_bytes_if_the_vocabulary_allows_it(store: Path) -> None:
    assert DataFolder.open(store).split("train").source[0].dtype == np.uint16
    assert (store / "train.en.tokens").stat().st_size == 3 * 2
    assert [token_type(size).itemsize for size in (1 << 16, (1 << 16) + 1)] == [2, 4]
    assert flatten([[65535]], 1 << 16).tokens.tolist() == [65535]
    assert flatten([[65536], []], 70_000).tokens.tolist() == [65536]


def test_sentences_are_read_only_and_wrong_numbers_are_refused(store: Path) -> None:
    array = DataFolder.open(store).split("train").source
    with pytest.raises(ValueError, match="read-only"):
        array[0][0] = 9
    for index in (2, -1):
        with pytest.raises(IndexError, match="of 2"):
            array[index]


def test_lengths_of_many_tokens_do_not_overflow() -> None:
    offsets = np.array([0, 1 << 33, (1 << 33) + 5], dtype="<i8")
    assert TokenArray(np.empty(0), offsets).lengths[np.array([1])].tolist() == [6]


def test_raw_text_is_stored_unchanged(tmp_path: Path) -> None:
    lines = ["", " a \u2028 b\x85", "ends in \r", "ä\0"]
    upper = [line.upper() for line in lines]
    with new_folder(tmp_path / "data", "--dest") as folder:
        with SplitWriter(folder, "test1", TEXT_CONFIG, raw=TEXT_CONFIG.trained) as split:
            split.append(flatten([[4]] * 4, 330), flatten([[5]] * 4, 330))
            split.append_raw(lines[:1], upper[:1])
            split.append_raw(lines[1:], upper[1:])
        complete(folder, CODEC, {"test1": split.meta}, {})
    data = DataFolder.open(tmp_path / "data")
    assert data.raw_lines("test1") == (lines, upper)


def test_missing_splits_and_missing_raw_text_are_named(store: Path) -> None:
    data = DataFolder.open(store)
    with pytest.raises(NmtError, match="no split 'test'; it has train, valid"):
        data.split("test")
    with pytest.raises(NmtError, match="no split 'test'"):
        data.raw_lines("test")
    with pytest.raises(NmtError, match=r"train\.en\.txt .* keeps the text of valid and test only"):
        data.raw_lines("train")


def test_other_folders_and_schemas_are_refused(store: Path, tmp_path: Path) -> None:
    with pytest.raises(NmtError, match="nowhere does not exist; give a folder that nmt preprocess made"):
        DataFolder.open(tmp_path / "nowhere")
    for other in (tmp_path, store / "meta.json"):
        with pytest.raises(NmtError, match="is not a data folder"):
            DataFolder.open(other)
    meta = json.loads((store / "meta.json").read_text())
    (store / "meta.json").write_text(json.dumps(meta | {"schema_version": 99}))
    with pytest.raises(NmtError, match="schema version 99, but this nmt reads version 2"):
        DataFolder.open(store)


def test_the_fingerprint_depends_on_the_tokens_and_the_codec(tmp_path: Path) -> None:
    contents = [([4, 5], CODEC), ([4, 5], CODEC), ([5, 4], CODEC), ([4, 5], SEPARATE)]
    first, second, *others = (
        DataFolder.open(write(tmp_path / f"{i}", {"train": [(source, [6])]}, codec)).meta.fingerprint
        for i, (source, codec) in enumerate(contents)
    )
    assert first == second
    assert len({first, *others}) == 3


def test_the_destination_must_not_exist(store: Path, tmp_path: Path) -> None:
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")
    for dest in (store, store / "meta.json", tmp_path / "dangling", Path("."), Path("/")):
        with pytest.raises(NmtError, match=r"--dest .* already exists"):
            write(dest, {})
    with pytest.raises(NmtError, match=r"data2 cannot be written"):
        write(store / "meta.json" / "data2", {})


@pytest.fixture
def full_disk() -> Iterator[None]:
    """Makes files that become larger than 100,000 bytes fail, as on a full disk."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, limits[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, limits)


@pytest.mark.filterwarnings("error::pytest.PytestUnraisableExceptionWarning")  # of a file that is not closed
@pytest.mark.usefixtures("full_disk")
@pytest.mark.parametrize("chunks", [50, 11])  # writing fails with 50 chunks; with 11, only closing the file fails
def test_a_full_disk_is_reported_and_leaves_no_files(tmp_path: Path, chunks: int) -> None:
    problem = r"^/.*/\.data\.partial-.*train\.en\.tokens cannot be written \(File too large\)"
    with (
        pytest.raises(NmtError, match=f"{problem}; free some space or choose another --dest$"),
        new_folder(tmp_path / "data", "--dest") as folder,
        SplitWriter(folder, "train", TEXT_CONFIG) as split,
    ):
        for _ in range(chunks):
            split.append(flatten([[4] * 50] * 100, 300), flatten([[4]] * 100, 300))
    assert list(tmp_path.iterdir()) == []


# Damage, which is reported in one sentence that names the file


@pytest.mark.parametrize(
    ("key", "value"),
    [("splits/train/pairs", 3), ("splits/valid", {}), ("text/lowercase", 1), ("files", ...), ("sha256", "0" * 64)],
)
def test_any_change_of_meta_is_found(store: Path, key: str, value: Any) -> None:
    meta = json.loads((store / "meta.json").read_text())
    change(meta, key, value)
    (store / "meta.json").write_text(json.dumps(meta))
    with pytest.raises(NmtError, match=r"meta\.json is damaged or was edited: its SHA-256 is not that in it"):
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
    with pytest.raises(
        NmtError, match=r"train\.en\.tokens cannot be read .No such file or directory.; copy the data folder again"
    ):
        data.split("train")
    with pytest.raises(
        NmtError, match=r"valid\.en\.txt cannot be read .No such file or directory.; copy the data folder again"
    ):
        data.raw_lines("valid")


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
    with pytest.raises(NmtError, match=rf"{name} is damaged: meta\.json has another SHA-256; copy the data"):
        opened.verify()
    (store / name).write_bytes(data[:-1])
    with pytest.raises(NmtError, match=rf"{name} has {len(data) - 1:,} bytes instead of {len(data):,}; copy the data"):
        DataFolder.open(store)
    (store / name).unlink()
    with pytest.raises(
        NmtError, match=rf"{name} cannot be read .No such file or directory.; copy the data folder again"
    ):
        opened.verify()
    with pytest.raises(
        NmtError, match=rf"{name} cannot be read .No such file or directory.; copy the data folder again"
    ):
        DataFolder.open(store)


def test_a_signal_ends_verification(store: Path) -> None:
    os.truncate(store / "valid.de.txt", 0)
    (store / "valid.de.txt").write_bytes(b"other\n"[: len("de 0\n")])
    DataFolder.open(store).verify(lambda: True)
