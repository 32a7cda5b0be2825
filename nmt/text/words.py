"""The words of raw text: which pieces belong to them, word alignments as text, and phrases put in verbatim."""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from itertools import chain, pairwise
from typing import NamedTuple
from unicodedata import decimal

NO_WORD = -1

# A word of raw text in alignments. Only ASCII white space ends it, as in fast_align: `10 000` with a no-break
# space is one word.
RAW_WORD = re.compile(r"\S+", re.ASCII)

# Signs within numbers, and numbers with them
_DIGIT_SIGNS = re.compile("(?<=\\d)[\\s.,:'’٫٬](?=\\d)")
_NUMBER = re.compile("\\d(?:[.,:'’٫٬\u00a0\u202f]?\\d)*")

# Characters that cannot be seen: soft hyphens, zero-width spaces and joiners, byte order marks, marks of direction.
_BLANK = re.compile("[\\s\u00ad\u034f\u061c\u180e\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufe00-\ufe0f\ufeff]*")


def is_blank(text: str) -> bool:
    """Returns whether a text has only white space and characters that cannot be seen, such as a zero-width space."""
    return bool(_BLANK.fullmatch(text))


def has_letters(text: str) -> bool:
    """Returns whether a text has letters. A model translates no other text, and documents offer no other for it.

    Text without letters that is not blank, such as a number, can still have a translation in a memory.
    """
    return any(map(str.isalpha, text))


def lacks_numbers(source: str, translation: str) -> bool:
    """Returns whether a translation lacks numbers of its source that have two or more digits.

    Signs within numbers, such as in 1,000 and 17:30, and the script of digits make no difference. Single digits may be
    words in the translation.
    """
    digits = _western(_DIGIT_SIGNS.sub("", translation))
    for number in map(_western, _NUMBER.findall(source)):
        parts = [part.lstrip("0") for part in re.findall(r"\d+", number)]  # such as those of a date
        is_whole = "".join(re.findall(r"\d", number)) in digits
        if not is_whole and any(part not in digits for part in parts if len(part) > 1):
            return True
    return False


def _western(digits: str) -> str:
    return digits if digits.isascii() else re.sub(r"\d", lambda digit: str(decimal(digit[0])), digits)


def one_line(text: str) -> str:
    """Returns the words of a text with one space between them."""
    return " ".join(RAW_WORD.findall(text)).strip()


# How pieces spell a byte, and the space before a word.
BYTE_PIECE = re.compile("<0x([0-9A-F]{2})>")
SPACE = "▁"
# Bytes that are compared at once. The time for a line grows with this number and with the length of the line.
_WINDOW = 512


def words_of_pieces(pieces: Sequence[str], line: str) -> list[int]:
    """Returns the number of the word, from 0, that most bytes of each piece belong to, or NO_WORD.

    The text of the pieces may differ from the line where normalisation or detokenisation changed it. Capitals make
    no difference. A piece that is a space alone belongs to the word behind it.
    """
    words = _words_in_pieces(pieces, line)
    return [Counter(byte_words).most_common(1)[0][0] if byte_words else NO_WORD for byte_words in words]


def groups_of_pieces(pieces: Sequence[str], line: str) -> tuple[list[str], list[int]]:
    """Returns a line cut between its pieces, and the number of the segment that each piece belongs to.

    Pieces that share a character are in the same segment. A segment begins with the spaces before it. The segments
    together are the line. If it has only spaces, there are no segments, and pieces have NO_WORD.
    """
    visible = [i for i, character in enumerate(line) if not character.isspace()]
    if not visible:
        return [], [NO_WORD] * len(pieces)
    cuts, segments, newest = [0], [], 0
    for characters in _words_in_pieces(pieces, " ".join(line[i] for i in visible)):
        if characters and characters[0] > newest:
            cuts.append(visible[characters[0] - 1] + 1)
        newest = max([newest, *characters])
        segments.append(len(cuts) - 1)
    return [line[a:b] for a, b in pairwise([*cuts, len(line)])], segments


def _words_in_pieces(pieces: Sequence[str], line: str) -> Iterator[list[int]]:
    """Yields, for each piece, the word number of each of its bytes. Bytes that belong to no word are left out.

    A piece that is only a space has the word number of the byte after it.
    """
    # Pieces such as <0xC3> stand for a single byte.
    bytes_of = [(piece, BYTE_PIECE.fullmatch(piece)) for piece in pieces]
    spelt = [bytes.fromhex(byte[1]) if byte else piece.replace(SPACE, "").lower().encode() for piece, byte in bytes_of]
    all_spelt = b"".join(spelt)
    line_words = [word.lower().encode(errors="surrogatepass") for word in RAW_WORD.findall(line)]
    raw, numbers = b"".join(line_words), [index for index, word in enumerate(line_words) for _ in word]
    words = numbers
    if raw != all_spelt:
        words = [NO_WORD] * len(all_spelt)
        for i, raw_bytes, j, spelt_bytes in _matches(raw, all_spelt):
            for k in range(spelt_bytes if raw_bytes else 0):
                words[j + k] = numbers[i + k * raw_bytes // spelt_bytes]
    start = 0
    for piece in spelt:
        yield [word for word in words[start : start + max(len(piece), 1)] if word != NO_WORD]
        start += len(piece)


def _matches(raw: bytes, spelt: bytes) -> Iterator[tuple[int, int, int, int]]:
    """Yields what corresponds in both texts: start and length in the first, start and length in the second."""
    i = j = 0
    while j < len(spelt):
        window = raw[i : i + _WINDOW], spelt[j : j + _WINDOW]
        is_last = i + _WINDOW >= len(raw) and j + _WINDOW >= len(spelt)
        operations = SequenceMatcher(None, *window, autojunk=False).get_opcodes()
        # The end of a window may lack its counterpart, so the next window begins in the middle of this one.
        kept = [o for o in operations if is_last or max(o[1], o[3]) < _WINDOW // 2]
        for _, i1, i2, j1, j2 in kept:
            yield i + i1, i2 - i1, j + j1, j2 - j1
        i, j = i + kept[-1][2], j + kept[-1][4]


# Word alignments as text, in the format of Pharaoh, Moses and fast_align: `0-0 1-2`.

# The numbers of a source word and of a target word, both from 0, that translate each other.
AlignedWords = tuple[int, int]

_ALIGNED = re.compile("([0-9]{1,9})-([0-9]{1,9})", re.ASCII)


def pharaoh(alignment: Sequence[AlignedWords]) -> str:
    """Returns an alignment as text, the source word first."""
    return " ".join(f"{source}-{target}" for source, target in alignment)


def parse_pharaoh(line: str) -> list[AlignedWords]:
    """Returns the alignment in a line.

    Raises:
        ValueError: the line has something else; says what.
    """
    alignment = []
    for text in RAW_WORD.findall(line):
        link = _ALIGNED.fullmatch(text)
        if not link:
            raise ValueError(f"{text!r:.40} is no link")
        alignment.append((int(link[1]), int(link[2])))
    return alignment


class GivenPhrase(NamedTuple):
    """A phrase as it was given, and as its pieces alone are written in a line."""

    given: str
    decoded: str


class Given(NamedTuple):
    """The prefix of a line, and sets of phrases; the line contains a phrase of each set.

    Attributes:
        in_capitals: whether the rest of the line is in capitals.
    """

    prefix: GivenPhrase | None = None
    constraints: tuple[tuple[GivenPhrase, ...], ...] = ()
    in_capitals: bool = False


def with_phrases(line: str, given: Given, *, spaces: bool) -> str:
    """Returns the line with its prefix and a phrase of each constraint, the longest one found, as they were given.

    Args:
        spaces: whether spaces separate the words of the language.
    """
    taken: list[tuple[re.Match[str], GivenPhrase]] = []

    def take(phrase: GivenPhrase, matches: Iterator[re.Match[str]]) -> bool:
        for match in matches:
            if all(match.end() <= other.start() or other.end() <= match.start() for other, _ in taken):
                taken.append((match, phrase))
                return True
        return False

    if given.prefix:
        take(given.prefix, filter(None, (re.match(spelling, line) for spelling in _spellings(given.prefix))))
    longest_first = [sorted(phrases, key=lambda phrase: -len(phrase.given)) for phrases in given.constraints]
    for phrases in sorted(longest_first, key=lambda phrases: -len(phrases[0].given)):
        for phrase in phrases:
            if take(phrase, chain.from_iterable(re.finditer(pattern, line) for pattern in _patterns(phrase, spaces))):
                break
    for match, phrase in sorted(taken, key=lambda pair: -pair[0].start()):
        line = line[: match.start()] + phrase.given + line[match.end() :]
    return line


def _patterns(phrase: GivenPhrase, spaces: bool) -> Iterator[str]:
    """Yields expressions for the phrase, those that are more likely right first: whole words, then parts of words."""
    spellings = list(_spellings(phrase))
    begins, ends = (bool(spaces and re.match(r"\w", phrase.decoded[i])) for i in (0, -1))
    for whole in (True, False):
        for spelling in spellings:
            yield (r"(?<!\w)" if begins else "") + spelling + (r"(?!\w)" if ends and whole else "")


def _spellings(phrase: GivenPhrase) -> Iterator[str]:
    """Yields expressions for the phrase as given, as decoded, and with other spaces, which depend on its neighbours."""
    yield re.escape(phrase.given)
    yield re.escape(phrase.decoded)
    yield r"\s*".join(map(re.escape, "".join(phrase.decoded.split())))
