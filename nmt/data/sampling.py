"""Samples encodings of training text: BPE-dropout and unigram sampling."""

from dataclasses import dataclass
from typing import Self

from nmt.config import DataConfig
from nmt.data.corpora import Chunk
from nmt.data.epochs import hash_of
from nmt.text.codec import Side, TextCodec

Ids = list[int]


@dataclass(frozen=True)
class Sampling:
    """Which sides of the training text are sampled, and how.

    Attributes:
        strength: --subword-dropout or --subword-alpha; None for plain encodings.
        sides: the sides that are sampled: `both`, `source` or `target`.
        count: the encodings of each sentence on a side that is sampled.
    """

    strength: float | None = None
    sides: str = "both"
    count: int = 1
    seed: int = 1

    @classmethod
    def of(cls, config: DataConfig, codec: TextCodec) -> Self:
        """Returns what the options say.

        Raises:
            NmtError: the subword model cannot be sampled in this way.
        """
        if not config.samples:
            return cls()
        config.check_sampling(codec.config.subword)
        return cls(config.subword_dropout or config.subword_alpha, config.sampled_side, config.encodings, config.seed)

    def encodings(self, side: Side) -> int:
        """Returns how many encodings each sentence of a side gets."""
        return self.count if self._samples(side) else 1

    def _samples(self, side: Side) -> bool:
        return self.strength is not None and self.sides in ("both", side)

    def encode(
        self, side: Side, codec: TextCodec, chunk: Chunk, kept: list[int], plain: list[Ids], longest: int | None
    ) -> list[Ids]:
        """Returns all encodings of the kept sentences of one side of a chunk, one sentence after the other.

        They depend on the seed, the line and its number alone. An encoding of more than `longest` pieces is replaced by
        the plain one.

        Args:
            kept: the places of the kept pairs in the chunk.
            plain: the plain encodings of all sentences.
        """
        if self.strength is None or not self._samples(side):
            return [plain[i] for i in kept]
        lines, sample = (chunk.source, codec.sample_source) if side == "source" else (chunk.target, codec.sample_target)
        seeds = [
            [hash_of(self.seed, chunk.first + i, side == "target", number) for number in range(self.count)]
            for i in kept
        ]
        sampled = sample([lines[i] for i in kept], self.strength, seeds)
        return [
            plain[i] if longest is not None and len(ids) > longest else ids
            for i, drawn in zip(kept, sampled, strict=True)
            for ids in drawn
        ]
