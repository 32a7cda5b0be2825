"""Documents in languages with scripts, signs and encodings of their own."""

import json
import re
import unicodedata

import pytest
from checkpoints import chinese_codec
from lxml import etree
from translations import texts, translated

from nmt.documents.document import ReadOptions, read_document
from nmt.text.languages import is_right_to_left, windows_code_page
from nmt.text.marked import MarkedText
from nmt.text.markup_projection import projected
from nmt.text.markup_reading import parse, written
from nmt.text.protected import Protected
from nmt.text.sentences import without_added_stop
from nmt.translate.units import Translation, Unit, UnitMaker

CUES = "1\n00:00:01,000 --> 00:00:02,000\n{}\n\n2\n00:00:02,000 --> 00:00:03,000\n{}\n"


def test_line_breaks_stay_between_sentences_without_spaces() -> None:
    source = "<span>One dog.<br>Two cats.</span>"
    maker = UnitMaker(chinese_codec().config, Protected(), cut="sentence")
    unit = maker.complete(Unit(source, content=parse(source, "html", Protected())))
    words = [(0, 0), (1, 0)]
    translations = [Translation(text, 0.0, [], [], alignment=words) for text in ("一只狗。", "两只猫。")]
    assert unit.translated(translations, "zh") == "<span>一只狗。<br>两只猫。</span>"


@pytest.mark.parametrize("source, translation, alignment, expected", [
    ("<b>Note:</b> a dog and two cats are here.", "注意：一只狗和两只猫在这里。",
     [(i, 0) for i in range(8)], "<b>注意：</b>一只狗和两只猫在这里。"),
    ("See <a>the button</a> now.", "现在请看这个按钮。", [(i, 0) for i in range(4)], None),
    ("点击<a>这个按钮</a>。", "Click this button.", [(0, i) for i in range(3)], None),
    ("<i>Windows</i> 版点击<b>这里下载</b>", "Click here to get the Windows version",
     [(1, 0), (1, 1), (1, 2), (1, 3), (1, 4), (0, 5), (1, 6)],
     "Click here to <b>get the</b> <i>Windows</i> <b>version</b>"),
])  # fmt: skip
def test_elements_keep_a_part_of_text_without_spaces(
    source: str, translation: str, alignment: list[tuple[int, int]], expected: str | None
) -> None:
    (unit,) = (part for part in parse(source, "html", Protected()) if isinstance(part, MarkedText))
    output = written(projected(unit, translation, alignment))
    assert re.sub("<.*?>", "", output) == translation and not re.search(r"<(\w)></\1>", output)
    assert expected in (None, output)


@pytest.mark.parametrize("source", ["Շունը վազում է։", "ውሻው ይሮጣል።", "ခွေးပြေးသည်။", "ឆ្កែរត់។", "ཁྱི་རྒྱུག།", "कुत्ता दौड़ता है।"])
def test_a_sentence_with_a_full_stop_of_its_script_keeps_that_of_its_translation(source: str) -> None:
    assert without_added_stop(source, "The dog runs.", "en") == "The dog runs."


@pytest.mark.parametrize("language, encoding", [
    ("zh-TW", "CP950"), ("zho_Hant", "CP950"), ("yue", "CP950"), ("zh", "GB18030"), ("sr-Latn", "CP1250"),
    ("sr", "CP1251"), ("mn", "CP1251"), ("fr", "CP1252"),
])  # fmt: skip
def test_old_subtitles_have_the_code_page_of_language_and_script(language: str, encoding: str) -> None:
    assert windows_code_page(language) == encoding


@pytest.mark.parametrize("language, expected", [
    ("apc_Arab", True), ("uz-Arab", True), ("he", True), ("prs", True), ("arb_Latn", False), ("ks_Deva", False),
    ("en", False),
])  # fmt: skip
def test_the_script_decides_the_direction(language: str, expected: bool) -> None:
    assert is_right_to_left(language) == expected


@pytest.mark.parametrize("translation", ["ที่นี่ดี", "นะเด็กมา", "នេះល្អណាស់", "ဒီမှာကောင်းတယ်"])
def test_subtitles_are_cut_between_letters_of_scripts_without_spaces(translation: str) -> None:
    document = read_document(CUES.format("It is", "good").encode(), "srt", ReadOptions("x", "en", "th"))
    written = translated(document, lambda _: (translation, [])).decode().strip("\ufeff\n")
    first, second = (cue.split("\n")[2] for cue in written.split("\n\n"))
    assert first + second == translation and first
    assert unicodedata.category(second[0])[0] != "M" and second[0] not in "ะาำ" and first[-1] not in "เแโใไ"


@pytest.mark.parametrize("cues", [("जी।", "चलिए।"), ("Որտե՞ղ է։", "Այստեղ։"), ("كيف؟", "نعم")])
def test_sentences_of_every_script_end_cues(cues: tuple[str, str]) -> None:
    document = read_document(CUES.format(*cues).encode(), "srt", ReadOptions("x", "hi", "en"))
    assert texts(document) == list(cues)


def test_cdata_has_no_references() -> None:
    content = (
        "<?xml version='1.0' encoding='ISO-8859-1'?><xliff version='1.2'>"
        "<file source-language='en' target-language='ru'><body>"
        "<trans-unit id='1'><source><![CDATA[Dog & cat]]></source></trans-unit></body></file></xliff>"
    )
    document = read_document(content.encode("latin-1"), "xlf", ReadOptions("x", "en", "ru"))
    written = translated(document, lambda _: ("Собака & кот", []))
    assert etree.fromstring(written).findtext(".//target") == "Собака & кот"


def test_a_backslash_before_u_is_no_escape() -> None:
    document = read_document(rb'{"path": "C:\\users", "text": "Dog"}', "json", ReadOptions("x", "en", "de"))
    written = translated(document, lambda _: ("Hündin", [])).decode()
    assert "Hündin" in written and json.loads(written)["text"] == "Hündin"


def test_a_message_without_strings_gets_its_translation() -> None:
    document = read_document(b'msgid "Dog"\nmsgstr\n', "po", ReadOptions("x", "en", "de"))
    assert 'msgstr "DOG"' in translated(document).decode()


def test_tokens_of_a_doubtful_sentence_keep_their_identity() -> None:
    source = 'See <a href="x">big dogs</a> here.'
    content = parse(source, "html", Protected())
    maker = UnitMaker(chinese_codec().config, Protected(), cut="sentence")
    unit = maker.complete(Unit(source, content=content))
    links = [(2, 0), (0, 1), (1, 2), (3, 3)]
    translation = Translation("dogs See big here.", 0.0, [], [], alignment=links, confidence=0.1)
    tokens = unit.translated_tokens([translation], "de", 0.4)
    starts = [token for token in tokens if token.kind == "start"]
    assert len(starts) == 2 and starts[0] is starts[1]
