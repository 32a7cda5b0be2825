"""Capitals by the rules of a language: those of Unicode's SpecialCasing and of CLDR, and the prefixes of Irish."""

from unicodedata import category, normalize

import regex as re

from nmt.text.languages import base_language

_DOTTED_I = ("az", "crh", "tr")  # languages in which İ and i are a letter, and I and ı another one
# Georgian has one case: what Unicode calls its capitals, Mtavruli, is an ornament.
_NOT_GEORGIAN, _CASED = re.compile("[^ა-ჿ]+"), re.compile(r"(?![ა-ჿ])[\p{Lu}\p{Lt}\p{Ll}]")
# In decomposed Greek: accents that capitals lack, except for that of the word "or", and a vowel whose accent
# separates it from the next one
_ACCENT = re.compile(r"(?<=\p{Greek}\p{M}*)(?!(?<=(?<!\w)[ηΗ])\u0301(?!\w))[^\P{Mn}\u0308\u0345]")
_HIATUS = re.compile(r"([αεηιουω][\u0300\u0301\u0342])([ιυ])(?!\p{M})")
_ORDINAL = re.compile(r"[ªº\p{Lm}]")  # letters that have no capitals, such as in N.º and 1ª
# What Irish writes before a word stays small: nGaillimh, mBaile. A hyphen separates it only from a small vowel.
_IRISH_VOWEL = re.compile(r"(?<!\w)([nt])(?=[AEIOUÁÉÍÓÚ])")
_IRISH = re.compile(
    r"(?<!\w)(?|([nt])-(?=(?i:[AEIOUÁÉÍÓÚ]))|([hnt])(?=[AEIOUÁÉÍÓÚ])"
    "|(m)(?=[bB])|(g)(?=[cC])|(n)(?=[dDgG])|(bh)(?=[fF])|(b)(?=[pP])|(t)(?=[sS])|(d)(?=[tT]))"
)


def upper(text: str, lang: str) -> str:
    """Returns text in capitals."""
    language = base_language(lang)
    if language == "ga":
        return "".join(part if i % 2 else part.upper() for i, part in enumerate(_IRISH.split(text)))
    if language in _DOTTED_I:
        text = text.replace("i", "İ")
    elif language == "hy":
        text = text.replace("և", "ԵՎ")
    elif language == "el":
        text = normalize("NFC", _ACCENT.sub("", _HIATUS.sub("\\1\\2\u0308", normalize("NFD", text))))
    return _NOT_GEORGIAN.sub(lambda part: part[0].upper(), text)


def lower(text: str, lang: str) -> str:
    """Returns text in lower case."""
    language = base_language(lang)
    if language in _DOTTED_I:
        text = text.replace("İ", "i").replace("I", "ı")
    return (_IRISH_VOWEL.sub(r"\1-", text) if language == "ga" else text).lower()


def capitalized(text: str, lang: str) -> str:
    """Returns text with a capital as its first letter."""
    language = base_language(lang)
    prefix = _IRISH.match(text) if language == "ga" else None
    start, rest = (prefix[1], text[prefix.end() :]) if prefix else ("", text)
    if language == "nl" and rest.startswith("ij"):
        return "IJ" + rest[2:]
    first = upper(rest[:1], "" if language == "el" else lang)
    return start + first[:1] + first[1:].lower() + rest[1:]


def has_case(text: str) -> bool:
    """Returns whether at least half of the letters of a text are of scripts with capitals."""
    return 2 * len(_CASED.findall(text)) >= sum(map(str.isalpha, text))


def is_upper(text: str, lang: str) -> bool:
    """Returns whether text is in capitals. Text with letters of a script without capitals, such as Arabic, is not."""
    text = _ORDINAL.sub("", _IRISH.sub("", text) if base_language(lang) == "ga" else text)
    return text.isupper() and not any(category(character) == "Lo" for character in text)
