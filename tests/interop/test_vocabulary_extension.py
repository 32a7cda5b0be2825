"""Languages and pieces that are added to a model of several languages that was trained with this toolkit."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import pytest
import torch
from checkpoints import CONFIG, multilingual_codec, saved, small_checkpoint
from commands import failed, run
from conftest import invented_pairs

import nmt
from nmt.text.codec import TextCodec
from nmt.text.directions import Direction
from nmt.text.subword import Subword

LANGUAGES, TOKENS = ("en", "de"), ("<2en>", "<2de>")
OLD = [line for pair in invented_pairs(80, seed=1) for line in pair]
# The old text has none of these capitals and letters. Ԟ occurs once, and Ԙ in the text that is to stay. Names of tokens
# and bytes are text.
NEW = [f"ţ{line.upper()}ţԘ" for line, _ in invented_pairs(40, seed=2)] + ["Ԟ", *["<2fr> </s><0x41>\tx"] * 9]


def codec(kind: Literal["bpe", "unigram"] = "bpe", tags: Sequence[str] = (), *, lowercase: bool = False) -> TextCodec:
    subword = Subword.train(OLD, kind, 330, tags=tags, marks=TOKENS)
    text = multilingual_codec("target_on_source", ("en de",), LANGUAGES).config
    text = replace(text, subword=kind, lowercase=lowercase)
    return TextCodec(text, subword, subword)


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """Returns a checkpoint of two languages with random weights, beside text of a new one and of the old ones."""
    for name, lines in (("new", NEW), ("old", [*OLD, "Ԙ"])):
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines))
    checkpoint = small_checkpoint(0, replace(CONFIG, output_bias=True), codec())
    torch.nn.init.normal_(checkpoint.weights["output_bias"])
    return saved(checkpoint, tmp_path / "old.safetensors")


def test_a_model_gets_a_language_and_pieces(old: Path, tmp_path: Path) -> None:
    path = tmp_path / "more.safetensors"
    options: list[Any] = ["--add-language=fr=en", "--add-pieces", tmp_path / "new", "--pieces=20"]
    said = run("extend", old, "--output", path, *options, "--unchanged", tmp_path / "old").stderr
    assert f"{tmp_path / 'old'}: 100.00% of 161 lines have the same pieces as before" in said
    base, extended = nmt.load_checkpoint(old), nmt.load_checkpoint(path)
    assert extended.codec.config.languages == (*LANGUAGES, "fr")
    assert extended.codec.config.directions == ("en de",)
    assert extended.codec.encode_source([*OLD, "Ԙ"]) == base.codec.encode_source([*OLD, "Ԙ"])
    assert extended.codec.decode_target(extended.codec.encode_target(NEW)) == NEW
    pieces = extended.codec.target.vocabulary
    assert pieces[:330] == base.codec.target.vocabulary
    assert len(pieces) == 351 and pieces[330] == "<2fr>"
    assert extended.provenance["added_pieces"] == pieces[330:]
    assert "ţ" in pieces and not {"Ԟ", "Ԙ", "\t"} & set(pieces)
    assert 330 not in extended.codec.encode_target(["<2fr>"])[0]
    lengths = [sum(map(len, each.codec.encode_target(NEW))) for each in (base, extended)]
    assert lengths[1] < lengths[0] - 200
    for name, weight in extended.weights.items():
        assert torch.equal(weight[: len(base.weights[name])], base.weights[name])
    for name in ("target_embedding.weight", "output_bias"):
        rows = extended.weights[name]
        assert torch.equal(rows[330], rows[base.codec.target.ids(["<2en>"])[0]])
        for piece_id, piece in enumerate(pieces[331:], start=331):
            spelled = base.codec.target.encode([piece.replace("▁", " ").strip()])[0]
            if piece.startswith("▁"):  # others are segmented in another way at the beginning of a line
                assert torch.allclose(rows[piece_id], rows[spelled].mean(0), atol=1e-6)

    for name, lines in (("en", OLD[:20]), ("fr", NEW[:20])):
        (tmp_path / f"text.{name}").write_text("".join(f"{line}\n" for line in lines))
    text = ["--train", tmp_path / "text", "--valid", tmp_path / "text", "--dest", tmp_path / "data"]
    run("preprocess", "--like", path, "--languages=en,fr", "--both-ways", *text)
    save_dir = tmp_path / "run"
    run("train", tmp_path / "data", "--init-from", path, "--save-dir", save_dir, "--device=cpu", "--max-updates=1")
    tuned = nmt.load_checkpoint(save_dir / "best.safetensors").codec
    second_path = tmp_path / "again.safetensors"
    run("extend", path, "--output", second_path, "--add-language=it=fr")
    assert nmt.load_checkpoint(second_path).provenance["added_pieces"] == [*pieces[330:], "<2it>"]
    assert tuned.config.trained == [Direction("en", "de"), Direction("en", "fr"), Direction("fr", "en")]


def test_new_pieces_are_of_text_as_the_model_sees_it(tmp_path: Path) -> None:
    path, text = tmp_path / "lower.safetensors", tmp_path / "new"
    saved(small_checkpoint(0, CONFIG, codec(lowercase=True)), path)
    text.write_text("".join(f"{line}\n" for line in NEW))
    output = tmp_path / "more.safetensors"
    run("extend", path, "--output", output, "--add-pieces", text, "--pieces=20")
    pieces = nmt.load_checkpoint(output).provenance["added_pieces"]
    assert len(pieces) == 20 and pieces == [piece.lower() for piece in pieces]


def test_what_cannot_be_extended_is_refused(old: Path, tmp_path: Path) -> None:
    bilingual = saved(small_checkpoint(0), tmp_path / "pair.safetensors")
    unigram = saved(small_checkpoint(0, CONFIG, codec("unigram")), tmp_path / "unigram.safetensors")
    tagged = saved(small_checkpoint(0, CONFIG, codec(tags=["<2fr>"])), tmp_path / "tagged.safetensors")
    cases: list[tuple[Path, list[str], str]] = [
        (old, [], "there is nothing to add; give --add-language or --add-pieces"),
        (bilingual, ["--add-language=fr=en"], "only; train a model of several"),
        (unigram, ["--add-language=fr=en"], "of the kind unigram, which cannot be extended"),
        (old, ["--add-language=fr=it"], "the model has no language 'it'"),
        (old, ["--add-language=fr"], "does not name a new language and a related one"),
        (old, ["--add-language=fr=en", "--add-language=fr=de"], "does not name a new language"),
        (tagged, ["--add-language=fr=en"], "needs the token <2fr>, but a piece of the model has this name"),
    ]
    for path, options, message in cases:
        assert message in failed("extend", path, "--output", tmp_path / "x.safetensors", *options)
    assert not (tmp_path / "x.safetensors").exists()
