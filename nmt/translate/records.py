"""What translation and scoring give, as records."""

from collections.abc import Sequence
from typing import Any, NamedTuple, Self

from nmt.text.words import AlignedWords, pharaoh


class Translation(NamedTuple):
    """A translation of a sentence or unit.

    If a sentence was translated in parts, texts, pieces and their log P are joined, and scores are summed.

    Attributes:
        text: raw text.
        score: log P over the length penalty.
        pieces: the target pieces.
        log_probs: natural log P of each piece, and at the end that of EOS; each part ends in EOS. Like the pieces, they
            are empty if they were not asked for.
        unmet: whether a constraint is missing.
        alignment: between words of the raw source and of `text`; None if it was not asked for.
    """

    text: str
    score: float
    pieces: list[str]
    log_probs: list[float]
    unmet: bool = False
    alignment: Sequence[AlignedWords] | None = None

    @property
    def log_prob(self) -> float:
        """Natural log P of the whole translation."""
        return sum(self.log_probs)

    def fields(self) -> dict[str, Any]:
        """Returns the translation as the fields of a JSON object."""
        fields = {
            "text": self.text,
            "score": self.score,
            "log_prob": self.log_prob,
            "pieces": self.pieces,
            "log_probs": self.log_probs,
        }
        if self.alignment is not None:
            fields["alignment"] = pharaoh(self.alignment)
        return fields | ({"unmet": True} if self.unmet else {})


class Score(NamedTuple):
    """How probable a given translation is.

    Attributes:
        log_prob: natural log P of the translation.
        tokens: the number of its pieces and EOS.
        pieces: the pieces of the translation.
        log_probs: natural log P of each piece and, last, of EOS.
        alignment: between words of both raw lines; None if it was not asked for.
    """

    log_prob: float
    tokens: int
    pieces: list[str]
    log_probs: list[float]
    alignment: Sequence[AlignedWords] | None = None

    @classmethod
    def of_pieces(
        cls, pieces: list[str], log_probs: list[float], alignment: Sequence[AlignedWords] | None = None
    ) -> Self:
        """Returns the score of a translation with these pieces and their log P."""
        return cls(sum(log_probs), len(log_probs), pieces, log_probs, alignment)

    def fields(self) -> dict[str, Any]:
        """Returns the score as the fields of a JSON object."""
        fields = {"log_prob": self.log_prob, "pieces": self.pieces, "log_probs": self.log_probs}
        return fields | ({} if self.alignment is None else {"alignment": pharaoh(self.alignment)})


class TranslatedLine(NamedTuple):
    """The translations of a line, best first, or its samples.

    Attributes:
        place: what messages call the line.
        source: the raw line.
        fields: the JSON object of the line; empty for text.
    """

    place: str
    source: str
    fields: dict[str, Any]
    translations: list[Translation]

    @classmethod
    def of(cls, values: Sequence[Any]) -> Self:
        """Returns the record whose JSON values these are."""
        place, source, fields, translations = values
        return cls(place, source, fields, [Translation(*translation) for translation in translations])


class ScoredLine(NamedTuple):
    """A source line with its given translations, and the score of each.

    Attributes:
        targets: raw text of the translations.
        fields: the JSON object of the line; empty for text.
    """

    source: str
    targets: list[str]
    fields: dict[str, Any]
    scores: list[Score]

    @classmethod
    def of(cls, values: Sequence[Any]) -> Self:
        """Returns the record whose JSON values these are."""
        source, targets, fields, scores = values
        return cls(source, targets, fields, [Score(*score) for score in scores])
