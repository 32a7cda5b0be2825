"""Vocabulary maps: the target pieces that may translate each source piece, to which decoding restricts the softmax.

The file has the format of CTranslate2's vmap.txt. A line holds source pieces, a tab and target pieces; spaces
separate the pieces. If a sentence contains the source pieces of a line next to each other and in this order, the
target pieces of the line are candidates. Target pieces on a line without source pieces are always candidates. UNK,
BOS and EOS are too.

Shapes: see docs/architecture.md; B sentences, V target vocabulary, L links.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Self

import numpy as np

from nmt.config import VocabularyMapConfig
from nmt.data.folder import TRAIN, DataFolder, ParallelSplit
from nmt.errors import NmtError
from nmt.text.codec import TextCodec
from nmt.text.subword import BOS, EOS, UNK
from nmt.text.words import BYTE_PIECE, SPACE

# Sentences and tokens that are counted at once, to bound the memory.
_SENTENCES_AT_ONCE = 1 << 18
_TOKENS_AT_ONCE = 1 << 24
# Pieces with these characters cannot be written, because the characters separate pieces and entries.
_UNWRITABLE = re.compile("[ \t\r\n]")


class VocabularyMap:
    """Target ids by sequences of source ids that they may translate; those of no source ids are always candidates."""

    def __init__(self, entries: Mapping[tuple[int, ...], list[int]], target_size: int) -> None:
        self._entries = entries
        self._longest = max(map(len, entries))
        self._always_V = np.zeros(target_size, dtype=bool)
        self._always_V[[UNK, BOS, EOS, *entries.get((), [])]] = True

    @classmethod
    def parsed(cls, lines: Iterable[str], path: str, codec: TextCodec) -> Self:
        """Returns the map in the lines of a file.

        Raises:
            NmtError: the file is not a vocabulary map, or has pieces that the model of `codec` lacks.
        """
        entries: dict[tuple[int, ...], list[int]] = {}
        for line_number, line in enumerate(lines, start=1):
            columns = line.split("\t")
            if len(columns) != 2:
                problem = (
                    f"{path}, line {line_number} has {len(columns) - 1} tabs instead of one between source and target"
                )
                raise NmtError(f"{problem} pieces; make the file with nmt vocabulary-map")
            pieces = [list(filter(None, column.split(" "))) for column in columns]
            for side, names, subword in (("source", pieces[0], codec.source), ("target", pieces[1], codec.target)):
                if unknown := [name for name in names if name not in subword]:
                    problem = (
                        f"{path}, line {line_number} has the {side} piece {unknown[0]!r:.40}, which the model lacks"
                    )
                    advice = "make the map from data with the model's vocabulary (nmt preprocess --like)"
                    raise NmtError(f"{problem}; {advice}")
            entries[tuple(codec.source.ids(pieces[0]))] = codec.target.ids(pieces[1])
        if not entries:
            raise NmtError(f"{path} is empty; make it with nmt vocabulary-map")
        return cls(entries, len(codec.target))

    def candidates(self, sources: Sequence[Sequence[int]]) -> np.ndarray:
        """Returns which target pieces are candidates of each source sentence: bool BV."""
        allowed_BV = np.tile(self._always_V, (len(sources), 1))
        for allowed_V, ids in zip(allowed_BV, sources, strict=True):
            for length in range(1, self._longest + 1):
                for first in range(len(ids) - length + 1):
                    if candidates := self._entries.get(tuple(ids[first : first + length])):
                        allowed_V[candidates] = True
        return allowed_BV


def vocabulary_map_lines(data: DataFolder, config: VocabularyMapConfig) -> Iterator[str]:
    """Yields the lines of the map that the word alignments of a data folder give.

    The first line has the pieces that are always candidates: the most frequent ones, and all single characters and
    bytes that occur, so that the model can spell what it has learnt to spell. The candidates of a source piece are
    the other target pieces that it is most often linked to. A source piece without links may be copied.
    """
    split = data.split(TRAIN)
    if split.alignments is None:
        advice = "write them with nmt rescore --alignments, and give them to nmt preprocess --alignments"
        raise NmtError(f"{data.path} has no word alignments; {advice}")
    source_pieces, target_pieces = data.codec.source.vocabulary, data.codec.target.vocabulary
    counts_V = np.zeros(len(target_pieces), dtype=np.int64)
    for first in range(0, len(split.target.tokens), _TOKENS_AT_ONCE):
        counts_V += np.bincount(split.target.tokens[first : first + _TOKENS_AT_ONCE], minlength=len(counts_V))
    ranked = [i for i in np.argsort(-counts_V, kind="stable").tolist() if counts_V[i] and i > EOS]
    frequent, rare = ranked[: config.always], ranked[config.always :]
    pieces = ((i, target_pieces[i]) for i in rare)
    spelling = [i for i, piece in pieces if len(piece.removeprefix(SPACE)) <= 1 or BYTE_PIECE.fullmatch(piece)]
    always = [UNK, BOS, EOS, *frequent, *spelling]
    linked = _most_linked(split, len(target_pieces), config.per_piece, set(always))
    yield entry("", [target_pieces[i] for i in always])
    for i, piece in enumerate(source_pieces):
        copy = data.codec.target.ids([piece]) if piece in data.codec.target else []
        if i > EOS and (line := entry(piece, [target_pieces[j] for j in linked.get(i, copy)])):
            yield line


def entry(source: str, target: Sequence[str]) -> str:
    """Returns the line of a source piece, or "" if it cannot be written.

    The line of the piece "" has what is always a candidate.
    """
    if _UNWRITABLE.search(source):
        return ""
    return f"{source}\t{' '.join(piece for piece in target if not _UNWRITABLE.search(piece))}\n"


def _most_linked(split: ParallelSplit, target_size: int, most: int, always: set[int]) -> dict[int, list[int]]:
    """Returns the `most` target ids outside of `always` that each source id is most often linked to, in this order."""
    source, target, alignments = split.source, split.target, split.alignments
    assert alignments
    keys = counts = np.empty(0, dtype=np.int64)  # a key is source id · target_size + target id
    for first in range(0, len(split), _SENTENCES_AT_ONCE):
        last = min(first + _SENTENCES_AT_ONCE, len(split))
        offsets = alignments.offsets[first : last + 1]
        sentences_L = np.repeat(np.arange(first, last), np.diff(offsets) // 2)
        i_L, j_L = alignments.tokens[offsets[0] : offsets[-1]].reshape(-1, 2).astype(np.int64).T
        sources_L = source.tokens[source.offsets[sentences_L] + i_L].astype(np.int64)
        targets_L = target.tokens[target.offsets[sentences_L] + j_L].astype(np.int64)
        new_keys, new_counts = np.unique(sources_L * target_size + targets_L, return_counts=True)
        keys, positions = np.unique(np.concatenate((keys, new_keys)), return_inverse=True)
        counts = np.bincount(positions, np.concatenate((counts, new_counts))).astype(np.int64)
    sources, targets = np.divmod(keys, target_size)
    ranked = np.lexsort((targets, -counts, sources))
    begins = np.flatnonzero(np.diff(sources, prepend=-1))
    by_source = zip(sources[begins].tolist(), np.split(targets[ranked], begins[1:]), strict=False)
    return {source: [i for i in ids.tolist() if i not in always][:most] for source, ids in by_source}
