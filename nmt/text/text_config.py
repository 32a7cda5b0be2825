"""How raw text becomes pieces: what a checkpoint records about its text processing."""

from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import Any, Literal

from nmt import console
from nmt.config import Normalization, SubwordKind
from nmt.config.options import Config
from nmt.errors import NmtError
from nmt.text.casing import is_upper, lower
from nmt.text.directions import Direction
from nmt.text.forms import Endings
from nmt.text.languages import MULTIPLE, UNKNOWN, listed_codes, matching
from nmt.text.mapped import MappedKind

# Tokenisers: the Moses scripts, with a language behind the hyphen
MOSES, ESCAPING_MOSES = "moses-", "escaping-moses-"

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
            is_known = name.endswith("_lang") or value == "none" or value.startswith((MOSES, ESCAPING_MOSES))
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
        return list(map(Direction.parsed, self.directions))

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
        return listed_codes(self.all_languages) + (f" in {console.counted(count, 'direction')}" if count else "")

    @property
    def given_tokens(self) -> int:
        """The number of tokens at the beginning of each target that are given, and not predicted."""
        return int(bool(self.languages) and self.placement != "target_on_source")

    @property
    def most_language_tokens(self) -> int:
        """The most tokens of languages that stand beside the pieces of a line; see `Placement`."""
        return 2 if self.languages else 0

    def direction(self, source: str = "", target: str = "") -> Direction:
        """Returns the direction between two languages, whose codes may be written in other ways.

        Args:
            source, target: "" for the only language that the model has for this side.

        Raises:
            NmtError: the model does not have a language, or it has to be named.
        """
        source = "" if source == UNKNOWN else source
        side_languages = [
            list(dict.fromkeys([*self.languages, *languages])) for languages in zip(*self.trained, strict=True)
        ]
        side_languages = side_languages or [list(self.languages)] * 2
        named = [code and matching(code, known) for code, known in zip((source, target), side_languages, strict=True)]
        codes: list[str] = []
        for side, name in enumerate(("source", "target")):
            possible = {each[side] for each in self.trained if named[1 - side] in ("", each[1 - side])}
            possible = possible or set(self.languages)
            if named[side] or len(possible) == 1:
                codes.append(named[side] or min(possible))
            elif name == "source" and self.placement == "target_on_source":
                codes.append(UNKNOWN)  # the model need not know it
            else:
                raise NmtError(f"--{name}-lang is missing; name one of {listed_codes(possible)}")
        if codes[0] == codes[1]:
            raise NmtError(f"both languages are {codes[0]}; name two of {listed_codes(self.all_languages)}")
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
