"""Moses tokenisation splits text as it should, can be undone, and accepts any text."""

from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nmt.text.codec import Moses

LANGS = ("en", "de", "fr", "cs", "fi", "zh", "ko", "xx", "")
moses = cache(Moses)


@pytest.mark.parametrize("lang, text, tokens", [
    ("en", "Dr. Lamb doesn't know (yet), does he?", "Dr. Lamb doesn 't know ( yet ) , does he ?"),
    ("en", "AT&T's <b> costs 1,250.50 | [x]", "AT & T 's < b > costs 1,250.50 | [ x ]"),
    ("en", "“Quoted” – it’s …", '" Quoted " - it \'s ...'),
    ("de", "Das ist z.B. die Ost-West-Achse, ca. 3,5 km.", "Das ist z.B. die Ost-West-Achse , ca. 3,5 km ."),
    ("fr", "L'homme n'a qu'un « chien » !", 'L\' homme n\' a qu\' un " chien " !'),
    ("en", "  spread \t out\u2028 text\x1c here ", "spread out text here"),
    ("en", "", ""),
    ("en", " \t\u2028", ""),
])  # fmt: skip
def test_text_is_split_into_the_right_tokens(lang: str, text: str, tokens: str) -> None:
    assert moses(lang).tokenize(text) == tokens


@pytest.mark.parametrize("lang, text", [
    ("en", "The dogs' owner isn't here; she's at the lake, I'd say."),
    ("en", 'He paid $5.99 (20% off) for "two" apples & a pear... Really?!'),
    ("en", "A well-known man in a T-shirt, aged 35, reads no. 7 at 10 a.m. today."),
    ("en", "Signs like 1 < 2 > 0 stay [as they are]."),
    ("de", 'Der „große“ Hund läuft über die Straße; warum?'),
    ("de", 'Sie sagt: "Es kostet 3,50 Euro (ca. 4 Dollar)!", und geht z.B. nach Köln.'),
    ("de", "Ein Mann in weiß-blauem Hemd steht am 3. Mai vor Nr. 12."),
    ("fr", "L'été, aujourd'hui, c'est l'arbre qu'il préfère ; n'est-ce pas ?"),
    ("fr", "Une fille, âgée de 7 ans, joue à la balle (rouge) près d'un lac."),
])  # fmt: skip
def test_ordinary_text_is_restored(lang: str, text: str) -> None:
    with_ascii_quotes = text.replace("„", '"').replace("“", '"')
    assert moses(lang).detokenize(moses(lang).tokenize(text)) == with_ascii_quotes


def test_html_entities_are_ordinary_text() -> None:
    assert moses("en").tokenize("&amp;") == "& amp ;"
    assert moses("en").detokenize("a &amp; b") == "a &amp; b"


@settings(max_examples=60)
@given(lang=st.sampled_from(LANGS), text=st.text(max_size=40))
def test_any_text_can_be_tokenised_and_detokenised(lang: str, text: str) -> None:
    tokens = moses(lang).tokenize(text)
    assert tokens == " ".join(tokens.split())
    assert "\n" not in moses(lang).detokenize(tokens)
    moses(lang).detokenize(text)


@given(st.text("abcä .,;:!?'\"()-&0123%$", max_size=40))
def test_letters_and_digits_survive_tokenisation(text: str) -> None:
    restored = moses("en").detokenize(moses("en").tokenize(text))
    assert [c for c in restored if c.isalnum()] == [c for c in text if c.isalnum()]
