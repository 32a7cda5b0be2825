"""The codec turns raw text into ids and back, with Moses tokenisation, and is stored as plain data."""

import dataclasses
from functools import cache

import pytest
from checkpoints import TEXT_CONFIG, change
from conftest import invented_pairs
from hypothesis import given, settings
from hypothesis import strategies as st

from nmt.config import DataConfig
from nmt.data.codec import text_config
from nmt.errors import NmtError
from nmt.text.codec import TextCodec
from nmt.text.moses import WHOLE, Moses
from nmt.text.subword import Subword
from nmt.text.words import Given, is_blank
from nmt.translate.units import Translation, joined

PAIRS = invented_pairs(300)
CONFIG = dataclasses.replace(TEXT_CONFIG, source_tokenizer="moses-en", target_tokenizer="moses-de")


@cache
def models() -> tuple[Subword, Subword]:
    """Returns a model of both languages and one of the target language."""
    lines = [line for pair in PAIRS for line in pair], [target for _, target in PAIRS]
    return Subword.train(lines[0], "bpe", 350), Subword.train(lines[1], "bpe", 330)


def codec(**changes: object) -> TextCodec:
    config = dataclasses.replace(CONFIG, **changes)  # type: ignore[arg-type]
    return TextCodec(config, models()[0], models()[0 if config.joint_vocab else 1])


def data_config(**options: str) -> DataConfig:
    given = {"source_lang": "en", "target_lang": "de"} | options
    return DataConfig(train=("train",), valid="valid", dest="data", **given)  # type: ignore[arg-type]


@pytest.mark.parametrize("changes", [{}, {"target_tokenizer": "none"}, {"joint_vocab": False}, {"lowercase": True}])
def test_decoding_restores_the_encoded_text(changes: dict[str, object]) -> None:
    text = ["Mulo (baki), 'kilo' & ba!", "", "Größe: 3,5 字."]
    expected = [line.lower() for line in text] if "lowercase" in changes else text
    assert codec(**changes).decode_target(codec(**changes).encode_target(text)) == expected


@pytest.mark.parametrize("changes, line, source, target", [
    ({"joint_vocab": False}, "it's", "it 's", "it's"),  # each side has its language and its model
    # The tokeniser would split the stop from "mr.", which is not in its list of English abbreviations.
    ({"lowercase": True}, "Mr. 5.", "mr. 5 .", "mr. 5."),
    ({"normalize_punctuation": "none"}, "Am 3. Mai (heute), „ja“.", "Am 3 . Mai ( heute ) , „ja“.",
     "Am 3. Mai ( heute ) , „ja“."),
])  # fmt: skip
def test_lines_are_tokenised_then_lowercased(changes: dict[str, object], line: str, source: str, target: str) -> None:
    made = codec(**changes)
    assert made.source.decode(made.encode_source([line])) == [source]
    assert made.target.decode(made.encode_target([line])) == [target]


@pytest.mark.parametrize("lowercase, line, prefix, phrases, expected", [
    (False, "Das „ Menü.", "", ["Menü", "fehlt"], "Das „ Menü."),
    (False, "kiosk ki!", "", ["ki !"], "kiosk ki !"),
    (False, "ba 's-dea", "", ["ba's-de"], "ba's-dea"),
    (False, '"Free Hugs" hält, umarmt', "", ["Hugs“ hält,"], '"Free Hugs“ hält, umarmt'),
    (False, "kilo, und", "", [", und "], "kilo, und"),
    (False, "kilo 'und' ki", "ki", ["'\u00a0und\u202f'"], "kilo '\u00a0und\u202f' ki"),
    (False, "kilo", "", ["", " ", "ki\nlo", "k\tilo", " kilo "], "kilo"),
    # A lowercasing model does not know the capitals.
    (True, "partyart und arten art", "", ["Art", "UND"], "partyart UND arten Art"),
    (True, "in der stadt sah ich einen inder", "", ["Inder"], "in der stadt sah ich einen Inder"),
    (True, "artist und art", "", ["Artist", "Art"], "Artist und Art"),
    (True, "und art und ki", "", ["Und", "und Art"], "und Art Und ki"),
    (True, "art und art", "", ["Art", "Art"], "Art und Art"),
    (True, "hund, und", "", [", UND"], "hund, UND"),
    (True, "und-art", "", ["Und", "-Art"], "Und-Art"),
    (True, "dieser mann und die frau", "Die", [], "Dieser mann und die frau"),
    (True, "um ol!", "um ol ", [], "um ol!"),
    (True, "um ol!", "Um  ol", [], "Um  ol!"),
    (True, "mann und die frau", "Die", [], "mann und die frau"),  # the line does not begin so
])  # fmt: skip
def test_phrases_stand_as_given(lowercase: bool, line: str, prefix: str, phrases: list[str], expected: str) -> None:
    made = codec(lowercase=lowercase)
    lang, ids = made.config.target_lang, made.encode_target([prefix, *phrases])
    first, *others = (made.target_phrase(*each, lang) for each in zip([prefix, *phrases], ids, strict=True))
    assert made.target_with(line, Given(first, tuple((phrase,) for phrase in others if phrase)), lang) == expected


@pytest.mark.parametrize("line, alternatives, expected", [
    ("us, united states", ["US", "United States"], "us, United States"),  # the longest one that occurs, and no other
    ("und us", ["United States", "US"], "und US"),
    ("und", ["United States", "US"], "und"),
])  # fmt: skip
def test_one_alternative_stands_as_given(line: str, alternatives: list[str], expected: str) -> None:
    made = codec(lowercase=True)
    lang, ids = made.config.target_lang, made.encode_target(alternatives)
    phrases = filter(None, (made.target_phrase(*each, lang) for each in zip(alternatives, ids, strict=True)))
    assert made.target_with(line, Given(None, (tuple(phrases),)), lang) == expected


@pytest.mark.parametrize("joint", [True, False])
def test_plain_data_restores_the_codec(joint: bool) -> None:
    original = codec(joint_vocab=joint)
    values = original.to_dict()
    assert all(isinstance(value, (str, bool, int, bytes, tuple, type(None))) for value in values.values())
    restored = TextCodec.from_dict(values, "here")
    text = [line for pair in PAIRS[:20] for line in pair]
    assert restored.config == original.config
    assert restored.encode_source(text) == original.encode_source(text)
    assert restored.encode_target(text) == original.encode_target(text)
    assert (restored.source is restored.target) == joint


@pytest.mark.parametrize("name, value, named", [
    ("lowercase", None, "lowercase"),
    ("extra", 1, "extra"),
    ("target_tokenizer", "spacy", "target_tokenizer is 'spacy'"),
    ("source_tokenizer", "moses-../x", "source_tokenizer is 'moses-../x'"),
    ("normalize_punctuation", "target", "punctuation must be one of both, source, none, but is 'target'"),
    ("target_model", b"x", "contradicts"),
    ("joint_vocab", False, "contradicts"),
    ("source_model", b"x", "sentencepiece"),
    ("subword", "word", "subword must be one of .* but is 'word'"),
    ("source_lang", ..., "source_lang"),
])  # fmt: skip
def test_wrong_values_are_refused(name: str, value: object, named: str) -> None:
    values = codec().to_dict()
    change(values, name, value)
    with pytest.raises(NmtError, match=rf"run/1\.safetensors .*{named}"):
        TextCodec.from_dict(values, "run/1.safetensors")


UNSPACED = {
    "zh": ["他说：“你好！”", "\u3000《红楼梦》——第1回，共120回（约73万字）。", "A股上涨3.5%，B 股没有变化……"],
    "ja": ["「今日は、いい天気ですね。」と彼は言った。", "ｶﾀｶﾅと\u3000全角スペース", "パソコンを2台買った！?"],
    "th": ['เขาพูดว่า "สวัสดี" แล้วก็ไป', "ราคา 1,250.50 บาทๆ ฯลฯ"],
}


@pytest.mark.parametrize("subword", ["bpe", "unigram", "wordpiece"])
def test_text_without_spaces_between_words_survives(subword: str) -> None:
    text = [line for lines in UNSPACED.values() for line in lines] + [line for pair in PAIRS for line in pair]
    model = Subword.train(text, subword, 500)
    for lang, lines in UNSPACED.items():
        restored = TextCodec(text_config(data_config(target_lang=lang, subword=subword)), model, model)
        assert restored.decode_target(restored.encode_target(lines)) == lines


@pytest.mark.parametrize("line", ["", " \t", "\u200b", "\ufeff", "\u00a0\u200e\u00ad\u2060 "])
def test_a_line_of_characters_that_cannot_be_seen_is_blank(line: str) -> None:
    for tokenizer in ("none", "moses-en"):
        assert codec(source_tokenizer=tokenizer).encode_source([line]) == [[]]
    assert codec().encode_target([line, f"{line}a{line}"])[0] == []
    assert not is_blank(f"{line}a{line}")


def test_words_of_parts_end_at_ascii_white_space() -> None:
    parts = [Translation(text, 0.0, [], [], alignment=((0, 0),)) for text in ("10\u00a0000 Euro", "mehr")]
    assert joined(parts, [" "]).alignment == [(0, 0), (0, 2)]
    assert joined(parts, [""]).alignment == [(0, 0), (0, 1)]
    assert codec().target_segments("10\u00a0000 Euro", ["▁10", "▁000", "▁Euro"], "de") == (
        ["10\u00a0000", " Euro"],
        [0, 0, 1],
    )


@pytest.mark.parametrize("source, target, options, tokenizers", [
    ("en", "de", {}, ("none", "none")),
    ("deu_Latn", "fr-CA", {"tokenizer": "moses"}, ("moses-de", "moses-fr")),
    ("en", "zh_TW", {"tokenizer": "moses"}, ("moses-en", "moses-zh")),
])  # fmt: skip
def test_text_is_raw_unless_moses_is_chosen(
    source: str, target: str, options: dict[str, str], tokenizers: tuple[str, str]
) -> None:
    config = text_config(data_config(source_lang=source, target_lang=target, **options))
    assert (config.source_tokenizer, config.target_tokenizer) == tokenizers
    assert config.normalize_punctuation == "none"


ENGLISH = "“It’s late — don’t,” she said; ‘go’."
GERMAN = "„Wie geht’s?“, sagte sie – »gut«, rief er … na ja… (am 3. Mai)."
PLAIN_GERMAN = '"Wie geht\'s?", sagte sie - "gut", rief er ... na ja... (am 3. Mai).'


@pytest.mark.parametrize("sides, target", [("both", PLAIN_GERMAN), ("source", GERMAN), ("none", GERMAN)])
def test_punctuation_is_normalised_on_the_chosen_sides(sides: str, target: str) -> None:
    chosen = codec(normalize_punctuation=sides)
    assert chosen.decode_target(chosen.encode_target([GERMAN])) == [target]
    (source,) = chosen.source.decode(chosen.encode_source([ENGLISH]))
    assert ("“It’s" in source) == (sides == "none")
    assert ("\" It 's" in source) == (sides != "none")


# Moses tokenisation


LANGS = ("en", "de", "fr", "cs", "fi", "zh", "ko", "xx", "")
moses = cache(Moses)


@pytest.mark.parametrize("lang, text, tokens", [
    ("en", "Dr. Lamb doesn't know (yet), does he?", "Dr. Lamb doesn 't know ( yet ) , does he ?"),
    ("en", "“AT&T’s” <b> costs (1,250.50 | [x]).", "\" AT&T's \" <b> costs ( 1,250.50 | [ x ] ) ."),
    ("en", "ꙮ and/or 6/7, ꙮ.", "ꙮ and/or 6/7 , ꙮ."),
    ("en", "“Quoted” – it’s…", '" Quoted " - it \'s ...'),
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
    ("en", "AT&T's (C++ and/or C#) #tag, a_b@example.com: 24/7, at 5:30; https://example.com/a?b=c."),
    ("de", "Mit 80 km/h für 5€ oder 5 € und mehr (5 €), $5 oder 25°C: \"Geht's/ging's?\""),
    ("fr", "Une amende de 5 000 $ par jour, 10 $US au plus, pour 2 m² dès 17:30."),
    ("fr", "Une fille, âgée de 7 ans, joue à la balle (rouge) près d'un lac."),
    ("en", f"ꙮ and {'km/h' * 20}, 5 € each."),
])  # fmt: skip
def test_ordinary_text_is_restored(lang: str, text: str) -> None:
    with_ascii_quotes = text.replace("„", '"').replace("“", '"')
    assert moses(lang).detokenize(moses(lang).tokenize(text)) == with_ascii_quotes


TRICKY = [
    # numbers
    "10 000 people", "10,000 or 10.000", "1 234 567,89 €", "+1 (555) 123-4567", "0049 (0)30 1234-56", "5 % of 20%",
    'a 19" monitor', "He is 5'10\" tall.", "3'20'' N", "1:30 and 16 : 9", "$ 5 or 5 $, 5 $ each", "2. 3. 4 . 5",
    # brackets
    "26(1)(c)", "Person(en) and f(x)=y", "https://de.wikipedia.org/wiki/Python_(Sprache)", "( a ) (b )( c)",
    "a[0][1] {x}",
    # quotes and apostrophes
    'He said "no".', '"no," he said', '"a". "b", "c"', "Run `nmt` or ``x``.", "un po' di pane", "Hans' Haus",
    "goin' home", "rock 'n' roll in the '90s", "'tis", "l'\"a\" et la \"b\"", "''bold'' and '''more'''",
    "\" x \" ' y '",
    # punctuation and spaces around it
    "le mot; la suite: oui? Non! 5%", "le mot ; la suite : oui ? Non ! 5 %", "one , two .", "wait...what ... ..",
    "a--b - c -d", "a/b\\c & d &amp; e", '<a href="x">b</a>', "¿Qué? ¡No!", "你好 吗 a",
]  # fmt: skip


@pytest.mark.parametrize("normalize", [True, False])
@pytest.mark.parametrize("lang", ["en", "de", "fr", "it", "es", "cs", "fi", "zh"])
def test_what_the_scripts_cannot_restore_is_not_touched(lang: str, normalize: bool) -> None:
    script = moses(lang, normalize)
    assert [script.detokenize(script.tokenize(text)) for text in TRICKY] == TRICKY


@pytest.mark.parametrize("lang", ["en", "de", "fr"])
@pytest.mark.parametrize("text, ascii_text", [
    ("10\u00a0000\u202fm, 5\u00a0%\u2009!", "10 000 m, 5 % !"),
    ("„a“ “b”, »c« «d» «\u00a0e\u202f»; ’’f’’ ‘g’ l’été", '"a" "b", "c" "d" "e"; "f" \'g\' l\'été'),
    ("dit « oui ». 1990–95 a—b — c … d…", 'dit "oui". 1990-95 a - b - c ... d...'),
    ("»a« und »b«", '"a" und "b"'),
])  # fmt: skip
def test_normalisation_changes_what_it_names_and_no_more(lang: str, text: str, ascii_text: str) -> None:
    assert moses(lang).detokenize(moses(lang).tokenize(text)) == ascii_text
    assert moses(lang, False).detokenize(moses(lang, False).tokenize(text)) == text


CHARACTERS = st.one_of(
    st.sampled_from("abé aB1 5,.;:!?%$€ \"'`´’„“«»–—… ()[]{}<>/&@#_-=+* "), st.characters(exclude_categories=["Cs"])
)


@settings(max_examples=300)
@given(st.sampled_from(["en", "de", "fr", "it", "es", "cs", "fi", "ko", "zh"]), st.text(CHARACTERS, max_size=60))
def test_moses_restores_any_text(lang: str, text: str) -> None:
    script = moses(lang, False)
    assert script.detokenize(script.tokenize(text)) == " ".join(filter(None, text.split(" ")))


@settings(max_examples=300)
@given(st.sampled_from(["en", "de", "fr", "it", "es", "cs"]), st.text(CHARACTERS, max_size=60))
def test_normalising_and_moses_restore_any_ascii_text(lang: str, text: str) -> None:
    ascii_text = " ".join(text.encode("ascii", "ignore").decode().split())
    assert moses(lang).detokenize(moses(lang).tokenize(ascii_text)) == ascii_text


@given(st.text(CHARACTERS, max_size=60))
def test_any_text_survives_without_a_tokeniser(text: str) -> None:
    raw = codec(source_tokenizer="none", target_tokenizer="none")
    text = " ".join(filter(None, text.replace("▁", " ").replace("\n", " ").split(" ")))
    text = "" if is_blank(text) else text
    assert raw.decode_target(raw.encode_target([text])) == [text]
    assert raw.target.decode(raw.encode_source([text])) == [text]


@pytest.mark.parametrize("space", "\u00a0\u202f\u2009\u3000\t\u2028\x85")
@pytest.mark.parametrize("tokenizer", ["none", "moses-fr"])
def test_other_spaces_within_a_line_stay(tokenizer: str, space: str) -> None:
    made = codec(target_tokenizer=tokenizer, normalize_punctuation="source")
    lines = [f"10{space}000 ba{space}; ki {space} lo", f"ba{space}{space}ki."]
    assert made.decode_target(made.encode_target(lines)) == lines


def test_a_normalising_model_has_plain_spaces_only() -> None:
    assert moses("fr").detokenize("10\u2028000 l' ami\u00a0!") == "10 000 l'ami !"


def test_a_model_that_does_not_know_the_mark_of_words_does_not_get_it() -> None:
    spaced = codec(source_tokenizer="moses-en")
    assert WHOLE in moses("en").tokenize("ba , ki")
    assert spaced.encode_source(["ba , ki"]) == spaced.encode_source(["ba, ki"])
    assert spaced.decode_target(spaced.encode_target(["ba , ki"])) == ["ba , ki"]


def test_html_entities_are_ordinary_text() -> None:
    assert moses("en").tokenize("&amp;") == "&amp ;"
    assert moses("en").detokenize("a &amp; b") == "a &amp; b"


@settings(max_examples=60)
@given(lang=st.sampled_from(LANGS), text=st.text(max_size=40))
def test_any_text_can_be_tokenised_and_detokenised(lang: str, text: str) -> None:
    tokens = moses(lang).tokenize(text)
    assert tokens == " ".join(tokens.split())
    assert "\n" not in moses(lang).detokenize(tokens)
    moses(lang).detokenize(text)


@given(lang=st.sampled_from(LANGS), word=st.text("aB1/@&_*+=~#€$:<>^|%.,;!?'\"-()[]{}…", max_size=9))
def test_any_word_is_restored(lang: str, word: str) -> None:
    tokens = moses(lang, normalize=False).tokenize(f"a{word}b")
    assert moses(lang, normalize=False).detokenize(tokens) == f"a{word}b"


def test_models_of_fairseq_split_all_words() -> None:
    assert moses("en", escapes=True).tokenize("AT&T 24/7") == "AT &amp; T 24 / 7"


@given(st.text("abcä .,;:!?'\"()-&0123%$", max_size=40))
def test_letters_and_digits_survive_tokenisation(text: str) -> None:
    restored = moses("en").detokenize(moses("en").tokenize(text))
    assert [c for c in restored if c.isalnum()] == [c for c in text if c.isalnum()]
