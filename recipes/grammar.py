"""Writes a small English-German corpus from a hand-written grammar, on which a translation system can be tried.

The corpus contains what is hard about German. The verb comes second in main clauses and last in subordinate clauses.
Separable prefixes leave their verbs. Participles and infinitives close the clause. Articles, adjectives, nouns and
pronouns agree in gender, number and case. Each English sentence has exactly one German translation.

    python recipes/grammar.py --out DIR     # writes DIR/train.en, DIR/train.de, DIR/valid.en, …
    python recipes/grammar.py --out DIR --alignments     # also DIR/train.sure and DIR/train.possible, as in `links`, …
"""

import argparse
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from random import Random

import lexicon
import links
from lexicon import ACCUSATIVE, NOMINATIVE, POSSESSIVES, THE, Phrase, Verb, adjectives, entries, nouns, spaced

# ------------------------------------------------------------------------------------------------------------ clauses

# The order of the words after the finite verb of a German clause: parts with lower ranks come first.
PRONOUN, TIME, INDIRECT, LOCATION, DIRECT, NEGATION, OTHER, CLOSING, CLAUSE = range(9)


@dataclass(frozen=True)
class Part:
    """An object, adverbial or other part of a clause, with its rank in German and the noun phrase it contains."""

    english: str
    german: str
    rank: int
    phrase: Phrase | None = None


@dataclass(frozen=True)
class Clause:
    """A clause before its words are ordered. `tense` is habit, now (progressive), past or an English auxiliary.

    With a `unit`, the words of the verb and of its negation are marked as in `links`.
    """

    subject: Phrase
    verb: Verb
    tense: str
    parts: tuple[Part, ...] = ()
    time: tuple[str, ...] = ("", "")
    negated: bool = False
    unit: str = ""

    def marked(self, words: str, part: str) -> str:
        """Returns the words with the mark of a part of the verb: a auxiliary, b meaning, c to, d did, n negation."""
        return links.mark(words, self.unit + part) if self.unit else words


BE, HAVE, WANT = Verb("be/was", "sein/ist/gewesen", "state"), Verb("have/had", "haben"), Verb("want", "wollen")
BE_FORMS = {"habit": ("am", "is", "are"), "now": ("am", "is", "are"), "past": ("was", "was", "were")}
WITH_TO = {"want": (WANT, "habit"), "wanted": (WANT, "past"), "had to": (HAVE, "past")}
FINITE = {word: forms for word, *forms in entries(lexicon.FINITE)}


def english_verb(verb: Verb, tense: str, person: int) -> tuple[str, str, str]:
    """Returns the auxiliary, the words after it, and the form in a plain statement: ("did", "go", "went")."""
    base, third, past, progressive = verb.english
    if tense in WITH_TO:
        auxiliary, rest, plain = english_verb(*WITH_TO[tense], person)
        return auxiliary, f"{rest} to {base}", f"{plain} to {base}"
    if verb is BE and tense in BE_FORMS:
        return BE_FORMS[tense][person], "", BE_FORMS[tense][person]
    if tense == "habit":
        return ("does", base, third) if person == 1 else ("do", base, base)
    if tense == "past":
        return "did", base, past
    auxiliary, rest = (BE_FORMS["now"][person], progressive) if tense == "now" else (tense, base)
    return auxiliary, rest, f"{auxiliary} {rest}"


def english(clause: Clause) -> dict[str, str]:
    """Returns the clause in each English word order. Subordinate clauses have the order of main clauses."""
    auxiliary, rest, plain = english_verb(clause.verb, clause.tense, clause.subject.person)
    auxiliary = clause.marked(auxiliary, "d" if " to " in rest else "a" if rest else "b")
    rest, plain = marked_verb(clause, rest), marked_verb(clause, plain)
    parts = [clause.marked(part.english, "e") for part in clause.parts]
    pronouns = sum(part.rank == PRONOUN for part in clause.parts)
    parts.insert(pronouns, clause.marked(clause.verb.particle, "b"))  # "picks him up", but "picks up the man"
    subject, time = clause.subject.english, clause.time[0]
    negation = clause.marked("not", "n") if clause.negated else ""
    verb = re.sub(r"\bcan(\W\w*\W)? not\b", r"cannot\1", spaced(auxiliary, negation, rest)) if negation else plain
    return {
        "main": spaced(subject, verb, *parts, time),
        "fronted": spaced(f"{time}," if " " in time else time, subject, verb, *parts),
        "question": spaced(auxiliary, subject, negation, rest, *parts, time),
        "infinitive": spaced(negation, marked_verb(clause, f"to {clause.verb.english[0]}"), *parts, time),
    }


def marked_verb(clause: Clause, words: str) -> str:
    """Returns the words of an English verb with marks: auxiliaries, perhaps "to", and the verb itself."""
    *before, last = words.split() or [""]
    return spaced(*(clause.marked(word, "c" if word == "to" else "a") for word in before), clause.marked(last, "b"))


def german_verb(verb: Verb, tense: str, person: int) -> tuple[str, str]:
    """Returns the finite verb and the word that closes the clause: a prefix, a participle, an infinitive or nothing."""
    infinitive, third, participle = verb.german
    if tense in ("habit", "now"):
        return FINITE.get(infinitive, [infinitive.removesuffix("n"), third, infinitive])[person], verb.prefix
    if tense == "past" and verb is BE:
        return FINITE["was"][person], ""
    if tense == "past":
        auxiliary = "sein" if verb.prefix + infinitive in lexicon.WITH_SEIN.split() else "haben"
        return FINITE[auxiliary][person], verb.prefix + participle
    return FINITE[tense][person], verb.prefix + infinitive


def german(clause: Clause) -> dict[str, str]:
    """Returns the clause in each German word order: verb second (main, fronted), first or last, and infinitive."""
    finite, closing = german_verb(clause.verb, clause.tense, clause.subject.person)
    subject, prefix, time = clause.subject.german[NOMINATIVE], clause.verb.prefix, clause.time[1]
    has_kein = any(part.german.startswith("kein") for part in clause.parts)
    negation = clause.marked("nicht", "n") if clause.negated and not has_kein else ""
    finite, infinitive = clause.marked(finite, "b" if closing == prefix else "a"), clause.verb.german[0]
    parts = [replace(part, german=marked_part(clause, part.german)) for part in clause.parts]

    def rest(closing: str, time: str = time) -> str:
        added = [Part("", time, TIME), Part("", negation, NEGATION), Part("", clause.marked(closing, "b"), CLOSING)]
        return spaced(*(part.german for part in sorted([*parts, *added], key=lambda part: part.rank)))

    main = spaced(subject, finite, rest(closing))
    return {
        "main": main,
        "fronted": spaced(time, finite, subject, rest(closing, time="")) if time else main,
        "inverted": spaced(finite, subject, rest(closing)),
        "final": spaced(subject, rest(closing + finite if closing == prefix else f"{closing} {finite}")),
        "infinitive": rest(f"{prefix}zu{infinitive}" if prefix else f"{clause.marked('zu', 'c')} {infinitive}"),
    }


def marked_part(clause: Clause, words: str) -> str:
    """Returns the German words of a part with marks on "kein", which negates the verb, and on reflexive pronouns."""
    if clause.unit and words.startswith("kein"):
        words = links.also(words, f"{clause.unit}n")
    return clause.marked(words, "g")


# ------------------------------------------------------------------------------------------------------ random choices

HUMAN = ("person", "kin")
PRONOUN_OF = {pronoun.gender: pronoun for pronoun in [*lexicon.PERSONAL_PRONOUNS, lexicon.IT]}
WEATHER = replace(lexicon.IT, kind="weather")
SINGULAR, PLURAL = ["the", "the", "this", "a", "a", "every"], ["the", "the", "these", "many", "some"]
VERBS = [Verb(*entry, frame) for frame, table in lexicon.VERBS.items() for entry in entries(table)]
CLAUSE_VERBS = [Verb(*entry, frame) for frame, table in lexicon.CLAUSE_VERBS.items() for entry in entries(table)]
# Tenses to draw from; a tense that is listed twice is drawn twice as often.
ANY = "habit habit now now past past past will will can should want must"
PRESENT, PAST, FUTURE = "habit now want must can", "past past wanted had_to could", "will will can should want"


def some_phrase(rng: Random, kinds: str, *, negated: bool = False) -> Phrase:
    """Returns a random noun with a determiner and perhaps an adjective. If negated, it is definite or has "kein"."""
    noun = rng.choice(nouns(kinds))
    adjective = rng.choice(adjectives(noun.kind)) if rng.random() < 0.35 else ("", "")
    plural = noun.plural != "" and rng.random() < 0.3
    determiner = rng.choice(list(POSSESSIVES)) if noun.plural else ""
    if noun.plural and noun.kind != "kin":
        articles = [*PLURAL, rng.choice(list(lexicon.NUMBERS))] if plural else SINGULAR
        determiner = rng.choice([determiner, *articles])
    if negated and determiner not in ("the", "this", "these", *POSSESSIVES):
        determiner = "no"
    return lexicon.noun_phrase(noun, determiner, adjective, plural=plural)


def some_person(rng: Random, besides: str = "") -> Phrase:
    """Returns a person whose gender is not `besides`, so that a pronoun cannot mean this and another person."""
    person = rng.choice(lexicon.PERSONAL_PRONOUNS + lexicon.NAMES) if rng.random() < 0.5 else some_phrase(rng, "human")
    return person if person.gender != besides else some_person(rng, besides)


def marked(phrase: Phrase) -> Phrase:
    """Returns the phrase with new marks on its words."""
    words = links.word_by_word(phrase.english, phrase.english_object, *phrase.german)
    english, english_object, *german = links.renewed(*words)
    return replace(phrase, english=english, english_object=english_object, german=tuple(german))


def some_subject(rng: Random) -> Phrase:
    """Returns a person or a thing, perhaps with a relative clause, as in `the man who called Anna`."""
    form = rng.random()
    if form < 0.75:
        return some_person(rng)
    kinds, who = rng.choice([("human", "who"), ("ware", "that")])
    phrase = marked(some_phrase(rng, kinds))
    if form < 0.83:
        return phrase
    case, clause = NOMINATIVE, some_clause(rng, "habit past", replace(phrase, english="", german=("",)))
    if form < 0.92:
        verb = rng.choice([verb for verb in VERBS if verb.complements == [f"acc:{kinds}"]])
        who, case, clause = "that", ACCUSATIVE, Clause(marked(some_person(rng)), verb, "past", unit=links.new_unit())
    who, pronoun = links.word_by_word(who, THE[phrase.gender][case])
    words = f"{phrase.german[NOMINATIVE]}, {pronoun} {german(clause)['final']},"
    return replace(phrase, english=f"{phrase.english} {who} {english(clause)['main']}", german=(words,))


def object_part(rule: str, phrase: Phrase) -> Part:
    """Returns the phrase as an object. The rule is [English preposition=][German preposition+]case."""
    english_preposition, _, rest = rule.rpartition("=")
    preposition, _, case = rest.rpartition("+")
    rank = OTHER if preposition else PRONOUN if phrase.english_object else DIRECT if case == "acc" else INDIRECT
    german_words = spaced(preposition, phrase.german[ACCUSATIVE if case == "acc" else lexicon.DATIVE])
    english_words = spaced(english_preposition, phrase.english_object or phrase.english)
    return Part(english_words, re.sub("^in dem\\b", "im", re.sub("^in das\\b", "ins", german_words)), rank, phrase)


def marked_object(rule: str, phrase: Phrase) -> Part:
    """Returns the phrase as an object with marks. A preposition in one language alone has none."""
    part = object_part(rule, marked(phrase))
    if not ("=" in rule and "+" in rule):
        return part
    unit = links.new_unit()
    return replace(part, english=links.also(part.english, unit), german=links.also(part.german, unit))


def some_part(rng: Random, complement: str, subject: Phrase, negated: bool) -> Part:
    """Returns random words for a complement, in the notation of `lexicon.VERBS`."""
    rule, _, kinds = complement.partition(":")
    if kinds == "human" and rng.random() < 0.35:
        return marked_object(rule, some_person(rng, subject.gender))
    if kinds:
        return marked_object(rule, some_phrase(rng, kinds, negated=negated and rule == "acc"))
    if rule == "state":
        words, german_words = rng.choice(adjectives(subject.kind))
        degree, german_degree = rng.choice([("", ""), ("very", "sehr"), ("too", "zu")])
        return Part(*links.word_by_word(spaced(degree, words), spaced(german_degree, german_words)), rank=OTHER)
    if rule == "refl":
        return Part("", links.plain(subject.german[ACCUSATIVE]) if subject.gender == "1" else "sich", PRONOUN)
    if rule == "?":
        return replace(marked_object("in=in+dat", some_phrase(rng, "room")), rank=LOCATION)
    if rule == "to":
        clause = some_clause(rng, "habit", subject)
        return Part(english(clause)["infinitive"], ", " + german(clause)["infinitive"], CLAUSE)
    clause = some_clause(rng, ANY, some_person(rng, subject.gender))
    that, dass = links.word_by_word(*rule.split("="))
    return Part(f"{that} {english(clause)['main']}", f", {dass} {german(clause)['final']}", CLAUSE)


def some_clause(rng: Random, tenses: str, subject: Phrase, verbs: list[Verb] = VERBS, *, timed: float = 0.0) -> Clause:
    """Returns a clause about what the subject is or, for a person, does. `timed` is the probability of a time."""
    tense = rng.choice(tenses.split()).replace("_", " ")
    verb = rng.choice([verb for verb in verbs if tense != "now" or verb.english[0] not in lexicon.STATIVE])
    simple = ("habit", "past", "will")  # tenses of "to be"
    if subject.kind not in HUMAN or (tense in simple and rng.random() < 0.2):
        verb = BE
        tense = tense if tense in simple else "past" if tenses == PAST else "habit"
    negated = tense != "must" and rng.random() < 0.12
    complements = [word for word in verb.complements if word != "?" or (not negated and rng.random() < 0.3)]
    parts = tuple(some_part(rng, complement, subject, negated) for complement in complements)
    has_time = rng.random() < timed and not negated and verb not in CLAUSE_VERBS
    times = entries(lexicon.TIMES.get(tense, lexicon.TIMES["will"]))
    time = marked_time(*rng.choice(times)) if has_time else ("", "")
    return Clause(marked(subject), verb, tense, parts, time, negated, links.new_unit())


def marked_time(in_english: str, in_german: str) -> tuple[str, str]:
    """Returns the words for a time with marks. "ago" comes last, but "vor" comes first."""
    words = in_english.removesuffix(" ago")
    if words == in_english:
        return links.word_by_word(in_english, in_german)  # type: ignore[return-value]
    in_english, in_german = links.word_by_word(f"ago {words}", in_german)
    ago, words = in_english.split(maxsplit=1)
    return f"{words} {ago}", in_german


def linked_subject(rng: Random, clause: Clause) -> Phrase:
    """Returns the subject of the next clause: a pronoun for a noun of this clause, the weather, or another person."""
    candidates = [WEATHER, some_person(rng, clause.subject.gender)]
    for phrase in [clause.subject] * 2 + [part.phrase for part in clause.parts[:1] if part.phrase] * 2:
        pronoun = phrase if phrase.english_object else PRONOUN_OF[phrase.gender]
        is_it = phrase.kind not in HUMAN and phrase.gender != "p"
        candidates.append(replace(pronoun, kind=phrase.kind, english="it" if is_it else pronoun.english))
    return rng.choice(candidates)


# ---------------------------------------------------------------------------------------------------------- sentences

# Weight, English, German, tenses of the first clause, and tenses of the second clause if there is one.
SENTENCES = [
    (20, "{0[main]}.", "{0[main]}.", ANY, ""),
    (10, "{0[fronted]}.", "{0[fronted]}.", ANY, ""),
    (8, "{0[question]}?", "{0[inverted]}?", ANY, ""),
    (5, "why {0[question]}?", "warum {0[inverted]}?", ANY, ""),
    (4, "{0[main]} and {1[main]}.", "{0[main]} und {1[main]}.", "past", PAST),
    (4, "{0[main]}, but {1[main]}.", "{0[main]}, aber {1[main]}.", "now", PRESENT),
    (5, "{0[main]} because {1[main]}.", "{0[main]}, weil {1[final]}.", FUTURE, PRESENT),
    (5, "{0[main]} because {1[main]}.", "{0[main]}, weil {1[final]}.", "past", PAST),
    (4, "although {1[main]}, {0[main]}.", "obwohl {1[final]}, {0[inverted]}.", "now habit", PRESENT),
    (4, "although {1[main]}, {0[main]}.", "obwohl {1[final]}, {0[inverted]}.", "past", PAST),
    (4, "if {1[main]}, {0[main]}.", "wenn {1[final]}, {0[inverted]}.", FUTURE, PRESENT),
    (3, "while {1[main]}, {0[main]}.", "während {1[final]}, {0[inverted]}.", "now", "now"),
    (3, "when {1[main]}, {0[main]}.", "als {1[final]}, {0[inverted]}.", "past", "past"),
    (3, "{0[main]} before {1[main]}.", "{0[main]}, bevor {1[final]}.", "past", "past"),
]


def sentence(rng: Random) -> tuple[str, str]:
    """Returns a random sentence in English and in German."""
    source, target = marked_sentence(rng)
    return links.plain(source), links.plain(target)


def marked_sentence(rng: Random) -> tuple[str, str]:
    """Returns a random sentence in English and in German, with marks on words that translate each other."""
    _, source, target, tenses, second_tenses = rng.choices(SENTENCES, [row[0] for row in SENTENCES])[0]
    verbs = VERBS if second_tenses else VERBS + 2 * CLAUSE_VERBS
    clauses = [some_clause(rng, tenses, some_subject(rng), verbs, timed=0.4)]
    if second_tenses:
        clauses.append(some_clause(rng, second_tenses, linked_subject(rng, clauses[0])))
    source, target = source.format(*map(english, clauses)), target.format(*map(german, clauses))
    target = re.sub(",(?=[,.?])", "", target)  # the comma after a relative clause
    conjunction = links.new_unit()
    source, target = (links.mark(text, conjunction) for text in (source, target))
    return source[0].upper() + source[1:], target[0].upper() + target[1:]


def corpus(size: int, seed: int) -> list[tuple[str, str]]:
    """Returns `size` marked pairs. No sentence repeats in either language, so held-out pairs are new on both sides."""
    rng = Random(seed)
    pairs: list[tuple[str, str]] = []
    seen: set[str] = set()
    while len(pairs) < size:
        marked_pair = marked_sentence(rng)
        pair = list(map(links.plain, marked_pair))
        if seen.isdisjoint(pair):
            pairs.append(marked_pair)
            seen.update(pair)
    rng.shuffle(pairs)
    return pairs


def main() -> None:
    """Writes the training, validation and test sets."""
    parser = argparse.ArgumentParser(description="Write a small English-German corpus from a grammar.")
    parser.add_argument("--out", type=Path, required=True, help="folder to write to; created if it does not exist")
    for split, size in {"train": 8000, "valid": 500, "test": 500}.items():
        parser.add_argument(f"--{split}", type=int, default=size, help=f"pairs of {split}.en and {split}.de ({size})")
    parser.add_argument("--alignments", action="store_true", help="also write word alignments as 0-0 1-2 …")
    parser.add_argument("--seed", type=int, default=1, help="the same seed gives the same corpus (1)")
    options = parser.parse_args()
    sizes = {split: getattr(options, split) for split in ("train", "valid", "test")}
    if min(sizes.values()) < 1:
        parser.error("--train, --valid and --test must be at least 1")
    try:
        options.out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        parser.error(f"--out {options.out} cannot be made ({error.strerror}); choose another folder")
    sentences = iter(corpus(sum(sizes.values()), options.seed))
    for split, size in sizes.items():
        pairs = list(islice(sentences, size))
        for language, lines in zip(("en", "de"), zip(*pairs, strict=True), strict=True):
            write(options.out / f"{split}.{language}", map(links.plain, lines))
        if options.alignments:
            write(options.out / f"{split}.sure", (links.links(*pair, sure=True) for pair in pairs))
            write(options.out / f"{split}.possible", (links.links(*pair, sure=False) for pair in pairs))


def write(path: Path, lines: Iterable[str]) -> None:
    """Writes the lines to a file."""
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8", newline="\n")


if __name__ == "__main__":
    main()
