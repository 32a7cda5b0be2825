"""Counts the characters of many lines at once: letters, scripts, digits, and a hash of what a line says.

Shapes: L lines, C characters of all lines with a line break after each.
"""

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from nmt.data.arrays import hashed
from nmt.text.languages import LANGUAGES_OF_SCRIPT, base_language
from nmt.text.words import is_blank

# Classes of characters. A letter has the class of its script, from _FIRST_SCRIPT on.
_OTHER, _SPACE, _DIGIT, _CONTROL, _FIRST_SCRIPT = range(5)
# Letters of scripts that are not in the table share a class. Of languages that are not, all letters count as right.
_CLASS_OF_SCRIPT = {script: code for code, script in enumerate([*LANGUAGES_OF_SCRIPT, "OTHER"], _FIRST_SCRIPT)}
# What a code such as hi_Latn says of the script, where a language has several.
_SCRIPTS = {"latn": "LATIN", "cyrl": "CYRILLIC", "arab": "ARABIC", "deva": "DEVANAGARI", "guru": "GURMUKHI"}
# How many characters of English say as much as one of these scripts, for which it is not about 1. Measured on
# translations of messages of programs, and for Japanese on sentences, too.
_WIDTHS = {"HANGUL": 2.0, "HIRAGANA": 1.5, "KATAKANA": 1.5, "CJK": 3.0}
# The blocks of emojis, with those that are newer than Python's table of characters.
_EMOJI = range(0x1F000, 0x1FB00), range(0x1FC00, 0x1FFFE)
_UNSEEN = 255
_NEWLINE = ord("\n")


# The class and the hashed key of each code point that was seen. To compute those of all of Unicode takes a second.
_CLASSES, _KEYS = np.full(0x110000, _UNSEEN, np.uint8), np.zeros(0x110000, np.uint64)


def _class_and_key(code: int) -> tuple[int, int]:
    """Returns the class of a code point, and a number that both cases share; 0 if it is no letter or number."""
    character = chr(code)
    category = unicodedata.category(character)
    if category[0] in "LM":
        # Full width and the like do not change the script.
        plain = unicodedata.normalize("NFKC", character)[0]
        script = unicodedata.name(plain, "OTHER").split(" ", 1)[0].split("-", 1)[0]
        # Accents, the forms of emojis, and apostrophes occur in any script.
        if script in ("COMBINING", "VARIATION", "MODIFIER"):
            return _OTHER, 0
        script = "CJK" if script == "IDEOGRAPHIC" else script
        european = script in ("LATIN", "GREEK", "CYRILLIC")  # whose accents are often missing in capitals
        key = ord((unicodedata.normalize("NFKD", character) if european else character).casefold()[0])
        return _CLASS_OF_SCRIPT.get(script, _CLASS_OF_SCRIPT["OTHER"]), key
    if category == "Nd":
        return _DIGIT, ord("0") + unicodedata.digit(character)
    if category in ("No", "Nl"):
        return _OTHER, ord(character.casefold())
    if category[0] == "Z" or character in "\t\n" or (category == "Cf" and is_blank(character)):
        return _SPACE, 0
    if category == "Cn" and any(code in block for block in _EMOJI):
        return _OTHER, 0
    return (_CONTROL if category in ("Cc", "Co", "Cn", "Cs") or code == 0xFFFD else _OTHER), 0


@dataclass(frozen=True)
class Measures:
    """Numbers of characters in each line in Unicode's form NFC, int64 but for `width`, which is float64, [L].

    Attributes:
        length: all characters.
        width: all characters, of which each Chinese one counts three times, Korean one twice, and kana 1.5 times.
        spaces, letters, digits, control: spaces, letters, digits, and control or unassigned characters.
        in_script: letters of the scripts of the language.
        hash: equal for lines whose letters and digits are the same apart from case and accents; uint64. 0 if there
            are none.
    """

    length: np.ndarray
    width: np.ndarray
    spaces: np.ndarray
    letters: np.ndarray
    control: np.ndarray
    in_script: np.ndarray
    digits: np.ndarray
    hash: np.ndarray


def _coded(lines: Sequence[str]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns the code points of lines in NFC, uint32 [C], and where each line starts and ends, int64 [L].

    `_CLASSES` and `_KEYS` then have all of the code points.
    """
    text = unicodedata.normalize("NFC", "".join(f"{line}\n" for line in lines))
    codes_C = np.frombuffer(text.encode("utf-32-le", errors="surrogatepass"), np.uint32)
    if len(codes := np.unique(codes_C[_CLASSES[codes_C] == _UNSEEN])):
        _CLASSES[codes], _KEYS[codes] = zip(*map(_class_and_key, codes.tolist()), strict=True)
        _KEYS[codes] = hashed(_KEYS[codes]) * (_KEYS[codes] > 0)
    ends_L = np.flatnonzero(codes_C == _NEWLINE)
    return codes_C, np.concatenate(([0], ends_L[:-1] + 1)) if len(lines) else ends_L, ends_L


def letter_keys(lines: Sequence[str]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns what lines say, whatever their case and accents; none may contain a line break.

    Returns:
        The keys of their letters and digits, uint64 [K], the line of each key, int64 [K], and the hashes of the lines
        as in `Measures`.
    """
    codes_C, starts_L, ends_L = _coded(lines)
    keys_C = _KEYS[codes_C]
    hashes_L = _hashes(keys_C, starts_L) if len(lines) else keys_C
    return keys_C[keys_C > 0], np.repeat(np.arange(len(lines)), ends_L - starts_L + 1)[keys_C > 0], hashes_L


def measure(lines: Sequence[str], lang: str) -> Measures:
    """Returns the measures of lines in a language, such as `fr` or `deu_Latn`; none may contain a line break."""
    codes_C, starts_L, ends_L = _coded(lines)
    classes_C, lengths_L = _CLASSES[codes_C], ends_L - starts_L

    def count(mask_C: np.ndarray) -> np.ndarray:
        return np.add.reduceat(mask_C, starts_L, dtype=np.int64)

    letters_C = classes_C >= _FIRST_SCRIPT
    wider_L = sum((width - 1) * count(classes_C == _CLASS_OF_SCRIPT[name]) for name, width in _WIDTHS.items())
    language = base_language(lang)
    named = next((name for tag, name in _SCRIPTS.items() if tag in re.split("[-_]", lang.lower())), None)
    names = [named] if named else [name for name, langs in LANGUAGES_OF_SCRIPT.items() if language in langs.split()]
    scripts = [_CLASS_OF_SCRIPT[name] for name in names]
    of_language_C = np.isin(classes_C, scripts) if scripts else letters_C
    return Measures(
        length=lengths_L,
        width=lengths_L + wider_L,
        spaces=count(classes_C == _SPACE) - 1,
        letters=count(letters_C),
        control=count(classes_C == _CONTROL),
        in_script=count(of_language_C),
        digits=count(classes_C == _DIGIT),
        hash=_hashes(_KEYS[codes_C], starts_L),
    )


def length_ratio(source: Measures, target: Measures) -> np.ndarray:
    """Returns how many times longer the longer side of each pair is, after 10 are added to both widths; [L]."""
    source_L, target_L = source.width + 10, target.width + 10
    return np.maximum(source_L / target_L, target_L / source_L)


def _hashes(keys_C: np.ndarray, starts_L: np.ndarray) -> np.ndarray:
    """Returns a polynomial of the keys of each line that are not 0, modulo 2^64."""
    counted_C = np.cumsum(keys_C > 0)
    before_L = np.concatenate(([0], counted_C))[starts_L]
    offsets_C = np.repeat(before_L, np.diff(np.append(starts_L, len(keys_C))))
    ranks_C = counted_C - offsets_C
    powers = np.ones(int(ranks_C.max(initial=0)) + 1, np.uint64)
    with np.errstate(over="ignore"):
        np.multiply.accumulate(np.full(len(powers) - 1, 0x9E3779B97F4A7C15, np.uint64), out=powers[1:])
        sums_L = np.add.reduceat(keys_C * powers[ranks_C], starts_L)
    return hashed(sums_L) * (sums_L != 0)
