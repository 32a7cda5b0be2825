"""Capitals by the rules of languages whose capitals are not those of Python: Unicode's SpecialCasing, CLDR, and Irish.

Lithuanian has none here, because its rules concern the accents of dictionaries alone.
"""

from unicodedata import normalize

import regex as re

from nmt.text.languages import base_language

_DOTTED_I = ("az", "crh", "tr")  # languages in which İ and i are a letter, and I and ı another one
# Georgian has one case: its words in Mtavruli, which Unicode calls capitals, are an ornament.
_NOT_GEORGIAN = re.compile("[^ა-ჿ]+")
_LETTER, _CASED = re.compile(r"\p{L}"), re.compile(r"(?![ა-ჿ])[\p{Lu}\p{Lt}\p{Ll}]")
_GREEK = re.compile(r"\p{Greek}[\p{Greek}\p{M}]*")
# In Greek, decomposed: marks that capitals lack, and a vowel whose accent separates it from the next one
_ACCENT, _HIATUS = re.compile(r"[^\P{Mn}\u0308\u0345]"), re.compile(r"([αεηιουω][\u0300\u0301\u0342])([ιυ])(?!\p{M})")
_IJ = re.compile("[ií]j\u0301?")
# What Irish writes before a word stays small: nGaillimh, mBaile. A hyphen separates it only from a small vowel.
_VOWELS = "AEIOUÁÉÍÓÚ"
_IRISH = re.compile(
    rf"(?<!\w)(?|([nt])-(?=(?i:[{_VOWELS}]))|([hnt])(?=[{_VOWELS}])"
    "|(m)(?=[bB])|(g)(?=[cC])|(n)(?=[dDgG])|(bh)(?=[fF])|(b)(?=[pP])|(t)(?=[sS])|(d)(?=[tT]))"
)
_IRISH_VOWEL = re.compile(rf"(?<!\w)([nt])(?=[{_VOWELS}])")


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
        text = _GREEK.sub(lambda word: _greek(word[0]), text)
    return _NOT_GEORGIAN.sub(lambda part: part[0].upper(), text)


def _greek(word: str) -> str:
    decomposed = normalize("NFD", word)
    if decomposed in ("η\u0301", "Η\u0301"):  # "or", which its accent tells from the article
        return "Ή"
    return normalize("NFC", _ACCENT.sub("", _HIATUS.sub("\\1\\2\u0308", decomposed)).upper())


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
    if language == "nl" and (letter := _IJ.match(rest)):
        return letter[0].upper() + rest[letter.end() :]
    first = upper(rest[:1], "" if language == "el" else lang)
    return start + first[:1] + first[1:].lower() + rest[1:]


def has_case(text: str) -> bool:
    """Returns whether at least half of the letters of a text are of scripts with capitals."""
    return 2 * len(_CASED.findall(text)) >= len(_LETTER.findall(text))


def is_upper(text: str, lang: str) -> bool:
    """Returns whether text is in capitals."""
    return ("".join(_IRISH.split(text)[::2]) if base_language(lang) == "ga" else text).isupper()
