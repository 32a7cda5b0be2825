"""Encodes training text: some pairs at a time, with sampled segmentations, and as work that workers share."""

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any, NamedTuple, Self

import numpy as np

from nmt.config import DataConfig
from nmt.config.data import LONGEST_ALIGNED
from nmt.data.arrays import hash_of
from nmt.data.corpora import RawPairs, Record, augmented_pairs, cased_targets, raw_pairs
from nmt.data.folder import Flat, flatten
from nmt.jobs.plan import Row
from nmt.jobs.stream import Batch, Chunk, Job, Place, Processor, Result
from nmt.text.codec import Side, TextCodec
from nmt.text.words import parse_pharaoh

Ids = list[int]
_SIDES = ("source", "target", "alignments")


@dataclass(frozen=True)
class Sampling:
    """Which sides of the training text are sampled, and how.

    Attributes:
        sides: the sides that are sampled.
        strength: --subword-dropout or --subword-alpha.
        count: how many encodings each sentence has on a sampled side.
    """

    sides: tuple[str, ...] = ()
    strength: float = 0.0
    count: int = 1
    seed: int = 1

    @classmethod
    def of(cls, config: DataConfig, codec: TextCodec) -> Self:
        """Returns what the options say."""
        if not config.samples:
            return cls()
        config.check_sampling(codec.config.subword)
        sides = ("source", "target") if config.sampled_side == "both" else (config.sampled_side,)
        return cls(sides, config.subword_dropout or config.subword_alpha or 0.0, config.encodings, config.seed)

    def encodings(self, side: Side) -> int:
        """Returns how many encodings each sentence of a side gets."""
        return self.count if side in self.sides else 1

    def encode(
        self, side: Side, codec: TextCodec, pairs: RawPairs, kept: list[int], plain: list[Ids], longest: float
    ) -> list[Ids]:
        """Returns all encodings of the kept sentences of one side of the pairs, one sentence after the other.

        They depend on the seed, the line and its number alone. An encoding of more than `longest` pieces is replaced by
        the plain one.
        """
        if side not in self.sides:
            return [plain[i] for i in kept]
        lines = pairs.source if side == "source" else pairs.target
        is_target, encodings = side == "target", range(self.count)
        seeds = [[hash_of(self.seed, pairs.first + i, is_target, n) for n in encodings] for i in kept]
        sampled = codec.sample(side, [lines[i] for i in kept], self.strength, seeds)
        return [
            ids if len(ids) <= longest else plain[i] for i, drawn in zip(kept, sampled, strict=True) for ids in drawn
        ]


def filter_pairs(
    source: Sequence[Ids], target: Sequence[Ids], tags: Sequence[Ids], max_length: float, max_ratio: float
) -> tuple[list[int], Counter[str]]:
    """Returns the indices of the pairs to keep, and the number of dropped pairs by the first reason that applies.

    A tag counts in the length of its source sentence, but not in the ratio of the lengths.
    """
    lengths = np.array([list(map(len, source)), list(map(len, target))])
    shorter, longer = lengths.min(axis=0), lengths.max(axis=0)
    empty = shorter == 0
    too_long = ~empty & (np.maximum(longer, lengths[0] + list(map(len, tags))) > max_length)
    uneven = ~empty & ~too_long & (longer > max_ratio * shorter)
    reasons = {"empty": empty, "too_long": too_long, "uneven": uneven}
    dropped = Counter({reason: int(mask.sum()) for reason, mask in reasons.items()})
    return np.flatnonzero(~(empty | too_long | uneven)).tolist(), dropped


class EncodedPairs(NamedTuple):
    """Encoded pairs: ids and alignments of the pairs that were kept, and the number of dropped pairs by reason."""

    source: Flat
    target: Flat
    alignments: Flat
    kept: int
    dropped: Counter[str]


@dataclass(frozen=True)
class Encoder(Processor):
    """Encodes pairs, and drops the pairs that exceed `limits`: the maximum length and the maximum length ratio.

    The plain encodings decide which pairs are dropped. Without limits, all pairs are kept.

    Attributes:
        augment: the seed of --augment, or None.
    """

    codec: TextCodec
    limits: tuple[int, float] | None = None
    sampling: Sampling = field(default_factory=Sampling)
    augment: int | None = None

    def __call__(self, pairs: RawPairs) -> EncodedPairs:
        """Returns the encoded pairs that are kept."""
        codec, sampling = self.codec, self.sampling
        if self.augment is not None:
            pairs = augmented_pairs(pairs, self.augment, codec.config)
        pairs = pairs._replace(target=cased_targets(pairs, codec.config))
        source, target = codec.encode_source(pairs.source), codec.encode_target(pairs.target)
        tags = [codec.source.ids([tag]) if tag else [] for tag in pairs.tags]
        kept, dropped, longest = list(range(len(source))), Counter[str](), math.inf
        if self.limits:
            longest, ratio = self.limits
            kept, dropped = filter_pairs(source, target, tags, longest, ratio)
        alignments = [_aligned_pieces(codec, pairs, i, source[i], target[i], len(tags[i])) for i in kept]
        source = sampling.encode("source", codec, pairs, kept, source, longest - max(map(len, tags)))
        target = sampling.encode("target", codec, pairs, kept, target, longest)
        if any(tags):
            count = sampling.encodings("source")
            source = [[*tags[kept[i // count]], *ids] for i, ids in enumerate(source)]
        flat = flatten(source, len(codec.source)), flatten(target, len(codec.target))
        return EncodedPairs(*flat, flatten(alignments, LONGEST_ALIGNED), len(kept), dropped)


def _aligned_pieces(codec: TextCodec, pairs: RawPairs, pair: int, source: Ids, target: Ids, tags: int) -> Ids:
    """Returns the numbers of a source and a target piece, in turn, for all pieces of linked words of a pair.

    Args:
        tags: how many tags come before the source pieces.
    """
    if not pairs.alignments[pair]:
        return []
    source_words = codec.words("source", pairs.source[pair], source)
    target_words = codec.words("target", pairs.target[pair], target)
    linked = set(parse_pharaoh(pairs.alignments[pair]))
    pieces = product(enumerate(source_words, tags), enumerate(target_words))
    return [number for (i, a), (j, b) in pieces if (a, b) in linked for number in (i, j)]


@dataclass(frozen=True)
class EncodingJob(Job):
    """How training text is encoded."""

    codec_values: dict[str, Any]
    limits: tuple[int, float]
    sampling: Sampling
    tags: tuple[str, ...] = ()
    augment: int | None = None

    def load(self, _models: Sequence[str], _process: int) -> Encoder:
        codec = TextCodec.from_dict(self.codec_values, "the codec of this run")
        return Encoder(codec, self.limits, self.sampling, self.augment)

    def unit(self, row: Row, place: Place) -> Record:
        """Returns the pair of a row with its alignment and its tag."""
        alignments = row[2] if len(row) > 2 else ""
        return row[0], row[1], alignments, self.tags[place.segment] if self.tags else ""

    def batches(self, _: Any, chunk: Chunk) -> Iterator[Batch]:
        for pairs in raw_pairs(chunk.units, first=chunk.first - 1):
            yield Batch(range(pairs.first + 1, pairs.first + 1 + len(pairs.source)), pairs)

    def compute(self, encoder: Encoder, pairs: RawPairs) -> EncodedPairs:
        return encoder(pairs)

    def result(self, _: Any, __: Chunk, done: Sequence[tuple[Batch, EncodedPairs]]) -> Result:
        """Returns the encoded pairs of a chunk, and how many were kept and dropped."""
        encoded = [pairs for _, pairs in sorted(done, key=lambda each: each[0].work.first)]
        arrays, dropped = {}, Counter[str]()
        for side in _SIDES:
            arrays[side] = np.concatenate([getattr(pairs, side).tokens for pairs in encoded])
            arrays[f"lengths of {side}"] = np.concatenate([getattr(pairs, side).lengths for pairs in encoded])
        for pairs in encoded:
            dropped.update(pairs.dropped)
        return Result({"kept": sum(pairs.kept for pairs in encoded), "dropped": dropped}, arrays)


def flats_of(result: Result) -> list[Flat]:
    """Returns the source, the target and the alignments in the result of a shard."""
    return [Flat(result.arrays[side], result.arrays[f"lengths of {side}"]) for side in _SIDES]
