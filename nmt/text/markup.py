"""Marked-up text that is translated: HTML and XML without tags, and tags put back by word alignment.

The rule is that of Bergamot: a target word gets the elements around the source word that it is aligned with. An element
whose words are apart in the translation is closed and opened again. If it were extended over the words between, one
wrong link could mark a whole sentence. In a pair of words, punctuation at the edges corresponds to punctuation. Text
without a counterpart gets the elements around both of its neighbours. Markup without words keeps its place relative to
a neighbour. Placeholders and elements that are not translated stay in the text; if the translation lacks one, it is
inserted.
"""

import re
from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from html import escape, unescape
from itertools import accumulate, chain, groupby, pairwise
from typing import Literal, NamedTuple
from xml.parsers import expat

from nmt.errors import NmtError
from nmt.text.words import AlignedWords

_VOID = "area base br col embed hr img input link meta param source track wbr"
_UNTRANSLATED = "code kbd pre samp script style var"
_OPTIONAL_END = "body caption colgroup dd dt head html li optgroup option p rp rt tbody td tfoot th thead tr"
# Unknown elements are inline, as they are in browsers.
_BLOCKS = (
    "address article aside blockquote body br button caption center col colgroup dd details dialog dir div dl dt "
    "fieldset figcaption figure footer form h1 h2 h3 h4 h5 h6 head header hgroup hr html legend li link main menu meta "
    "nav noscript ol optgroup option p pre search section select summary table tbody td template textarea tfoot th "
    "thead title tr ul"
)
# These expressions follow the HTML standard. html.parser gives no source text of end tags and comments, drops the text
# of an unclosed script, and takes quadratic time for unclosed tags, which possessive repetition avoids here.
_ATTRIBUTE = r"""[^\s<>/=]+(?:\s*=\s*(?:"[^"]*"|'[^']*'|[^\s<>"'][^\s<>]*))?"""
_ATTRIBUTES = rf"(?:\s|/(?!>)|{_ATTRIBUTE})*+"
_TAG = rf"<(?P<end>/?)(?P<name>[^\s<>/!?\0][^\s<>/]*+)(?P<attributes>{_ATTRIBUTES})(?P<empty>/?)>"
_HTML = re.compile(
    rf"<!--(?:-?>|.*?--!?>)|<[!?](?!--)[^>]*>"
    rf"|<(?P<script>script|style)(?=[\s/>]){_ATTRIBUTES}/?>.*?</(?P=script)(?=[\s/>])[^>]*>"
    rf"|(?P<unfinished><!--|<(?:script|style)(?=[\s/>]))|(?=</?[a-z]){_TAG}",
    re.DOTALL | re.IGNORECASE | re.ASCII,
)
_UNFINISHED = re.compile(r"<!--|<(?:script|style)(?=[\s/>])", re.IGNORECASE | re.ASCII)
_XML = re.compile(rf"<!--.*?-->|<!\[CDATA\[.*?\]\]>|<\?.*?\?>|{_TAG}", re.DOTALL | re.ASCII)
_REFERENCE = r"&(?:#[0-9]+|#[xX][0-9a-fA-F]+|[0-9a-zA-Z]+);"
_PLACEHOLDER = re.compile(
    r"""((?:https?://|www\.)(?:[^\s<>"'&]|&amp;|&(?=\w+=))*[\w/]|(?<![\w.+-])[\w.+-]++@[\w-]+(?:\.[\w-]+)+"""
    r"""|\{\{[^{}]*\}\}|\$?\{[^{}\s]*\}|(?<!\d)%(?:\(\w+\)|\d+\$)?[-+#0]*+\d*+(?:\.\d+)?[@cdEeFfGgiorsuXx])"""
)
_WORD = re.compile(r"(\W*)(.*\w|)(\W*)", re.DOTALL)
_PART = re.compile(r"\d+|[^\W\d]+|\W+")
_IN_WORD = re.compile(r"(?<=\w)(?=\w)")
# Each change between words in an element and others may close and open all elements around it again.
_DEEPEST = 100
_Span = tuple[int, int]


class Token(NamedTuple):
    """A part of marked-up text. A leaf has no content that is translated; `text` is what stands for it in a line."""

    kind: Literal["start", "end", "text", "leaf"]
    raw: str
    name: str = ""
    text: str = ""
    is_kept: bool = False  # an element that is not translated, or its start tag


@dataclass(slots=True)
class Node:
    """An element or leaf in a unit, around `text[place:stop]`.

    Its descendants have the numbers that follow its own, before `last`.
    """

    parent: int
    start: str
    place: int
    is_leaf: bool
    end: str = ""
    stop: int = 0
    last: int = 0


@dataclass(frozen=True, slots=True)
class Unit:
    """Text that is translated as a whole.

    Attributes:
        text: the text without tags, with the spaces around it.
        spellings: how the source writes each character.
        owners: the number of the innermost node around each character; node 0 is around all others.
    """

    text: str
    spellings: Sequence[str]
    owners: Sequence[int]
    nodes: Sequence[Node]

    @property
    def source(self) -> str:
        """The line to translate."""
        return " ".join(self.text.split())

    @property
    def phrases(self) -> tuple[str, ...]:
        """What the translation must contain. What occurs several times in the source is required once."""
        found = (self.text[node.place : node.stop] for node in self.nodes if node.is_leaf)
        return tuple(dict.fromkeys(filter(None, found)))

    def restored(self, translation: str, alignment: Sequence[AlignedWords]) -> str:
        """Returns the translation with markup, given the alignment between the words of `source` and of it."""
        if len(self.nodes) == 1 and isinstance(self.spellings, str) and ">" not in self.text:
            before, after = _edges(self.text)
            return before + escape(translation.strip(), quote=False) + after
        return "".join(_Restoration(self, translation, alignment).written())


def parse(text: str, markup: Literal["html", "xml"]) -> list[str | Unit]:
    """Returns the units of a fragment, and the markup between them.

    Block elements of HTML end a unit, and so do elements of XML that are in no element with text of its own.

    Elements with translate="no" stay as they are. So do CDATA sections of XML, and in HTML the class notranslate and
    code, kbd, pre, samp, script, style and var. HTML is repaired: stray end tags are left out, missing ones are added.

    Raises:
        NmtError: the XML is not well-formed, or a comment or script of the HTML does not end.
    """
    tokens = _nested(text, is_html=markup == "html")
    is_block = _blocks(tokens, _BLOCKS.split() if markup == "html" else None)
    parts: list[str | Unit] = []
    for block, pairs in groupby(zip(is_block, tokens, strict=True), key=lambda pair: pair[0]):
        group = [token for _, token in pairs]
        is_unit = not block and any(map(_has_text, group))
        parts.append(_unit(group) if is_unit else "".join(token.raw for token in group))
    return parts


def with_attributes(html: str, change: Callable[[str, str, str], str]) -> str:
    """Returns repaired HTML with other values of attributes. Elements that are not translated keep theirs.

    Args:
        change: returns the new value, given the names of element and attribute in lower case, and the value.
    """

    def changed(element: str, match: re.Match[str]) -> str:
        name, equals, written = re.split(r"(\s*=\s*)", match[0], maxsplit=1) if "=" in match[0] else (match[0], "", "")
        quote = written[0] if written.startswith(("'", '"')) else ""
        old = unescape(written[1:-1] if quote else written)
        new = change(element, name.lower(), old) if equals else old
        return match[0] if new == old else "".join([name, equals, quote or '"', escape(new), quote or '"'])

    def written(token: Token) -> str:
        if token.is_kept or not token.name or token.kind == "end":
            return token.raw
        start = 1 + len(token.name)
        return token.raw[:start] + re.sub(_ATTRIBUTE, partial(changed, token.name), token.raw[start:])

    return "".join(map(written, _nested(html, is_html=True)))


def _has_text(token: Token) -> bool:
    return token.kind == "text" and bool(unescape(token.raw).strip())


def _check_xml(text: str) -> None:
    declaration = "".join(re.findall(r"\A<\?xml\s[^>]*\?>", text))
    # A fragment may have several elements, and text, at the top.
    inside = f"{declaration}<x>{text[len(declaration) :]}</x>"
    try:
        expat.ParserCreate("utf-8").Parse(inside.encode(errors="surrogatepass"), True)
    except expat.ExpatError as error:
        wrong = f"in line {error.lineno} ({expat.ErrorString(error.code)})"
        raise NmtError(f"the XML is not well-formed {wrong}; correct it, and leave out any DTD") from error


def _scanned(text: str, is_html: bool) -> Iterator[Token]:
    place, known = 0, dict[str, Token]()  # a page has many equal tags
    # No markup of HTML ends behind the last >, and to look for its end there would take quadratic time.
    end = text.rfind(">") + 1 if is_html else len(text)
    for match in chain((_HTML if is_html else _XML).finditer(text, 0, end), [None]):
        # Half a tag is text, and must not become a whole one together with what follows.
        between = re.sub("<(?=[a-zA-Z/!?])", "&lt;", text[place : match.start() if match else len(text)])
        for i, part in enumerate(_PLACEHOLDER.split(between)):
            if part:
                yield Token("leaf", part, text=unescape(part)) if i % 2 else Token("text", part)
        if match:
            if match[0] not in known:
                known[match[0]] = _markup(match, is_html)
            yield known[match[0]]
            place = match.end()
    if is_html and (unfinished := _UNFINISHED.search(text, end)):
        raise _does_not_end(unfinished)


def _does_not_end(match: re.Match[str]) -> NmtError:
    return NmtError(f"the HTML has {match[0]} at character {match.start() + 1:,}, which does not end; add its end")


def _markup(match: re.Match[str], is_html: bool) -> Token:
    raw, name = match[0], match["name"] or ""
    if is_html and match["unfinished"]:
        raise _does_not_end(match)
    name = name.lower() if is_html else name
    if match["end"]:
        return Token("end", raw, name)
    if not name:
        return Token("leaf", raw, text=" ".join(raw[9:-3].split()) if raw.startswith("<![CDATA[") else "")
    pairs = (attribute.partition("=") for attribute in re.findall(_ATTRIBUTE, match["attributes"])[::-1])
    values = {key.strip().lower(): value.strip().strip("\"'").lower() for key, _, value in pairs}
    is_kept = is_html and (name in _UNTRANSLATED.split() or "notranslate" in values.get("class", "").split())
    is_empty = match["empty"] or (is_html and name in _VOID.split())
    return Token("leaf" if is_empty else "start", raw, name, is_kept=is_kept or values.get("translate") == "no")


def _nested(text: str, *, is_html: bool) -> list[Token]:
    """Returns tokens with nested tags. An element that is not translated becomes a leaf."""
    if is_html:
        text = text.replace("\0", "\ufffd")  # as the HTML standard says
    else:
        _check_xml(text)
    tokens: list[Token] = []
    unclosed: list[int] = []
    counts = Counter[str]()

    def close(end: Token) -> None:
        start = unclosed.pop()
        name = tokens[start].name
        counts[name] -= 1
        tokens.append(end)
        if tokens[start].is_kept:
            words = "".join(unescape(token.raw) if token.kind == "text" else token.text for token in tokens[start:])
            whole = "".join(token.raw for token in tokens[start:])
            tokens[start:] = [Token("leaf", whole, name, " ".join(words.split()), is_kept=True)]

    for token in chain(_scanned(text, is_html), [Token("end", "")]):
        if token.kind == "end" and (counts[token.name] or not token.name):
            while unclosed and (inner := tokens[unclosed[-1]].name) != token.name:
                close(Token("end", "" if inner in _OPTIONAL_END.split() else f"</{inner}>", inner))
            if unclosed:
                close(token)
        elif token.kind != "end":
            tokens.append(token)
            if token.kind == "start":
                unclosed.append(len(tokens) - 1)
                counts[token.name] += 1
    return tokens


def _blocks(tokens: Sequence[Token], names: Sequence[str] | None) -> list[bool]:
    """Returns whether each token ends a unit. An empty element in an inline element, such as br in b, does not."""
    around, unclosed = [], [-1]  # the start tag of the element around each token, or -1; for an end tag, its start tag
    for i, token in enumerate(tokens):
        around.append(unclosed.pop() if token.kind == "end" else unclosed[-1])
        if token.kind == "start":
            unclosed.append(i)
    starts = [i for i, token in enumerate(tokens) if token.kind == "start"]
    if names is None:
        with_text = {around[i] for i, token in enumerate(tokens) if _has_text(token)}
        for i in starts:
            with_text |= {i} if around[i] in with_text else set()
        found = {i for i in starts if around[i] not in with_text}
    else:
        found = {i for i in starts if tokens[i].name in names}
        for i in reversed(starts):  # an element that contains a block is a block
            found |= {around[i]} if i in found else set()
    found.add(-1)
    return [
        i in found or ((token.kind == "end" or token.name in (names or ())) and around[i] in found)
        for i, token in enumerate(tokens)
    ]


def _unit(tokens: Sequence[Token]) -> Unit:
    texts: list[str] = []
    spellings: list[Sequence[str]] = []
    owners: list[int] = []
    nodes: list[Node] = []
    unclosed: list[int] = []
    for token in [Token("start", ""), *tokens, Token("end", "")]:
        if token.kind in ("start", "leaf"):
            nodes.append(Node(unclosed[-1] if unclosed else -1, token.raw, len(owners), token.kind == "leaf"))
            unclosed.append(len(nodes) - 1)
            if len(unclosed) > _DEEPEST:
                raise NmtError(
                    f"{token.raw:.40} is in {_DEEPEST} elements around the same text; nest fewer elements, or leave "
                    f"out the markup"
                )
        text, spelling = _characters(token.raw) if token.kind == "text" else (token.text, token.text)
        texts.append(text)
        spellings.append(spelling)
        owners.extend(unclosed[-1:] * len(text))
        if token.kind in ("end", "leaf"):
            node = nodes[unclosed.pop()]
            node.end, node.stop, node.last = "" if node.is_leaf else token.raw, len(owners), len(nodes)
    text = "".join(filter(None, texts))  # of a single text, the same object
    is_plain = all(isinstance(spelling, str) for spelling in spellings)
    return Unit(
        text, text if is_plain else list(chain(*spellings)), owners if len(nodes) > 255 else bytes(owners), nodes
    )


def _characters(raw: str) -> tuple[str, Sequence[str]]:
    """Returns the characters of text without tags, and how it writes each of them."""
    if "&" not in raw and "<" not in raw:
        return raw, raw
    spellings: list[str] = []
    decoded = []
    for part in re.findall(rf"{_REFERENCE}|[\s\S]", raw):
        characters = unescape(part)
        is_reference = len(part) > 1 == len(characters)
        decoded.append(characters)
        spellings += [part if is_reference else {"&": "&amp;", "<": "&lt;"}.get(c, c) for c in characters]
    return "".join(decoded), spellings


def _edges(text: str) -> tuple[str, str]:
    """Returns the spaces around text."""
    return text[: len(text) - len(text.lstrip())], text[len(text.rstrip()) :]


class _Restoration:
    """A translation with the spaces around it, and for each of its characters the source character and the node."""

    def __init__(self, unit: Unit, translation: str, alignment: Sequence[AlignedWords]) -> None:
        self.unit, self.nodes, text = unit, unit.nodes, unit.text
        left, right = _edges(text)
        self.target = left + translation.strip() + right
        before, after = len(left), len(right)
        self.origins: list[int | None] = [None] * len(self.target)
        self._map((0, before), (0, before))
        self._map((len(text) - after, len(text)), (len(self.target) - after, len(self.target)))
        self.words = [[match.span() for match in re.finditer(r"\S+", side)] for side in (text, self.target)]
        links = {of_target: of_source for of_source, of_target in sorted(alignment, reverse=True)}
        leaves = self._leaves(links)
        self._map_words(links, leaves)
        self.owners = self._owners(leaves)

    def _word(self, side: int, place: int) -> int:
        """Returns the number of the word around a character of the source, 0, or of the translation, 1."""
        return bisect_right(self.words[side], place, key=lambda word: word[0]) - 1

    def _leaves(self, links: Mapping[int, int]) -> dict[int, int]:
        """Returns the leaves whose text the translation has, by the place of this text. Aligned words go first."""
        ranked = []
        for number, node in enumerate(self.nodes):
            phrase = self.unit.text[node.place : node.stop] if node.is_leaf else ""
            word = self._word(0, node.place)
            for match in re.finditer(re.escape(phrase), self.target) if phrase else ():
                own = self._word(1, match.start())
                shift = match.start() - self.words[1][own][0] - node.place + self.words[0][word][0]
                in_word = any(_IN_WORD.match(self.target, place) for place in match.span())
                ranked.append((links.get(own) != word, in_word, abs(shift), number, *match.span()))
        found: dict[int, int] = {}
        taken = set[int]()  # characters of the translation, and leaves as negative numbers
        for *_, number, start, stop in sorted(ranked):
            if taken.isdisjoint([-number, *range(start, stop)]):
                found[start] = number
                taken.update([-number, *range(start, stop)])
        return found

    def _map_words(self, links: dict[int, int], leaves: Mapping[int, int]) -> None:
        """Maps the characters of linked words, the last full stop, leaves, and spaces."""
        text, (of_source, of_target) = self.unit.text, self.words
        spans = [((self.nodes[i].place, self.nodes[i].stop), place) for place, i in leaves.items()]
        for (start, stop), place in spans:
            links |= {self._word(1, place + i): self._word(0, start + i) for i in range(stop - start)}
        for target, source in links.items():
            self._map_word(of_source[source], of_target[target])
        if all(self.words):
            source_end, target_end = of_source[-1][1], of_target[-1][1]
            if not re.search(r"\w", text[source_end - 1] + self.target[target_end - 1]):
                self.origins[target_end - 1] = source_end - 1
        for (start, stop), place in spans:
            self._map((start, stop), (place, place + stop - start))
        for (_, start), (stop, _) in pairwise(of_target):
            left, right = self.origins[start - 1], self.origins[stop]
            if left is not None and right is not None and text[left + 1 : right].isspace():
                same = text[left + 1 : right] == self.target[start:stop]
                self._map((left + 1, right if same else left + 2), (start, stop if same else start + 1))

    def _map_word(self, source: _Span, target: _Span) -> None:
        """Maps punctuation to punctuation, and each part of the word to a part if they have equally many."""
        sides, words = (self.unit.text, self.target), (source, target)
        if sides[0][slice(*source)].isalpha() and sides[1][slice(*target)].isalpha():
            self._map(source, target)
            return
        cuts = [
            [match.span(i) for i in (1, 2, 3)]
            for side, word in zip(sides, words, strict=True)
            if (match := _WORD.fullmatch(side, *word))
        ]
        if sides[0][slice(*source)] == sides[1][slice(*target)] or any(cut[1][0] == cut[1][1] for cut in cuts):
            cuts = [[source], [target]]
        for pair in zip(*cuts, strict=True):
            parts = [[p.span() for p in _PART.finditer(side, *span)] for side, span in zip(sides, pair, strict=True)]
            for from_, to in zip(*parts, strict=True) if len(parts[0]) == len(parts[1]) else [pair] * all(parts):
                self._map(from_, to)

    def _map(self, source: _Span, target: _Span) -> None:
        """Maps equal text character by character, and other text to the characters in the node with most of them."""
        places: Sequence[int] = range(*source)
        if self.unit.text[slice(*source)] != self.target[slice(*target)]:
            owners = self.unit.owners
            if len(set(owners[slice(*source)])) > 1:
                ((owner, _),) = Counter(owners[place] for place in places).most_common(1)
                places = [place for place in places if owners[place] == owner]
            length = target[1] - target[0]
            places = [places[i * (len(places) - 1) // max(1, length - 1)] for i in range(length)]
        self.origins[slice(*target)] = places

    def _owners(self, leaves: Mapping[int, int]) -> list[int]:
        """Returns the node of each character."""

        def owner(origin: int) -> int:
            number = self.unit.owners[origin]
            return self.nodes[number].parent if self.nodes[number].is_leaf else number

        def nearest(owners: Sequence[int | None], edge: int) -> list[int]:
            return list(accumulate(owners, lambda old, new: old if new is None else new, initial=edge))[1:]

        found = [None if origin is None else owner(origin) for origin in self.origins]
        for place, number in leaves.items():
            length = self.nodes[number].stop - self.nodes[number].place
            found[place : place + length] = [number] * length
        before, behind = nearest(found, owner(0)), nearest(found[::-1], owner(-1))[::-1]
        return [self._common(a, b) for a, b in zip(before, behind, strict=True)]

    def _common(self, a: int, b: int) -> int:
        """Returns the innermost node around both."""
        while a != b:
            a, b = min(a, b), self.nodes[max(a, b)].parent
        return a

    def written(self) -> Iterator[str]:
        """Yields the parts of the marked-up translation."""
        lost = self._lost()
        here = 0
        for place, owner in enumerate([*self.owners, 0]):
            for number in lost[place]:
                node = self.nodes[number]
                yield from self._tags(here, node.parent if node.is_leaf else number)
                here = node.parent if node.is_leaf else number
                if node.is_leaf:
                    # Text that is inserted is a word of its own. Markup between spaces stays between spaces.
                    sides = (self.target[max(0, place - 1) : place], self.target[place : place + 1])
                    around = self.unit.text[max(0, node.place - 1) : node.stop + 1]
                    is_apart = node.place < node.stop or (len(around) > 1 and around.isspace() and " " in sides)
                    left, right = (" " if is_apart and side.strip() else "" for side in sides)
                    yield f"{left}{node.start}{right}"
            if owner != here:
                yield from self._tags(here, owner)
                here = owner
            if place < len(self.target) and not self.nodes[owner].is_leaf:
                character, origin = self.target[place], self.origins[place]
                is_same = origin is not None and self.unit.text[origin] == character
                yield self.unit.spellings[origin or 0] if is_same else escape(character, quote=False)

    def _tags(self, here: int, goal: int) -> Iterator[str]:
        """Yields the tags between two places that are directly in these nodes."""
        common = self._common(here, goal)
        while here != common:
            yield self.nodes[here].end
            here = self.nodes[here].parent
        opened = []
        while goal != common:
            opened.append(self.nodes[goal].start)
            goal = self.nodes[goal].parent
        yield from reversed(opened)

    def _lost(self) -> dict[int, list[int]]:
        """Returns the nodes that have no text in the translation, in order, by the place where they are inserted."""
        held = {0}
        for owner in set(self.owners):
            while owner not in held:
                held.add(owner)
                owner = self.nodes[owner].parent
        places = [(origin, place) for place, origin in enumerate(self.origins) if origin is not None]
        first, last, mapped = dict(reversed(places)), dict(places), sorted(dict(places))
        gaps = list(pairwise([0, *self.owners, 0]))
        common = [self._common(*gap) for gap in gaps]

        @cache
        def place_of(parent: int, place: int) -> int:
            around, i = self.nodes[parent], bisect_left(mapped, place)
            before = [origin for origin in mapped[max(0, i - 1) : i] if origin >= around.place]
            after = [origin for origin in mapped[i : i + 1] if origin < around.stop]
            if not before and not after:
                return 0
            ends_word = re.compile(r"(?<=\S)(?!\S)").match(self.unit.text, place)
            is_behind = bool(before and (ends_word or not after))
            found = last[before[0]] + 1 if is_behind else first[after[0]]
            while not common[found] <= parent < self.nodes[common[found]].last:  # do not split a node in the parent
                found += 1 if is_behind else -1
            return found

        found = defaultdict[int, list[int]](list)
        ranked = []
        for number, node in enumerate(self.nodes):
            if number not in held and node.parent in held:
                place = place_of(node.parent, node.place)
                is_left = node.parent <= gaps[place][0] < self.nodes[node.parent].last
                # Nodes in a node that ends here, then others, then nodes in a node that begins here.
                ranked.append((place, 0 if node.parent == common[place] else -1 if is_left else 1, number))
        for place, _, number in sorted(ranked):
            found[place] += range(number, self.nodes[number].last)
        return found
