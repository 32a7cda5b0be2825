"""Writes the token store (data/store.py) chunk by chunk."""

import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import asdict
from itertools import chain
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

import numpy as np

from nmt import __version__
from nmt.data.store import META, OFFSET_TYPE, SCHEMA_VERSION, array_names, model_names, raw_name, token_type
from nmt.files import new_folder, writing
from nmt.text.codec import TextCodec, TextConfig


class Flat(NamedTuple):
    """Sentences laid end to end."""

    tokens: np.ndarray  # [all tokens], of `token_type`
    lengths: np.ndarray  # int64 [sentences]


def flatten(sentences: list[list[int]], vocab_size: int) -> Flat:
    lengths = np.fromiter(map(len, sentences), dtype=np.int64, count=len(sentences))
    tokens = chain.from_iterable(sentences)
    return Flat(np.fromiter(tokens, dtype=token_type(vocab_size), count=int(lengths.sum())), lengths)


def _writing(path: Path) -> AbstractContextManager[None]:
    return writing(path, "make room or choose another --dest")


class _Output:
    """A file of the store while it is written, with the hash of what went into it."""

    def __init__(self, path: Path) -> None:
        self.path, self.hash = path, hashlib.sha256()
        with _writing(path):
            self._file = open(path, "xb")  # noqa: SIM115 (closed by `close` or `abort`)

    def write(self, data: bytes) -> None:
        self.hash.update(data)
        with _writing(self.path):
            self._file.write(data)

    def close(self) -> None:
        with _writing(self.path):
            self._file.flush()
            os.fsync(self._file.fileno())
            self._file.close()

    def abort(self) -> None:
        with suppress(OSError):  # what is still buffered may meet a full disk once more
            self._file.close()


class _SideWriter:
    """One side of a split: tokens, offsets, and raw text."""

    def __init__(self, folder: Path, split: str, lang: str, raw: bool) -> None:
        tokens, offsets = array_names(split, lang)
        self.tokens, self.offsets = _Output(folder / tokens), _Output(folder / offsets)
        self.raw = _Output(folder / raw_name(split, lang)) if raw else None
        self.outputs = [output for output in (self.tokens, self.offsets, self.raw) if output]
        self.total = 0
        self.offsets.write(np.zeros(1, OFFSET_TYPE).tobytes())

    def append(self, chunk: Flat) -> None:
        ends = self.total + np.cumsum(chunk.lengths, dtype=OFFSET_TYPE)
        self.tokens.write(chunk.tokens.tobytes())
        self.offsets.write(ends.astype(OFFSET_TYPE).tobytes())
        self.total += len(chunk.tokens)


class SplitWriter:
    """Writes a split chunk by chunk. A context manager; `counts` are whole once it is left."""

    def __init__(self, folder: Path, name: str, config: TextConfig, raw: bool) -> None:
        self._source = _SideWriter(folder, name, config.source_lang, raw)
        self._target = _SideWriter(folder, name, config.target_lang, raw)
        self._outputs = self._source.outputs + self._target.outputs
        self.pairs = 0

    def append(self, source: Flat, target: Flat) -> None:
        """Adds as many sentences to one side as to the other."""
        if len(source.lengths) != len(target.lengths):
            raise ValueError(f"{len(source.lengths)} source sentences but {len(target.lengths)} target sentences")
        self._source.append(source)
        self._target.append(target)
        self.pairs += len(source.lengths)

    def append_raw(self, source: Iterable[str], target: Iterable[str]) -> None:
        """Adds lines of raw text; for splits that keep it."""
        for side, lines in ((self._source, source), (self._target, target)):
            assert side.raw is not None
            side.raw.write("".join(f"{line}\n" for line in lines).encode())

    @property
    def counts(self) -> dict[str, Any]:
        """The split's part of meta.json."""
        return {
            "pairs": self.pairs,
            "source_tokens": self._source.total,
            "target_tokens": self._target.total,
            "source_sha256": self._source.tokens.hash.hexdigest(),
            "target_sha256": self._target.tokens.hash.hexdigest(),
        }

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            for output in self._outputs if kind is None else []:
                output.close()
        finally:
            for output in self._outputs:
                output.abort()


class StoreWriter:
    """Writes a store into a folder; make one with `at`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @classmethod
    @contextmanager
    def at(cls, dest: str | Path) -> Iterator[Self]:
        """A store that is to be called `dest`; call `finish` before leaving. After an error nothing is left of it.

        Raises:
            NmtError: `dest` exists, or the disk is full or may not be written to.
        """
        with new_folder(dest, "--dest") as folder:
            yield cls(folder)

    def split(self, name: str, config: TextConfig, raw: bool) -> SplitWriter:
        return SplitWriter(self._folder, name, config, raw)

    def finish(self, codec: TextCodec, splits: Mapping[str, Any], options: Mapping[str, Any]) -> None:
        """Writes models and meta.json, without which it is no store.

        Args:
            splits: `SplitWriter.counts` of every split, and what else is to be remembered of it.
            options: how the data was made, for the record.
        """
        for name, model in zip(model_names(codec.config), (codec.source, codec.target), strict=True):
            with _writing(self._folder / name):
                (self._folder / name).write_bytes(model.to_bytes())
        meta = {"schema_version": SCHEMA_VERSION, "nmt_version": __version__, **_text_meta(codec)}
        output = _Output(self._folder / META)
        output.write(json.dumps({**meta, "splits": splits, "options": options}, indent=1).encode())
        output.close()


def _text_meta(codec: TextCodec) -> dict[str, Any]:
    models = {"source": codec.source, "target": codec.target}
    return {
        "text": asdict(codec.config),
        "vocab_sizes": {side: len(model) for side, model in models.items()},
        "subword_sha256": {side: hashlib.sha256(model.to_bytes()).hexdigest() for side, model in models.items()},
    }
