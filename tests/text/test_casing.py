"""Capitals and small letters by the rules of a language, and what --augment and glossaries make of them."""

import dataclasses

import pytest
from checkpoints import TEXT_CONFIG

from nmt.data.augmentation import in_title_case
from nmt.data.raw_pairs import RawPairs, augmented_pairs
from nmt.text.casing import has_case, is_upper, lower, upper
from nmt.text.directions import Direction
from nmt.text.glossary import Glossary

# A text, and in capitals
CAPITALS = [
    ("tr", "Işık istanbul'da", "IŞIK İSTANBUL'DA"),
    ("aze_Latn", "ilk iş", "İLK İŞ"),
    ("crh", "qırım tili", "QIRIM TİLİ"),
    ("en", "istanbul", "ISTANBUL"),
    ("de", "Straße", "STRASSE"),
    ("el", "Πώς είναι η Αθήνα;", "ΠΩΣ ΕΙΝΑΙ Η ΑΘΗΝΑ;"),
    ("ell_Grek", "Μάιος ή ρολόι, άυπνος", "ΜΑΪΟΣ Ή ΡΟΛΟΪ, ΑΫΠΝΟΣ"),
    ("el", "προϋπόθεση, ταΐζω, ΐ", "ΠΡΟΫΠΟΘΕΣΗ, ΤΑΪΖΩ, Ϊ"),
    ("el", "ἄνθρωπος καὶ ᾠδή", "ΑΝΘΡΩΠΟΣ ΚΑΙ ΩΙΔΗ"),
    ("el", "café του Παύλου", "CAFÉ ΤΟΥ ΠΑΥΛΟΥ"),
    ("en", "the ώρα", "THE ΏΡΑ"),
    ("ka", "საქართველოს Wi-Fi", "საქართველოს WI-FI"),
    ("en", "the word თბილისი", "THE WORD თბილისი"),
    ("hy", "և կարևոր", "ԵՎ ԿԱՐԵՎՈՐ"),
    ("hyw", "եւ կարեւոր", "ԵՒ ԿԱՐԵՒՈՐ"),
    ("ga", "i nGaillimh agus sa bhFrainc, i mbaile", "I nGAILLIMH AGUS SA bhFRAINC, I mBAILE"),
    ("gle_Latn", "an t-uisce, a n-athair, in Éirinn, ó hÉirinn", "AN tUISCE, A nATHAIR, IN ÉIRINN, Ó hÉIRINN"),
    ("ga", "bean, hata, nead, gan tús", "BEAN, HATA, NEAD, GAN TÚS"),
    ("nl", "ijs in IJsland", "IJS IN IJSLAND"),
]


@pytest.mark.parametrize("lang, text, capitals", CAPITALS)
def test_capitals(lang: str, text: str, capitals: str) -> None:
    assert upper(text, lang) == capitals
    assert upper(capitals, lang) == capitals


@pytest.mark.parametrize("lang, capitals, text", [
    ("tr", "IŞIK İSTANBUL'DA", "ışık istanbul'da"),
    ("az", "İLK İŞ VƏ QIŞ", "ilk iş və qış"),
    ("en", "ISTANBUL", "istanbul"),
    ("ga", "AN tUISCE, A nATHAIR, I nGAILLIMH", "an t-uisce, a n-athair, i ngaillimh"),
    ("el", "ΟΔΟΣ ΚΑΙ ΜΑΪΟΣ", "οδος και μαϊος"),
    ("ka", "ᲡᲐᲥᲐᲠᲗᲕᲔᲚᲝ", "საქართველო"),
])  # fmt: skip
def test_small_letters(lang: str, capitals: str, text: str) -> None:
    assert lower(capitals, lang) == text


@pytest.mark.parametrize("lang, text, title", [
    ("nl", "het ijs in «ijsland»", "Het IJs In «IJsland»"),
    ("de", "ijs", "Ijs"),
    ("ga", "na nGaillimhe i mbaile na n-athar, ó hÉirinn", "Na nGaillimhe I mBaile Na nAthar, Ó hÉirinn"),
    ("ga", "an t-uisce agus an tsráid", "An tUisce Agus An tSráid"),
    ("ka", "საქართველოს wi-fi", "საქართველოს Wi-fi"),
    ("el", "έλα στην ώρα", "Έλα Στην Ώρα"),
    ("hy", "և կարևոր", "Եվ Կարևոր"),
    ("tr", "istanbul ılık", "İstanbul Ilık"),
])  # fmt: skip
def test_title_case(lang: str, text: str, title: str) -> None:
    assert in_title_case(text, lang) == title


def test_what_is_in_capitals_and_what_has_none() -> None:
    assert is_upper("I nGAILLIMH", "ga") and not is_upper("I nGaillimh", "ga") and not is_upper("I nGAILLIMH", "en")
    assert is_upper("LEI N.º 10, LA 1ª VEZ, XXᵉ SIÈCLE", "es") and not is_upper("La 1ª", "es")
    assert not is_upper("თბილისი", "ka") and is_upper("ᲗᲑᲘᲚᲘᲡᲘ", "ka")
    assert [has_case(text) for text in ("Tbilisi", "თბილისი", "თბილისის wi-fi", "我用 iPhone 看视频和照片", "12")] == [
        True, False, False, False, True,
    ]  # fmt: skip


@pytest.mark.parametrize("langs, pair, expected", [
    (("en", "tur_Latn"), ("it is.", "ılık iş."), {("IT IS.", "ILIK İŞ."), ("It Is.", "Ilık İş.")}),
    (("en", "ka"), ("it is.", "ის აქ არის."), {("IT IS.", "ის აქ არის."), ("It Is.", "ის აქ არის.")}),
    (("ka", "en"), ("ის აქ არის.", "it is here."), set()),
    (("zh", "en"), ("它在这里。", "it is here."), set()),
    (("nl", "ga"), ("ijs.", "a n-athair."), {("IJS.", "A nATHAIR."), ("IJs.", "A nAthair.")}),
])  # fmt: skip
def test_augment_writes_capitals_by_language(
    langs: tuple[str, str], pair: tuple[str, str], expected: set[tuple[str, str]]
) -> None:
    text = dataclasses.replace(TEXT_CONFIG, source_lang=langs[0], target_lang=langs[1])
    chunk = augmented_pairs(RawPairs(*(2000 * [line] for line in (*pair, ""))), 1, text)
    pairs = {*zip(chunk.source, chunk.target, strict=True)}
    assert len(pairs) > 3
    assert {(a, b) for a, b in pairs if any(map(str.isupper, a + b)) and a != b} == expected


@pytest.mark.parametrize("langs, terms, line, forms", [
    (("en", "ka"), {"cat": "კატა"}, "Cat!", ["კატა"]),
    (("en", "nl"), {"ice": "ijs"}, "Ice!", ["ijs", "IJs"]),
    (("de", "tr"), {"mark": "ilik"}, "Mark ist weich.", ["ilik", "İlik"]),
    (("en", "ga"), {"to": "go dtí"}, "To Galway", ["go dtí", "Go dtí"]),
])  # fmt: skip
def test_terms_at_the_beginning_of_a_sentence(
    langs: tuple[str, str], terms: dict[str, str], line: str, forms: list[str]
) -> None:
    glossary = Glossary({term: (form,) for term, form in terms.items()})
    assert [term.forms for term in glossary.occurrences_in(line, Direction(*langs))] == [tuple(forms)]
