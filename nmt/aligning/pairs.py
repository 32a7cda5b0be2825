"""Aligned documents and their sentence pairs."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple, Self

from nmt.aligning.documents import Side
from nmt.aligning.path import Bead
from nmt.text.languages import has_spaces


class Pair(NamedTuple):
    """A sentence pair.

    Attributes:
        source, target: one to four sentences each.
        score: how likely they are translations of each other, between 0 and 1.
        source_place, target_place: lines of plain text, or `12.3` for sentence 3 of passage 12, and `12.3-12.4`.
    """

    source: str
    target: str
    score: float
    source_place: str
    target_place: str


class Alignment(NamedTuple):
    """Two documents whose sentences are aligned.

    Attributes:
        beads: in order, also those of sentences without a partner.
        failure: why the documents cannot be aligned, if so.
    """

    source: Side
    target: Side
    beads: Sequence[Bead]
    failure: str = ""

    def pairs(self, languages: tuple[str, str]) -> Iterator[Pair]:
        """Yields the sentence pairs."""
        gaps = [" " * has_spaces(lang) for lang in languages]
        for bead in self.beads:
            if bead.source and bead.target:
                spans = list(zip(self[:2], bead[:2], gaps, strict=True))
                texts = [gap.join(side.texts[span.start : span.stop]) for side, span, gap in spans]
                places = ["-".join({side.places[i]: None for i in (span[0], span[-1])}) for side, span, _ in spans]
                yield Pair(texts[0], texts[1], bead.score, places[0], places[1])

    def to_json(self) -> list[Any]:
        """Returns values for `of_json`."""
        beads = [[s.start, s.stop, t.start, t.stop, round(score, 4)] for s, t, score in self.beads]
        return [self.source, self.target, beads, self.failure]

    @classmethod
    def of_json(cls, values: list[Any]) -> Self:
        """Returns the alignment that `to_json` returned the values of."""
        source, target, beads, failure = values
        return cls(Side(*source), Side(*target), beads_of_json(beads), failure)


def beads_of_json(values: Iterable[Sequence[Any]]) -> list[Bead]:
    """Returns the beads of an alignment as JSON."""
    return [Bead(range(s, s_stop), range(t, t_stop), score) for s, s_stop, t, t_stop, score in values]
