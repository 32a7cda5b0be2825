"""Encodes sentence pairs for a data folder, with what the options of preprocess add to training pairs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from random import Random

import numpy as np

from nmt.config import DataConfig
from nmt.config.data import LONGEST_ALIGNED
from nmt.data import corpora
from nmt.data.arrays import hash_of
from nmt.data.augmentation import noised
from nmt.data.corpora import RawPairs
from nmt.data.folder import Flat, flatten
from nmt.jobs.stream import Processor, Result
from nmt.memories.matching import normalised
from nmt.memories.memory import Memory
from nmt.text.codec import Side, TextCodec
from nmt.text.directions import Direction
from nmt.text.subword import UNK
from nmt.text.terms import Term, TermSampler
from nmt.text.words import parse_pharaoh

Ids = list[int]
_COLUMNS = ("source", "target", "alignments")
REASONS = ("empty", "too_long", "uneven")  # why pairs are dropped


def filter_pairs(
    source: Sequence[Ids], target: Sequence[Ids], tag: Ids, max_length: float, max_ratio: float
) -> tuple[list[int], dict[str, int]]:
    """Returns the pairs to keep, and counts of others by reason. A tag counts in lengths, but not in the ratio."""
    lengths = np.array([list(map(len, source)), list(map(len, target))])
    shorter, longer = lengths.min(axis=0), lengths.max(axis=0)
    empty = shorter == 0
    too_long = ~empty & (np.maximum(longer, lengths[0] + len(tag)) > max_length)
    uneven = ~empty & ~too_long & (longer > max_ratio * shorter)
    dropped = dict(zip(REASONS, (int(mask.sum()) for mask in (empty, too_long, uneven)), strict=True))
    return np.flatnonzero(~(empty | too_long | uneven)).tolist(), dropped


def columns_of(encoded: Result) -> list[Flat]:
    """Returns the source, the target and the alignments of encoded pairs."""
    return [Flat(encoded.arrays[name], encoded.arrays[f"lengths of {name}"]) for name in _COLUMNS]


@dataclass(frozen=True)
class Encoder(Processor):
    """Encodes pairs. Those of the training text are changed, sampled and dropped as the options say.

    The plain encodings decide which pairs are dropped. Without options, all pairs are kept. The tokens of
    languages, which a model of several gets, do not count in the length of a sentence.
    """

    codec: TextCodec
    config: DataConfig | None = None
    memories: Mapping[Direction, Memory] = field(default_factory=dict)

    def __call__(self, pairs: RawPairs) -> Result:
        """Returns the encoded pairs that are kept.

        The values are the number of pairs that were kept, of those among them with characters that the vocabulary
        lacks, and of those that were dropped by reason. `columns_of` makes the columns of a data folder of the arrays.
        """
        config, direction = self.config, pairs.direction
        is_copy = direction is not None and direction.source == direction.target
        codec = self.codec.within(direction) if direction and is_copy else self.codec.towards(direction)
        (before, behind), given = codec.around(codec.direction), codec.given(codec.direction)
        if config and config.augment:
            pairs = corpora.augmented_pairs(pairs, config.seed, codec.config)
        pairs = pairs._replace(target=corpora.cased_targets(pairs, codec.config))
        source, target = codec.encode_source(pairs.source), codec.encode_target(pairs.target)
        tag = codec.source.ids([pairs.tag]) if pairs.tag else []
        kept, dropped = list(range(len(source))), dict[str, int]()
        if config:
            kept, dropped = filter_pairs(source, target, tag, config.max_length, config.max_length_ratio)
        unknown = sum(UNK in source[i] or UNK in target[i] for i in kept)
        if config:
            source = self._training_sources(config, codec, pairs, kept, source, config.max_length - len(tag))
            target = self._encodings("target", config, pairs, kept, target, config.max_length)
        begins = len(before) + len(tag), len(given)
        # Options with which a sentence has several encodings exclude alignments.
        alignments = [_aligned_pieces(codec, pairs, *ids, begins) for ids in zip(kept, source, target, strict=False)]
        source = [[*tag, *ids] for ids in source]
        if codec.config.languages:
            source = [[*before, *ids, *behind] for ids in source]
            target = [[*given, *ids] for ids in target]
        sizes, arrays = (len(codec.source), len(codec.target), LONGEST_ALIGNED), {}
        for name, sentences, size in zip(_COLUMNS, (source, target, alignments), sizes, strict=True):
            arrays[name], arrays[f"lengths of {name}"] = flatten(sentences, size)
        return Result({"kept": len(kept), "unknown": unknown, **dropped}, arrays)

    def _training_sources(
        self, config: DataConfig, codec: TextCodec, pairs: RawPairs, kept: list[int], plain: list[Ids], most: int
    ) -> list[Ids]:
        """Returns the encodings of the kept source sentences, with terms, similar sentences, context and noise.

        Args:
            codec: that of the direction of the pairs.
            most: the number of pieces of the longest sentence without its tag.
        """
        source = self._encodings("source", config, pairs, kept, plain, most)
        lines = [i for i in kept for _ in range(len(source) // len(kept))]  # of the encodings
        if config.terms:
            terms = self._terms(config, pairs)
            marked = (codec.with_terms(pairs.source[i], ids, terms[i]) for i, ids in zip(lines, source, strict=True))
            source = [new if len(new) <= most else ids for new, ids in zip(marked, source, strict=True)]
        if memory := self.memories.get(codec.direction):
            source = self._with_similar(config, pairs, memory, lines, source)
        if config.context:
            source = self._with_context(config, pairs, lines, source)
        if codec.direction.source == codec.direction.target:  # a copy
            seeds = (hash_of(config.seed, pairs.first + line, i) for i, line in enumerate(lines))
            source = list(map(noised, source, seeds))
        return source

    def _encodings(
        self, side: Side, config: DataConfig, pairs: RawPairs, kept: list[int], plain: list[Ids], most: int
    ) -> list[Ids]:
        """Returns all encodings of the kept sentences of one side of the pairs, one sentence after the other.

        They depend on the seed, the line and its number alone. An encoding of more than `most` pieces is replaced
        by the plain one.
        """
        if not config.samples_side(side):
            return [plain[i] for i in kept]
        lines, counted = pairs.source if side == "source" else pairs.target, range(config.encodings)
        seeds = [[hash_of(config.seed, pairs.first + i, side == "target", n) for n in counted] for i in kept]
        strength = config.subword_dropout or config.subword_alpha or 0.0
        sampled = self.codec.sample(side, [lines[i] for i in kept], strength, seeds)
        return [ids if len(ids) <= most else plain[i] for i, drawn in zip(kept, sampled, strict=True) for ids in drawn]

    def _terms(self, config: DataConfig, pairs: RawPairs) -> list[list[Term]]:
        """Returns the terms of each pair, which a share of them has."""
        sampler, terms = TermSampler(pairs.source, pairs.target), []
        for i, (source, target, alignment) in enumerate(zip(pairs.source, pairs.target, pairs.alignments, strict=True)):
            draw = Random(hash_of(config.seed, pairs.first + i, 2))
            has_terms = draw.random() < config.terms
            terms.append(sampler.terms(source, target, parse_pharaoh(alignment), draw) if has_terms else [])
        return terms

    def _with_similar(
        self, config: DataConfig, pairs: RawPairs, memory: Memory, lines: Sequence[int], encodings: Sequence[Ids]
    ) -> list[Ids]:
        """Returns encodings of source lines, a share of which has the translation of the most similar other line.

        Args:
            lines: the number of the line of each encoding.
        """
        similar, most = dict[int, Ids](), config.max_length - bool(pairs.tag)
        for i in dict.fromkeys(lines):
            line = pairs.source[i]
            if Random(hash_of(config.seed, pairs.first + i, 4)).random() < config.similar:
                matches = (match.target for match in memory.near(normalised(line), most=2) if match.score < 1)
                target = self.codec.config.cased_for(line, next(matches, ""), pairs.direction)
                (similar[i],) = self.codec.encode_target([target])
        return [
            self.codec.with_similar(ids, similar[i]) if 0 < len(similar.get(i, ())) < most - len(ids) else ids
            for i, ids in zip(lines, encodings, strict=True)
        ]

    def _with_context(
        self, config: DataConfig, pairs: RawPairs, lines: Sequence[int], encodings: Sequence[Ids]
    ) -> list[Ids]:
        """Returns encodings of source lines with up to --context earlier lines behind them, if there is room.

        Any number of lines is as frequent, so that a model also learns to translate a line alone.

        Args:
            lines: the number of the line of each encoding.
        """
        before = len(pairs.earlier)
        encoded = self.codec.encode_source([*pairs.earlier, *pairs.source])
        joined = []
        for n, (i, ids) in enumerate(zip(lines, encodings, strict=True)):
            most = Random(hash_of(config.seed, pairs.first + i, 3, n)).randint(0, config.context)
            first = i + before
            while first > max(0, i + before - most) and encoded[first - 1]:
                first -= 1
            with_context = self.codec.with_context(ids, encoded[first : i + before])
            joined.append(with_context if len(with_context) <= config.max_length else ids)
        return joined


def _aligned_pieces(
    codec: TextCodec, pairs: RawPairs, pair: int, source: Ids, target: Ids, begins: tuple[int, int]
) -> Ids:
    """Returns numbers of linked source and target pieces, in turn; `begins` counts what comes before the pieces."""
    if not pairs.alignments[pair]:
        return []
    source_words = codec.words("source", pairs.source[pair], source)
    target_words = codec.words("target", pairs.target[pair], target)
    linked = set(parse_pharaoh(pairs.alignments[pair]))
    pieces = product(enumerate(source_words, begins[0]), enumerate(target_words, begins[1]))
    return [number for (i, a), (j, b) in pieces if (a, b) in linked for number in (i, j)]
