"""Translations of lines, and of lines that were translated in parts."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np

from nmt.decoding.requests import Encoded
from nmt.text.codec import TextCodec
from nmt.text.words import Link


@dataclass(frozen=True)
class Hypothesis:
    """A translation.

    If a line was translated in parts, texts, pieces and their log P are joined, and scores are summed.

    Attributes:
        text: raw text.
        score: log P over the length penalty.
        pieces: the target pieces.
        log_probs: natural log P of each piece, and at the end that of EOS; each part ends in EOS. Empty if they were
            not asked for.
        unmet: whether a constraint is missing.
        alignment: the links between words of the raw line and of `text`; None if they were not asked for.
    """

    text: str
    score: float
    pieces: list[str]
    log_probs: list[float]
    unmet: bool = False
    alignment: tuple[Link, ...] | None = None

    @property
    def log_prob(self) -> float:
        """Natural log P of the whole translation."""
        return sum(self.log_probs)


def joined(codec: TextCodec, parts: Sequence[Sequence[Hypothesis]], *, aligned: bool) -> list[Hypothesis]:
    """Returns the translations of a line.

    Args:
        parts: the translations of each part of the line.
        aligned: whether they have alignments.
    """
    if len(parts) == 1:
        return list(parts[0])
    if not parts:
        return [Hypothesis("", 0.0, [], [], alignment=() if aligned else None)]
    return [
        Hypothesis(
            codec.join_target(h.text for h in ranked),
            sum(h.score for h in ranked),
            [piece for h in ranked for piece in h.pieces],
            [log_prob for h in ranked for log_prob in h.log_probs],
            alignment=_joined_alignment(codec, ranked) if aligned else None,
        )
        for ranked in zip(*parts, strict=False)
    ]


def _joined_alignment(codec: TextCodec, parts: Sequence[Hypothesis]) -> tuple[Link, ...]:
    """Returns the links of parts whose texts are joined."""
    links: list[Link] = []
    for i, part in enumerate(parts):
        # Where a word behind the earlier parts would lie. Without spaces, it belongs to their last word.
        first = len(codec.join_target([*(p.text for p in parts[:i]), "x"]).split()) - 1
        links += [(source, first + target) for source, target in part.alignment or ()]
    return tuple(sorted(links))


def parts_and_words(codec: TextCodec, line: Encoded) -> Iterator[tuple[np.ndarray, list[int]]]:
    """Yields the ids of each part of a line, and the number of the word of each id."""
    words = iter(codec.source_words(line.text, [i for part in line.parts for i in part]))
    for part in line.parts:
        yield part, list(islice(words, len(part)))
