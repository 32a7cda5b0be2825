"""Writes data folders (data/folder.py), chunk by chunk."""

import hashlib
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from itertools import chain
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

import numpy as np

from nmt.data.folder import (
    META,
    OFFSET_TYPE,
    FileMeta,
    Meta,
    SplitMeta,
    alignment_names,
    array_names,
    model_names,
    raw_name,
    read_model,
    token_type,
    write_meta,
)
from nmt.errors import NmtError
from nmt.files import new_folder, writing
from nmt.text.codec import TextCodec, TextConfig


class Flat(NamedTuple):
    """Sentences end to end in one array.

    Attributes:
        tokens: the ids of all sentences, of type `token_type`; [tokens].
        lengths: the number of ids of each sentence, int64; [sentences].
    """

    tokens: np.ndarray
    lengths: np.ndarray


def flatten(sentences: list[list[int]], vocab_size: int) -> Flat:
    """Returns the sentences end to end in one array."""
    lengths = np.fromiter(map(len, sentences), dtype=np.int64, count=len(sentences))
    tokens = chain.from_iterable(sentences)
    return Flat(np.fromiter(tokens, dtype=token_type(vocab_size), count=int(lengths.sum())), lengths)


def _writing(path: Path) -> AbstractContextManager[None]:
    return writing(path, "free some space or choose another --dest")


class _Output:
    """A file of the data folder that is being written, and the hash of its content."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._bytes, self._hash = 0, hashlib.sha256()
        with _writing(path):
            self._file = open(path, "wb")  # noqa: SIM115 (closed by `close` or `abort`)

    def write(self, data: bytes) -> None:
        self._bytes += len(data)
        self._hash.update(data)
        with _writing(self.path):
            self._file.write(data)

    @property
    def meta(self) -> FileMeta:
        """The size and the hash of what was written so far."""
        return FileMeta(self._bytes, self._hash.hexdigest())

    def close(self) -> None:
        """Closes the file, with all content on disk, so that it survives a power failure."""
        with _writing(self.path):
            self._file.flush()
            os.fsync(self._file.fileno())
        self._file.close()

    def abort(self) -> None:
        """Closes the file after an error."""
        with suppress(OSError):  # writing the rest of the buffer may fail again, for example on a full disk
            self._file.close()


class _SideWriter:
    """Writes one side of a split, or its alignments."""

    def __init__(self, folder: Path, names: Sequence[str]) -> None:
        self.outputs = [_Output(folder / name) for name in names]
        self.tokens, self.offsets, *text = self.outputs
        self.raw = text[0] if text else None
        self.offsets.write(np.zeros(1, OFFSET_TYPE).tobytes())
        self.total = 0

    def append(self, chunk: Flat) -> None:
        """Adds the sentences of a chunk."""
        ends = self.total + np.cumsum(chunk.lengths, dtype=OFFSET_TYPE)
        self.tokens.write(chunk.tokens.tobytes())
        self.offsets.write(ends.astype(OFFSET_TYPE).tobytes())
        self.total += len(chunk.tokens)


class SplitWriter:
    """Writes a split, chunk by chunk. Use it as a context manager, which closes the files."""

    def __init__(
        self,
        store: "StoreWriter",
        name: str,
        config: TextConfig,
        raw: bool,
        *,
        aligned: bool = False,
        encodings: tuple[int, int] = (1, 1),
    ) -> None:
        self._source, self._target = (
            _SideWriter(store.folder, [*array_names(name, lang), *([raw_name(name, lang)] if raw else [])])
            for lang in (config.source_lang, config.target_lang)
        )
        self._links = _SideWriter(store.folder, alignment_names(name, config)) if aligned else None
        sides = [self._source, self._target, *([self._links] if self._links else [])]
        self._outputs = [output for side in sides for output in side.outputs]
        self._store, self._encodings = store, encodings
        self.pairs = 0

    def append(self, source: Flat, target: Flat, alignments: Flat | None = None) -> None:
        """Adds sentence pairs, with their alignments if the split gets them."""
        pairs, targets = (len(side.lengths) // k for side, k in zip((source, target), self._encodings, strict=True))
        if pairs != targets:
            raise ValueError(f"{pairs} source sentences but {targets} target sentences")
        self._source.append(source)
        self._target.append(target)
        if self._links and alignments:
            self._links.append(alignments)
        self.pairs += pairs

    def append_raw(self, source: Iterable[str], target: Iterable[str]) -> None:
        """Adds lines of raw text to a split that was opened with `raw`."""
        for side, lines in ((self._source, source), (self._target, target)):
            assert side.raw is not None
            side.raw.write("".join(f"{line}\n" for line in lines).encode())

    @property
    def meta(self) -> SplitMeta:
        """The description of what was written so far."""
        return SplitMeta(self.pairs, self._source.total, self._target.total, *self._encodings)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            for output in self._outputs if kind is None else []:
                output.close()
                self._store.files[output.path.name] = output.meta
        finally:
            for output in self._outputs:
                output.abort()


class StoreWriter:
    """Writes a data folder into the existing folder `folder`. Use `at` to make a new folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.files: dict[str, FileMeta] = {}

    def read_models(self, config: TextConfig) -> TextCodec:
        """Returns the codec with the subword models that `write_models` wrote."""
        names = model_names(config)
        try:
            source, target = (read_model(self.folder / name, config.subword) for name in names)
        except NmtError as error:
            raise NmtError(
                f"the subword models in {self.folder} cannot be read ({error}); remove {self.folder.parent} to start "
                f"over"
            ) from error
        return TextCodec(config, source, source if config.one_model else target)

    @classmethod
    @contextmanager
    def at(cls, dest: str | Path) -> Iterator[Self]:
        """Yields the writer of a new data folder, which appears as `dest` if the block succeeds.

        The block must end with `finish`. If it fails, nothing remains on disk.
        """
        with new_folder(dest, "--dest") as folder:
            yield cls(folder)

    def write_models(self, codec: TextCodec) -> None:
        """Writes the subword models that do not exist yet."""
        for name, model in zip(model_names(codec.config), (codec.source, codec.target), strict=True):
            data = model.to_bytes()
            if not (self.folder / name).exists():
                self._write(name, data)
            self.files[name] = FileMeta(len(data), hashlib.sha256(data).hexdigest())

    def finish(self, codec: TextCodec, splits: Mapping[str, SplitMeta], options: Mapping[str, Any]) -> None:
        """Writes the subword models and meta.json, which complete the data folder."""
        self.write_models(codec)
        self._write(META, write_meta(Meta(codec.config.to_dict(), dict(splits), self.files, options)))

    def _write(self, name: str, data: bytes) -> None:
        output = _Output(self.folder / name)
        output.write(data)
        output.close()
