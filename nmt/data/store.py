"""Reads data folders, which `nmt preprocess` writes (data/writer.py) and training maps into memory.

A data folder holds these files; all numbers are little-endian:
    meta.json           schema version, languages, text processing, counts, numbers of dropped pairs by reason, and the
                        hashes of all other files (data/meta.py)
    subword.model       the joint subword model; for separate vocabularies, subword.en.model and subword.de.model
    train.en.tokens     the piece ids of all sentences end to end, without EOS; uint16 or uint32
    train.en.offsets    the position in the tokens where each sentence starts, and the end of the last one; int64. If a
                        sentence has several encodings, they follow each other like sentences
    train.en-de.links   with --alignments, the numbers of a source and a target piece that are linked, in turn; uint16
    train.en-de.offsets the position in the links where each sentence starts, and the end of the last one; int64
    valid.en.txt        the raw text, for scoring; the split train has none
    .verified.json      the files that training has compared with their hashes (data/verification.py)
Both languages of every split have such files. The splits are train, valid, test, test1, test2, …
"""

import hashlib
import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

import numpy as np

from nmt.data.epochs import EachOnce, EpochArray, Mixture
from nmt.data.meta import META, fingerprint, read_meta
from nmt.data.names import (
    LINK_TYPE,
    OFFSET_TYPE,
    TRAIN,
    array_names,
    link_names,
    model_names,
    raw_name,
    side_langs,
    token_type,
)
from nmt.data.offsets import offsets_problem
from nmt.data.regular import open_regular
from nmt.data.tokens import TokenArray
from nmt.errors import DataChanged, NmtError
from nmt.text.codec import TextCodec, TextConfig
from nmt.text.mapped import SubwordModel, load_subword


class ParallelSplit:
    """Both sides of a split. Sentence i of the target is the translation of sentence i of the source.

    Args:
        links: word alignments in pieces: for each sentence, the numbers of a source and a target piece, in turn.
        mixture: the corpora of the split and their shares of an epoch; None if an epoch has each pair once.
        sizes: the files that the arrays are mapped from, with their sizes in bytes.
    """

    def __init__(
        self,
        source: TokenArray | EpochArray,
        target: TokenArray | EpochArray,
        links: TokenArray | EpochArray | None = None,
        *,
        mixture: Mixture | None = None,
        sizes: Mapping[Path, int] | None = None,
    ) -> None:
        self.source = source
        self.target = target
        self.links = links
        self.mixture = mixture
        self._sizes = sizes or {}

    def __len__(self) -> int:
        return len(self.source)

    def in_epoch(self, seed: int, epoch: int) -> "ParallelSplit":
        """Returns what an epoch trains on: the pairs of a mixture, and one of the encodings of each sentence.

        Args:
            seed: the seed of the training.
        """
        sides = (self.source, self.target)
        if self.mixture is None and not any(isinstance(side, EpochArray) for side in sides):
            return self
        order = self.mixture.order(seed, epoch) if self.mixture else EachOnce(len(self), epoch)
        arrays = [side.array if isinstance(side, EpochArray) else side for side in sides]
        counts = [side.encodings if isinstance(side, EpochArray) else 1 for side in sides]
        source = EpochArray(arrays[0], counts[0], order, 2 * seed)
        target = EpochArray(arrays[1], counts[1], order, 2 * seed + 1, slow=True)
        links = EpochArray(self.links, 1, order, 0) if isinstance(self.links, TokenArray) else None
        return ParallelSplit(source, target, links, sizes=self._sizes)

    def check_files(self) -> None:
        """Checks that the files still exist and have the size that they had when they were opened.

        If a mapped file becomes shorter, reading the missing part kills the process with SIGBUS, which Python cannot
        handle. The check makes this unlikely, but a file may still be truncated after it.

        Raises:
            DataChanged: a file is missing or has another size.
        """
        for path, size in self._sizes.items():
            if problem := _size_problem(path, size):
                raise DataChanged(f"{path} {problem}")


def sentences_of(side: TokenArray | EpochArray, block: np.ndarray) -> list[np.ndarray]:
    """Returns the ids of the sentences of a block, without EOS."""
    return side.sentences(block) if isinstance(side, EpochArray) else [side[i] for i in block]


class DataFolder:
    """An open data folder. Use `open` to make one."""

    def __init__(self, path: Path, meta: dict[str, Any], codec: TextCodec) -> None:
        self.path = path
        self.meta = meta
        self.codec = codec
        self.fingerprint = fingerprint(meta)
        self._splits: dict[str, ParallelSplit] = {}

    @classmethod
    def open(cls, path: str | Path) -> Self:
        """Returns the data folder at `path`.

        Reads meta.json and the subword models, and checks the sizes of the files with tokens. `split` maps the tokens.

        Raises:
            NmtError: `path` is not a data folder or has another schema version, or a file is missing, has the wrong
                size or is damaged.
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
        """Returns the split with this name: train, valid, test, test1, …

        Raises:
            NmtError: the split does not exist, or its offsets are damaged.
            DataChanged: a file is missing or has changed its size since the folder was opened.
        """
        self._check_split(name)
        if name not in self._splits:
            self._splits[name] = self._open_split(name)
        return self._splits[name]

    def raw_lines(self, name: str, lang: str) -> list[str]:
        """Returns the raw text of one side of a split other than train.

        Raises:
            NmtError: the split does not exist or is train, which has no text.
            DataChanged: the text cannot be read, or does not have one line for each sentence.
        """
        self._check_split(name)
        path = self.path / raw_name(name, lang)
        pairs = self.meta["splits"][name]["pairs"]
        if name == TRAIN:
            raise NmtError(f"{path} does not exist; a data folder keeps the text of valid and test only")
        try:
            # text.corpus.read_lines would drop a "\r" at the end of a line, but here it is part of the text.
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
        longest = self.meta.get("options", {}).get("max_length") if name == TRAIN else None
        source, target = (self._side(name, side, lang, longest) for side, lang in langs.items())
        has_links = "links" in self.meta["splits"][name]
        links = self._map_array(link_names(name, self.codec.config), LINK_TYPE, None) if has_links else None
        sizes = _sizes(self.path, self.meta, self.codec.config, name)
        return ParallelSplit(source, target, links, mixture=self._mixture(name), sizes=sizes)

    def _mixture(self, split: str) -> Mixture | None:
        counts = self.meta["splits"][split]
        if "mixture" not in counts:
            return None
        pairs, shares = counts["mixture"]["pairs"], counts["mixture"]["shares"]
        is_whole = sum(pairs) == counts["pairs"] and abs(sum(shares) - 1) < 1e-6
        if len(pairs) != len(shares) or min(shares, default=0) <= 0 or not is_whole:
            raise NmtError(f"{self.path / META} is damaged (the mixture of {split}); run nmt preprocess again")
        return Mixture(tuple(pairs), tuple(shares))

    def _side(self, split: str, side: str, lang: str, longest: int | None) -> TokenArray | EpochArray:
        array = self._map_array(array_names(split, lang), token_type(self.meta["vocab_sizes"][side]), longest)
        encodings = self.meta["splits"][split].get(f"{side}_encodings", 1)
        return array if encodings == 1 else EpochArray(array, encodings, EachOnce(len(array) // encodings, 0), 0)

    def _map_array(self, names: tuple[str, str], kind: np.dtype[Any], longest: int | None) -> TokenArray:
        tokens, offsets = _map(self.path / names[0], kind), _map(self.path / names[1], OFFSET_TYPE)
        if problem := offsets_problem(offsets, len(tokens), longest):
            path = self.path / names[1]
            raise NmtError(f"{path} is damaged: {problem}; copy the data folder again or run nmt preprocess again")
        return TokenArray(tokens, offsets)


def _map(path: Path, kind: np.dtype[Any]) -> np.ndarray:
    try:
        if path.stat().st_size == 0:  # mmap refuses empty files; a split of empty lines has one
            return np.empty(0, dtype=kind)
        return np.asarray(np.memmap(path, dtype=kind, mode="r"))
    except (OSError, ValueError) as error:  # ValueError: the file size is not a multiple of the item size
        raise DataChanged(f"{path} cannot be read ({error})") from error


def _sizes(path: Path, meta: Mapping[str, Any], config: TextConfig, split: str) -> dict[Path, int]:
    """Returns the size in bytes that each array file of a split must have."""
    counts = meta["splits"][split]
    sizes = {}
    for side, lang in side_langs(config).items():
        tokens, offsets = array_names(split, lang)
        sizes[path / tokens] = counts[f"{side}_tokens"] * token_type(meta["vocab_sizes"][side]).itemsize
        rows = counts["pairs"] * counts.get(f"{side}_encodings", 1)
        sizes[path / offsets] = (rows + 1) * OFFSET_TYPE.itemsize
    if "links" in counts:
        links, offsets = link_names(split, config)
        sizes[path / links] = counts["links"] * LINK_TYPE.itemsize
        sizes[path / offsets] = (counts["pairs"] + 1) * OFFSET_TYPE.itemsize
    return sizes


def _size_problem(path: Path, size: int) -> str | None:
    """Returns, in words, why `path` is not a regular file of this size, or None if it is."""
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
    source_name, target_name = model_names(config)
    hashes = meta["subword_sha256"]
    source = read_model(path / source_name, config.subword, hashes["source"])
    target = source if config.one_model else read_model(path / target_name, config.subword, hashes["target"])
    for side, model in (("source", source), ("target", target)):
        recorded_size = meta["vocab_sizes"][side]
        if recorded_size != len(model):
            raise NmtError(
                f"{path / META} is damaged (vocab_sizes.{side} is {recorded_size:,}, but the subword model has "
                f"{len(model):,} pieces); run nmt preprocess again"
            )
    return TextCodec.checked(config, source, target, str(path / META))


def read_model(path: Path, kind: str, sha256: str | None = None) -> SubwordModel:
    """Returns the subword model in a file of a data folder.

    Args:
        kind: the kind of subword model, such as bpe.
        sha256: the hash that the file must have; None accepts any file.

    Raises:
        NmtError: the file cannot be read, has another hash, or is not a subword model.
    """
    try:
        with open_regular(path) as file:
            data = file.read()
    except OSError as error:
        raise NmtError(f"{path} cannot be read ({error.strerror}); run nmt preprocess again") from error
    if sha256 and hashlib.sha256(data).hexdigest() != sha256:
        raise NmtError(
            f"{path} is not the subword model that the data was encoded with; copy the data folder again or run "
            f"nmt preprocess again"
        )
    return load_subword(data, kind, str(path))
