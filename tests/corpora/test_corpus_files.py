"""Corpus files of all kinds: which pairs are read, what is left out and why, and how bad files are refused."""

import bz2
import gzip
import json
import lzma
import sys
import tracemalloc
from collections import Counter
from itertools import islice
from pathlib import Path
from zipfile import ZipFile

import polib
import pytest
from commands import run, write

from nmt.config import CorpusConfig
from nmt.corpora.reading import corpus_prefix, read_pairs
from nmt.errors import NmtError

Pairs = list[tuple[str, str]]


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache"


def read(path: Path, source: str = "en", target: str = "de", **options: object) -> tuple[Pairs, dict[str, int]]:
    config, left_out = CorpusConfig(**options), Counter[str]()  # type: ignore[arg-type]
    return [pair for _, pair in read_pairs(str(path), [(source, target)], config, left_out)], dict(+left_out)


def unit(*texts: tuple[str, str]) -> str:
    variants = "".join(f'<tuv xml:lang="{code}"><seg>{text}</seg></tuv>' for code, text in texts)
    return f"<tu><note>n</note>{variants}</tu>\n"


def tmx(*units: str, head: str = '<?xml version="1.0"?>', version: str = "1.4") -> bytes:
    header = '<header srclang="en" datatype="xml"><prop type="x">y</prop></header>'
    return f'{head}<tmx version="{version}">{header}<body>\n{"".join(units)}</body></tmx>'.encode()


HELLO = unit(("EN-gb", "Hello"), ("de_AT", "Hallo"))


@pytest.mark.parametrize("codes, direction, chosen", [
    (["en-US", "de"], ("en", "de"), [0, 1]),
    (["DE-CH", "EN"], ("en", "de"), [1, 0]),
    (["en-US", "en-GB", "de"], ("en-GB", "de"), [1, 2]),
    (["en-US", "en-GB", "de"], ("en", "de"), [0, 2]),
    (["en-US", "en", "de"], ("en", "de"), [1, 2]),
    (["pt-BR", "pt-PT"], ("pt", "pt-BR"), [1, 0]),
    (["zh-TW", "zh-CN", "en"], ("zh-Hant", "en"), [0, 2]),
    (["eng", "deu"], ("en", "de"), [0, 1]),
    (["GER", "ENG"], ("en", "de"), [1, 0]),
])  # fmt: skip
def test_variants_of_languages_are_found_by_their_codes(
    tmp_path: Path, codes: list[str], direction: tuple[str, str], chosen: list[int]
) -> None:
    data = tmx(unit(*[(code, f"text {index}") for index, code in enumerate(codes)]))
    pairs, left_out = read(write(tmp_path / "m.tmx", data), *direction)
    assert pairs == [tuple(f"text {index}" for index in chosen)]
    assert left_out == ({"in other variants of a language": 1} if len(codes) > 2 else {})


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-be", "utf-16-le", "iso-8859-1"])
def test_tmx_in_every_encoding(tmp_path: Path, encoding: str) -> None:
    declared = {"utf-8-sig": "utf-8", "utf-16-be": "utf-16", "utf-16-le": "utf-16"}.get(encoding, encoding)
    head = f'<?xml version="1.0" encoding="{declared}"?>\r\n<!DOCTYPE tmx SYSTEM "http://localhost:9/tmx14.dtd">\r\n'
    data = tmx(unit(("en", "a &lt; &#228;"), ("de", "b\u00e4")) * 2000, head=head).decode().encode(encoding)
    assert read(write(tmp_path / "m.tmx", data)) == ([("a < ä", "bä")] * 2000, {})


def test_a_declaration_of_utf_16_in_utf_8_is_wrong(tmp_path: Path) -> None:
    data = tmx(HELLO, head='<?xml version="1.0" encoding="UTF-16"?>')
    assert read(write(tmp_path / "m.tmx", data))[0] == [("Hello", "Hallo")]


def test_a_file_of_several_files_has_the_languages_of_each(tmp_path: Path) -> None:
    path = write(
        tmp_path / "a.xlf", XLIFF.replace("</xliff>", XLIFF.partition("\n")[2]).replace("de-DE", "fr", 1).encode()
    )
    assert [len(read(path, "en", target)[0]) for target in ("de", "fr")] == [3, 3]


def test_old_tmx_and_line_breaks_in_segments(tmp_path: Path) -> None:
    data = tmx(unit(("en", "a\n\t  b\r\nc"), ("de", " \nd "))).replace(b"xml:lang", b"lang")
    assert read(write(tmp_path / "m.tmx", data)) == ([("a b c", "d")], {})


def test_inline_elements_are_dropped_or_kept(tmp_path: Path) -> None:
    english = '<bpt i="1">&lt;b></bpt>Big <hi>red</hi><ept i="1">&lt;/b></ept> <ph>{0}<sub>!</sub></ph>one'
    german = 'Groß<ph type="lb">&#10;</ph>e'
    path = write(tmp_path / "m.tmx", tmx(unit(("en", english), ("de", german))))
    assert read(path)[0] == [("Big red one", "Groß e")]
    assert read(path, inline="keep")[0] == [("<b>Big red</b> {0}!one", "Groß e")]


@pytest.mark.parametrize("code", [
    "<ph>&lt;br/></ph>", "<ph>&lt;BR clear='all' /></ph>", "<it pos='end'>&lt;/p></it>", "<ph>&lt;/li>&lt;li></ph>",
    "<ph>\\n</ph>", "<ph>&#9;</ph>", "<bpt i='1'>&lt;td></bpt>", "<ph type='lb'/>",
])  # fmt: skip
def test_a_code_that_separates_words_is_a_space(tmp_path: Path, code: str) -> None:
    elements = ("<ph>&lt;b></ph>", "<hi>\n</hi>", "<ph>&lt;broken></ph>", "<ph>&lt;img alt='br'></ph>")
    units = (unit(("en", f"A dog{each}runs"), ("de", "x")) for each in (code, *elements))
    pairs = read(write(tmp_path / "m.tmx", tmx(*units)))[0]
    assert [english for english, _ in pairs] == ["A dog runs", "A dogruns", "A dog runs", "A dogruns", "A dogruns"]


@pytest.mark.parametrize("bad", ["&#x1F;", "&#31;", "\x1f", "\ufffe", "&#xD800;", "&#xFFFF;", "&#x110000;"])
def test_a_forbidden_character_costs_its_unit(tmp_path: Path, bad: str) -> None:
    # Wherever a block of the file ends.
    units = (unit(("en", "x" * n), ("de", f"a{bad * 5000}b" if n % 2 else "&#228;" * 5000)) for n in range(1, 9))
    pairs, left_out = read(write(tmp_path / "m.tmx", tmx(*units)))
    assert pairs == [("x" * n, "ä" * 5000) for n in (2, 4, 6, 8)]
    assert left_out == {"with characters or entities that XML does not have": 4}


def test_an_entity_of_a_dtd_costs_its_unit(tmp_path: Path) -> None:
    head = '<!DOCTYPE tmx SYSTEM "tmx14.dtd">'
    path = write(tmp_path / "m.tmx", tmx(HELLO, unit(("en", "a&nbsp;b"), ("de", "c")), head=head))
    assert read(path) == ([("Hello", "Hallo")], {"with characters or entities that XML does not have": 1})


BILLION = '<!DOCTYPE tmx [<!ENTITY a "lol"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;&a;&a;">]>'
FILE = '<!DOCTYPE tmx [<!ENTITY secret SYSTEM "file:///etc/passwd">]>'
PARAMETER = '<!DOCTYPE tmx [<!ENTITY % all SYSTEM "http://localhost:9/x.dtd"> %all;]>'


@pytest.mark.parametrize("data, message", [
    (tmx(unit(("en", "&b;"), ("de", "x")), head=BILLION), "line 1: the entity 'a' is declared"),
    (tmx(unit(("en", "&secret;"), ("de", "x")), head=FILE), "line 1: the entity 'secret' is declared"),
    (tmx(HELLO, head=PARAMETER), "line 1: the entity 'all' is declared"),
    (b"<a>" * 100_000, "elements are nested in more than 250 levels"),
    (tmx(unit(("en", "<hi>" * 100_000), ("de", "x"))), "line 2: elements are nested in more than 250 levels"),
    (tmx(HELLO, HELLO)[:-5], "line 4: this is not well-formed XML"),
    (tmx(unit(("en", "&nbsp;"), ("de", "x"))), "line 2: this is not well-formed XML .undefined entity."),
    (tmx(HELLO, unit(("en", "\u00e4"), ("de", "x"))).decode().encode("latin-1"), "line 3: the byte 0xe4 is not utf-8"),
    (b'<?xml version="1.0" encoding="klingon"?><tmx/>', "unknown encoding: klingon"),
    (b'<?xml version="1.0" encoding="hex"?><tmx/>', "'hex' is not a text encoding"),
    (b'<?xml version="1.0" encoding="undefined"?><tmx/>', "undefined encoding.*; convert the file to UTF-8"),
    (b"", "line 1: this is not well-formed XML"),
    (tmx(), "has no pairs of en and de; check the file"),
    (tmx(unit(("fr", "Bonjour"), ("de", "Hallo"))), r"no pairs of en and de .left out: 1 only in fr and de.; check"),
])  # fmt: skip
def test_bad_tmx_is_refused_in_one_sentence(tmp_path: Path, data: bytes, message: str, cache: Path) -> None:
    path = write(tmp_path / "m.tmx", data)
    with pytest.raises(NmtError, match=message) as refused:
        corpus_prefix(str(path), [("en", "de")], CorpusConfig())
    assert str(path) in str(refused.value) and "\n" not in str(refused.value)
    assert not list(cache.rglob("*.en"))  # nothing half-written


XLIFF = """<xliff xmlns="urn:oasis:names:tc:xliff:document:1.2"
xmlns:m="http://www.memsource.com/mxlf/2.0" version="1.2">
<file source-language="en-US" target-language="de-DE" original="x"><header><note>n</note></header><body><group>
<trans-unit id="1" approved="yes"><source>One <g id="1">red</g><x id="2"/></source><target state="final">Eins</target>
<alt-trans><source>No</source><target>Nein</target></alt-trans></trans-unit>
<trans-unit id="2"><source>Two</source><target>Zwei</target></trans-unit>
<trans-unit id="3"><source>Three</source><target state="needs-translation">Drei</target></trans-unit>
<trans-unit id="4" approved="no"><source>Four</source><target>Vier</target></trans-unit>
<trans-unit id="5"><source>Five</source><target/></trans-unit><trans-unit id="6"><source>Six</source></trans-unit>
<trans-unit id="7" m:confirmed="0"><source>Seven</source><target>Sieben</target></trans-unit>
<trans-unit id="8" m:confirmed="2"><source>Eight</source><target>Acht</target></trans-unit>
</group></body></file></xliff>"""
SDLXLIFF = """<xliff xmlns:sdl="http://sdl.com/FileTypes/SdlXliff/1.0" version="1.2"
xmlns="urn:oasis:names:tc:xliff:document:1.2"><file source-language="en-US" target-language="de-DE"><body>
<trans-unit id="a" translate="no"><source>meta</source><target>meta</target></trans-unit>
<trans-unit id="b"><source>One. Two. Three.</source><seg-source><g id="1"><mrk mtype="seg" mid="1">One.</mrk> <mrk
mtype="seg" mid="2">Two.</mrk></g> <mrk mtype="seg" mid="3">Three.</mrk></seg-source><target><g id="1"><mrk mtype="seg"
mid="1">Eins.</mrk> <mrk mtype="seg" mid="2">Zwei.</mrk></g> <mrk mtype="seg" mid="3">Drei.</mrk></target><sdl:seg-defs>
<sdl:seg id="1" conf="ApprovedTranslation"/><sdl:seg id="2" conf="Draft"/><sdl:seg id="3" conf="Translated"/>
</sdl:seg-defs></trans-unit></body></file></xliff>"""
XLIFF_2 = """<xliff xmlns="urn:oasis:names:tc:xliff:document:2.0" version="2.0" srcLang="en" trgLang="de"><file id="f">
<unit id="1"><segment state="final"><source>One <ph id="1"/>.</source><target>Eins <ph id="1"/>.</target></segment>
<ignorable><source> </source></ignorable><segment state="initial"><source>Two</source><target>Zwei</target></segment>
<segment><source>Three</source><target>Drei</target></segment></unit></file></xliff>"""


def test_a_group_of_xliff_says_whether_its_units_are_translated(tmp_path: Path) -> None:
    data = XLIFF.replace("<group>", '<group translate="no"><group/>').replace('<trans-unit id="2"', r"\g<0>")
    data = data.replace(r"\g<0>", '</group><group><trans-unit id="2"').replace('id="8"', 'id="8" translate="no"')
    pairs, left_out = read(write(tmp_path / "a.xlf", data.encode()))
    assert (pairs, left_out["not translated or not approved"]) == ([("Two", "Zwei")], 5)


@pytest.mark.parametrize("name, data, pairs, unfinished", [
    ("a.xlf", XLIFF, [("One red", "Eins"), ("Two", "Zwei"), ("Eight", "Acht")], 3),
    ("a.xliff", XLIFF.replace("<", "<n0:").replace("<n0:/", "</n0:").replace("xmlns=", "xmlns:n0="),
     [("One red", "Eins"), ("Two", "Zwei"), ("Eight", "Acht")], 3),
    ("a.sdlxliff", SDLXLIFF, [("One.", "Eins."), ("Three.", "Drei.")], 2),
    ("a.xlf", XLIFF_2, [("One .", "Eins ."), ("Three", "Drei")], 1),
])  # fmt: skip
def test_finished_units_of_xliff_are_read(tmp_path: Path, name: str, data: str, pairs: Pairs, unfinished: int) -> None:
    units, left_out = read(write(tmp_path / name, data.encode()))
    assert (units, left_out["not translated or not approved"]) == (pairs, unfinished)
    assert read(tmp_path / name, "de", "en")[0] == [pair[::-1] for pair in pairs]


PO = r"""msgid ""
msgstr "Language: de\nContent-Type: text/plain; charset=UTF-8\nPlural-Forms: nplurals=2; plural=n != 1;\n"

msgid "Open \"%s\""
msgstr ""
"„%s“ "
"öffnen"

#, fuzzy
msgid "Close"
msgstr "Offen"

msgid "New"
msgstr ""

msgctxt "menu"
msgid "one file"
msgid_plural "%d files"
msgstr[0] "eine Datei"
msgstr[1] "%d Dateien"

#~ msgid "Old"
#~ msgstr "Alt"
"""


def test_finished_messages_of_po_are_read(tmp_path: Path) -> None:
    path = write(tmp_path / "de.po", PO.encode())
    expected = [('Open "%s"', "„%s“ öffnen"), ("one file", "eine Datei"), ("%d files", "%d Dateien")]
    assert read(path) == (expected, {"not translated, or fuzzy": 2})
    entries = [entry for entry in polib.pofile(str(path)) if entry.translated()]
    assert [(entry.msgid, entry.msgstr) for entry in entries if entry.msgstr] == expected[:1]
    with pytest.raises(NmtError, match=r"has no pairs of en and fr .left out: .*only in de"):
        corpus_prefix(str(path), [("en", "fr")], CorpusConfig())


TABLE = [('A "quoted" word', "Wort; und, so"), ("two", "zwei")]


@pytest.mark.parametrize("name, data, options, expected", [
    ("t.tsv", '"A\tb"\r\nc\t"d\n', {}, [('"A', 'b"'), ("c", '"d')]),
    ("t.txt", "\ufeffA\tb\n", {}, [("A", "b")]),
    ("t.tsv", "de\ten\nb\tA\n", {}, [("A", "b")]),
    ("t.tsv", "x\tb\tA\n", {"columns": "3,2"}, [("A", "b")]),
    ("t.tsv", "x\tde-DE\tEnglish\n1\tb\tA\n", {}, [("A", "b")]),
    ("t.csv", 'source,target\n"A, ""b""","x\ny"\n', {}, [('A, "b"', "x y")]),
    ("t.csv", "Hi, you; a;Hallo, du\nA, B;A\nA;B\n", {"columns": "1,2"}, [("Hi, you", "a"), ("A, B", "A"), ("A", "B")]),
    ("t.csv", "German;English\r\nb;A\r\n", {}, [("A", "b")]),
    ("t.csv", "A\tb\n", {}, [("A", "b")]),
    ("t.csv", "sep=;\r\nGerman;English\r\nb, c;A\r\n", {}, [("A", "b, c")]),
    ("t.jsonl", '{"translation": {"de": "b", "en": "A"}, "id": 1}\n\n', {}, [("A", "b")]),
    ("t.json", '{"eng_Latn": "A", "deu_Latn": "b", "id": "x"}', {}, [("A", "b")]),
    ("t.jsonl", '{"text": "A", "meaning": "b", "id": "x"}', {"columns": "text,meaning"}, [("A", "b")]),
    ("t.jsonl", '{"source": "A", "target": "b", "id": "x"}', {}, [("A", "b")]),
])  # fmt: skip
def test_tables_and_json_lines(tmp_path: Path, name: str, data: str, options: dict[str, str], expected: Pairs) -> None:
    assert read(write(tmp_path / name, data.encode()), **options)[0] == expected


# The columns of a table have the target first, whatever they are called.
NAMED = [
    ("ja", "Japanese (Japan),en"), ("ja", "日本語,英語"), ("ja", "target_text,source_text"), ("ja", "output,input"),
    ("zh", "Chinese (Simplified),English"), ("ja", "JA,English [en-GB]"), ("ja", "Target (Japanese),Source (English)"),
    ("ja", "jaText,enText"), ("ja", "translation,original"), ("ja", "translation,text"), ("ja", "Japanese,what we say"),
    ("fr", "Français,Englisch"), ("zh-TW", "Traditional Chinese,English"), ("zh", "中文（简体）,英文"),
    ("hi", "हिन्दी,अंग्रेज़ी"), ("uk", "Translation: Ukrainian,Source"), ("pt", "Portuguese (Brazil),English (US)"),
    ("nb", "norwegian bokmål,ENGLISH"), ("ger", "Deutsch,eng_Latn"), ("tyv", "tyv_Cyrl,x"), ("ja", "tgt,src text"),
    ("ja", "#ja,en"), ("ja", "ja,en,en_context"), ("ja", "ja,en,,"), ("en-GB", "en-GB,en-US"),
    ("pt-BR", "pt-BR,palavras"), ("zh", "中文译文,英文原文"), ("zh", "汉语,英语"), ("zh", "译文,原文"),
    ("th", "ภาษาไทย,ภาษาอังกฤษ"), ("ru", "русский язык,английский язык"), ("de", "Zieltext,Ausgangstext"),
    ("de", "de - German,en - English"), ("de", "German/Deutsch,English/Englisch"), ("de", "<de>,*en*"),
    ("de", "translated_text,original_text"), ("zh", "zh-Hans-CN,en-US"), ("zh", "zh_CN.UTF-8,en_US"),
    ("ja", "日本語訳,原文"), ("de", "ref,src,mt"), ("de", "post-edit,source,translation"),
    ("de", "translation,source,notes"),
    ("de", "German,English,source"), ("tyv", "tyv_sentence,english,eng_tokens"), ("tyv", "word (tyv),en text"),
    ("id", "indonesian,english,id"), ("id", "text_id,english,id"), ("id", "id,en"), ("is", "is,en,is_valid"),
    ("nb", "Norsk bokmål,English,No"), ("no", "Norwegian,English,No."),
]  # fmt: skip


@pytest.mark.parametrize("language, header", NAMED)
def test_names_of_columns_decide(tmp_path: Path, language: str, header: str) -> None:
    source = {"en-GB": "en-US", "pt-BR": "pt"}.get(language, "en")
    for name, separator in (("t.csv", ","), ("t.tsv", "\t")):
        row = ["b", "A", *["x"] * (header.count(",") - 1)]
        lines = (header.replace(",", separator), separator.join(row))
        path = write(tmp_path / name, "".join(f"{line}\n" for line in lines).encode())
        assert read(path, source, language)[0] == [("A", "b")]


@pytest.mark.parametrize("languages, word", [(("en", "hi"), "Hi"), (("en", "he"), "He"), (("no", "en"), "No")])
def test_a_short_word_of_the_first_pair_is_no_name_of_a_language(
    tmp_path: Path, languages: tuple[str, str], word: str
) -> None:
    path = write(tmp_path / "t.tsv", f"{word}\tनमस्ते\nA\tb\n".encode())
    assert read(path, *languages)[0] == [(word, "नमस्ते"), ("A", "b")]


@pytest.mark.parametrize("before", ["\n", "# from the dictionary\n", " \n\n# English, exported 2024\n\n"])
def test_a_header_may_follow_blank_lines_and_comments(tmp_path: Path, before: str) -> None:
    path = write(tmp_path / "t.csv", f"{before}German,English\nb,A\n".encode())
    assert read(path) == ([("A", "b")], {"blank or a comment": before.count("\n")})
    path = write(tmp_path / "t.tsv", f"{before}A\tb\n".encode())
    assert read(path) == ([("A", "b")], {"blank or a comment": before.count("\n")})


@pytest.mark.parametrize("title", ["Birds", "Birds;", "// exported;2024", "German birds;", ";;\nBirds;and more"])
def test_a_header_may_follow_a_title(tmp_path: Path, title: str) -> None:
    path = write(tmp_path / "t.csv", f"{title}\nGerman;English\nb;A\n".encode())
    pairs, left_out = read(path)
    assert pairs == [("A", "b")] and left_out.pop("before the names of the columns") == 1
    assert left_out == ({"blank or a comment": 1} if "\n" in title else {})


@pytest.mark.parametrize("name, header", [("t.csv", "en,de\n"), ("t.csv", ""), ("t.tsv", "en\tde\n"), ("t.tsv", "")])
def test_a_row_with_more_cells_than_others_is_left_out(tmp_path: Path, name: str, header: str) -> None:
    lines = ["A,b", "Hello, dear world,Hallo liebe Welt", "C,d,", "E,f"]
    text = header + "".join(f"{line}\n".replace(",", "\t") if name == "t.tsv" else f"{line}\n" for line in lines)
    assert read(write(tmp_path / name, text.encode())) == (
        [("A", "b"), ("C", "d"), ("E", "f")],
        {"with more cells than others": 1},
    )


def test_a_table_may_begin_with_many_comments(tmp_path: Path) -> None:
    path = write(tmp_path / "t.tsv", b"# a comment\n" * 30 + b"A\tb\n")
    pairs, left_out = read(path)
    assert ("A", "b") in pairs and left_out["blank or a comment"] >= 20


def test_a_first_row_that_may_be_text_is_named(tmp_path: Path) -> None:
    path = write(tmp_path / "t.tsv", b"ita_Latn\tesso\nUn cane corre\tA dog runs there\n")
    done = run("clean", "--source-lang=en", "--target-lang=it", f"--train={path}", f"--dest={tmp_path / 'clean'}")
    assert "line 1 is taken for the names of the columns: ita_Latn, esso" in " ".join(done.stderr.split())


@pytest.mark.parametrize("name, text, pairs", [
    # Without names, of which "de" is the first word of a dictionary, the program asks for the columns.
    ("columns.csv", "en,de\nHallo mein Freund,Hello my friend\n", [("Hello my friend", "Hallo mein Freund")]),
    ("decimals.csv", "Haus, das;house\nHund, der;dog\n", [("Haus, das", "house"), ("Hund, der", "dog")]),
    ("strings.csv", "Save,Speichern\nOpen,Öffnen\nEnglish,Deutsch\n",
     [("Save", "Speichern"), ("Open", "Öffnen"), ("English", "Deutsch")]),
    ("posts.tsv", "#MeToo is\t#MeToo ist\nYes\tJa\n", [("#MeToo is", "#MeToo ist"), ("Yes", "Ja")]),
    ("spaces.csv", 'en, de\n"Yes, I know.", "Ja, ich weiß."\n', [("Yes, I know.", "Ja, ich weiß.")]),
])  # fmt: skip
def test_tables_of_strangers(tmp_path: Path, name: str, text: str, pairs: list[tuple[str, str]]) -> None:
    path = write(tmp_path / name, text.encode())
    options = {"columns": "2,1"} if name == "columns.csv" else {}
    assert read(path, **options) == (pairs, {})


@pytest.mark.parametrize("name, text", [
    ("t.csv", "source_lang,target_lang,source,target\nen,de,A,b\nde,en,d,C\nen,fr,E,f\n"),
    ("t.csv", "source,target,source_lang,target_lang\nA,b,en,de\nC,d\nE,f,en,fr\n"),  # a row without its languages
    ("t.csv", "lp,src,mt,ref\nen-de,A,x,b\nde-en,d,x,C\nen-fr,E,x,f\n"),
    ("t.jsonl", '{"source_language": "en", "source": "A", "target_language": "de", "target": "b"}\n'
     '{"source_language": "de", "source": "d", "target_language": "en", "target": "C"}\n'
     '{"source_language": "en", "source": "E", "target_language": "fr", "target": "f"}\n'),
])  # fmt: skip
def test_columns_may_say_the_languages_of_each_row(tmp_path: Path, name: str, text: str) -> None:
    assert read(write(tmp_path / name, text.encode())) == ([("A", "b"), ("C", "d")], {"only in en and fr": 1})


def test_joined_tables_repeat_their_header(tmp_path: Path) -> None:
    path = write(tmp_path / "t.tsv", b"de\ten\nb\tA\nde\ten\nd\tC\n")
    assert read(path)[0] == [("A", "b"), ("C", "d")]


@pytest.mark.parametrize("header", [
    "col1,col2", "0,1", ",en", "id,en", "lang,text", "English,French", "fr,es", "English,English (US)",
    "German,Deutsch", "source,Quelle", "id,words,en", "title_de,title_en,text_de,text_en", "Unnamed: 0,text",
    "source_lang,target_lang", "category,english,lummi,notes,source", "text,source", "lummi,english,source",
    "english,eng_tokens", "source,target,English", "no,nb,no", "English,Englisch", "src_1,src_2,target",
    "en,uz_south,uz_north_new,de_1,de_2_b", "de,von",
])  # fmt: skip
def test_a_header_that_does_not_say_the_sides_is_refused(tmp_path: Path, header: str) -> None:
    path = write(tmp_path / "t.csv", f"{header}\n{','.join('Abcd'[: header.count(',') + 1])}\n".encode())
    with pytest.raises(NmtError, match=r"t\.csv, line 1 has the columns .* which do not say what is the source and"):
        read(path)
    assert read(path, columns="2,1")[0][-1] == ("b", "A")


@pytest.mark.parametrize("first", [
    "the source\tdie Quelle", "German is hard\tDeutsch ist schwer", "1\t1", "No\tNein", "name\tName", "x_1\tx_1",
    "What type?\tWelche Art?",
])  # fmt: skip
def test_a_first_line_of_text_is_a_pair(tmp_path: Path, first: str) -> None:
    path = write(tmp_path / "t.tsv", f"{first}\nA\tb\n".encode())
    assert read(path)[0] == [tuple(first.split("\t")), ("A", "b")]


@pytest.mark.parametrize("record", [
    {"text_ja": "b", "text_en": "A"}, {"output": "b", "input": "A"}, {"id": "1", "translation": "b", "en": "A"},
    {"instruction": "x", "output": "b", "input": "A"}, {"ja_jp_clean": "b", "en_us_clean": "A"},
    {"source_lang": "en", "target_lang": "ja", "target_text": "b", "source_text": "A"}, {"ja": "b", "text": "A"},
    {"text": "A", "translation": "b"}, {"id": "x", "Japanese": "b", "sentence": "A"}, {"original": "b", "en": "A"},
    {"translation": {"Japanese": "b", "English": "A"}}, {"source": "A", "target": "b", "translation": "c"},
    {"en_score": "1", "ja": "b", "en": "A"}, {"targets": "b", "inputs": "A"}, {"orig": "A", "translated_text": "b"},
    {"translation": "x", "src": "A", "ref": "b", "mt": "y"}, {"text_ja": "b", "en": "A", "en_tokens": "x"},
])  # fmt: skip
def test_names_of_fields_decide(tmp_path: Path, record: dict[str, object]) -> None:
    path = write(tmp_path / "t.jsonl", f"{json.dumps(record)}\n\n{json.dumps(record)}".encode())
    assert read(path, "en", "ja") == ([("A", "b")] * 2, {})


def test_a_record_that_lacks_a_field_is_left_out(tmp_path: Path) -> None:
    path = write(tmp_path / "t.jsonl", b'{"id": "1", "en": "A", "de": "b"}\n{"id": "2", "en": "C"}\n')
    assert read(path) == ([("A", "b")], {"without one of the columns": 1})


@pytest.mark.parametrize("record", [
    {"a": "A", "b": "b"}, {"id": "A", "en": "b"}, {"sha1": "A", "en": "b"}, {"a_en": "A", "de": "b", "b_en": "c"},
    {"text": "A", "source": "web"}, {"english": "A", "source": "web", "x": "b"}, {"en": "A", "ref": "b", "note": "c"},
])  # fmt: skip
def test_fields_have_no_positions(tmp_path: Path, record: dict[str, str]) -> None:
    with pytest.raises(NmtError, match=r"t\.jsonl, line 1 has the columns .* which do not say"):
        read(write(tmp_path / "t.jsonl", json.dumps(record).encode()))
    first, second = list(record)[:2]
    assert len(read(tmp_path / "t.jsonl", columns=f"{first}, {second}")[0]) == 1


@pytest.mark.parametrize("indent", [None, 2, "lines"])
@pytest.mark.parametrize("records", [
    [{"en": "A]", "de": "b,"}, {"de": "d {", "en": "C"}],
    [{"translation": {"en": "A]", "de": "b,"}}, {"id": 2, "translation": {"en": "C", "de": "d {"}}],
    [{"target": "b,", "source": "A]", "meta": {"x": [1, {}]}}, {"target": "d {", "source": "C"}],
])  # fmt: skip
def test_arrays_of_json(tmp_path: Path, records: list[object], indent: int | str | None) -> None:
    text = json.dumps(records, indent=indent)
    if indent == "lines":
        text = "[" + ",\n".join(map(json.dumps, records)) + "]\n"
    path = write(tmp_path / "t.json", text.encode())
    assert read(path) == ([("A]", "b,"), ("C", "d {")], {})


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-8-sig"])
@pytest.mark.parametrize("name, data", [
    ("t.csv", 'German,English\r\n"Hund, der",dog\r\n'), ("t.csv", 'German;English\r\n"Hund, der";dog'),
    ("t.csv", 'German,English\r"Hund, der",dog\r'), ("t.txt", 'German\tEnglish\r\n"Hund, der"\tdog\r\n'),
    ("t.tsv", "dog\tHund, der"), ("t.jsonl", '{"de": "Hund, der", "en": "dog"}\r\n'),
    ("t.txt", 'English\tGerman\rdog\tHund, der\r'),
])  # fmt: skip
def test_what_spreadsheets_and_old_macs_write(tmp_path: Path, name: str, data: str, encoding: str) -> None:
    path = write(tmp_path / f"{name}.gz", data.encode(encoding))
    german = '"Hund, der"' if name == "t.txt" and '"' in data and encoding == "utf-8-sig" else "Hund, der"
    assert read(path)[0] == [("dog", german)]  # in TSV, quotes are text


def test_damaged_utf_16_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "t.csv", "German,English\nHund,dog\n".encode("utf-16")[:-1])
    with pytest.raises(NmtError, match=r"t\.csv is damaged: it is not UTF-16 at byte 48; save it again"):
        read(path)


@pytest.mark.parametrize("name, data, columns", [
    ("t.tsv", "0.5\tA\tb\n1.1\tc\td\nnan\te\tf\n0.9\tshort\n", "2,3,1"),
    ("t.tsv", "score\ten\tde\n0.5\tA\tb\n1.1\tc\td\nnan\te\tf\n0.9\tshort\n", "2,3,1"),
    ("t.csv", "score,en,de\n0.5,A,b\n1.1,c,d\nnan,e,f\n0.9,short\n", "en,de,score"),
    ("t.jsonl", "".join(json.dumps({"translation": {"en": source, "de": target}, "score": score}) + "\n"
                        for score, source, target in [(0.5, "A", "b"), (1.1, "c", "d"), (float("nan"), "e", "f")])
     + '{"en": "short", "de": null, "score": 2}', "en,de,score"),
])  # fmt: skip
def test_pairs_with_low_scores_are_left_out(tmp_path: Path, name: str, data: str, columns: str) -> None:
    left_out = {"with a score below 0.8": 2, "without one of the columns": 1}
    assert read(write(tmp_path / name, data.encode()), columns=columns, least_score=0.8) == ([("c", "d")], left_out)


def test_scores_stand_beside_translations_of_json(tmp_path: Path) -> None:
    records = [({"en": "A", "de": "b"}, 0.1), ({"en": "c", "de": "d", "fr": None}, 0.9)]
    lines = "".join(json.dumps({"translation": texts, "score": score}) + "\n" for texts, score in records)
    path = write(tmp_path / "t.jsonl", lines.encode())
    assert read(path, least_score=0.5) == ([("c", "d")], {"with a score below 0.5": 1})


def test_units_of_tmx_with_low_scores_are_left_out(tmp_path: Path) -> None:
    unit = '<tu>{}<tuv xml:lang="en"><seg>A</seg></tuv><tuv xml:lang="de"><seg>b</seg></tuv></tu>'
    scores = [f'<prop type="x-note">1</prop><prop type="x-score">{score}</prop>' for score in (0.7, 0.8)]
    whole = "<tmx><body>" + "".join(map(unit.format, scores)) + "</body></tmx>"
    left_out = {"with a score below 0.75": 1}
    assert read(write(tmp_path / "a.tmx", whole.encode()), least_score=0.75) == ([("A", "b")], left_out)
    unscored_text = whole.replace(scores[1], "")
    with pytest.raises(NmtError, match=r"has the score None.*--least-score needs the property x-score of all units"):
        read(write(tmp_path / "b.tmx", unscored_text.encode()), least_score=0.75)


@pytest.mark.parametrize("name, data, columns, message", [
    ("t.tsv", "1\tA\tb\n", None, "line 1 has the columns 1, A, b, .* call them en and de, or give --columns"),
    ("t.csv", "en,de\nA,b\n", "en,fr", "line 1 has no column 'fr', but en, de; check --columns"),
    ("t.tsv", "A\tb\t1\nA\tb\thigh\n", "1,2,3", "line 2 has the score 'high', which is not a number"),
    ("t.csv", 'en,de\nA,b\nc,"d\n' + "x" * 200_000, None, "a cell cannot be read .*check whether its quotes"),
    ("t.csv", 'en,de\nA,b\nc,"d\ne,f\n', None, "line 4: a cell cannot be read .*check whether its quotes are closed"),
    ("t.tsv", "A\t\u00e4\n", None, r"line 1: byte 3 \(0xe4\) is not UTF-8"),
    ("t.jsonl", '{"en": "A", "de": "b"}\n{"en": ', None, "line 2 is not JSON"),
    ("t.jsonl", '{"en": "A", "de": "b"\n{"en": "A", "de": "b"}\n', None, "line 1 is not JSON"),
    ("t.json", '[{"en": "A", "de": "b"},\n{"en": "A" "de": "b"}]', None, "line 2 is not JSON"),
    ("t.json", '[{"en": "A",\n"de":\n"b"},\n\n{"en": "A", "de": "b"\n} {"en": "A" "de": "b"}]', None, "line 6 is not"),
    ("t.json", '[{"en": "A", "de": "b"},\n\n{"en": "A",\n"de":', None, "line 3 is not JSON"),
    ("t.txt", "A\n\nb\n", None, "left out: 3 without one of the columns.; check the separators and --columns"),
    ("t.json", '["A", "b"]', None, "line 1 is not an object; write one object on each line, or an array of objects"),
])  # fmt: skip
def test_bad_tables_are_refused(tmp_path: Path, name: str, data: str, columns: str | None, message: str) -> None:
    encoding = "latin-1" if "\u00e4" in data else "utf-8"
    config = CorpusConfig(columns=columns, least_score=0.5 if columns == "1,2,3" else None)
    with pytest.raises(NmtError, match=message):
        corpus_prefix(str(write(tmp_path / name, data.encode(encoding))), [("en", "de")], config)


def archive(path: Path, **members: str | bytes) -> Path:
    with ZipFile(path, "w") as file:
        for name, data in members.items():
            file.writestr(name, data)
    return path


def test_archives_of_opus(tmp_path: Path) -> None:
    names = {"README": "x\ty\n", "LICENSE": "MIT", "../../etc/C.de-en.ids": "1\n2\n", "info.json": "{}", "a.txt": "x"}
    text = {"../../etc/C.de-en.de": "Hallo\nzwei\n", "../../etc/C.de-en.en": "Hello\ntwo\n"}
    path = archive(tmp_path / "de-en.txt.zip", **names, **text)
    assert read(path) == ([("Hello", "Hallo"), ("two", "zwei")], {})
    files = {"a/b.tmx": tmx(HELLO), "a/c.tmx.gz": gzip.compress(tmx(HELLO)), "README.txt": "x"}
    assert read(archive(tmp_path / "m.zip", **files))[0] == [("Hello", "Hallo")] * 2
    files = {"b.tmx": tmx(HELLO), "__MACOSX/._b.tmx": b"\0\5\x16\7"}  # as the Finder of macOS compresses
    assert read(archive(tmp_path / "finder.zip", **files))[0] == [("Hello", "Hallo")]


def test_what_an_archive_joins_or_lacks_is_said(tmp_path: Path) -> None:
    text = {"train/x.en": "A dog runs there\n", "train/x.de": "Ein Hund rennt\n"}
    text |= {name.replace("train", "test"): line for name, line in text.items()}
    archive(tmp_path / "text.zip", **text)
    archive(tmp_path / "both.zip", **text | {"m.tmx": tmx(HELLO)})
    said = {}
    for name in ("text.zip", "both.zip"):
        clean = ["--train", tmp_path / name, "--dest", tmp_path / f"clean {name}"]
        said[name] = " ".join(run("clean", "--source-lang=en", "--target-lang=de", *clean).stderr.split())
    assert "text.zip: train/x, test/x are read as one corpus; unpack it to use them apart" in said["text.zip"]
    assert "both.zip: train/x, test/x not read, because it has other corpora; unpack it" in said["both.zip"]


def test_files_without_scores_are_refused_if_a_score_is_asked_for(tmp_path: Path) -> None:
    files = [write(tmp_path / "a.po", PO.encode()), write(tmp_path / "a.xlf", XLIFF.encode())]
    files.append(archive(tmp_path / "a.zip", **{"x.en": "a\n", "x.de": "b\n"}))
    for path in files:
        with pytest.raises(NmtError, match="leave out --least-score"):
            read(path, least_score=0.5)


def test_damaged_messages_of_po_are_counted(tmp_path: Path) -> None:
    path = write(tmp_path / "a.po", (PO + '\nmsgid "A dog"\n').encode())
    assert read(path)[1]["damaged"] == 1


def test_damaged_archives_are_refused(tmp_path: Path) -> None:
    whole = archive(tmp_path / "a.zip", **{"x.en": "a\n" * 9999, "x.de": "b\n" * 9999}).read_bytes()
    locked = bytearray(whole)
    for header, flags in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        locked[whole.index(header) + flags] |= 1
    for data, message in (
        (whole[:-100], "is not a complete .zip file"),
        (b"no archive", "is not a complete .zip file"),
        (whole.replace(b"a\na", b"a\nb", 1), "is not a complete .zip file .*CRC"),
        (bytes(locked), "cannot be unpacked here .*encrypted"),
        (archive(tmp_path / "b.zip", **{"x.en": "a\n", "x.de": "b\nc\n"}).read_bytes(), r"x.\* in .* unequal numbers"),
        (archive(tmp_path / "b.zip", README="x").read_bytes(), "has README, which cannot be read"),
    ):
        with pytest.raises(NmtError, match=message):
            corpus_prefix(str(write(tmp_path / "c.zip", data)), [("en", "de")], CorpusConfig())


COMPRESSORS = {".gz": gzip.compress, ".xz": lzma.compress, ".bz2": bz2.compress}
if sys.version_info >= (3, 14):
    from compression import zstd

    COMPRESSORS[".zst"] = zstd.compress
else:
    try:
        from backports import zstd
    except ImportError:
        pass
    else:
        COMPRESSORS[".zst"] = zstd.compress


@pytest.mark.parametrize("suffix", COMPRESSORS)
def test_compressed_files(tmp_path: Path, suffix: str) -> None:
    data = COMPRESSORS[suffix](tmx(HELLO * 3000))
    path = tmp_path / f"m.tmx{suffix}"
    path.write_bytes(data)
    assert read(path) == ([("Hello", "Hallo")] * 3000, {})
    for damaged in (data[:-20], b"no archive"):
        path.write_bytes(damaged)
        with pytest.raises(NmtError, match=r"is not a complete .(gz|xz|bz2|zst) file"):
            read(path)
    for lang, line in (("en", "Hello"), ("de", "Hallo")):
        (tmp_path / f"plain.{lang}{suffix}").write_bytes(COMPRESSORS[suffix](f"{line}\n".encode()))
    assert read(tmp_path / "plain") == ([("Hello", "Hallo")], {})


# Commands

LANGUAGES = ["--source-lang=en", "--target-lang=de"]
FILTERS = ["--min-letters=0", "--min-script=0", "--max-other-language=1", "--encoding=keep", "--workers=1"]


def test_clean_reads_corpus_files_once(tmp_path: Path, cache: Path) -> None:
    path = write(tmp_path / "memory.tmx", tmx(HELLO, unit(("en", "Good bye"), ("de", "Tschüss")), unit(("en", "x"))))
    excluded = write(tmp_path / "test.tsv", b"Good bye\tAuf Wiedersehen\n")
    command = ["clean", *LANGUAGES, *FILTERS, f"--train={path}", f"--exclude={excluded}"]
    done = run(*command, f"--dest={tmp_path / 'out'}")
    assert (tmp_path / "out.en").read_text() == "Hello\n" and (tmp_path / "out.de").read_text() == "Hallo\n"
    assert f"{path}: 2 pairs of en and de (left out: 1 only in en); the text is in {cache}" in done.stderr
    times = {file: file.stat().st_mtime_ns for file in cache.rglob("*.en")}
    second = run(*command, f"--dest={tmp_path / 'again'}")
    assert "2 pairs of en and de (left out: 1 only in en)" in second.stderr
    assert {file: file.stat().st_mtime_ns for file in cache.rglob("*.en")} == times
    write(path, tmx(HELLO))
    assert "1 pair of en and de; the text" in run(*command, f"--dest={tmp_path / 'third'}").stderr


def test_preprocess_reads_the_pairs_of_all_languages(tmp_path: Path) -> None:
    texts = [("en-US", "one two"), ("de", "eins zwei"), ("fr", "un deux")]
    path = write(tmp_path / "memory.tmx", tmx(unit(*texts), unit(*texts[:2]), unit(*texts[1:]), unit(*texts[1:])))
    options = ["--languages=en,de,fr", "--both-ways", "--vocab-size=290", "--workers=1"]
    done = run("preprocess", *options, f"--train={path}", f"--valid={path}", f"--dest={tmp_path / 'data'}")
    assert "en-de 2, de-en 2, en-fr 1, fr-en 1, de-fr 3, fr-de 3" in done.stderr
    two = write(tmp_path / "two.tmx", tmx(unit(*texts[:2])))
    done = run("preprocess", *options, f"--train={two}", f"--valid={two}", f"--dest={tmp_path / 'd'}", code=1)
    assert "no --train has files for fr" in done.stderr
    table = write(tmp_path / "table.tsv", b"one\teins\n")
    done = run("preprocess", *options, f"--train={table}", f"--valid={path}", f"--dest={tmp_path / 'd'}", code=1)
    assert "table.tsv does not say the languages of its texts; name one direction" in done.stderr


@pytest.mark.parametrize("name, options, message", [
    ("a.parquet", [], "a.parquet is not a corpus file that can be read; write it as JSON lines"),
    ("a.xlsx", [], "a.xlsx is not a corpus file that can be read; save it as CSV"),
    ("a.docx", [], "a.docx is not a corpus file that can be read; give a file such as .tmx"),
    ("c.en", [], "c.en is not a corpus file that can be read; give c, the PREFIX of this file and the one in"),
    ("none.tmx", [], "none.tmx cannot be read (No such file or directory); check the path"),
    ("c", ["--columns=1,2"], "--columns is for corpus files, but there is none; leave it out"),
    ("a.tsv", ["--rejected=a.tsv"], "--rejected a.tsv is the same file as the input a.tsv; choose another file"),
    ("a.tsv", ["--columns=1"], "--columns must be two or three different columns, such as 1,2,3, but is '1'"),
    ("a.tsv", ["--columns=1,2", "--least-score=1"], "--least-score needs the column of the score"),
])  # fmt: skip
def test_what_is_no_corpus_file_gets_advice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, options: list[str], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    for file in ("a.parquet", "a.xlsx", "a.docx", "a.tsv", "c.en", "c.de"):
        write(tmp_path / file, b"x\ty\n")
    assert message in run("clean", *LANGUAGES, f"--train={name}", "--dest=out", *options, code=1).stderr


def test_options_of_corpus_files_need_two_languages(tmp_path: Path) -> None:
    write(tmp_path / "c.en", b"x\n")
    options = ["--source-lang=en", f"--train={tmp_path / 'c'}", f"--dest={tmp_path / 'out'}", "--columns=1,2"]
    assert "--columns 1,2 needs --target-lang; add it" in run("clean", *options, code=1).stderr


def test_reading_streams(tmp_path: Path) -> None:
    """Pairs come before the file is read to its end, where it is damaged. Memory does not grow with the file."""
    path = write(tmp_path / "m.tmx", tmx(HELLO * 3000)[:-9])
    pairs = read_pairs(str(path), [("en", "de")], CorpusConfig(), Counter())
    assert next(pairs) == (("en", "de"), ("Hello", "Hallo"))
    tracemalloc.start()
    assert sum(1 for _ in islice(pairs, 2998)) == 2998
    assert tracemalloc.get_traced_memory()[1] < 2_000_000
    tracemalloc.stop()
    with pytest.raises(NmtError, match="not well-formed"):
        list(pairs)
