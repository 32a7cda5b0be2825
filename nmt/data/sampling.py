"""Samples encodings of training text: BPE-dropout and unigram sampling."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Self

from nmt.config import DataConfig
from nmt.data.corpora import Chunk
from nmt.data.epochs import hash_of
from nmt.text.codec import TextCodec

Ids = list[int]


@dataclass(frozen=True)
class Sampling:
    """How many encodings each training sentence gets, and how they are drawn.

    Attributes:
        strength: --subword-dropout or --subword-alpha; None for the plain encoding only.
        source, target: the number of encodings of each sentence; 1 on a side that is not sampled.
        sides: the sides that are sampled: `both`, `source` or `target`.
    """

    strength: float | None = None
    source: int = 1
    target: int = 1
    sides: str = "both"
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
        strength = config.subword_dropout or config.subword_alpha
        counts = [config.encodings if config.sampled_side in ("both", side) else 1 for side in ("source", "target")]
        return cls(strength, counts[0], counts[1], config.sampled_side, config.seed)

    def encodings(
        self, codec: TextCodec, chunk: Chunk, kept: list[int], source: list[Ids], target: list[Ids], longest: int | None
    ) -> tuple[list[Ids], list[Ids]]:
        """Returns all encodings of the kept pairs of a chunk, one sentence after the other.

        They depend on the seed, the line and its number alone. An encoding of more than `longest` pieces is replaced by
        the plain one.

        Args:
            kept: the places of the kept pairs in the chunk.
            source, target: the plain encodings of all pairs.
        """
        return (
            self._side("source", codec.sample_source, chunk.source, chunk.first, kept, source, longest),
            self._side("target", codec.sample_target, chunk.target, chunk.first, kept, target, longest),
        )

    def _side(
        self,
        side: str,
        sample: Callable[[list[str], float, list[list[int]]], list[list[Ids]]],
        lines: list[str],
        first: int,
        kept: list[int],
        plain: list[Ids],
        longest: int | None,
    ) -> list[Ids]:
        if self.strength is None or self.sides not in ("both", side):
            return [plain[i] for i in kept]
        count = self.source if side == "source" else self.target
        seeds = [[hash_of(self.seed, first + i, side == "target", number) for number in range(count)] for i in kept]
        sampled = sample([lines[i] for i in kept], self.strength, seeds)
        return [
            plain[i] if longest is not None and len(ids) > longest else ids
            for i, drawn in zip(kept, sampled, strict=True)
            for ids in drawn
        ]
