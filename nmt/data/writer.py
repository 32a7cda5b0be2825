"""Writes data folders (data/folder.py), chunk by chunk."""

from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager, ExitStack
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

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
    token_type,
    write_meta,
)
from nmt.files import Output, digest_of, remove_partial_files, replaced_file
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


def _new_file(path: Path) -> AbstractContextManager[Output]:
    return replaced_file(path, "free some space or choose another --dest")


class _ArrayWriter:
    """Writes one side of a split, or its alignments."""

    def __init__(self, tokens: Output, offsets: Output) -> None:
        self._tokens, self._offsets = tokens, offsets
        self._offsets.write(np.zeros(1, OFFSET_TYPE).tobytes())
        self.total = 0

    def append(self, chunk: Flat) -> None:
        """Adds the sentences of a chunk."""
        self._tokens.write(chunk.tokens.tobytes())
        self._offsets.write((self.total + np.cumsum(chunk.lengths, dtype=OFFSET_TYPE)).tobytes())
        self.total += len(chunk.tokens)


class SplitWriter(ExitStack):
    """Writes a split into a folder, chunk by chunk. Its files appear when the context ends without an error."""

    def __init__(
        self,
        folder: Path,
        name: str,
        config: TextConfig,
        *,
        raw: bool = False,
        aligned: bool = False,
        encodings: tuple[int, int] = (1, 1),
    ) -> None:
        super().__init__()
        langs = config.source_lang, config.target_lang
        names = [array_names(name, lang) for lang in langs] + [alignment_names(name, config)] * aligned
        self._arrays = [_ArrayWriter(*(self.enter_context(_new_file(folder / file)) for file in of)) for of in names]
        self._raw = [self.enter_context(_new_file(folder / raw_name(name, lang))) for lang in langs if raw]
        self._encodings = encodings
        self.pairs = 0

    def append(self, *columns: Flat) -> None:
        """Adds sentence pairs: the source, the target and, if the split has them, the alignments."""
        for array, flat in zip(self._arrays, columns, strict=False):
            array.append(flat)
        self.pairs += len(columns[0].lengths) // self._encodings[0]

    def append_raw(self, source: Iterable[str], target: Iterable[str]) -> None:
        """Adds lines of raw text to a split that was opened with `raw`."""
        for file, lines in zip(self._raw, (source, target), strict=True):
            file.write("".join(f"{line}\n" for line in lines))

    @property
    def meta(self) -> SplitMeta:
        """The description of what was written so far."""
        source, target, *_ = self._arrays
        return SplitMeta(self.pairs, source.total, target.total, *self._encodings)


def write_models(folder: Path, codec: TextCodec) -> None:
    """Writes the subword models."""
    for name, model in zip(model_names(codec.config), (codec.source, codec.target), strict=True):
        _write(folder / name, model.to_bytes())


def complete(folder: Path, codec: TextCodec, splits: Mapping[str, SplitMeta], options: Mapping[str, Any]) -> None:
    """Writes the subword models and meta.json, which complete a data folder."""
    write_models(folder, codec)
    remove_partial_files(folder)
    paths = sorted(path for path in folder.iterdir() if path.name != META)
    files = {path.name: FileMeta(path.stat().st_size, digest_of(str(path))) for path in paths}
    _write(folder / META, write_meta(Meta(codec.config.to_dict(), dict(splits), files, options)))


def _write(path: Path, data: bytes) -> None:
    with _new_file(path) as file:
        file.write(data)
