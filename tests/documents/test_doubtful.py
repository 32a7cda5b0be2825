"""How each format marks doubtful sentences."""

import pytest
from checkpoints import small_codec
from test_docx import document_of, paragraph, run
from test_po import HEADER, entry, written

from nmt.documents.document import Document, ReadOptions, read_document
from nmt.documents.sentences import Sentences
from nmt.text.protected import Protected
from nmt.translate.units import Translation, UnitMaker

SURE, UNSURE = "The dog runs.", "A cat sleeps there."
XLIFF = (
    '<xliff version="{}" srcLang="en" trgLang="de" xmlns="urn:oasis:names:tc:xliff:document:{}">'
    '<file id="f" source-language="en" target-language="de">{}</file></xliff>'
)


def translated(document: Document) -> str:
    """Returns a file whose sentences are translated into capitals. The confidence is 0.3 if `UNSURE` has the words."""
    maker = UnitMaker(small_codec().config, Protected(), cut="sentence")
    passages = []
    for unit in map(maker.complete, document.passages):
        translations = []
        for sentence in unit.sentences:
            links = [(i, i) for i in range(len(sentence.text.split()))]
            confidence = 0.3 if sentence.text in UNSURE else 0.5
            translations.append(Translation(sentence.text.upper(), 0.0, [], [], alignment=links, confidence=confidence))
        passages.append(unit.translated_tokens(translations, "de", 0.4))
    return document.write(passages).decode(errors="replace")


def file(content: str, form: str, doubtful: float = 0.4) -> Document:
    return read_document(content.encode(), form, ReadOptions(f"x.{form}", "en", "de", doubtful=doubtful))


@pytest.mark.parametrize(
    ("page", "expected"),
    [
        (f"<p>{SURE}</p>", f"<p>{SURE.upper()}</p>"),
        (f"<p>{UNSURE}</p>", f'<p><mark class="doubtful">{UNSURE.upper()}</mark></p>'),
        (
            f"<p>{SURE} A <b>cat sleeps</b> there.</p>",
            f'<p>{SURE.upper()} <mark class="doubtful">A </mark><b><mark class="doubtful">CAT SLEEPS</mark></b>'
            ' <mark class="doubtful">THERE.</mark></p>',
        ),
        (f"<title>{UNSURE}</title>", f"<title>{UNSURE.upper()}</title>"),
    ],
)
def test_html_has_an_element_around_each_doubtful_text(page: str, expected: str) -> None:
    assert translated(file(page, "html")) == expected


def test_messages_of_po_are_fuzzy_if_they_are_doubtful() -> None:
    messages = [SURE, UNSURE]
    content = HEADER + "".join(map(entry, messages))
    flags = {
        threshold: [each.flags for each in written(translated(file(content, "po", threshold)).encode())]
        for threshold in (0.4, 0)
    }
    assert flags == {0.4: [[], ["fuzzy"]], 0: [["fuzzy"], ["fuzzy"]]}


def test_targets_of_xliff_need_review_if_they_are_doubtful() -> None:
    units = "".join(
        f'<trans-unit id="{i}"><source>{text}</source></trans-unit>' for i, text in enumerate((SURE, UNSURE))
    )
    output = translated(file(XLIFF.format("1.2", "1.2", units), "xlf"))
    assert f'<target state="translated">{SURE.upper()}' in output
    assert f'<target state="needs-review-translation">{UNSURE.upper()}' in output
    assert 'state="translated"' not in translated(file(XLIFF.format("1.2", "1.2", units), "xlf", 0))
    units = "".join(
        f'<unit id="u{i}"><segment><source>{text}</source></segment></unit>' for i, text in enumerate((SURE, UNSURE))
    )
    output = translated(file(XLIFF.format("2.0", "2.0", units), "xlf"))
    assert f'<segment state="translated"><source>{SURE}' in output
    assert f'<segment state="translated" subState="nmt:doubtful"><source>{UNSURE}' in output


def test_docx_has_a_background_behind_doubtful_text() -> None:
    from io import BytesIO
    from zipfile import ZipFile

    from lxml import etree

    document = document_of(paragraph(run(f"{SURE} ") + run(UNSURE, "<w:b/><w:u w:val='single'/>")))
    maker = UnitMaker(small_codec().config, Protected(), cut="sentence")
    (unit,) = map(maker.complete, document.passages)
    links = [(i, i) for i in range(4)]
    pairs = zip(unit.sentences, (0.5, 0.3), strict=True)
    new = [
        Translation(s.text.upper(), 0.0, [], [], alignment=links[: len(s.text.split())], confidence=c) for s, c in pairs
    ]
    data = document.write([unit.translated_tokens(new, "de", 0.4)])
    body = etree.fromstring(ZipFile(BytesIO(data)).read("word/document.xml"))
    looks = {
        "".join(each.itertext()).strip(): [etree.QName(child).localname for child in each.iterfind("{*}rPr/*")]
        for each in body.iter("{*}r")
    }
    assert looks == {SURE.upper(): [], UNSURE.upper(): ["b", "highlight", "u"]}


TABLE = "# The old dogs\n\n| Dog | Cats etc |\n|---|---|\n| 3rd | The lake! |\n\nA dog runs. It sleeps\n"
TRANSLATIONS = {
    "The old dogs": "Die alten Hunde.", "Dog": "Hund.", "Cats etc": "Katzen usw.", "3rd": "der 3.",
    "The lake!": "Der See.", "A dog runs.": "Ein Hund rennt.", "It sleeps": "„Er schläft.“",
}  # fmt: skip


def rewritten(content: str, form: str, texts: dict[str, str], **options: float) -> str:
    """Returns a file with these translations of its sentences, all of which have the confidence 0.9."""
    maker = UnitMaker(small_codec().config, Protected(), cut="sentence")
    read_options = ReadOptions(f"x.{form}", "en", "de")._replace(**options)  # type: ignore[arg-type]
    sentences = Sentences(maker, read_options, has_known=False)
    document = sentences.read(content.encode(), form, f"x.{form}")
    for sentence in sentences.distinct:
        origin = "glossary" if sentence.text == "Dog" else "model"
        translation = Translation(texts[sentence.text], -1.0, [], [], origin=origin, confidence=0.9)
        sentences.set_translation(sentence, translation, ())
    data, _ = sentences.written(document)
    return data.decode()


def test_a_translation_of_a_memory_is_written_although_it_lacks_a_term() -> None:
    maker = UnitMaker(small_codec().config, Protected(), cut="sentence")
    sentences = Sentences(maker, ReadOptions("x.txt", "en", "de", doubtful=0.5, doubtful_stays=True), has_known=True)
    document = sentences.read(b"A dog runs", "txt", "x.txt")
    for origin, expected in (("memory", b"Ein Hund rennt"), ("model", b"A dog runs")):
        (sentence,) = sentences.distinct
        new = Translation("Ein Hund rennt", 0.0, [], [], unmet=True, origin=origin, confidence=1.0)
        sentences.set_translation(sentence, new, ())
        assert sentences.written(document)[0] == expected


def test_full_stops_that_the_source_lacks_are_removed() -> None:
    expected = "# Die alten Hunde\n\n| Hund. | Katzen usw. |\n|---|---|\n| der 3. | Der See. |\n\n"
    assert rewritten(TABLE, "md", TRANSLATIONS) == f"{expected}Ein Hund rennt. „Er schläft“\n"


def test_what_the_model_translates_of_one_or_two_words_is_doubtful() -> None:
    page = "<h1>Old dogs</h1><p>Dog</p><p>A dog runs</p><p>www.example.org</p>"
    texts = {
        "Old dogs": "Alte Hunde",
        "Dog": "Hund",
        "A dog runs": "Ein Hund rennt",
        "www.example.org": "www.example.org",
    }
    marked = '<h1><mark class="doubtful">Alte Hunde</mark></h1><p>Hund</p><p>Ein Hund rennt</p><p>www.example.org</p>'
    assert rewritten(page, "html", texts, doubtful=0.4) == marked
    assert "<mark" not in rewritten(page, "html", texts)
