"""With --lower-capitals, the model gets lines in capitals in lower case, and their translations are put in capitals."""

import dataclasses
import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from checkpoints import TEXT_CONFIG, eloquent_checkpoint, whole
from commands import LANGS, failed, run
from conftest import invented_pairs

from nmt.checkpoint import save_checkpoint
from nmt.config import SearchConfig
from nmt.data.folder import DataFolder
from nmt.text.codec import TextCodec
from nmt.text.directions import Direction
from nmt.text.subword import Subword
from nmt.translate.encoding import encode
from nmt.translate.units import Unit

Write = Callable[[str, list[tuple[str, str]]], str]
LOWERED = dataclasses.replace(TEXT_CONFIG, lower_capitals=True, tags=("<bt>",))


@cache
def codec() -> TextCodec:
    model = Subword.train([line for pair in invented_pairs(300) for line in pair], "bpe", 350, tags=["<bt>"])
    return TextCodec(LOWERED, model, model)


@pytest.mark.parametrize("line, lowered", [
    ("MULO BAKI.", True), ("4. ÉTÉ: LA 2", True), ("<bt> I AM", True), ("GROẞE STRAẞE", True),
    ("MULO Baki", False), ("MULO", False), ("<bt> MULO", False), ("4 MULO 12", False), ("字 字", False), ("", False),
    ("هذا جهاز USB جديد", False), ("支持 USB 和 HDMI", False), ("O‘ZBEK ʻTILI", True),
])  # fmt: skip
def test_lines_in_capitals_have_two_words_or_more(line: str, lowered: bool) -> None:
    expected = line.lower() if lowered else line
    assert codec().config.cased_for(line) == expected
    assert codec().encode_source([line]) == codec().encode_source([expected])


def test_small_letters_are_those_of_the_direction() -> None:
    config = dataclasses.replace(LOWERED, tags=("<BT>",))
    cased = [config.cased_for("<BT> IŞIK VE İŞ", direction=Direction(lang, "ga")) for lang in ("tr", "en")]
    assert cased == ["<BT> ışık ve iş", "<BT> işik ve i̇ş"]
    assert config.cased_for("I AM", "AN tUISCE", Direction("en", "ga")) == "an t-uisce"
    assert config.cased_for("I nGAILLIMH", direction=Direction("ga", "en")) == "i ngaillimh"
    assert config.cased_for("ეს არის USA", direction=Direction("ka", "en")) == "ეს არის USA"


@pytest.mark.parametrize("options", [
    ["--augment"], ["--separate-vocab"], ["--subword-dropout=0.5", "--encodings=3"], ["--alignments=LINKS"],
])  # fmt: skip
def test_both_sides_are_stored_in_lower_case(write_corpus: Write, tmp_path: Path, options: list[str]) -> None:
    lower = [(source.lower(), target.lower()) for source, target in invented_pairs(120)]
    capitals = [(source.upper(), target if i % 2 else target.upper()) for i, (source, target) in enumerate(lower)]
    links = tmp_path / "links"
    links.write_text("".join("0-0 1-1\n" if len(source.split()) > 1 else "0-0\n" for source, _ in lower))
    common = ["preprocess", *LANGS, "--vocab-size=340", *(option.replace("LINKS", str(links)) for option in options)]
    folders = {}
    for name, pairs, flags in (("lower", lower, []), ("capitals", capitals, ["--lower-capitals"])):
        corpus = write_corpus(
            name, [(source.replace("ß", "ss"), target.replace("ß", "ss")) for source, target in pairs]
        )
        run(*common, *flags, f"--train={corpus}", f"--valid={corpus}", f"--dest={tmp_path}/{name}-data")
        folders[name] = DataFolder.open(tmp_path / f"{name}-data").split("train")
    lower_split, capital_split = (folders[name].in_epoch(1, 0) for name in ("lower", "capitals"))
    words = [len(source.split()) > 1 and len(target.split()) > 1 for source, target in lower]
    assert sum(words) > 100
    codec = DataFolder.open(tmp_path / "capitals-data").codec
    assert not any(
        codec.config.lowers(line, codec.config.source_lang)
        for line in codec.source.decode(list(map(list, capital_split.source)))
    )
    for i in np.flatnonzero(words):
        if "--augment" not in options:
            assert np.array_equal(capital_split.source[i], lower_split.source[i])
            assert np.array_equal(capital_split.target[i], lower_split.target[i])
    linked = np.flatnonzero(words)
    if folders["lower"].alignments is not None:
        assert folders["capitals"].alignments is not None
        assert any(len(folders["lower"].alignments[i]) for i in linked)
        assert all(np.array_equal(folders["capitals"].alignments[i], folders["lower"].alignments[i]) for i in linked)


def test_a_prefix_and_phrases_are_lowered_and_written_as_given() -> None:
    units = [
        Unit("MULO BAKI", prefix="BA KI", constraints=("iPhone", ("BAKI KILO", "ki"))),
        Unit("mulo", prefix="BA KI", constraints=("BAKI KILO",)),
        Unit("MULO BAKI"),
    ]
    first, second, third = encode(codec(), whole(codec(), *units), SearchConfig())
    lower, as_given = (
        codec().target.encode([f(t) for t in ("BA KI", "BAKI KILO", "iPhone")]) for f in (str.lower, str)
    )
    assert first.required.prefix == tuple(lower[0])
    assert [phrases[0] for phrases in first.required.constraints] == [tuple(lower[2]), tuple(lower[1])]
    assert second.required.prefix == tuple(as_given[0])
    assert second.required.constraints == ((tuple(as_given[1]),),)
    decoded = "ba ki iphone große mu baki kilo"
    assert codec().target_with(decoded, first.given, "de") == "BA KI iPhone GROSSE MU BAKI KILO"
    assert codec().target_with(decoded, second.given, "de") == decoded
    assert codec().target_with(decoded, third.given, "de") == decoded.upper()


def test_words_do_not_depend_on_capitals() -> None:
    line = "MULO BAKI ÜBERKILO Ж"
    (ids,) = codec().encode_source([line])
    normalized = [index for index, word in enumerate(["-", "mulo", "de"]) for _ in codec().target.encode([word])[0]]
    assert codec().words("target", "——— MULO DE", codec().target.encode(["- mulo de"])[0]) == normalized
    expected = [i for i, word in enumerate(line.lower().split()) for _ in codec().target.encode([word])[0]]
    assert codec().words("source", line, ids) == expected
    assert codec().words("target", line, ids) == expected
    assert codec().target_segments(line, codec().target.pieces(ids), "de") == (
        ["MULO", " BAKI", " ÜBERKILO", " Ж"], expected,
    )  # fmt: skip


def test_capitals_are_translated_and_rescored_as_other_lines(tmp_path: Path) -> None:
    model = tmp_path / "model.safetensors"
    save_checkpoint(eloquent_checkpoint(1, codec=codec()), model)
    lines = ["mulo baki kilo", "de da ki", "lo mu"]
    options = model, "--precision=fp32", "--alignments", "--output-format=jsonl", "--beam=2", "--max-length-offset=5"

    def translated(text: list[str]) -> list[dict[str, Any]]:
        said = run("generate", *options, stdin="".join(f"{line}\n" for line in text).encode()).stdout
        return [json.loads(line)["hypotheses"][0] for line in said.splitlines()]

    lower, capitals = translated(lines), translated([line.upper() for line in lines])
    assert [hypothesis | {"text": hypothesis["text"].upper()} for hypothesis in lower] == capitals
    assert any(hypothesis["text"] != hypothesis["text"].upper() for hypothesis in lower)
    pairs = [(line, hypothesis["text"].lower()) for line, hypothesis in zip(lines, lower, strict=True)]
    text = "".join(f"{source}\t{target}\n{source.upper()}\t{target.upper()}\n" for source, target in pairs)
    options = "--precision=fp32", "--output-format=jsonl", "--alignments"
    said = run("rescore", model, *options, stdin=text.encode()).stdout.splitlines()
    rescored = [json.loads(line)["rescored"] for line in said]
    assert rescored[::2] == rescored[1::2]


@pytest.mark.parametrize("options, message", [
    (["--lowercase"], "--lower-capitals does not work with --lowercase; leave out one of them"),
    (["--symbols=words"], "--lower-capitals does not work with --symbols words; leave out one"),
])  # fmt: skip
def test_what_it_cannot_do_is_refused(write_corpus: Write, tmp_path: Path, options: list[str], message: str) -> None:
    corpus = write_corpus("corpus", invented_pairs(9))
    command = "preprocess", *LANGS, f"--train={corpus}", f"--valid={corpus}", f"--dest={tmp_path}/data"
    assert message in failed(*command, "--lower-capitals", *options)
