"""XLIFF 1 and 2: which units get a target, how inline elements travel, and that damaged files give one sentence."""

import re
from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lxml import etree
from translations import backwards, copied, damaged, in_text, repeated, shuffled, texts, translated

from nmt.documents.document import Document, ReadOptions, read_document
from nmt.errors import NmtError

NAMESPACE = "urn:oasis:names:tc:xliff:document:1.2"


def xliff(units: str, attributes: str = "", version: str = "1.2", before: str = "") -> bytes:
    start = f'<?xml version="1.0" encoding="UTF-8"?>\n{before}<xliff version="{version}" xmlns="{NAMESPACE}">'
    file = f'<file original="a" source-language="en" datatype="html"{attributes}><body>{units}</body></file>'
    return f"{start}{file}</xliff>\n".encode()


def unit(source: str, rest: str = "", attributes: str = "") -> str:
    return f'<trans-unit id="1"{attributes}>\n  <source>{source}</source>\n{rest}</trans-unit>'


def document(data: bytes, target: str = "de", *, translate_all: bool = False) -> Document:
    return read_document(data, "xlf", ReadOptions("x.xlf", "en", target, translate_all))


def targets(data: bytes) -> list[str]:
    """Returns the content of each target."""
    contents = []
    for target in etree.fromstring(data).iter(f"{{{NAMESPACE}}}target"):
        text = etree.tostring(target, with_tail=False, encoding="unicode").replace(f' xmlns="{NAMESPACE}"', "")
        contents.append(text.partition(">")[2].removesuffix("</target>") if "</target>" in text else "")
    return contents


def raw_targets(data: bytes) -> list[str]:
    """Returns the content of each target, as the file writes it."""
    return [part.partition("</target>")[0] for part in re.split(r"<target[^>]*>", data.decode())[1:]]


def last_target(source: str, rest: str = "", translation: Any = None) -> str:
    read = document(xliff(unit(source, rest)))
    return targets(translated(read, translation) if translation else translated(read))[-1]


PAIR = '<bpt id="{0}">&lt;b&gt;</bpt>{1}<ept id="{0}">&lt;/b&gt;</ept>'
RICH = (
    f'A <g id="1" ctype="bold">big <x id="2"/>dog</g> {PAIR.format(3, "runs")} to<ph id="4">{{code}}</ph> '
    '<mrk mtype="protected">Foo Bar</mrk>, <bx id="5" rid="9"/>it<ex id="6" rid="9"/> '
    '<it id="7" pos="open">&lt;i&gt;</it>is <mrk mtype="term">home</mrk>.'
)


def test_inline_elements_of_a_passage() -> None:
    (passage,) = texts(document(xliff(unit(RICH))))
    assert passage == (
        'A <g0>big <x1/>dog</g0> <g2>runs</g2> to<x3/> <x4 translate="no">Foo Bar</x4>, '
        "<g5>it</g5> <x6/>is <g7>home</g7>."
    )


def test_a_source_that_is_its_own_translation_is_copied() -> None:
    data = xliff(unit(RICH))
    output = copied(document(data))
    assert targets(output) == [RICH]
    target = f'\n  <target state="needs-review-translation">{RICH}</target>\n</trans-unit>'
    expected = data.decode().replace("\n</trans-unit>", target).replace('="html"', '="html" target-language="de"')
    trees = [etree.fromstring(xml) for xml in (output, expected.encode())]
    assert etree.tostring(trees[0], method="c14n") == etree.tostring(trees[1], method="c14n")


def test_a_translation_changes_only_the_text() -> None:
    code, kept = "{code}", ["&lt;b&gt;", "&lt;/b&gt;", "{code}", "&lt;i&gt;", "Foo Bar"]
    target = targets(translated(document(xliff(unit(RICH)))))[0]
    for text in kept:
        assert target.count(text) == RICH.count(text), text
    assert code in target
    assert target.startswith('A <g id="1" ctype="bold">BIG <x id="2"/>DOG</g> <bpt id="3">')


@pytest.mark.parametrize("source, expected", [
    ('one <g id="1">two</g> three', 'three <g id="1">two</g> one'),
    (f"one {PAIR.format(1, 'two')} three", f"three {PAIR.format(1, 'two')} one"),
    ('one <x id="1"/>two', '<x id="1"/>two one'),
    # Overlapping pairs keep the order of their ends.
    ('<bx id="1"/>one <bx id="2"/>two<ex id="1"/> three<ex id="2"/> four',
     'four three<bx id="2"/> <bx id="1"/><ex id="2"/>two one<ex id="1"/>'),
    # Angular writes both ends of an element as x.
    ('one <x id="START_TAG_B"/>two<x id="CLOSE_TAG_B"/>', '<x id="START_TAG_B"/>two<x id="CLOSE_TAG_B"/> one'),
    # Phrase writes them as text.
    ("one {1&gt;two&lt;1} {b>three&lt;b}", "{b&gt;three&lt;b} {1&gt;two&lt;1} one"),
])  # fmt: skip
def test_elements_follow_their_words(source: str, expected: str) -> None:
    assert last_target(source, translation=backwards) == expected


SEGMENT = '<mrk mtype="seg" mid="{}">{}</mrk>'
FIRST, SECOND = SEGMENT.format(0, 'One <g id="1">dog</g>.'), SEGMENT.format(1, "Two.")
SEGMENTS = f'{FIRST} <g id="2">{SECOND}</g><x id="3"/>'


def test_segments_are_translated_by_themselves() -> None:
    rest = f"<seg-source>{SEGMENTS}</seg-source>\n<note>Note</note>"
    read = document(xliff(unit("One dog. Two.", rest)))
    assert texts(read) == ["One <g0>dog</g0>.", "Two."]
    assert targets(translated(read)) == [SEGMENTS.replace("One", "ONE").replace("dog", "DOG").replace("Two", "TWO")]
    names = [etree.QName(e).localname for e in etree.fromstring(translated(read)).find(".//{*}trans-unit")]
    assert names == ["source", "seg-source", "target", "note"]


@pytest.mark.parametrize("rest, attributes, is_translated", [
    ("", "", True),
    ("<target/>", "", True),
    ('<target state="needs-translation">dog</target>', "", True),
    ("<target>Hund</target>", "", False),
    ('<target><x id="1"/></target>', "", False),
    ("", ' approved="yes"', False),
    ("", ' approved="no"', True),
])  # fmt: skip
def test_units_with_a_translation_stay(rest: str, attributes: str, is_translated: bool) -> None:
    data = xliff(unit("dog", rest, attributes))
    read = document(data)
    assert bool(read.passages) == is_translated
    assert read.skipped == ({} if is_translated else {"translated already": 1})
    assert targets(translated(read)) == (["DOG"] if is_translated else targets(data))
    again = translated(document(data, translate_all=True))
    assert targets(again) == ["DOG"] and b"approved" not in again


def test_units_that_are_not_to_be_translated_stay() -> None:
    units = unit("a", attributes=' translate="no"') + f'<group translate="no">{unit("b")}'
    data = xliff(units + unit("c", attributes=' translate="yes"') + "</group>")
    for translate_all in (False, True):
        read = document(data, translate_all=translate_all)
        assert texts(read) == ["c"]
        assert read.skipped == {"not to be translated": 2}


@pytest.mark.parametrize("attributes, source, expected", [
    (' its:translate="no"', "dog", []),
    (' xmlns:m="http://www.memsource.com/mxlf/2.0" m:locked="true"', "dog", []),
    (' xmlns:mq="MQXliff" mq:locked="locked"', "dog", []),
    ("", 'a <mrk mtype="x" its:translate="no">Foo Bar</mrk> b', ['a <x0 translate="no">Foo Bar</x0> b']),
    ("", 'a <g id="1" translate="no">Foo <x id="2"/>Bar</g> b', ['a <x0 translate="no">Foo Bar</x0> b']),
    ("", 'a <mrk mtype="x-its-translate-no">Foo</mrk> b', ['a <x0 translate="no">Foo</x0> b']),
])  # fmt: skip
def test_its_translate(attributes: str, source: str, expected: list[str]) -> None:
    data = xliff(unit(source, attributes=attributes), ' xmlns:its="http://www.w3.org/2005/11/its"')
    assert texts(read := document(data)) == expected
    assert targets(copied(read)) == ([source] if expected else [])


HTML = [
    ("&lt;b&gt;big&lt;/b&gt; dog", ["<g0>big</g0> dog"]),
    ('&lt;p&gt;A &lt;a href="x"&gt;dog&lt;/a&gt;.&lt;/p&gt;&lt;p&gt;B&lt;/p&gt;', ["A <g0>dog</g0>.", "B"]),
    ("a &amp;amp; b&amp;nbsp;c", ['a <x0 translate="no">&amp;</x0> b<x1/>c']),
    ("x &lt; y &quot;z&quot; &#233;", ['x &lt; y "z" é']),
    ("<![CDATA[<p>A <b>big</b> & dog</p>]]>", ["A <g0>big</g0> &amp; dog"]),
    ("One <![CDATA[<i>two</i> & three]]>", ["One <g0><g1>two</g1> &amp; three</g0>"]),
    ("&lt;!-- note --&gt;dog", ["dog"]),
    ("a &lt;b&gt;&lt;i&gt;&lt;/i&gt;&lt;/b&gt; dog", ["a <x0/> dog"]),
    ('a <g id="1"><x id="2"/></g> dog', ["a <x0/> dog"]),
    ('a <bpt id="1">&lt;i&gt;</bpt><ept id="1">&lt;/i&gt;</ept> dog', ["a <x0/> dog"]),
    ("one&lt;br/&gt;two", ["one<x0/> two"]),
    ('a &#160;<x id="1"/>&#160;dog', ["a \u00a0<x0/>\u00a0dog"]),
    ('&lt;b&gt;one <x id="1"/>&lt;/b&gt; two', ["<g0>one <x1/></g0> two"]),
]  # fmt: skip


@pytest.mark.parametrize("source, passages", HTML)
def test_html_that_is_written_as_text(source: str, passages: list[str]) -> None:
    read = document(xliff(unit(source)))
    assert texts(read) == passages
    assert raw_targets(copied(read)) == [source]


def test_only_text_of_html_changes() -> None:
    source = '&lt;p&gt;one &lt;b class="x"&gt;two&lt;/b&gt; &amp;amp; &amp;nbsp;three &lt;br/&gt;four&lt;/p&gt;'
    for plain in (source, f"<![CDATA[{source.replace('&lt;', '<').replace('&gt;', '>').replace('&amp;', '&')}]]>"):
        expected = plain
        for word in ("one", "two", "three", "four"):
            expected = expected.replace(word, word.upper())
        assert raw_targets(translated(document(xliff(unit(plain))))) == [expected]


def test_a_translation_cannot_end_a_cdata_section() -> None:
    output = document(xliff(unit("<![CDATA[dog]]>"))).write([in_text("]]><x>")])
    assert etree.fromstring(output).findtext(".//{*}target") == "]]><x>"


@pytest.mark.parametrize("target, expected", [
    ("<target/>", "ONE.|TWO."),
    ('<target><mrk mtype="seg" mid="1"/><mrk mtype="seg" mid="2"/></target>', "ONE.|TWO."),
    ('<target><mrk mtype="seg" mid="1"> </mrk><mrk mtype="seg" mid="2"><x id="1"/></mrk></target>', "ONE.|TWO."),
    ('<target><mrk mtype="seg" mid="1">Eins &amp;</mrk> <mrk mtype="seg" mid="2"/></target>', "Eins &|TWO."),
    ('<target><mrk mtype="seg" mid="1">Eins.</mrk> <mrk mtype="seg" mid="2">Zwei.</mrk></target>', "Eins.|Zwei."),
])  # fmt: skip
def test_segments_without_text_are_translated(target: str, expected: str) -> None:
    segments = '<mrk mtype="seg" mid="1">One.</mrk> <mrk mtype="seg" mid="2">Two.</mrk>'
    data = xliff(unit("One. Two.", f"<seg-source>{segments}</seg-source>{target}"))
    marks = etree.fromstring(translated(document(data))).find(".//{*}target").iter("{*}mrk")
    assert "|".join(mark.text for mark in marks) == expected


DECLARATIONS = ["", "<?xml version='1.0'?>\r\n", '<?xml version="1.0" encoding="{}" standalone="yes"?>\n<!-- a -->\n']


@pytest.mark.parametrize("declaration", DECLARATIONS)
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "iso-8859-1"])
@pytest.mark.parametrize("end", ["", "\n", "\r\n\r\n"])
def test_all_other_bytes_stay(declaration: str, encoding: str, end: str) -> None:
    name = encoding.removesuffix("-sig").upper()
    if encoding == "iso-8859-1" and "{}" not in declaration:
        declaration = DECLARATIONS[-1]
    body = xliff(unit("a&#x20;café  ’".replace("’", "&#8217;"), "  <note></note>\r\n", " xml:space='preserve'"))
    text = declaration.format(name) + body.decode().partition("\n")[2].strip() + end
    output = copied(document(text.encode(encoding), "de")).decode(encoding)
    source = text.partition("<source>")[2].partition("</source>")[0]
    target = f'\n  <target state="needs-review-translation">{source}</target>'
    expected = text.replace("</source>", f"</source>{target}").replace('"html"', '"html" target-language="de"')
    assert output == expected


def test_a_file_without_new_translations_stays() -> None:
    data = xliff(unit("dog", "<target   state='final' >Hund</target >")).replace(b"\n", b"\r\n")
    assert translated(document(data)) == data


def test_prefixes_of_names_stay() -> None:
    data = xliff(unit("dog")).replace(b"<", b"<a:").replace(b"<a:/", b"</a:").replace(b"xmlns=", b"xmlns:a=")
    assert b'<a:target state="needs-review-translation">DOG</a:target>' in translated(
        document(data.replace(b"<a:?", b"<?"))
    )


@pytest.mark.parametrize("target, added", [("de", ""), ("ru", "few {# DOGS} many {# DOGS} ")])
def test_messages_of_icu(target: str, added: str) -> None:
    placeholder = '<x id="INTERPOLATION" equiv-text="{{ n }}"/>'
    source = f"{{VAR_PLURAL, plural, =0 {{none}} one {{{placeholder} dog}} other {{# dogs}}}}"
    message = targets(translated(document(xliff(unit(source)), target)))[0]
    assert message == f"{{VAR_PLURAL, plural, =0 {{NONE}} one {{{placeholder} DOG}} {added}other {{# DOGS}}}}"


@pytest.mark.parametrize("source", ["It has {{ limit }} dog.|It has {{ limit }} dogs.", "Home | About"])
def test_bars_are_part_of_a_text(source: str) -> None:
    read = document(xliff(unit(source)))
    assert len(texts(read)) == 1
    assert targets(copied(read)) == [source]


@pytest.mark.parametrize("source, expected", [
    ("Use &lt;code&gt;a b&lt;/code&gt; and &lt;pre&gt;c  d&lt;/pre&gt; now",
     "USE &lt;code&gt;a b&lt;/code&gt; AND &lt;pre&gt;c  d&lt;/pre&gt; NOW"),
    ('A &lt;b translate="no"&gt;x &amp;amp; y&lt;/b&gt; or', 'A &lt;b translate="no"&gt;x &amp;amp; y&lt;/b&gt; OR'),
    ("<![CDATA[<p>Use <kbd>a & b</kbd> now</p>]]>", "&lt;p&gt;USE &lt;kbd&gt;a &amp; b&lt;/kbd&gt; NOW&lt;/p&gt;"),
    ('use <bpt id="1">&lt;code&gt;</bpt>a b<ept id="1">&lt;/code&gt;</ept> now',
     'USE <bpt id="1">&lt;code&gt;</bpt>a b<ept id="1">&lt;/code&gt;</ept> NOW'),
    ("use &lt;code&gt;a <g id=\"1\">b</g>&lt;/code&gt; now", "USE &lt;code&gt;a <g id=\"1\">b</g>&lt;/code&gt; NOW"),
])  # fmt: skip
def test_what_html_keeps_stays(source: str, expected: str) -> None:
    assert targets(translated(document(xliff(unit(source))))) == [expected]


def xliff_2(units: str, attributes: str = ' trgLang="de"', version: str = "2.0") -> bytes:
    start = f'<xliff xmlns="urn:oasis:names:tc:xliff:document:2.0" version="{version}" srcLang="en"{attributes}>'
    return f'<?xml version="1.0"?>\n{start}<file id="f">{units}</file></xliff>\n'.encode()


RICH_2 = (
    'A <pc id="1" type="fmt">big <ph id="2"/>dog</pc> <mrk id="m1" translate="no">Foo Bar</mrk>, <sc id="3"/>it'
    '<ec startRef="3"/> <sm id="m2" translate="no"/>stays <ph id="4"/>here<em startRef="m2"/><cp hex="0007"/> end.'
)


@pytest.mark.parametrize("version", ["2.0", "2.1", "2.2"])
def test_segments_of_xliff_2(version: str) -> None:
    segment = '<unit id="u">\n  <segment id="s"{}>\n    <source>{}</source>{}\n  </segment>{}</unit>'
    ignorable = "<ignorable><source> </source></ignorable>"
    data = xliff_2(segment.format(' state="initial" subState="a:b"', RICH_2, "", ignorable), version=version)
    read = document(data)
    assert texts(read) == [
        'A <g0>big <x1/>dog</g0> <x2 translate="no">Foo Bar</x2>, <g3>it</g3> <x4 translate="no">stays here</x4>'
        "<x5/> end."
    ]
    target = f"\n    <target>{RICH_2}</target>"
    expected = xliff_2(segment.format(' state="translated"', RICH_2, target, ignorable), version=version)
    assert copied(read) == expected
    capitals = RICH_2.replace("big", "BIG").replace(">dog", ">DOG").replace(">it<", ">IT<").replace("end.", "END.")
    assert raw_targets(translated(read)) == [capitals]


@pytest.mark.parametrize("attributes, target, is_translated", [
    ("", "", True), ("", "<target/>", True), (' state="initial"', "<target>dog</target>", True),
    ("", "<target>Hund</target>", False), (' state="final"', "<target>Hund</target>", False),
])  # fmt: skip
def test_segments_of_xliff_2_with_a_translation_stay(attributes: str, target: str, is_translated: bool) -> None:
    data = xliff_2(f'<unit id="u"><segment{attributes}><source>dog</source>{target}</segment></unit>')
    output = translated(read := document(data))
    assert bool(read.passages) == is_translated
    assert (raw_targets(output) == ["DOG"] and b'state="translated"' in output) if is_translated else output == data


@pytest.mark.parametrize("start", [
    f'<xliff xmlns="{NAMESPACE}">', f'<xliff xmlns="{NAMESPACE[:-1]}1">', f'<xliff version="" xmlns="{NAMESPACE}">',
    f'<x:xliff xmlns:x="{NAMESPACE}">', '<xliff xmlns="urn:oasis:names:tc:xliff:document:2.0" srcLang="en">',
    '<xliff xmlns:its="i" its:version="2.0" version="1.2">',
])  # fmt: skip
def test_the_namespace_may_say_the_version(start: str) -> None:
    is_2, prefix = "2.0" in start and "its" not in start, "x:" if "<x:" in start else ""
    kept, new = (f"<~source>{text}</~source>" for text in ("a", "dog"))
    units = f'<~group translate="no"><~trans-unit id="1">{kept}</~trans-unit></~group><~trans-unit id="2">{new}'
    file = f'<~file source-language="en" datatype="x" original="y"><~body>{units}</~trans-unit></~body></~file>'
    file_2 = f'<file id="f"><unit id="u"><segment>{new}</segment></unit></file>'
    data = (start + (file_2 if is_2 else file) + "</~xliff>").replace("~", prefix)
    read = document(data.encode())
    assert (texts(read), read.skipped) == (["dog"], {} if is_2 else {"not to be translated": 1})
    assert f"target{' state=' if not is_2 else '>'}" in translated(read).decode()


def test_text_in_code_is_not_reached() -> None:
    code = '<ph id="{}">img alt=\n"<sub>{}</sub>"</ph>'
    data = xliff(unit(f"A {code.format(1, 'cat')}") + unit(f"a {code.format(2, '7')}", "<target>ein</target>"))
    read = document(data)
    assert ([text.strip() for text in texts(read)], len(read.unreached)) == (["A"], 1)
    line = data[: data.index(b"<sub>")].count(b"\n") + 1
    assert read.left(data).endswith(f"1 passage from line {line} stays as it is, because text in the element sub "
                                       "stands in code; translate it by hand")  # fmt: skip


def test_units_of_xliff_2_that_are_not_to_be_translated_stay() -> None:
    inner = "<segment><source>{}</source></segment>"
    data = xliff_2(
        f'<unit id="u" translate="no">{inner.format("a")}</unit>'
        f'<group id="g" translate="no"><unit id="v">{inner.format("b")}</unit>'
        f'<unit id="w" translate="yes">{inner.format("c")}</unit></group>'
    )
    read = document(data)
    assert (texts(read), read.skipped) == (["c"], {"not to be translated": 2})


def test_xliff_2_names_the_target_language() -> None:
    data = xliff_2('<unit id="u"><segment><source>dog</source></segment></unit>', "")
    assert etree.fromstring(translated(document(data, "pt_BR"))).get("trgLang") == "pt-BR"


def test_a_repeated_element_of_xliff_2_has_an_identifier_of_its_own() -> None:
    source = '<pc id="1">one two</pc> three'
    data = xliff_2(f'<unit id="u"><segment><source>{source}</source></segment></unit>')
    read = document(data)
    output = read.write([repeated(read.passages[0])])
    assert raw_targets(output) == ['<pc id="1">eins</pc> drei <pc id="1-2">zwei</pc>']


def test_the_target_keeps_its_attributes_and_its_place() -> None:
    old = '<target xml:lang="de" state="new" state-qualifier="x" phase-name="p"/>'
    rest = f"{old}\n  <alt-trans><target>Katze</target></alt-trans>"
    tree = etree.fromstring(translated(document(xliff(unit("dog", rest)))))
    target, other = tree.iter("{*}target")
    assert dict(target.attrib) == {
        "{http://www.w3.org/XML/1998/namespace}lang": "de", "state": "needs-review-translation", "phase-name": "p",
    }  # fmt: skip
    assert (target.text, target.tail, other.text) == ("DOG", "\n  ", "Katze")


@pytest.mark.parametrize("attributes, target, language", [
    ("", "de", "de"), ("", "pt_BR", "pt-BR"), (' target-language="de-AT"', "de", "de-AT"),
    (' target-language="fr"', "de", "de"),
])  # fmt: skip
def test_the_file_names_the_target_language(attributes: str, target: str, language: str) -> None:
    read = document(xliff(unit("dog"), attributes), target)
    assert etree.fromstring(translated(read))[0].get("target-language") == language


def test_line_breaks_stay_where_spaces_are_preserved() -> None:
    source = "One\n  two.\nThree"
    assert texts(document(xliff(unit(source)))) == ["One<x0/> two.", "Three"]
    assert last_target(source) == "ONE\n  TWO.\nTHREE"
    assert texts(document(xliff(unit("One\n  Two")))) == ["One<x0/> Two"]
    data = xliff(unit(source, attributes=' xml:space="preserve"'))
    assert texts(document(data)) == ["One<x0/> two.", "Three"]
    assert targets(translated(document(data))) == ["ONE\n  TWO.\nTHREE"]


def test_spaces_around_elements_stay() -> None:
    source = 'one <x id="1"/> <x id="2"/> two<x id="3"/> <x id="4"/> three'
    assert targets(copied(document(xliff(unit(source))))) == [source]
    assert last_target(source) == source.replace("one", "ONE").replace("two", "TWO").replace("three", "THREE")


def test_a_unit_without_words_gets_a_copy() -> None:
    read = document(xliff(unit('12 <x id="1"/>')))
    assert not read.passages
    assert targets(translated(read)) == ['12 <x id="1"/>']


@pytest.mark.parametrize("data, message", [
    (b"", "x.xlf is not well-formed XML"),
    (xliff("<trans-unit>"), "x.xlf is not well-formed XML"),
    (xliff(unit("dog"))[:-20], "x.xlf is not well-formed XML"),
    (xliff(unit("a&e;"), before='<!DOCTYPE xliff [<!ENTITY e "x">]>'), "x.xlf has a document type declaration"),
    (xliff("", version="3.0"), "x.xlf has XLIFF 3.0, not XLIFF 1 or 2; convert it to XLIFF 1.2 or 2.0"),
    (b"<xliff><file/></xliff>", "x.xlf has XLIFF without a version, not XLIFF 1 or 2; convert it"),
    (b"<html/>", "x.xlf has the element html, not XLIFF 1 or 2; convert it to XLIFF 1.2 or 2.0"),
    (b"<a>" * 300 + b"</a>" * 300, "x.xlf is not well-formed XML"),
])  # fmt: skip
def test_damaged_files_give_one_sentence(data: bytes, message: str) -> None:
    with pytest.raises(NmtError) as caught:
        document(data)
    assert str(caught.value).startswith(message) and "\n" not in str(caught.value)


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10**6))
def test_whatever_the_translation_nothing_is_lost(seed: int) -> None:
    data = xliff(unit(f"{RICH} And {RICH}"))
    source, target = list(etree.fromstring(translated(document(data), shuffled(seed))).iter("{*}source", "{*}target"))
    counts = [Counter(e.get("id") for e in side.iter("{*}x", "{*}ph", "{*}it")) for side in (source, target)]
    assert counts[0] == counts[1]
    ends = [etree.QName(e).localname for e in target.iter("{*}bpt", "{*}ept")]
    assert ends == ["bpt", "ept"] * (len(ends) // 2)


places = st.lists(st.tuples(st.integers(0, 999), st.binary(min_size=1, max_size=8)), min_size=1, max_size=4)


@settings(max_examples=150, deadline=None)
@given(damages=places, stop=st.integers(0, 2000))
def test_random_damage_gives_a_file_or_one_sentence(damages: Any, stop: int) -> None:
    data = xliff(unit(RICH) + unit("a", f"<seg-source>{SEGMENTS}</seg-source>"))
    try:
        read = document(damaged(data, damages)[:stop])
    except NmtError as error:
        assert "\n" not in str(error)
        return
    etree.fromstring(translated(read))
