"""Memories find equal sentences, equal ones but for numbers and placeholders, and the most similar ones."""

import pickle
import random
from collections.abc import Iterator
from itertools import count

import pytest
from checkpoints import small_codec, some_sentences
from hypothesis import given
from hypothesis import strategies as st

from nmt.memories.matching import Match, difference, normalised_parts
from nmt.memories.memory import Memory, matches_of
from nmt.text.directions import Direction
from nmt.text.protected import PROTECTED, Protected, ProtectedSpan
from nmt.translate.units import Sentence, Unit, UnitMaker

_digests = map(str, count())  # each memory has an index of its own


def memory(*pairs: tuple[str, str], languages: tuple[str, str] = ("en", "de")) -> Memory:
    return Memory.of(lambda: pairs, f"pairs {next(_digests)}", languages)


def exact(known: Memory, sentence: str) -> Match | None:
    return known.exact(normalised_parts(sentence, PROTECTED.spans(sentence), known.languages[0]))


def target(earlier: tuple[str, str], sentence: str, *languages: str) -> str | None:
    """Returns what a memory with one pair has for a sentence."""
    source, target_lang = languages or ("en", "de")
    match = exact(memory(earlier, languages=(source, target_lang)), sentence)
    return match and match.target


@pytest.mark.parametrize("earlier, sentence, expected", [
    (("A cat.", "Eine Katze."), "A cat.", "Eine Katze."),
    (("A  cat.\u00a0", " Eine\u00a0Katze. "), "\tA cat.", "Eine\u00a0Katze."),
    (("caf\u00e9", "Caf\u00e9"), "cafe\u0301", "Caf\u00e9"),
    (("A cat.", "Eine Katze."), "a cat.", None),
    (("A cat.", "Eine Katze."), "A cat", None),
    (("", "x"), "A cat.", None),
])  # fmt: skip
def test_equal_sentences(earlier: tuple[str, str], sentence: str, expected: str | None) -> None:
    assert target(earlier, sentence) == expected


def test_a_line_of_several_sentences_in_a_memory_is_one_unless_it_has_a_prefix() -> None:
    line = "A cat. A dog."
    memories = [memory((line, "Katze und Hund."))]
    maker = UnitMaker(small_codec().config, Protected(), cut="sentence", memories=memories)
    for unit, sentences in ((Unit(line), [line]), (Unit(line, prefix="Eine"), ["A cat.", "A dog."])):
        assert [sentence.text for sentence in maker.complete(unit).sentences] == sentences


@pytest.mark.parametrize("earlier, sentence, expected", [
    (("In 1991, 5 men", "1991 waren es 5 Männer"), "In 1995, 7 men", "1995 waren es 7 Männer"),
    (("1,234.50 €", "1.234,50 €"), "12,777.25 €", "12.777,25 €"),
    (("it is 3", "es ist 3"), "it is 1,234,567.5", "es ist 1.234.567,5"),
    (("it is 12,345", "es ist 12345"), "it is 23,456", "es ist 23456"),
    (("2 of 3", "2 von 3"), "3 of 2", "3 von 2"),
    (("3 and 3", "3 und 3"), "4 and 4", "4 und 4"),
    (("3 and 3", "3 und 3"), "4 and 5", None),  # which is which?
    (("two and 2", "2 und 2"), "two and 3", None),
    (("2 cats", "zwei Katzen"), "3 cats", None),
    (("at 10:30", "um 10:30"), "at 11:45", "um 11:45"),
    (("at 10:30", "um 10.30"), "at 11:45", None),
    (("version 1.2.3", "Version 1.2.3"), "version 1.3.0", "Version 1.3.0"),
    (("open {a}", "{a} öffnen"), "open {b.c}", "{b.c} öffnen"),
    (("write to a@b.de", "an a@b.de schreiben"), "write to c@d.org", "an c@d.org schreiben"),
    (("<b>save</b>", "<b>sichern</b>"), "<i>save</i>", "<i>sichern</i>"),
    (("press %s", "%s drücken"), "press 3", None),
    (("section 3", "Abschnitt 3"), "section 3.1", None),  # 3.1 or 3,1?
    (("section 3.2", "Abschnitt 3.2"), "section 3.1", "Abschnitt 3.1"),
    (("section 3.2", "Abschnitt 3.2"), "section 1,200", None),
    (("10 miles", "10 Meilen (16 km)"), "20 miles", None),
    (("{a} of {b}", "{b}: {a}"), "{c} of {d}", "{d}: {c}"),
    (("{a} of {b}", "{b}: {a}"), "%s of %s", None),  # they would change places
    (("{a} of {b}", "{b}: {a}"), "{} of {d}", "{d}: {}"),
    (("%1$s of %2$s", "%1$s von %2$s"), "%s of %s", "%s von %s"),
])  # fmt: skip
def test_other_numbers_and_placeholders(earlier: tuple[str, str], sentence: str, expected: str | None) -> None:
    assert target(earlier, sentence) == expected


@pytest.mark.parametrize("earlier, sentence, languages, expected", [
    (("it is 3", "c’est 3"), "it is 12,777.5", "en fr", "c’est 12\u202f777,5"),
    (("c’est 12\u00a0777,5", "it is 12,777.5"), "c’est 3", "fr en", "it is 3"),
    (("c’est 12 777", "it is 12,777"), "c’est 45 888", "fr en", "it is 45,888"),
    (("это 1", "it is 1"), "это 12 345,6", "ru en", "it is 12,345.6"),
    (("2 files", "2 файла"), "3 files", "en ru", "3 файла"),
    (("2 files", "2 файла"), "5 files", "en ru", None),  # 5 файлов
    (("chapter 2", "глава 2"), "chapter 5", "en ru", "глава 5"),
    (("2個", "2 items"), "3個", "ja en", "3 items"),
    (("2個", "2 items"), "1個", "ja en", None),
    (("2 litres", "2 litres"), "1.5 litres", "en fr", None),
    (("3.5 litres", "3,5 litres"), "1.5 litres", "en fr", None),  # 1,5 litre
    (("am 5. Mai", "on May 5th"), "am 22. Mai", "de en", None),
    (("of 11 May", "dell'11 maggio"), "of 12 May", "en it", None),  # del 12
    (("8 Bit", "an 8 bit number"), "16 Bit", "de en", None), (("article 5", "az 5. cikk"), "article 6", "en hu", None),
    (("to 5", "5'te"), "to 6", "en tr", None), (("to 5 km", "a 5 km"), "to 6 km", "en es", "a 6 km"),
])  # fmt: skip
def test_numbers_as_languages_write_them(
    earlier: tuple[str, str], sentence: str, languages: str, expected: str | None
) -> None:
    assert target(earlier, sentence, *languages.split()) == expected


def test_protected_words_of_users_and_inside_markup_are_values() -> None:
    protected = Protected(["Acme|Ajax"])
    pairs = [("Buy Acme", "Kauft Acme"), ("use f({x}) now", "nutze f({x}) jetzt")]
    known = Memory.of(lambda: pairs, f"pairs {next(_digests)}", ("en", "de"), protected)
    maker = UnitMaker(small_codec().config, protected, Direction("en", "de"), memories=[known])
    code = Sentence("use f({y}) now", protected=(ProtectedSpan(4, 10, "markup"),))
    for unit, expected in ((Unit("Buy Ajax"), "Kauft Ajax"), (Unit(code.text, sentences=[code]), "nutze f({y}) jetzt")):
        assert [match.target for match in maker.complete(unit).sentences[0].matches] == [expected]


def test_a_thousand_sentences_with_other_numbers() -> None:
    """The expected numbers are written by rules of their own."""
    draw = random.Random(1)

    def numeral(lang: str, value: tuple[int, str]) -> str:
        whole = f"{value[0]:,}".replace(",", {"en": ",", "de": ".", "fr": "\u202f"}[lang])
        return whole + ({"en": "."}.get(lang, ",") + value[1] if value[1] else "")

    templates = {
        "en": ["Part {0} is worth {1} euros.", "From {0} to {1}: see page {2}", "({0}) {1} % of {2} of the whole"],
        "de": ["Teil {0} ist {1} Euro wert.", "Von {0} bis {1}: siehe Seite {2}", "({0}) {1} % von {2} des Ganzen"],
        "fr": ["Il coûte {1} euros : partie {0}.", "Page {2} : de {0} à {1}", "({0}) {1} % de {2} du tout"],
    }

    def sentence(lang: str, template: int, values: list[tuple[int, str]]) -> str:
        return templates[lang][template].format(*(numeral(lang, value) for value in values))

    def values() -> list[tuple[int, str]]:
        wholes = draw.sample([*range(2, 200), *range(10_000, 2_000_000, 977)], 3)
        return [(whole, draw.choice(["", "", "5", "25"])) for whole in wholes]

    for lang in ("de", "fr"):
        earlier = [(i, [(17, "5"), (23, "5"), (41, "5")]) for i in range(3)]
        known = memory(*((sentence("en", *each), sentence(lang, *each)) for each in earlier), languages=("en", lang))
        for _ in range(500):
            new = draw.randrange(3), values()
            match = exact(known, sentence("en", *new))
            assert match and match.target == sentence(lang, *new)


def test_of_equal_sources_the_last_counts_and_of_memories_the_first() -> None:
    first = memory(("a", "1"), ("b", "2"), ("a ", "3"))
    assert len(first) == 2 and (match := exact(first, "a")) and match.target == "3"
    second, other = memory(("a", "4"), ("c", "5")), memory(("d", "6"), languages=("de", "en"))
    targets = {text: [m.target for m in matches_of(text, [], [first, second, other], ("en", "de"))] for text in "acd"}
    assert targets == {"a": ["3"], "c": ["5"], "d": []}


def distance(first: str, second: str) -> int:
    """Returns the edit distance, by the recurrence."""
    row = list(range(len(second) + 1))
    for i, a in enumerate(first, 1):
        diagonal, row[0] = row[0], i
        for j, b in enumerate(second, 1):
            diagonal, row[j] = row[j], min(diagonal + (a != b), row[j] + 1, row[j - 1] + 1)
    return row[-1]


def similarity(first: str, second: str) -> float:
    return 1 - distance(first, second) / max(len(first), len(second))


def test_similar_sentences_are_those_of_a_full_search() -> None:
    lines = list(dict.fromkeys(some_sentences(300, seed=1)))
    known = memory(*((line, line.upper()) for line in lines))
    for sentence in some_sentences(30, seed=2):
        scores = sorted((similarity(sentence, line) for line in lines), reverse=True)
        matches = known.near(sentence, least=0.6, most=5)
        expected = [score for score in scores[:5] if score >= 0.6]
        assert [match.score for match in matches] == pytest.approx(expected, abs=0.01)
        for match in matches:
            assert match.target == match.source.upper() and 0 <= similarity(sentence, match.source) - match.score < 0.01


@pytest.mark.parametrize("earlier, sentence", [
    ("Setting", "Settings"), ("今日は天気がとてもいいです。", "今日は天気がとてもよいです。"), ("12.5 %", "12.5 ‰"),
])  # fmt: skip
def test_short_texts_and_those_without_spaces_are_similar_too(earlier: str, sentence: str) -> None:
    (match,) = memory((earlier, "x"), ("Some other text", "y")).near(sentence)
    assert (match.source, match.target) == (earlier, "x") and 0.7 <= match.score < 1


@given(st.text("ab 今,"), st.text("ab 今,"))
def test_a_difference_has_both_texts(earlier: str, sentence: str) -> None:
    parts = difference(earlier, sentence)
    assert "".join(text for sign, text in parts if sign != "+") == earlier
    assert "".join(text for sign, text in parts if sign != "-") == sentence


def test_a_difference_has_whole_words() -> None:
    assert difference("Click the old button.", "Click a new button!") == [
        ("=", "Click "), ("-", "the"), ("+", "a"), ("=", " "), ("-", "old"), ("+", "new"), ("=", " button"), ("-", "."),
        ("+", "!"),
    ]  # fmt: skip


def test_the_index_is_built_once_and_shared() -> None:
    calls = []

    def pairs() -> Iterator[tuple[str, str]]:
        calls.append(1)
        yield "A cat.", "Eine Katze."

    first, second = (Memory.of(pairs, "once", ("en", "de")) for _ in range(2))
    copied = pickle.loads(pickle.dumps(second))
    assert [exact(each, "A cat.") for each in (first, second, copied)] == [exact(first, "A cat.")] * 3
    assert len(calls) == 1 and len(pickle.dumps(second)) < 1000
