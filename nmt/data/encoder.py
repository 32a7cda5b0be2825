"""Encodes and filters chunks of parallel text."""

from collections import Counter
from contextlib import AbstractContextManager, nullcontext
from itertools import product
from typing import Any, NamedTuple

import numpy as np

from nmt.config.data import LONGEST_ALIGNED
from nmt.data.corpora import Chunk
from nmt.data.sampling import Sampling
from nmt.data.writer import Flat, flatten
from nmt.text.codec import TextCodec
from nmt.text.words import parse_links


class Encoded(NamedTuple):
    """An encoded chunk: ids and alignments of the pairs that were kept, and the number of dropped pairs by reason."""

    source: Flat
    target: Flat
    links: Flat
    kept: int
    pairs: int  # including the dropped ones
    dropped: Counter[str]


class Encoder:
    """Encodes chunks and drops the pairs beyond `limits`: maximum length and length ratio. A `nmt.jobs.work.Processor`.

    The plain encodings decide which pairs are dropped.
    """

    def __init__(
        self, codec_values: dict[str, Any], limits: tuple[int, float] | None, sampling: Sampling, _worker: int = 0
    ) -> None:
        self.codec = TextCodec.from_dict(codec_values, "the codec of this run")
        self._limits, self._sampling = limits, sampling

    def session(self) -> AbstractContextManager[object]:
        """Returns a context for many calls."""
        return nullcontext()

    def __call__(self, chunk: Chunk) -> Encoded:
        """Returns the encoded pairs of a chunk that are kept."""
        codec, limits, sampling = self.codec, self._limits, self._sampling
        source, target = codec.encode_source(chunk.source), codec.encode_target(chunk.target)
        kept, dropped = np.arange(len(source)), Counter[str]()
        tags = [codec.source.ids([tag]) if tag else [] for tag in chunk.tags]
        longest = limits[0] - max(map(len, tags)) if limits else None
        if limits and longest is not None:
            kept, dropped = _filter(source, target, longest, limits[1])
        places = kept.tolist()
        links = [_linked_pieces(codec, chunk, i, source[i], target[i]) for i in places]
        source = sampling.encode("source", codec, chunk, places, source, longest)
        target = sampling.encode("target", codec, chunk, places, target, longest)
        source, links = _tagged([tags[i] for i in places], source, links, sampling.encodings("source"))
        flat = flatten(source, len(codec.source)), flatten(target, len(codec.target)), flatten(links, LONGEST_ALIGNED)
        return Encoded(*flat, len(kept), len(chunk.source), dropped)


def _tagged(
    tags: list[list[int]], source: list[list[int]], links: list[list[int]], encodings: int
) -> tuple[list[list[int]], list[list[int]]]:
    """Returns the source encodings with the tags of the sentences before them, and links that count the tags."""
    if not any(tags):
        return source, links
    linked = [
        [n if i % 2 else n + len(tag) for i, n in enumerate(numbers)] for tag, numbers in zip(tags, links, strict=True)
    ]
    return [[*tags[i // encodings], *ids] for i, ids in enumerate(source)], linked


def _linked_pieces(codec: TextCodec, chunk: Chunk, pair: int, source: list[int], target: list[int]) -> list[int]:
    """Returns the numbers of a source and a target piece, in turn, for all pieces of linked words of a pair."""
    if not chunk.links[pair]:
        return []
    source_words = codec.source_words(chunk.source[pair], source)
    target_words = codec.target_words(chunk.target[pair], target)
    linked = set(parse_links(chunk.links[pair]))
    pieces = product(enumerate(source_words), enumerate(target_words))
    return [number for (i, a), (j, b) in pieces if (a, b) in linked for number in (i, j)]


def _filter(
    source: list[list[int]], target: list[list[int]], max_length: int, max_ratio: float
) -> tuple[np.ndarray, Counter[str]]:
    """Returns the indices of the pairs to keep, and the number of dropped pairs by the first reason that applies."""
    lengths = np.array([list(map(len, source)), list(map(len, target))])
    shorter, longer = lengths.min(axis=0), lengths.max(axis=0)
    empty = shorter == 0
    too_long = ~empty & (longer > max_length)
    uneven = ~empty & ~too_long & (longer > max_ratio * shorter)
    reasons = {"empty": empty, "too_long": too_long, "uneven": uneven}
    dropped = Counter({reason: int(mask.sum()) for reason, mask in reasons.items()})
    return np.flatnonzero(~(empty | too_long | uneven)), dropped
