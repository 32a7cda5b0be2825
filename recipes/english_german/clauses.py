"""How noun phrases and clauses are put together in English and German. Nothing is random here."""

from dataclasses import dataclass, replace

from english_german.lexicon import Adjective, Noun, Pair, Verb

# ------------------------------------------------------------------------------------------------------- noun phrases

# Endings of "dieser" and of adjectives without an article, in nominative, accusative, dative; p is the plural.
STRONG = {"m": ("er", "en", "em"), "f": ("e", "e", "er"), "n": ("es", "es", "em"), "p": ("e", "e", "en")}
THE = {"m": ("der", "den", "dem"), "f": ("die", "die", "der"), "n": ("das", "das", "dem"), "p": ("die", "die", "den")}
NOMINATIVE, ACCUSATIVE, DATIVE = range(3)
# Determiners by their English names. Any other (a number) has no endings.
DER_WORDS = {"this": "dies", "these": "dies", "every": "jed"}
EIN_WORDS = {"a": "ein", "no": "kein", "my": "mein", "his": "sein", "her": "ihr", "our": "unser", "their": "ihr"}
COUNTING = {"many": "viel", "some": "einig"}


@dataclass(frozen=True)
class NounPhrase:
    """A noun phrase in both languages: `german` in nominative, accusative and dative, `person` 1s, 3s, 1p or 3p."""

    english: str
    german: tuple[str, str, str]
    person: str = "3s"
    gender: str = ""
    english_object: str = ""
    is_pronoun: bool = False

    @property
    def as_object(self) -> str:
        return self.english_object or self.english


def _is_bare(determiner: str, gender: str, case: int) -> bool:
    """Whether ein, kein, mein, … stand without an ending: "ein alter Mann", "ein altes Haus"."""
    masculine, neuter = gender == "m" and case == NOMINATIVE, gender == "n" and case != DATIVE
    return determiner in EIN_WORDS and (masculine or neuter)


def german_determiner(determiner: str, gender: str, case: int) -> str:
    if determiner == "the":
        return THE[gender][case]
    stem = {**DER_WORDS, **EIN_WORDS, **COUNTING}.get(determiner)
    if stem is None:
        return determiner
    return stem if _is_bare(determiner, gender, case) else stem + STRONG[gender][case]


def adjective_ending(determiner: str, gender: str, case: int) -> str:
    """An adjective shows gender and case where the determiner does not, and is weak elsewhere."""
    if determiner not in ("the", *DER_WORDS, *EIN_WORDS) or _is_bare(determiner, gender, case):
        return STRONG[gender][case]
    if gender == "p" or case == DATIVE or (case == ACCUSATIVE and gender == "m"):
        return "en"
    return "e"


def german_noun(noun: Noun, gender: str, case: int) -> str:
    if gender != "p":
        return noun.german + (noun.weak if case != NOMINATIVE else "")
    return noun.plural + ("n" if case == DATIVE and noun.plural[-1] not in "ns" else "")


def noun_phrase(
    noun: Noun, english: str, adjective: Adjective | None = None, *, german: str | None = None, plural: bool = False
) -> NounPhrase:
    """`english` and `german` are the determiners; German ones go by their English names and default to the same."""
    determiner = english if german is None else german
    gender = "p" if plural else noun.gender

    def in_case(case: int) -> str:
        ending = adjective_ending(determiner, gender, case)
        described = [adjective.stem + ending] if adjective else []
        words = [german_determiner(determiner, gender, case), *described, german_noun(noun, gender, case)]
        return " ".join(words).strip()

    words = [adjective.english] if adjective else []
    words.append(noun.english_plural if plural else noun.english)
    article = "an" if english == "a" and words[0][0] in "aeiou" else english
    forms = (in_case(NOMINATIVE), in_case(ACCUSATIVE), in_case(DATIVE))
    return NounPhrase(" ".join([article, *words]).strip(), forms, "3p" if plural else "3s", gender)


# ------------------------------------------------------------------------------------------------------------ clauses

# What stands between the finite verb and the end of a German clause, in this order.
# LOCATION is where something happens, PLACE is where it goes or stays.
PRONOUN, TIME, INDIRECT, LOCATION, DIRECT, NEGATION, PREPOSITIONAL, PLACE, CLOSE = range(9)


@dataclass(frozen=True)
class Complement:
    """An object or the like: what it is in both languages, and its place in the German clause."""

    english: str
    german: str
    rank: int


@dataclass(frozen=True)
class Clause:
    """A clause before its words are put in order.

    `tense` is habit, now, past, future or a modal verb; `time` and `frequency` are pairs of English and German; `nicht`
    says whether a negation is said with "nicht" (else an object says "kein").
    """

    subject: NounPhrase
    verb: Verb
    tense: str
    complements: tuple[Complement, ...] = ()
    time: Pair | None = None
    frequency: Pair | None = None
    negated: bool = False
    nicht: bool = True


BE = Verb(("be", "is", "was", "being"), "", "", "sein", "ist", "ist", "gewesen", "person", (), "")
HAVE = Verb(("have", "has", "had", "having"), "", "", "haben", "hat", "hat", "gehabt", "person", (), "")

_BE_FORMS = {"1s": ("am", "was"), "3s": ("is", "was"), "1p": ("are", "were"), "3p": ("are", "were")}
# Verbs with "to": their forms, and whether they are meant as past.
_WITH_TO = {
    "want": (("want", "wants", "wanted", "wanting"), False),
    "wanted": (("want", "wants", "wanted", "wanting"), True),
    "had to": (HAVE.english, True),
}
# 1st person singular, 3rd person singular, plural.
_GERMAN_FORMS = {
    "future": ("werde", "wird", "werden"),
    "can": ("kann", "kann", "können"),
    "should": ("sollte", "sollte", "sollten"),
    "must": ("muss", "muss", "müssen"),
    "want": ("will", "will", "wollen"),
    "could": ("konnte", "konnte", "konnten"),
    "had to": ("musste", "musste", "mussten"),
    "wanted": ("wollte", "wollte", "wollten"),
}
_IRREGULAR = {
    "sein": ("bin", "ist", "sind"),
    "haben": ("habe", "hat", "haben"),
    "wissen": ("weiß", "weiß", "wissen"),
}
# These two say the past in one word.
_PRETERITE = {"sein": ("war", "war", "waren"), "haben": ("hatte", "hatte", "hatten")}


def _english_verb(verb: Verb, tense: str, person: str) -> tuple[str, str, str]:
    """Auxiliary, what follows it, and what a plain statement says for the two."""
    base, third, past, progressive = verb.english
    if verb is BE and tense in ("habit", "past"):
        form = _BE_FORMS[person][tense == "past"]
        return form, "", form
    if tense == "now":
        form = _BE_FORMS[person][0]
        return form, progressive, f"{form} {progressive}"
    if tense == "habit":
        return ("does", base, third) if person == "3s" else ("do", base, base)
    if tense == "past":
        return "did", base, past
    if tense in _WITH_TO:
        forms, is_past = _WITH_TO[tense]
        to = replace(verb, english=forms)
        auxiliary, rest, joined = _english_verb(to, "past" if is_past else "habit", person)
        return auxiliary, f"{rest} to {base}", f"{joined} to {base}"
    auxiliary = "will" if tense == "future" else tense
    return auxiliary, base, f"{auxiliary} {base}"


def _english_rest(clause: Clause) -> list[str]:
    """What follows the verb: a particle yields to a pronoun ("picks him up"), then objects, place and time."""
    objects = [complement.english for complement in clause.complements]
    if clause.verb.particle:
        after_pronoun = bool(clause.complements) and clause.complements[0].rank == PRONOUN
        objects.insert(1 if after_pronoun else 0, clause.verb.particle)
    return objects + ([clause.time[0]] if clause.time else [])


def english(clause: Clause, order: str = "main") -> str:
    """The clause in English: main (subordinate clauses are alike), fronted (time first), question or infinitive."""
    auxiliary, rest, joined = _english_verb(clause.verb, clause.tense, clause.subject.person)
    after = _english_rest(clause)
    if order == "infinitive":
        return _sentence(["to", clause.verb.english[0], *after])
    not_auxiliary = "cannot" if auxiliary == "can" else f"{auxiliary} not"
    subject, often = clause.subject.english, clause.frequency[0] if clause.frequency else ""
    if order == "question":
        return _sentence([auxiliary, subject, often, rest, *after])
    verb = [not_auxiliary, rest] if clause.negated else [often, joined]
    if order == "fronted":
        time = after.pop()
        return _sentence([time + ("," if " " in time else ""), subject, *verb, *after])
    return _sentence([subject, *verb, *after])


def _german_verb(clause: Clause) -> tuple[str, list[str]]:
    """The finite verb, and what closes the clause: a prefix, participle or infinitive."""
    verb, person = clause.verb, {"1s": 0, "3s": 1}.get(clause.subject.person, 2)
    regular = (verb.infinitive[:-1], verb.third, verb.infinitive)
    if clause.tense in ("habit", "now"):
        return _IRREGULAR.get(verb.infinitive, regular)[person], [verb.prefix]
    if clause.tense == "past" and verb.infinitive in _PRETERITE:
        return _PRETERITE[verb.infinitive][person], []
    if clause.tense == "past":
        return _IRREGULAR["haben" if verb.auxiliary == "hat" else "sein"][person], [verb.participle]
    return _GERMAN_FORMS[clause.tense][person], [verb.prefix + verb.infinitive]


def _german_middle(clause: Clause, with_time: bool = True) -> list[str]:
    parts = list(clause.complements)
    for when in (clause.time if with_time else None, clause.frequency):
        if when:
            parts.append(Complement(when[0], when[1], TIME))
    if clause.negated and clause.nicht:
        parts.append(Complement("not", "nicht", NEGATION))
    return [part.german for part in sorted(parts, key=lambda part: part.rank)]


def german(clause: Clause, order: str = "main") -> str:
    """The clause in German: main (verb second), fronted (time first), inverted (verb first), final or infinitive."""
    finite, closing = _german_verb(clause)
    subject, middle = clause.subject.german[NOMINATIVE], _german_middle(clause, with_time=order != "fronted")
    if order == "infinitive":
        return _sentence(
            [*middle, (clause.verb.prefix + "zu" if clause.verb.prefix else "zu ") + clause.verb.infinitive]
        )
    if order == "final":
        is_split = bool(clause.verb.prefix) and closing == [clause.verb.prefix]
        return _sentence([subject, *middle, *([closing[0] + finite] if is_split else [*closing, finite])])
    if order == "main":
        return _sentence([subject, finite, *middle, *closing])
    time = clause.time[1] if clause.time and order == "fronted" else ""
    return _sentence([time, finite, subject, *middle, *closing])


def _sentence(words: list[str]) -> str:
    return " ".join(word for word in words if word)
