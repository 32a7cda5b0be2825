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
from nmt.data.meta import META, SCHEMA_VERSION, hash_keys
from nmt.data.store import OFFSET_TYPE, array_names, model_names, raw_name, read_model, token_type
from nmt.errors import NmtError
from nmt.files import new_folder, writing
from nmt.text.codec import TextCodec, TextConfig

_HASHED_AT_ONCE = 1 << 24  # bytes


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

    def __init__(self, path: Path, kept: int = 0) -> None:
        """Goes on after the first `kept` bytes of what there is."""
        self.path, self.hash = path, hashlib.sha256()
        with _writing(path):
            if kept and not (path.exists() and path.stat().st_size >= kept):
                raise NmtError(f"{path} is missing or shorter than it was; remove {path.parent} to start anew")
            self._file = open(path, "r+b" if kept else "wb")  # noqa: SIM115 (closed by `close` or `abort`)
            for first in range(0, kept, _HASHED_AT_ONCE):
                self.hash.update(self._file.read(min(_HASHED_AT_ONCE, kept - first)))
            self._file.truncate(kept)

    @property
    def size(self) -> int:
        return self._file.tell()

    def write(self, data: bytes) -> None:
        self.hash.update(data)
        with _writing(self.path):
            self._file.write(data)

    def sync(self) -> None:
        """Sees to it that what was written survives a power failure."""
        with _writing(self.path):
            self._file.flush()
            os.fsync(self._file.fileno())

    def close(self) -> None:
        self.sync()
        self._file.close()

    def abort(self) -> None:
        with suppress(OSError):  # what is still buffered may meet a full disk once more
            self._file.close()


class _SideWriter:
    """One side of a split: tokens, offsets, and raw text."""

    def __init__(self, folder: Path, split: str, lang: str, raw: bool, kept: Mapping[str, int]) -> None:
        names = [*array_names(split, lang), *([raw_name(split, lang)] if raw else [])]
        self.outputs = [_Output(folder / name, kept.get(name, 0)) for name in names]
        self.tokens, self.offsets, *text = self.outputs
        self.raw = text[0] if text else None
        if not kept:
            self.offsets.write(np.zeros(1, OFFSET_TYPE).tobytes())
        self.total = int(np.memmap(self.offsets.path, OFFSET_TYPE, "r")[-1]) if kept else 0

    @property
    def hashes(self) -> list[str]:
        """The SHA-256 of the tokens, of the offsets and, where it is kept, of the raw text."""
        return [output.hash.hexdigest() for output in self.outputs]

    def append(self, chunk: Flat) -> None:
        ends = self.total + np.cumsum(chunk.lengths, dtype=OFFSET_TYPE)
        self.tokens.write(chunk.tokens.tobytes())
        self.offsets.write(ends.astype(OFFSET_TYPE).tobytes())
        self.total += len(chunk.tokens)


class SplitWriter:
    """Writes a split chunk by chunk. A context manager; `counts` are whole once it is left."""

    def __init__(
        self, folder: Path, name: str, config: TextConfig, raw: bool, kept: Mapping[str, int] | None = None
    ) -> None:
        """Goes on after what `sync` returned, if that is given as `kept`."""
        self._source = _SideWriter(folder, name, config.source_lang, raw, kept or {})
        self._target = _SideWriter(folder, name, config.target_lang, raw, kept or {})
        self._outputs = self._source.outputs + self._target.outputs
        self.pairs = self._source.offsets.size // OFFSET_TYPE.itemsize - 1

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

    def sync(self) -> dict[str, int]:
        """Makes safe what was written so far; returns the size of every file."""
        for output in self._outputs:
            output.sync()
        return {output.path.name: output.size for output in self._outputs}

    @property
    def counts(self) -> dict[str, Any]:
        """The split's part of meta.json."""
        counts: dict[str, Any] = {"pairs": self.pairs}
        for side, writer in (("source", self._source), ("target", self._target)):
            counts[f"{side}_tokens"] = writer.total
            counts |= dict(zip(hash_keys(side), writer.hashes, strict=False))  # train has no raw text
        return counts

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
    """Writes a store into a folder; `at` makes one as well."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def read_models(self, config: TextConfig) -> TextCodec:
        """What `write_models` wrote."""
        names = model_names(config)
        try:
            source, target = (read_model(self._folder / name, config.subword) for name in names)
        except NmtError as error:
            raise NmtError(f"the subword models in {self._folder} are damaged; remove it to start anew") from error
        return TextCodec(config, source, source if config.joint_vocab else target)

    @classmethod
    @contextmanager
    def at(cls, dest: str | Path) -> Iterator[Self]:
        """A store that is to be called `dest`; call `finish` before leaving. After an error nothing is left of it.

        Raises:
            NmtError: `dest` exists, or the disk is full or may not be written to.
        """
        with new_folder(dest, "--dest") as folder:
            yield cls(folder)

    def split(self, name: str, config: TextConfig, raw: bool, kept: Mapping[str, int] | None = None) -> SplitWriter:
        return SplitWriter(self._folder, name, config, raw, kept)

    def write_models(self, codec: TextCodec) -> None:
        """Writes those subword models that are not there yet."""
        for name, model in zip(model_names(codec.config), (codec.source, codec.target), strict=True):
            if not (self._folder / name).exists():
                output = _Output(self._folder / name)
                output.write(model.to_bytes())
                output.close()

    def finish(self, codec: TextCodec, splits: Mapping[str, Any], options: Mapping[str, Any]) -> None:
        """Writes models and meta.json, without which it is no store.

        Args:
            splits: `SplitWriter.counts` of every split, and what else is to be remembered of it.
            options: how the data was made, for the record.
        """
        self.write_models(codec)
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
