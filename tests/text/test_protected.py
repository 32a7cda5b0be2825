"""Words that stay as they are: what they are, and that every translation gets them."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nmt.errors import NmtError
from nmt.pages.web_export import javascript_patterns
from nmt.text.protected import Protected, ProtectedSpan, lacks, with_protected
from nmt.text.protected_kinds import KINDS

ROOT = Path(__file__).parents[2]
PROTECTED = Protected()

EXAMPLES = [example for kind in KINDS for example in kind.examples]


@pytest.mark.parametrize("example", EXAMPLES)
def test_what_is_protected(example: str) -> None:
    text = re.sub("[⟦⟧]", "", example)
    assert [span.word(text) for span in PROTECTED.spans(text)] == re.findall("⟦(.*?)⟧", example, re.DOTALL)


def test_patterns_of_users() -> None:
    protected = Protected([r"CELEX-\d+", "Acme"])
    text = "Acme's CELEX-32, {x} and AcmeCELEX-1"
    assert [span.word(text) for span in protected.spans(text)] == ["Acme", "CELEX-32", "{x}", "Acme", "CELEX-1"]
    for pattern, problem in (("(a", "is not a regular expression"), ("a*", "matches an empty text")):
        with pytest.raises(NmtError, match=re.escape(f"--keep {pattern!r} {problem}")):
            Protected([pattern])


def test_a_slow_pattern_ends_in_an_error() -> None:
    with pytest.raises(NmtError, match="takes more than 1 second for a text of 61 characters"):
        Protected(["(a|aa)+$"]).spans("a" * 60 + "!")


@pytest.mark.parametrize("source, translation, expected", [
    ("See https://x.org/a now.", "Siehe https://x.org/a jetzt.", "Siehe https://x.org/a jetzt."),
    ("See https://x.org/a now.", "Siehe https://x.org/abaum jetzt.", "Siehe https://x.org/a baum jetzt."),
    ("See https://x.org/a now.", "Siehe https://x.org/a/b jetzt.", "Siehe https://x.org/a jetzt."),
    ("Your name, {name}, please.", "Ihr Name, bitte.", "Ihr Name, {name} bitte."),
    ("Enter {email} or not", "E-Mail oder nicht", "E-Mail {email} oder nicht"),
    ("Press {a}+{b} now.", "Jetzt drücken.", "Jetzt {a}+{b} drücken."),
    ("Write {a}/{b}.", "Schreibe {a}.", "Schreibe {a}/{b}."),
    ("Write {a}/{b}.", "Schreibe {a}/.", "Schreibe {a}/{b}."),
    ("Write {a}, {b}.", "Schreibe.", "{a} {b} Schreibe."),
    ("In 50 %d of cases.", "In 100.", "In %d 100."),
    ("A dog (a@b.com).", "Ein Hund (a @ b.com).", "Ein Hund (a@b.com)."),
    ("Size {0}cm or {0} now.", "Größe {0}cm oder {0} jetzt", "Größe {0}cm oder {0} jetzt"),
    ("Mail info@example.org now.", "Mail an info@example.orgem.", "Mail an info@example.org em."),
    ("Hi {name}!", "Hallo {name}es!", "Hallo {name} es!"),
    ("{n}px wide", "{n}px breit", "{n}px breit"),
    ("You have {n} new", "Sie haben { N } neue", "Sie haben {n} neue"),
    ("x https://github.com/a/baum y", "x https: // github.com / a / Baum y", "x https://github.com/a/baum y"),
    ("Call unittest.TestCase() %s too", "Ruf unittest. Testcase () %S an", "Ruf unittest. Testcase () %s an"),
    ("You have {n}.", "Sie haben.", "Sie haben {n}."),
    ("{n} is here", "ist hier", "{n} ist hier"),
    ("{a}{b}", "", "{a}{b}"),
    ("A {x} and {x}", "Ein {x} und", "Ein {x} und {x}"),
    ("a:b %s", "{x} %s", "{x} %s"),
    # Letters that touch a placeholder in the source
    ("{hours}h until it", "Ein Geiger spielt", "{hours} Ein Geiger spielt"),
    ("{size}MB of photos", "{size}MB Fotos", "{size}MB Fotos"),
    ("{size}MB of photos", "{size}Müll", "{size} Müll"),
    ("{n}th item", "Element", "{n} Element"),
    ("A big dog {n}px.", "Ein Hund.", "Ein Hund {n}."),
    ("%ds run", "Ein Schiedsrichter", "%d Ein Schiedsrichter"),
    ("A dog is {h}h{m}m old.", "Ein Hund spült alt.", "Ein Hund {h}h{m} spült alt."),
    ("%dx%d people are here", "Ein Soldat ist hier", "%dx%d Ein Soldat ist hier"),
    ("你好{name}先生", "Hello {name}Mr", "Hello {name} Mr"),
    # A hyphen joins no placeholder.
    ("%d files", "%d-Dateien", "%d-Dateien"),
    ("the {name} file", "{Name}-Datei", "{name}-Datei"),
    ("file %d", "Datei-%d", "Datei-%d"),
    # Other placeholders of the same kind, and surplus ones of printf
    ("Hi {name}", "Hallo {Nutzername}", "Hallo {name}"),
    ("Open {a} now", "Öffne {b} jetzt", "Öffne {a} jetzt"),
    ("Hi %(name)s", "Hallo %(nom)s", "Hallo %(name)s"),
    ("Hi :name", "Hallo :nutzer", "Hallo :name"),
    ("Open %s now", "Öffne %s jetzt %s.", "Öffne %s jetzt."),
    ("Open %s now", "%d Öffne jetzt %d", "%s Öffne jetzt"),
    ("%s voted, 50% of all", "%s oy, %50'si", "%s oy, %50'si"),
    ("5 %d", "5 %d'intérêts %s", "5 %d'intérêts"),
    ("%s of 10", "%s, 10 %-ig", "%s, 10 %-ig"),
    # Citations, names and hashtags, which a model drops, copies or changes
    ("See @sec-birds now.", "Siehe jetzt.", "Siehe @sec-birds jetzt."),
    ("See @sec-birds now.", "Siehe @sec-birds jetzt.", "Siehe @sec-birds jetzt."),
    ("See @sec-birds now.", "Siehe sec-birds jetzt.", "Siehe @sec-birds jetzt."),
    ("See @sec-birds now.", "Siehe @sec-Vögel jetzt.", "Siehe @sec-birds jetzt."),
    ("See @sec-birds now.", "Siehe @ sec - birds jetzt.", "Siehe @sec-birds jetzt."),
    ("See -@doe99, p. 3.", "Siehe -@doe99-Seite, S. 3.", "Siehe -@doe99 -Seite, S. 3."),
    ("Dogs [see @doe99, p. 3] run", "Hunde [siehe @doe99, S. 3] rennen", "Hunde [siehe @doe99, S. 3] rennen"),
    ("Dogs [см. @doe99] run", "Hunde [vgl. @doe99] rennen", "Hunde [vgl. @doe99] rennen"),
    ("Dogs run [see @doe99].", "Hunde rennen [siehe].", "Hunde rennen [siehe @doe99]."),
    ("I like #dogs in #123", "Ich mag #Hunde in 123", "Ich mag #dogs in #123"),
    # Links of MediaWiki
    ("A [[Dog|dog]] runs.", "Ein [[Hund|Hund]] läuft.", "Ein [[Dog|Hund]] läuft."),
    ("A [[Dog|dog]] runs.", "Ein [[Dog|Hund]] läuft.", "Ein [[Dog|Hund]] läuft."),
    ("[[Собака|Пёс]] бежит.", "[[Собака|Hund]] läuft.", "[[Собака|Hund]] läuft."),
    ("See [[File:a.jpg|thumb|a dog]]", "Siehe [[Datei:a.jpg|mini|ein Hund]]", "Siehe [[File:a.jpg|thumb|ein Hund]]"),
    # Addresses of which one begins like the other
    ("https://x.org/a or https://x.org/ab", "https://x.org/a x https://x.org/ab", "https://x.org/a x https://x.org/ab"),
    ("https://x.org/a or https://x.org/ab", "https://x.org/ab x https://x.org/ab", "https://x.org/ab x https://x.org/a"),
    # Tags and blocks stay nested.
    ("<b>A dog</b> and <i>a man</i>", "<b>Ein Hund</i> und</b> ein <i>Mann", "<b>Ein Hund</b> und <i> ein </i> Mann"),
    ("<b>A dog</b> and <i>a man</i>", "<i>Ein Mann</i> und <b>ein Hund</b>", "<i>Ein Mann</i> und <b>ein Hund</b>"),
    ("{{#if x}}Yes{{else}}No{{/if}}", "{{/if}}Ja{{else}}Nein{{#if x}}", "{{#if x}}Ja{{else}}Nein{{/if}}"),
    ("{% if a %}Yes{% endif %}", "{% endif %} Ja {% if a %}", "{% if a %} Ja {% endif %}"),
])  # fmt: skip
def test_translations_get_their_protected_words(source: str, translation: str, expected: str) -> None:
    assert with_protected(source, PROTECTED.spans(source), translation, {}, spaces=True)[0] == expected


def test_no_word_is_inserted_before_a_prefix() -> None:
    source, translation = "{name}, two men play.", "Zwei Männer spielen."
    text, _ = with_protected(source, PROTECTED.spans(source), translation, {}, spaces=True, prefix="Zwei Männer")
    assert text.startswith("Zwei Männer") and "{name}" in text


def test_missing_words_are_inserted_by_the_alignment() -> None:
    source, links = "Ask {name} about it", {0: 3, 1: 0}
    assert with_protected(source, PROTECTED.spans(source), "Danach frag", links, spaces=True) == (
        "Danach frag {name}", {0: 3, 1: 0, 2: 1},
    )  # fmt: skip


def test_the_translation_of_ordinary_words_is_replaced() -> None:
    """Such words stay because markup says so."""
    source, links = "A man in a hat sings", {0: 0, 1: 1, 2: 2, 3: 4, 4: 5}
    spans = [ProtectedSpan(2, 14, "markup")]
    kept, moved = with_protected(source, spans, "Ein Mann mit Hut, singt", links, spaces=True)
    assert kept == "Ein man in a hat, singt"
    assert moved == {0: 0, 1: 1, 2: 2, 3: 3, 4: 4, 5: 5}
    source, spans = "हिन्दी भवन में है", [ProtectedSpan(0, 10, "markup")]  # vowel signs belong to words
    assert with_protected(source, spans, "in Hindi Bhavan", {0: 2, 1: 0, 2: 1}, spaces=True)[0] == "in हिन्दी भवन"
    source, spans = "A man in a hat sings", [ProtectedSpan(2, 14, "markup")]
    scattered = {0: 0, 1: 1, 2: 5, 3: 4}
    assert "man in a hat" in with_protected(source, spans, "Ein Mann singt Hut", scattered, spaces=True)[0]


@pytest.mark.parametrize("source, kept, translation, expected", [
    ("See Figure 3.1 for it", "Figure 3.1", "Siehe Abbildung 3.1 dazu das", "Siehe Figure 3.1 dazu das"),
    ("and Good morning, sir! he said", "Good morning, sir!", "und Guten Morgen, Herr! sagte er",
     "und Good morning, sir! sagte er"),
    ("and (Doe, p. 5) there", "(Doe, p. 5)", "und (Doe, S. 5) da", "und (Doe, p. 5) da"),
])  # fmt: skip
def test_words_that_markup_keeps_may_have_punctuation(source: str, kept: str, translation: str, expected: str) -> None:
    start, links = source.index(kept), {i: i for i in range(len(translation.split()))}
    spans = [ProtectedSpan(start, start + len(kept), "markup")]
    assert with_protected(source, spans, translation, links, spaces=True)[0] == expected


@pytest.mark.parametrize("source, translation, expected", [
    ("Hello {name}!", "你好！", "你好{name}！"),
    ("Hello {name}!", "{name}你好！", "{name}你好！"),
    ("{n}px wide", "{n}px宽", "{n}px宽"),
])  # fmt: skip
def test_languages_without_spaces_get_none(source: str, translation: str, expected: str) -> None:
    assert with_protected(source, PROTECTED.spans(source), translation, {}, spaces=False)[0] == expected


WORDS = st.sampled_from(
    ["{name}", "https://x.org/a", "%s", "a@b.org", "😀", "Haus", "the", "{{ x }}", "<b>", "x.", "(%d)"]
)


@settings(max_examples=300)
@given(st.lists(WORDS, max_size=8), st.lists(WORDS | st.text(max_size=4), max_size=8), st.booleans(), st.data())
def test_no_protected_word_is_lost(source: list[str], target: list[str], spaces: bool, data: st.DataObject) -> None:
    text, translation = " ".join(source), "".join(data.draw(st.permutations(target)))
    numbers = st.integers(0, max(0, len(source) - 1))
    links = data.draw(st.dictionaries(st.integers(0, max(0, len(translation.split()) - 1)), numbers))
    links = links if source and translation.split() else {}
    spans = PROTECTED.spans(text)
    kept, moved = with_protected(text, spans, translation, links, spaces=spaces)
    for span in spans:
        word = span.word(text)
        assert kept.count(word) >= text.count(word)
    assert all(0 <= word < len(kept.split()) for word in moved) or not kept.split()


@settings(max_examples=200)
@given(st.lists(WORDS, max_size=6), st.permutations(range(6)), st.lists(WORDS | st.text(max_size=4), max_size=8))
def test_a_translation_that_lacks_no_word_needs_no_links(
    source: list[str], order: list[int], others: list[str]
) -> None:
    text = " ".join(source)
    spans = PROTECTED.spans(text)
    words = [span.word(text) for span in spans]
    translation = " ".join([*others, *(words[i] for i in order if i < len(words))])
    assert not lacks(translation, words)
    links = {i: (i * 7) % len(source) for i in range(len(translation.split()))} if source else {}
    without, with_links = (with_protected(text, spans, translation, each, spaces=True)[0] for each in ({}, links))
    assert without == with_links
    assert all(lacks(translation.replace(word, ""), words) for word in words)


@pytest.mark.skipif(not shutil.which("node"), reason="needs Node.js")
def test_the_page_for_browsers_protects_the_same_words(tmp_path: Path) -> None:
    (tmp_path / "protected.mjs").write_text((ROOT / "nmt" / "pages" / "web" / "protected.js").read_text())
    texts = [re.sub("[⟦⟧]", "", example) for example in EXAMPLES]
    given = {"patterns": javascript_patterns(), "texts": texts, "pairs": PAIRS, "segments": SEGMENTS}
    (tmp_path / "given.json").write_text(json.dumps(given))
    (tmp_path / "run.mjs").write_text("""
import { readFileSync } from "node:fs";
import { protection } from "./protected.mjs";
const { patterns, texts, pairs, segments } = JSON.parse(readFileSync("given.json"));
const words = protection(patterns);
const spans = texts.map(text => words.spans(text).map(([start, stop]) => text.slice(start, stop)));
const restored = pairs.map(([source, translation]) => words.restored(source, translation));
console.log(JSON.stringify({ spans, restored, joined: words.joined(segments), stays: texts.map(words.stays) }));
""")
    done = subprocess.run(["node", "run.mjs"], cwd=tmp_path, capture_output=True, text=True, check=True)
    output = json.loads(done.stdout)
    assert output["spans"] == [[span.word(text) for span in PROTECTED.spans(text)] for text in texts]
    assert output["restored"] == [with_protected(s, PROTECTED.spans(s), t, {}, spaces=True)[0] for s, t in PAIRS]
    assert output["joined"] == ["Call unittest.TestCase too. ", "Next."]
    translated = [re.sub("⟦.*?⟧", "", example, flags=re.DOTALL) for example in EXAMPLES]
    assert output["stays"] == [not any(map(str.isalpha, text)) for text in translated]


PAIRS = [
    ("See https://x.org/a now.", "Siehe https://x.org/abaum jetzt."),
    ("Hi {name}!", "Hallo {name}es!"),
    ("{n}px wide", "{n}px breit"),
    ("{n} is here", "ist hier"),
    ("Hi İ {Name} x", "Hallo İ {name} x"),
    ("%s and %s a word", "%s und ein Wort"),
    ("%1 of %10 pages", "%10 Seiten, davon %1"),
]
SEGMENTS = ["Call unittest.", "TestCase too. ", "Next."]
