"""Converts raw text to ids and back, for both languages. Every checkpoint contains the codec that it needs."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate, chain, compress, pairwise
from typing import Any, Literal, NamedTuple, Self
from unicodedata import category

from nmt import console
from nmt.config import Normalization, SubwordKind
from nmt.config.options import Config
from nmt.errors import DamagedError, NmtError
from nmt.text.casing import is_upper, lower, upper
from nmt.text.forms import Endings
from nmt.text.languages import MULTIPLE, UNKNOWN, has_spaces, listed, matching
from nmt.text.mapped import MAPPED_KINDS, Mapped, MappedKind
from nmt.text.moses import WHOLE, Moses
from nmt.text.subword import EOS, UNK, Subword
from nmt.text.terms import Term
from nmt.text.words import (
    NO_WORD,
    RAW_WORD,
    Given,
    GivenPhrase,
    groups_of_pieces,
    is_blank,
    with_phrases,
    words_of_pieces,
)

Side = Literal["source", "target"]
SubwordModel = Subword | Mapped
_MOSES, _ESCAPING_MOSES = "moses-", "escaping-moses-"


class Direction(NamedTuple):
    """What a model of several languages is to do: translate from one language into another. "" names no language."""

    source: str = ""
    target: str = ""

    def __str__(self) -> str:
        return f"{self.source}-{self.target}"

    @classmethod
    def of(cls, source: str | None, target: str | None) -> "Direction":
        """Returns the direction between two languages, of which options may name none."""
        return cls(source or "", target or "")


# The only direction of a model
UNNAMED = Direction()

# The pieces before a term, before its translation and behind that (Dinu et al. 2019 use factors instead).
TERM_PIECES = ("<term>", "<as>", "</term>")

# The piece before each earlier sentence, which stands behind a sentence
CONTEXT_PIECE = "<context>"

# The piece before the translation of a similar sentence (Bulte and Tezcan 2019), which stands behind a sentence
SIMILAR_PIECE = "<similar>"

# Where the tokens of languages stand: that of each side at its beginning (M2M-100, NLLB-200); that of the source
# behind its EOS, and that of the target as before (NLLB-200 with `legacy_behaviour`); that of the target alone, on
# the source (SMaLL-100, Opus-MT).
Placement = Literal["both_sides", "behind_source", "target_on_source"]
# The values of `TextConfig` for a model that gets raw text.
RAW_TEXT: dict[str, Any] = {
    "source_tokenizer": "none", "target_tokenizer": "none", "normalize_punctuation": "none", "lowercase": False
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class TextConfig(Config):
    """What determines how raw text becomes pieces; `nmt.config.DataConfig` explains the options.

    Attributes:
        source_lang, target_lang: the languages; of a model of several, `mul`, or those of one of its directions.
        source_tokenizer, target_tokenizer: `none`, or `moses-de` for the Moses scripts with their rules for de, or
            `escaping-moses-de` to also escape some characters and split at hyphens.
        subword: a kind of `nmt.text.subword` or of `nmt.text.mapped`.
        lower_capitals: whether the model gets lines in capitals in lower case.
        tags: words that are one piece each at the beginning of a source line.
        languages: the languages with a token, of a model of several; empty for other models.
        language_pieces: the piece of each of them, its token.
        placement: where these tokens stand.
        directions: the pairs of languages that the model was trained on, such as `de en`; empty if that is not known.
        term_pieces: of a model that reads terms, the pieces in the place of `TERM_PIECES`; no text has them.
        context: the number of earlier sentences that the model reads, at most.
        context_piece: of such a model, the piece in the place of `CONTEXT_PIECE`; no text has it.
        similar_piece: of a model that reads the translations of similar sentences, the piece in the place of
            `SIMILAR_PIECE`; no text has it.
        endings: pairs of endings that the words of the source language exchange, such as `/s`.
    """

    source_lang: str
    target_lang: str
    source_tokenizer: str
    target_tokenizer: str
    normalize_punctuation: Normalization
    lowercase: bool
    subword: Literal[SubwordKind, MappedKind]
    joint_vocab: bool
    lower_capitals: bool = False
    tags: tuple[str, ...] = ()
    languages: tuple[str, ...] = ()
    language_pieces: tuple[str, ...] = ()
    placement: Placement = "target_on_source"
    directions: tuple[str, ...] = ()
    term_pieces: tuple[str, ...] = ()
    context: int = 0
    context_piece: str | None = None
    similar_piece: str | None = None
    endings: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("source_lang", "target_lang", "source_tokenizer", "target_tokenizer"):
            value = getattr(self, name)
            is_known = name.endswith("_lang") or value == "none" or value.startswith((_MOSES, _ESCAPING_MOSES))
            if not is_known or not value or not value.isprintable() or "/" in value:
                raise NmtError(f"{name} is {value!r:.40}, which nmt does not have")
        if not all(tag.split() == [tag] for tag in self.tags):
            raise NmtError(f"a tag must be a single word, but the tags are {self.tags!r:.80}")
        if len(self.languages) != len(self.language_pieces) or not all(len(d.split()) == 2 for d in self.directions):
            raise NmtError(f"languages {self.languages!r:.80} and their pieces or directions do not go together")

    @property
    def marks(self) -> list[str]:
        """The pieces of source lines that mark terms, context and translations of similar sentences."""
        return [*self.term_pieces, *filter(None, [self.context_piece, self.similar_piece])]

    @cached_property
    def exchanged_endings(self) -> set[Endings]:
        """The `endings` as pairs."""
        return {(first, second) for first, _, second in (pair.partition("/") for pair in self.endings)}

    @property
    def trained(self) -> list[Direction]:
        """The directions that the model was trained on, as far as is known."""
        if not self.languages:
            return [Direction(self.source_lang, self.target_lang)]
        return [Direction(*direction.split()) for direction in self.directions]

    @property
    def all_languages(self) -> list[str]:
        """All languages, also those that are only translated from and therefore need no token."""
        return list(dict.fromkeys([*self.languages, *chain.from_iterable(self.trained)]))

    @property
    def in_words(self) -> str:
        """The languages, such as `en -> de` or `de, en, fr in 4 directions`."""
        if not self.languages:
            return f"{self.source_lang} -> {self.target_lang}"
        count = len(self.directions)
        return listed(self.all_languages) + (f" in {console.counted(count, 'direction')}" if count else "")

    @property
    def given_tokens(self) -> int:
        """The number of tokens at the beginning of each target that are given, and not predicted."""
        return int(bool(self.languages) and self.placement != "target_on_source")

    def direction(self, source: str = "", target: str = "") -> Direction:
        """Returns the direction between two languages, whose codes may be written in other ways.

        Args:
            source, target: "" for the only language that the model has for this side.

        Raises:
            NmtError: the model does not have a language, or it has to be named.
        """
        source = "" if source == UNKNOWN else source
        of_sides = [list(dict.fromkeys([*self.languages, *languages])) for languages in zip(*self.trained, strict=True)]
        of_sides = of_sides or [list(self.languages)] * 2
        named = [code and matching(code, of_side) for code, of_side in zip((source, target), of_sides, strict=True)]
        codes: list[str] = []
        for side, name in enumerate(("source", "target")):
            possible = {each[side] for each in self.trained if named[1 - side] in ("", each[1 - side])}
            possible = possible or set(self.languages)
            if named[side] or len(possible) == 1:
                codes.append(named[side] or min(possible))
            elif name == "source" and self.placement == "target_on_source":
                codes.append(UNKNOWN)  # the model need not know it
            else:
                raise NmtError(f"--{name}-lang is missing; name one of {listed(possible)}")
        if codes[0] == codes[1]:
            raise NmtError(f"both languages are {codes[0]}; name two of {listed(self.all_languages)}")
        return Direction(*codes)

    @cached_property
    def _resolved(self) -> dict[Direction, Direction]:
        return {}

    def resolved(self, direction: Direction) -> Direction:
        """Returns a direction with the codes of the model. Warns once if the model was not trained on it.

        Args:
            direction: see `direction` for its codes.

        Raises:
            NmtError: the model does not have a language, or it has to be named.
        """
        if not any(direction) and self.target_lang != MULTIPLE:
            return Direction(self.source_lang, self.target_lang)
        if direction in self._resolved:
            return self._resolved[direction]
        resolved = source, target = self._resolved[direction] = self.direction(*direction)
        is_trained = any(each.target == target and source in (UNKNOWN, each.source) for each in self.trained)
        if self.languages and self.trained and not is_trained:
            missing = f"to translate into {target}" if source == UNKNOWN else f"on the direction {resolved}"
            console.warn(f"the model was not trained {missing}; its translations may be poor")
        return resolved

    def split_tags(self, line: str) -> tuple[list[str], str]:
        """Returns the tags that a source line begins with, and the rest of the line."""
        tags: list[str] = []
        while self.tags and (words := line.split(maxsplit=1)) and words[0] in self.tags:
            tags.append(words[0])
            line = words[1] if len(words) > 1 else ""
        return tags, line

    def lowers(self, source: str, source_lang: str) -> bool:
        """Whether the model gets this source line, and what belongs to its translation, in lower case."""
        if not self.lower_capitals:
            return False
        words = [word for word in source.split() if word not in self.tags and not word.isnumeric()]
        # A single word may be an abbreviation.
        return len(words) > 1 and is_upper(" ".join(words), source_lang)

    def cased_for(self, source: str, target: str | None = None, direction: Direction | None = None) -> str:
        """Returns a source line, whose tags stay, or text of its translation, as the model gets it."""
        source_lang, target_lang = direction or (self.source_lang, self.target_lang)
        if not self.lowers(source, source_lang):
            return source if target is None else target
        if target is not None:
            return lower(target, target_lang)
        _, text = self.split_tags(source)
        return source.removesuffix(text) + lower(text, source_lang)

    @property
    def has_moses(self) -> bool:
        """Whether Moses tokenises the text of a side. Only Moses normalises punctuation."""
        return {self.source_tokenizer, self.target_tokenizer} != {"none"}

    @property
    def one_model(self) -> bool:
        """Whether both sides have the same subword model. Some mapped kinds segment each side with one of its own."""
        return self.joint_vocab and self.subword not in ("marian", "subword-nmt")


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
            escapes = tokenizer.startswith(_ESCAPING_MOSES)
            lang = tokenizer.removeprefix(_ESCAPING_MOSES if escapes else _MOSES)
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

    def towards(self, direction: Direction | None) -> Self:
        """Returns the text processing for one direction of a model; see `TextConfig.resolved`."""
        direction = direction or UNNAMED
        if not any(direction) and self.config.target_lang != MULTIPLE:
            return self
        if direction not in self._directed:  # so that a direction is reported once
            resolved = self.config.resolved(direction)
            self._directed[direction] = self.within(resolved) if self.config.languages else self
        return self._directed[direction]

    def within(self, direction: Direction) -> Self:
        """Returns the text processing between two languages of a model, which may be the same."""
        codec = copy(self)  # which shares all tables, as there can be 40,000 directions
        codec.config = replace(self.config, source_lang=direction.source, target_lang=direction.target)
        codec._directed = {}
        return codec

    @property
    def direction(self) -> Direction:
        """The languages of the text processing; of a model of several, those that `towards` was given."""
        return Direction(self.config.source_lang, self.config.target_lang)

    def around(self, direction: Direction) -> tuple[list[int], list[int]]:
        """Returns the tokens of languages before and behind the ids of a source line; none for a pair of languages."""
        config = self.config
        if not config.languages:
            return [], []
        lang = direction.target if config.placement == "target_on_source" else direction.source
        if lang not in self._languages:
            raise NmtError(f"--source-lang is missing; name one of {listed(config.languages)}")
        token = self._languages[lang]
        return ([], [EOS, token]) if config.placement == "behind_source" else ([token], [])

    def given(self, direction: Direction) -> list[int]:
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
        if not terms:
            return list(ids)
        cuts = [0, *chain.from_iterable((term.start, term.stop) for term in terms), len(line)]
        parts = [line[a:b] for a, b in pairwise(cuts)]
        sizes = [len(RAW_WORD.findall(part)) for part in parts]
        ends = list(accumulate(sizes))
        words = self.words("source", " ".join(parts), ids)
        marked, done = list[int](), 0
        for number, translation in enumerate(self.encode_target([term.translation for term in terms])):
            first, last = ends[2 * number], ends[2 * number + 1]
            within = [i for i, word in enumerate(words) if first <= word < last]
            if within and done <= within[0]:
                start, stop = within[0], within[-1] + 1
                marked += [*ids[done:start], self._term, *ids[start:stop], self._as, *translation, self._end]
                done = stop
        return [*marked, *ids[done:]]

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
        return pieces[i].startswith("▁") and any(map(str.isalnum, "".join(pieces[i : i + 2])))

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
        in_order, of_languages = list(ids), {EOS, *self._tokens[side]}
        of_text = list(self._is_text(in_order)) if side == "source" else [True] * len(in_order)
        of_text = [is_text and id_ not in of_languages for id_, is_text in zip(in_order, of_text, strict=True)]
        subword = self.source if side == "source" else self.target
        words = iter(words_of_pieces(subword.pieces(compress(in_order, of_text)), line))
        return [next(words) if is_text else NO_WORD for is_text in of_text]

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
