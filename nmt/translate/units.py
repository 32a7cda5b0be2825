"""Units, which users give to be translated as one thing, such as a line or a passage; their sentences and translations.

A `UnitMaker` looks at a text once: it finds the direction, the sentences, what stays in them, and the matches of
memories. `encode` in `encoding.py` turns sentences into ids, and their translations become that of the unit.
"""

import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any, Literal, NamedTuple

from nmt.memories.matching import Match
from nmt.memories.memory import AnyMemory, matches_of
from nmt.text.directions import UNNAMED, Direction
from nmt.text.glossary import Glossary, TermOccurrence
from nmt.text.languages import has_spaces
from nmt.text.marked import MarkedText, Role, Token
from nmt.text.markup_projection import projected
from nmt.text.markup_reading import written
from nmt.text.protected import Protected, ProtectedSpan, Span, masked, spans_in, unprotected
from nmt.text.sentences import gaps_between, sentence_spans
from nmt.text.text_config import TextConfig
from nmt.text.words import RAW_WORD, AlignedWords, has_letters, is_blank, pharaoh

# Why a translation is likely to be wrong: terms make it much less probable, it lacks numbers of the source or is much
# shorter, or the source has one or two words, for which the model has no context.
Doubt = Literal["terms", "missing numbers", "much shorter", "one or two words"]


class Translation(NamedTuple):
    """A translation of a sentence or unit.

    If a sentence was translated in parts, texts, pieces and their log P are joined, and scores are summed.

    Attributes:
        text: raw text.
        score: log P over the length penalty.
        pieces: the target pieces.
        log_probs: natural log P of each piece, and at the end that of EOS; each part ends in EOS. Like the pieces,
            they are empty if they were not asked for.
        unmet: whether a constraint or a term is missing.
        alignment: between words of the raw source and of `text`; None if it was not asked for.
        origin: `model`, or `memory` or `glossary`, which have no log P, and whose alignment is a guess.
        utility: of a translation by --mbr: its mean chrF against all that were compared, from 0 to 1. If several
            sentences or parts are joined, the mean.
        confidence: an estimate of its chrF, from 0 to 1, or the mean of several sentences; 1 if a memory has it or
            nothing is translated. None if the checkpoint is not calibrated for the direction, engine and search.
        doubts: why it is likely to be wrong, whatever its confidence, as in `Doubt`.
        without_terms: the model's own translation, from which the confidence is computed, if it lacked terms.
    """

    text: str
    score: float
    pieces: list[str]
    log_probs: list[float]
    unmet: bool = False
    alignment: Sequence[AlignedWords] | None = None
    origin: str = "model"
    utility: float | None = None
    confidence: float | None = None
    doubts: tuple[Doubt, ...] = ()
    without_terms: "Translation | None" = None

    @property
    def reasons(self) -> list[str]:
        """Why it is doubtful, whatever its confidence."""
        return [*["missing terms"] * self.unmet, *self.doubts]

    def is_doubtful(self, threshold: float) -> bool:
        """Returns whether its confidence is below a threshold, or there are other reasons."""
        return bool(self.reasons) or (self.confidence is not None and self.confidence < threshold)

    def fields(self) -> dict[str, Any]:
        """Returns the translation as the fields of a JSON object."""
        doubts: dict[str, Any] = {"unmet": True} if self.unmet else {}
        doubts |= {"doubts": list(self.doubts)} if self.doubts else {}
        confidence = {} if self.confidence is None else {"confidence": round(self.confidence, 4)}
        if self.origin != "model":
            return {"text": self.text, "origin": self.origin} | confidence | doubts
        fields = {
            "text": self.text,
            **confidence,
            "score": self.score,
            "log_prob": sum(self.log_probs),
            "pieces": self.pieces,
            "log_probs": self.log_probs,
        }
        aligned = {} if self.alignment is None else {"alignment": pharaoh(self.alignment)}
        utility = {} if self.utility is None else {"utility": self.utility}
        return fields | utility | aligned | doubts


class Sentence(NamedTuple):
    """A sentence of a unit.

    Attributes:
        text: raw text, without tags.
        line: the number of its line in the unit, from 0; in a unit with markup, of its marked text.
        start: where its text begins in the line.
        tags: those that its line begins with.
        protected: what of its text stays as it is.
        has_elements: whether elements of markup begin or end within it.
        stays: whether it has nothing to translate beside what stays as it is.
        matches: those of memories.
        terms: those of a glossary.
        entry: its translation, if it is a term as a whole.
        earlier: texts of sentences before it, which a model of context reads.
        similar: the translation of the most similar sentence of the memories, for a model that reads it; or empty.
    """

    text: str
    line: int = 0
    start: int = 0
    tags: tuple[str, ...] = ()
    protected: tuple[ProtectedSpan, ...] = ()
    has_elements: bool = False
    stays: bool = False
    matches: tuple[Match, ...] = ()
    terms: tuple[TermOccurrence, ...] = ()
    entry: str | None = None
    earlier: tuple[str, ...] = ()
    similar: str = ""

    @property
    def raw(self) -> str:
        """The text with the tags before it, whose words count in alignments."""
        return " ".join([*self.tags, self.text])


@dataclass(frozen=True)
class Unit:
    """A text to translate, such as a line or a paragraph, and what its translation must have.

    Attributes:
        source: raw text.
        prefix: how the translation must begin, as raw text.
        constraints: phrases that must occur in the translation, as raw text. Several phrases in place of one are
            alternatives, one of which must occur.
        direction: the languages, for a model of several; those that it does not name are those of the job.
        place: what messages call the unit; by default `line` and its number.
        fields: the JSON object of the unit; empty for text.
        content: of marked-up text: the texts that are translated, and the markup between them. None for plain text.
        write: writes the translation of marked-up text.
        earlier: texts before it, which a model of context reads.
        sentences: what is translated; a `UnitMaker` finds it.
    """

    source: str
    prefix: str = ""
    constraints: tuple[str | Sequence[str], ...] = ()
    direction: Direction = UNNAMED
    place: str = ""
    fields: Mapping[str, Any] = field(default_factory=dict)
    content: Sequence[Token | MarkedText] | None = None
    write: Callable[[Iterable[Token]], str] = written
    earlier: tuple[str, ...] = ()
    sentences: Sequence[Sentence] = ()

    def __post_init__(self) -> None:
        if isinstance(self.constraints, str):
            raise TypeError("constraints takes a list of phrases; put a single one in brackets")

    @property
    def lines(self) -> list[str | MarkedText]:
        """The lines of plain text, or the marked texts."""
        if self.content is None:
            return [*self.source.split("\n")]
        return [part for part in self.content if isinstance(part, MarkedText)]

    @property
    def tokens(self) -> list[Token]:
        """The tokens of the text."""
        parts = [Token("text", self.source)] if self.content is None else self.content
        return [token for part in parts for token in ([part] if isinstance(part, Token) else part.tokens)]

    @property
    def texts(self) -> list[str]:
        """The text of each line, without markup."""
        return [line if isinstance(line, str) else line.source for line in self.lines]

    @property
    def alternatives(self) -> list[Sequence[str]]:
        """The phrases of each constraint, of which one must occur."""
        return [[phrases] if isinstance(phrases, str) else phrases for phrases in self.constraints]

    def known(self, sentence: Sentence) -> tuple[str, str] | None:
        """Returns the translation of a sentence, which needs no model, and its origin: `memory` or `glossary`.

        Neither says where elements belong, or has the prefix and the constraints of the unit.
        """
        if self.prefix or self.constraints or sentence.has_elements:
            return None
        targets = [(match.target, "memory") for match in sentence.matches if match.score == 1]
        return next(iter(targets), (sentence.entry, "glossary") if sentence.entry else None)

    def translation(self, translations: Sequence[Translation], target_lang: str) -> Translation:
        """Returns the translation of a unit that is a line of plain text, or with markup its text alone.

        Args:
            translations: of its sentences.
        """
        if self.content is None:
            return _joined_line(self.source, list(zip(self.sentences, translations, strict=True)), target_lang)
        unmet, doubts = any(each.unmet for each in translations), _all_doubts(translations)
        text = self.translated(translations, target_lang)
        origin, confidence = _origin(translations), _mean(each.confidence for each in translations)
        return Translation(text, 0.0, [], [], unmet, origin=origin, confidence=confidence, doubts=doubts)

    def translated(self, translations: Sequence[Translation], target_lang: str) -> str:
        """Returns the translations of the sentences as one text, with the lines or the markup of the source."""
        tokens = self.translated_tokens(translations, target_lang)
        return tokens[0].text if self.content is None else self.write(tokens)

    def translated_tokens(
        self, translations: Sequence[Translation], target_lang: str, doubtful: float = 0
    ) -> list[Token]:
        """Returns the translations of the sentences with the tokens of the source, or the lines of plain text as one.

        Args:
            translations: of its sentences.
            doubtful: the confidence below which text of a sentence between markup gets the role "doubtful"; 0 for none.
        """
        texts = self.texts
        pairs: list[list[tuple[Sentence, Translation]]] = [[] for _ in texts]
        for sentence, translation in zip(self.sentences, translations, strict=True):
            pairs[sentence.line].append((sentence, translation))
        joined_lines = [_joined_line(*each, target_lang) for each in zip(texts, pairs, strict=True)]
        if self.content is None:  # the spaces around a line stay
            both = zip(texts, joined_lines, strict=True)
            lines = (line if is_blank(line) else line.replace(line.strip(), new.text, 1) for line, new in both)
            return [Token("text", "\n".join(lines))]
        tokens, remaining = list[Token](), iter(zip(joined_lines, pairs, strict=True))
        for part in self.content:
            if isinstance(part, Token):
                tokens.append(part)
            else:
                line, line_pairs = next(remaining)
                line_tokens = projected(part, line.text, line.alignment or ())
                new = [each for _, each in line_pairs]
                tokens += _with_doubts(line_tokens, new, doubtful) if doubtful else line_tokens
        return tokens


Cut = Literal["sentence", "line", "unit"]
_LINE_BREAK = re.compile("\r?\n")


@dataclass(frozen=True)
class UnitMaker:
    """Finds what is translated of units: their sentences, in which direction, and what others have translated of them.

    Attributes:
        text: the text processing of the model.
        protected: finds what stays as it is.
        direction: of units that name none.
        cut: what a sentence is: what ends as one, a line, or the whole unit if it is plain text.
        memories: the first one that has a sentence translates it.
        glossary: its terms are in the translations.
        offers: whether similar sentences of memories are needed; a model that reads them needs them anyway.
        target_lang: of the last model, if several translate in turn.
        cuts_only: whether sentences are not looked up yet, unless they are passages that are known as a whole.
    """

    text: TextConfig
    protected: Protected
    direction: Direction = UNNAMED
    cut: Cut = "unit"
    memories: Sequence[AnyMemory] = ()
    glossary: Glossary | None = None
    offers: bool = False
    target_lang: str = ""
    cuts_only: bool = False

    def complete(self, unit: Unit) -> Unit:
        """Returns the unit with its direction and its sentences. Blank lines have none, unless they are the unit.

        Sentences that the unit has already only get their matches and terms.
        """
        named = Direction(*(code or default for code, default in zip(unit.direction, self.direction, strict=True)))
        direction = self.text.resolved(named)
        if unit.sentences:
            sentences = [self._looked_up(sentence, direction) for sentence in unit.sentences]
        else:
            # A line break is no piece of a model, and the unit is a single sentence.
            whole = [_LINE_BREAK.sub(" ", unit.source)] if unit.content is None and self.cut == "unit" else []
            lines = whole or unit.lines
            numbered = enumerate(lines)
            sentences = [each for i, line in numbered for each in self._sentences(unit, i, line, direction)]
        if self.text.context:
            earlier_lines = [self.text.split_tags(line)[1] for line in unit.earlier]
            texts = [*earlier_lines, *(sentence.text for sentence in sentences)]
            ends = range(len(unit.earlier), len(texts))
            earlier = [tuple(texts[max(0, end - self.text.context) : end]) for end in ends]
            sentences = [each._replace(earlier=context) for each, context in zip(sentences, earlier, strict=True)]
        return replace(unit, direction=direction, sentences=sentences)

    def _sentences(self, unit: Unit, line_number: int, line: str | MarkedText, direction: Direction) -> list[Sentence]:
        """Returns the sentences of a line of a unit, with their matches."""
        marked = line if isinstance(line, MarkedText) else None
        text = line.source if isinstance(line, MarkedText) else line
        parts = [part.span() for part in re.finditer("[^\n]+", text)] if marked else [(0, len(text))]

        def has_elements(start: int, stop: int) -> bool:
            return bool(marked and marked.has_elements(start, stop))

        sentences: list[Sentence] = []
        for begin, end in parts:
            tags, plain = self.text.split_tags(text[begin:end])
            begin = end - len(plain)
            protected = spans_in(marked.protected, begin, end) if marked else tuple(self.protected.spans(plain))
            whole = Sentence(plain, line_number, begin, tuple(tags), protected, has_elements(begin, end))
            is_whole = unit.content is None and self.cut == "unit"
            spans = [(0, len(plain))] if is_whole or not is_blank(plain) else []
            if self.cut == "line" and spans:  # such as the CR of Windows
                spans = [(len(plain) - len(plain.lstrip()), len(plain.rstrip()))]
            if self.cut == "sentence" and spans:
                spans = sentence_spans(plain, direction.source, protected)
            if len(spans) > 1 == len(parts) and unit.known(entire := self._looked_up(whole, direction, is_whole=True)):
                sentences.append(entire._replace(terms=tuple(self.terms_in(entire, direction))))
                continue
            for start, stop in spans:
                words, inner = spans_in(protected, start, stop), has_elements(begin + start, begin + stop)
                rest = unprotected(plain[start:stop], spans_in(protected, start, stop))
                stays = not has_letters(rest) if self.protected.defaults else is_blank(rest)
                sentence = Sentence(plain[start:stop], line_number, begin + start, whole.tags, words, inner, stays)
                sentences.append(sentence if self.cuts_only else self._looked_up(sentence, direction))
        return sentences

    def terms_in(self, sentence: Sentence, direction: Direction) -> list[TermOccurrence]:
        """Returns the terms of the glossary in a sentence; none without a glossary."""
        text = masked(sentence.text, sentence.protected)
        return self.glossary.occurrences_in(text, direction, self.text.exchanged_endings) if self.glossary else []

    def _looked_up(self, sentence: Sentence, direction: Direction, *, is_whole: bool = False) -> Sentence:
        """Returns the sentence with what the glossary and the memories have of it.

        Args:
            is_whole: whether it is a line of several sentences, for which terms and similar ones are not needed.
        """
        if self.glossary:
            entry = self.glossary.entry(masked(sentence.text, sentence.protected), direction)
            terms = () if is_whole else tuple(self.terms_in(sentence, direction))
            sentence = sentence._replace(terms=terms, entry=entry)
        if not self.memories:
            return sentence
        languages = direction.source, self.target_lang or direction.target
        values = self.protected.spans(sentence.text)  # as the index of a memory has them
        is_read = self.text.similar_piece is not None and languages[1] == direction.target
        offers = (self.offers or is_read) and not is_whole
        matches = matches_of(sentence.text, values, self.memories, languages, offers=offers)
        return sentence._replace(matches=matches, similar=matches[0].target if matches and is_read else "")


def _all_doubts(translations: Sequence[Translation]) -> tuple[Doubt, ...]:
    return tuple(dict.fromkeys(doubt for translation in translations for doubt in translation.doubts))


def _origin(translations: Sequence[Translation]) -> str:
    origins = {translation.origin for translation in translations}
    return origins.pop() if len(origins) == 1 else "model"


def _mean(values: Iterable[float | None]) -> float | None:
    """Returns the mean of the values that are known."""
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def _with_doubts(tokens: Iterable[Token], translations: Sequence[Translation], doubtful: float) -> Iterator[Token]:
    """Yields the tokens of a line, with a role for the text of doubtful sentences. They may differ in their spaces."""
    roles: Iterator[Role] = (
        "doubtful" if t.is_doubtful(doubtful) else "mark" for t in translations for _ in "".join(t.text.split())
    )
    for token in tokens:
        start, role = 0, token.role
        for end, character in enumerate(token.text):
            new_role = role if character.isspace() else next(roles, role)
            if token.kind == "text" and new_role != role:
                if end > start:
                    yield token.cut(start, end)._replace(role=role)
                start, role = end, new_role
        # Some tokens are known by their identity.
        yield token.cut(start)._replace(role=role) if start or role != token.role else token


def _joined_line(line: str, pairs: Sequence[tuple[Sentence, Translation]], target_lang: str) -> Translation:
    """Returns the translation of a line from those of its sentences."""
    is_aligned = any(translation.alignment for _, translation in pairs)
    starts = [match.start() for match in RAW_WORD.finditer(line)] if is_aligned else []
    translations, spans = [], list[Span]()
    for sentence, translation in pairs:
        tags = len(sentence.tags)  # only the line has them, and only at its beginning
        first = bisect_right(starts, sentence.start) - 1 - tags  # the word that the sentence begins with, or within
        moved = [(i if i < tags else first + i, j) for i, j in translation.alignment or ()]
        translations.append(translation if translation.alignment is None else translation._replace(alignment=moved))
        spans.append((sentence.start, sentence.start + len(sentence.text)))
    return joined(translations, gaps_between(line, spans, spaces=has_spaces(target_lang)))


def joined(translations: Sequence[Translation], gaps: Sequence[str]) -> Translation:
    """Returns translations of consecutive text as one, whose alignment counts all its words.

    Args:
        gaps: what stands between them.
    """
    alignment: list[AlignedWords] = []
    words = 0
    for translation, gap in zip(translations, [*gaps, " "], strict=False):
        alignment += [(source, words + target) for source, target in translation.alignment or ()]
        # Without a gap, the last word of a part and the first one of the next are one. A no-break space joins words.
        words += max(0, len(RAW_WORD.findall(translation.text)) - (not gap or bool(RAW_WORD.fullmatch(gap))))
    return Translation(
        "".join(chain.from_iterable(zip((t.text for t in translations), [*gaps, ""], strict=False))),
        sum(translation.score for translation in translations),
        [piece for translation in translations for piece in translation.pieces],
        [log_prob for translation in translations for log_prob in translation.log_probs],
        any(translation.unmet for translation in translations),
        None if all(translation.alignment is None for translation in translations) else alignment,
        _origin(translations),
        _mean(translation.utility for translation in translations),
        _mean(translation.confidence for translation in translations),
        _all_doubts(translations),
    )
