"""What programs write in documents besides text stays, and the text in it is translated."""

import re

import pytest
from three_translators import capitals, translated_file, unchanged

from nmt.errors import NmtError

# What is translated is marked as ‹text›.
SAMPLES = [
    ("md", "```{note}\n‹The dog bites.›\n```\n\n```{admonition} ‹My title›\n:class: tip\n\n- ‹item›\n```\n‹After.›\n\n"
     "```{code-block} python\nx = 1\n```\n\n```admonish tip \"‹Mind it›\"\n‹A dog.›\n```\n"),
    ("md", '<div markdown>\n- [‹One›](a.md)\n- [‹Two›](b.md)\n</div>\n\n<p markdown="1">\n## ‹A title›\n</p>\n'),
    ("mdx", '<div className="x">\n- ‹One item›\n\n| ‹head› |\n|---|\n| ‹cell› |\n</div>\n'),
    ("md", "Title: ‹My post›\nDate: 2010-12-03\nTags: foo,\n    bar\n\n‹Text here.›\n"),
    ("md", "```{figure} a.png\n---\nname: x\nalt: ‹A dog›\n---\n‹The caption›\n```\n"),
    ("mdx", '<code>\na b\n</code>\n\n<div translate="no">\na b\n</div>\n\n<p>\n‹Text›\n</p>\n'),
    ("md", "‹Summary: dogs are nice.›\n\n‹Text.›\n"),
    ("md", "‹% of people like dogs.›\n\n‹Text.›\n"),
    ("json", '{"a": "{{GENDER:$1}} {{PLURAL: a b}}"}\n'),
    ("md", "‹Note: this is text›\n‹of a paragraph.›\n"),
    ("md", "---\ntitle: ‹My page› # a comment\nauthor: Jane Doe\n...\n\n‹Text.›\n"),
    ("md", '+++\ntitle="‹My page›"\n+++\n\n‹Text.›\n'),
    ("md", '{\n  "title": "My page"\n}\n\n‹Text.›\n'),
    ("md", "% A long title\n% Jane Doe\n\n‹Text.›\n"),
    ("md", "{* ../a/b.py hl[6,12:13] *}\n\n![bg right:40% vertical](a.png)\n\n![‹A dog›](b.png)\n"),
    ("html", "---\nlayout: error\n---\n<p>‹Huh.›</p>\n"),
    ("html", "---\nlayout: error\u2028page\n---\n<p>‹Huh.›</p>\n"),
    ("html", "---\r\nlayout: error page\r\n---\r\n<p>‹Huh.›</p>\r\n"),
    ("html", '<div lang="{{ page.lang }}">‹Two dogs› <ruby>‹bark›<rp>(</rp><rt>wau</rt><rp>)</rp></ruby>.</div>\n'),
    ("html", f"<p>{{{{ f({'a.b ' * 70}) }}}} ‹dogs› *|FNAME|* ‹run›</p>\n@if (user.isIn()) {{ <p>‹Welcome›</p> }}\n"),
    ("json", '{"a": "{{PLURAL:$1|‹Email from others›|‹Emails from others›}}"}\n'),
    ("vtt", 'WEBVTT\n\n00:00.000 --> 00:05.000\na.jpg#xywh=0,0,160,90\n\n00:05.000 --> 00:06.000\n{"title": "A"}\n\n'
     "00:06.000 --> 00:07.000\n‹A dog›\n"),
]  # fmt: skip


@pytest.mark.parametrize("form, sample", SAMPLES)
def test_what_programs_write_besides_text_stays(form: str, sample: str) -> None:
    source = re.sub("[‹›]", "", sample)
    expected = re.sub("‹([^›]*)›", lambda text: text[1].upper(), sample)
    assert translated_file(source.encode(), form, capitals).decode() == expected
    assert translated_file(source.encode(), form, unchanged).decode() == source


@pytest.mark.parametrize("msgid, expected", [
    ("See [the book](../book/ch01.html) for `Option`.", "SEE [THE BOOK](../book/ch01.html) FOR `Option`."),
    ("B<po4a> [I<options>] E<gt> F<a b>", "B<PO4A> [I<OPTIONS>] E<gt> F<a b>"),
    ("About |project| |version| [CIT2002]_.", "ABOUT |project| |version| [CIT2002]_."),
    ("The %type %title is in !link of $[officename].", "THE %type %title IS IN !link OF $[officename]."),
    ("use `foo' and `bar' or 50%off", "USE `FOO' AND `BAR' OR 50%OFF"),
])  # fmt: skip
def test_messages_of_other_tools_keep_their_marks(msgid: str, expected: str) -> None:
    assert f'msgstr "{expected}"' in translated_file(f'msgid "{msgid}"\nmsgstr ""\n'.encode(), "po", capitals).decode()


@pytest.mark.parametrize("form, data", [
    ("po", 'msgid ""\nmsgstr "Language: fr\\n"\n\nmsgid "a"\nmsgstr "b"\n\nmsgid "c"\nmsgstr ""\n'),
    ("xlf", '<xliff version="1.2"><file target-language="fr"><body><trans-unit id="1"><source>a</source>'
     '<target>b</target></trans-unit><trans-unit id="2"><source>c</source></trans-unit></body></file></xliff>'),
])  # fmt: skip
def test_translations_into_another_language_are_not_mixed_with_new_ones(form: str, data: str) -> None:
    with pytest.raises(NmtError, match="has translations into fr, not de; give the file of this language, or --all"):
        translated_file(data.encode(), form, capitals)
    translated = translated_file(data.replace("fr", "de").encode(), form, capitals)
    assert re.search(rb"""[">]C["<]""", translated)
