"""Detects that source and target text are swapped, by the most common words of the languages listed here."""

from collections.abc import Iterable

_COMMON_WORDS = {
    "cs": "že se na je v s jsem jsou ale které který jako podle také však",
    "de": "der die das und ist nicht ein eine zu den mit von auf für dass sich auch wird",
    "en": "the and of to in is that for it with was are this have from they which",
    "es": "el los las y es que una por para con del se al más como pero sus",
    "fr": "le les et est des une du que pour dans qui au ne pas sur avec cette nous",
    "it": "il di che è un per una sono della del non con gli alla nel anche più",
    "nl": "de het een en van is niet op dat zijn voor met aan ook wordt door naar",
    "pt": "o os e é um uma que não para com dos do da em mais como foi pelo",
    "ru": "и в не на что с по как это из он за от для но был",
}
# A text with fewer words of the other language is not reported.
_ENOUGH_WORDS = 20


def look_swapped(source: Iterable[str], target: Iterable[str], source_lang: str, target_lang: str) -> bool:
    """Returns whether each text has more words of the other language than of its own.

    Returns False if a language is not listed here.
    """
    if not {source_lang, target_lang} <= _COMMON_WORDS.keys():
        return False
    langs = source_lang, target_lang
    source_own, source_other = _count(source, langs)
    target_other, target_own = _count(target, langs)
    more_other = source_other > source_own and target_other > target_own
    return more_other and min(source_other, target_other) >= _ENOUGH_WORDS


def _count(lines: Iterable[str], langs: tuple[str, str]) -> tuple[int, int]:
    """Returns the number of words that are common only in the first language, and only in the second."""
    first, second = (set(_COMMON_WORDS[lang].split()) for lang in langs)
    words = [word for line in lines for word in line.lower().split()]
    return sum(word in first - second for word in words), sum(word in second - first for word in words)
