"""Markdown and its extensions: only text changes, and what is written renders with the same structure."""

import re
import string

import pytest
import translations
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from nmt.documents.document import ReadOptions, read_document
from nmt.text.protected import Protected

OPTIONS = ReadOptions("the file", "en", "de")


def translated(text: str, translate: translations.Translate = translations.upper) -> str:
    return translations.translated(read_document(text.encode(), "md", OPTIONS), translate).decode()


# What is written in capitals is marked as ‹text›.
SAMPLES = {
    "alerts": "> [!NOTE]\n> ‹Text here›\n> ‹more text›\n\n> [!TIP]- ‹Own title›\n> - ‹one›\n",
    "containers": """::: note
‹text›
:::

:::tip ‹My title›

‹Text›

:::

:::note[‹My› *‹title›*]{id=x}
‹text›
:::

:::: {.columns}
‹Text›
::::

::: details ‹Click me›
:::

:::{note} ‹Title›
:::
""",
    "admonitions": """!!! note "‹A title›"
    ‹Body text.›

    ‹More› *‹text›*

        code

    - ‹item›

‹After›

???+ tip inline end

    ‹Body.›

!!! warning ""
    ‹Body.›

=== "‹Tab one›"

    ‹Text.›

    ```py
    code = 1
    ```

1. ‹step›

    !!! note
        ‹Body›
""",
    "blocks": (
        "/// note | ‹A title›\n‹body›\n///\n\n//// details\n    type: warning\n\n‹body›\n////\n\n"
        "/// html | div.a\n///\n"
    ),
    "math": "‹Text›\n$$\na_b + c = d\n$$\n‹more›\n\n"
    "> \\[\n> x\n> \\]\n\n\\begin{align}\na = b\n\\end{align}\n\n$$x = y$$\n",
    "inline math": "‹The› $a_b + c_d$ ‹and› $x$ ‹and› $5x + 3$ ‹and› $$x = y$$ ‹and› \\(e^{i\\pi}\\) ‹here›\n",
    "no math": "‹It costs› $‹5 and› $‹6 or› 7$, ‹set› $‹HOME/ab or› $‹A=›$‹B, see› \\(‹this›\\)\n",
    "attributes": """# ‹Heading› {#my-id}

‹Text› {: .c }

‹See› [‹link›](u.md){ .md-button target=_blank } ‹and› `code`{.py} ‹or› ![‹Alt›](a_b.png){ width="300" } ‹more›
{: #id .cls key="a b" }

{:toc}
""",
    "definitions": """‹term›
: ‹The definition›
‹goes on›

‹Other term›
:   ‹Definition one›
    ‹goes on›

    ‹Second paragraph›
""",
    "MDX": """import Tabs from '@theme/Tabs';

export const y = {
  a: "text"
}

<Tabs>
<TabItem value="a" label={t('x')}>

‹Some text›

</TabItem>
</Tabs>

<Foo
  bar={{a: 1}}
  onClick={() => <b>no</b>}
/>

{/* a comment
here */}

‹Text› <Bar a={x > 1}>‹inner›</Bar> ‹end› {/* comment */}

<Card title='‹x›'>
  ‹Text›
</Card>
""",
    "untranslated elements": (
        "‹Press› <kbd>Ctrl</kbd>+<kbd>C</kbd> ‹now,› <code>some code</code> ‹or› <span translate=\"no\">A <b>brand</b>"
        " name</span> ‹and› <b class='x notranslate'>Keep *me*</b>.\n"
    ),
    "PHP": "<?php echo 'hello world>'; ?>\n\n‹Text› <?php echo $a->b ?> ‹more›\n\n"
    "<?php\n\n  echo '>';\n\n?>\n‹okay›\n",
    "HTML": """<details>
<summary>‹Click› <b>‹me›</b></summary>

‹Text›

</details>

<div align=center>
‹One› <i>‹two›</i><br>
<img src="a.png">

‹Text›

</div>

<!-- a <b> comment -->
""",
    "protected words": (
        "‹Mail› first_last@example.org ‹or› %(user_name)s ‹and› https://x.org/a_(b)_c ‹see› {a_b} *‹em›*"
        " ‹and› https://x.org/x_y_ ‹or› ~~https://x.org/a_b~~.\n"
    ),
    "footnotes": "‹A sentence.›[^1] ‹Next.›[^long_name]\n\n[^1]: ‹Note text.›\n    ‹More.›\n\n"
    "    ‹Second paragraph.›\n",
    "YAML": "---\ntitle: ‹My title›\ndescription: \"‹Some› \\\"‹text›\\\"\"\nother: stays\nx:\n"
    "  title: stays\n---\n‹Text›\n",
    "YAML that stays": "---\ntitle: ‹a 'x'› # comment\ndescription: >\n---\n\n---\n"
    "‹title: no front matter›\n---\n",
    "TOML": "+++\ntitle = '‹It is›'\ndescription = \"‹a›\"\ndate = 2024-01-01\ndraft = true\n+++\n‹Text›\n",
    "templates": "{% tab a %}\n‹Text› {{ name }} ‹x›\n{% endtab %}\n{{< note >}}\n‹Hi›\n{{< /note >}}\n"
    "--8<-- \"file.md\"\n\n[TOC]\n",
    "Markdown in HTML": (
        "<div markdown>\n- [‹Link it›](a/b.md) ‹and› `code x`\n</div>\n\n"
        '<figure markdown="span">\n  ![‹Image title›](x){ width="300" }\n</figure>\n\n'
        "<p>\n**‹Type:›** `boolean`<br/>\n</p>\n\n<summary>`code x` ‹and› [‹l›](u/v \"t\")</summary>\n\n"
        "<p>‹A› [‹note›] `‹and one,› [‹x›][my ref]</p>\n"
    ),
    "components of Nuxt": (
        "::callout\n#title\n‹My title›\n\n#default\n‹Text it›\n::\n\n::video{controls loop src=\"a b\"}\n::\n\n"
        ":video{controls src=\"a b\"}\n\n"
        "::u-button{to=\"/x\" block}\n‹Go there›\n::\n\n::card\n---\ntitle: ‹My text›\n---\n‹text›\n::\n\n"
        "‹A› :badge[‹New one›]{type=\"x\" outline} ‹and› :icon[‹more›] ‹here›\n"
    ),
    "MyST": (
        ":::{table} ‹Caption it›\n:align: center\n:header-rows: 1\n\n| ‹a› | ‹b› |\n|---|---|\n:::\n\n(my-target)=\n"
        "# ‹Head›\n\n+++ {\"a\": 1}\n\n:smile: ‹hello there›\n"
    ),
    "code in templates": (
        "{% highlight ruby %}\nputs x y\n\nputs z\n{% endhighlight %}\n‹text›\n\n{{< highlight go >}}\nputs x y\n"
        "{{< /highlight >}}\n\n{% codeblock a %}\na b\n{% endcodeblock %}\n\n"
        '{{< tab lang="toml" >}}\na b\n{{< /tab >}}\n\n'
        "{{< mermaid >}}\na --> b\n{{< /mermaid >}}\n\n{% raw %}\na b\n{% endraw %}\n\n"
        "{%- comment -%}\na b\n{%- endcomment -%}\n‹text›\n"
    ),
    "math with labels": (
        "$$\nx+y\n$$ {#eq-x}\n\n$$ x $$ (eq1)\n\n‹A› $$a\nb+c$$ ‹text›\n\n$$a\nb=c$$ ‹text›\n\n\\[ x = y \\]\n\n"
        "\\[ ‹optional› \\]\n"
    ),
    "spans of pandoc": (
        "[‹Text›]{.class} ‹here and› [‹small› *‹caps›*]{.smallcaps #id a=\"b c\"} ‹in› [‹no span›] {‹in braces›}\n"
    ),
    "expressions of JSX": (
        "‹is› {x ? \"a\" : \"b\"} ‹or› {cond && <b>Bold it</b>} ‹and› {t(\"key x\")} {‹in braces›}\n\n"
        "<>\n‹text here›\n</>\n\n"
        "{items.map(i => (\n  <li>{i.name} x</li>\n))}\n"
    ),
    "marks of other programs": (
        "<<< @/a.js{1}\n\n@tab ‹My title›\n\n‹press› ++ctrl+alt+del++ ‹now› ![[embed it.png]] [[page|label]] "
        "%%a note%% ‹x› ^block1\n\n‹as› [@smith2020, p. 3] [@user](u) ‹or› \\textbf{‹bold it›} ‹x›\n\n"
        "‹Term›\n~ ‹Text it›\n\n"
        "+---+---+\n| a | b |\n+===+===+\n| c | d |\n+---+---+\n"
    ),
    "abbreviations": "*[HTML]: ‹Hyper Text›\n\n‹HTML text›\n",
    "emphasis in words": "‹foo›**‹bar›**‹baz› *‹a›*‹b›\n",
    "references to spaces": "‹Ten›&nbsp;‹Mbit and›&#10;‹more› &nbsp; **‹x›**\n",
}  # fmt: skip


@pytest.mark.parametrize("name", SAMPLES)
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_only_text_is_translated(name: str, end: str) -> None:
    sample = SAMPLES[name].replace("\n", end)
    source = re.sub("[‹›]", "", sample)
    assert translated(source) == re.sub("‹([^›]*)›", lambda text: text[1].upper(), sample)
    assert translated(source, translations.word_by_word(str)) == source


def test_links_that_are_found_by_their_text() -> None:
    source = "See [the\npath], [a.b][] and ![an *im*\nage]\n\n[the path]: /u\n[a.b]: /v\n[an *im* age]: /w\n"
    assert translated(source, translations.word_by_word(str)) == source
    assert "SEE [THE PATH][the path],\n[A.B][a.b] AND" in translated(source)


def test_what_is_around_text_moves_with_it() -> None:
    for source, expected in {
        "[a text]{.c} here\n": "here [text a]{.c}\n",
        "a :badge[b c]{.d} here\n": "here :badge[c b]{.d} a\n",
        "<p>[a b](c) and `d`</p>\n": "<p>`d` and [b a](c)</p>\n",
    }.items():
        assert translated(source, translations.backwards) == expected


def test_what_a_user_keeps_stays() -> None:
    options = OPTIONS._replace(protected=Protected([r"snake_\w+_"]))
    document = read_document(b"a snake_case_ and *x*\n", "md", options)
    assert translations.translated(document) == b"A snake_case_ AND *X*\n"


def test_values_of_front_matter_get_the_quotes_that_they_need() -> None:
    for text, written in {"a: b": '"a: b"', "yes": '"yes"', "a #b": '"a #b"', "Grün": "Grün", "'n": '"\'n"'}.items():
        assert translated("---\ntitle: word\n---\n", lambda _, t=text: (t, [])) == f"---\ntitle: {written}\n---\n"
    for value in ("¿Qué es?", "(Beta) 🚀 text"):
        assert translated(f"---\ntitle: {value}\n---\n") == f'---\ntitle: "{value.upper()}"\n---\n'
    assert translated("---\ntitle: 'word'\n---\n", lambda _: ("l'a", [])) == '---\ntitle: "l\'a"\n---\n'


def test_marks_and_what_stays_are_not_divided_over_lines() -> None:
    marks = ["[[Getting Started Guide]]", "$a = b$", "[B](#){ .md-button .md-button--primary }", "`a b`"]
    for mark in marks:
        for before in range(1, 30):
            source = f"{'word ' * 8}\n{'w' * before} {mark} and a few more words in it\n"
            assert mark.upper() in translated(source).upper()


def test_a_file_may_begin_with_a_rule() -> None:
    source = "---\n\n# Chapter\n\nText\n\n---\nMore\n"
    assert translated(source) == "---\n\n# CHAPTER\n\nTEXT\n\n---\nMORE\n"
    for line in ("date created: 2024-01-01", "# a comment", "$schema: x", '{"a": 1}'):
        assert translated(f"---\n{line}\n---\nMore\n") == f"---\n{line}\n---\nMORE\n"


@pytest.mark.parametrize("heading, link", [("हिन्दी पाठ", "हिन्दी-पाठ"), ("⚙️ Set", "️-set")])
def test_anchors_have_vowel_signs_and_marks(heading: str, link: str) -> None:
    output = translated(f"[a](#{link})\n\n## {heading}\n", lambda _: ("neu", [(0, 0)]))
    assert f'<a id="{link}"></a>' in output


def test_headings_keep_the_anchors_that_links_name() -> None:
    source = (
        "# One part\n\n[a](#one-part) [b](#two--parts) [c](#two-parts_1) [d][x]\n\n## Two & parts\n\nTwo & parts\n---\n"
    )
    source += "\n### None\n\n### `Code` x\n\n[x]: #code-x\n"
    output = translated(
        source, lambda unit: ("Neu " + unit.source, [(i, i + 1) for i in range(4)][: len(unit.source.split())])
    )
    headings = [line for line in output.split("\n") if line.startswith(("#", "<a"))]
    assert headings == [
        '# <a id="one-part"></a>Neu One part', '## <a id="two--parts"></a>Neu Two & parts',
        '<a id="two-parts_1"></a>Neu Two & parts', "### Neu None", '### <a id="code-x"></a>Neu `Code` x',
    ]  # fmt: skip
    assert "<a" not in translated(source)  # in capitals, the anchors are the same


def test_a_paragraph_stays_one() -> None:
    """Words at the beginning of a line that would begin another block."""
    assert translated("``` a ```\nb\n", translations.backwards) == "b\n``` a ```\n"
    for word in ("<div>", ":::", "$$", "!!! note", "[a]: /b", "import 'x'", "> a", "1. a", "===", "{: .c}", "    a"):
        for source in ("word\n", "word\nand word\n", "# word\n", "word\n===\n", "- word\n", "> word\n"):
            output = translated(source, lambda unit, w=word: (unit.source.replace("word", w), []))
            assert _structure(output) == _structure(source), (source, word)


def _structure(text: str) -> list[str]:
    blocks = re.findall(r"</?(?:p|h\d|ul|li|pre|blockquote|table|div)\b", MarkdownIt("commonmark").render(text))
    return [block for block in blocks if block]


WORDS = st.sampled_from([
    "word", "Word.", "*a*", "**b**", "`c_d`", "[t](u_v)", "![i](j)", "<kbd>k</kbd>", "$x_1$", "{a_b}", "a_b@c.org", "$",
    "https://x.y/z_", "&amp;", "&nbsp;", "<b>", "</b>", "[^1]", "\\*", "*", "_", "~~s~~", "{.c}", "<br>", "{{x}}", "%s",
    "#", "1.", "-", "+", ">", "|", "[", "]", "!", ":", ":::", "---", "===", "```", "$$", "<!-- -->", "<A b={c}>", "<?",
    "\n", "\n\n", "\n>",
])  # fmt: skip


@given(words=st.lists(WORDS | st.text("".join(set(string.printable) - set("&<")), max_size=3), max_size=15))
def test_any_markdown_keeps_its_structure(words: list[str]) -> None:
    source = " ".join(words).replace("\r", "").replace("\f", "").replace("\v", "")
    assert translated(source, translations.word_by_word(str)) == source
    assert _structure(translated(source)) == _structure(source)


@pytest.mark.parametrize("label", ["1", "10", "note", "long_name"])
def test_the_label_of_a_footnote_is_no_text(label: str) -> None:
    text = f"A.[^{label}]\n\n[^{label}]: Some note.\n    More.\n"
    document = read_document(text.encode(), "md", ReadOptions("x.md", "en", "de"))
    assert translations.texts(document)[1:] == ["Some note.\nMore."]
    written = document.write([document.passages[0].tokens, translations.in_text("New.")])
    assert b"[^%s]: New." % label.encode() in written
