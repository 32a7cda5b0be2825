"""The corpus that the quickstart trains on is correct English and German, and it has no repeated sentences."""

import re
import sys
from itertools import chain
from pathlib import Path
from random import Random

import pytest

import grammar  # isort: skip # `stand_ins` has added its folder to the path
import lexicon  # isort: skip
import links  # isort: skip
from grammar import Clause, Part, english, german  # isort: skip

DETERMINERS = ("the", *lexicon.DER_WORDS, *lexicon.EIN_WORDS, *lexicon.COUNT_WORDS, *lexicon.NUMBERS)
PEOPLE = {person.english: person for person in [*lexicon.PERSONAL_PRONOUNS, lexicon.IT, *lexicon.NAMES]}


def adjective(name: str) -> tuple[str, ...]:
    return next(pair for table in lexicon.ADJECTIVES.values() for pair in lexicon.entries(table) if pair[0] == name)


def phrase(words: str) -> lexicon.Phrase:
    """Returns the phrase for words such as `Anna`, `they`, `the old man` or `no books`."""
    if words in PEOPLE:
        return PEOPLE[words]
    *before, name = words.split()
    noun = next(noun for noun in lexicon.ALL_NOUNS if name in (noun.english, noun.english_plural))
    determiner = before.pop(0) if before and before[0] in DETERMINERS else ""
    described = adjective(before[0]) if before else ("", "")
    return lexicon.noun_phrase(noun, determiner, described, plural=name != noun.english)


def clause(subject: str, infinitive: str, tense: str, *objects: str, time: str = "", negated: bool = False) -> Clause:
    verbs = [*grammar.VERBS, *grammar.CLAUSE_VERBS, grammar.BE]
    verb = next(verb for verb in verbs if verb.prefix + verb.german[0] == infinitive)
    rules = [complement.partition(":")[0] for complement in verb.complements if ":" in complement]
    parts = [grammar.object_part(rule, phrase(words)) for rule, words in zip(rules, objects, strict=True)]
    if "refl" in verb.complements:
        parts.insert(0, grammar.some_part(Random(0), "refl", phrase(subject), negated))
    times = dict(pair for table in lexicon.TIMES.values() for pair in lexicon.entries(table))
    return Clause(phrase(subject), verb, tense, tuple(parts), (time, times.get(time, "")), negated)


@pytest.mark.parametrize("words, forms", [
    ("the old man", "der alte Mann, den alten Mann, dem alten Mann"),
    ("a old house", "ein altes Haus, ein altes Haus, einem alten Haus"),
    ("our old dog", "unser alter Hund, unseren alten Hund, unserem alten Hund"),
    ("my neighbour", "mein Nachbar, meinen Nachbarn, meinem Nachbarn"),
    ("this young woman", "diese junge Frau, diese junge Frau, dieser jungen Frau"),
    ("every student", "jeder Student, jeden Studenten, jedem Studenten"),
    ("many young guests", "viele junge Gäste, viele junge Gäste, vielen jungen Gästen"),
    ("cold milk", "kalte Milch, kalte Milch, kalter Milch"),
    ("hot tea", "heißer Tee, heißen Tee, heißem Tee"),
])  # fmt: skip
def test_articles_adjectives_and_nouns_agree(words: str, forms: str) -> None:
    assert ", ".join(phrase(words).german) == forms


def test_the_english_article_is_an_before_a_vowel() -> None:
    assert phrase("a apple").english == "an apple"
    assert phrase("a fresh apple").english == "a fresh apple"
    assert phrase("a interesting book").english == "an interesting book"


# Examples written by hand: order | subject | (not) verb | tense | objects | time | English | German.
# A long example goes on in a second line.
CLAUSES = """
main | Anna | abholen | want | I | yesterday | Anna wants to pick me up yesterday | Anna will mich gestern abholen
fronted | Anna | abholen | past | I | yesterday | yesterday Anna picked me up | gestern hat Anna mich abgeholt
inverted | Anna | abholen | had to | I | yesterday
    did Anna have to pick me up yesterday | musste Anna mich gestern abholen
final | Anna | abholen | habit | I | yesterday | Anna picks me up yesterday | Anna mich gestern abholt
final | Anna | abholen | past | I | yesterday | Anna picked me up yesterday | Anna mich gestern abgeholt hat
infinitive | Anna | abholen | habit | I | yesterday | to pick me up yesterday | mich gestern abzuholen
main | he | not waschen | habit | the dog | | he does not wash the dog | er wäscht den Hund nicht
main | he | not waschen | past | the dog | | he did not wash the dog | er hat den Hund nicht gewaschen
main | he | not waschen | can | the dog | | he cannot wash the dog | er kann den Hund nicht waschen
main | my aunt | einladen | will | he | | my aunt will invite him | meine Tante wird ihn einladen
main | the boys | kaufen | now | many cheap hats |
    the boys are buying many cheap hats | die Jungen kaufen viele billige Hüte
main | a student | not kaufen | past | no book | | a student did not buy a book | ein Student hat kein Buch gekauft
main | she | not trinken | habit | no milk | | she does not drink milk | sie trinkt keine Milch
main | I | zuhören | now | his neighbour | | I am listening to his neighbour | ich höre seinem Nachbarn zu
main | we | beschweren | past | she | | we complained about her | wir haben uns über sie beschwert
main | our sister | schicken | past | I, a long letter |
    our sister sent me a long letter | unsere Schwester hat mir einen langen Brief geschickt
main | Emma | verstecken | past | the knife, the old cupboard |
    Emma hid the knife in the old cupboard | Emma hat das Messer im alten Schrank versteckt
main | Paul | gehen | past | the big house | | Paul went into the big house | Paul ist ins große Haus gegangen
main | her friends | not bleiben | want | the kitchens |
    her friends do not want to stay in the kitchens | ihre Freunde wollen nicht in den Küchen bleiben
main | we | aufstehen | past | | | we got up | wir sind aufgestanden
inverted | Anna | not aufmachen | should | the box |
    should Anna not open the box | sollte Anna die Kiste nicht aufmachen
final | the women | einschalten | habit | twenty-three lamps |
    the women turn on twenty-three lamps | die Frauen dreiundzwanzig Lampen einschalten
infinitive | Anna | not antworten | habit | he | | not to answer him | ihm nicht zu antworten
"""


@pytest.mark.parametrize("row", CLAUSES.strip().replace("\n    ", " | ").split("\n"))
def test_clauses_are_as_written_by_hand(row: str) -> None:
    order, subject, words, tense, objects, time, in_english, in_german = (column.strip() for column in row.split("|"))
    negated, infinitive = "not " in words, words.removeprefix("not ")
    said = clause(subject, infinitive, tense, *filter(None, objects.split(", ")), time=time, negated=negated)
    assert german(said)[order] == in_german
    assert english(said)[{"inverted": "question", "final": "main"}.get(order, order)] == in_english


@pytest.mark.parametrize("subject, tense, quality, in_english, in_german", [
    ("I", "habit", "tired müde", "I am tired", "ich bin müde"),
    ("the letters", "habit", "long lang", "the letters are long", "die Briefe sind lang"),
    ("our lamp", "past", "old alt", "our lamp was old", "unsere Lampe war alt"),
    ("every car", "will", "cheap billig", "every car will be cheap", "jedes Auto wird billig sein"),
])  # fmt: skip
def test_to_be_agrees_with_its_subject(subject: str, tense: str, quality: str, in_english: str, in_german: str) -> None:
    said = Clause(phrase(subject), grammar.BE, tense, (Part(*quality.split(), grammar.OTHER),))
    assert (english(said)["main"], german(said)["main"]) == (in_english, in_german)


@pytest.mark.parametrize("owner, bought, pronouns", [
    ("Anna", "the lamp", {("she", "sie"), ("it", "sie")}),
    ("Anna", "a computer", {("she", "sie"), ("it", "er")}),
    ("Peter", "this book", {("he", "er"), ("it", "es")}),
    ("I", "my hat", {("I", "ich"), ("it", "er")}),
])  # fmt: skip
def test_a_pronoun_has_the_gender_of_the_german_noun(owner: str, bought: str, pronouns: set[tuple[str, str]]) -> None:
    rng, said = Random(2), clause(owner, "kaufen", "past", bought)
    subjects = {grammar.linked_subject(rng, said) for _ in range(300)}
    linked = {
        (subject.english, subject.german[0])
        for subject in subjects
        if subject.english_object or subject.english == "it"
    }
    assert pronouns | {("it", "es")} <= linked


def test_a_relative_pronoun_agrees_with_its_noun() -> None:
    rng = Random(6)
    pronouns = set()
    for _ in range(3000):
        subject = grammar.some_subject(rng)
        if relative := re.fullmatch(r"[^,]+, (\w+) [^,]+,", links.plain(subject.german[0])):
            pronouns.add((subject.gender, relative[1]))
    assert pronouns == {("m", "der"), ("m", "den"), ("f", "die"), ("n", "das"), ("p", "die")}


FINITE_VERBS = {form for forms in grammar.FINITE.values() for form in forms} | {
    german(Clause(phrase(person), verb, "habit"))["final"].split()[-1]
    for verb in [*grammar.VERBS, *grammar.CLAUSE_VERBS]
    for person in ("I", "he", "they")
}


@pytest.fixture(scope="module")
def sentences() -> list[tuple[str, str]]:
    rng = Random(5)
    return [grammar.sentence(rng) for _ in range(3000)]


def test_the_finite_verb_ends_subordinate_clauses(sentences: list[tuple[str, str]]) -> None:
    clause_count = 0
    for _, target in sentences:
        clauses = re.findall(r"(?i)\b(?:weil|obwohl|wenn|während|als|bevor|dass|ob) ([^,.?]+)", target)
        clauses += re.findall(r", (?:der|die|das|den) ([^,.?]+),", target)
        for words in clauses:
            assert words.split()[-1] in FINITE_VERBS, target
        clause_count += len(clauses)
    assert clause_count > 1000


@pytest.mark.parametrize("size", [3000, pytest.param(20_000, marks=pytest.mark.nightly)])
def test_no_english_sentence_has_two_translations(sentences: list[tuple[str, str]], size: int) -> None:
    rng = Random(3)
    more = (grammar.sentence(rng) for _ in range(size - len(sentences)))
    translations: dict[str, str] = {}
    for source, target in chain(sentences, more):
        assert translations.setdefault(source, target) == target


def test_sentences_are_well_formed(sentences: list[tuple[str, str]]) -> None:
    for text in chain.from_iterable(sentences):
        assert re.fullmatch(r"\w[\wäöüÄÖÜß,' -]*[\w'][.?]", text), text
        assert not re.search(",,| ,|  ", text), text
        assert "_" not in text


def test_held_out_sentences_do_not_occur_in_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "new" / "folder"
    monkeypatch.setattr(sys, "argv", ["grammar.py", f"--out={folder}", "--train=900", "--valid=60", "--test=40"])
    grammar.main()
    files = {path.name: path.read_text(encoding="utf-8").split("\n")[:-1] for path in folder.iterdir()}
    sizes = {"train.en": 900, "train.de": 900, "valid.en": 60, "valid.de": 60, "test.en": 40, "test.de": 40}
    assert {name: len(lines) for name, lines in files.items()} == sizes
    for language in ("en", "de"):
        lines = [line for split in ("train", "valid", "test") for line in files[f"{split}.{language}"]]
        assert len(set(lines)) == len(lines)
