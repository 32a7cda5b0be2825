"""Messages of ICU MessageFormat: the skeleton stays, and the text in and around branches is translated."""

import pytest
import translations
from hypothesis import given
from hypothesis import strategies as st

from nmt.text.icu import parse_icu
from nmt.text.protected import Protected
from nmt.translate.units import Unit

MESSAGES = {
    "{n, plural, one {# dog} other {dogs}} bark": "{n, plural, one {# DOG} other {DOGS}} BARK",
    "{n,plural,=0{none}one{a}other{{g, select, m {b # c} other {d}}}}":
        "{n,plural,=0{NONE}one{A}other{{g, select, m {B # C} other {D}}}}",
    "Hi {name}, {g, select, male {he's} other {they}} own {n, plural, offset:1 =1 {one} other {# {x, number, ::a/b}}}.":
        "HI {name}, {g, select, male {HE'S} other {THEY}} "
        "OWN {n, plural, offset:1 =1 {ONE} other {# {x, number, ::a/b}}}.",
    "{0, selectordinal, one {# st} two {# nd} few {# rd} other {# th}} place":
        "{0, selectordinal, one {# ST} two {# ND} few {# RD} other {# TH}} PLACE",
    "{n, plural,\n  one {{count} post}\n  other {{count} posts}\n}":
        "{n, plural,\n  one {{count} POST}\n  other {{count} POSTS}\n}",
    "It''s '{a b}' {x, plural, other{''c'' '#1' don''t}}": "IT''S '{a b}' {x, plural, other{''C'' '#1' DON''T}}",
    "don't, it''s {x, select, other{}} a": "DON'T, IT''S {x, select, other{}} A",
    "Use {n, plural, ...} and {n, select, a {b}": "USE {n, plural, ...} AND {n, select, a {b}",
    "{{count}} of {n, plural, other {'{'x}}": "{{count}} OF {n, plural, other {'{'X}}",
}  # fmt: skip


def translated(
    text: str, translate: translations.Translate = translations.upper, source: str = "en", target: str = "de"
) -> str:
    message = parse_icu(text, source, target)
    assert message
    return message.written(translations.translated_tokens(Unit(text, content=message.content(Protected())), translate))


@pytest.mark.parametrize("message", MESSAGES)
def test_the_skeleton_stays(message: str) -> None:
    assert translated(message) == MESSAGES[message]
    assert translated(message, translations.word_by_word(str)) == message


@pytest.mark.parametrize(
    "text", ["", "plain", "{name}", "{n, number}", "{a {b", "{n, plural}", "a, plural, {b}", "{{x}} , select,"]
)
def test_other_text_is_no_message(text: str) -> None:
    assert parse_icu(text) is None


def test_plurals_get_the_categories_of_the_target_language() -> None:
    message = "{n, plural, =1 {one} other {# {m, plural, one {dog} other {dogs}}}}"
    inner = "{m, plural, one {DOG} few {DOGS} many {DOGS} other {DOGS}}"
    expected = f"{{n, plural, =1 {{ONE}} few {{# {inner}}} many {{# {inner}}} other {{# {inner}}}}}"
    assert translated(message, target="ru") == expected
    assert translated("{n, plural, other {a}}", source="ja", target="en_GB") == "{n, plural, one {A}other {A}}"
    assert translated("{n, plural, few {a} other {b}}", target="hr") == "{n, plural, few {A} other {B}}"
    assert translated("{n, selectordinal, other {a}}", target="ru") == "{n, selectordinal, other {A}}"


def test_apostrophes_and_braces_of_a_translation_are_quoted() -> None:
    for text, written in {"l'a": "l'a", "l'": "l''", "a {b}": "a '{'b'}'", "'{": "'''{'"}.items():
        output = translated("{n, select, other {word}}", lambda _, t=text: (t, []))
        assert output == f"{{n, select, other {{{written}}}}}"
    assert translated("{n, select, other {it''s}}", lambda _: ("l'a", [])) == "{n, select, other {l''a}}"


@given(
    st.lists(
        st.sampled_from(
            ["{", "}", "'", "''", "#", "a b", " ", "{n, plural, one {a} other {b", "=1", "{x}", ",", "<b>"]
        ),
        max_size=12,
    )
)
def test_any_text_comes_back(parts: list[str]) -> None:
    text = "".join(parts)
    if parse_icu(text) is not None:
        output = translated(text, translations.word_by_word(str))
        assert output.replace(" ", "").replace("'", "") == text.replace(" ", "").replace("'", "")


def test_deep_and_long_messages_take_linear_time() -> None:
    for text in (
        "{n, plural, other {" * 10_000,
        "{n, plural, " * 10_000,
        "{n, select, other {a}} {" * 2_000,
        "'{" * 50_000 + "{n, select,",
    ):
        parse_icu(text)
