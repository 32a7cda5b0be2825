"""Subtitles, SRT and WebVTT: the text of cues. Times, numbers, settings, comments and names of speakers stay.

A sentence that goes on over several cues is translated as a whole, and its translation is divided over these cues.
What each speaker says, and each description of a sound, is a text of its own. A line of the cue before that is
repeated, as in captions that roll, gets the same translation.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from html import unescape
from itertools import accumulate, chain, groupby, pairwise
from typing import NamedTuple

import regex

from nmt.documents.content import ordered, paired, passage, plain
from nmt.documents.document import (
    Document,
    ReadOptions,
    code_page,
    decoded,
    encoded,
    lines_of,
    marked_encoding,
    spliced,
)
from nmt.errors import NmtError
from nmt.text.marked import Role, Token
from nmt.text.markup_reading import text_token, written
from nmt.text.sentences import SENTENCE_ENDS
from nmt.text.words import has_letters, is_blank

# Where possible, a line of a cue has at most this many characters, and a cue two lines.
_WIDTH = 42
# The most texts that are translated together. Some files have no punctuation that ends sentences.
_MOST_TEXTS = 6
# Times, also as other programs leave them: without milliseconds, with spaces, or with another arrow or dash.
_TIMES = re.compile(r"\s*-?\d+ ?:[\d:., ]*(?:[-–—][-–— ]*>|→)\s*-?\d+ ?:")
_NO_CUE = re.compile(r"WEBVTT|NOTE(?!\S)|STYLE\s*$|REGION\s*$")
_TAG = re.compile(r"(<(/?)([a-zA-Z]\w*+)[^<>]*>|<[\d:.]+>|\{\\[^{}]*\})")
_TAG_OF_VTT = re.compile(r"(<(/?)([a-zA-Z]\w*+)?[^>]*(?:>|\Z)|\{\\[^{}]*\})")
_SENTENCE_END = re.compile(rf"""[{SENTENCE_ENDS}♪][\s"'»”’)\]]*$""")
# Where text is cut: before a space, unless a dash follows, and in scripts without spaces before any letter. Vowels of
# Thai and Lao that are written before a consonant end no line, and those behind one begin none.
_CUT = regex.compile(
    r" (?![-–—])|(?<![\u0e40-\u0e44\u0ec0-\u0ec4\u1039\u17d2])"
    r"(?![\p{M}\u0e2f\u0e30\u0e32\u0e33\u0e45\u0e46\u0eb0\u0eb2\u0eb3\u0ec6])"
    r"[\u0e00-\u109f\u1780-\u17ff\u3040-\u9fff]"
)
# What may stand before the mark of a speaker in a line.
_BEFORE = r"^(?:[^\S\n]|\{\\[^{}]*\}|<(?!v[\s.])[^<>]*>)*+"
# A name in capitals or brackets, such as `JOHN:`, `Dr. O'NEIL:`, `MAN #2 (on phone):` or `[Narrator]:`.
_NAME = (
    r"(?:<(?!v[\s.])\w[^<>]*>)*(?:[\[(（［]?(?:\p{Lu}\p{Ll}{1,3}\.? ?)?\p{Lu}[\p{Lu}\d.'’&/-]*+"
    r"(?: [\p{Lu}\d#&][\p{Lu}\d.'’&/-]*+){0,3}(?: ?[\[(][^\[\]()\n]{1,30}[\])])?[\])）］]?"
    r"|[\[(]\p{Lu}[\p{L}\d.'’ -]{1,30}[\])])(?::(?=\s|$|</)|：)(?:</\w+>)*\s*"
)
_CHEVRONS = r"(?:>{2,}|(?:&gt;){2,})\s*"
# A name such as `John:` may be another word. It begins a text, and is translated.
_SPEAKER = (
    rf"(?P<speaker>{_BEFORE}(?:(?:[-–—♪][^\S\n]*+|{_CHEVRONS})++(?:{_NAME})?|{_NAME})|(?<!\S){_CHEVRONS}(?:{_NAME})?"
    rf"|<v[\s.][^<>]*>\s*(?:[-–—]\s*)?(?:{_NAME})?|{_BEFORE}(?=\p{{Lu}}\p{{Ll}}+(?: \p{{Lu}}\p{{Ll}}+)?:\s))"
)
_BEHIND_SOUND = rf"(?![\p{{Lu}}\p{{Ll}}\d_:：])(?:\s*(?P<speaker>[-–—](?=\s)[^\S\n]*(?:{_NAME})?|{_NAME}))?"
# What begins a text: a speaker, or the description of a sound, in round brackets where a line begins or in capitals.
_MARK = regex.compile(
    rf"{_SPEAKER}?(?<!\w)[\[［【](?P<sound>(?=[^\[\]［【］】]*?\p{{L}})[^\[\]［【］】]*+)[\]］】]{_BEHIND_SOUND}"
    rf"|{_SPEAKER}?(?<!\w)[(（](?P<sound>(?=[^()（）]*?\p{{Lu}}{{2}})[^()（）\p{{Ll}}]*+)[)）]{_BEHIND_SOUND}"
    rf"|(?:{_SPEAKER}|{_BEFORE})[(（](?P<sound>(?=[^()（）]*?\p{{L}})[^()（）]*+)[)）]{_BEHIND_SOUND}"
    rf"|{_SPEAKER}|(?P<dash>(?<=[.!?…][\"'”»]? )[-–—]\s*(?=[\"'“«¿¡]*[\p{{Lu}}\p{{Lo}}]))",
    regex.MULTILINE,
)
_SIGN = re.compile("[-–—♪:：(（［【[]|>>|&gt;|<v")  # without one of these, a cue has no mark
_START = re.compile(r"\A(?:\s|\{\\[^{}]*\}|♪)*")
_AT_END = "♪" + "".join(character for character in map(chr, range(0x3001)) if character.isspace())
_END_TAG = re.compile(r"</([a-zA-Z]\w*)>\Z")
# What players read: the part of an image that is a thumbnail, and data
_DATA = re.compile(r"\S+#xywh=\S+|\S+\.(?:gif|jpe?g|png|webp)|\{\s*\".*\}", re.DOTALL | re.IGNORECASE)
_LINE_BREAKS = re.compile(r"[ \t\r\n]+")


class _Text(NamedTuple):
    """What a speaker says in a cue, or the description of a sound."""

    start: int  # where it begins in the file
    raw: str  # how the file writes it
    visible: str  # its text on one line, without tags
    begins: bool  # whether another speaker or place begins here, so that no sentence goes on
    ends: bool  # whether a sentence ends here
    is_sound: bool
    is_alone: bool = False  # whether it is the whole cue
    original: int = 0  # the number of the text that it repeats, or its own

    @property
    def line(self) -> str:
        """How the file writes it, on one line."""
        return _LINE_BREAKS.sub(" ", self.raw)


def read(data: bytes, options: ReadOptions) -> Document:
    """Returns the document in a file of SRT or WebVTT."""
    is_vtt = b"WEBVTT" in data[:9]
    # SRT may be in the encoding of Windows for its language.
    encoding = "" if is_vtt or marked_encoding(data) else code_page(data, options.source_lang)
    file = decoded(data, options, encoding, may_have_nul=is_vtt)  # the standard of WebVTT allows it
    is_vtt = file.startswith("WEBVTT")
    tag = _TAG_OF_VTT if is_vtt else _TAG
    lines, starts = lines_of(file)
    spans = [(start, start + len(line)) for start, (line, _) in zip(starts, lines, strict=False)]
    rows = [line for line, _ in lines]
    ends_at_blank = is_vtt and any(_cues(rows, ends_at_blank=True))  # unless a conversion doubled all line ends
    cues = [[spans[i] for i in cue] for cue in _cues(rows, ends_at_blank)]
    unreached = list(_unreached(rows, ends_at_blank))
    if not (is_blank(file) or any(map(_TIMES.match, rows)) or (is_vtt and not unreached)):
        times = "00:00:01,000 --> 00:00:04,000"
        raise NmtError(f"{options.name} has no times such as {times}; is it a file of subtitles?")
    texts = list(_texts(file, cues, tag))
    groups = _groups(texts)
    lines_of_groups = (" ".join(texts[i].line for i in group) for group in groups)
    passages = [passage(_tokens(line, tag, is_vtt=is_vtt), options.protected) for line in lines_of_groups]

    def raw(tokens: Iterable[Token]) -> str:
        return (written(tokens) if is_vtt else "".join(token.text or token.raw for token in tokens)).strip()

    def write(translations: Sequence[Sequence[Token]]) -> bytes:
        new, changes = dict[int, list[Token]](), dict[tuple[int, int], str]()
        for group, unit, translation in zip(groups, passages, translations, strict=True):
            lengths = (len(unescape(texts[i].visible) if is_vtt else texts[i].visible) for i in group)
            new |= zip(group, _divided(ordered(unit, translation), lengths), strict=True)
        for i, text in enumerate(texts):
            shown = new[text.original]
            if raw(shown) != texts[text.original].line:
                if text.original != i and not tag.search(text.raw):
                    shown = [token for token in shown if token.kind == "text"]
                length = len(plain(shown))
                is_wrapped = length > _WIDTH and (text.is_alone or "\n" in text.raw)
                new_lines = map(raw, _cut(shown, [length / 2]) if is_wrapped else [shown])
                line_end = lines[0][1] or "\n"
                changes[text.start, text.start + len(text.raw)] = line_end.join(filter(None, new_lines))
        return encoded(spliced(file, changes), data, encoding)

    obstacle = "no times stand directly above; correct the times and blank lines there"
    return Document(passages, write, unreached=unreached, obstacle=obstacle)


def _unreached(lines: Sequence[str], ends_at_blank: bool) -> Iterator[int]:
    """Yields where texts begin that are in no cue: the numbers of their first lines, counted from 1."""
    first = next((i for i, line in enumerate(lines) if _TIMES.match(line)), len(lines))
    for _, block in groupby(range(len(lines) if ends_at_blank else first), lambda i: not lines[i]):
        start, *_ = rows = list(block)
        text = "".join(lines[i] for i in rows)
        is_cue = "\0" not in text and any(_TIMES.match(lines[i]) for i in rows)
        if not (is_cue or _NO_CUE.match(lines[start])) and has_letters(text):
            yield start + 1


def _cues(lines: Sequence[str], ends_at_blank: bool) -> Iterator[list[int]]:
    """Yields the lines of text of each cue, without blank lines. In WebVTT, an empty line ends a cue."""
    times = [i for i, line in enumerate(lines) if _TIMES.match(line)]
    for number, (time, following) in enumerate(pairwise([*times, len(lines) + 1]), start=2):
        ends = (i for i in range(time + 1, len(lines)) if i == following or (ends_at_blank and not lines[i]))
        last = next(ends, len(lines))
        shown = [i for i in range(time + 1, last) if not is_blank(lines[i])]
        label = lines[shown[-1]].strip() if shown and last == following else ""
        # Above the times of the next cue is its number. Some conversions leave blank lines between them.
        if label == str(number) or (label.isdecimal() and shown[-1] == last - 1):
            shown.pop()
        if shown and not any("\0" in lines[i] for i in shown):
            yield shown


def _texts(file: str, cues: Sequence[Sequence[tuple[int, int]]], tag: re.Pattern[str]) -> Iterator[_Text]:
    """Yields the texts of cues in order. Of each cue, the lines' beginnings and ends are given."""
    shown = [[" ".join(tag.sub("", file[slice(*line)]).split()) for line in cue] for cue in cues]
    before: dict[str, Sequence[int]] = {}  # the numbers of the texts in each line of the cue before
    number = 0
    for i, cue in enumerate(cues):
        rolls = not {*shown[i]}.isdisjoint(chain(*shown[max(0, i - 1) : i], *shown[i + 1 : i + 2]))
        own: dict[str, Sequence[int]] = {}
        whole = [("", (cue[0][0], cue[-1][1]))]
        for line, (start, stop) in zip(shown[i], cue, strict=True) if rolls else whole:
            texts = list(_texts_of_part(file[start:stop], start, tag))
            repeated = before.get(line, ())
            own[line] = repeated if len(repeated) == len(texts) else range(number, number + len(texts))
            for text, original in zip(texts, own[line], strict=True):
                yield text._replace(is_alone=not rolls and len(texts) == 1, original=original)
                number += 1
        before = own if rolls else {}


def _texts_of_part(raw: str, offset: int, tag: re.Pattern[str]) -> Iterator[_Text]:
    """Yields the texts in a part of a cue that have letters."""
    if _DATA.fullmatch(raw.strip()):
        return
    spans, start, begins, has_dash = list[tuple[int, int, bool, bool]](), 0, False, False
    for mark in _MARK.finditer(raw) if _SIGN.search(raw) else ():
        if mark["dash"] and not has_dash:  # it is no speaker's
            continue
        has_dash |= bool(re.search("[-–—]", mark["speaker"] or ""))
        spans.append((start, mark.start(), begins, False))
        if mark["sound"]:
            spans.append((*mark.span("sound"), True, True))
        start, begins = mark.end(), mark["dash"] is not None or mark["speaker"] is not None
    for begin, stop, is_new, is_sound in [*spans, (start, len(raw), begins, False)]:
        inner = stop - len(_START.sub("", raw[begin:stop]))
        body = raw[inner:stop].rstrip(_AT_END)
        # An element that begins before the text ends behind it.
        while (end := _END_TAG.search(body[-99:])) and not re.search(rf"<{end[1]}[\s.>]", body):
            body = body[: -len(end[0])].rstrip(_AT_END)
        # A line break counts as the space that the passage has there.
        visible = tag.sub(lambda tag: " " * ((tag[3] or "").lower() == "br"), _LINE_BREAKS.sub(" ", body))
        if has_letters(unescape(visible)):
            is_end = "♪" in raw[inner + len(body) : stop] or bool(_SENTENCE_END.search(visible))
            is_new = is_new or bool(re.search("[{♪]", raw[begin:inner]))
            yield _Text(offset + inner, body, visible, is_new, is_end, is_sound)


def _groups(texts: Sequence[_Text]) -> list[list[int]]:
    """Returns the numbers of the texts that are translated together, in order."""
    groups, sentence = list[list[int]](), list[int]()  # the texts of the sentence that may go on
    for i, text in enumerate(texts):
        if text.original != i:
            continue
        if 0 < len(sentence) < _MOST_TEXTS and not texts[sentence[-1]].ends and not text.begins:
            sentence.append(i)
        else:
            groups.append([i])
            sentence = sentence if text.is_sound else groups[-1]
    return groups


def _tokens(line: str, tag: re.Pattern[str], *, is_vtt: bool) -> list[Token]:
    """Returns the tokens of a text. WebVTT has references as HTML."""
    tokens, start = list[Token](), 0
    for mark in [*tag.finditer(line), None]:
        raw = line[start : mark.start() if mark else None]
        tokens.append(text_token(raw) if is_vtt else Token("text", raw))
        if mark:
            name = mark[3] or ""
            role: Role = "break" if name.lower() == "br" else "close" if mark[2] else "open" if name else "mark"
            tokens.append(Token("leaf", item=mark[0], role=role, key=name or mark[0][0]))
            start = mark.end()
    return paired(tokens)


def _divided(translation: list[Token], lengths: Iterable[int]) -> Iterator[list[Token]]:
    """Yields parts of a translation in proportion to the lengths of texts. An element that is cut is repeated."""
    ends = list(accumulate(length + 1 for length in lengths))
    scale, opened = len(plain(translation)) / max(1, ends[-1] - 1), list[Token]()
    for text in _cut(translation, [(end - 1) * scale for end in ends[:-1]]):
        before = opened
        for token in text:
            opened = [*opened, token] if token.kind == "start" else opened[: -1 if token.kind == "end" else None]
        yield [*before, *text, *(start.key for start in reversed(opened) if isinstance(start.key, Token))]


def _cut(tokens: Sequence[Token], goals: Sequence[float]) -> list[list[Token]]:
    """Returns texts cut near the goals, which count characters."""
    text, cuts = plain(tokens), [0]
    spaces = [column for column in range(1, len(text)) if _CUT.match(text, column)]
    for left, goal in enumerate(goals, start=1 - len(goals)):
        # Keep a space for each text that follows.
        possible = [column for column in spaces[: len(spaces) + left] if column > cuts[-1]]
        cuts.append(min(possible, key=lambda column: abs(column - goal)) if possible else cuts[-1])
    texts, rest = list[list[Token]](), list(tokens)
    for start, stop in pairwise(cuts):
        before, rest = _split(rest, stop - start)
        texts.append(before)
    # No text has spaces at its ends, but those that do not break lines stay.
    return [
        [t.stripped(" ", left=t is text[0], right=t is text[-1]) if t.kind == "text" else t for t in text]
        for text in [*texts, rest]
    ]


def _split(tokens: list[Token], column: int) -> tuple[list[Token], list[Token]]:
    """Returns the tokens before the character with this number, and the others."""
    for i, token in enumerate(tokens if column else ()):
        if token.kind == "text":
            if column < len(token.text):
                return [*tokens[:i], token.cut(0, column)], [token.cut(column), *tokens[i + 1 :]]
            column -= len(token.text)
    return [], tokens
