"""Marks of extensions of Markdown: whatever they are, the text around them is reached, and what readers see of them."""

import re

import pytest
import translations
from hypothesis import example, given
from hypothesis import strategies as st

from nmt.documents.document import Document, ReadOptions, read_document
from nmt.text.words import has_letters


def read(text: str, form: str = "md") -> Document:
    return read_document(text.encode(), form, ReadOptions("the file", "en", "de"))


# Marks, with what is written in capitals as ‹text›
MARKS = [
    "::: note", ":::", ":::tip ‹A title›", ':::note title="‹A title›"', "::: {.c}\n", "::name", "::video{src=\"a b\"}",
    "///", "/// note | ‹A title›", "(target)=", "[[toc]]", "--8<-- \"x.md\"", "{: .c }", "![[x y]]", "!!! note",
    '!!! note "‹A title›"', '=== "‹A tab›"', "@tab ‹A tab›", "+++", "<<< @/a.js", "#default", "<>", "{/* a comment */}",
    "{% tabs %}", '{% tab title="‹A tab›" %}', '{{< tab label="‹A tab›" >}}', "{{< x >}}", "{{% note %}}", "{{< /x >}}",
    "import x from 'a b'", "<Tabs>", "</Tabs>", '<TabItem label="‹A tab›" value="a b">', "[^1]: ‹A note›",
    "| ‹A line of a poem›\n| ‹Its next line›", "Name   Size\n-----  ----\nA dog  3\nA cat  2",
    "----------\nName  Size\n----- ----\nA dog 3\n\nA cat 2\n----------",
    '{{< figure\n  src="a bird.jpg"\n  title="‹The woman›"\n  alt="‹A bird›"\n>}}', '{{% note\n\n  title="‹A b›"\n%}}',
    '{% include figure.html\n   caption="‹A bird›"\n%}', '<Card\n  title="‹A card›"\n  icon={<A b="c d" />}\n/>',
    '::card{\n  title="‹A card›"\n  icon="a b"\n}', '::: {#a\n  fig-cap="‹A caption›"}',
    "{{/* a comment\n\nof lines */}}",
    "{# a comment\n\nof lines #}", "{{ macro(\n  'a b'\n) }}", "{: .c\n   data=\"a b\" }", "$$\na + b\n$$",
    ':::{figure} a.png\n:alt: ‹A bird›\n:label: a-b\n\n', "```{figure} a.png\n:alt: ‹A bird›\n:name: a b\n```",
    '<img src="a b.png" alt="‹A bird›">', "<iframe title='‹A film›' src=\"a\"></iframe>",
    '![](a.png){fig-alt="‹A bird›"}',
    '![‹A bird›](a.png){#a\n  fig-alt="‹A bird that sings›" width=3}', '{{< video a title="‹A film›" >}}',
]  # fmt: skip


def _passages(document: Document) -> list[str]:
    return [text for text in translations.texts(document) if has_letters(re.sub("<[^>]*>", "", text))]


@given(blocks=st.lists(st.sampled_from(MARKS) | st.just("‹A dog runs.›"), max_size=12))
@example(blocks=MARKS)  # more than the parser may nest
@pytest.mark.parametrize(("begin", "end"), [("", "\n"), ("", "\r\n"), ("> ", "\n"), ("- ", "\n")])
def test_any_marks_leave_the_text_around_them_to_be_translated(begin: str, end: str, blocks: list[str]) -> None:
    # In a quote, a tag on several lines is not read.
    blocks = [block for block in blocks if not (begin == "> " and block.startswith("<Card"))]
    text = "\n\n".join(["‹A man sleeps.›", *blocks]) + "\n"
    lines = text.split("\n")
    indents = [begin, *[begin.replace("-", " ")] * len(lines)]
    sample = end.join((indent + line).rstrip() for indent, line in zip(indents, lines, strict=False))
    document = read(re.sub("[‹›]", "", sample))
    assert len(_passages(document)) == text.count("‹")
    assert document.unreached == []
    assert translations.translated(document).decode() == re.sub("‹([^›]*)›", lambda part: part[1].upper(), sample)


# What is written in capitals is marked as ‹text›.
SAMPLES = {
    "marks in text": (
        "md",
        '‹Press› {{< icon\n  title="‹A lot›" >}} ‹and› {{ macro(\n  "a b") }} ‹or› <img src="a" alt="‹A cat›"> '
        '‹at› [‹a link›](u){.c title="‹It opens›"} ‹here› {: .c\n  #d }\n\n‹See› `a`{title="‹A title›"} ‹and› '
        '`alt="a b"` ‹and› [‹x›](u "t title=\'a b\'")\n',
    ),
    "text behind marks": (
        "md",
        '‹Text›\n{{% note\n  title="‹Own title›"\n%}}\n‹more›\n{{% /note %}}\n‹Text›\n{% include x\n  a="b c" %}\n'
        "‹more›\n",
    ),
    "attributes that are no text": (
        "md",
        '<Code title="src/a_b.js" />\n\n<Tab label="{{ a.title }}" title={a("b c")} name="a b" alt="" />\n\n'
        '<p>`<img alt="a b">`</p>\n\n<Code title="1.2" />\n',
    ),
    "quotes of attributes": (
        "md",
        "<Tab title='‹It is›' alt=\"‹A› &quot;‹b›&quot;\">\n\n{{< x alt=\"‹A› \\\"‹b›\\\"\" >}}\n",
    ),
    "equal titles and attributes": (
        "md",
        ':::note[‹Info›]{title="‹Info›" alt="‹Info›"}\n:::\n\n::: note ‹note›\n:::\n',
    ),
    "indented text in MDX": (
        "mdx",
        "<Steps>\n  <Step>\n    ‹Text› *‹here›*\n    ```js\n    a b\n    ```\n    ‹more›\n  </Step>\n  <Step>\n"
        "      ## ‹A head›\n\n      - ‹item›\n\n            ‹deep›\n        ```\n        a b\n        ```\n\n"
        "        | ‹a› | ‹b› |\n        |---|---|\n  </Step>\n</Steps>\n\n    ‹Text›\n",
    ),
    "MDX by its import": ("md", "---\nid: a\n---\n\nimport A from '@a';\n\n<A>\n    ‹Text here›\n</A>\n"),
    "indented code": ("md", "<A>\n\n    a b\n\n</A>\n\n‹Text›\n\n    import b from 'c'\n"),
    "code behind HTML": (
        "md",
        "<details>\n<summary>‹Click›</summary>\n```js\na b\n\na b\n```\n‹text›\n</details>\n\n<hfoption id=\"x y\">\n"
        "    ~~~~py\n    a b\n    ```\n    ~~~~\n</hfoption>\n\n> <div>\n> ```\n> a b\n> ```\n> ‹text›\n> </div>\n\n"
        "- <p>\n  ```\n  a b\n  ```\n  </p>\n\n<p>‹Text ``` here›\n</p>\n\n‹Text›\n",
    ),
    "code behind HTML in MDX": (
        "mdx",
        "<details>\n\t<summary>‹Click›</summary>\n\t\t```js\n\t\ta b\n\t\t```\n</details>\n",
    ),
    "code in HTML": ("md", "<pre>\n```\na b\n```\n</pre>\n\n<!--\n```\na b\n```\n-->\n"),
    "cells of code": (
        "qmd",
        '```{python}\n#| label: fig-a b\n#| fig-cap: "‹A plot›"\n#| fig-alt: >\n#|   ‹A plot›\n#|   ‹of lines›\n'
        "#| title: ‹Own title›\ntitle: a b\n```\n\n```{r, label=\"a b\", fig.cap=\"‹A plot›\"}\n```\n\n"
        "```python\n#| fig-cap: a b\n```\n\n```{ojs}\n//| fig-cap: '‹It is›'\n```\n",
    ),
    "values of front matter on lines": (
        "md",
        "---\ndescription: >-\n  ‹Some text›\n  ‹that goes on.›\n\n  ‹Another one.›\ntitle: ‹A title›\n  ‹of lines›\n"
        "x: |\n  title: a b\n---\n\n‹Text›\n",
    ),
    "literal value": ("md", "---\ntitle: |\n  # ‹One›\n\n  1. ‹two: three›\n---\n"),
    "headings like other blocks": (
        "md",
        "## 1. ‹A dog›\n\n# - ‹A dog›\n\n> ### 2) ‹A dog›\n\n- # > ‹A dog›\n\n## + ‹A dog› ##\n\n"
        "1\\. ‹A dog›\n\n1\\. ‹A dog›\n---\n",
    ),
    "spaces in links": (
        "md",
        "‹A› [`x` ](#y) ‹property,› [‹ab› ](#c) ‹d,› <b>‹x› </b> ‹y› [`x`  ](#y) ‹z›\n",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", SAMPLES)
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_only_text_is_translated(name: str, end: str) -> None:
    form, sample = SAMPLES[name]
    sample = sample.replace("\n", end)
    document = read(re.sub("[‹›]", "", sample), "md" if form == "qmd" else form)
    assert translations.translated(document).decode() == re.sub("‹([^›]*)›", lambda part: part[1].upper(), sample)
    unchanged = translations.translated(document, translations.word_by_word(str), str).decode()
    assert unchanged == re.sub("[‹›]", "", sample)


@pytest.mark.parametrize(
    ("source", "translation", "written"),
    [
        ("<A alt='word' />", "l'été", '<A alt="l\'été" />'),
        ('<A alt="word" />', 'a "b"', '<A alt="a ”b”" />'),
        ('<A alt="word &quot;" />', 'a "b"', '<A alt="a &quot;b&quot;" />'),
        ('{{< x alt="word \\"" >}}', 'a "b"', '{{< x alt="a \\"b\\"" >}}'),
        ('![](u){alt="word"}', 'a "b', '![](u){alt="a ”b"}'),
    ],
)
def test_an_attribute_keeps_its_quotes(source: str, translation: str, written: str) -> None:
    assert translations.translated(read(source + "\n"), lambda _: (translation, [])).decode() == written + "\n"


@pytest.mark.parametrize(
    ("nested", "lines"),
    [
        ("".join(f"{'  ' * depth}- item\n" for depth in range(12)), [12, 13, 14]),
        ("> " * 21 + "text\n", [3]),
        ("".join(f"{' ' * 3 * depth}1. item\n\n" for depth in range(11)), [21, 23]),
        ("> - " * 7 + "text\n", [3]),
    ],
)  # fmt: skip
def test_only_what_is_nested_too_deep_is_left_out_and_its_lines_are_known(nested: str, lines: list[int]) -> None:
    document = read(f"Before.\n\n{nested}\nBehind.\n")
    output = translations.translated(document).decode().split("\n")
    assert document.unreached == lines
    assert [line_number for line_number, line in enumerate(output, 1) if line != line.upper()] == lines
    assert "BEHIND." in output


def test_the_lines_of_html_that_is_not_read_are_known() -> None:
    document = read("Text\n\n<p style={{a: 1}}>Some text</p>\n\n<img src={a} />\n\n<pre a={b}>code</pre>\n", "mdx")
    assert document.unreached == [3]
