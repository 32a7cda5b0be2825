"""Pairs of a source line and given translations: as text, as ids, and their scores."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Self

import numpy as np

from nmt.errors import NmtError, naming
from nmt.text.codec import TextCodec
from nmt.text.directions import Direction
from nmt.text.subword import BOS, EOS, PAD
from nmt.text.words import AlignedWords, pharaoh
from nmt.translate.alignment import SentencePair


class Target(NamedTuple):
    """A given translation: raw text, and its pieces if they are given too."""

    text: str
    pieces: tuple[str, ...] | None = None


class Pair(NamedTuple):
    """A source line and its given translations.

    Attributes:
        direction: the languages.
        fields: the JSON object that the pair is from; empty if it is from text.
        earlier: lines before it, for a model of context.
    """

    source: str
    targets: tuple[Target, ...]
    direction: Direction
    fields: Mapping[str, Any] = {}
    earlier: tuple[str, ...] = ()


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


class EncodedPair(NamedTuple):
    """A source line and its translations: raw text, and ids with the tokens of languages and without EOS.

    Attributes:
        line: its number, from 1.
    """

    line: int
    source_text: str
    target_texts: tuple[str, ...]
    source: np.ndarray
    targets: tuple[np.ndarray, ...]

    @property
    def tokens(self) -> int:
        """Positions that it takes in a padded batch, if the batch is padded to the widths of this line."""
        longest = max(map(len, self.targets), default=0)
        return len(self.targets) * (len(self.source) + longest + 2)

    def words(self, codec: TextCodec) -> list[SentencePair]:
        """Returns the line with each of its translations, and the words that their ids belong to."""
        words = codec.words("source", self.source_text, self.source)
        return [
            SentencePair(self.source, words, ids, codec.words("target", text, ids))
            for ids, text in zip(self.targets, self.target_texts, strict=True)
        ]


def encode_pairs(codec: TextCodec, pairs: Sequence[Pair], first: int = 1) -> list[EncodedPair]:
    """Returns pairs as ids: those of the given pieces, or of the text. The first pair has the number `first`.

    Raises:
        NmtError: pieces are of another model.
    """
    cased_for = codec.config.cased_for
    sources = codec.encode_source([cased_for(pair.source, direction=pair.direction) for pair in pairs])
    texts = [cased_for(pair.source, target.text, pair.direction) for pair in pairs for target in pair.targets]
    targets = iter(codec.encode_target(texts))
    encoded = []
    for line, (pair, source) in enumerate(zip(pairs, sources, strict=True), first):
        with naming(f"line {line}"):
            before, behind = codec.language_tokens(pair.direction)
        earlier = [codec.config.split_tags(text)[1] for text in pair.earlier]
        source = codec.with_context(source, codec.encode_source(earlier))
        given = codec.given_ids(pair.direction)
        texts_of_pair = tuple(target.text for target in pair.targets)
        ids = tuple(np.array([*given, *_ids(codec, target, next(targets), line)]) for target in pair.targets)
        encoded.append(EncodedPair(line, pair.source, texts_of_pair, np.array([*before, *source, *behind]), ids))
    return encoded


def _ids(codec: TextCodec, target: Target, encoded: list[int], line: int) -> list[int]:
    """Returns the ids of a translation's given pieces, or those of its text."""
    if target.pieces is None:
        return encoded
    ids = codec.target.ids(list(target.pieces))
    for i, piece, known in zip(ids, target.pieces, codec.target.pieces(ids), strict=True):
        if piece != known or i in (PAD, BOS, EOS):  # UNK itself may be in a translation
            raise NmtError(
                f"line {line}: {piece!r:.80} is no piece of text in this model; remove the field pieces to split the "
                f"text anew"
            )
    return ids
