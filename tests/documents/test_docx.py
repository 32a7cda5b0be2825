"""DOCX: what is translated, that everything else stays, and that damaged files give one sentence."""

import re
import tracemalloc
from collections import Counter
from collections.abc import Iterator, Mapping
from io import BytesIO
from typing import Any
from zipfile import ZIP_DEFLATED, ZIP_STORED, ZipFile, ZipInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lxml import etree
from translations import backwards, copied, damaged, in_text, shuffled, texts, translated

from nmt.documents.document import Document, ReadOptions, read_document
from nmt.errors import NmtError

W = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
NAMESPACES = (
    f'xmlns:w="{W}" xmlns:r="http://schemas.openxmlformats.org/officeDocument/2006/relationships" '
    'xmlns:m="http://schemas.openxmlformats.org/officeDocument/2006/math" '
    'xmlns:mc="http://schemas.openxmlformats.org/markup-compatibility/2006" '
    'xmlns:wp="http://schemas.openxmlformats.org/drawingml/2006/wordprocessingDrawing" '
    'xmlns:wps="http://schemas.microsoft.com/office/word/2010/wordprocessingShape" '
    'xmlns:v="urn:schemas-microsoft-com:vml" mc:Ignorable="wps"'
)
TYPE = "application/vnd.openxmlformats-officedocument.wordprocessingml"
CORE = "application/vnd.openxmlformats-package.core-properties+xml"


def run(text: str, properties: str = "") -> str:
    inside = f"<w:rPr>{properties}</w:rPr>" if properties else ""
    return f'<w:r>{inside}<w:t xml:space="preserve">{text}</w:t></w:r>'


def paragraph(content: str, properties: str = "") -> str:
    return f"<w:p>{f'<w:pPr>{properties}</w:pPr>' if properties else ''}{content}</w:p>"


def field(code: str, content: str) -> str:
    ends = [f'<w:r><w:fldChar w:fldCharType="{kind}"/></w:r>' for kind in ("begin", "separate", "end")]
    return f"{ends[0]}<w:r><w:instrText>{code}</w:instrText></w:r>{ends[1]}{content}{ends[2]}"


def part(name: str, content: str, namespace: str = W) -> bytes:
    declared = NAMESPACES.replace(W, namespace)
    return (
        f'<?xml version="1.0" encoding="UTF-8" standalone="yes"?>\n<w:{name} {declared}>{content}</w:{name}>'.encode()
    )


def package(
    body: str = paragraph(run("A dog runs.")),
    parts: Mapping[str, tuple[str, bytes]] | None = None,
    main: str = "document.main",
) -> bytes:
    """Returns a package whose document has this body, and these other parts with their content types."""
    all_parts = {
        "word/document.xml": (f"{TYPE}.{main}+xml", part("document", f"<w:body>{body}</w:body>")),
        **(parts or {}),
    }
    types = "".join(
        f'<Override PartName="/{name}" ContentType="{kind}"/>' for name, (kind, _) in all_parts.items() if kind
    )
    listing = f'<Types xmlns="http://schemas.openxmlformats.org/package/2006/content-types">{types}</Types>'
    return zipped(
        {"[Content_Types].xml": listing.encode(), **{name: content for name, (_, content) in all_parts.items()}}
    )


def zipped(parts: Mapping[str, bytes]) -> bytes:
    file = BytesIO()
    with ZipFile(file, "w", ZIP_DEFLATED) as zip_file:
        for name, content in parts.items():
            kind = ZIP_STORED if name.endswith(".png") else ZIP_DEFLATED
            zip_file.writestr(ZipInfo(name, (2020, 2, 2, 2, 2, 2)), content, kind)
    return file.getvalue()


def unzipped(data: bytes) -> dict[str, bytes]:
    with ZipFile(BytesIO(data)) as zip_file:
        assert zip_file.testzip() is None
        return {name: zip_file.read(name) for name in zip_file.namelist()}


def document(data: bytes, source: str = "en", target: str = "de") -> Document:
    return read_document(data, "docx", ReadOptions("x.docx", source, target))


def document_of(content: str) -> Document:
    return document(package(content))


def body(data: bytes) -> Any:
    return etree.fromstring(unzipped(data)["word/document.xml"])[0]


def name_of(element: Any) -> str:
    return str(etree.QName(element).localname)


def look(element: Any, around: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yields each character and each empty element, with the elements and the formatting around it."""
    if name_of(element) == "r":
        properties = element.find(f"{{{W}}}rPr")
        around = (
            *around,
            "" if properties is None else etree.tostring(properties, method="c14n", exclusive=True).decode(),
        )
    elif element.tag != f"{{{W}}}t":
        around = (*around, f"{name_of(element)} {sorted(element.attrib.values())}")
    for child in element:
        if name_of(child) != "rPr":
            yield from look(child, around)
    if element.tag == f"{{{W}}}t":
        yield from ((around, c) for c in element.text or "")
    elif not len(element) and name_of(element) != "r":
        yield around, element.text or ""


def spoken(element: Any) -> str:
    """Returns the text, with tabs and breaks."""
    marks = {"tab": "\t", "br": "\n", "p": "¶"}
    pieces = (c.text or "" if name_of(c) == "t" else marks.get(name_of(c), "") for c in element.iter())
    return "".join(pieces).strip("¶")


def output_text(content: str, translation: Any = None) -> str:
    """Returns the text of a translated body."""
    read = document_of(content)
    return spoken(body(translated(read, translation) if translation else translated(read)))


BOLD, CODE, LINK = "<w:b/>", '<w:rStyle w:val="SourceText"/>', '<w:hyperlink r:id="rId1" w:history="1">'
NOTE = '<w:r><w:footnoteReference w:id="2"/></w:r>'
DELETED = '<w:del w:id="6"><w:r><w:delText>Old</w:delText></w:r></w:del>'
CELLS = "".join(f"<w:tc>{paragraph(run(text))}</w:tc>" for text in ("Length", "12.5"))
TITLE = f'<w:bookmarkStart w:id="0" w:name="a"/>{run("The title")}<w:bookmarkEnd w:id="0"/>'
ANIMALS = f"{run('a ')}{run('cat', '<w:i/>')}</w:hyperlink>"
SITE = field(' HYPERLINK "u" ', run("this site"))
RICH = "".join([
    paragraph(TITLE, '<w:pStyle w:val="H"/>'),
    paragraph(run("The ") + run("big dog", BOLD) + run(" sees ") + LINK + ANIMALS + NOTE),
    paragraph(run("See page ") + field(" PAGEREF x ", run("12")) + run(" or ") + SITE),
    paragraph(f'<w:ins w:id="5" w:author="A">{run("New")}</w:ins>{DELETED}{run(" text.")}'),
    f"<w:tbl><w:tr>{CELLS}</w:tr></w:tbl>",
    paragraph(run("Name:") + "<w:r><w:tab/><w:t>Value</w:t><w:br/><w:t>goes on</w:t></w:r>"),
    paragraph(f"{run('Since ')}<m:oMath><m:r><m:t>x</m:t></m:r></m:oMath>{run(' is ')}{run('int', CODE)}"),
    paragraph(f"{run('See ')}<w:r><w:drawing/></w:r>{run(' above')}"),
    paragraph(run("Then ") + field(" PAGE ", field(" X ", run("7"))) + run(" ends")),
    paragraph(f'<w:fldSimple w:instr="DATE">{run("May")}</w:fldSimple>{run(" was warm")}'),
    paragraph(run("print(x)"), '<w:pStyle w:val="SourceCode"/>'),
])  # fmt: skip


def test_passages_and_their_elements() -> None:
    assert texts(document_of(RICH)) == [
        "The title",
        "The <g0>big dog</g0> sees <g1>a <g2>cat</g2></g1>",
        'See page <x0 translate="no">12</x0> or <g1>this site</g1>',
        "<g0>New</g0><x1/> text.",
        "Length",
        "Name:",
        "Value<x0/> goes on",
        'Since <x0 translate="no">x</x0> is <x1 translate="no">int</x1>',
        "See <x0/> above",
        "Then <x0/> ends",
        '<x0 translate="no">May</x0> was warm',
    ]


def test_a_document_whose_translation_is_its_text_looks_the_same() -> None:
    data = package(RICH)
    assert list(look(body(copied(document(data))))) == list(look(body(data)))


def test_a_translation_changes_only_the_text() -> None:
    data = package(RICH)
    characters = list(look(body(translated(document(data)))))
    expected = list(look(body(data)))
    assert [around for around, _ in characters] == [around for around, _ in expected]
    assert "".join(c for _, c in characters).startswith("THE TITLETHE BIG DOG SEES A CAT")
    kept = ["12", "int", "May", "print(x)", "Old", " PAGEREF x "]
    assert all(text in "".join(c for _, c in characters) for text in kept)
    assert b'<w:t xml:space="preserve">THE </w:t>' in unzipped(translated(document(data)))["word/document.xml"]


@pytest.mark.parametrize("content, expected", [
    (run("Red ", BOLD) + run("dog", BOLD), "Red dog"),
    (run("Red ", '<w:lang w:val="en-US"/>') + run("dog", '<w:lang w:val="en-GB"/>'), "Red dog"),
    ('<w:r w:rsidR="1"><w:t>Red d</w:t></w:r><w:proofErr w:type="spellStart"/>' + run("og"), "Red dog"),
    ("<w:r><w:lastRenderedPageBreak/><w:t>Red</w:t><w:softHyphen/><w:t>dish</w:t></w:r>", "Reddish"),
    ("<w:r><w:t>non</w:t><w:noBreakHyphen/><w:t>stop</w:t></w:r>", "non‑stop"),
    (run("a", BOLD) + run(" long text"), "<g0>a</g0> long text"),
    (run("A long text ") + run("in b", BOLD) + run("old", BOLD), "A long text <g0>in bold</g0>"),
    (run("A &lt;b&gt; &amp; c"), "A &lt;b&gt; &amp; c"),
    (run("dog") + '<w:r><w:drawing><wp:inline/></w:drawing></w:r>' + run("s run"), "dog<x0/>s run"),
    (run("See ") + f'<w:fldSimple w:instr=" HYPERLINK x ">{run("it")}</w:fldSimple>', "See <g0>it</g0>"),
    (run("The ") + f"<w:smartTag>{run('dog')}</w:smartTag>", "The dog"),
    (f"<w:customXml><w:customXmlPr/>{run('The dog')}</w:customXml>", "The dog"),
    (f"<w:r><w:ruby><w:rt>{run('inu')}</w:rt><w:rubyBase>{run('dog')}</w:rubyBase></w:ruby></w:r>", "dog"),
    (run("a ") + f'<w:moveFrom>{run("b")}</w:moveFrom><w:moveTo>{run("c")}</w:moveTo>', "a <x0/><g1>c</g1>"),
])  # fmt: skip
def test_what_a_passage_contains(content: str, expected: str) -> None:
    assert texts(document_of(paragraph(content))) == [expected]


@pytest.mark.parametrize("content", [
    run("12.5 %"),
    '<w:del w:id="1"><w:r><w:delText>gone</w:delText></w:r></w:del>',
    f'<w:sdt><w:sdtPr><w:dropDownList/></w:sdtPr><w:sdtContent>{run("choice")}</w:sdtContent></w:sdt>',
    field(" TOC ", run("Result")),
    run("int", '<w:rStyle w:val="VerbatimChar"/>'),
    '<w:r><w:drawing><wp:docPr descr="a/pic-1.png"/></w:drawing></w:r>',
    '<w:r><w:drawing><wp:docPr descr="https://x.org/a.svg"/></w:drawing></w:r>',
])  # fmt: skip
def test_paragraphs_without_text_stay_as_they_are(content: str) -> None:
    data = package(paragraph(content))
    read = document(data)
    assert not read.passages
    assert etree.tostring(body(translated(read))) == etree.tostring(body(data))


CONTROL = f"<w:sdt><w:sdtPr><w:id/></w:sdtPr><w:sdtContent>{run('a name')}</w:sdtContent></w:sdt>"
BREAKS = (
    "<w:r><w:t>Name</w:t><w:tab/><w:t>First line</w:t><w:br/><w:t>goes on</w:t><w:br/><w:t>Second</w:t>"
    '<w:br w:type="page"/><w:t>third</w:t></w:r>'
)
BEGIN, SEPARATE, END = (f'<w:r><w:fldChar w:fldCharType="{kind}"/></w:r>' for kind in ("begin", "separate", "end"))
TOC = f"{BEGIN}<w:r><w:instrText>TOC</w:instrText></w:r>{SEPARATE}"
ENTRY = f"{LINK}{run('The dog')}<w:r><w:tab/></w:r>{field(' PAGEREF a ', run('5'))}</w:hyperlink>"


@pytest.mark.parametrize("content, passages, translation", [
    # Each content control is a text of its own; tabs and breaks separate texts; the number of an entry is no text.
    (paragraph(run("Signed by ") + CONTROL + run(" today")), ["Signed by <x0/> today", "a name"],
     "SIGNED BY A NAME TODAY"),
    (paragraph(BREAKS), ["Name", "First line<x0/> goes on", "Second", "third"],
     "NAME\tFIRST LINE\nGOES ON\nSECOND\nTHIRD"),
    (paragraph(TOC + ENTRY) + paragraph(ENTRY) + paragraph(END), ["The dog"] * 2, "THE DOG\t5¶THE DOG\t5"),
])  # fmt: skip
def test_a_paragraph_may_have_several_texts(content: str, passages: list[str], translation: str) -> None:
    assert texts(document_of(content)) == passages
    assert output_text(content) == translation


@pytest.mark.parametrize("content, passages, translation", [
    (run("Hi to {na") + run("me}, b", BOLD), ['Hi to <x0 translate="no">{name}</x0><g1>, b</g1>'], "HI TO {name}, B"),
    (LINK + run("see https://x.o") + run("rg/a b", BOLD) + "</w:hyperlink>",
     ['see <x0 translate="no">https://x.org/a</x0><g1> b</g1>'], "SEE https://x.org/a B"),
    (run("A ") + run("{", BOLD) + run("{ a &amp; b }") + run("}", BOLD) + run(" c"),
     ['A <x0 translate="no">{{ a &amp; b }}</x0> c'], "A {{ a & b }} C"),
    (run("a {b") + '<w:bookmarkStart w:id="1" w:name="n"/>' + run("}{", BOLD) + '<w:bookmarkEnd w:id="1"/>' +
     run("c} d"), ['a <x0 translate="no">{b}</x0><x1/><x2 translate="no">{c}</x2><x3/> d'], "A {b}{c} D"),
    (run("a {b") + "<w:r><w:tab/></w:r>" + run("c} d"), ["a {b", "c} d"], "A {B\tC} D"),
])  # fmt: skip
def test_a_protected_word_over_several_runs_is_one_word(content: str, passages: list[str], translation: str) -> None:
    assert texts(document_of(paragraph(content))) == passages
    assert output_text(paragraph(content)) == translation
    data = package(paragraph(content))
    if "bookmark" not in content:
        assert list(look(body(copied(document(data))))) == list(look(body(data)))


REMARK, INSTRUCTION = "<!-- a remark -->", "<?program says?>"


@pytest.mark.parametrize("remark", [REMARK, INSTRUCTION])
def test_xml_comments_and_instructions_stay(remark: str) -> None:
    inner = run("A dog ") + remark + f"<w:r>{remark}<w:rPr><w:b/></w:rPr><w:t>ru{remark}ns</w:t>{remark}</w:r>" + LINK
    inner += f"{remark}{run('home')}</w:hyperlink>" + field(f" PAGE{remark}", run("5")) + remark
    content = f"{remark}<w:p>{remark}{inner}</w:p>{remark}"
    shown = body(translated(document_of(content))).iter(f"{{{W}}}t")
    assert "".join(text.text for text in shown) == "A DOG RUNSHOME5"
    xml = etree.tostring(body(copied(document_of(content)))).decode()
    assert xml.count(remark) == content.count(remark) - 1  # one was within a text
    properties = f"{remark}<c xmlns:dc='http://purl.org/dc/elements/1.1/'><dc:title>My {remark}title</dc:title></c>"
    parts = {"docProps/core.xml": (CORE, properties.encode())}
    assert texts(document(package(parts=parts))) == ["A dog runs.", "My title"]
    assert b"<dc:title>MY TITLE</dc:title>" in unzipped(translated(document(package(parts=parts))))["docProps/core.xml"]


def test_default_content_types_and_capitals_in_names() -> None:
    main = f'ContentType="{TYPE}.document.main+xml"'
    text = part("document", f"<w:body>{paragraph(run('A dog runs.'))}</w:body>")
    for types in (f'<Default Extension="XML" {main}/>', f'<Override PartName="/WORD/Document.xml" {main}/>'):
        listing = f'<Types xmlns="http://schemas.openxmlformats.org/package/2006/content-types">{types}</Types>'
        data = zipped({"[Content_Types].xml": listing.encode(), "word/document.xml": text})
        assert b"A DOG RUNS." in unzipped(translated(document(data)))["word/document.xml"]


def test_elements_follow_their_words_and_ranges_keep_their_order() -> None:
    start, end = '<w:bookmarkStart w:id="1" w:name="n"/>', '<w:bookmarkEnd w:id="1"/>'
    content = paragraph(run("One ") + start + run("two three") + end + run(" four ") + run("five", BOLD))
    read = document_of(content)
    output = body(translated(read, backwards))
    assert spoken(output) == "five four three two One"
    bold = [spoken(r) for r in output.iter(f"{{{W}}}r") if r.find(f"{{{W}}}rPr") is not None]
    assert bold == ["five"]
    assert [name_of(e) for e in output.iter() if "bookmark" in name_of(e)] == ["bookmarkStart", "bookmarkEnd"]


def test_a_field_over_several_paragraphs_keeps_its_order() -> None:
    content = paragraph(run("one ") + BEGIN + run("two ") + SEPARATE + run("three")) + paragraph(run("four") + END)
    output = body(translated(document_of(content), backwards))
    assert [e.get(f"{{{W}}}fldCharType") for e in output.iter(f"{{{W}}}fldChar")] == ["begin", "separate", "end"]


def test_what_is_at_the_edge_of_a_paragraph_stays_there() -> None:
    mark = '<w:bookmarkStart w:id="1" w:name="n"/>'
    output = body(translated(document_of(paragraph(mark + run("one two") + NOTE)), backwards))
    assert [name_of(e) for e in output[0]] == ["bookmarkStart", "r", "r"]
    assert output[0][-1][0].tag == f"{{{W}}}footnoteReference"


def test_a_drop_cap_is_read_with_its_word() -> None:
    frame = '<w:framePr w:dropCap="drop" w:lines="3" w:wrap="around" w:vAnchor="text" w:hAnchor="text"/>'
    document = document_of(paragraph(run("O", BOLD), frame) + paragraph(run("nce it rained.")))
    assert texts(document) == ["Once it rained."]
    first, second = body(document.write([in_text("Einst regnete es.")]))
    assert (spoken(first), spoken(second)) == ("E", "inst regnete es.")


def test_characters_that_xml_does_not_allow_are_left_out() -> None:
    assert (
        spoken(body(document_of(paragraph(run("dog"))).write([in_text("H\0un\x1b\uffffd\U0001f436")])))
        == "Hund\U0001f436"
    )


BOX = (
    f'<w:r><mc:AlternateContent><mc:Choice Requires="wps"><w:drawing><wp:inline><wp:docPr name="N" descr="A dog" '
    f'title="Dogs"/><wps:txbx><w:txbxContent>{paragraph(run("In the box"))}</w:txbxContent></wps:txbx></wp:inline>'
    f"</w:drawing></mc:Choice><mc:Fallback><w:pict><v:textbox><w:txbxContent>{paragraph(run('In the box'))}"
    "</w:txbxContent></v:textbox></w:pict></mc:Fallback></mc:AlternateContent></w:r>"
)


def test_text_boxes_have_a_choice_and_a_fallback() -> None:
    content = paragraph(run("Look ") + BOX + run("here"))
    assert texts(document_of(content)) == ["Look <x0/>here", "Dogs", "A dog", "In the box", "In the box"]
    data = translated(document_of(content))
    assert spoken(body(data)) == "LOOK ¶IN THE BOX¶IN THE BOXHERE"
    attributes = body(data).find(".//{*}docPr").attrib
    assert (attributes["descr"], attributes["title"], attributes["name"]) == ("A DOG", "DOGS", "N")
    assert list(look(body(copied(document_of(content))))) == list(look(body(package(content))))


def test_placeholders_in_alternative_texts_stay() -> None:
    drawing = '<w:r><w:drawing><wp:docPr descr="A dog of {name} &amp; co.&#10;See https://x.org/a"/></w:drawing></w:r>'
    attributes = body(translated(document_of(paragraph(drawing)))).find(".//{*}docPr").attrib
    assert attributes["descr"] == "A DOG OF {name} & CO.\nSEE https://x.org/a"
    drawing = '<w:r><w:drawing><wp:docPr descr="A dog&#10;&#10;Made by a program"/></w:drawing></w:r>'
    attributes = body(translated(document_of(paragraph(drawing)))).find(".//{*}docPr").attrib
    assert attributes["descr"] == "A DOG\n\nMADE BY A PROGRAM"
    shape = '<w:r><w:pict><v:shape alt="A dog"><v:imagedata/></v:shape></w:pict></w:r>'
    assert body(translated(document_of(paragraph(shape)))).find(".//{*}shape").get("alt") == "A DOG"


@pytest.mark.parametrize("path, name, is_kept", [
    ("/ns1:coreProperties[1]/ns0:title[1]", "text", True), ("/ns0:CoverPageProperties[1]/ns0:Abstract[1]", "text", 0),
    ("/x[1]/y[1]", "dropDownList", True),
])  # fmt: skip
def test_controls_do_not_get_the_source_text_back(path: str, name: str, is_kept: bool) -> None:
    binding = f'<w:dataBinding w:xpath="{path}" w:storeItemID="{{1}}"/>'
    control = f"<w:sdt><w:sdtPr>{binding}<w:{name}/></w:sdtPr><w:sdtContent>{run('A dog')}</w:sdtContent></w:sdt>"
    output = body(translated(document_of(paragraph(control))))
    assert (output.find(".//{*}dataBinding") is not None) == is_kept
    assert spoken(output) == ("A dog" if name == "dropDownList" else "A DOG")


@pytest.mark.parametrize("source, target, stays", [("ar", "en", False), ("ar", "he", True), ("en", "de", True)])
def test_runs_and_paragraphs_lose_their_direction_from_right_to_left(source: str, target: str, stays: bool) -> None:
    data = package(paragraph(run("Red dog", "<w:rtl/>"), "<w:bidi/>"))
    output = body(translated(document(data, source, target)))
    assert [output.find(f".//{{*}}{name}") is not None for name in ("rtl", "bidi")] == [stays, stays]


def test_the_text_of_a_watermark_is_translated() -> None:
    shape = (
        '<w:r><w:pict><v:shape><v:textpath style="font-size:1pt" string="Draft of {name}"/></v:shape></w:pict></w:r>'
    )
    watermark = body(translated(document_of(paragraph(shape)))).find(".//{*}textpath")
    assert dict(watermark.attrib) == {"style": "font-size:1pt", "string": "DRAFT OF {name}"}


def other_parts() -> dict[str, tuple[str, bytes]]:
    text = paragraph(run("Text of it"))
    title = (
        b'<c xmlns:dc="http://purl.org/dc/elements/1.1/"><dc:title>My title</dc:title><dc:creator>Me</dc:creator></c>'
    )
    styles = '<w:style><w:rPr><w:lang w:val="en-US" w:eastAsia="ja-JP"/></w:rPr></w:style>'
    return {
        **{
            f"word/{name}1.xml": (f"{TYPE}.{name}+xml", part("x", text))
            for name in ("header", "footer", "footnotes", "endnotes")
        },
        "word/comments.xml": (f"{TYPE}.comments+xml", part("comments", text)),
        "word/styles.xml": (f"{TYPE}.styles+xml", part("styles", styles)),
        "docProps/core.xml": (CORE, title),
        "word/media/a.png": ("", bytes(range(256))),
        "customXml/item1.xml": ("", b"<not well-formed, which does not matter"),
    }


def test_other_parts_are_translated_or_copied() -> None:
    data = package(parts=other_parts())
    read = document(data)
    assert texts(read) == ["A dog runs.", *4 * ["Text of it"], "My title"]
    parts, old = unzipped(translated(read)), unzipped(data)
    assert list(parts) == list(old)
    for name in ("[Content_Types].xml", "word/comments.xml", "word/media/a.png", "customXml/item1.xml"):
        assert parts[name] == old[name]
    assert b"<dc:title>MY TITLE</dc:title><dc:creator>Me</dc:creator>" in parts["docProps/core.xml"]
    assert spoken(etree.fromstring(parts["word/footnotes1.xml"])) == "TEXT OF IT"
    assert parts["word/header1.xml"].startswith(b"<?xml version='1.0' encoding='UTF-8' standalone='yes'?>")


def test_entries_keep_their_form_and_writing_is_repeatable() -> None:
    data = package(parts=other_parts())
    read = document(data)
    assert translated(read) == translated(read) == translated(document(data))
    infos = [ZipFile(BytesIO(archive)).infolist() for archive in (data, translated(read))]
    old, new = [[(i.filename, i.date_time, i.compress_type) for i in archive] for archive in infos]
    assert new == old


@pytest.mark.parametrize("source, target, before, after", [
    ("en", "de", 'w:val="en-US"', 'w:val="de"'),
    ("en", "pt_BR", 'w:val="en-US"', 'w:val="pt-BR"'),
    ("en", "de", 'w:val="fr-FR"', 'w:val="fr-FR"'),
    ("en", "ja", 'w:val="en-US"', 'w:val="en-US" w:eastAsia="ja"'),
    ("en", "ar", 'w:val="en-US"', 'w:val="en-US" w:bidi="ar"'),
    ("en", "ps", 'w:val="en-US"', 'w:val="en-US" w:bidi="ps"'),
    ("ja", "en", 'w:val="fr-FR" w:eastAsia="ja-JP"', 'w:val="en" w:eastAsia="ja-JP"'),
])  # fmt: skip
def test_the_language_of_runs_becomes_that_of_the_translation(
    source: str, target: str, before: str, after: str
) -> None:
    styles = (f"{TYPE}.styles+xml", part("styles", f"<w:lang {before}/>"))
    data = package(paragraph(run("Red dog", f"<w:lang {before}/>")), {"word/styles.xml": styles})
    parts = unzipped(translated(document(data, source, target)))
    for name in ("word/document.xml", "word/styles.xml"):
        assert f"<w:lang {after}/>".encode() in parts[name]


def test_the_strict_variant_and_templates() -> None:
    strict = part("document", paragraph(run("Red dog")), "http://purl.oclc.org/ooxml/wordprocessingml/main")
    main = (f"{TYPE}.template.main+xml", strict)
    read = document(package(parts={"word/document.xml": main}))
    assert texts(read) == ["Red dog"]
    assert b"RED DOG" in unzipped(translated(read))["word/document.xml"]


def with_main(content: bytes) -> bytes:
    return package(parts={"word/document.xml": (f"{TYPE}.document.main+xml", content)})


def with_wrong_size(data: bytes, size: int) -> bytes:
    """Returns a package whose entries all say that they hold this number of bytes."""
    for signature, offset in ((b"PK\x03\x04", 22), (b"PK\x01\x02", 24)):
        for match in list(re.finditer(re.escape(signature), data)):
            place = match.start() + offset
            data = data[:place] + size.to_bytes(4, "little") + data[place + 4 :]
    return data


GOOD = package()
ENCRYPTED = bytes.fromhex("d0cf11e0a1b11ae1") + bytes(600)
DTD = b'<!DOCTYPE w [<!ENTITY e "x">]><w:document xmlns:w="' + W.encode() + b'"/>'


@pytest.mark.parametrize("data, message", [
    (b"", "x.docx is not a whole DOCX file"),
    (b"Just text", "x.docx is not a whole DOCX file"),
    (GOOD[: len(GOOD) // 2], "x.docx is not a whole DOCX file"),
    (GOOD[:-10], "x.docx is not a whole DOCX file"),
    (GOOD.replace(b"PK\x03\x04", b"PK\x03\x05", 1), "x.docx is not a whole DOCX file"),
    (ENCRYPTED, "x.docx is encrypted or in the old .doc format; save it as .docx without a password"),
    (zipped({"a": b""}), "x.docx has no part [Content_Types].xml, so that it is not a DOCX file; save it as .docx"),
    (zipped({"[Content_Types].xml": b"<a/>"}), "x.docx has no part with the text of a document; save it as .docx"),
    (zipped({"[Content_Types].xml": b"<a"}), "x.docx, part [Content_Types].xml, is not well-formed XML"),
    (with_main(b"<a>"), "x.docx, part word/document.xml, is not well-formed XML"),
    (with_main(b""), "x.docx, part word/document.xml, is not well-formed XML"),
    (with_main(DTD), "x.docx, part word/document.xml, has a document type declaration"),
    (package(main="macroEnabled.main"), "x.docx has macros"),
    (package(parts={"word/vbaProject.bin": ("", b"")}), "x.docx has macros"),
    (with_wrong_size(GOOD, 2**30), "x.docx holds 2,147,483,648 bytes in"),
    (with_wrong_size(zipped({"a.png": bytes(3 * 2**20)}), 2**29 + 1), "x.docx holds 536,870,913 bytes in 3,"),
    (with_wrong_size(GOOD, 20), "x.docx is not a whole DOCX file"),
    (GOOD.replace(b"word/document.xml", b"word/documenu.xml"), "x.docx has no part with the text of a document"),
])  # fmt: skip
def test_damaged_files_give_one_sentence(data: bytes, message: str) -> None:
    with pytest.raises(NmtError) as caught:
        document(data)
    assert str(caught.value).startswith(message)


def test_bombs_are_refused_before_they_are_unpacked() -> None:
    data = zipped({"a": bytes(2**25), "b": bytes(2**25)})
    with pytest.raises(
        NmtError, match=r"x.docx holds 67,108,864 bytes in [\d,]+, which is not plausible; split the document"
    ):
        document(data)


def test_bombs_that_understate_their_size_are_not_unpacked() -> None:
    data = with_wrong_size(zipped({"a": bytes(2**25)}), 20)
    tracemalloc.start()
    try:
        with pytest.raises(NmtError, match=r"^x.docx is not a whole DOCX file"):
            document(data)
        assert tracemalloc.get_traced_memory()[1] < 2**22
    finally:
        tracemalloc.stop()


def test_parts_with_one_name_are_refused() -> None:
    with pytest.warns(UserWarning), ZipFile(file := BytesIO(GOOD), "a") as zip_file:
        zip_file.writestr("word/document.xml", b"<a/>")
    with pytest.raises(NmtError, match=r"^x.docx has two parts word/document.xml; save the document again$"):
        document(file.getvalue())


def leaves(element: Any) -> Counter[str]:
    """Returns how often each element occurs that must neither be lost nor be doubled."""
    kinds = re.compile("footnoteReference|bookmarkStart|bookmarkEnd|drawing|oMath|del|br")
    return Counter(name_of(e) for e in element.iter() if kinds.fullmatch(name_of(e)))


def nests(kinds: list[str]) -> bool:
    """Returns whether these characters of fields are whole fields, perhaps in others."""
    text, whole = " ".join(kinds), re.compile("begin separate (?:x )*end")
    while whole.search(text):
        text = whole.sub("x", text)
    return set(text.split()) <= {"x"}


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10**6))
def test_whatever_the_translation_nothing_is_lost(seed: int) -> None:
    mixed = paragraph(
        run("one ") + BOX + LINK + run("two", BOLD) + NOTE + "</w:hyperlink>" + run(" three") + NOTE + run(" four")
    )
    data = package(RICH + mixed)
    output = body(translated(document(data), shuffled(seed)))
    assert leaves(output) == leaves(body(data))
    kinds = [e.get(f"{{{W}}}fldCharType") for e in output.iter(f"{{{W}}}fldChar")]
    assert nests(kinds)
    # A link whose words are apart is repeated.
    fields = [Counter(e.text for e in each.iter(f"{{{W}}}instrText")) for each in (output, body(data))]
    assert fields[0].keys() == fields[1].keys() and all(fields[0][text] >= fields[1][text] for text in fields[1])


places = st.lists(st.tuples(st.integers(0, 999), st.binary(min_size=1, max_size=8)), min_size=1, max_size=4)


@settings(max_examples=150, deadline=None)
@given(damages=places, stop=st.integers(0, 1200), is_inside=st.booleans())
def test_random_damage_gives_a_document_or_one_sentence(damages: Any, stop: int, is_inside: bool) -> None:
    if is_inside:
        data = with_main(damaged(part("document", RICH), damages)[: 4 * stop])
    else:
        data = damaged(package(RICH), damages)[: 4 * stop]
    try:
        read = document(data)
    except NmtError as error:
        assert "\n" not in str(error)
        return
    for name, content in unzipped(translated(read)).items():
        if name in ("word/document.xml", "[Content_Types].xml"):
            etree.fromstring(content)
