"""Writes a small English-German corpus from a grammar made by hand, to try a translation system on.

What there is to learn is what is hard about German: the verb comes second in main clauses and last in subordinate ones,
prefixes leave their verbs, participles and infinitives close the clause, and articles, adjectives and nouns agree in
gender, number and case. Every English sentence has exactly one German translation here, so a perfect score is possible.

    python recipes/grammar.py --out DIR     # writes DIR/train.en, DIR/train.de, DIR/valid.en, …
"""

import argparse
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from random import Random

from english_german import lexicon
from english_german.choices import (
    IT,
    NAMES,
    PRONOUNS,
    TENSES,
    be,
    definite,
    other_subject,
    person_of_known_gender,
    pronoun_for,
    some_adjective,
    some_clause,
    some_state,
    some_subject,
    some_time,
    some_weather,
)  # fmt: skip
from english_german.clauses import NOMINATIVE, Clause, NounPhrase, english, german, german_determiner, noun_phrase
from english_german.lexicon import Pair, pairs

WHO = NounPhrase("who", ("wer", "wen", "wem"))
QUESTION_WORDS = [("", ""), ("why ", "warum "), ("when ", "wann ")]
COLOURS = ("red", "green", "black", "white")

# ---------------------------------------------------------------------------------------------------------- sentences


def statement(rng: Random) -> Pair:
    """`Yesterday Anna called her mother.`"""
    clause = some_clause(rng)
    order = "fronted" if clause.time and rng.random() < 0.5 else "main"
    return english(clause, order) + ".", german(clause, order) + "."


def question(rng: Random) -> Pair:
    """`Did Anna call her mother?`, `Why did …?`, `Who called her mother?`"""
    tenses = rng.choice(["hnpfm", "hnpfm", "pf"])
    who = WHO if rng.random() < 0.2 else None
    clause = some_clause(rng, tenses, who, timed=0.3, negated=0.0)
    if who:
        return english(clause) + "?", german(clause) + "?"
    clause = replace(clause, tense="can" if clause.tense == "must" else clause.tense, frequency=None)
    words = rng.choice(QUESTION_WORDS[: 2 if clause.time or clause.tense not in ("past", "future") else 3])
    return words[0] + english(clause, "question") + "?", words[1] + german(clause, "inverted") + "?"


def reason(rng: Random) -> Pair:
    """`Anna stayed at home because she was tired.`, `Although it is raining, …`"""
    subject = person_of_known_gender(rng)
    main = some_clause(rng, rng.choice("npfm"), subject, timed=0.4)
    tense = "past" if main.tense == "past" else "habit"
    why = rng.choice([some_state, some_state, wish, weather_for])(rng, subject, tense)
    words = rng.choice([("because", "weil"), ("although", "obwohl")])
    return joined(words, main, why, subordinate_first=rng.random() < 0.4)


def weather_for(rng: Random, _: NounPhrase, tense: str) -> Clause:
    return some_weather(rng, tense)


def wish(rng: Random, subject: NounPhrase, tense: str) -> Clause:
    """`she wants to visit her aunt`, `she had to work`."""
    modals = ["wanted", "had to", "could"] if tense == "past" else ["want", "must", "can"]
    return replace(some_clause(rng, "m", subject, timed=0.0, negated=0.0), tense=rng.choice(modals))


def joined(words: Pair, main: Clause, subordinate: Clause, *, subordinate_first: bool) -> Pair:
    """Main and subordinate clause; the second mention of the same person is a pronoun."""
    if subordinate_first:
        main = with_pronoun(main, subordinate)
        return (
            f"{words[0]} {english(subordinate)}, {english(main)}.",
            f"{words[1]} {german(subordinate, 'final')}, {german(main, 'inverted')}.",
        )
    subordinate = with_pronoun(subordinate, main)
    return (
        f"{english(main)} {words[0]} {english(subordinate)}.",
        f"{german(main)}, {words[1]} {german(subordinate, 'final')}.",
    )


def with_pronoun(second: Clause, first: Clause) -> Clause:
    return replace(second, subject=pronoun_for(second.subject)) if second.subject == first.subject else second


def condition(rng: Random) -> Pair:
    """`If it rains tomorrow, Anna will stay at home.`"""
    subject = person_of_known_gender(rng)
    main = some_clause(rng, rng.choice("fm"), subject, timed=0.0)
    if rng.random() < 0.4:
        verb = rng.choice([verb for verb in lexicon.VERBS if verb.subject == "it"])
        given = Clause(IT, verb, "habit", time=some_time(rng, "f") if rng.random() < 0.5 else None)
    else:
        given = rng.choice([some_state, wish])(rng, subject, "habit")
    return joined(("if", "wenn"), main, given, subordinate_first=rng.random() < 0.6)


def meanwhile(rng: Random) -> Pair:
    """`While Anna is reading the newspaper, Peter is cooking the soup.`"""
    first = some_clause(rng, "n", timed=0.0, negated=0.0)
    second = some_clause(rng, "n", other_subject(rng, first.subject), timed=0.0, negated=0.0)
    return joined(("while", "während"), second, first, subordinate_first=rng.random() < 0.7)


def coordination(rng: Random) -> Pair:
    """`Anna is reading the newspaper, but Peter is sleeping.`"""
    tense = rng.choice("np")
    first = some_clause(rng, tense, timed=0.2)
    second = some_clause(rng, tense, other_subject(rng, first.subject), timed=0.0)
    and_, und = rng.choice([(" and ", " und "), (", but ", ", aber ")])
    return english(first) + and_ + english(second) + ".", german(first) + und + german(second) + "."


def report(rng: Random) -> Pair:
    """`Anna knows that Peter bought a car.`, `Anna does not know whether …`"""
    subject = some_subject(rng, "person")
    verb = rng.choice([verb for verb in lexicon.MATRIX_VERBS if verb.complements != ("to",)])
    that, dass = rng.choice([spec for spec in verb.complements if spec != "to"]).split("=")
    said = some_clause(rng, "f" if verb.english[0] == "hope" else "hnpfms", other_subject(rng, subject))
    matrix = Clause(subject, verb, "habit", negated=verb.english[0] == "know" and that == "whether")
    return f"{english(matrix)} {that} {english(said)}.", f"{german(matrix)}, {dass} {german(said, 'final')}."


def infinitive(rng: Random) -> Pair:
    """`Anna tried to call her mother.`"""
    subject = some_subject(rng, "person")
    verb = rng.choice([verb for verb in lexicon.MATRIX_VERBS if "to" in verb.complements])
    matrix = Clause(subject, verb, TENSES[rng.choice(verb.tenses)])
    tried = some_clause(rng, "m", subject, timed=0.0, negated=0.0)
    return f"{english(matrix)} {english(tried, 'infinitive')}.", f"{german(matrix)}, {german(tried, 'infinitive')}."


def relative(rng: Random) -> Pair:
    """`The man who is waiting for Anna knows my brother.`"""
    noun = rng.choice([noun for noun in lexicon.nouns("person") if "person" in noun.kinds])
    plural = rng.random() < 0.3
    head = noun_phrase(noun, "the", some_adjective(rng, noun), plural=plural)
    pronoun = (german_determiner("the", head.gender, NOMINATIVE),) * 3
    about = some_clause(rng, "nps", replace(head, english="who", german=pronoun), timed=0.2)
    described = (f"{head.german[NOMINATIVE]}, {german(about, 'final')},",) * 3
    main = some_clause(
        rng, "nps", replace(head, english=f"{head.english} {english(about)}", german=described), timed=0.2
    )
    return english(main) + ".", german(main) + "."


def description(rng: Random) -> Pair:
    """`Anna was sick yesterday.`, `The house is too small.`, `It is cold.`"""
    if rng.random() < 0.25:
        tense = rng.choice(["habit", "past", "future"])
        clause = some_weather(rng, tense)
    else:
        tense = rng.choice(["habit", "past"])
        clause = some_state(rng, some_subject(rng, "person"), tense)
    if tense != "habit" and rng.random() < 0.6:
        clause = replace(clause, time=some_time(rng, tense[0]))
    order = "fronted" if clause.time and rng.random() < 0.5 else "main"
    return english(clause, order) + ".", german(clause, order) + "."


def quality(rng: Random) -> Pair:
    """`The house is too small.`, `These books are not very long.`"""
    noun = rng.choice(lexicon.nouns(rng.choice(["ware", "building", "animal", "part"])))
    subject = definite(rng, noun, with_adjective=False)
    adjectives = [a for a in lexicon.ADJECTIVES if set(a.kinds) & set(noun.kinds)]
    adjective = rng.choice(adjectives)
    degrees = [("", ""), ("very ", "sehr "), ("too ", "zu ")]
    degree, german_degree = ("", "") if adjective.english in COLOURS else rng.choice(degrees)
    words = degree + adjective.english, german_degree + adjective.german
    clause = be(subject, "habit", words, negated=rng.random() < 0.2)
    return english(clause) + ".", german(clause) + "."


def comparison(rng: Random) -> Pair:
    """`Anna is older than my brother.`, `Anna is 12 years old.`"""
    second = rng.choice(NAMES)
    first = other_subject(rng, second)
    if rng.random() < 0.25:
        age = str(rng.randint(2, 99))
        clause = be(rng.choice([second, *PRONOUNS]), "habit", (f"{age} years old", f"{age} Jahre alt"))
        return english(clause) + ".", german(clause) + "."
    if first.is_pronoun or rng.random() < 0.5:
        first, second = second, definite(rng, rng.choice(lexicon.nouns("person")))
    (older, old), (aelter, alt) = (word.split("/") for word in rng.choice(pairs(lexicon.COMPARATIVES)))
    if rng.random() < 0.5:
        words = f"{older} than {second.english}", f"{aelter} als {second.german[NOMINATIVE]}"
    else:
        words = f"as {old} as {second.english}", f"so {alt} wie {second.german[NOMINATIVE]}"
    clause = be(first, "habit", words, negated=rng.random() < 0.3)
    return english(clause) + ".", german(clause) + "."


# ------------------------------------------------------------------------------------------------------------- corpus

RULES: dict[Callable[[Random], Pair], int] = {
    statement: 30, question: 12, reason: 14, report: 12, condition: 6, meanwhile: 5, coordination: 5, relative: 5,
    infinitive: 5, description: 3, quality: 3, comparison: 2,
}  # fmt: skip


def sentence(rng: Random) -> Pair:
    source, target = rng.choices(list(RULES), list(RULES.values()))[0](rng)
    return source[0].upper() + source[1:], target[0].upper() + target[1:]


def corpus(size: int, seed: int) -> list[Pair]:
    """`size` pairs, no two of which share either side, so that what is held out of them is new on both sides."""
    rng = Random(seed)
    found: dict[str, str] = {}
    targets: set[str] = set()
    while len(found) < size:
        source, target = sentence(rng)
        if source not in found and target not in targets:
            found[source] = target
            targets.add(target)
    shuffled = list(found.items())
    rng.shuffle(shuffled)
    return shuffled


def write(folder: Path, split: str, sentences: list[Pair]) -> None:
    for language, lines in zip(("en", "de"), zip(*sentences, strict=True), strict=True):
        (folder / f"{split}.{language}").write_text(
            "".join(line + "\n" for line in lines), encoding="utf-8", newline="\n"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description="Write a small English-German corpus made by a grammar.")
    parser.add_argument("--out", type=Path, required=True, help="folder to write to; made if it does not exist")
    for split, size in {"train": 8000, "valid": 500, "test": 500}.items():
        parser.add_argument(f"--{split}", type=int, default=size, help=f"pairs of {split}.en and {split}.de ({size})")
    parser.add_argument("--seed", type=int, default=1, help="the same seed gives the same corpus (1)")
    options = parser.parse_args()
    sizes = {split: getattr(options, split) for split in ("train", "valid", "test")}
    if min(sizes.values()) < 1:
        parser.error("--train, --valid and --test must be at least 1")
    sentences = corpus(sum(sizes.values()), options.seed)
    options.out.mkdir(parents=True, exist_ok=True)
    for split, size in sizes.items():
        write(options.out, split, sentences[:size])
        sentences = sentences[size:]


if __name__ == "__main__":
    main()
