"""Marked-up text: what is translated, and where tags are put in the translation."""

import re
from collections import Counter
from collections.abc import Sequence
from html.parser import HTMLParser
from xml.etree import ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nmt.errors import NmtError
from nmt.text import markup_reading
from nmt.text.marked import MarkedText, Token
from nmt.text.markup_projection import projected
from nmt.text.markup_reading import NO_RULES, ElementRules, written
from nmt.text.protected import Protected
from nmt.text.words import RAW_WORD, AlignedWords, parse_pharaoh

VOID = {"br", "img"}
OPTIONAL_END = {"p", "li", "td"}

# References that would become 10^10 characters.
LAUGHS = "".join(f'<!ENTITY {b} "{f"&{a};" * 20}">' for a, b in zip("abcdefgh", "bcdefghi", strict=True))
LAUGHS = f'<!DOCTYPE x [<!ENTITY a "ha">{LAUGHS}]><x>&i;</x>'


def parse(text: str, markup: str = "html", lang: str = "", rules: ElementRules = NO_RULES) -> list[Token | MarkedText]:
    return markup_reading.parse(text, markup, Protected(), lang, rules)  # type: ignore[arg-type]


def units(text: str, markup: str = "html") -> list[MarkedText]:
    return [part for part in parse(text, markup) if isinstance(part, MarkedText)]


def phrases_of(unit: MarkedText) -> list[str]:
    return [span.word(unit.source) for span in unit.protected]


def sources(text: str, markup: str = "html") -> list[str]:
    return [unit.source for unit in units(text, markup)]


def html(unit: MarkedText, translation: str, alignment: Sequence[AlignedWords] = ()) -> str:
    return written(projected(unit, translation, alignment))


def copied(text: str, markup: str = "html") -> str:
    """Returns the text with every unit translated into itself."""
    return "".join(
        written([part]) if isinstance(part, Token) else html(part, part.source) for part in parse(text, markup)
    )


def aligned_copy(unit: MarkedText) -> str:
    """Returns the text translated into itself with spaces around it, so that its markup is put in anew."""
    return html(unit, f" {unit.source} ", [(i, i) for i in range(len(RAW_WORD.findall(unit.source)))])


def restored(text: str, translation: str, alignment: str, markup: str = "html") -> str:
    (unit,) = units(text, markup)
    return html(unit, translation, parse_pharaoh(alignment))


class Reader(HTMLParser):
    """What HTML contains; fails if its tags are not nested."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags, self.text, self.unclosed = Counter[str](), "", list[str]()
        self.feed(text)
        self.close()
        assert set(self.unclosed) <= OPTIONAL_END

    def handle_starttag(self, tag: str, attrs: object) -> None:  # noqa: ARG002
        self.tags[self.get_starttag_text() or ""] += 1
        self.unclosed += [] if tag in VOID else [tag]

    def handle_startendtag(self, tag: str, attrs: object) -> None:  # noqa: ARG002
        self.tags[self.get_starttag_text() or ""] += 1

    def handle_endtag(self, tag: str) -> None:
        while self.unclosed[-1] != tag:
            assert self.unclosed.pop() in OPTIONAL_END
        self.unclosed.pop()

    def handle_data(self, data: str) -> None:
        self.text += data

    def handle_comment(self, data: str) -> None:
        self.tags[f"<!--{data}-->"] += 1


@pytest.mark.parametrize("text, translation, alignment, expected", [
    # The marked word moves; the full stop is that of the source.
    ("Now the <b>dog</b> runs.", "Jetzt rennt der Hund.", "0-0 3-1 1-2 2-3", "Jetzt rennt der <b>Hund</b>."),
    ("He sees the <b>dog</b>.", "Den Hund sieht er.", "2-0 3-1 1-2 0-3", "Den <b>Hund</b> sieht er."),
    # Nested tags; two words of one element become adjacent in another order.
    (
        'An <a href="x?a=1&amp;b">old <b>dog</b></a> here',
        "Hier ein Hund alt",
        "3-0 0-1 2-2 1-3",
        'Hier ein <a href="x?a=1&amp;b"><b>Hund</b> alt</a>',
    ),
    # Words of an element separate: it is repeated.
    ("He <i id=1>cancelled</i> it.", "Er sagte es ab.", "0-0 1-1 2-2 1-3", "Er <i id=1>sagte</i> es <i id=1>ab</i>."),
    # Adjacent tags, also without a space.
    ("<b>red</b> <i>dog</i> x", "x Hund rot", "2-0 1-1 0-2", "x <i>Hund</i> <b>rot</b>"),
    ("<a>foo</a>/<a>bar</a> x", "x Fuß/Balken", "1-0 0-1", "x <a>Fuß</a>/<a>Balken</a>"),
    # The whole sentence.
    ("<b>The dog runs.</b>", "Es rennt der Hund.", "0-0 2-1 0-2 1-3", "<b>Es rennt der Hund.</b>"),
    ("<b>Hello</b>", "Hallo!", "0-0", "<b>Hallo!</b>"),
    # Empty elements and comments follow the word that they touch, or precede the next one.
    ("A dog<img src=x> runs", "Es rennt ein Hund", "0-0 2-1 0-2 1-3", "Es rennt ein Hund<img src=x>"),
    ("A dog <img src=x>runs now", "Jetzt rennt ein Hund", "3-0 2-1 0-2 1-3", "Jetzt <img src=x>rennt ein Hund"),
    ("A <!-- <b> -->dog runs", "Es rennt ein Hund", "2-1 0-2 1-3", "Es rennt ein <!-- <b> -->Hund"),
    # Markup between words stays between words.
    ("Hi <img> there", "There Hi", "1-0 0-1", "There <img> Hi"),
    ("Hi <!-- c --> there you", "There you Hi", "1-0 2-1 0-2", "There <!-- c --> you Hi"),
    ("Hi there <img>", "There Hi", "1-0 0-1", "There Hi <img>"),
    ("A <b><img>big dog</b> x", "x Hund groß", "3-0 2-1 1-2", "x <b>Hund <img>groß</b>"),
    # An empty element stays in the element around it, also if its neighbour in the source is outside.
    ("<b>a</b><i><img> c</i>", "C A", "1-0 0-1", "<i><img>C</i> <b>A</b>"),
    ("<i>c <img></i><b>a</b>", "A C", "1-0 0-1", "<b>A</b> <i>C<img></i>"),
    # An empty element does not split another one.
    ("<img><b>big dog</b> x", "x Hund groß", "2-0 1-1 0-2", "x <img><b>Hund groß</b>"),
    # Words without a counterpart keep their markup, and nothing is lost if nothing is aligned.
    ("The <b><i>old</i></b> dog", "Der Hund", "0-0 2-1", "Der <b><i></i></b>Hund"),
    ("A <b>dog<img></b>", "", "", "<b><img></b>"),
    # Punctuation and parts of words.
    ("a <b>“dog”</b>, b", "b, „Hund“ a", "2-0 1-1 0-2", "b, <b>„Hund“</b> a"),
    ("a <b>dog</b>, b", "b, Hund, a", "2-0 1-1 0-2", "b, <b>Hund</b>, a"),
    ("a <b>e-mail</b>, b", "b, Post, a", "2-0 1-1 0-2", "b, <b>Post</b>, a"),
    ("dog<sup>[2]</sup>, cat<sup>3</sup>.", "Katze3, Hund[2].", "1-0 0-1", "Katze<sup>3</sup>, Hund<sup>[2]</sup>."),
    ("<b>play</b>ed x", "x gespielt", "1-0 0-1", "x <b>gespielt</b>"),
    # Entities.
    ("a &lt; <b>b &amp; c</b>", "d & c > a", "3-0 3-1 4-2 1-3 0-4", "<b>d &amp; c</b> &gt; a"),
    ("caf&eacute; &copy;&nbsp;x", "x café", "1-0 0-1", "x caf&eacute;"),
    ("a <img> <wbr> b", "A B", "0-0 1-1", "A <img> <wbr> B"),
    # Spaces stay on their side of tags, and markup stays between the words
    ("<a>Two dogs </a><img> <b>Cats</b>", "Zwei Hunde Katzen", "0-0 1-1 2-2", "<a>Zwei Hunde </a><img> <b>Katzen</b>"),
    ("<a>Two dogs </a><img> <b>Cats</b>", "Zwei Hunde Katzen", "0-0 2-2", "<a>Zwei</a> Hunde <img> <b>Katzen</b>"),
    ("<a>Two dogs </a><img> <b>Cats</b>", "Zwei  Hunde  C", "0-0 1-1 2-2", "<a>Zwei  Hunde </a><img> <b>C</b>"),
    ("<a>A dog </a> <a> cats</a> x", "Ein Hund Katzen x", "0-0 1-1 2-2 3-3", "<a>Ein Hund </a> <a> Katzen</a> x"),
    ("a <b>dog </b> <img> <i> c</i>", "A Hund C", "0-0 1-1 2-2", "A <b>Hund </b> <img> <i> C</i>"),
    ("<b>a </b> <i>c</i> <u>d</u>", "D A C", "2-0 0-1 1-2", "<u>D</u> <b>A </b> <i>C</i>"),
    # A no-break space at the end, which is dropped, is a word in alignments.
    ("a <b>dog</b>", "A Hund \u00a0", "0-0 1-1 1-2", "A <b>Hund</b>"),
])  # fmt: skip
def test_tags_follow_the_alignment(text: str, translation: str, alignment: str, expected: str) -> None:
    assert restored(text, translation, alignment) == expected
    assert copied(text) == aligned_copy(*units(text)) == text


@pytest.mark.parametrize("text, phrases, translation, alignment, expected", [
    (
        'Open <b><code class="a">git  &lt;x></code></b> now',
        ["git <x>"],
        "Jetzt git <x> öffnen",
        "3-0 0-1 0-2 0-3",
        'Jetzt <b><code class="a">git  &lt;x></code></b> öffnen',
    ),
    # The alignment decides which of two equal placeholders is which.
    ("<b>%s</b> of <i>%s</i>", ["%s"], "%s aus %s", "2-0 1-1 0-2", "<i>%s</i> aus <b>%s</b>"),
    # One that the translation lacks is inserted beside the word of its neighbour, unless it is text without markup.
    ("Hi {name} <b>you</b>", ["{name}"], "Hallo du", "0-0 2-1", "Hallo <b>du</b>"),
    ("Hi <span translate=no>A <b>B</b></span> now", ["A B"], "Jetzt Hallo", "2-0 0-1",
     "<span translate=no>A <b>B</b></span> Jetzt Hallo"),
    ("x is <var>x</var>", ["x"], "x ist x", "0-0 1-1 2-2", "x ist <var>x</var>"),
    ("x/<var>x</var> is", ["x"], "ist x/x", "1-0 0-1", "ist x/<var>x</var>"),
    ("the <var>a</var> x", ["a"], "x aber a", "2-0", "x aber <var>a</var>"),
    # The words of a placeholder are linked, whatever the alignment is.
    ("<b>{x},</b> y", ["{x}"], "Y {x},", "1-0 1-1", "Y <b>{x},</b>"),
    (
        "<i><img id=1>{x}</i> <b>{y}<img id=2></b> z",
        ["{x}", "{y}"],
        "{y}{x}",
        "",
        "<b>{y}<img id=2></b><i><img id=1>{x}</i>",
    ),
    ("the <var>a</var> x", ["a"], "x das a", "2-0 0-1 0-2", "x das <var>a</var>"),
    # What a script contains is no text.
    ("a<script>if (a<b) {}</script> b", [], "B A", "1-0 0-1", "B A<script>if (a<b) {}</script>"),
])  # fmt: skip
def test_placeholders_are_never_lost(
    text: str, phrases: list[str], translation: str, alignment: str, expected: str
) -> None:
    (unit,) = units(text)
    assert list(dict.fromkeys(phrases_of(unit))) == phrases
    assert restored(text, translation, alignment) == expected
    assert copied(text) == text
    assert " ".join(aligned_copy(unit).split()) == " ".join(text.split())


@pytest.mark.parametrize("placeholder", [
    "%s", "%d", "%(name)d", "%1$s", "%.2f", "{name}", "{}", "{0:>5}", "{{name}}", "{{ a b }}", "${name}",
    "https://x.org/a?b=c&d=e#f", "www.x.org/a", "a.b+c@x.example.org", "@name", "#hashtag",
])  # fmt: skip
def test_placeholders_are_found(placeholder: str) -> None:
    for text in (f"See {placeholder}, or not", f"({placeholder})."):
        (unit,) = units(text)
        assert phrases_of(unit) == [placeholder]


def test_the_user_says_what_stays_in_markup() -> None:
    (unit,) = markup_reading.parse("see <b>x-1 %s</b>", "html", Protected([r"x-\d"], defaults=False))
    assert isinstance(unit, MarkedText) and phrases_of(unit) == ["x-1"]


def test_ordinary_text_has_no_placeholders() -> None:
    (unit,) = units("It is 50% so 100%ig for 5 % of A&B {a b} at @ 5 home http:// a@b")
    assert phrases_of(unit) == []


@pytest.mark.parametrize("prolog", [
    "<!DOCTYPE a>",
    "<!doctype a>".upper(),
    '<!DOCTYPE a SYSTEM "a.dtd">\n',
    "<?xml version='1.0'?>\n<!-- b > c --><?d?>\n<!DOCTYPE a PUBLIC \"-//X//Y\" 'x>.dtd'>",
    '<!DOCTYPE a [<!ENTITY b "c\'>]"><!-- it\'s ]> "not -->\n<?d ]>"?> <!ELEMENT a (#PCDATA)>]>',
    '<!DOCTYPE a [<!ENTITY b SYSTEM "file:///etc/passwd"> <!ENTITY % c SYSTEM "http://127.0.0.1:9/c"> %c;]>',
])  # fmt: skip
def test_a_document_type_stays(prolog: str) -> None:
    """It is never translated, and nothing that it names is read."""
    text = f"{prolog}<A>some words</A>" if "DOCTYPE A" in prolog else f"{prolog}<a>some words</a>"
    assert sources(text, "xml") == ["some words"] and copied(text, "xml") == text


def test_references_of_a_document_type_stay() -> None:
    for declared in ('[<!ENTITY b "c">]', '[<!ENTITY b SYSTEM "file:///etc/passwd">]', 'SYSTEM "x.dtd"'):
        text = f"<!DOCTYPE a {declared}><a>some &b; words &lt; more</a>"
        (unit,) = units(text, "xml")
        assert "&b;" in phrases_of(unit) and copied(text, "xml") == text


@pytest.mark.parametrize("rules, expected", [
    (ElementRules(), ["A title", "It is", "split.", "One. Two.", "not this"]),
    (ElementRules(kept=frozenset({"raw", "t"})), ["It is", "split.", "One. Two."]),
    (ElementRules(non_splitting=frozenset({"s"})), ["A title", "It is split.", "One. Two.", "not this"]),
    (ElementRules(splitting=frozenset({"t"}), is_automatic=False), ["A title", "It is split. One. Two. not this"]),
    (ElementRules(splitting=frozenset({"b"})), ["A title", "It is", "split.", "One.", "Two.", "not this"]),
    (ElementRules(splitting=frozenset({"x"})), ["A title", "It", "is", "split.", "One. Two.", "not this"]),
    (ElementRules(is_automatic=False), ["A title It is split. One. Two. not this"]),
])  # fmt: skip
def test_elements_follow_the_rules_for_their_names(rules: ElementRules, expected: list[str]) -> None:
    text = "<d><t>A title</t> <p><s>It<x/> is</s> <s>split.</s></p> <p>One. <b>Two.</b></p> <raw>not this</raw></d>"
    parts = parse(text, "xml", rules=rules)
    assert [part.source for part in parts if isinstance(part, MarkedText)] == expected
    assert "".join(written([p] if isinstance(p, Token) else p.tokens) for p in parts) == text


@pytest.mark.parametrize("rules, expected", [
    (ElementRules(), ["some words", "to learn", "a few more"]),
    (ElementRules(kept=frozenset({"p"})), ["a few more"]),
    (ElementRules(kept=frozenset({"b"})), ["some words", "to learn", "a few more"]),
    (ElementRules(non_splitting=frozenset({"p"})), ["some words to learn", "a few more"]),
    (ElementRules(splitting=frozenset({"b"})), ["some", "words", "to learn", "a few more"]),
    (ElementRules(splitting=frozenset({"div"}), is_automatic=False), ["some words to learn", "a few more"]),
])  # fmt: skip
def test_elements_of_html_follow_the_rules(rules: ElementRules, expected: list[str]) -> None:
    text = "<p>some <b>words</b></p> <p>to learn</p><div>a few more</div>"
    assert [part.source for part in parse(text, "html", rules=rules) if isinstance(part, MarkedText)] == expected


def test_html_is_cut_at_blocks() -> None:
    text = "<div> <h1 title='a > b'>A <b>b</b> </h1>\n c <br>d<ul><li>e<li>f <b>g<br>h</b></ul><p>&nbsp;<p>i</div> j\n"
    assert sources(text) == ["A b", "c", "d", "e", "f g\nh", "i", "j"]
    assert copied(text) == text
    (_, unit, *_) = units(text)
    assert html(unit, " X ") == "\n X "
    assert sources("<b>a <p>b</p> c</b>") == ["a", "b", "c"]
    kept = "<pre>a</pre><div translate='no'>b</div><p class='x notranslate'>c</p><style>d</style>{x}"
    assert sources(kept + "<title>e</title>") == ["e"]


@pytest.mark.parametrize("text, translation, alignment, expected", [
    ("x <b>y <i>z</b> a</i> c", "c a z y x", "4-0 3-1 2-2 1-3 0-4", "c <b>a <i>z</b> y</i> x"),
    ("x <b>y <i>z</b> a</i> c", "X Z Y A C", "0-0 2-1 1-2 3-3 4-4", "X <b><i>Z</b> Y A</i> C"),
    ("<B>y <i><u>z</B> a</i></u> c", "c z a y", "3-0 1-1 2-2 0-3", "c <B><i><u>z</B> a</i> y</u>"),
    ("<b>y <i>z</b> a", "a z y", "2-0 1-1 0-2", "a <b><i>z y</b>"),
])  # fmt: skip
def test_misnested_end_tags_stay_in_order(text: str, translation: str, alignment: str, expected: str) -> None:
    assert copied(text) == text
    assert restored(text, translation, alignment) == expected


@pytest.mark.parametrize("text, expected", [
    ("<div lang=fr>Bon <p lang=en>Hi there</p> mot</div>", ["Hi there"]),
    ("<p>The <b lang=fr>bon <i lang=en>Hi</i> mot</b></p>", ["The bon Hi mot"]),
    ("<div translate=no><p>Acme</p><p translate=yes>Hi there</p></div>", ["Hi there"]),
    ("<code translate=yes>Hi there</code>", ["Hi there"]),
    ("<div translate=no><p lang=en>Hi</p></div>", []),
    ("<div lang=fr><p translate=yes>Bon</p><p lang=en>Hi <code>x</code></p></div>", ["Hi x"]),
    ("<div lang=fr><div translate=no><p lang=en>Hi</p></div></div>", []),
])  # fmt: skip
def test_the_innermost_element_says_what_is_translated(text: str, expected: list[str]) -> None:
    texts = [part for part in parse(text, "html", "en") if isinstance(part, MarkedText)]
    assert [part.source for part in texts] == expected
    for part in texts:
        words = part.source.split()
        output = html(part, part.source.replace("Hi", "HI"), [(i, i) for i in range(len(words))])
        assert output == html(part, part.source).replace("Hi", "HI")


def test_xml_is_cut_at_elements_outside_of_text() -> None:
    text = "<?xml version='1.0'?>\n<d><!-- c --><T>A</T><p>b <g><i>c</i> <i>d</i></g><br/></p><q> <i>e</i> </q></d>\n"
    assert sources(text, "xml") == ["A", "b c d", "e"]
    assert copied(text, "xml") == text
    assert sources("Press <b>OK</b>.<x/>", "xml") == ["Press OK."]
    assert sources("<p>a <b>b</b></p><p>c</p>", "xml") == ["a b", "c"]
    assert copied("<:a>b<_é ü='>'/></:a>", "xml") == "<:a>b<_é ü='>'/></:a>"
    cdata = "a <![CDATA[<b> &amp;]]> <x translate='no'>c</x>"
    assert phrases_of(units(cdata, "xml")[0]) == ["<b> &amp;", "c"]
    assert copied(cdata, "xml") == cdata


@pytest.mark.parametrize("text, expected", [
    ("<b>a", ["a"]), ("a</b> b</p>", ["a b"]), ("<b>a<i>b</b>c</i>", ["abc"]),
    ("<ul><li>a<b>b<li>c</ul>", ["ab", "c"]), ("a <b", ["a"]), ("<code><b", []), ("a < b & c > d", ["a < b & c > d"]),
    ("<a title=it's>b</a>", ["b"]), ("<a href=b/>c", ["c"]), ('<a title="b>c" x>d</a></>', ["d"]), ("", []),
    ("a <!-- b", ["a"]), ("<p><script>b</p>", []), ("<p>a<b>b<p>c", ["ab", "c"]), ("<b>" * 10_000 + "a", ["a"]),
    ("<p>a</p></div>b", ["a", "b"]), ("<title>a<b></title>c", ["a<b>", "c"]), ("<div/>a<img/>b", ["a b"]),
])  # fmt: skip
def test_broken_html_stays_as_it_is(text: str, expected: list[str]) -> None:
    assert sources(text) == expected
    assert copied(text) == text


def test_nul_is_replaced() -> None:
    assert copied("a\0b<i\0>c</i\0>") == "a\ufffdb<i\ufffd>c</i\ufffd>"


@pytest.mark.parametrize("text, markup, message", [
    ("a\n<b>c", "xml", r"not well-formed in line 2 \(mismatched tag\)"),
    ("a & b", "xml", "not well-formed"),
    ("&nbsp;", "xml", r"\(undefined entity\)"),
    ("<!DOCTYPE x><x>&nbsp;</x>", "xml", r"\(undefined entity\); correct it$"),
    ("<x>a <!DOCTYPE x></x>", "xml", "not well-formed in line 1"),
    ("<!DOCTYPE x [<x>a</x>", "xml", "not well-formed in line 1"),
    (LAUGHS, "xml", "limit on input amplification factor"),
    ("a\0", "xml", "not well-formed"),
    ("\ud800", "xml", "not well-formed"),
    ("</x><x>", "xml", "not well-formed"),
    ("<b>" * 10_000 + "a" + "</b>" * 10_000, "html", "is in 100 elements around the same text"),
])  # fmt: skip
def test_what_cannot_be_read_is_an_error(text: str, markup: str, message: str) -> None:
    with pytest.raises(NmtError, match=message) as error:
        units(text, markup)
    assert "\n" not in str(error.value)


def test_large_markup() -> None:
    blocks = "<div>" * 10_000 + "a" + "</div>" * 10_000
    assert copied(blocks) == copied(blocks, "xml") == blocks
    long = f"<a href='{'x' * 1_000_000}'>a</a> b"
    assert copied(long) == long


# Trees of tags over random words, whose attributes tell them apart.
WORDS = st.text("abÄ1.,-& <é", min_size=1, max_size=4).map(lambda text: text.replace("&", "&amp;").replace("<", "&lt;"))
LEAVES = WORDS | st.sampled_from([" ", "  ", "<imgN/>", "<!--N-->", "&nbsp;", "&eacute;"])
TREES = st.recursive(LEAVES, lambda inner: st.lists(inner, max_size=5).map(lambda parts: f"<bN>{''.join(parts)}</b>"))


@st.composite
def trees(draw: st.DrawFn) -> str:
    numbers = iter(range(10_000))
    text = "".join(draw(st.lists(TREES, max_size=6)))
    return re.sub("N", lambda _: f" id='{next(numbers)}'", text)


@given(trees(), st.lists(st.text("abÄ1.,-&<é", min_size=1, max_size=4), max_size=8), st.data())
def test_nothing_is_lost_or_invented(text: str, words: list[str], data: st.DataObject) -> None:
    assert copied(text) == text
    if "&nbsp;" not in text and "&eacute;" not in text:
        assert copied(text, "xml") == text
    for unit in units(text):
        size = len(RAW_WORD.findall(unit.source))
        links: list[AlignedWords] = [
            (data.draw(st.integers(0, size - 1)), i) for i in range(len(words)) if data.draw(st.booleans())
        ]
        output = html(unit, " ".join(words), links)
        source, target = Reader(html(unit, unit.source)), Reader(output)
        assert target.text.split() == words
        assert "".join(aligned_copy(unit).split()) == "".join(html(unit, unit.source).split())
        assert set(target.tags) == set(source.tags)
        assert all(target.tags[tag] == 1 for tag in source.tags if not tag.startswith("<b"))


def broken(pieces: Sequence[str]) -> st.SearchStrategy[str]:
    return st.lists(st.sampled_from(pieces) | st.text(max_size=3), max_size=25).map("".join)


XML = broken(
    ["<b>", "</b>", "<i x='y'>", "</i>", "<b", "<", ">", "&amp;", "<!-- -->", "<![CDATA[", "]]>", "<c/>", " a"]
)


@settings(max_examples=200)
@given(XML)
def test_broken_xml_is_refused_or_gives_well_formed_output(xml: str) -> None:
    try:
        parts = parse(xml, "xml")
    except NmtError as error:
        assert "\n" not in str(error)
        return
    output = "".join(written([part]) if isinstance(part, Token) else html(part, "x < %s", [(0, 0)]) for part in parts)
    ElementTree.fromstring(f"<x>{output}</x>")
    assert copied(xml, "xml") == xml
