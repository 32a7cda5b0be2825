"""The corpus that the quick start trains on."""

import re
import subprocess
import sys
from pathlib import Path
from random import Random

import pytest

RECIPES = Path(__file__).parents[1] / "recipes"
sys.path.insert(0, str(RECIPES))

import grammar  # noqa: E402
from english_german import lexicon  # noqa: E402
from english_german.choices import NAMES, PRONOUNS  # noqa: E402
from english_german.clauses import (  # noqa: E402
    DIRECT,
    PRONOUN,
    Clause,
    Complement,
    NounPhrase,
    english,
    german,
    noun_phrase,
)

HE = next(phrase for phrase in PRONOUNS if phrase.english == "he")
I = next(phrase for phrase in PRONOUNS if phrase.english == "I")  # noqa: E741
ANNA = NAMES[0]


def noun(name: str) -> lexicon.Noun:
    return next(noun for noun in lexicon._ALL_NOUNS if noun.english == name)


def verb(infinitive: str) -> lexicon.Verb:
    return next(verb for verb in lexicon.VERBS if verb.prefix + verb.infinitive == infinitive)


def adjective(name: str) -> lexicon.Adjective:
    return next(adjective for adjective in lexicon.ADJECTIVES if adjective.english == name)


def write_corpus(folder: Path, *options: str) -> dict[str, list[str]]:
    command = [sys.executable, str(RECIPES / "grammar.py"), "--out", str(folder), *options]
    subprocess.run(command, check=True, timeout=60)
    return {path.name: path.read_text(encoding="utf-8").split("\n")[:-1] for path in sorted(folder.iterdir())}


@pytest.mark.parametrize(
    ("determiner", "described", "name", "plural", "forms"),
    [
        ("the", "old", "man", False, ("der alte Mann", "den alten Mann", "dem alten Mann")),
        ("the", "new", "book", True, ("die neuen Bücher", "die neuen Bücher", "den neuen Büchern")),
        ("a", "old", "house", False, ("ein altes Haus", "ein altes Haus", "einem alten Haus")),
        ("a", "expensive", "car", False, ("ein teures Auto", "ein teures Auto", "einem teuren Auto")),
        ("our", "old", "dog", False, ("unser alter Hund", "unseren alten Hund", "unserem alten Hund")),
        ("my", None, "neighbour", False, ("mein Nachbar", "meinen Nachbarn", "meinem Nachbarn")),
        ("this", "young", "woman", False, ("diese junge Frau", "diese junge Frau", "dieser jungen Frau")),
        ("every", None, "student", False, ("jeder Student", "jeden Studenten", "jedem Studenten")),
        ("many", "young", "guest", True, ("viele junge Gäste", "viele junge Gäste", "vielen jungen Gästen")),
        ("these", "red", "car", True, ("diese roten Autos", "diese roten Autos", "diesen roten Autos")),
        ("", "cold", "milk", False, ("kalte Milch", "kalte Milch", "kalter Milch")),
        ("", "hot", "tea", False, ("heißer Tee", "heißen Tee", "heißem Tee")),
    ],
)
def test_articles_adjectives_and_nouns_agree(
    determiner: str, described: str | None, name: str, plural: bool, forms: tuple[str, str, str]
) -> None:
    found = noun_phrase(noun(name), determiner, adjective(described) if described else None, plural=plural)
    assert found.german == forms


def test_the_english_article() -> None:
    assert noun_phrase(noun("apple"), "a").english == "an apple"
    assert noun_phrase(noun("apple"), "a", adjective("fresh")).english == "a fresh apple"
    assert noun_phrase(noun("book"), "a", adjective("interesting")).english == "an interesting book"


@pytest.mark.parametrize(
    ("order", "tense", "in_english", "in_german"),
    [
        ("main", "habit", "Anna picks me up yesterday", "Anna holt mich gestern ab"),
        ("main", "past", "Anna picked me up yesterday", "Anna hat mich gestern abgeholt"),
        ("main", "want", "Anna wants to pick me up yesterday", "Anna will mich gestern abholen"),
        ("fronted", "past", "yesterday Anna picked me up", "gestern hat Anna mich abgeholt"),
        ("inverted", "had to", "did Anna have to pick me up yesterday", "musste Anna mich gestern abholen"),
        ("final", "habit", "Anna picks me up yesterday", "Anna mich gestern abholt"),
        ("final", "past", "Anna picked me up yesterday", "Anna mich gestern abgeholt hat"),
        ("final", "future", "Anna will pick me up yesterday", "Anna mich gestern abholen wird"),
        ("infinitive", "habit", "to pick me up yesterday", "mich gestern abzuholen"),
    ],
)
def test_word_order(order: str, tense: str, in_english: str, in_german: str) -> None:
    me = Complement(I.as_object, I.german[1], PRONOUN)
    clause = Clause(ANNA, verb("abholen"), tense, (me,), time=("yesterday", "gestern"))
    assert german(clause, order) == in_german
    assert english(clause, {"inverted": "question", "final": "main"}.get(order, order)) == in_english


@pytest.mark.parametrize(
    ("subject", "tense", "negated", "in_english", "in_german"),
    [
        (I, "habit", False, "I wash the dog", "ich wasche den Hund"),
        (HE, "habit", False, "he washes the dog", "er wäscht den Hund"),
        (HE, "habit", True, "he does not wash the dog", "er wäscht den Hund nicht"),
        (I, "now", True, "I am not washing the dog", "ich wasche den Hund nicht"),
        (HE, "past", True, "he did not wash the dog", "er hat den Hund nicht gewaschen"),
        (HE, "can", True, "he cannot wash the dog", "er kann den Hund nicht waschen"),
        (HE, "wanted", False, "he wanted to wash the dog", "er wollte den Hund waschen"),
    ],
)
def test_verbs_agree_with_their_subjects(
    subject: NounPhrase, tense: str, negated: bool, in_english: str, in_german: str
) -> None:
    dog = Complement("the dog", "den Hund", DIRECT)
    clause = Clause(subject, verb("waschen"), tense, (dog,), negated=negated)
    assert (english(clause), german(clause)) == (in_english, in_german)


def test_no_english_sentence_has_two_translations() -> None:
    rng = Random(3)
    found: dict[str, str] = {}
    for _ in range(20_000):
        source, target = grammar.sentence(rng)
        assert found.setdefault(source, target) == target


def test_every_rule_gives_whole_sentences() -> None:
    rng = Random(4)
    for rule in grammar.RULES:
        for _ in range(200):
            for text in rule(rng):
                assert re.fullmatch(r"\w[\wäöüÄÖÜß,' ]*[\w'][.?]", text), text
                assert "  " not in text
                assert "_" not in text


def test_what_is_held_out_does_not_occur_in_training(tmp_path: Path) -> None:
    files = write_corpus(tmp_path / "new" / "folder", "--train", "900", "--valid", "60", "--test", "40")
    sizes = {"train.en": 900, "train.de": 900, "valid.en": 60, "valid.de": 60, "test.en": 40, "test.de": 40}
    assert {name: len(lines) for name, lines in files.items()} == sizes
    for language in ("en", "de"):
        lines = [line for split in ("train", "valid", "test") for line in files[f"{split}.{language}"]]
        assert len(set(lines)) == len(lines)


def test_the_corpus_is_a_function_of_the_seed(tmp_path: Path) -> None:
    sizes = ("--train", "50", "--valid", "5", "--test", "5")
    first = write_corpus(tmp_path / "a", *sizes)
    assert write_corpus(tmp_path / "b", *sizes, "--seed", "1") == first
    assert write_corpus(tmp_path / "c", *sizes, "--seed", "2") != first


def test_no_pairs_cannot_be_asked_for(tmp_path: Path) -> None:
    command = [sys.executable, str(RECIPES / "grammar.py"), "--out", str(tmp_path / "out"), "--test", "0"]
    done = subprocess.run(command, capture_output=True, timeout=60)
    assert done.returncode == 2
    assert b"must be at least 1" in done.stderr
    assert not (tmp_path / "out").exists()
