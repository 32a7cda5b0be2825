"""Detects that two texts have changed places, by their most common words, for the languages listed here."""

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
# A text needs this many common words before it says anything.
_ENOUGH = 20


def look_swapped(source: Iterable[str], target: Iterable[str], source_lang: str, target_lang: str) -> bool:
    """Returns whether each text has more words of the other language than of its own; False for unlisted languages."""
    if not {source_lang, target_lang} <= _COMMON_WORDS.keys():
        return False
    langs = source_lang, target_lang
    own_s, other_s = _count(source, langs)
    other_t, own_t = _count(target, langs)
    return other_s > own_s and other_t > own_t and min(other_s, other_t) >= _ENOUGH


def _count(lines: Iterable[str], langs: tuple[str, str]) -> tuple[int, int]:
    """Counts the words that are common in the first language only, and in the second only."""
    first, second = (set(_COMMON_WORDS[lang].split()) for lang in langs)
    words = [word for line in lines for word in line.lower().split()]
    return sum(word in first - second for word in words), sum(word in second - first for word in words)
