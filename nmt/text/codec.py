"""Converts raw text to ids and back, for both languages. Every checkpoint contains the codec that it needs."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import replace
from itertools import accumulate, chain, compress, pairwise
from typing import Any, Literal, Self
from unicodedata import category

from nmt.errors import DamagedError, NmtError
from nmt.text.casing import upper
from nmt.text.directions import UNNAMED, Direction
from nmt.text.languages import has_spaces, listed_codes
from nmt.text.mapped import MAPPED_KINDS, Mapped
from nmt.text.moses import WHOLE, Moses
from nmt.text.subword import EOS, UNK, Subword
from nmt.text.terms import Term
from nmt.text.text_config import ESCAPING_MOSES, MOSES, TextConfig
from nmt.text.words import (
    NO_WORD,
    RAW_WORD,
    SPACE,
    Given,
    GivenPhrase,
    groups_of_pieces,
    is_blank,
    with_phrases,
    words_of_pieces,
)

Side = Literal["source", "target"]
SubwordModel = Subword | Mapped


def _damaged(origin: str, reason: str) -> DamagedError:
    return DamagedError(
        f"{origin} is damaged or was written by another version of nmt (text processing: {reason}); make it again"
    )


# Pieces that may stand directly behind a phrase
_BORDER = re.compile("""▁|[.,;:!?…)\\]}"'»”’]+$""")


class Preparer:
    """Converts raw text of one side to the text that the subword model segments, and back."""

    def __init__(self, config: TextConfig, side: Side) -> None:
        self.lowercase = config.lowercase
        self._moses = None
        tokenizer = config.source_tokenizer if side == "source" else config.target_tokenizer
        if tokenizer != "none":
            escapes = tokenizer.startswith(ESCAPING_MOSES)
            lang = tokenizer.removeprefix(ESCAPING_MOSES if escapes else MOSES)
            self._moses = Moses(lang, config.normalize_punctuation in ("both", side), escapes=escapes)

    def prepare(self, line: str) -> str:
        """Returns the line for the subword model; a line of white space alone is empty.

        Tokenises before lowercasing, because the tokeniser recognises abbreviations such as "Mr." by their capitals.
        """
        if is_blank(line):
            return ""
        line = self._moses.tokenize(line) if self._moses else line
        return line.lower() if self.lowercase else line

    def restore(self, line: str) -> str:
        """Returns the raw text of a line, detokenised. Lowercasing is not undone."""
        return self._moses.detokenize(line) if self._moses else line


class TextCodec:
    """The text processing of both languages: from raw lines to ids of pieces, and back.

    Attributes:
        config: the languages, the tokenisation and the kinds of subword models.
        source, target: the subword models. `len(codec.target)` is the size of the vocabulary. Both are the same
            object if `config.one_model`.
    """

    def __init__(self, config: TextConfig, source: SubwordModel, target: SubwordModel) -> None:
        self.config, self.source, self.target = config, source, target
        self._source_text = Preparer(config, "source")
        self._target_text = Preparer(config, "target")
        # A model that was trained before Moses marked words does not know the mark.
        self._unknown_mark = WHOLE if source.ids([WHOLE]) == [UNK] and config.source_tokenizer != "none" else ""
        self._tags = dict(zip(config.tags, source.ids(list(config.tags)), strict=True))
        self._languages = dict(zip(config.languages, source.ids(config.language_pieces), strict=True))
        self._tokens = {"source": set(self._languages.values())}
        self._tokens["target"] = self._tokens["source"] if config.joint_vocab else set()
        self._directed: dict[Direction, Self] = {}
        self._term, self._as, self._end = source.ids(config.term_pieces) or (NO_WORD,) * 3
        self._context, self._similar = (
            source.ids([piece])[0] if piece else NO_WORD for piece in (config.context_piece, config.similar_piece)
        )

    def directed(self, direction: Direction | None) -> Self:
        """Returns the text processing for one direction of a model; see `TextConfig.resolved`."""
        resolved = self.config.resolved(direction or UNNAMED)
        if not self.config.languages or resolved == self.direction:
            return self
        if resolved not in self._directed:  # the same object each time: a server compares them by identity
            self._directed[resolved] = self.with_languages(resolved)
        return self._directed[resolved]

    def with_languages(self, direction: Direction) -> Self:
        """Returns the text processing between two languages of a model, which may be the same."""
        codec = copy(self)  # which shares all tables, as there can be 40,000 directions
        codec.config = replace(self.config, source_lang=direction.source, target_lang=direction.target)
        codec._directed = {}
        return codec

    @property
    def direction(self) -> Direction:
        """The languages of the text processing; of a model of several, those that `directed` was given."""
        return Direction(self.config.source_lang, self.config.target_lang)

    def language_tokens(self, direction: Direction) -> tuple[list[int], list[int]]:
        """Returns the tokens of languages before and behind the ids of a source line; none for a pair of languages."""
        config = self.config
        if not config.languages:
            return [], []
        lang = direction.target if config.placement == "target_on_source" else direction.source
        if lang not in self._languages:
            raise NmtError(f"--source-lang is missing; name one of {listed_codes(config.languages)}")
        token = self._languages[lang]
        return ([], [EOS, token]) if config.placement == "behind_source" else ([token], [])

    def given_ids(self, direction: Direction) -> list[int]:
        """Returns the ids that each target of a direction begins with, which are given and not predicted."""
        return [self._languages[direction.target]] if self.config.given_tokens else []

    def encode_source(self, lines: Sequence[str]) -> list[list[int]]:
        """Returns the ids of raw source lines, without BOS and EOS. Tags at the beginning of a line are one id each."""
        return self.encode_tagged(self._cased(lines))

    def encode_tagged(self, lines: Sequence[tuple[Sequence[str], str]]) -> list[list[int]]:
        """Returns the ids of source text, given with the tags before it and in the case in which the model gets it."""
        encoded = self.source.encode([self._prepared(text) for _, text in lines])
        return [[*map(self._tags.__getitem__, tags), *ids] for (tags, _), ids in zip(lines, encoded, strict=True)]

    def encode_target(self, lines: list[str]) -> list[list[int]]:
        """Returns the ids of raw target lines, without BOS and EOS."""
        return self.target.encode([self._target_text.prepare(line) for line in lines])

    def sample(
        self, side: Side, lines: Sequence[str], strength: float, seeds: Sequence[Sequence[int]]
    ) -> list[list[list[int]]]:
        """Returns random encodings of raw lines of a side: for each line, one for each of its seeds. See `Subword`."""
        if side == "source":
            subword, cased = self.source, self._cased(lines)
            tags, text = [tags for tags, _ in cased], [self._prepared(text) for _, text in cased]
        else:
            subword, tags, text = self.target, [[] for _ in lines], list(map(self._target_text.prepare, lines))
        assert isinstance(subword, Subword)  # `DataConfig` refuses to sample other models
        return [
            [[*map(self._tags.__getitem__, tags), *ids] for ids in subword.sample([line] * len(seeds), strength, seeds)]
            for tags, line, seeds in zip(tags, text, seeds, strict=True)
        ]

    def with_terms(self, line: str, ids: Sequence[int], terms: Sequence[Term]) -> list[int]:
        """Returns the ids of a raw source line with the translation behind each term: <term> … <as> … </term>.

        Args:
            terms: of the line, in order.
        """
        marked, done = list[int](), 0
        translations = self.encode_target([term.translation for term in terms])
        for spelling, translation in zip(
            self.spellings(line, ids, [term[:2] for term in terms]), translations, strict=True
        ):
            if spelling and done <= spelling[0]:
                start, stop = spelling[0], spelling[-1] + 1
                marked += [*ids[done:start], self._term, *ids[start:stop], self._as, *translation, self._end]
                done = stop
        return [*marked, *ids[done:]]

    def spellings(self, line: str, ids: Sequence[int], spans: Sequence[tuple[int, int]]) -> list[list[int]]:
        """Returns, for each of these spans of a source line, in order, the places of the ids that spell it."""
        if not spans:
            return []
        cuts = [0, *chain.from_iterable(spans), len(line)]
        parts = [line[a:b] for a, b in pairwise(cuts)]
        ends = list(accumulate(len(RAW_WORD.findall(part)) for part in parts))
        words = self.words("source", " ".join(parts), ids)
        of_spans = [range(*ends[2 * i : 2 * i + 2]) for i in range(len(spans))]
        return [[n for n, word in enumerate(words) if word in numbers] for numbers in of_spans]

    def with_context(self, ids: Sequence[int], earlier: Sequence[Sequence[int]]) -> list[int]:
        """Returns the ids of a source line and behind them those of earlier ones, the last one first.

        <context> is before each of these. The line begins at the same position as it would alone, which makes it
        easier to learn what the context is for.
        """
        return [*ids, *chain.from_iterable((self._context, *line) for line in reversed(earlier))]

    def with_similar(self, ids: Sequence[int], translation: Sequence[int]) -> list[int]:
        """Returns the ids of a source line and behind them those of the translation of a similar line."""
        return [*ids, self._similar, *translation]

    def _is_text(self, ids: Sequence[int]) -> Iterator[bool]:
        """Yields whether each id of a source line belongs to its text.

        What stands behind it, the marks of terms and their translations do not.
        """
        is_behind, is_text = False, True
        for id_ in ids:
            is_behind = is_behind or id_ in (self._context, self._similar)
            is_text = is_text and id_ != self._as
            yield is_text and not is_behind and id_ != self._term
            is_text = is_text or id_ == self._end

    def _cased(self, lines: Sequence[str]) -> list[tuple[list[str], str]]:
        """Returns the tags of raw source lines, and the text behind them as the model gets it."""
        return [(tags, self.config.cased_for(text)) for tags, text in map(self.config.split_tags, lines)]

    def _prepared(self, text: str) -> str:
        return self._source_text.prepare(text).replace(self._unknown_mark, "")

    def tags_before(self, ids: Sequence[int]) -> int:
        """Returns the number of tags that the ids of a source line begin with."""
        known = set(self._tags.values())
        return next((i for i, id_ in enumerate(ids) if id_ not in known), len(ids))

    def begins_word(self, pieces: Sequence[str], i: int) -> bool:
        """Returns whether a word of a source line begins with piece i, which is not the first."""
        if self.config.subword == "subword-nmt":
            return not pieces[i - 1].endswith("@@")
        return pieces[i].startswith(SPACE) and any(map(str.isalnum, "".join(pieces[i : i + 2])))

    def borders(self) -> list[bool] | None:
        """Returns whether each target piece may stand directly behind a phrase: a new word, or punctuation.

        Returns None if the pieces do not show where a word begins.
        """
        if self.config.subword == "subword-nmt":
            return None
        return [i == EOS or bool(_BORDER.match(piece)) for i, piece in enumerate(self.target.vocabulary)]

    def decode_target(self, ids: list[list[int]]) -> list[str]:
        """Returns the raw, detokenised target line of each sequence of ids. No line contains a line break."""
        if tokens := self._tokens["target"]:
            ids = [[i for i in line if i not in tokens] for line in ids]
        return [self._target_text.restore(line) for line in self.target.decode(ids)]

    def target_phrase(
        self, text: str, ids: Sequence[int], lang: str, *, in_capitals: bool = False
    ) -> GivenPhrase | None:
        """Returns a phrase of a target line, without the spaces around it, and how the line has its ids.

        Returns None if the phrase cannot stand in a line as it was given: it is blank, or has unknown characters,
        or tabs or other unprintable ones.
        """
        text = text.strip()
        printable = all(c.isprintable() or category(c) == "Zs" for c in text)  # Zs: spaces, such as no-break ones
        if not text or not printable or UNK in ids:
            return None
        (decoded,) = self.decode_target([list(ids)])
        decoded = upper(decoded, lang) if in_capitals else decoded
        return GivenPhrase(text, decoded) if decoded else None

    def target_with(self, line: str, given: Given, lang: str) -> str:
        """Returns a decoded target line with the prefix and the phrases that it contains exactly as they were given."""
        line = upper(line, lang) if given.in_capitals else line
        return with_phrases(line, given, spaces=has_spaces(lang)) if given.prefix or given.constraints else line

    def target_segments(self, line: str, pieces: Sequence[str], lang: str) -> tuple[list[str], list[int]]:
        """Returns a translation cut into words, and the number of the word that each piece belongs to, or NO_WORD."""
        if not has_spaces(lang):
            return groups_of_pieces(pieces, line)
        return re.findall(r"\s*\S+", line, re.ASCII), words_of_pieces(pieces, line)

    def words(self, side: Side, line: str, ids: Iterable[int]) -> list[int]:
        """Returns the number of the word of a raw line that each id belongs to, or NO_WORD."""
        in_order, language_tokens = list(ids), {EOS, *self._tokens[side]}
        text_flags = list(self._is_text(in_order)) if side == "source" else [True] * len(in_order)
        text_flags = [is_text and id_ not in language_tokens for id_, is_text in zip(in_order, text_flags, strict=True)]
        subword = self.source if side == "source" else self.target
        words = iter(words_of_pieces(subword.pieces(compress(in_order, text_flags)), line))
        return [next(words) if is_text else NO_WORD for is_text in text_flags]

    def to_dict(self) -> dict[str, Any]:
        """Returns the configuration and the subword models as plain data; `target_model` is None if both share one."""
        target = None if self.config.one_model else self.target.to_bytes()
        return {**self.config.to_dict(), "source_model": self.source.to_bytes(), "target_model": target}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any], origin: str) -> Self:
        """Returns the codec for what `to_dict` returned."""
        models = {"source_model": bytes, "target_model": bytes | None}
        text = {name: values[name] for name in values if name not in models}
        config = TextConfig.from_dict(text, origin)
        wrong = [name for name, kind in models.items() if name not in values or not isinstance(values[name], kind)]
        if wrong or config.one_model != (values["target_model"] is None):
            raise _damaged(origin, ", ".join(wrong) or "joint_vocab contradicts target_model")
        source = load_subword(values["source_model"], config.subword, origin)
        target = source if config.one_model else load_subword(values["target_model"], config.subword, origin)
        return cls.checked(config, source, target, origin)

    @classmethod
    def checked(cls, config: TextConfig, source: SubwordModel, target: SubwordModel, origin: str) -> Self:
        """Returns the codec of models that were read from `origin`."""
        if config.joint_vocab and source is not target and source.vocabulary != target.vocabulary:
            raise _damaged(origin, "joint_vocab contradicts the vocabularies")
        return cls(config, source, target)


def load_subword(data: bytes, kind: str, origin: str) -> SubwordModel:
    """Returns the subword model of any kind that `to_bytes` returned."""
    return (Mapped if kind in MAPPED_KINDS else Subword).from_bytes(data, kind, origin)
