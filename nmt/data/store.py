"""The token store: what `nmt preprocess` leaves on disk and training maps into memory (data/writer.py writes it).

A folder, of
    meta.json                     schema version, languages, text processing, counts, what was dropped and why, hashes
    subword.model                 the joint subword model, or subword.en.model and subword.de.model
    train.en.tokens  .offsets     piece ids end to end, uint16 or uint32, without EOS; where each sentence starts, int64
    valid.en.tokens  .offsets     likewise for every split and both languages; all numbers little-endian
    valid.en.txt                  the raw text of all splits but train, for scoring
Splits are train, valid, test, test1, test2, …
"""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

import numpy as np

from nmt.errors import NmtError
from nmt.text.codec import TextCodec, TextConfig
from nmt.text.subword import Subword

SCHEMA_VERSION = 1
META = "meta.json"
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


def fingerprint(meta: Mapping[str, Any]) -> str:
    """A hash that is equal for stores of the same tokens and subword models, wherever and whenever they were made."""
    hashes = {name: [split["source_sha256"], split["target_sha256"]] for name, split in meta["splits"].items()}
    identity = [meta["schema_version"], meta["text"], meta["subword_sha256"], hashes]
    return hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()


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

    def __init__(self, source: TokenArray, target: TokenArray) -> None:
        self.source, self.target = source, target

    def __len__(self) -> int:
        return len(self.source)


class DataFolder:
    """A token store; make one with `open`."""

    def __init__(self, path: Path, meta: dict[str, Any], codec: TextCodec) -> None:
        self.path, self.meta, self.codec = path, meta, codec
        self.fingerprint = fingerprint(meta)

    @classmethod
    def open(cls, path: str | Path) -> Self:
        """Reads meta.json and the subword models, and checks every file's size. Tokens are read when asked for.

        Raises:
            NmtError: not a store, one of another schema version, or a missing, truncated or altered file.
        """
        path = Path(path)
        meta = _read_meta(path)
        try:
            config = TextConfig(**meta["text"])
            _check_sizes(path, meta, config)
            names, hashes = model_names(config), meta["subword_sha256"]
            source = read_model(path / names[0], config.subword, hashes["source"])
            same = names[0] == names[1]
            target = source if same else read_model(path / names[1], config.subword, hashes["target"])
            return cls(path, meta, TextCodec(config, source, target))
        except (KeyError, TypeError, AttributeError) as error:
            raise NmtError(f"{path / META} is damaged ({error!r}); run nmt preprocess again") from error

    def split(self, name: str) -> ParallelSplit:
        """The split called `name`: train, valid, test, test1, …

        Raises:
            NmtError: there is no such split.
        """
        self._check_split(name)
        config = self.codec.config
        sides = ((config.source_lang, self.codec.source), (config.target_lang, self.codec.target))
        return ParallelSplit(*(self._tokens(name, lang, token_type(len(subword))) for lang, subword in sides))

    def raw_lines(self, name: str, lang: str) -> list[str]:
        """The raw text of one side of a split other than train.

        Raises:
            NmtError: there is no such split or language, or the text cannot be read.
        """
        self._check_split(name)
        path = self.path / raw_name(name, lang)
        try:
            # Not text.corpus.read_lines: a "\r" that was kept when this file was written is part of the text.
            return path.read_bytes().decode("utf-8").split("\n")[:-1]
        except (OSError, UnicodeDecodeError) as error:
            raise NmtError(
                f"{path} cannot be read ({error}); the store keeps the text of valid and test only"
            ) from error

    def _check_split(self, name: str) -> None:
        if name not in self.meta["splits"]:
            raise NmtError(f"{self.path} has no split {name!r}; it has {', '.join(self.meta['splits'])}")

    def _tokens(self, split: str, lang: str, kind: np.dtype[Any]) -> TokenArray:
        tokens, offsets = (self.path / name for name in array_names(split, lang))
        return TokenArray(_map(tokens, kind), _map(offsets, OFFSET_TYPE))


def _map(path: Path, kind: np.dtype[Any]) -> np.ndarray:
    if path.stat().st_size == 0:  # which mmap refuses: a split of empty lines
        return np.empty(0, dtype=kind)
    return np.asarray(np.memmap(path, dtype=kind, mode="r"))


def _read_meta(path: Path) -> dict[str, Any]:
    if not path.exists():
        raise NmtError(f"{path} does not exist; make it with nmt preprocess --dest {path}")
    try:
        meta = json.loads((path / META).read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError) as error:
        raise NmtError(f"{path} is not a data folder (it has no {META}); give what nmt preprocess made") from error
    except (OSError, ValueError) as error:
        raise NmtError(f"{path / META} cannot be read ({error}); run nmt preprocess again") from error
    version = meta.get("schema_version") if isinstance(meta, dict) else None
    if version != SCHEMA_VERSION:
        raise NmtError(
            f"{path} has schema version {version}, but this nmt reads version {SCHEMA_VERSION}; "
            f"run nmt preprocess again, or use the nmt that made it"
        )
    return dict(meta)


def _check_sizes(path: Path, meta: Mapping[str, Any], config: TextConfig) -> None:
    """Catches a copy that was cut short before training does."""
    for split, counts in meta["splits"].items():
        for side, lang in (("source", config.source_lang), ("target", config.target_lang)):
            token_bytes = token_type(meta["vocab_sizes"][side]).itemsize
            sizes = counts[f"{side}_tokens"] * token_bytes, (counts["pairs"] + 1) * OFFSET_TYPE.itemsize
            for name, size in zip(array_names(split, lang), sizes, strict=True):
                found = (path / name).stat().st_size if (path / name).is_file() else None
                if found != size:
                    state = "is missing" if found is None else f"has {found:,} bytes instead of {size:,}"
                    raise NmtError(f"{path / name} {state}; copy the data folder again or run nmt preprocess again")


def read_model(path: Path, kind: str, sha256: str | None = None) -> Subword:
    """The subword model in a file of a store, which has this hash if one is given.

    Raises:
        NmtError: it cannot be read, or is another one.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise NmtError(f"{path} cannot be read ({error.strerror}); run nmt preprocess again") from error
    if sha256 and hashlib.sha256(data).hexdigest() != sha256:
        raise NmtError(f"{path} is not the subword model the data was encoded with; run nmt preprocess again")
    return Subword.from_bytes(data, kind, str(path))
