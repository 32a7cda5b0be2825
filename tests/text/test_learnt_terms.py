"""Terms that a model has learnt to read: in the training text, in the forms of words, and in what is translated."""

from collections import Counter
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Literal

import numpy as np
import pytest
from checkpoints import TEXT_CONFIG, WORDS, saved, small_checkpoint
from commands import failed, run
from hypothesis import given
from hypothesis import strategies as st

from nmt.checkpoint import load_checkpoint
from nmt.config import SearchConfig
from nmt.data.folder import DataFolder
from nmt.search.api import Required
from nmt.text.codec import TextCodec
from nmt.text.directions import Direction
from nmt.text.forms import are_forms, base_forms, endings_of
from nmt.text.glossary import Glossary
from nmt.text.protected import Protected
from nmt.text.subword import Subword
from nmt.text.terms import Term, TermSampler
from nmt.text.text_config import TERM_PIECES
from nmt.translate.encoding import by_sentence, encode
from nmt.translate.units import Translation, Unit, UnitMaker

DRAW = Random(1)
NOUNS = ["".join(DRAW.choices("abdefgiklmnoprtuvz", k=7)) for _ in range(128)]
GERMAN = [f"{noun[::-1].capitalize()}e" for noun in NOUNS]


@pytest.fixture(scope="module")
def codec() -> TextCodec:
    subword = Subword.train([WORDS] * 5, "bpe", 303, marks=TERM_PIECES)
    config = TEXT_CONFIG.to_dict() | {"term_pieces": TERM_PIECES, "endings": ("/s",)}
    return TextCodec(type(TEXT_CONFIG)(**config), subword, subword)


def test_the_endings_of_a_text_make_forms_of_words() -> None:
    words = {noun + ending: 3 for noun in NOUNS for ending in ("", "s")} | {"news": 1, "glass": 1}
    assert endings_of(words) == {("", "s")}
    assert are_forms("Words", "word", {("", "s")}) and not are_forms("worded", "word", {("", "s")})
    bases = base_forms(words | {"towns": 9, "Towns": 1, "town": 2})
    assert [bases[word] for word in ("town", "towns", f"{NOUNS[0]}s", "glass")] == ["towns", "towns", NOUNS[0], "glass"]


def source_of(codec: TextCodec, line: str, glossary: dict[str, str], mode: str = "auto") -> list[str]:
    """Returns the pieces of a line and the word `to`, which are translated with a glossary."""
    direction = Direction("en", "de")
    terms = Glossary({term: (form,) for term, form in glossary.items()})
    unit = UnitMaker(codec.config, Protected(), direction, glossary=terms).complete(Unit(f"{line} to"))
    (sentence,) = encode(codec, [unit], SearchConfig(glossary_mode=mode))  # type: ignore[arg-type]
    assert bool(sentence.terms) == (mode != "auto")
    return codec.source.pieces(sentence.ids)


@pytest.mark.parametrize("line, expected", [
    ("few words.", "<term> few words<as> word</term>."),
    ("a few  words, and few pieces", " a<term> few words<as> word</term>, and few pieces"),
    ("few words few words", "<term> few words<as> word</term><term> few words<as> word</term>"),
    ("few wordss", "<term> few wordss<as> word</term>"),
])  # fmt: skip
def test_a_line_has_the_translations_behind_its_terms(codec: TextCodec, line: str, expected: str) -> None:
    pieces = "".join(source_of(codec, line, {"few words": "word"}))
    assert pieces.replace("▁", " ").replace("<0x2C>", ",").replace("<0x2E>", ".") == f"{expected} to"


def test_capitals_of_a_line_make_no_difference(codec: TextCodec) -> None:
    assert "<term>" in source_of(codec, "a FEW", {"few": "word"})
    assert "<term>" not in source_of(codec, "a few, Few", {"FEW": "word"})


def test_terms_that_make_a_line_too_long_are_left_out(codec: TextCodec) -> None:
    maker = UnitMaker(codec.config, Protected(), glossary=Glossary({"few": ("words",)}))
    unit = maker.complete(Unit("a few"))
    with_terms, plain = (
        encode(codec, [unit], SearchConfig(max_source_length=longest))[0].ids for longest in (64, len("afew") + 2)
    )
    assert len(plain) < len(with_terms) and not set(codec.source.ids(TERM_PIECES)) & set(plain.tolist())


def test_text_that_contains_the_marks_stays_text(codec: TextCodec) -> None:
    line = "<term>few<as> words</term>"
    pieces = source_of(codec, line, {"pieces": "word"})
    assert not set(TERM_PIECES) & set(pieces)
    assert codec.source.decode([codec.source.ids(pieces)]) == [f"{line} to"]


@pytest.mark.parametrize("mode", ["learnt", "strict"])
def test_terms_of_a_line_with_tags_are_no_constraints(mode: Literal["learnt", "strict"]) -> None:
    subword = Subword.train([WORDS] * 5, "bpe", 310, tags=["<bt>"], marks=TERM_PIECES)
    codec = TextCodec(replace(TEXT_CONFIG, tags=("<bt>",), term_pieces=tuple(TERM_PIECES)), subword, subword)
    unit = UnitMaker(codec.config, Protected(), glossary=Glossary({"few": ("words",)})).complete(Unit("<bt> a  few to"))
    (sentence,) = encode(codec, [unit], SearchConfig(glossary_mode=mode))
    assert sentence.required == Required()
    assert [term[:2] for term in sentence.terms] == ([(7, 10)] if mode == "strict" else [])
    pieces = codec.source.pieces(sentence.ids)
    assert pieces[0] == "<bt>" and pieces[2:4] == (["▁few", "▁to"] if mode == "strict" else ["<term>", "▁few"])


def test_missing_terms_are_reported(codec: TextCodec) -> None:
    maker = UnitMaker(codec.config, Protected(), glossary=Glossary({"few": ("words",)}))
    units = [maker.complete(Unit("a few"))]
    encoded = encode(codec, units, SearchConfig())
    new = [Translation(text, 0.0, [], []) for text in ("um Words", "um words", "ums")]
    ((ranked,),) = by_sentence(units, zip(encoded, [new], strict=True), aligned=False)
    assert [each.unmet for each in ranked] == [True, False, True]


def test_both_modes_can_be_used_together(codec: TextCodec) -> None:
    assert "<term>" in source_of(codec, "few words", {"few": "word"}, "both")
    assert "<term>" not in source_of(codec, "few words", {"few": "word"}, "strict")


@given(st.lists(st.sampled_from(WORDS.split()), min_size=1, max_size=12), st.data())
def test_the_words_of_a_line_with_terms_are_those_of_the_line(words: list[str], data: st.DataObject) -> None:
    subword = Subword.train([WORDS] * 5, "bpe", 303, marks=TERM_PIECES)
    codec = TextCodec(type(TEXT_CONFIG)(**TEXT_CONFIG.to_dict() | {"term_pieces": TERM_PIECES}), subword, subword)
    line = " ".join(words)
    (ids,) = codec.encode_source([line])
    place = data.draw(st.integers(0, len(words) - 1))
    start = len(" ".join([*words[:place], ""])) if place else 0
    marked = codec.with_terms(line, ids, [Term(start, start + len(words[place]), "a few")])
    assert [word for word in codec.words("source", line, marked) if word >= 0] == codec.words("source", line, ids)
    assert len(marked) > len(ids)


def written(folder: Path) -> list[str | Path]:
    """Writes a corpus whose words are aligned one to one, and returns the options of preprocess."""
    draw = np.random.default_rng(1)
    sides: tuple[list[str], list[str], list[str]] = ([], [], [])
    for _ in range(600):
        places = draw.choice(len(NOUNS), 3, replace=False)
        plural = draw.integers(2)
        sides[0].append(" ".join(f"the {NOUNS[i]}{'s' * plural}" for i in places))
        sides[1].append(" ".join(f"die {GERMAN[i]}{'n' * plural}" for i in places))
        sides[2].append(" ".join(f"{i}-{i}" for i in range(6)))
    for suffix, lines in zip(("en", "de", "links"), sides, strict=True):
        (folder / f"train.{suffix}").write_text("".join(f"{line}\n" for line in lines))
    corpora = ["--source-lang=en", "--target-lang=de", f"--train={folder}/train", f"--valid={folder}/train"]
    return [*corpora, f"--alignments={folder}/train.links", "--vocab-size=360", f"--dest={folder}/data"]


def test_a_share_of_the_training_pairs_gets_terms(tmp_path: Path) -> None:
    run("preprocess", *written(tmp_path), "--terms=0.5")
    data = DataFolder.open(str(tmp_path / "data"))
    assert "/s" in data.codec.config.endings
    split, term = data.split("train"), data.codec.source.ids(TERM_PIECES)
    lines = [split.source[i].tolist() for i in range(600)]
    marked = [line for line in lines if term[0] in line]
    assert 240 < len(marked) < 360
    most = max(len(line) for line in lines if term[0] not in line)
    limit = [f"--dest={tmp_path}/short", f"--max-length={most}"]
    run("preprocess", *written(tmp_path)[:-1], "--terms=1", *limit)
    short = DataFolder.open(str(tmp_path / "short")).split("train").source
    assert max(len(short[i]) for i in range(600)) <= most
    translations = set()
    for line in marked:
        start, stop = line.index(term[1]), line.index(term[2])
        translations.add(data.codec.decode_target([line[start + 1 : stop]])[0])
    singular, plural = set(GERMAN), {f"{noun}n" for noun in GERMAN}
    assert len(translations & singular) > 20 and len(translations & plural) > 20


def test_translations_of_terms_are_those_of_a_glossary() -> None:
    text = [*(f"{noun} {noun} {noun}s" for noun in NOUNS), "article article articles re"]
    sampler, draw = TermSampler(text, text), Random(1)
    drawn = [
        sampler.terms("two words", target, [(0, 0), (1, 0)], draw)[0].translation
        for target in ("l’article", "articles", "d’hier", "we're")
        for _ in range(100)
    ]
    counts = [Counter(drawn[first : first + 100]) for first in range(0, 400, 100)]
    assert counts[0]["article"] > 80
    assert counts[1]["articles"] > 25 and counts[1]["article"] > 25
    assert counts[2]["d’hier"] > 80  # the rest is no word of the text
    assert counts[3]["we're"] > 80  # the rest is an ending


def test_without_terms_the_endings_are_stored_too(tmp_path: Path) -> None:
    run("preprocess", *written(tmp_path))
    codec = DataFolder.open(str(tmp_path / "data")).codec
    assert "/s" in codec.config.endings
    maker = UnitMaker(codec.config, Protected(), glossary=Glossary({NOUNS[0]: ("Wort",)}))
    (sentence,) = encode(codec, [maker.complete(Unit(f"the {NOUNS[0]}s"))], SearchConfig())
    assert [term.forms for term in sentence.terms] == [("Wort",)]


def test_a_model_learns_terms_later(tmp_path: Path) -> None:
    """Its vocabulary has no pieces for marks, so that those of control characters mark terms."""
    options = written(tmp_path)
    model = saved(small_checkpoint(1), tmp_path / "model.safetensors")
    run("preprocess", *(option for option in options if "vocab" not in str(option)), "--terms=1", f"--like={model}")
    data = DataFolder.open(str(tmp_path / "data"))
    assert data.codec.config.term_pieces == ("<0x01>", "<0x02>", "<0x03>")
    assert load_checkpoint(str(model)).codec.config.term_pieces == ()


def test_a_model_without_terms_says_so(tmp_path: Path) -> None:
    model = saved(small_checkpoint(1), tmp_path / "model.safetensors")
    (tmp_path / "terms").write_text("few\twenige\n")
    (tmp_path / "text").write_text("few words\n")
    message = failed(
        "generate", model, "--input", tmp_path / "text", "--glossary", tmp_path / "terms", "--glossary-mode=learnt"
    )
    assert "--glossary-mode is learnt, but the model was trained without preprocess --terms" in message
