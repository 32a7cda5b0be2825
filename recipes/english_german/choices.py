"""Chooses words at random: noun phrases, what goes with a verb, clauses."""

from dataclasses import replace
from random import Random

from english_german import lexicon
from english_german.clauses import (
    ACCUSATIVE,
    BE,
    CLOSE,
    DATIVE,
    DIRECT,
    HAVE,
    INDIRECT,
    LOCATION,
    PLACE,
    PREPOSITIONAL,
    PRONOUN,
    Clause,
    Complement,
    NounPhrase,
    noun_phrase,
)  # fmt: skip
from english_german.lexicon import Adjective, Noun, Pair, Verb, pairs

PRONOUNS = [
    NounPhrase("I", ("ich", "mich", "mir"), "1s", "", "me", True),
    NounPhrase("he", ("er", "ihn", "ihm"), "3s", "m", "him", True),
    NounPhrase("she", ("sie", "sie", "ihr"), "3s", "f", "her", True),
    NounPhrase("we", ("wir", "uns", "uns"), "1p", "", "us", True),
    NounPhrase("they", ("sie", "sie", "ihnen"), "3p", "p", "them", True),
]
IT = NounPhrase("it", ("es", "es", "ihm"), "3s", "n", "it", True)
NAMES = [NounPhrase(name, (name, name, name), "3s", gender) for name, gender in pairs(lexicon.NAMES)]
REFLEXIVE = {"1s": "mich", "1p": "uns", "3s": "sich", "3p": "sich"}
POSSESSIVES = ["my", "his", "her", "our", "their"]
TENSES = {"h": "habit", "n": "now", "p": "past", "f": "future"}

# ------------------------------------------------------------------------------------------------------- noun phrases


def some_adjective(rng: Random, noun: Noun) -> Adjective | None:
    fitting = [adjective for adjective in lexicon.ADJECTIVES if set(adjective.kinds) & set(noun.kinds)]
    return rng.choice(fitting) if fitting and rng.random() < 0.35 else None


def counted(rng: Random, noun: Noun) -> NounPhrase:
    """`many new books`, `three books`, `27 books`."""
    word, german_word = rng.choice([("many", "many"), ("some", "some"), rng.choice(pairs(lexicon.NUMBERS))])
    if rng.random() < 0.15 and "person" not in noun.kinds:
        word = german_word = str(rng.randint(11, 40))
    return noun_phrase(noun, word, some_adjective(rng, noun), german=german_word, plural=True)


def definite(rng: Random, noun: Noun, *, with_adjective: bool = True) -> NounPhrase:
    adjective = some_adjective(rng, noun) if with_adjective else None
    plural = rng.random() < 0.25
    if "parent" in noun.kinds or "kin" in noun.kinds:
        return noun_phrase(noun, rng.choice(POSSESSIVES), plural=plural and "kin" in noun.kinds)
    this = "these" if plural else "this"
    determiner = rng.choices(["the", rng.choice(POSSESSIVES), this], [5, 0 if "unowned" in noun.kinds else 3, 1])[0]
    return noun_phrase(noun, determiner, adjective, plural=plural)


def some_noun(rng: Random, noun: Noun, *, negated: bool = False) -> NounPhrase:
    """A noun phrase of any kind; of a negated clause, one that can be said with "kein"."""
    if not noun.english_plural:
        return noun_phrase(noun, "", some_adjective(rng, noun), german="no" if negated else "")
    if rng.random() < 0.5 or "parent" in noun.kinds or "kin" in noun.kinds:
        return definite(rng, noun)
    if negated or rng.random() < 0.5:
        return noun_phrase(noun, "a", some_adjective(rng, noun), german="no" if negated else "a")
    return counted(rng, noun)


def some_subject(rng: Random, kind: str) -> NounPhrase:
    draw = rng.random()
    if kind in ("person", "living") and draw < 0.65:
        if draw < 0.06:
            first, second = rng.sample(NAMES, 2)
            both = f"{first.english} und {second.english}"
            return NounPhrase(f"{first.english} and {second.english}", (both, both, both), "3p", "p")
        return rng.choice(NAMES if draw < 0.35 else PRONOUNS)
    noun = rng.choice(lexicon.nouns(kind))
    if draw > 0.92 and "kin" not in noun.kinds and "parent" not in noun.kinds:
        return noun_phrase(noun, "every", some_adjective(rng, noun)) if draw > 0.96 else counted(rng, noun)
    return definite(rng, noun)


def other_person(rng: Random, subject: NounPhrase) -> NounPhrase:
    """A pronoun or name that cannot be taken for the subject."""
    choices = [p for p in [*PRONOUNS, *NAMES] if (p.person[0], p.gender) != (subject.person[0], subject.gender)]
    return rng.choice(choices)


def other_subject(rng: Random, subject: NounPhrase) -> NounPhrase:
    """Somebody else to do something, in another clause of the sentence."""
    other = some_subject(rng, "person")
    return other_person(rng, subject) if (other.person, other.gender) == (subject.person, subject.gender) else other


def pronoun_for(phrase: NounPhrase) -> NounPhrase:
    """What a noun phrase is called the second time."""
    if phrase.is_pronoun:
        return phrase
    return next(p for p in PRONOUNS if (p.person, p.gender) == (phrase.person, phrase.gender))


def person_of_known_gender(rng: Random) -> NounPhrase:
    """A subject that a pronoun can take up: no child or girl, who are grammatically neuter."""
    while True:
        subject = some_subject(rng, "person")
        if subject.gender != "n" and "every" not in subject.english:
            return subject


# -------------------------------------------------------------------------------------------------------- complements


def object_of(rng: Random, spec: str, subject: NounPhrase, negated: bool) -> Complement:
    """`for=auf+acc:human` -> `for the man`, `auf den Mann`."""
    english_preposition, _, rest = spec.rpartition("=")
    rule, _, kind = rest.partition(":")
    preposition, _, case_name = rule.rpartition("+")
    is_direct = rule == "acc"
    if kind in ("human", "living", "topic") and rng.random() < 0.35:
        phrase = other_person(rng, subject)
    else:
        noun = rng.choice(lexicon.nouns(kind))
        phrase = some_noun(rng, noun, negated=negated and is_direct)
        if negated and not is_direct:
            phrase = definite(rng, noun)
    case = ACCUSATIVE if case_name == "acc" else DATIVE
    rank = PREPOSITIONAL if preposition else INDIRECT if case == DATIVE else DIRECT
    if phrase.is_pronoun and not preposition:
        rank = PRONOUN
    words = f"{preposition} {phrase.german[case]}".strip()
    return Complement(f"{english_preposition} {phrase.as_object}".strip(), words, rank)


def located(rng: Random, rule: str) -> Complement:
    """Where something is (dative), or where it is put (`onto`, accusative)."""
    if rule == "landmark":
        preposition, german_preposition = rng.choice(pairs(lexicon.LANDMARK_PREPOSITIONS))
        noun = rng.choice(lexicon.nouns("landmark"))
    else:
        preposition, german_preposition, noun = rng.choice(lexicon.SURFACES)
    place = noun_phrase(noun, "the").german[ACCUSATIVE if rule == "onto" else DATIVE]
    words = f"{german_preposition} {place}".replace("in dem ", "im ")
    return Complement(f"{preposition} the {noun.english}", words, PLACE)


def complement(rng: Random, spec: str, subject: NounPhrase, negated: bool) -> Complement:
    if spec == "refl":
        return Complement("", REFLEXIVE[subject.person], PRONOUN)
    if spec == "price":
        euros = str(rng.randint(2, 99))
        return Complement(f"{euros} euros", f"{euros} Euro", CLOSE)
    if spec in ("where", "onto", "landmark"):
        return located(rng, spec)
    if spec == "place?":
        return Complement(*rng.choice(pairs(lexicon.FIXED["place"])), LOCATION)
    if spec in lexicon.FIXED:
        rank = CLOSE if spec in ("game", "language") else PREPOSITIONAL if spec == "event" else PLACE
        return Complement(*rng.choice(pairs(lexicon.FIXED[spec])), rank)
    return object_of(rng, spec, subject, negated)


# ------------------------------------------------------------------------------------------------------------ clauses


def some_time(rng: Random, tense: str) -> Pair:
    """When, in words that go with the tense (a letter of lexicon.TIMES)."""
    if tense == "p" and rng.random() < 0.25:
        (number, german_number), (unit, german_unit) = (
            rng.choice(pairs(lexicon.NUMBERS)),
            rng.choice(pairs(lexicon.AGO)),
        )
        return f"{number} {unit} ago", f"vor {german_number} {german_unit}"
    time, german_time = rng.choice(pairs(lexicon.TIMES[tense]))
    if time in lexicon.WITH_CLOCK and rng.random() < 0.3:
        hour = rng.randint(1, 12)
        return f"{time} at {hour} o'clock", f"{german_time} um {hour} Uhr"
    return time, german_time


def can_be_negated(verb: Verb, tense: str) -> bool:
    fixed = any(spec in ("game", "language", "price") for spec in verb.complements)
    return not fixed and tense not in ("must", "had to")


def some_complements(
    rng: Random, verb: Verb, subject: NounPhrase, negated: bool, with_place: float
) -> tuple[Complement, ...]:
    specs = [s for s in verb.complements if not s.endswith("?") or (not negated and rng.random() < with_place)]
    return tuple(complement(rng, spec, subject, negated) for spec in specs)


def some_clause(
    rng: Random, tenses: str = "hnpfms", subject: NounPhrase | None = None, *, timed: float = 0.5, negated: float = 0.12
) -> Clause:
    """A clause about a person or, unless the subject is given, anything; `s` among the tenses is a state's present."""
    fits = [v for v in lexicon.VERBS if set(v.tenses or "s") & set(tenses)]
    if subject:
        fits = [v for v in fits if v.subject in ("person", "living")]
    verb = rng.choice(fits)
    letter = rng.choice([t for t in verb.tenses or "s" if t in tenses])
    subject = subject or (IT if verb.subject == "it" else some_subject(rng, verb.subject))
    tense = rng.choice(["can", "should", "must", "want"]) if letter == "m" else TENSES.get(letter, "habit")
    is_negated = letter != "s" and can_be_negated(verb, tense) and rng.random() < negated
    complements = some_complements(rng, verb, subject, is_negated, with_place=0.3)
    clause = Clause(subject, verb, tense, complements, negated=is_negated)
    if is_negated:
        clause = replace(clause, nicht=not any(c.german.startswith("kein") for c in complements))
    return with_time(rng, clause, letter, timed)


def with_time(rng: Random, clause: Clause, letter: str, timed: float) -> Clause:
    """`they put` is present or past: such a verb always says when."""
    base, _, past, _ = clause.verb.english
    needed = base == past and letter in "hp"
    if letter == "s" or (not needed and rng.random() >= timed) or (clause.negated and letter == "h"):
        return clause
    if letter == "h" and rng.random() < 0.5:
        return replace(clause, frequency=rng.choice(pairs(lexicon.FREQUENCIES)))
    return replace(clause, time=some_time(rng, letter))


def be(subject: NounPhrase, tense: str, words: Pair, *, negated: bool = False) -> Clause:
    return Clause(subject, BE, tense, (Complement(*words, CLOSE),), negated=negated)


def some_state(rng: Random, subject: NounPhrase, tense: str) -> Clause:
    """`she is very tired`, `she has no time`: present or past."""
    if rng.random() < 0.4:
        return Clause(subject, HAVE, tense, (Complement(*rng.choice(pairs(lexicon.HAVINGS)), DIRECT),))
    state, german_state = rng.choice(pairs(lexicon.STATES))
    degree, german_degree = rng.choice([("", ""), ("very ", "sehr "), ("too ", "zu ")])
    return be(subject, tense, (degree + state, german_degree + german_state), negated=rng.random() < 0.15)


def some_weather(rng: Random, tense: str) -> Clause:
    if rng.random() < 0.5:
        return be(IT, tense, rng.choice(pairs(lexicon.WEATHER)))
    verb = rng.choice([verb for verb in lexicon.VERBS if verb.subject == "it"])
    return Clause(IT, verb, "now" if tense == "habit" else tense)
