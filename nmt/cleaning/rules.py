"""The rules of `nmt clean`: what each one measures, and which pairs it drops."""

import math
import re
import sys
import unicodedata
from collections import Counter
from collections.abc import Callable, Sequence
from functools import cached_property
from itertools import pairwise, product, starmap
from operator import eq
from typing import NamedTuple

import numpy as np

from nmt.cleaning.quantities import unequal_quantities
from nmt.config import CleanConfig
from nmt.config.options import flag_name
from nmt.data.arrays import hashed
from nmt.data.leaks import HeldOut
from nmt.data.measures import Measures, length_ratio, measure
from nmt.errors import NmtError, importing
from nmt.jobs.stream import Processor
from nmt.text.languages import DOUBLING, EXTRA, Identifier, base_language, has_spaces, is_among, label_of

Lines = list[str]


def _misread(encoding: str) -> str:
    """Returns a pattern of the first bytes of characters in UTF-8 that were read in another encoding."""
    leads = bytes.fromhex("c2 c3 c4 c5 ce cf d0 d1 d8 d9 e2 e3 e5 f0").decode(encoding, errors="ignore")
    others = bytes(range(0x80, 0xC0)).decode(encoding, errors="ignore")
    return f"[{leads}][{others}]"


# Text that matches is looked at more closely, because that takes 20 times as long.
_BROKEN = re.compile("|".join(map(_misread, ("latin-1", "cp1252", "cp1250", "cp1251", "mac_roman", "cp437"))))


# A letter that an encoding lacked became a question mark.
_LOST = re.compile(r"[a-zß-ÿ]\?[a-zß-ÿ](?!\w*=)")
_QUOTES = str.maketrans({**dict.fromkeys("“”„‟«»", '"'), **dict.fromkeys("‘’‚‛‹›", "'")})
# Soft hyphens, zero-width spaces, byte order marks, and joiners except behind scripts and emojis that use them.
_INVISIBLE = re.compile("[\u00ad\u180e\u200b\u2060-\u2064\ufeff]|(?<![^\\s\u0000-\u058f])[\u200c\u200d]+")
# In the order in which they are applied, because spaces may be around invisible characters.
_FORMS: dict[str, Callable[[str], str]] = {
    "unicode": lambda line: unicodedata.normalize("NFKC", line),
    "invisible": lambda line: _INVISIBLE.sub("", line),
    "quotes": lambda line: line.translate(_QUOTES),
    "spaces": lambda line: " ".join(line.split()),
}
_MARKUP = re.compile(
    r"</?[a-zA-Z][^<>]{0,200}>|<!--|&(?:[a-zA-Z]{2,8}|#x?[0-9a-fA-F]{1,6});|\[\[[^\[\]]*\]\]|\{\{[^{}]*\}\}"
)
_LONG_WORD = 5  # letters; short ones follow themselves in sound text, such as "nous nous"
# Words become characters from these on. The pattern finds a repeated phrase, three equal words, or two long words
# that are equal. The length of the phrase is limited, so that long lines take linear time.
_SHORT_WORDS, _LONG_WORDS = 0x10000, 0x80000
_REPEATED = re.compile(rf"(.{{2,300}}?)\1|(.)\2\2|([{chr(_LONG_WORDS)}-{chr(sys.maxunicode)}])\3")
_REPEATED_CHARACTERS = re.compile(r"(.{4,300}?)\1|(.{2,3}?)\2\2")
_REPEATED_ACROSS_PARTS = re.compile(r"(.{3,300}?)\1")
_WORD = re.compile(r"[^\s,.;:!?()\[\]/|–—،؛؟।॥۔։።]+")
_BETWEEN_PARTS = re.compile(r"[;!?()\[\]|–—؛؟।॥۔։።]|[.:/](?!\w)")
# A time of day, whose hour a 24-hour clock and a 12-hour clock show differently
_TIME = re.compile(r"\d[:.][0-5]\d(?!\d)|\d\s?(?:h\b|h\d|uhr\b|heures\b|[时時點点시]|[ap]\.?\s?m\b)", re.IGNORECASE)
_SURE_LETTERS = 30  # fewer letters do not tell the language


class Pairs:
    """Some pairs, or lines in one language, and their measures.

    Attributes:
        sides: the lines of each language.
        composed: these lines in Unicode's form NFC, which the rules read.
        languages: the languages of the sides, without region or script.
        measures: the measures of each language.
        alive: which pairs no rule has dropped yet; bool, [L].
    """

    def __init__(self, sides: Sequence[Lines], config: CleanConfig, identifier: Identifier | None) -> None:
        self.sides, self._identifier = sides, identifier
        self.composed = [[unicodedata.normalize("NFC", line) for line in lines] for lines in sides]
        self.languages = list(map(base_language, config.languages))
        self.measures = [measure(lines, lang) for lines, lang in zip(sides, config.languages, strict=True)]
        self.alive = np.ones(len(sides[0]), bool)

    def largest(self, quantity: Callable[[Measures], np.ndarray]) -> np.ndarray:
        """Returns the larger number of the two sides; [L]."""
        return np.maximum.reduce(list(map(quantity, self.measures)))

    def largest_of_lines(self, quantity: Callable[[str, str], float]) -> np.ndarray:
        """Returns the larger of `quantity(line, language)` of both sides; 0 for pairs that a rule has dropped; [L]."""
        values = np.zeros(len(self.alive))
        for index in np.flatnonzero(self.alive):
            values[index] = max(map(quantity, (lines[index] for lines in self.composed), self.languages))
        return values

    def in_other_language(self) -> np.ndarray:
        """Returns the probability of the most likely language, or 0 if each side has its own; [L]."""
        assert self._identifier
        probabilities = np.zeros(len(self.alive))
        for lines, measures, lang in zip(self.composed, self.measures, self.languages, strict=True):
            for index in np.flatnonzero(self.alive & (measures.letters >= _SURE_LETTERS)):
                ((label, probability),) = self._identifier.likeliest(lines[index], 1)
                probabilities[index] = max(probabilities[index], 0.0 if label == label_of(lang) else probability)
        return probabilities

    @cached_property
    def hashes(self) -> np.ndarray:
        """Equal for pairs whose letters and digits are the same, apart from case and accents; uint64, [L]."""
        first, *second = (side.hash for side in self.measures)
        with np.errstate(over="ignore"):
            return hashed(first * np.uint64(3) + hashed(second[0])) if second else first


def _repeats(line: str, lang: str) -> bool:
    """Returns whether the line repeats a phrase or a long word directly, or has any word three times in a row.

    Across punctuation other than commas, only a phrase of three or more words counts. In some languages, no word
    is too long to occur twice. In languages without spaces, four characters or more must occur twice, or two or three
    of them three times: shorter ones are often doubled in sound text.
    """
    if not has_spaces(lang):
        return bool(_REPEATED_CHARACTERS.search("".join(filter(str.isalpha, line))))
    line = line.lower().replace(" - ", " – ")
    long = math.inf if is_among(lang, DOUBLING) else _LONG_WORD
    words = _coded(line, long)
    if not _REPEATED.search(words):
        return False
    parts = _BETWEEN_PARTS.split(line)
    return bool(_REPEATED_ACROSS_PARTS.search(words)) or any(_REPEATED.search(_coded(part, long)) for part in parts)


def _coded(line: str, long: float) -> str:
    """Returns a character for each word; nothing if surely nothing is repeated. Words of `long` letters are long."""
    words = _WORD.findall(line)
    # Whatever is repeated directly has two words that follow each other twice, or is a word beside itself.
    neighbours = list(pairwise(words))
    if len(set(neighbours)) == len(neighbours) and not any(starmap(eq, neighbours)):
        return ""
    codes: dict[str, str] = {}
    for word in words:
        if word not in codes:
            is_long = len(word) >= long and word.isalpha()
            codes[word] = chr((_LONG_WORDS if is_long else _SHORT_WORDS) + len(codes) % (_LONG_WORDS - _SHORT_WORDS))
    return "".join(map(codes.__getitem__, words))


def _has_markup(line: str, _: str) -> bool:
    return any(start in line for start in ("<", "&", "[[", "{{")) and bool(_MARKUP.search(line))


def _numbers(pairs: Pairs) -> np.ndarray:
    """Returns whether each line of a pair has a number that the other one lacks; [L].

    If one has a word such as million, numbers are compared by value first. Those that are left end at every character
    that is no digit. 91 and 1991 count as the same number, and so do the hours of 14:00 and 2:00 p.m., and Thai years.
    """
    differ = np.logical_and.reduce([pairs.alive, *(side.digits > 0 for side in pairs.measures)])
    for index in np.flatnonzero(differ):
        lines = [side[index] for side in pairs.composed]
        sides = unequal_quantities(lines, pairs.languages)
        if all(any(quantity["unit"] for quantity in side) for side in sides):
            continue
        texts = (" ".join(quantity[0] for quantity in side) for side in sides)
        first, second = (Counter(str(int(number)) for number in re.findall(r"\d{1,100}", text)) for text in texts)
        missing, added = first - second, second - first
        has_time = missing and added and all(map(_TIME.search, lines))
        apart = has_time and 12, "th" in pairs.languages and 543  # hours, and years of the Buddhist calendar
        equal = {
            (n, m)
            for n, m in product(missing, added)
            if n.endswith(m) or m.endswith(n) or abs(int(n) - int(m)) == apart[max(int(n), int(m)) > 24]
        }
        differ[index] = missing.keys() > {n for n, _ in equal} and added.keys() > {m for _, m in equal}
    return differ


class Rule(NamedTuple):
    """A rule: it drops pairs whose value is above the option, or below it if its name begins with `min`.

    An option that is true drops the pairs whose value is not 0.

    Attributes:
        option: the name of the option.
        value: returns the value of each pair; [L].
        bins: the edges of the histogram of the values; empty for none.
        compares: whether it compares the sides, so that it does not apply to text in one language.
    """

    option: str
    value: Callable[[Pairs], np.ndarray]
    bins: tuple[float, ...] = ()
    compares: bool = False

    def drops(self, values: np.ndarray, limit: float) -> np.ndarray:
        """Returns which pairs the rule drops; bool, [L]."""
        if self.option.startswith("min"):
            return values < limit
        return values > (0 if isinstance(limit, bool) else limit)


def _steps(first: float, last: float, step: float) -> tuple[float, ...]:
    return tuple(np.round(np.arange(first, last + step / 2, step), 6).tolist())


# In the order in which they are applied; the first that drops a pair is its reason. Slow rules come last.
RULES = (
    Rule("control", lambda pairs: pairs.largest(lambda side: side.control)),
    Rule("max_characters", lambda pairs: pairs.largest(lambda side: side.length), _steps(0, 2000, 50)),
    Rule("max_ratio", lambda pairs: length_ratio(*pairs.measures), _steps(1, 5, 0.1), compares=True),
    Rule(
        "min_letters",
        lambda pairs: -pairs.largest(lambda side: -side.letters / np.maximum(side.length - side.spaces, 1)),
        _steps(0, 1, 0.025),
    ),
    Rule(
        "min_script",
        lambda pairs: -pairs.largest(lambda m: -np.where(m.letters, m.in_script / np.maximum(m.letters, 1), 1)),
        _steps(0, 1, 0.025),
    ),
    Rule(
        "untranslated",
        lambda pairs: (pairs.measures[0].hash == pairs.measures[1].hash) & (pairs.measures[0].hash != 0),
        compares=True,
    ),
    Rule("numbers", _numbers, compares=True),
    Rule("markup", lambda pairs: pairs.largest_of_lines(_has_markup)),
    Rule("repetition", lambda pairs: pairs.largest_of_lines(_repeats)),
    Rule("max_other_language", Pairs.in_other_language, _steps(0, 1, 0.025)),
)
# What else drops pairs: before these rules, and after them.
EMPTY, ENCODING, EXCLUDED, COPIES, SCORE = "empty", "encoding", "exclude", "max_copies", "min_score"
REASONS = (EMPTY, ENCODING, *(rule.option for rule in RULES), EXCLUDED, COPIES, SCORE)
# The edges of the histograms by option.
BINS = {rule.option: rule.bins for rule in RULES if rule.bins} | {SCORE: _steps(0, 1, 0.025)}

# The reasons that are no options.
_WORDS = {EMPTY: "empty side", ENCODING: "broken encoding (--encoding)"}


def reason_in_words(reason: str, config: CleanConfig) -> str:
    """Returns the option that dropped a pair, or what else users read as the reason."""
    if reason == SCORE and config.keep is not None:
        return "--keep"
    return _WORDS.get(reason, flag_name(reason))


def is_on(option: str, limit: float) -> bool:
    """Returns whether a rule with this limit can drop a pair."""
    return limit < 1 if option == "max_other_language" else limit > 0


def histogram(option: str, values: np.ndarray) -> dict[str, int]:
    """Returns how many values fall into each bin of an option, by its name and the number of the bin."""
    edges = BINS[option]
    counts, _ = np.histogram(np.clip(values, edges[0], edges[-1]), edges)
    return {f"{option} {bin_}": int(count) for bin_, count in enumerate(counts) if count}


class Cleaner(Processor):
    """Changes pairs, and says which are dropped and why."""

    def __init__(self, config: CleanConfig, excluded: HeldOut) -> None:
        """`excluded` has the lines of --exclude."""
        self.config, self.excluded = config, excluded
        self._identifier: Identifier | None = None
        if is_on("max_other_language", config.max_other_language):
            self._identifier = Identifier("--max-other-language")
            for lang in config.languages:
                if label_of(lang) not in self._identifier.known:
                    raise NmtError(f"the language {lang} cannot be identified; give --max-other-language 1")
        if config.encoding != "keep":
            with importing("ftfy", f"--encoding {config.encoding}", extra=EXTRA):
                import ftfy
                from ftfy.badness import is_bad
            self._mend, self._is_bad = ftfy.fix_encoding, is_bad

    def __call__(self, sides: Sequence[Lines]) -> tuple[Pairs, np.ndarray, Counter[str]]:
        """Returns the pairs with their text changed, the number of the reason of each in REASONS, and histograms.

        The reason is -1 for a pair that is kept; int8, [L]. The histograms count pairs by option and bin.
        """
        changed = [[self.changed(line) for line in lines] for lines in sides]
        pairs = Pairs(changed, self.config, self._identifier)
        reasons = np.full(len(pairs.alive), -1, np.int8)
        histograms: Counter[str] = Counter()

        def drop(reason: str, dropped: np.ndarray) -> None:
            reasons[pairs.alive & dropped] = REASONS.index(reason)
            pairs.alive &= ~dropped

        drop(EMPTY, pairs.largest(lambda side: side.length == side.spaces))
        if self.config.encoding != "keep":
            drop(ENCODING, pairs.largest_of_lines(self._is_broken) > 0)
        for rule in RULES:
            limit = getattr(self.config, rule.option)
            if not is_on(rule.option, limit) or (rule.compares and len(sides) == 1):
                continue
            values = rule.value(pairs)
            if rule.bins:
                histograms.update(histogram(rule.option, values[pairs.alive]))
            drop(rule.option, rule.drops(values, limit))
        is_excluded = np.zeros(len(pairs.alive), bool)
        for lines in changed if self.config.exclude else ():
            is_excluded[self.excluded.leaks(lines).line_P] = True
        drop(EXCLUDED, is_excluded)
        return pairs, reasons, histograms

    def _is_broken(self, line: str, _: str) -> bool:
        is_lossy = "?" in line and "://" not in line and _LOST.search(line)
        return bool(is_lossy) or (not line.isascii() and bool(_BROKEN.search(line)) and self._is_bad(line))

    def changed(self, line: str) -> str:
        """Returns the line as it is written."""
        if self.config.encoding == "mend" and not line.isascii() and _BROKEN.search(line):
            line = self._mend(line)
        for form, change in _FORMS.items():
            line = change(line) if form in self.config.normalize else line
        return line
