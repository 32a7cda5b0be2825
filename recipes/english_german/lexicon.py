"""The words: tables written by hand, and what they are read into. In the tables `_` stands for a space."""

from dataclasses import dataclass

# Something in English and in German.
Pair = tuple[str, str]

# English, plural | German, gender (+ending: taken in every case but the nominative), plural | kinds; what is unowned is
# never "mine"
_NOUNS = """
man men               | Mann m Männer             | person unowned
woman women           | Frau f Frauen             | person unowned
child children        | Kind n Kinder             | person unowned
boy boys              | Junge m+n Jungen          | person unowned
girl girls            | Mädchen n Mädchen         | person unowned
teacher teachers      | Lehrerin f Lehrerinnen    | person
doctor doctors        | Arzt m Ärzte              | person
neighbour neighbours  | Nachbar m+n Nachbarn      | person
student students      | Student m+en Studenten    | person
guest guests          | Gast m Gäste              | person
baker bakers          | Bäcker m Bäcker           | person
singer singers        | Sängerin f Sängerinnen    | person artist unowned
colleague colleagues  | Kollege m+n Kollegen      | person
friend friends        | Freund m Freunde          | kin
brother brothers      | Bruder m Brüder           | kin
sister sisters        | Schwester f Schwestern    | kin
mother mothers        | Mutter f Mütter           | parent
father fathers        | Vater m Väter             | parent
grandmother grandmothers | Großmutter f Großmütter | parent
uncle uncles          | Onkel m Onkel             | kin
aunt aunts            | Tante f Tanten            | kin
dog dogs              | Hund m Hunde              | animal washable
cat cats              | Katze f Katzen            | animal
horse horses          | Pferd n Pferde            | animal washable
bird birds            | Vogel m Vögel             | animal
cow cows              | Kuh f Kühe                | animal
rabbit rabbits        | Kaninchen n Kaninchen     | animal
book books            | Buch n Bücher             | text gift small writing
letter letters        | Brief m Briefe            | text small writing
newspaper newspapers  | Zeitung f Zeitungen       | text small
story stories         | Geschichte f Geschichten  | text writing tale
poem poems            | Gedicht n Gedichte        | text writing
apple apples          | Apfel m Äpfel             | food
pear pears            | Birne f Birnen            | food
egg eggs              | Ei n Eier                 | food cooked
cake cakes            | Kuchen m Kuchen           | food
carrot carrots        | Karotte f Karotten        | food cooked
soup soups            | Suppe f Suppen            | food cooked
potato potatoes       | Kartoffel f Kartoffeln    | food cooked
key keys              | Schlüssel m Schlüssel     | thing small
bag bags              | Tasche f Taschen          | thing heavy
umbrella umbrellas    | Regenschirm m Regenschirme | thing small
picture pictures      | Bild n Bilder             | thing gift small
camera cameras        | Kamera f Kameras          | thing gift small device
coat coats            | Mantel m Mäntel           | clothing washable
hat hats              | Hut m Hüte                | clothing gift small
shirt shirts          | Hemd n Hemden             | clothing gift washable
dress dresses         | Kleid n Kleider           | clothing gift washable
flower flowers        | Blume f Blumen            | plant gift
tree trees            | Baum m Bäume              | plant landmark
suitcase suitcases    | Koffer m Koffer           | thing heavy openable
box boxes             | Kiste f Kisten            | thing heavy openable
table tables          | Tisch m Tische            | thing heavy
chair chairs          | Stuhl m Stühle            | thing heavy
lamp lamps            | Lampe f Lampen            | thing device switchable
computer computers    | Computer m Computer       | thing device switchable
radio radios          | Radio n Radios            | thing device switchable
bicycle bicycles      | Fahrrad n Fahrräder       | thing device vehicle washable
car cars              | Auto n Autos              | thing device vehicle washable
door doors            | Tür f Türen               | part openable
window windows        | Fenster n Fenster         | part openable
house houses          | Haus n Häuser             | building landmark
church churches       | Kirche f Kirchen          | building landmark unowned
bridge bridges        | Brücke f Brücken          | building landmark unowned
museum museums        | Museum n Museen           | building landmark unowned
coffee                | Kaffee m                  | drink
tea                   | Tee m                     | drink
milk                  | Milch f                   | drink
water                 | Wasser n                  | drink
juice                 | Saft m                    | drink
bread                 | Brot n                    | dish
cheese                | Käse m                    | dish
meat                  | Fleisch n                 | dish
fish                  | Fisch m                   | dish
"""

# English | German, and its stem where an ending changes it | kinds of noun it goes with
_ADJECTIVES = """
old         | alt           | person animal thing clothing building
young       | jung          | person animal
friendly    | freundlich    | person animal
clever      | klug          | person animal
famous      | berühmt       | artist building
small       | klein         | animal thing plant building part
big         | groß          | animal thing plant building part
beautiful   | schön         | animal clothing plant building
black       | schwarz       | animal thing clothing
white       | weiß          | animal clothing building plant part
new         | neu           | thing clothing building text part
expensive   | teuer teur    | thing clothing
cheap       | billig        | thing clothing
red         | rot           | thing clothing plant part
green       | grün          | thing clothing part
long        | lang          | text
short       | kurz          | text
interesting | interessant   | text
exciting    | spannend      | text
fresh       | frisch        | food dish
delicious   | lecker        | food dish
cold        | kalt          | drink
hot         | heiß          | drink
good        | gut           | drink dish text
"""

# English base, 3rd person, past, -ing, particle | German infinitive (prefix/verb), 3rd person, auxiliary, participle |
# subject | complements | tenses: (h)abit, (n)ow, (p)ast, (f)uture, (m)odal; none for a state, which is always present.
# A complement is [English preposition=][German preposition+]case:kind, or one of FIXED, or a rule of the grammar's.
_VERBS = """
read reads read reading            | lesen liest hat gelesen             | person | acc:text place?         | hnpfm
write writes wrote writing         | schreiben schreibt hat geschrieben  | person | acc:writing place?      | npfm
buy buys bought buying             | kaufen kauft hat gekauft            | person | acc:ware                | hpfm
sell sells sold selling            | verkaufen verkauft hat verkauft     | person | acc:ware                | npfm
look looks looked looking          | suchen sucht hat gesucht            | person | for=acc:lost place?     | np
find finds found finding           | finden findet hat gefunden          | person | acc:lost place?         | pf
lose loses lost losing             | verlieren verliert hat verloren     | person | acc:lost place?         | p
forget forgets forgot forgetting   | vergessen vergisst hat vergessen    | person | acc:small               | hp
see sees saw seeing                | sehen sieht hat gesehen             | person | acc:living place?       | hpfm
visit visits visited visiting      | besuchen besucht hat besucht        | person | acc:human               | hnpfm
meet meets met meeting             | treffen trifft hat getroffen        | person | acc:human place?        | hpfm
ask asks asked asking              | fragen fragt hat gefragt            | person | acc:human               | npfm
eat eats ate eating                | essen isst hat gegessen             | person | acc:edible place?       | hnpfm
drink drinks drank drinking        | trinken trinkt hat getrunken        | person | acc:drink place?        | hnpfm
cook cooks cooked cooking          | kochen kocht hat gekocht            | person | acc:cooked place?       | npfm
wash washes washed washing         | waschen wäscht hat gewaschen        | person | acc:washable place?     | npfm
repair repairs repaired repairing  | reparieren repariert hat repariert  | person | acc:device place?       | npfm
carry carries carried carrying     | tragen trägt hat getragen           | person | acc:heavy               | npfm
draw draws drew drawing            | zeichnen zeichnet hat gezeichnet    | person | acc:sight place?        | npfm
call calls called calling          | an/rufen ruft hat angerufen         | person | acc:human               | hnpfm
invite invites invited inviting    | ein/laden lädt hat eingeladen       | person | acc:human               | hpfm
pick picks picked picking up       | ab/holen holt hat abgeholt          | person | acc:human               | hpfm
open opens opened opening          | auf/machen macht hat aufgemacht     | person | acc:openable            | npfm
close closes closed closing        | zu/machen macht hat zugemacht       | person | acc:openable            | npfm
turn turns turned turning on       | ein/schalten schaltet hat eingeschaltet | person | acc:switchable      | pfm
turn turns turned turning off      | aus/schalten schaltet hat ausgeschaltet | person | acc:switchable      | pfm
bring brings brought bringing along | mit/bringen bringt hat mitgebracht | person | acc:gift                | hpfm
help helps helped helping          | helfen hilft hat geholfen           | person | dat:human place?        | hnpfm
thank thanks thanked thanking      | danken dankt hat gedankt            | person | dat:human               | pfm
answer answers answered answering  | antworten antwortet hat geantwortet | person | dat:human               | pfm
greet greets greeted greeting       | grüßen grüßt hat gegrüßt             | person | acc:human               | pfm
listen listens listened listening  | zu/hören hört hat zugehört          | person | to=dat:human            | npfm
follow follows followed following  | folgen folgt ist gefolgt            | living | dat:living              | np
wait waits waited waiting          | warten wartet hat gewartet          | person | for=auf+acc:human place? | npfm
think thinks thought thinking      | denken denkt hat gedacht            | person | of=an+acc:human         | hp
talk talks talked talking          | sprechen spricht hat gesprochen     | person | to=mit+dat:human place? | npfm
talk talks talked talking          | sprechen spricht hat gesprochen     | person | about=über+acc:topic    | npfm
dream dreams dreamed dreaming      | träumen träumt hat geträumt         | person | of=von+dat:topic        | hp
play plays played playing          | spielen spielt hat gespielt         | living | with=mit+dat:animal place? | hnpfm
look looks looked looking forward  | freuen freut hat gefreut            | person | refl event              | np
remember remembers remembered remembering | erinnern erinnert hat erinnert | person | refl an+acc:topic      | pm
complain complains complained complaining | beschweren beschwert hat beschwert | person | refl about=über+acc:topic |hnp
give gives gave giving             | geben gibt hat gegeben              | person | dat:human acc:gift      | pfm
show shows showed showing          | zeigen zeigt hat gezeigt            | person | dat:human acc:showable  | npfm
send sends sent sending            | schicken schickt hat geschickt      | person | dat:human acc:gift      | hpfm
lend lends lent lending            | leihen leiht hat geliehen           | person | dat:human acc:lost      | pfm
tell tells told telling            | erzählen erzählt hat erzählt        | person | dat:human acc:tale      | hnpfm
put puts put putting               | legen legt hat gelegt               | person | acc:small onto          | npfm
hide hides hid hiding              | verstecken versteckt hat versteckt  | person | acc:small where         | npfm
wait waits waited waiting          | warten wartet hat gewartet          | person | landmark                | npfm
go goes went going                 | gehen geht ist gegangen             | person | walk                    | hnpfm
drive drives drove driving         | fahren fährt ist gefahren           | person | ride                    | hnpfm
come comes came coming             | kommen kommt ist gekommen           | person | ride                    | hpfm
run runs ran running               | laufen läuft ist gelaufen           | person | walk                    | npm
stay stays stayed staying          | bleiben bleibt ist geblieben        | person | place                   | hpfm
sleep sleeps slept sleeping        | schlafen schläft hat geschlafen     | living | place?                  | hnpfm
work works worked working          | arbeiten arbeitet hat gearbeitet    | person | place?                  | hnpfm
laugh laughs laughed laughing      | lachen lacht hat gelacht            | person | about=über+acc:topic    | np
dance dances danced dancing        | tanzen tanzt hat getanzt            | person | place?                  | hnpfm
sing sings sang singing            | singen singt hat gesungen           | person | place?                  | hnpfm
get gets got getting up            | auf/stehen steht ist aufgestanden   | person |                         | hpfm
wake wakes woke waking up          | auf/wachen wacht ist aufgewacht     | person |                         | hp
fall falls fell falling asleep     | ein/schlafen schläft ist eingeschlafen | living | place?               | p
arrive arrives arrived arriving    | an/kommen kommt ist angekommen      | person | arrival                 | pf
come comes came coming back        | zurück/kommen kommt ist zurückgekommen | person |                      | pfm
tidy tidies tidied tidying up      | auf/räumen räumt hat aufgeräumt     | person |                         | hnpfm
go goes went going shopping        | ein/kaufen kauft hat eingekauft     | person |                         | hpfm
watch watches watched watching television | fern/sehen sieht hat ferngesehen | person |                  | hnpfm
play plays played playing          | spielen spielt hat gespielt         | person | game                    | hnpfm
learn learns learned learning      | lernen lernt hat gelernt            | person | language                | hnpfm
lie lies lay lying                 | liegen liegt hat gelegen            | small  | where                   | n
stand stands stood standing        | stehen steht hat gestanden          | vehicle | landmark               | n
know knows knew knowing            | kennen kennt hat gekannt            | person | acc:human               |
love loves loved loving            | lieben liebt hat geliebt            | person | acc:living              |
need needs needed needing          | brauchen braucht hat gebraucht      | person | acc:lost                |
belong belongs belonged belonging  | gehören gehört hat gehört           | owned  | to=dat:human            |
cost costs cost costing            | kosten kostet hat gekostet          | ware   | price                   |
live lives lived living            | wohnen wohnt hat gewohnt            | person | home                    |
rain rains rained raining          | regnen regnet hat geregnet          | it     |                         | npf
snow snows snowed snowing          | schneien schneit hat geschneit      | it     |                         | npf
"""

# Likewise, for verbs that are followed by another clause: conjunctions, or `to` for an infinitive.
_MATRIX_VERBS = """
say says said saying               | sagen sagt hat gesagt               | person | that=dass                 | h
think thinks thought thinking      | glauben glaubt hat geglaubt         | person | that=dass                 | h
know knows knew knowing            | wissen weiß hat gewusst             | person | that=dass whether=ob why=warum | h
ask asks asked asking              | fragen fragt hat gefragt            | person | whether=ob why=warum      | h
hope hopes hoped hoping            | hoffen hofft hat gehofft            | person | that=dass to              | h
try tries tried trying             | versuchen versucht hat versucht     | person | to                        | np
promise promises promised promising | versprechen verspricht hat versprochen | person | to                    | p
forget forgets forgot forgetting   | vergessen vergisst hat vergessen    | person | to                        | p
plan plans planned planning        | planen plant hat geplant            | person | to                        | np
"""

# Kinds of noun that are made of others.
_UNIONS = {
    "person": "person kin parent",
    "human": "person kin parent",
    "living": "person kin parent animal",
    "ware": "thing clothing text",
    "owned": "thing clothing text",
    "lost": "small clothing",
    "sight": "animal plant building",
    "edible": "food dish",
    "topic": "person kin parent text",
    "showable": "gift building vehicle",
}

# Complements that are always said in the same words.
FIXED = {
    "game": "football Fußball, chess Schach, cards Karten, the_piano Klavier, the_guitar Gitarre",
    "language": "German Deutsch, English Englisch, French Französisch, Spanish Spanisch",
    "event": "to_the_weekend auf_das_Wochenende, to_the_party auf_die_Feier, to_the_holidays auf_die_Ferien, "
    "to_the_summer auf_den_Sommer",
    "home": "in_Berlin in_Berlin, in_London in_London, in_the_city in_der_Stadt, in_a_village in_einem_Dorf, here hier",
    "place": "in_the_garden im_Garten, in_the_kitchen in_der_Küche, at_home zu_Hause, at_school in_der_Schule, "
    "in_the_park im_Park, in_the_city in_der_Stadt, on_the_beach am_Strand, at_the_station am_Bahnhof, "
    "in_the_library in_der_Bibliothek",
    "arrival": "at_the_station am_Bahnhof, in_Berlin in_Berlin, in_London in_London, on_the_beach am_Strand",
    "walk": "into_the_garden in_den_Garten, into_the_kitchen in_die_Küche, home nach_Hause, to_school zur_Schule, "
    "to_the_park in_den_Park, to_the_library in_die_Bibliothek, to_the_station zum_Bahnhof",
    "ride": "home nach_Hause, to_school zur_Schule, to_the_city in_die_Stadt, to_the_beach an_den_Strand, "
    "to_the_station zum_Bahnhof, to_Berlin nach_Berlin, to_London nach_London",
}

# Where small things lie: the preposition takes the dative for a place and the accusative for a direction.
_SURFACES = """
on table | auf Tisch m
on chair | auf Stuhl m
on bed | auf Bett n
on sofa | auf Sofa n
under table | unter Tisch m
under bed | unter Bett n
in bag | in Tasche f
in cupboard | in Schrank m
in box | in Kiste f
next_to lamp | neben Lampe f
behind sofa | hinter Sofa n
behind door | hinter Tür f
"""
LANDMARK_PREPOSITIONS = "in_front_of vor, behind hinter, next_to neben"

# When, by tense; the past modals share the past's.
TIMES = {
    "h": "every_day jeden_Tag, every_morning jeden_Morgen, every_evening jeden_Abend, on_Sundays sonntags",
    "n": "now jetzt, today heute, at_the_moment im_Moment",
    "p": "yesterday gestern, last_week letzte_Woche, last_night gestern_Abend, this_morning heute_Morgen",
    "f": "tomorrow morgen, next_week nächste_Woche, on_Monday am_Montag, on_Friday am_Freitag",
    "m": "today heute, tomorrow morgen, this_week diese_Woche",
}
WITH_CLOCK = ("every day", "yesterday", "tomorrow", "on Monday", "on Friday")
FREQUENCIES = "often oft, always immer, never nie, sometimes manchmal, usually meistens"
AGO = "days Tagen, weeks Wochen, months Monaten, years Jahren"
NUMBERS = "two zwei, three drei, four vier, five fünf, six sechs, seven sieben, eight acht, nine neun, ten zehn"
NAMES = "Anna f, Peter m, Maria f, Paul m, Julia f, Thomas m, Emma f, Lukas m"
COMPARATIVES = (
    "older/old älter/alt, younger/young jünger/jung, taller/tall größer/groß, richer/rich reicher/reich, "
    "stronger/strong stärker/stark, friendlier/friendly freundlicher/freundlich"
)
STATES = "tired müde, sick krank, hungry hungrig, thirsty durstig, happy glücklich, sad traurig, nervous nervös"
HAVINGS = (
    "time Zeit, no_time keine_Zeit, no_money kein_Geld, a_headache Kopfschmerzen, a_fever Fieber, "
    "a_problem ein_Problem, a_lot_of_work viel_Arbeit"
)
WEATHER = "cold kalt, warm warm, hot heiß, dark dunkel, windy windig"


@dataclass(frozen=True)
class Noun:
    """A noun; `plural` is empty for what is not counted. `weak` is the ending outside the nominative singular."""

    english: str
    english_plural: str
    german: str
    gender: str
    weak: str
    plural: str
    kinds: tuple[str, ...]


@dataclass(frozen=True)
class Adjective:
    english: str
    german: str
    stem: str
    kinds: tuple[str, ...]


@dataclass(frozen=True)
class Verb:
    """A verb and what goes with it. English forms: base, 3rd person, past, -ing."""

    english: tuple[str, str, str, str]
    particle: str
    prefix: str
    infinitive: str
    third: str
    auxiliary: str
    participle: str
    subject: str
    complements: tuple[str, ...]
    tenses: str


def spaced(word: str) -> str:
    return word.replace("_", " ")


def pairs(table: str) -> list[Pair]:
    """`on_Monday am_Montag, …` -> [("on Monday", "am Montag"), …]."""
    return [(spaced(english), spaced(german)) for english, german in (entry.split() for entry in table.split(", "))]


def _rows(table: str) -> list[list[list[str]]]:
    return [[column.split() for column in line.split("|")] for line in table.strip().split("\n")]


def _noun(english: list[str], german: list[str], kinds: list[str]) -> Noun:
    gender, _, weak = german[1].partition("+")
    return Noun(english[0], "".join(english[1:]), german[0], gender, weak, "".join(german[2:]), tuple(kinds))


def _verb(english: list[str], german: list[str], subject: list[str], complements: list[str], tenses: list[str]) -> Verb:
    base, third, past, progressive, *particle = english
    infinitive, german_third, auxiliary, participle = german
    prefix, _, stem = infinitive.rpartition("/")
    return Verb(
        english=(base, third, past, progressive), particle="".join(particle),
        prefix=prefix, infinitive=stem, third=german_third, auxiliary=auxiliary, participle=participle,
        subject=subject[0], complements=tuple(complements), tenses="".join(tenses),
    )  # fmt: skip


_ALL_NOUNS = [_noun(*row) for row in _rows(_NOUNS)]
ADJECTIVES = [Adjective(row[0][0], row[1][0], row[1][-1], tuple(row[2])) for row in _rows(_ADJECTIVES)]
VERBS = [_verb(*row) for row in _rows(_VERBS)]
MATRIX_VERBS = [_verb(*row) for row in _rows(_MATRIX_VERBS)]
SURFACES = [
    (spaced(english[0]), german[0], Noun(english[1], "", german[1], german[2], "", "", ()))
    for english, german in _rows(_SURFACES)
]


def nouns(kind: str) -> list[Noun]:
    """The nouns of a kind, in the table's order."""
    wanted = set(_UNIONS.get(kind, kind).split())
    return [noun for noun in _ALL_NOUNS if wanted & set(noun.kinds)]
