"""The token store: what `nmt preprocess` leaves on disk and training maps into memory (data/writer.py writes it).

A folder, of
    meta.json                     schema version, languages, text processing, counts, what was dropped and why, hashes
                                  of all other files (data/meta.py)
    subword.model                 the joint subword model, or subword.en.model and subword.de.model
    train.en.tokens  .offsets     piece ids end to end, uint16 or uint32, without EOS; where each sentence starts, int64
    valid.en.tokens  .offsets     likewise for every split and both languages; all numbers little-endian
    valid.en.txt                  the raw text of all splits but train, for scoring
    .verified.json                which files training has compared with their hashes (data/verification.py)
Splits are train, valid, test, test1, test2, …
"""

import hashlib
import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

import numpy as np

from nmt.data.meta import META, fingerprint, read_meta
from nmt.data.offsets import offsets_problem
from nmt.data.regular import open_regular
from nmt.errors import DataChanged, NmtError
from nmt.text.codec import TextCodec, TextConfig
from nmt.text.subword import Subword

TRAIN = "train"
OFFSET_TYPE = np.dtype("<i8")


def token_type(vocab_size: int) -> np.dtype[Any]:
    """Two bytes a token where the vocabulary allows, else four."""
    return np.dtype("<u2" if vocab_size <= 1 << 16 else "<u4")


def array_names(split: str, lang: str) -> tuple[str, str]:
    """File names of a side's tokens and offsets."""
    return f"{split}.{lang}.tokens", f"{split}.{lang}.offsets"


def raw_name(split: str, lang: str) -> str:
    return f"{split}.{lang}.txt"


def model_names(config: TextConfig) -> tuple[str, str]:
    """File names of the source's and the target's subword model, the same where they share it."""
    if config.joint_vocab:
        return "subword.model", "subword.model"
    return f"subword.{config.source_lang}.model", f"subword.{config.target_lang}.model"


class Lengths:
    """Tokens of every sentence, with its EOS; worked out when asked for, so that they take no memory."""

    def __init__(self, offsets: np.ndarray) -> None:
        self._offsets = offsets

    def __len__(self) -> int:
        return len(self._offsets) - 1

    def __getitem__(self, sentences: np.ndarray, /) -> np.ndarray:
        """Of the sentences with these numbers."""
        sentences = np.asarray(sentences, dtype=np.int64)
        return self._offsets[sentences + 1] - self._offsets[sentences] + 1

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        """Of all: int32 [sentences]."""
        lengths = np.empty(len(self), dtype=dtype or np.int32)
        np.subtract(self._offsets[1:], self._offsets[:-1], out=lengths, casting="unsafe")
        lengths += 1
        return lengths

    @property
    def total(self) -> int:
        return int(self._offsets[-1]) + len(self)


class TokenArray:
    """The sentences of one side of a split."""

    def __init__(self, tokens: np.ndarray, offsets: np.ndarray) -> None:
        """`tokens` [all tokens]; `offsets` [sentences + 1], where sentence i is tokens[offsets[i]:offsets[i + 1]]."""
        self.tokens, self.offsets = tokens, offsets

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def lengths(self) -> Lengths:
        """Tokens of every sentence, with EOS."""
        return Lengths(self.offsets)

    def __getitem__(self, index: int) -> np.ndarray:
        """The ids of a sentence, without EOS; a view of the file that cannot be written to."""
        if not 0 <= index < len(self):
            raise IndexError(f"sentence {index} of {len(self)}")
        return self.tokens[self.offsets[index] : self.offsets[index + 1]]


class ParallelSplit:
    """Both sides of a split; sentence i of one is the translation of sentence i of the other."""

    def __init__(self, source: TokenArray, target: TokenArray, *, sizes: Mapping[Path, int] | None = None) -> None:
        """`sizes` are the bytes of the files that the arrays are mapped from, if there are any."""
        self.source, self.target = source, target
        self._sizes = sizes or {}

    def __len__(self) -> int:
        return len(self.source)

    def check_files(self) -> None:
        """Looks whether the files are still there and have the size that they had when they were opened.

        Reading from the mapping of a file that has become shorter ends the process with SIGBUS. A file that is cut
        between this check and the reading still does: Python cannot handle that signal.

        Raises:
            DataChanged: a file is gone or has another size.
        """
        for path, size in self._sizes.items():
            if problem := _size_problem(path, size):
                raise DataChanged(f"{path} {problem}")


class DataFolder:
    """A token store; make one with `open`."""

    def __init__(self, path: Path, meta: dict[str, Any], codec: TextCodec) -> None:
        self.path, self.meta, self.codec = path, meta, codec
        self.fingerprint = fingerprint(meta)
        self._splits: dict[str, ParallelSplit] = {}

    @classmethod
    def open(cls, path: str | Path) -> Self:
        """Reads meta.json and the subword models, and checks every file's size. Tokens are read when asked for.

        Raises:
            NmtError: not a store, one of another schema version, or a missing, truncated or altered file.
        """
        path = Path(path)
        meta = read_meta(path)
        config = TextConfig.from_dict(meta.get("text"), str(path / META))
        codec = _read_codec(path, meta, config)
        for split in meta["splits"]:
            for file, size in _sizes(path, meta, config, split).items():
                if problem := _size_problem(file, size):
                    raise NmtError(f"{file} {problem}; copy the data folder again or run nmt preprocess again")
        return cls(path, meta, codec)

    def split(self, name: str) -> ParallelSplit:
        """Returns the split called `name`: train, valid, test, test1, …

        Raises:
            NmtError: there is no such split, or its offsets are damaged.
            DataChanged: its files are not those that were there when the folder was opened.
        """
        self._check_split(name)
        if name not in self._splits:
            self._splits[name] = self._open_split(name)
        return self._splits[name]

    def raw_lines(self, name: str, lang: str) -> list[str]:
        """Returns the raw text of one side of a split other than train.

        Raises:
            NmtError: there is no such split, or it has no text.
            DataChanged: the text cannot be read, or does not have a line for each sentence.
        """
        self._check_split(name)
        path, pairs = self.path / raw_name(name, lang), self.meta["splits"][name]["pairs"]
        if name == TRAIN:
            raise NmtError(f"{path} does not exist; a data folder keeps the text of valid and test only")
        try:
            # Not text.corpus.read_lines: a "\r" that was kept when this file was written is part of the text.
            with open_regular(path) as file:
                lines = file.read().decode("utf-8").split("\n")[:-1]
        except OSError as error:
            raise DataChanged(f"{path} cannot be read ({error.strerror})") from error
        except UnicodeDecodeError as error:
            raise DataChanged(f"{path} is damaged (byte {error.start + 1:,} is not UTF-8)") from error
        if len(lines) != pairs:
            raise DataChanged(f"{path} has {len(lines):,} lines instead of {pairs:,}")
        return lines

    def _check_split(self, name: str) -> None:
        if name not in self.meta["splits"]:
            raise NmtError(f"{self.path} has no split {name!r}; it has {', '.join(self.meta['splits'])}")

    def _open_split(self, name: str) -> ParallelSplit:
        langs = side_langs(self.codec.config)
        source, target = (self._map_side(name, side, lang) for side, lang in langs.items())
        split = ParallelSplit(source, target, sizes=_sizes(self.path, self.meta, self.codec.config, name))
        split.check_files()
        longest = self.meta.get("options", {}).get("max_length") if name == TRAIN else None
        for array, lang in zip((source, target), langs.values(), strict=True):
            if problem := offsets_problem(array.offsets, len(array.tokens), longest):
                path = self.path / array_names(name, lang)[1]
                raise NmtError(f"{path} is damaged: {problem}; copy the data folder again or run nmt preprocess again")
        return split

    def _map_side(self, split: str, side: str, lang: str) -> TokenArray:
        tokens, offsets = (self.path / name for name in array_names(split, lang))
        return TokenArray(_map(tokens, token_type(self.meta["vocab_sizes"][side])), _map(offsets, OFFSET_TYPE))


def side_langs(config: TextConfig) -> dict[str, str]:
    """Returns the language of each side."""
    return {"source": config.source_lang, "target": config.target_lang}


def _map(path: Path, kind: np.dtype[Any]) -> np.ndarray:
    try:
        if path.stat().st_size == 0:  # which mmap refuses: a split of empty lines
            return np.empty(0, dtype=kind)
        return np.asarray(np.memmap(path, dtype=kind, mode="r"))
    except (OSError, ValueError) as error:  # ValueError: its size is no multiple of the item's
        raise DataChanged(f"{path} cannot be read ({error})") from error


def _sizes(path: Path, meta: Mapping[str, Any], config: TextConfig, split: str) -> dict[Path, int]:
    """Returns the bytes that each array file of a split must have."""
    counts, sizes = meta["splits"][split], {}
    for side, lang in side_langs(config).items():
        tokens, offsets = array_names(split, lang)
        sizes[path / tokens] = counts[f"{side}_tokens"] * token_type(meta["vocab_sizes"][side]).itemsize
        sizes[path / offsets] = (counts["pairs"] + 1) * OFFSET_TYPE.itemsize
    return sizes


def _size_problem(path: Path, size: int) -> str | None:
    """Returns what is wrong with a file that must have this size, in words; None if nothing is."""
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return "is missing"
    except OSError as error:
        return f"cannot be read ({error.strerror})"
    if not stat.S_ISREG(found.st_mode):
        return "is not a regular file"
    return None if found.st_size == size else f"has {found.st_size:,} bytes instead of {size:,}"


def _read_codec(path: Path, meta: Mapping[str, Any], config: TextConfig) -> TextCodec:
    names, hashes, sizes = model_names(config), meta["subword_sha256"], meta["vocab_sizes"]
    source = read_model(path / names[0], config.subword, hashes["source"])
    target = source if config.joint_vocab else read_model(path / names[1], config.subword, hashes["target"])
    for side, model in (("source", source), ("target", target)):
        if sizes[side] != len(model):
            raise NmtError(
                f"{path / META} is damaged (vocab_sizes.{side} is {sizes[side]:,}, but the subword model has "
                f"{len(model):,} pieces); run nmt preprocess again"
            )
    return TextCodec(config, source, target)


def read_model(path: Path, kind: str, sha256: str | None = None) -> Subword:
    """Returns the subword model in a file of a store, which has this hash if one is given.

    Raises:
        NmtError: it cannot be read, or is another one.
    """
    try:
        with open_regular(path) as file:
            data = file.read()
    except OSError as error:
        raise NmtError(f"{path} cannot be read ({error.strerror}); run nmt preprocess again") from error
    if sha256 and hashlib.sha256(data).hexdigest() != sha256:
        raise NmtError(f"{path} is not the subword model the data was encoded with; run nmt preprocess again")
    return Subword.from_bytes(data, kind, str(path))
