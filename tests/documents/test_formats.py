"""Documents of each format: what is translated, what stays, and what damaged files do."""

import json
import re
from collections.abc import Callable

import pytest
import translations
from hypothesis import given
from hypothesis import strategies as st

from nmt.documents.document import Document, ReadOptions, format_of, read_document
from nmt.errors import NmtError
from nmt.text.marked import MarkedText
from nmt.text.markup_projection import projected

OPTIONS = ReadOptions("the file", "en", "de")


def read(text: str | bytes, form: str) -> Document:
    return read_document(text if isinstance(text, bytes) else text.encode(), form, OPTIONS)


def translated(text: str, form: str, translate: Callable[[str], str] = str.upper) -> str:
    return translations.translated(read(text, form), translations.word_by_word(translate), translate).decode()


PLAIN = "\ufeffOne. Two!\r\n\r\n \tthree \nfour\rfive"
HTML = """<!DOCTYPE html>
<html lang="en"><head><title>My page</title><meta charset=utf-8><style>a{b:c}</style></head>
<body class='x'><h1 title="A &amp; B">Hello <b title='see "this"'>big</b> world</h1>
<img alt=word src=a.png><img alt="stays" translate=no><input placeholder="Type {name} here" disabled aria-label="box">
<pre title="stays">code</pre><!-- <b title="stays"> --><script>var s="<b title='stays'>";</script></body></html>
"""
MARKDOWN = """---
layout: stays
---

# A heading with `code` and *stress* #

Some **bold** text with [a link](https://x.org/a_b "title") and ![the image](pic.png), that
goes on with snake_case and 5 * 3 and \\*escaped\\* &amp; AT&T and
https://example.org/foo_bar~baz.

> - item one
>   more of it
> - [ ] task to do
> 1. first <b>raw</b> item<br>here

| Head | Other \\| one |
|------|:-----:|
| cell **x** | two `c|d` |

Hard break here\x20\x20
next line and\\
third line.

Setext title
============

[shortcut] and [collapsed][] and [full text][ref], ***both*** ~~gone~~ <https://auto.link>, ![pic] noted[^1].

[^1]: The note text.

[shortcut]: http://x 'title'
[ref]: http://x

    code block

```python
code = "fence"
```

<div align="center">
 <p>HTML text <img src="x"></p>
</div>
"""
JSON = """{
\t"a": "Hello {name}",  "k:e\\"y": ["x", 1, true, null, "two\\nlines", "Click <b>here</b>, now", "5 < 6 & ab", "#12"],
 "b" : {"c":"\\u00e4h", "d": "\\ud800 half"}}"""
SRT = """1
00:00:01,000 --> 00:00:04,000
Hello there. I am walking

2
00:00:04,500 --> 00:00:06,000 X1:1
<i>down the long</i> road
to {my} home & yours.

3
00:00:07,000 --> 00:00:09,000
- What?
- <b>Nothing</b> at all

4
00:00:10,000 --> 00:00:11,000
...

5
00:00:12,000 --> 00:00:13,000
{\\an8}<font color="red">A line has
more</font> words
6
00:00:14,000 --> 00:00:15,000
and goes on."""
VTT = """WEBVTT - title

STYLE
::cue { color:red }

NOTE a comment

intro
00:01.000 --> 00:04.000 align:start
<v Fred>Hello <c.x>big</c> world &amp; all

00:05.000 --> 00:06.000
<00:05.500>and <i>more text</i> here.
"""
SAMPLES = {"txt": PLAIN, "html": HTML, "md": MARKDOWN, "json": JSON, "srt": SRT, "vtt": VTT}


@pytest.mark.parametrize("form", SAMPLES)
@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_a_document_with_its_own_text_is_the_same_file(form: str, end: str, mark: str) -> None:
    text = mark + SAMPLES[form].removeprefix("\ufeff").replace("\n", end)
    document = read(text, form)
    assert translations.copied(document).decode().replace('lang="de"', 'lang="en"') == text
    assert translated(text, form, str).replace('lang="de"', 'lang="en"').split() == text.split()


def test_plain_text_in_capitals() -> None:
    assert translated(PLAIN, "txt") == PLAIN.upper()


def test_html_in_capitals() -> None:
    expected = HTML
    for old, new in {
        "My page": "MY PAGE", '"en"': '"de"', "Hello ": "HELLO ", ">big<": ">BIG<", " world": " WORLD",
        "'see \"this\"'": "'SEE &quot;THIS&quot;'", "alt=word": 'alt="WORD"', "Type {name} here": "TYPE {name} HERE",
        '"box"': '"BOX"',
    }.items():  # fmt: skip
        assert old in expected
        expected = expected.replace(old, new)
    assert translated(HTML, "html") == expected


def capitals(text: str, *kept: str) -> str:
    """Returns a text in capitals, except for some parts."""
    translation = text.upper()
    for part in kept:
        assert part in text
        translation = translation.replace(part.upper(), part)
    return translation


def test_markdown_in_capitals() -> None:
    kept = ["layout: stays", "`code`", '(https://x.org/a_b "title")', "pic.png", "https://example.org/foo_bar~baz"]
    kept += ["&amp;", "<b>", "</b>", "<br>", "<https://auto.link>", "[^1]", "    code block", "d` |"]
    kept += ['```python\ncode = "fence"\n```', '<div align="center">', "<p>", '<img src="x"></p>', "</div>"]
    kept += ["[shortcut]: http://x 'title'", "[ref]: http://x", "[ref]"]
    expected = capitals(MARKDOWN, *kept).replace("[SHORTCUT] AND", "[SHORTCUT][shortcut] AND")
    assert translated(MARKDOWN, "md") == expected


def test_subtitles_in_capitals() -> None:
    expected = capitals(SRT, "<i>", "</i>", "{my}", "<b>", "</b>", '<font color="red">', "</font>", "\\an8")
    # Lines that fit into one are joined.
    assert translated(SRT, "srt") == expected.replace("ROAD\nTO", "ROAD TO").replace("HAS\nMORE", "HAS MORE")
    head, text = VTT.split("<v Fred>")
    assert translated(VTT, "vtt") == head + capitals(
        f"<v Fred>{text}", "<v Fred>", "<c.x>", "</c>", "&amp;", "<i>", "</i>"
    )


def test_json_in_capitals() -> None:
    output = translated(JSON, "json")
    assert output == (
        '{\n\t"a": "HELLO {name}",  "k:e\\"y": ["X", 1, true, null, "TWO\\nLINES", "CLICK <b>HERE</b>, NOW", '
        '"5 < 6 & AB", "#12"],\n "b" : {"c":"\\u00c4H", "d": "\\ud800 half"}}'
    )
    assert '"ÄH"' in translated(JSON.replace("\\u00e4", "ä"), "json")


# Markdown


def test_text_that_would_be_markup_is_escaped() -> None:
    for word, written in {
        "*": r"\*", "[a](b)": r"\[a\](b)", "`x`": r"\`x\`", "<b>": r"\<b>", "&amp;": r"\&amp;", "1.": r"1\.",
        "-": r"\-", "#": r"\#", "> a": r"\> a", "~~a~~": r"\~\~a\~\~", "a_b_": r"a\_b\_", "\\": r"\\",
    }.items():  # fmt: skip
        assert translated("word\n", "md", lambda _, w=word: w) == f"{written}\n"
        assert translated("ab  \nword\n", "md", {"ab": "ab", "word": word}.__getitem__) == f"ab  \n{written}\n"
    assert translated("| a | b |\n|---|---|\n| c | d |\n", "md", lambda _: "x|y").count(r"x\|y") == 4


def test_literal_characters_that_become_markup_elsewhere_are_escaped() -> None:
    """The first star stands alone in the source, but would begin emphasis in the translation."""
    document = read("a * b, c* d", "md")
    (unit,) = document.passages[0].lines
    assert isinstance(unit, MarkedText)
    moved = projected(unit, "*b c* a d", [(1, 0), (3, 1), (0, 2), (4, 3)])
    output = document.write([moved]).decode()
    assert output.replace("\\", "") == "*b c* a d"
    assert not re.search(r"(?<!\\)\*b c(?<!\\)\*", output)


def test_a_paragraph_of_several_lines_is_wrapped() -> None:
    words = " ".join(["word", "1.", "word", "-", "word"] * 9)
    output = translated("> - first line of text\n>   second\n", "md", lambda _: words)
    first, *others = output.removesuffix("\n").split("\n")
    assert first.startswith("> - word") and len(others) > 5
    assert all(line.startswith(">   word") and len(line) < 40 for line in others)
    assert output.replace(">   ", "").replace("> - ", "").split() == words.split()


def test_the_target_of_a_link_is_not_wrapped() -> None:
    source = "one two\nthree [four](<a b c d e f.html>)\n"
    assert "(<a b c d e f.html>)" in translated(source, "md", lambda words: f"{words} and more")


@pytest.mark.parametrize("source, sentences, expected", [
    ("| A | B |\n|---|---|\n| one line<br>two | c |\n", ["A", "B", "one line", "two", "c"], "ONE LINE<br>TWO"),
    ("**one line  \ntwo** three\n", ["one line two three"], "**ONE LINE  \nTWO** THREE\n"),
    ("one<br>**two**  \nthree\n", ["one", "two", "three"], "ONE<br>**TWO**  \nTHREE\n"),
])  # fmt: skip
def test_line_breaks_separate_words(source: str, sentences: list[str], expected: str) -> None:
    units = [unit for passage in read(source, "md").passages for unit in passage.texts]
    assert units == sentences
    assert expected in translated(source, "md")


# Subtitles


def test_a_sentence_is_divided_over_its_cues() -> None:
    times = "00:00:0{}.000 --> 00:00:0{}.000\n{}\n"
    cues = ["<i>This is a long beginning</i>", "of a", "very long sentence with words that need two lines."]
    source = "WEBVTT\n\n" + "\n".join(times.format(i, i + 1, text) for i, text in enumerate(cues))
    document = read(source, "vtt")
    (unit,) = document.passages[0].lines
    assert (
        isinstance(unit, MarkedText)
        and unit.source == "This is a long beginning of a very long sentence with words that need two lines."
    )
    target = "Dies ist ein langer Anfang eines sehr langen Satzes mit Wörtern die zwei Zeilen brauchen."
    links = [(0, 0), (1, 1), (2, 2), (3, 3), (4, 4), (4, 6), (5, 5), (6, 6)]
    output = document.write([projected(unit, target, links)]).decode()
    shown = [part.split("\n", 1)[1].strip() for part in output.split("\n\n")[1:]]
    assert shown[0] == "<i>Dies ist ein langer Anfang</i>"
    assert re.sub("<[^>]*>", "", " ".join(shown)).split() == target.split()
    assert all(shown) and len(shown) == 3
    lines = shown[2].split("\n")
    assert len(lines) == 2 and max(map(len, lines)) <= 42


def test_an_element_that_is_cut_begins_again() -> None:
    source = SRT.replace("<i>down the long</i> road", "<i>down the road</i>")
    document = read(source, "srt")
    first, *others = (unit.tokens for unit in document.passages)
    longer = [
        token._replace(text=re.sub("down", " and ".join(["down"] * 5), token.text).replace("am walking", "am"))
        for token in first
    ]
    output = document.write([longer, *others]).decode()
    assert "I am <i>down and down and</i>\n\n" in output
    assert " X1:1\n<i>down and down " in output


def test_a_speaker_who_says_no_word_is_not_translated() -> None:
    source = "1\n00:00:01,000 --> 00:00:02,000\n- ...\n- Hello you\n"
    assert translations.texts(read(source, "srt")) == ["Hello you"]
    assert translated(source, "srt") == source.replace("Hello you", "HELLO YOU")


def test_each_speaker_is_translated_alone() -> None:
    texts = [text for unit in read(SRT, "srt").passages for text in unit.texts]
    assert texts == [
        "Hello there. I am walking down the long road to {my} home & yours.", "What?", "Nothing at all",
        "A line has more words and goes on.",
    ]  # fmt: skip


# Damaged files


@pytest.mark.parametrize("form", [form for form in SAMPLES if form not in ("srt", "vtt")])
@pytest.mark.parametrize("data, said", [
    (b"a\xff", "is not UTF-8 at byte 1; convert it, such as with iconv -f CP1252 -t UTF-8"),
    ("äöü".encode() + b"\xff", "is not UTF-8 at byte 6; convert it to UTF-8"),
    (b"a\x81", "is not UTF-8 at byte 1; convert it to UTF-8"),
    (b"\xff\xfea", "is not UTF-16-LE at byte 2; convert it to UTF-8"),
    ("ab".encode("utf-16-be"), "has a NUL byte at character 1; convert it to UTF-8"),
    (b"ab\0", "has a NUL byte at character 3; convert it to UTF-8"),
])  # fmt: skip
def test_what_is_no_text_is_refused(form: str, data: bytes, said: str) -> None:
    with pytest.raises(NmtError) as error:
        read(data, form)
    assert str(error.value) == f"the file {said}"


@pytest.mark.parametrize("lang, page", [("ru", "CP1251"), ("cs", "CP1250"), ("zh_CN", "GB18030"), ("pt_BR", "CP1252")])
def test_the_advice_for_an_encoding_depends_on_the_language(lang: str, page: str) -> None:
    with pytest.raises(NmtError, match=f"iconv -f {page} -t UTF-8"):
        read_document(b"\xcf\xf0\xe8\xe2\xe5\xf2", "txt", OPTIONS._replace(source_lang=lang))


@pytest.mark.parametrize("form", SAMPLES)
@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
def test_utf_16_stays(form: str, encoding: str) -> None:
    mark = "\ufeff".encode(encoding)
    text = SAMPLES[form].removeprefix("\ufeff").replace('lang="en"', 'lang="de"')
    document = read(mark + text.encode(encoding), form)
    assert translations.copied(document) == mark + text.encode(encoding)
    assert translations.translated(document).decode("utf-16") == translated(text, form)


@pytest.mark.parametrize("form, text, said", [
    ("json", '{"a": }', "the file is not JSON (Expecting value: line 1 column 7 (char 6)); correct it"),
    ("json", "[" * 100_000, "the file is not JSON (maximum recursion depth exceeded"),
    ("json", "", "the file is not JSON ("),
    ("srt", "no times", "the file has no times such as 00:00:01,000 --> 00:00:04,000; is it a file of subtitles?"),
])  # fmt: skip
def test_damaged_files_are_refused(form: str, text: str, said: str) -> None:
    with pytest.raises(NmtError) as error:
        read(text, form)
    assert str(error.value).startswith(said)


@pytest.mark.parametrize("form, before, repeated", [
    ("txt", "a", " "), ("html", "<p>a %", "0"), ("html", "", "<?"), ("html", "<p>a", "<!"), ("md", "<div>\n", "<a"),
    ("md", "", "{/* "), ("md", "", "\\[\n"), ("md", "", "[^a]: "),
    ("srt", "00:00:01,0 --> 00:00:02,0\n<", "a"),
])  # fmt: skip
def test_long_files_are_read_in_linear_time(form: str, before: str, repeated: str) -> None:
    """With quadratic time, each would take minutes."""
    read(f"{before}{repeated * 100_000}b", form)


@pytest.mark.parametrize("form, text", [
    ("txt", "One dog\n\n two\n"), ("md", "# A dog\n\nruns\nfast\n\n| a |\n|---|\n| b |\n\n```\ncode\n```\n"),
])  # fmt: skip
def test_a_line_may_end_in_cr_cr_lf(form: str, text: str) -> None:
    passages = len(read(text, form).passages)
    text = text.replace("\n", "\r\r\n")
    assert len(read(text, form).passages) == passages
    assert translations.copied(read(text, form)).decode() == text
    assert translated(text, form).replace("CODE", "code") == text.upper().replace("CODE", "code")
    assert ("code" in translated(text, form)) == (form == "md")


@pytest.mark.parametrize("form, text, lines", [
    ("html", "<p>a</p>\n<!-- b\n<p>c</p>", [2]), ("html", "<!-- a -->\n\n<!--- b --\n>c", [3]),
    ("html", "<p>a</p><!-- b --><!-->c", []), ("html", "<script><!-- a\n</script>b", []), ("html", "a<!-- <br>", []),
    ("json", '{"a": "b",\n"c": "\\ud83d d",\n"e": "\\u0000f"}', [2, 3]), ("json", '["\\ud83d\\ude00 a"]', []),
])  # fmt: skip
def test_text_that_is_not_reached_is_said_with_its_line(form: str, text: str, lines: list[int]) -> None:
    document = read(text, form)
    assert document.unreached == lines
    count = f"{len(lines)} passages" if len(lines) > 1 else "1 passage"
    assert document.left(text.encode()).startswith(f"{count} from line {lines[0]} " if lines else "")


def test_what_stays_is_said_in_one_line() -> None:
    document = Document([], lambda _: b"", {"translated already": 1_200}, unreached=[30, 1_204])
    assert document.left(b"a") == (
        "1,200 translated already, 2 passages from line 30 on stay as they are, because the file is damaged or nested "
        "too deep there; correct it"
    )


@pytest.mark.parametrize("form, text", [
    ("txt", "\ufeff \n"), ("txt", "- \n="), ("md", "```\ncode\n```\n"), ("html", "<pre>a</pre>"), ("json", "[1]"),
    ("vtt", "WEBVTT\n\nNOTE a\n"), ("srt", "1\n00:00:01,000 --> 00:00:02,000\n\n"),
    ("xlf", '<xliff version="1.2"><file source-language="en"/></xliff>'),
])  # fmt: skip
def test_a_file_without_text_is_no_failure(form: str, text: str) -> None:
    document = read(text, form)
    assert document.left(text.encode()).startswith("no text was recognised; if the file has text, check")
    assert document.left(b" \n") == ""


@pytest.mark.parametrize("name, text", [
    ("a.qmd", "# Dogs\n\n```{r}\ncode\n```\n"), ("a.Rmd", "# Dogs\n"), ("a.xhtml", "<p>Dogs</p>"),
    *((f"a.{dialect}", '<xliff version="1.2"><file source-language="en"><body><trans-unit id="1"><source>Dogs</source>'
       "</trans-unit></body></file></xliff>") for dialect in ("sdlxliff", "mxliff", "mqxliff")),
])  # fmt: skip
def test_other_names_of_formats(name: str, text: str) -> None:
    assert "DOGS" in translated(text, format_of(name))


def test_html_names_the_language_as_browsers_expect() -> None:
    page = read_document(b'<html lang="en">a</html>', "html", OPTIONS._replace(target_lang="pt_BR"))
    assert translations.copied(page) == b'<html lang="pt-BR">a</html>'


@pytest.mark.parametrize("form", ["txt", "html", "md", "srt", "vtt"])
def test_an_empty_file_stays_empty(form: str) -> None:
    assert translated("", form) == ""


@pytest.mark.parametrize("form", SAMPLES)
@given(data=st.data())
def test_damaged_documents_are_refused_or_stay_what_they_are(form: str, data: st.DataObject) -> None:
    """Parts of a sample in any order: what is written is a document of the same passages in capitals."""
    sample = SAMPLES[form]
    cuts = st.tuples(*[st.integers(0, len(sample))] * 2).map(sorted)
    parts = st.one_of(cuts.map(lambda cut: sample[slice(*cut)]), st.text(max_size=5))
    text = "".join(data.draw(st.lists(parts, max_size=4)))
    try:
        document = read(text, form)
        output = translated(text, form)
    except NmtError:
        return
    if form not in ("html", "md"):  # which name the language, or are repaired
        assert translations.copied(document).decode() == text
    again = read(output, form)
    if form == "json":
        assert str(json.loads(output)).upper() == str(json.loads(text)).upper()
    assert len(again.passages) == len(document.passages)
