"""JSON: the strings that programs show are translated, and what programs read stays."""

import json

import pytest
import translations
from hypothesis import given
from hypothesis import strategies as st

from nmt.documents.document import ReadOptions, read_document
from nmt.text.protected import Protected

OPTIONS = ReadOptions("the file", "en", "de")


def translated(
    value: object, options: ReadOptions = OPTIONS, translate: translations.Translate = translations.upper
) -> object:
    return json.loads(translations.translated(read_document(json.dumps(value).encode(), "json", options), translate))


@pytest.mark.parametrize("form, other, expected", [
    ("json", "{n, plural, one {a} other {b}}", "le nom d''{name}, l'ami"), ("json", "a dog", "le nom d'{name}, l'ami"),
    ("arb", "{n, plural, one {a} other {b}}", "le nom d'{name}, l'ami"),
])  # fmt: skip
def test_apostrophes_quote_no_placeholder_of_a_file_of_icu(form: str, other: str, expected: str) -> None:
    data = json.dumps({"@@locale": "en", "a": "the name of {name}, a friend", "b": other})
    document = read_document(data.encode(), form, ReadOptions("x", "en", "fr-CA"))
    output = json.loads(
        translations.translated(
            document,
            lambda unit: (
                "le nom d'{name}, l'ami" if "name" in unit.source else unit.source,
                [(i, i) for i in range(6)],
            ),
        )
    )
    assert (output["a"], output["@@locale"]) == (expected, "fr_CA" if form == "arb" else "en")


@pytest.mark.parametrize("text, expected", [
    ("Use '<b>' for bold", "USE '<b>' FOR BOLD"), ("Type '{' to open", "TYPE '{' TO OPEN"), ("it''s {n}", "IT''S {n}"),
])  # fmt: skip
def test_what_apostrophes_quote_stays_in_a_file_of_icu(text: str, expected: str) -> None:
    output = translated({"a": text, "b": "{n, plural, one {a} other {b}}"})
    assert isinstance(output, dict) and output["a"] == expected


@pytest.mark.parametrize("text, expected", [
    ("Terms &amp; rules &copy; 2024, 1 &lt; 2", "TERMS &amp; RULES &copy; 2024, 1 &lt; 2"),
    ("A <b>bold</b> &nbsp;word & more", "A <b>BOLD</b> &nbsp;WORD & MORE"),
    ("Click <a href=\"x?a=1&b=2\">here", "CLICK <a href=\"x?a=1&b=2\">HERE"),
    ("end</b> and <0>link</0> or <Icon/> x", "END</b> AND <0>LINK</0> OR <Icon/> X"),
    ("1 < 2 and 3 > 2", "1 < 2 AND 3 > 2"),
    ("Hi {{name}}, {count} of %d or %(x)s at https://x.org/a", "HI {{name}}, {count} OF %d OR %(x)s AT https://x.org/a"),
    ("two\n  lines\r\n\tand more", "TWO\n  LINES\r\n\tAND MORE"),
    ("{n, plural, one {# <b>dog</b>} other {dogs &amp; it''s}} a",
     "{n, plural, one {# <b>DOG</b>} other {DOGS &amp; IT''S}} A"),
    ("{n, select, a {<a href=\"{url}\">it''s</a>} other {b}}",
     "{n, select, a {<a href=\"{url}\">IT''S</a>} other {B}}"),
    ("Use <code>a b</code> and <span translate=\"no\">Brand it</span>",
     "USE <code>a b</code> AND <span translate=\"no\">Brand it</span>"),
    ("<kbd>ctrl x</kbd> or <pre>a\n\n  b &amp; c</pre> or", "<kbd>ctrl x</kbd> OR <pre>a\n\n  b &amp; c</pre> OR"),
    ("<script>if (a < b) { x('<b>hi</b>') }</script> hello", "<script>if (a < b) { x('<b>hi</b>') }</script> HELLO"),
    ("<p class='notranslate'>Keep <b>it</b></p><p>or</p>", "<p class='notranslate'>Keep <b>it</b></p><p>OR</p>"),
    ("{n, plural, one {# <code>it''s</code> a} other {b}}", "{n, plural, one {# <code>it''s</code> A} other {B}}"),
    ("an open <code>a b", "AN OPEN <code>A B"),
    ("  {a}  two  spaces ", "  {a}  TWO  SPACES "), ("a || b", "A || B"),
])  # fmt: skip
def test_what_a_program_needs_stays(text: str, expected: str) -> None:
    assert translated({"a": text}) == {"a": expected}
    assert translated({"a": text}, translate=translations.word_by_word(str)) == {"a": text}


def test_plurals_of_messages() -> None:
    message = "{n, plural, one {# dog} other {# dogs}}"
    expected = "{n, plural, one {# DOG} few {# DOGS} many {# DOGS} other {# DOGS}}"
    assert translated([message], OPTIONS._replace(target_lang="uk")) == [expected]


def test_an_argument_in_an_element_stays_whole_where_words_move() -> None:
    message = "You have <b>{n, plural, one {# big dog} other {# big dogs}}</b> in it"
    expected = "have You <b>{n, plural, one {dog big #} other {dogs big #}}</b> it in"
    assert translated([message], translate=translations.backwards) == [expected]


def test_each_plural_form_between_bars_is_a_text() -> None:
    data = json.dumps(["car | cars", "no dogs|one dog|{count} dogs"]).encode()
    document = read_document(data, "json", OPTIONS)
    texts = translations.texts(document)
    assert texts == ["car", "cars", "no dogs", "one dog", '<x0 translate="no">{count}</x0> dogs']
    output = json.loads(translations.translated(document, translations.backwards))
    assert output == ["car | cars", "dogs no|dog one|dogs {count}"]


@pytest.mark.parametrize("text, forms", [
    ("one mouse | {n} mice", 2), ("{0} none|[1,5] some|[6,*] many", 3), ("a dog|%count% animals", 2),
    ("Home | About", 1), ("ls -l | grep ls", 1), ("cat `x` | cat y", 1), ("I like it | you do not", 1), ("a || ab", 1),
    ("car | cars | cars | cars", 1), ("a car, " * 20 + "| a car", 1),
])  # fmt: skip
def test_bars_separate_only_forms_of_plurals(text: str, forms: int) -> None:
    document = read_document(json.dumps({"a": text}).encode(), "json", OPTIONS)
    assert len(document.passages) == forms
    assert translated([text], translate=translations.word_by_word(str)) == [text]


def test_a_translation_has_no_more_arguments_of_printf_than_its_source() -> None:
    for text, expected in {
        "%d dogs": "%d dogs dogs",
        "{n, plural, other {%s a}}": "{n, plural, other {%s a a}}",
    }.items():
        assert translated([text], translate=lambda unit: (f"{unit.source} {unit.source}", [])) == [expected]
    assert translated(["half"], translate=lambda _: ("50 % der", [])) == ["50 % der"]


def test_what_a_user_keeps_stays() -> None:
    assert translated(["a word"], OPTIONS._replace(protected=Protected(["word"]))) == ["A word"]


VALUES = {
    "id": "intro", "type": "text", "title": "a",
    "body": {"type": "a text", "id": 7, "parts": [{"text": "b", "alt": "c"}]},
    "@title": {"description": "d"}, "@@locale": "en", "$schema": "e", "a.b": "f", "type.x": {"on": "g"},
}  # fmt: skip


@pytest.mark.parametrize("keys, kept", [
    (None, ["intro", "text", "d", "en", "e"]),
    ("title,body.*", ["intro", "text", "d", "en", "e", "f", "g"]),
    ("!title, !parts", ["intro", "text", "a", "b", "c", "d", "en", "e"]),
    ("parts.text", ["intro", "text", "a text", "a", "c", "d", "en", "e", "f", "g"]),
    ("body,!alt", ["intro", "text", "a", "c", "d", "en", "e", "f", "g"]),
    ("*", []), ("a.b", ["intro", "text", "a text", "a", "b", "c", "d", "en", "e", "g"]), ("*,!@*", ["d", "en"]),
])  # fmt: skip
def test_keys_choose_values(keys: str | None, kept: list[str]) -> None:
    options = OPTIONS._replace(keys=keys)
    output = json.dumps(translated(VALUES, options))
    lower = {text for text in ("intro", "text", "a text", *"abcdefg", "en") if f': "{text}"' in output}
    assert lower == set(kept)
    document = read_document(json.dumps(VALUES).encode(), "json", options)
    assert document.skipped == ({"with keys that are left out": len(kept)} if kept else {})


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.text(max_size=8)
    | st.sampled_from(["a", "{n, plural, other {a b}}"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
)


@given(value=JSON, indent=st.none() | st.integers(0, 2), ascii=st.booleans())
def test_any_json_comes_back(value: object, indent: int | None, ascii: bool) -> None:
    data = json.dumps(value, indent=indent, ensure_ascii=ascii).encode(errors="replace")
    document = read_document(data, "json", OPTIONS._replace(keys="*"))
    assert translations.translated(document, translations.word_by_word(str)) == data
    assert translations.copied(document) == data


def test_arb_is_json() -> None:
    data = b'{"@@locale": "en", "hi": "Hi {name}", "@hi": {"description": "A greeting"}}'
    expected = data.replace(b"Hi {", b"HI {").replace(b'"en"', b'"de"')
    assert translations.translated(read_document(data, "arb", OPTIONS)) == expected


@pytest.mark.parametrize("translation", ["une remise de 10 %d'office", "yalnızca %50'si oy kullandı", "50 % der Leute"])
def test_percentages_of_translations_stay(translation: str) -> None:
    assert translated({"a": "A discount of 10 % applies."}, translate=lambda _: (translation, [])) == {"a": translation}
