"""Marked-up text is translated with a model."""

import re
from dataclasses import replace
from html import unescape
from pathlib import Path

import pytest

from nmt import Translator
from nmt.config import RuntimeConfig, SearchConfig
from nmt.translate.requests import Request
from nmt.translate.texts import translate_markup

# The small model repeats pieces unless it is stopped.
SEARCH = SearchConfig(max_length_offset=15, no_repeat_ngram=1, min_length=15)


@pytest.fixture(scope="module")
def translator(trained: Path) -> Translator:
    return Translator.load(trained / "run" / "best.safetensors", runtime=RuntimeConfig(device="cpu", precision="fp32"))


def test_text_is_translated_and_markup_is_kept(translator: Translator) -> None:
    paragraphs = ['<p> Ba <b class="x">de</b>\n<code>um &lt; ol</code> {name}<img src=y>.</p>', "<li>Lo mu"]
    html = "\n<ul>".join(paragraphs) + "<li translate=no>Mu</ul>"
    output = translate_markup(translator, html, "html", SEARCH)
    requests = [Request("Ba de um < ol {name}.", constraints=("um < ol", "{name}")), Request("Lo mu")]
    ((first,), (second,)) = translator.hypotheses(requests, SEARCH)
    paragraph, rest = output.split("</p>\n")
    assert unescape(re.sub("<[^>]*>", "", paragraph)) == f" {first.text}"
    assert rest == f"<ul><li>{second.text}<li translate=no>Mu</ul>"
    for kept in ('<b class="x">', "</b>", "<code>um &lt; ol</code>", "<img src=y>", "{name}"):
        assert kept in paragraph
    assert paragraph.count("{name}") == paragraph.count("<img src=y>") == 1


def test_tags_follow_the_alignment_of_the_model(translator: Translator) -> None:
    """This model links nearly all words to the first one."""
    ((best,),) = translator.hypotheses(["Ba de ki lo"], replace(SEARCH, alignments=True))
    assert best.alignment
    for number, word in enumerate(["Ba", "de"]):
        output = translate_markup(translator, "Ba de ki lo".replace(word, f"<b>{word}</b>"), "html", SEARCH)
        marked = " ".join(re.findall("<b>(.*?)</b>", output)).split()
        assert marked == [best.text.split()[target] for source, target in best.alignment if source == number]
