"""Encodes sentence pairs for a data folder, with what the options of preprocess add to training pairs."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, product
from random import Random

import numpy as np

from nmt.config import DataConfig
from nmt.config.data import LONGEST_ALIGNED
from nmt.data.arrays import hash_of
from nmt.data.augmentation import noised
from nmt.data.folder import Flat, flatten
from nmt.data.raw_pairs import RawPairs, augmented_pairs, cased_targets
from nmt.jobs.stream import Processor, Result
from nmt.memories.matching import normalised
from nmt.memories.memory import Memory
from nmt.text.codec import Side, TextCodec
from nmt.text.directions import Direction
from nmt.text.subword import UNK
from nmt.text.terms import TermSampler
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
        codec = self.codec.with_languages(direction) if direction and pairs.is_copy else self.codec.directed(direction)
        (prefix_ids, suffix_ids), given = codec.language_tokens(codec.direction), codec.given_ids(codec.direction)
        if config and config.augment:
            pairs = augmented_pairs(pairs, config.seed, codec.config)
        pairs = pairs._replace(target=cased_targets(pairs, codec.config))
        source, target = codec.encode_source(pairs.source), codec.encode_target(pairs.target)
        tag = codec.source.ids([pairs.tag]) if pairs.tag else []
        kept, dropped = list(range(len(source))), dict[str, int]()
        if config:
            kept, dropped = filter_pairs(source, target, tag, config.max_length, config.max_length_ratio)
        unknown = sum(UNK in source[i] or UNK in target[i] for i in kept)
        if config:
            source = self._training_sources(config, codec, pairs, kept, source, config.max_length - len(tag))
            target = _encodings("target", config, codec, pairs, kept, target, config.max_length)
        begins = len(prefix_ids) + len(tag), len(given)
        # Options with which a sentence has several encodings exclude alignments.
        alignments = [_aligned_pieces(codec, pairs, *ids, begins) for ids in zip(kept, source, target, strict=False)]
        source = [[*tag, *ids] for ids in source]
        if codec.config.languages:
            source = [[*prefix_ids, *ids, *suffix_ids] for ids in source]
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
        source = _encodings("source", config, codec, pairs, kept, plain, most)
        lines = [i for i in kept for _ in range(len(source) // len(kept))]  # of the encodings
        if codec.direction.is_copy:
            seeds = (hash_of(config.seed, pairs.first + line, i) for i, line in enumerate(lines))
            source = list(map(noised, source, seeds))
        additions = _Additions(config, codec, pairs, lines, most)
        if config.terms:
            source = additions.with_terms(source)
        if memory := self.memories.get(codec.direction):
            source = additions.with_similar(source, memory)
        if config.context:
            source = additions.with_context(source, plain)
        return source


def _encodings(
    side: Side, config: DataConfig, codec: TextCodec, pairs: RawPairs, kept: list[int], plain: list[Ids], most: int
) -> list[Ids]:
    """Returns all encodings of the kept sentences of one side of the pairs, one sentence after the other.

    An encoding depends on the seed, the line, the side and the index of the encoding alone. An encoding of more than
    `most` pieces is replaced by the plain one.
    """
    if not config.samples_side(side):
        return [plain[i] for i in kept]
    lines, indices = pairs.source if side == "source" else pairs.target, range(config.encodings)
    seeds = [[hash_of(config.seed, pairs.first + i, side == "target", n) for n in indices] for i in kept]
    strength = config.subword_dropout or config.subword_alpha or 0.0
    sampled = codec.sample(side, [lines[i] for i in kept], strength, seeds)
    return [ids if len(ids) <= most else plain[i] for i, drawn in zip(kept, sampled, strict=True) for ids in drawn]


@dataclass(frozen=True)
class _Additions:
    """What options add to the encodings of source lines. An encoding that would become too long stays as it is.

    Attributes:
        codec: that of the direction of the pairs.
        lines: the index of the line of each encoding.
        most: the number of pieces that an encoding may have.
    """

    config: DataConfig
    codec: TextCodec
    pairs: RawPairs
    lines: Sequence[int]
    most: int

    def with_terms(self, encodings: Sequence[Ids]) -> list[Ids]:
        """Returns the encodings, a share of which has the translations of some words behind these."""
        pairs, marked = self.pairs, list[Ids]()
        sampler = TermSampler(pairs.source, pairs.target)
        for i, ids in zip(self.lines, encodings, strict=True):
            draw, alignment = self._random(i, 2), parse_pharaoh(pairs.alignments[i])
            has_terms = draw.random() < self.config.terms
            terms = sampler.terms(pairs.source[i], pairs.target[i], alignment, draw) if has_terms else []
            with_terms = self.codec.with_terms(pairs.source[i], ids, terms)
            marked.append(with_terms if len(with_terms) <= self.most else ids)
        return marked

    def with_similar(self, encodings: Sequence[Ids], memory: Memory) -> list[Ids]:
        """Returns the encodings, a share of which has the translation of the most similar other line."""
        similar = dict[int, Ids]()
        for i in dict.fromkeys(self.lines):
            line = self.pairs.source[i]
            if self._random(i, 4).random() < self.config.similar:
                matches = (match.target for match in memory.near(normalised(line), most=2) if match.score < 1)
                (similar[i],) = self.codec.encode_target([self.codec.config.cased_for(line, next(matches, ""))])
        return [
            self.codec.with_similar(ids, similar[i]) if 0 < len(similar.get(i, ())) < self.most - len(ids) else ids
            for i, ids in zip(self.lines, encodings, strict=True)
        ]

    def with_context(self, encodings: Sequence[Ids], plain: Sequence[Ids]) -> list[Ids]:
        """Returns the encodings with up to --context earlier lines behind them.

        Any number of lines is as frequent, so that a model also learns to translate a line alone.

        Args:
            plain: the encodings of the source lines of the pairs, without additions.
        """
        encoded, joined = [*self.codec.encode_source(list(self.pairs.earlier)), *plain], list[Ids]()
        for n, (i, ids) in enumerate(zip(self.lines, encodings, strict=True)):
            count = self._random(i, 3, n).randint(0, self.config.context)
            first = stop = i + len(self.pairs.earlier)
            while first > max(0, stop - count) and encoded[first - 1]:
                first -= 1
            with_context = self.codec.with_context(ids, encoded[first:stop])
            joined.append(with_context if len(with_context) <= self.most else ids)
        return joined

    def _random(self, line: int, *numbers: int) -> Random:
        return Random(hash_of(self.config.seed, self.pairs.first + line, *numbers))


def _aligned_pieces(
    codec: TextCodec, pairs: RawPairs, pair: int, source: Ids, target: Ids, begins: tuple[int, int]
) -> Ids:
    """Returns the positions of linked source and target pieces, in turn. `begins` are those of the first pieces."""
    if not pairs.alignments[pair]:
        return []
    source_pieces, target_pieces = defaultdict[int, list[int]](list), defaultdict[int, list[int]](list)
    for position, word in enumerate(codec.words("source", pairs.source[pair], source), begins[0]):
        source_pieces[word].append(position)
    for position, word in enumerate(codec.words("target", pairs.target[pair], target), begins[1]):
        target_pieces[word].append(position)
    links = set(parse_pharaoh(pairs.alignments[pair]))
    linked = chain.from_iterable(product(source_pieces.get(a, ()), target_pieces.get(b, ())) for a, b in links)
    return list(chain.from_iterable(sorted(linked)))
