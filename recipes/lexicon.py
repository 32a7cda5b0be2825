"""The words of the example corpus, and the noun phrases that they form.

In the tables, "_" stands for a space, and a slash separates the forms of an irregular word.
"""

from dataclasses import dataclass

# By kind: English[/plural] German[/singular outside the nominative] gender [German plural]. Mass nouns have no plural.
NOUNS = {
    "person": "man/men Mann m Männer, woman/women Frau f Frauen, boy Junge/Jungen m Jungen, doctor Arzt m Ärzte, "
    "student Student/Studenten m Studenten, guest Gast m Gäste, teacher Lehrerin f Lehrerinnen, baker Bäcker m Bäcker",
    "kin": "neighbour Nachbar/Nachbarn m Nachbarn, friend Freund m Freunde, brother Bruder m Brüder, "
    "sister Schwester f Schwestern, uncle Onkel m Onkel, aunt Tante f Tanten, daughter Tochter f Töchter",
    "animal": "dog Hund m Hunde, cat Katze f Katzen, horse Pferd n Pferde, bird Vogel m Vögel, cow Kuh f Kühe",
    "text": "book Buch n Bücher, letter Brief m Briefe, newspaper Zeitung f Zeitungen, poem Gedicht n Gedichte",
    "food": "apple Apfel m Äpfel, pear Birne f Birnen, egg Ei n Eier, cake Kuchen m Kuchen, soup Suppe f Suppen",
    "drink": "coffee Kaffee m, tea Tee m, milk Milch f, water Wasser n, juice Saft m",
    "thing": "key Schlüssel m Schlüssel, picture Bild n Bilder, knife/knives Messer n Messer, cup Tasse f Tassen, "
    "umbrella Regenschirm m Regenschirme, coat Mantel m Mäntel, hat Hut m Hüte, shirt Hemd n Hemden",
    "machine": "lamp Lampe f Lampen, computer Computer m Computer, camera Kamera f Kameras, car Auto n Autos",
    "container": "box Kiste f Kisten, bag Tasche f Taschen, cupboard Schrank m Schränke, suitcase Koffer m Koffer",
    "room": "house Haus n Häuser, kitchen Küche f Küchen, garden Garten m Gärten, park Park m Parks",
}
UNIONS = {"human": "person kin", "ware": "text thing machine"}
ADJECTIVES = {  # by the kinds of noun they go with
    "person kin": "old alt, young jung, friendly freundlich, clever klug, famous berühmt, tired müde, sick krank",
    "text": "long lang, short kurz, interesting interessant, exciting spannend, new neu",
    "food drink": "fresh frisch, good gut, cold kalt, hot heiß",
    "animal room": "old alt, big groß, small klein, beautiful schön",
    "thing machine container": "new neu, old alt, cheap billig, heavy schwer, red rot",
    "weather": "dark dunkel, windy windig, foggy neblig",
}

# Verbs by their complements. A verb is English[_particle][/past[/-ing]] [prefix.]German[/3rd person[/participle]]. A
# complement is [English preposition=][German preposition+]case:kind of noun, or "refl" for a reflexive pronoun, or "?"
# for an optional place.
VERBS = {
    "acc:text ?": "write/wrote schreiben/schreibt/geschrieben",
    "acc:ware": "buy/bought kaufen, sell/sold verkaufen/verkauft/verkauft, need brauchen",
    "for=acc:ware ?": "look suchen",
    "acc:human ?": "see/saw/seeing sehen/sieht/gesehen, meet/met treffen/trifft/getroffen",
    "acc:human": "visit besuchen/besucht/besucht, ask fragen, love lieben, know/knew kennen/kennt/gekannt, "
    "pick_up ab.holen, call an.rufen/ruft/gerufen, invite ein.laden/lädt/geladen",
    "acc:food ?": "eat/ate essen/isst/gegessen, cook kochen",
    "acc:drink ?": "drink/drank trinken/trinkt/getrunken",
    "acc:animal ?": "wash waschen/wäscht/gewaschen",
    "acc:container": "open auf.machen, close zu.machen",
    "acc:machine": "turn_on ein.schalten/schaltet, turn_off aus.schalten/schaltet",
    "acc:thing into=in+acc:container": "pack packen, throw/threw werfen/wirft/geworfen",
    "acc:thing in=in+dat:container": "hide/hid verstecken/versteckt/versteckt",
    "dat:human ?": "help helfen/hilft/geholfen, thank danken, answer antworten/antwortet, follow folgen",
    "dat:human acc:ware": "show zeigen, send/sent schicken, give/gave geben/gibt/gegeben",
    "to=dat:human ?": "listen zu.hören",
    "for=auf+acc:human ?": "wait warten/wartet",
    "to=mit+dat:human ?": "talk sprechen/spricht/gesprochen",
    "about=über+acc:text": "talk sprechen/spricht/gesprochen, laugh lachen",
    "refl about=über+acc:human": "complain beschweren/beschwert/beschwert",
    "into=in+acc:room": "go/went gehen/geht/gegangen, come/came kommen/kommt/gekommen",
    "in=in+dat:room": "stay bleiben/bleibt/geblieben, fall_asleep/fell ein.schlafen/schläft/geschlafen",
    "?": "sleep/slept schlafen/schläft/geschlafen, work arbeiten/arbeitet, sing/sang singen/singt/gesungen",
    "": "get_up/got/getting auf.stehen/steht/gestanden, wake_up/woke auf.wachen, go_shopping/went ein.kaufen, "
    "watch_television fern.sehen/sieht/gesehen, come_back/came zurück.kommen/kommt/gekommen",
}
# Verbs that introduce another clause, by its conjunction; "to" stands for an infinitive.
CLAUSE_VERBS = {
    "that=dass": "say/said sagen, think/thought glauben, know/knew wissen/weiß/gewusst, hope hoffen",
    "whether=ob": "ask fragen, wonder überlegen/überlegt/überlegt",
    "to": "plan/planned/planning planen, begin/began/beginning an.fangen/fängt/gefangen",
}
STATIVE = ["know", "love", "need"]  # verbs without a progressive
# Verbs that form the perfect with "sein".
WITH_SEIN = "folgen gehen kommen bleiben aufstehen aufwachen zurückkommen einschlafen"
FINITE = (  # the forms for ich, er and wir, of irregular verbs and of the verbs that translate English auxiliaries
    "sein bin ist sind, haben habe hat haben, wissen weiß weiß wissen, will werde wird werden, can kann kann können, "
    "should sollte sollte sollten, must muss muss müssen, want will will wollen, could konnte konnte konnten, "
    "had_to musste musste mussten, wanted wollte wollte wollten, was war war waren"
)
TIMES = {
    "habit": "every_day jeden_Tag, every_evening jeden_Abend, on_Sundays sonntags",
    "now": "now jetzt, today heute, at_the_moment im_Moment",
    "past": "yesterday gestern, last_week letzte_Woche, this_morning heute_Morgen, three_days_ago vor_drei_Tagen",
    "will": "tomorrow morgen, next_week nächste_Woche, on_Monday am_Montag, on_Friday am_Freitag",
}
UNITS = "two zwei, three drei, four vier, five fünf, six sechs, seven sieben, eight acht, nine neun"
TENS = "twenty zwanzig, thirty dreißig, forty vierzig, fifty fünfzig, sixty sechzig, seventy siebzig"


def entries(table: str) -> list[tuple[str, ...]]:
    """Returns the words of each entry: `on_Monday am_Montag, …` gives [("on Monday", "am Montag"), …]."""
    return [tuple(word.replace("_", " ") for word in entry.split()) for entry in table.split(", ")]


def add_s(word: str) -> str:
    """Returns the regular plural of an English noun, or the third person of a verb."""
    return word + ("es" if word.endswith(("o", "x", "sh", "ch")) else "s")


class Noun:
    """A noun, made from an entry of NOUNS. `oblique` is the German singular outside the nominative."""

    def __init__(self, kind: str, english: str, german: str, gender: str, plural: str = "") -> None:
        self.kind, self.gender, self.plural = kind, gender, plural
        self.english, _, irregular = english.partition("/")
        self.english_plural = irregular or add_s(self.english)
        self.german, _, oblique = german.partition("/")
        self.oblique = oblique or self.german


class Verb:
    """A verb, made from an entry of VERBS.

    Attributes:
        english: base, third person, past and -ing form.
        german: infinitive, third person and participle, without the separable prefix.
    """

    def __init__(self, english: str, german: str, complements: str = "") -> None:
        words, past, progressive, *_ = f"{english}//".split("/")
        base, _, self.particle = words.partition(" ")
        stem = base.removesuffix("e")
        self.english = (base, add_s(base), past or stem + "ed", progressive or stem + "ing")
        self.prefix, _, forms = german.rpartition(".")
        infinitive, third, participle, *_ = f"{forms}//".split("/")
        third = third or infinitive.removesuffix("en") + "t"
        self.german = (infinitive, third, participle or "ge" + third)
        self.complements = complements.split()


ALL_NOUNS = [Noun(kind, *entry) for kind, table in NOUNS.items() for entry in entries(table)]


def nouns(kinds: str) -> list[Noun]:
    """Returns the nouns of a kind or of a union of kinds."""
    wanted = UNIONS.get(kinds, kinds).split()
    return [noun for noun in ALL_NOUNS if noun.kind in wanted]


def adjectives(kind: str) -> list[tuple[str, ...]]:
    """Returns the pairs of English and German adjectives that go with a kind of noun."""
    return [adjective for kinds, table in ADJECTIVES.items() if kind in kinds.split() for adjective in entries(table)]


NOMINATIVE, ACCUSATIVE, DATIVE = range(3)
# Endings by gender (p is the plural) and case. Strong endings are those of "dieser". Adjectives have weak endings after
# an article.
THE = {"m": ("der", "den", "dem"), "f": ("die", "die", "der"), "n": ("das", "das", "dem"), "p": ("die", "die", "den")}
STRONG = {"m": ("er", "en", "em"), "f": ("e", "e", "er"), "n": ("es", "es", "em"), "p": ("e", "e", "en")}
WEAK = {"m": ("e", "en", "en"), "f": ("e", "e", "en"), "n": ("e", "e", "en"), "p": ("en", "en", "en")}
# Stems of German determiners by the English determiners. "no" stands for "kein", which is "not a" in English.
DER_WORDS = {"this": "dies", "these": "dies", "every": "jed"}
POSSESSIVES = {"my": "mein", "his": "sein", "her": "ihr", "our": "unser", "their": "ihr"}
EIN_WORDS = {"a": "ein", "no": "kein", **POSSESSIVES}
COUNT_WORDS = {"many": "viel", "some": "einig"}
NUMBERS = dict(entries(UNITS))
NUMBERS |= {f"{ten}-{unit}": f"{NUMBERS[unit]}und{zig}" for ten, zig in entries(TENS) for unit in NUMBERS}


@dataclass(frozen=True)
class Phrase:
    """A noun phrase in English and in the German nominative, accusative and dative."""

    english: str
    german: tuple[str, ...]
    gender: str  # m, f, n, p for plurals, or 1 for "I" and "we"
    person: int = 1  # 0 for "I", 2 for plurals
    kind: str = "person"
    english_object: str = ""  # the object form of a pronoun, such as "me"


PERSONAL_PRONOUNS = [
    Phrase("I", ("ich", "mich", "mir"), "1", 0, english_object="me"),
    Phrase("we", ("wir", "uns", "uns"), "1", 2, english_object="us"),
    Phrase("he", ("er", "ihn", "ihm"), "m", english_object="him"),
    Phrase("she", ("sie", "sie", "ihr"), "f", english_object="her"),
    Phrase("they", ("sie", "sie", "ihnen"), "p", 2, english_object="them"),
]
IT = Phrase("it", ("es", "es", "ihm"), "n", english_object="it")
NAMES = [Phrase(n, (n, n, n), gender) for n, gender in entries("Anna f, Peter m, Maria f, Paul m, Emma f, Lukas m")]


def spaced(*words: str) -> str:
    """Joins the words that are not empty, without a space before a comma."""
    return " ".join(word for word in words if word).replace(" ,", ",")


def german_noun_phrase(noun: Noun, determiner: str, adjective: str, gender: str, case: int) -> str:
    """Returns the phrase in one case, with the German determiner for the English one. Plurals have gender p."""
    strong, weak = STRONG[gender][case], WEAK[gender][case]
    if determiner == "the":
        article, ending = THE[gender][case], weak
    elif determiner in EIN_WORDS and (gender, case) in [("m", NOMINATIVE), ("n", NOMINATIVE), ("n", ACCUSATIVE)]:
        article, ending = EIN_WORDS[determiner], strong
    elif determiner in EIN_WORDS | DER_WORDS:
        article, ending = (EIN_WORDS | DER_WORDS)[determiner] + strong, weak
    elif determiner in COUNT_WORDS:
        article, ending = COUNT_WORDS[determiner] + strong, strong
    else:
        article, ending = NUMBERS.get(determiner, ""), strong
    word = noun.plural if gender == "p" else noun.german if case == NOMINATIVE else noun.oblique
    plural_n = "n" if gender == "p" and case == DATIVE and word[-1] not in "ns" else ""
    return spaced(article, adjective and adjective.removesuffix("e") + ending, word + plural_n)


def noun_phrase(noun: Noun, determiner: str, adjective: tuple[str, ...] = ("", ""), *, plural: bool = False) -> Phrase:
    """Returns a noun in both languages, with an English determiner and perhaps an English and a German adjective."""
    gender = "p" if plural else noun.gender
    german = tuple(german_noun_phrase(noun, determiner, adjective[1], gender, case) for case in range(3))
    words = spaced(adjective[0], noun.english_plural if plural else noun.english)
    if determiner == "no":
        determiner = "a" if noun.plural and not plural else ""
    article = "an" if determiner == "a" and words[0] in "aeiou" else determiner
    return Phrase(spaced(article, words), german, gender, 2 if plural else 1, noun.kind)
