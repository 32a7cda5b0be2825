"""What the toolkit knows about languages, and Moses tokenisation as ported by sacremoses."""

import re
from collections.abc import Iterable
from itertools import groupby

# Languages whose ordinary text survives Moses tokenisation and detokenisation. sacremoses has rules for more languages,
# but they separate an apostrophe, a colon or a danda that belongs to a word (ca, el, fi, ga, nl, sv, tdt, and the
# languages of India), or spaces appear that were never there (zh, yue).
MOSES = {"cs", "de", "en", "es", "et", "fr", "hu", "is", "it", "lt", "lv", "pl", "pt", "ro", "ru", "sk", "sl"}
CHINESE = {"zh", "yue", "wuu", "lzh"}
WITHOUT_SPACES = CHINESE | {"bo", "dz", "ja", "km", "lo", "my", "th"}
# Thai, Lao, Tibetan, Burmese, Khmer, kana and Chinese characters.
UNSPACED_SCRIPT = re.compile("[\u0e00-\u0fff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff]")
# Codes of three letters (ISO 639-3, as in zho_Hans or deu_Latn) of the languages that are named above, and of Korean.
_TWO_LETTERS = {
    "ces": "cs", "deu": "de", "eng": "en", "spa": "es", "est": "et", "fra": "fr", "hun": "hu", "isl": "is", "ita": "it",
    "lit": "lt", "lav": "lv", "lvs": "lv", "pol": "pl", "por": "pt", "ron": "ro", "rus": "ru", "slk": "sk", "slv": "sl",
    "zho": "zh", "cmn": "zh", "bod": "bo", "dzo": "dz", "jpn": "ja", "khm": "km", "lao": "lo", "mya": "my", "tha": "th",
    "kor": "ko",
}  # fmt: skip

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


def base_language(code: str) -> str:
    """Returns the language of a code that may have a region or a script: `zh` for zh-CN, zh_TW and zho_Hans."""
    base = re.split("[-_]", code.lower())[0]
    return _TWO_LETTERS.get(base, base)


def look_swapped(source: Iterable[str], target: Iterable[str], source_lang: str, target_lang: str) -> bool:
    """Returns whether each text has more words of the other language than of its own."""
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


# Typographic quotation marks, apostrophes, dashes and dots. The detokeniser has no rules for most of them, because
# normalisation replaces them.
_TYPOGRAPHIC = re.compile("[‘’‚‛“”„‟‹›«»´–—…]")


class Moses:
    """The Moses scripts for one language. If the scripts have no rules for a language, they use the English ones.

    Args:
        normalize: whether `tokenize` normalises punctuation. Otherwise, words that touch typographic punctuation are
            not split, because the detokeniser could not put them together again.
        escapes: whether `tokenize` writes `&` as `&amp;` and the like, and splits at hyphens, as for fairseq's models.
    """

    def __init__(self, lang: str, normalize: bool = True, *, escapes: bool = False) -> None:
        # Imported here, because its tables take 0.2 s to load, and many models need none.
        from sacremoses import MosesDetokenizer, MosesPunctNormalizer, MosesTokenizer

        self._escapes = escapes
        self._normalize = normalize
        self._tokenizer = MosesTokenizer(lang)
        self._detokenizer = MosesDetokenizer(lang)
        # MosesPunctNormalizer looks up every pattern again for every line, and is half as fast as compiled patterns.
        rules = MosesPunctNormalizer(lang).substitutions
        self._normalisation = [(re.compile(pattern), replacement) for pattern, replacement in rules]

    def normalize(self, line: str) -> str:
        """Returns the line with quotes, dashes and spaces replaced by ASCII, like normalize-punctuation.perl."""
        for pattern, replacement in self._normalisation:
            line = pattern.sub(replacement, line)
        return line.strip()

    def tokenize(self, line: str) -> str:
        """Returns the tokens of the line, separated by one space."""
        if self._normalize:
            return self._tokens(self.normalize(line))
        groups = groupby(line.split(), key=lambda word: bool(_TYPOGRAPHIC.search(word)))
        texts = [(typographic, " ".join(words)) for typographic, words in groups]
        return " ".join(filter(None, (text if typographic else self._tokens(text) for typographic, text in texts)))

    def _tokens(self, text: str) -> str:
        return " ".join(self._tokenizer.tokenize(text, aggressive_dash_splits=self._escapes, escape=self._escapes))

    def detokenize(self, line: str) -> str:
        """Returns the line before `tokenize`, except for normalised punctuation and a few ambiguous quotes."""
        return str(self._detokenizer.detokenize(line.split(), unescape=self._escapes))
