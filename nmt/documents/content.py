"""Text with elements inside, as several formats have it: its passages, and the same tokens with the translations.

What stands before the first and behind the last word is no part of a passage, so that it keeps its place.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice, pairwise, takewhile
from typing import NamedTuple

from nmt.documents.document import Document
from nmt.memories.matching import Match
from nmt.text.marked import GAP, Token, marked_texts, merged
from nmt.text.protected import Protected
from nmt.text.words import has_letters, is_blank, one_line
from nmt.translate.units import Unit

_DEPTH = 50  # elements that `paired` nests
DIVIDING = "dividing"  # the key of leaves that separate texts even in an element that stands in a text
SEPARATING = ("space", "break", "end")  # the roles of leaves between words


def has_doubts(translations: Iterable[Iterable[Token]]) -> bool:
    """Returns whether text of translations is doubtful."""
    return any(token.role == "doubtful" for tokens in translations for token in tokens)


def plain(tokens: Iterable[Token]) -> str:
    """Returns the text that is translated."""
    return "".join(token.text for token in tokens if token.kind == "text")


def paired(tokens: Iterable[Token]) -> list[Token]:
    """Makes an element of each opening leaf and the closing leaf with the same key, if they are in the same element.

    The key of its start is then its end. Where two pairs overlap, one of them stays two leaves.
    """
    paired: list[Token] = []
    opened: list[int] = []  # each opening leaf, and the start of each element around
    for token in tokens:
        if token.kind == "start" or (token.role == "open" and len(opened) < _DEPTH):
            opened.append(len(paired))
        elif token.kind == "end":
            while paired[opened.pop()].kind != "start":
                pass
        elif token.role == "close":
            inside = takewhile(lambda i: paired[i].kind != "start", reversed(opened))
            start = next((i for i in inside if paired[i].key == token.key), None)
            if start is not None:
                token = token._replace(kind="end")
                paired[start] = paired[start]._replace(kind="start", text="", key=token)
                del opened[opened.index(start) :]
        paired.append(token)
    return paired


def passage(tokens: Iterable[Token], protected: Protected) -> Unit:
    """Returns text that is translated by itself. Leaves in it keep their spaces."""
    return Unit("", content=marked_texts(list(_spaced(list(merged(tokens)))), protected))


def _spaced(tokens: Sequence[Token]) -> Iterator[Token]:
    """Yields tokens with a space behind each leaf that separates words. Notes the spaces around leaves."""
    texts = [token if token.kind == "text" else Token("text") for token in tokens]
    for token, before, after in zip(tokens, [Token("text"), *texts], [*texts[1:], Token("text")], strict=False):
        left, right = len(before.text.rstrip()), len(after.text) - len(after.text.lstrip())
        around = before.cut(left), after.cut(0, right)
        separates = token.role in SEPARATING
        if token.kind == "leaf":
            is_noted = not token.text and (all(space.text for space in around) or separates)
            role = token.role if separates else "mark"
            token = token._replace(text=one_line(token.text), role=role, around=around if is_noted else None)
        yield token
        if separates:
            yield Token("text", " ")


def ordered(unit: Unit, translation: Iterable[Token]) -> list[Token]:
    """Returns the translation of a passage in which leaves have the order and the spaces of the source.

    Two leaves in a row share the spaces between them.
    """
    waiting = defaultdict[object, list[Token]](list)
    for leaf in (token for token in reversed(unit.tokens) if token.kind == "leaf"):
        waiting[leaf.key].append(leaf)
    tokens = list(merged(token for token in translation if token is not GAP))
    stripped: list[Token] = []
    for before, token, after in zip([None, *tokens], tokens, [*tokens[1:], None], strict=False):
        if token.kind == "text":
            is_left, is_right = (bool(beside and beside.around) for beside in (before, after))
            token = token.stripped(left=is_left, right=is_right)
        stripped += [token] if token.text or token.kind != "text" else []
    result: list[Token] = []
    for token, after in zip(stripped, [*stripped[1:], None], strict=False):
        left, right = token.around or (Token("text"), Token("text"))
        leaf = waiting[token.key].pop() if token.kind == "leaf" and token.key is not None else token
        result += [left, leaf, *([] if after and after.around else [right])]
    return list(merged(result))


class Content:
    """Inline content with its passages."""

    def __init__(self, tokens: Iterable[Token], protected: Protected) -> None:
        self._pieces = list(_pieces(merged(tokens), protected))

    @property
    def passages(self) -> list[Unit]:
        """What is translated."""
        return [piece for piece in self._pieces if isinstance(piece, Unit)]

    def translated(self, translations: Iterator[Sequence[Token]]) -> list[Token]:
        """Returns the content with the next translations, one for each passage."""
        tokens = (ordered(p, next(translations)) if isinstance(p, Unit) else [p] for p in self._pieces)
        return list(merged(chain.from_iterable(tokens)))


def _pieces(tokens: Iterable[Token], protected: Protected) -> Iterator[Token | Unit]:
    """Yields the passages of content, and what stands between them."""
    siblings, depth = list[list[Token]](), 0  # each token that is in no element, and the tokens of each element
    for token in tokens:
        siblings += [] if depth else [[]]
        siblings[-1].append(token)
        depth += (token.kind == "start") - (token.kind == "end")
    cuts, following = [len(siblings)], ""  # behind the leaves that separate texts
    for i, sibling in reversed(list(enumerate(siblings))):
        following = plain(sibling).lstrip()[:1] or following
        is_divided = len(sibling) > 1 and any(token.key == DIVIDING for token in sibling)
        if is_divided or sibling[0].role == "end" or (sibling[0].role == "break" and not following.islower()):
            cuts += [i + 1, i] if is_divided else [i + 1]
    for text in (siblings[start:stop] for start, stop in pairwise([0, *reversed(cuts)])):
        # A leaf with text may stand for words, but an element only has the words of its text.
        words = [i for i, s in enumerate(text) if not is_blank(plain(s)) or (s[0].kind == "leaf" and s[0].text)]
        start, stop = (words[0], words[-1] + 1) if words else (0, 0)
        core = list(chain.from_iterable(text[start:stop]))
        yield from chain.from_iterable(text[:start])
        if not has_letters(plain(core)):
            yield from core
        elif stop == start + 1 and core[0].kind == "start":
            yield core[0]
            yield from _pieces(core[1:-1], protected)
            yield core[-1]
        else:
            yield passage(core, protected)
        yield from chain.from_iterable(text[stop:])


class Slot(NamedTuple):
    """A place in a document that has passages.

    Attributes:
        put: takes the translations of its passages, and writes them to this place.
        offer: takes the matches of memories for the only passage.
    """

    passages: Sequence[Unit]
    put: Callable[[Iterator[Sequence[Token]]], None]
    offer: Callable[[Sequence[Match]], None] | None = None


def document_of(slots: Sequence[Slot], written: Callable[[], bytes], skipped: Mapping[str, int]) -> Document:
    """Returns the document with these slots. `written` returns its file when its slots have their translations."""

    def write(translations: Sequence[Sequence[Token]]) -> bytes:
        remaining = iter(translations)
        for slot in slots:
            slot.put(islice(remaining, len(slot.passages)))
        return written()

    def offer(matches: Sequence[Sequence[Match]]) -> None:
        for (slot, _), matches_of_passage in zip(passages, matches, strict=True):
            if slot.offer and len(slot.passages) == 1:
                slot.offer(matches_of_passage)

    passages = [(slot, passage) for slot in slots for passage in slot.passages]
    has_place = any(slot.offer for slot in slots)
    return Document([passage for _, passage in passages], write, skipped, offer if has_place else None)
