"""Marked-up text is translated with a model."""

import re
from dataclasses import replace
from html import unescape
from pathlib import Path

import pytest
from checkpoints import small_codec, translated_html
from commands import failed, run

from nmt import Translator
from nmt.config import SearchConfig
from nmt.text.markup_reading import parse
from nmt.text.protected import Protected
from nmt.translate.units import Sentence, Translation, Unit, UnitMaker

# The small model repeats pieces unless it is stopped.
SEARCH = SearchConfig(max_length_offset=15, no_repeat_ngram=1, min_length=15)


def test_text_is_translated_and_markup_is_kept(translator: Translator, monkeypatch: pytest.MonkeyPatch) -> None:
    paragraphs = ['<p> Ba <b class="x">de</b>\n<code>um &lt; ol</code> {name}<img src=y>.</p>', "<li>Lo mu"]
    html = "\n<ul>".join(paragraphs) + "<li translate=no>Mu</ul>"
    output = translated_html(translator, html, SEARCH)
    monkeypatch.setattr("nmt.translate.translator.PROTECTED", Protected(["um < ol"]))
    ((first,), (second,)) = translator.hypotheses(["Ba de um < ol {name}.", "Lo mu"], replace(SEARCH, alignments=True))
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
    for word_index, word in enumerate(["Ba", "de"]):
        output = translated_html(translator, "Ba de ki lo".replace(word, f"<b>{word}</b>"), SEARCH)
        marked = " ".join(re.findall("<b>(.*?)</b>", output)).split()
        assert marked == [best.text.split()[target] for source, target in best.alignment if source == word_index]


LINES = [
    "Ba <b>de</b> ki.",
    "",
    "<p>Lo <i class=x>mu {name}</i><p>Na <code>po</code> ra",
    "Ba de & si",
    "<br>",
    "<li>Tu ve</ul> <img src=y alt=z>",
]
OPTIONS = ["--max-length-offset=15", "--no-repeat-ngram=1", "--min-length=15", "--device=cpu", "--precision=fp32"]


@pytest.mark.parametrize("extra", [[], ["--workers=2"], ["--batch-tokens=1"], ["--shard-lines=2"]])
def test_lines_of_html(trained: Path, translator: Translator, tmp_path: Path, extra: list[str]) -> None:
    (tmp_path / "in").write_text("".join(f"{line}\n" for line in LINES))
    files = [f"--input={tmp_path}/in", f"--output={tmp_path}/out"]
    run("generate", trained / "run" / "best.safetensors", "--html", *files, *OPTIONS, *extra)
    expected = [translated_html(translator, line, SEARCH) for line in LINES]
    assert (tmp_path / "out").read_text().split("\n") == [*expected, ""]


def test_samples_of_lines_of_html_are_independent(trained: Path) -> None:
    """The second sentence of a line draws other random numbers than the next line."""
    options = ["--html", "--sample", *OPTIONS, "--min-length=0"]
    lines = b"<p>Ba de</p><p>ki lo</p>\n<p>ki lo</p>\n"
    done = run("generate", trained / "run" / "best.safetensors", *options, stdin=lines).stdout.decode()
    (_, second), (third,) = (re.findall("<p>(.*?)</p>", line) for line in done.split("\n")[:-1])
    assert second != third


@pytest.mark.parametrize("option", ["--sample", "--beam-groups=2"])
def test_searches_that_cannot_require_phrases_keep_markup(trained: Path, option: str) -> None:
    line = b"Ba <code>de</code> {name}.\n"
    done = run("generate", trained / "run" / "best.safetensors", "--html", option, *OPTIONS, stdin=line).stdout
    assert done.count(b"<code>de</code>") == done.count(b"{name}") == 1


def test_lines_of_html_that_are_too_deep_are_named(trained: Path) -> None:
    line = "<b>" * 100 + "a" + "</b>" * 100
    said = failed(
        "generate", trained / "run" / "best.safetensors", "--html", "--device=cpu", stdin=f"a\n{line}\n".encode()
    )
    assert said.startswith("error: standard input, line 2: <b> is in 100 elements around the same text; nest fewer")


@pytest.mark.parametrize(("option", "named"), [
    ("--n-best=2", "--n-best"), ("--alignments", "--alignments"), ("--prefixes=x", "--prefixes"),
    ("--constraints=x", "--constraints"), ("--output-format=jsonl", "jsonl"), ("--input-format=jsonl", "jsonl"),
])  # fmt: skip
def test_what_html_does_not_work_with(option: str, named: str) -> None:
    said = failed("generate", "model", "--html", option)
    assert said.startswith("error: --") and named in said and "leave" in said


def test_sentences_without_a_space_between_them_keep_their_markup() -> None:
    source, links = "a!b <b>c d</b>", ((0, 0), (1, 1), (2, 2))
    sentences = [Sentence("a!"), Sentence("b c d", start=2)]
    unit = Unit(source, content=parse(source, "html", Protected()), sentences=sentences)
    translations = [
        Translation("A!", 0.0, [], [], alignment=links[:1]),
        Translation("B C D", 0.0, [], [], alignment=links),
    ]
    assert unit.translated(translations, "de") == "A! B <b>C D</b>"


def test_sentences_of_a_line_with_a_tag_keep_their_markup() -> None:
    codec = small_codec(tags=("<2de>",))
    source = "&lt;2de> Ba de. Lo mu. Ki <b>um</b>."
    maker = UnitMaker(codec.config, Protected(), cut="sentence")
    unit = maker.complete(Unit(source, content=parse(source, "html", Protected())))
    assert [sentence.raw for sentence in unit.sentences] == ["<2de> Ba de.", "<2de> Lo mu.", "<2de> Ki um."]
    links = ((1, 0), (2, 1))
    translations = [Translation(translation, 0.0, [], [], alignment=links) for translation in ("A b.", "C d.", "E f.")]
    assert unit.translated(translations, "de") == "A b. C d. E <b>f</b>."


def test_sentences_of_a_language_without_spaces_keep_their_markup() -> None:
    source = "A <b>dog</b> runs. Two <i>men</i>."
    sentences = [Sentence("A dog runs."), Sentence("Two men.", start=12)]
    unit = Unit(source, content=parse(source, "html", Protected()), sentences=sentences)
    translations = [
        Translation("狗跑。", 0.0, [], [], alignment=((1, 0),)),
        Translation("两人 人。", 0.0, [], [], alignment=((0, 0), (1, 1))),
    ]
    translated = unit.translated(translations, "zh")
    assert re.sub("<[^>]*>", "", translated) == "狗跑。两人 人。"
    assert translated.endswith("<i>人</i>。")
