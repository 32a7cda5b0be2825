"""HTML and XML with three translators without a model: markup stays, whatever it is, and only text changes."""

from html import unescape
from typing import Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from three_translators import capitals, reversed_words, translated_file, translated_unit, unchanged

from nmt.errors import NmtError
from nmt.text.markup_projection import projected
from nmt.text.markup_reading import parse, written
from nmt.text.protected import Protected
from nmt.translate.units import Unit


def marked_unit(text: str, markup: Literal["html", "xml"] = "html", lang: str = "") -> Unit:
    return Unit(text, content=parse(text, markup, Protected(), lang))


def in_capitals(text: str, markup: Literal["html", "xml"] = "html") -> str:
    unit = marked_unit(text, markup)
    assert translated_unit(unit, unchanged) == text
    return translated_unit(unit, capitals)


@pytest.mark.parametrize("text, expected, backwards", [
    # All words are in elements that touch each other: each is a text of its own.
    ("<a>Home</a><a>About us</a>", "<a>HOME</a><a>ABOUT US</a>", "<a>Home</a><a>us About</a>"),
    ("<nav><a>home</a><span>|</span><a>my page</a></nav>", "<nav><a>HOME</a><span>|</span><a>MY PAGE</a></nav>",
     "<nav><a>home</a><span>|</span><a>page my</a></nav>"),
    ("<b><i>one</i><i>two</i></b> x", "<b><i>ONE</i><i>TWO</i></b> X", None),
    ("<p>See <a>foo bar</a><em>baz</em> now", "<p>SEE <a>FOO BAR</a><em>BAZ</em> NOW", None),
    ("Run <code>ls</code><code>cd</code> now", "RUN <code>ls</code><code>cd</code> NOW", None),
    ("a point of <code>point</code>s and <code>point</code> a",
     "A POINT OF <code>point</code>S AND <code>point</code> A",
     "a <code>point</code> and <code>point</code>s of point a"),
    ("run <code>git clone https://x.org/a . b</code>, a <code>a</code>s",
     "RUN <code>git clone https://x.org/a . b</code>, A <code>a</code>S", None),
    ("see <a>it</a><!-- c --><a>all</a> now", "SEE <a>IT</a><!-- c --><a>ALL</a> NOW", None),
    ("<label>Name</label><input><label>Old age</label><input>",
     "<label>NAME</label><input><label>OLD AGE</label><input>",
     "<label>Name</label><input><label>age Old</label><input>"),
    ("Give<input>a name", "GIVE<input>A NAME", None),
    # Lines in an element are texts, too.
    ("<b>A b<br>C d</b>", "<b>A B<br>C D</b>", "<b>b A<br>d C</b>"),
    ("<b>a <br>\n b</b> c", "<b>A <br>\n B</b> C", None),
    ("<i>a<br><br/>b<br></i>", "<i>A<br><br/>B<br></i>", "<i>a<br><br/>b<br></i>"),
    ("<b>a<hr>b</b>", "<b>A<hr>B</b>", "<b>a<hr>b</b>"),
    # Markup in a word
    ("<b>un</b>believable x", "<b>UN</b>BELIEVABLE X", "x <b>un</b>believable"),
    ("senten<x id='2'/>ce x", "SENTEN<x id='2'/>CE X", "x senten<x id='2'/>ce"),
    ("Donau<wbr>dampf<!-- c -->schiff x", "DONAU<wbr>DAMPF<!-- c -->SCHIFF X", "x Donau<wbr>dampf<!-- c -->schiff"),
    ("H<sub>2</sub><sup>+</sup> ion", "H<sub>2</sub><sup>+</sup> ION", "ion H<sub>2</sub><sup>+</sup>"),
    ("<g1>un</g1><g2>usual</g2> x", "<g1>UN</g1><g2>USUAL</g2> X", "x <g1>un</g1><g2>usual</g2>"),
    ("<i>a</i><b>, c</b> (<b>d</b><i>e</i>)", "<i>A</i><b>, C</b> (<b>D</b><i>E</i>)", None),
])  # fmt: skip
def test_elements_that_touch_each_other_are_separate_words(text: str, expected: str, backwards: str | None) -> None:
    assert in_capitals(text) == expected
    if backwards is not None:
        assert translated_unit(marked_unit(text, "html"), reversed_words) == backwards


@pytest.mark.parametrize("text, sources", [
    ("<a>x<tab/>y <b>b</b><i>i</i></a>", ["x y b i"]),
    ("<p>One<lb/>two</p>", ["One two"]),
    ("senten<x/>ce, wo<ph id='1'/>rd a<g/>b", ["sentence, word ab"]),
    ("<d>First.<x/>Second.</d>", ["First. Second."]),
    ("<d>a<note/>, b (<note/>c)</d>", ["a, b (c)"]),
])  # fmt: skip
def test_empty_elements_of_xml(text: str, sources: list[str]) -> None:
    assert [marked.source for marked in marked_unit(text, "xml").lines] == sources
    assert in_capitals(text, "xml").lower() == text.lower()


@pytest.mark.parametrize("text, expected", [
    # Tags that browsers understand, or not
    ("a</br>b", "A</br>B"),
    ("a</p>b", "A</p>B"),
    ("a</i> b</q>", "A</i> B</q>"),
    ("<b>a", "<b>A"),
    ("<b><table><tr><td>x</b></table>y", "<b><table><tr><td>X</b></table>Y"),
    ("<b><table><tr><td>x</table>y</b>z", "<b><table><tr><td>X</table>Y</b>Z"),
    ("<b>a<i>b</b>c</i> d", "<b>A<i>B</b>C</i> D"),
    ("<p><b>one<p>two</b>three", "<p><b>ONE<p>TWO</b>THREE"),
    ("<ul><li>a<b>b<li>c</ul>", "<ul><li>A<b>B<li>C</ul>"),
    ("<p translate=no>a<p>b<li class=notranslate>c<li>d", "<p translate=no>a<p>B<li class=notranslate>c<li>D"),
    ("<dl><dt translate=no>a<dd>b</dl>c", "<dl><dt translate=no>a<dd>B</dl>C"),
    ("<table><td translate=no>a<td>b<tr>c", "<table><td translate=no>a<td>B<tr>C"),
    ("<p>a <code>b</p>c", "<p>A <code>b</p>C"),
    ("a <b", "A <b"),
    ("a <b title='c > d", "A <b title='c > d"),
    ("<a title=it's>b</a></>c</3>d", "<a title=it's>B</a></>C</3>D"),
    ("a <div<p>b</div>", "A <div<p>B</div>"),
    ("a <!-- b", "A <!-- b"),
    ("a<!-->b<!--->c<!-- d --!>e", "A<!-->B<!--->C<!-- d --!>E"),
    ("a<!x>b<?x>c<![CDATA[ d > e ]]>f", "A<!x>B<?x>C<![CDATA[ d > e ]]>F"),
    ("<script>a<b</script>c<script>d", "<script>a<b</script>C<script>d"),
    ("a < b & c > d &", "A < B & C > D &"),
    ("<é>a", "<É>A"),
    # Text without tags
    ("<title>a <b>c</b></title>d", "<title>A <b>C</b></title>D"),
    ("<textarea>one  two\r\n three\n\n<p>four</textarea>", "<textarea>ONE TWO\r\n THREE\n\n<p>FOUR</textarea>"),
    ("<textarea>a</textareas>\n</TEXTAREA >b", "<textarea>A</textareas>\n</TEXTAREA >B"),
    ("<iframe>a<b</iframe>b<xmp><i>c</xmp>d<noembed>e</noembed>",
     "<iframe>a<b</iframe>B<xmp><i>c</xmp>D<noembed>e</noembed>"),
    # References
    ("&copy 2024 &raquo more&nbsp;&eacute &notit; AT&T &amp; &amp x",
     "&copy 2024 &raquo MORE&nbsp;É &notIT; AT&T &amp; &amp X"),
    ("&InvisibleComma;<b>\u200b</b>&shy;<p>&zwj; a", "&InvisibleComma;<b>\u200b</b>&shy;<p>&zwj; A"),
    ("&#65 b &#x41; &#X42 &lt;b&gt; &nosuch &", "&#65 B &#x41; &#X42 &lt;b&gt; &NOSUCH &"),
    # Other languages within HTML
    ("a <math><mi>sin</mi></math> b <svg><title>c</title><text>d</text></svg> e",
     "A <math><mi>sin</mi></math> B <svg><title>c</title><text>d</text></svg> E"),
    ("<svg><style/><path/></svg>a", "<svg><style/><path/></svg>A"),
    ('<i class="material-icons">home</i> a <span class="katex">x <b>y</b></span> <span class="math inline">z</span>',
     '<i class="material-icons">home</i> A <span class="katex">x <b>y</b></span> <span class="math inline">z</span>'),
    ("a <%= x > y %> b <%# c %>", "A <%= x > y %> B <%# c %>"),
    ("a <?php if ($a->b) echo '<p>c'; ?> d <?= $e ?> f <?php g",
     "A <?php if ($a->b) echo '<p>c'; ?> D <?= $e ?> F <?php g"),
    ("<a href=\"<%= f('x', \"y\") > 1 %>\" <%= 'z' %>>b</a>", "<a href=\"<%= f('x', \"y\") > 1 %>\" <%= 'z' %>>B</a>"),
    ("<a href='<?php echo 'x' ?>'>b</a> <% c", "<a href='<?php echo 'x' ?>'>B</a> <% C"),
    ("{% if a %}b{% endif %} {{ c\n  d }}, https://x.org/?a=b&c=d.", "{% if a %}B{% endif %} {{ c\n  d }}, https://x.org/?a=b&c=d."),
])  # fmt: skip
def test_only_text_changes(text: str, expected: str) -> None:
    assert in_capitals(text) == expected


@pytest.mark.parametrize("text, expected", [
    ("AT& T; copy", "copy T; AT&"),
    ("1 &lt b", "b &lt 1"),
    ("copy; x& y", "y x& copy;"),
])  # fmt: skip
def test_references_keep_their_meaning(text: str, expected: str) -> None:
    assert translated_unit(marked_unit(text, "html"), reversed_words) == expected


@pytest.mark.parametrize("source, translation, expected", [
    ("a & b", "&lt;", "&amp;lt;"), ("a & b", "&copy b", "&amp;copy b"), ("&not a", "¬in; a", "&not;in; a"),
    ("a < b", "<b>", "&lt;b&gt;"), ("a < b", "a <", "a <"), ("&#65 b", "A1 b", "&#65;1 b"),
])  # fmt: skip
def test_characters_of_markup_are_never_made_of_words(source: str, translation: str, expected: str) -> None:
    (marked,) = marked_unit(source, "html").lines
    words = source.split()
    links = [
        (i, j) for i, word in enumerate(words) for j, other in enumerate(translation.split()) if word[0] == other[0]
    ]
    assert written(projected(marked, translation, links or [(1, 0)])) in (
        expected,
        expected.replace("&not;", "¬").replace("&#65;", "A"),
    )


def test_no_break_spaces_stay() -> None:
    text = "<p>10\u00a0000 m of\u202fit <b>are&nbsp;x</b> y\u3000z"
    (marked,) = marked_unit(text, "html").lines
    assert marked.source == "10\u00a0000 m of\u202fit are\u00a0x y\u3000z"
    assert in_capitals(text) == "<p>10\u00a0000 M OF\u202fIT <b>ARE&nbsp;X</b> Y\u3000Z"
    assert translated_unit(marked_unit(text, "html"), reversed_words) == (
        "<p>y\u3000z <b>are&nbsp;x</b> of\u202fit m 10\u00a0000"
    )


PIECES = [
    *["<b>", "</b>", "<i x='y'>", "</i>", "<b", "</", "<", ">", "&", "&amp", "&lt;", "<!--", "-->", "<p>", "</p>"],
    *["<br>", "</br>", "<code>", "</code>", "'", '"', " a ", "<a b='", "<script>", "</script>", "<li>", "/>", "<ul>"],
    *["<title>", "</title>", "<textarea>", "</textarea>", "<svg>", "</svg>", "<x/>", "<img>", "&copy", "%s"],
    *["<table>", "<td>", "</table>", "<%", "%>", "<?php ", "?>", "<![CDATA[", "]]>", "\n", "\u00a0", "<p lang=fr>"],
    *["word", ". ", "B"],
]  # fmt: skip


def squeezed(text: str) -> str:
    return "".join(unescape(text).lower().split())


def check(text: str) -> None:
    unit = marked_unit(text, "html", lang="en")
    assert translated_unit(unit, unchanged) == text
    in_capitals = translated_unit(unit, capitals)
    assert squeezed(in_capitals) == squeezed(text)
    again = marked_unit(in_capitals, "html", lang="en")
    sources, new_sources = ("".join(marked.source for marked in each.lines) for each in (unit, again))
    assert squeezed(new_sources) == squeezed(sources)
    if "<" not in text and "&" not in text:
        assert sorted(squeezed(translated_unit(unit, reversed_words))) == sorted(squeezed(text))


@settings(max_examples=200)
@given(st.lists(st.sampled_from(PIECES) | st.text("aB1<>&;/!\" '=-", max_size=3), max_size=25).map("".join))
def test_no_markup_is_changed(text: str) -> None:
    check(text)


@pytest.mark.nightly
@settings(max_examples=5000, derandomize=False)
@given(st.lists(st.sampled_from(PIECES) | st.text("aB1<>&;/!\" '=-", max_size=3), max_size=25).map("".join))
def test_no_markup_is_changed_in_many_pages(text: str) -> None:
    check(text)


def page(text: str | bytes, target_lang: str = "de", source_lang: str = "en") -> bytes:
    data = text.encode() if isinstance(text, str) else text
    assert translated_file(data, "html", unchanged, source_lang, source_lang) == data
    return translated_file(data, "html", capitals, source_lang, target_lang)


@pytest.mark.parametrize("text, expected", [
    # Latin-1 of browsers is Windows-1252.
    (b"<meta charset=iso-8859-1>d\xfc \x93a\x94 &auml;", b"<meta charset=iso-8859-1>D\xdc \x93A\x94 \xc4"),
    (b"<META CHARSET='latin1'>&szlig;&#268;\x81", b"<META CHARSET='latin1'>SS&#268;\x81"),
    ("<meta http-equiv=Content-Type content='text/html; charset=windows-1251'>да &#233;".encode("cp1251"),
     "<meta http-equiv=Content-Type content='text/html; charset=windows-1251'>ДА &#201;".encode("cp1251")),
    ("<meta charset=Shift_JIS>日本 a".encode("cp932"), "<meta charset=Shift_JIS>日本 A".encode("cp932")),
    ("<?xml version='1.0' encoding='ISO-8859-2'?><p>č".encode("iso-8859-2"),
     "<?xml version='1.0' encoding='ISO-8859-2'?><p>Č".encode("iso-8859-2")),
    ("\ufeff<p>é &#956;".encode("utf-16-le"), "\ufeff<p>É Μ".encode("utf-16-le")),
    ("\ufeff<p>é".encode("utf-16-be"), "\ufeff<p>É".encode("utf-16-be")),
    # A wrong declaration
    ("<meta charset=iso-8859-1>é".encode(), "<meta charset=iso-8859-1>É".encode()),
    ("<meta charset=utf-16>é".encode(), "<meta charset=utf-16>É".encode()),
    # None
    (b"<p>&eacute;", b"<p>&#201;"),
    (b"<html><HEAD lang=en>\n<title>&eacute;", '<html><HEAD lang=en><meta charset="utf-8">\n<title>É'.encode()),
    (b"<html><head><title>a", b"<html><head><title>A"),
    ("<p>é".encode(), "<p>É".encode()),
    (b"<meta charset=utf-8><p>&eacute;", "<meta charset=utf-8><p>É".encode()),
    (b"<meta charset=nosuch><p>&eacute;", b"<meta charset=nosuch><p>&#201;"),
])  # fmt: skip
def test_pages_keep_their_encoding(text: bytes, expected: bytes) -> None:
    assert page(text) == expected


@pytest.mark.parametrize("data", [b"<p>\xff", b"<meta charset=nosuch>\xff", b"<meta charset=rot13>\xff", b"\xff\xfea"])
def test_pages_in_an_unknown_encoding_are_refused(data: bytes) -> None:
    with pytest.raises(NmtError, match=r"is not UTF-(8|16-LE) at byte"):
        page(data)


@pytest.mark.parametrize("target_lang, text, expected", [
    ("ar", "<html lang=en><p>a", '<html lang="ar" dir="rtl"><p>A'),
    ("fa_IR", '<html lang="en" dir="ltr"><body dir=ltr>a', '<html lang="fa-IR" dir="rtl"><body dir="rtl">A'),
    ("he", "<HTML>a<p dir=ltr>b", '<HTML dir="rtl">A<p dir=ltr>B'),
    ("ur", "<html xml:lang='en' lang='en'><p>a", "<html xml:lang='ur' lang='ur' dir=\"rtl\"><p>A"),
    ("ar", "<p>a", "<p>A"),
    ("de", '<html dir="RTL" lang="he"><body dir="rtl">a', '<html dir="ltr" lang="de"><body dir="ltr">A'),
    ("de", "<html dir=ltr><p>a", "<html dir=ltr><p>A"),
    ("de", "<html><p dir=auto>a", "<html><p dir=auto>A"),
])  # fmt: skip
def test_pages_have_the_direction_of_the_language(target_lang: str, text: str, expected: str) -> None:
    assert translated_file(text.encode(), "html", capitals, "en", target_lang).decode() == expected


@pytest.mark.parametrize("text, expected", [
    ("<iframe title='a map' src=x>b</iframe>c", "<iframe title='A MAP' src=x>b</iframe>C"),
    ("<p>see <svg title=n><title>a dog &amp; b</title><path/><text>c</text></svg> here",
     "<p>SEE <svg title=n><title>A DOG &amp; B</title><path/><text>c</text></svg> HERE"),
    ("<svg><g><desc id=x>\n a dog\n</desc></g></svg>", "<svg><g><desc id=x>\n A DOG\n</desc></g></svg>"),
    ("<optgroup label='big dog'><option value=a label='b'>c", "<optgroup label='BIG DOG'><option value=a label='B'>C"),
    ("<input type=Submit value='send'><input value='typed'>", "<input type=Submit value='SEND'><input value='typed'>"),
    ("<p aria-description='a' aria-valuetext='two dogs' aria-label='' data-x='b'>",
     "<p aria-description='A' aria-valuetext='TWO DOGS' aria-label='' data-x='b'>"),
    ("<input placeholder=\"find {{ name|default('us') }} & it\">",
     "<input placeholder=\"FIND {{ name|default('us') }} &amp; IT\">"),
    ('<img alt="a {{ .Title | default "Home page" }} dog">', '<img alt="A {{ .Title | default "Home page" }} DOG">'),
    ("<b title='see {{ x | d(&#39;u&#39;) }}'>", "<b title='SEE {{ x | d(&#39;u&#39;) }}'>"),
    ('<p title="use {{ to">a</p><p title="and }}">', '<p title="USE {{ TO">A</p><p title="AND }}">'),
    ('<a title="by <?php echo $n; ?>">', '<a title="BY <?php echo $n; ?>">'),
    # What stays
    ("<iframe title='a' translate=no></iframe><style title='b'>c</style><!-- <img alt='d'> -->", None),
    ("<p translate=no><svg><title>a</title></svg><iframe title='a'></iframe>", None),
    ("<svg class=notranslate><title>a</title></svg><svg lang=fr><title>a</title></svg>", None),
])  # fmt: skip
def test_attributes_and_titles_that_users_see(text: str, expected: str | None) -> None:
    assert page(text) == (expected or text).encode()


def test_elements_in_another_language_stay() -> None:
    first = '<p lang="fr">un <b title=deux>deux</b></p>'
    text = f'<html lang="fr">{first}<p lang=en-GB>a <i lang=de>b</i> <q xml:lang=en>c</q>'
    expected = f'<html lang="de">{first}<p lang=en-GB>A <i lang=de>b</i> <q xml:lang=en>C</q>'
    assert translated_file(text.encode(), "html", capitals).decode() == expected
