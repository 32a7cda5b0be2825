"""Models of several languages translate and score in each direction, with both engines."""

import json
from pathlib import Path
from typing import Any, get_args

import pytest
import torch
from checkpoints import FP32, eloquent_checkpoint, generated, multilingual_codec, saved, some_sentences
from commands import failed, run

import nmt
from nmt.config import SearchConfig
from nmt.data.sides import make_side
from nmt.model.device import Runtime
from nmt.text.directions import Direction
from nmt.text.subword import BOS, EOS, NEVER
from nmt.text.text_config import Placement
from nmt.translate.pytorch_engine import PyTorchEngine
from nmt.translate.translator import Translator
from nmt.translate.units import Unit

LINES = some_sentences(12, seed=1)
DIRECTIONS = [("en", "de"), ("de", "fr"), ("fr", "en")]


@pytest.fixture(params=get_args(Placement))
def several(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    checkpoint = eloquent_checkpoint(5, ending=12, codec=multilingual_codec(request.param))
    return saved(checkpoint, tmp_path / "model.safetensors")


def greedy(engine: PyTorchEngine, line: str, direction: Direction, longest: int) -> list[int]:
    """Returns the most probable pieces, from the logits of whole targets."""
    (model,), codec = engine.models, engine.codec
    (ids,) = codec.encode_source([line])
    languages = dict(zip(codec.config.languages, codec.target.ids(codec.config.language_pieces), strict=True))
    source, target = languages[direction.source], languages[direction.target]
    sources, given = {
        "both_sides": ([source, *ids, EOS], [BOS, target]),
        "behind_source": ([*ids, EOS, source], [BOS, target]),
        "target_on_source": ([target, *ids, EOS], [BOS]),
    }[codec.config.placement]
    side, output = make_side([[torch.tensor(sources).numpy()]], least_width=16), list[int]()
    while len(output) < longest:
        inputs = make_side([[torch.tensor([*given, *output]).numpy()]])
        decoded = model.decode(inputs.ids_F, inputs.layout, model.encode(side.ids_F, side.layout), side.layout)
        logits_V = model.logits(decoded)[len(given) + len(output) - 1].detach()
        logits_V[[*NEVER, *([] if output else [EOS])]] = -torch.inf
        if (best := int(logits_V.argmax())) == EOS:
            break
        output.append(best)
    return output


def test_greedy_search_begins_with_the_tokens_of_the_languages(several: Path) -> None:
    engine = PyTorchEngine.load(several, runtime=FP32)
    assert isinstance(engine.runtime, Runtime)
    units = [Unit(line, direction=Direction(*d)) for line, d in zip(LINES, DIRECTIONS * 4, strict=True)]
    search = SearchConfig(beam=1, max_length_offset=5)
    translations = Translator(engine).hypotheses(units, search)
    for unit, (translation,) in zip(units, translations, strict=True):
        assert unit.direction
        (ids,) = engine.codec.encode_source([unit.source])
        expected = greedy(engine, unit.source, unit.direction, len(ids) + 6)  # a source has two tokens more
        assert translation.pieces == engine.codec.target.pieces(expected)


def objects(lines: list[str]) -> list[str]:
    """Returns lines of JSON, whose directions alternate."""
    pairs = zip(lines, DIRECTIONS * len(lines), strict=False)
    return [json.dumps({"source": line, "source_lang": s, "target_lang": t}) for line, (s, t) in pairs]


def shown(results: list[dict[str, Any]]) -> list[list[tuple[str, float]]]:
    return [[(h["text"], pytest.approx(h["score"], abs=1e-3)) for h in r["hypotheses"]] for r in results]


def test_lines_of_several_directions_share_batches(several: Path) -> None:
    together = generated(several, objects(LINES), "--input-format=jsonl", "--precision=fp32")
    for index, (source, target) in enumerate(DIRECTIONS):
        alone = generated(several, LINES, "--source-lang", source, "--target-lang", target, "--precision=fp32")
        assert shown(alone[index::3]) == shown(together[index::3])
        assert [line["hypotheses"] for line in alone] != [line["hypotheses"] for line in together]


def test_both_engines_and_rescoring_agree(several: Path, tmp_path: Path) -> None:
    options = ["--input-format=jsonl", "--alignments"]
    translations = generated(several, objects(LINES), *options, "--precision=fp32")
    other = generated(several, objects(LINES), *options, "--engine=ctranslate2")
    # The engines have different maximum lengths.
    ended = [i for i, r in enumerate(translations) if all(len(h["pieces"]) < 20 for h in r["hypotheses"])]
    assert len(ended) > 4
    assert shown([translations[i] for i in ended]) == shown([other[i] for i in ended])
    linked = [translations[i]["hypotheses"][0]["alignment"] == other[i]["hypotheses"][0]["alignment"] for i in ended]
    assert sum(linked) >= len(linked) / 2  # random models give many words about the same attention
    (tmp_path / "results").write_text(
        "".join(f"{json.dumps(translation)}\n" for translation in translations), encoding="utf-8"
    )
    command = ["rescore", several, "--input", tmp_path / "results", "--input-format=jsonl", "--output-format=jsonl"]
    for line in map(json.loads, run(*command, "--precision=fp32").stdout.splitlines()):
        for hypothesis in line["hypotheses"]:
            assert hypothesis["rescored"]["log_probs"] == pytest.approx(hypothesis["log_probs"], abs=1e-3)


def test_the_source_language_may_be_unknown_if_its_token_is_not_needed(several: Path) -> None:
    if "target_on_source" not in nmt.load_checkpoint(several).codec.config.placement:
        assert "--source-lang is missing" in failed("generate", several, "--target-lang=fr", stdin=b"some words\n")
        return
    for engine in (["--precision=fp32"], ["--engine=ctranslate2"]):
        alone, named = (
            generated(several, LINES, *engine, "--target-lang=fr", *more) for more in ([], ["--source-lang=de"])
        )
        assert shown(alone) == shown(named)


def test_python_has_directions(several: Path) -> None:
    lines = Translator.load(several, runtime=FP32).translate(LINES, source_lang="deu_Latn", target_lang="fra_Latn")
    translations = generated(several, LINES, "--precision=fp32", "--source-lang=de", "--target-lang=fr")
    assert lines == [translation["hypotheses"][0]["text"] for translation in translations]


def test_units_have_directions_of_their_own_or_those_of_the_call(several: Path) -> None:
    translator, (line, *_) = Translator.load(several, runtime=FP32), LINES
    own = nmt.Direction("fr", "en")
    units = [line, nmt.Unit(line), nmt.Unit(line, direction=own), nmt.Unit(line, prefix="some")]
    german, unit, english, begun = translator.hypotheses(units, source_lang="en", target_lang="de")
    assert german == unit != english
    assert english == translator.hypotheses([line], source_lang="fr", target_lang="en")[0]
    assert begun[0].text.startswith("some") and begun != german
    half = nmt.Unit(line, direction=nmt.Direction("fr", ""))
    assert translator.hypotheses([half], source_lang="en", target_lang="en") == [english]
    with pytest.raises(nmt.NmtError, match="-lang is missing; name one of"):
        translator.hypotheses([nmt.Unit(line, direction=own), nmt.Unit(line)])


def test_a_language_that_is_null_is_that_of_the_command(several: Path) -> None:
    command = ["--source-lang=en", "--target-lang=fr"]
    expected = generated(several, LINES[:1], *command)[0]["hypotheses"]
    line = json.dumps({"source": LINES[0], "source_lang": "en", "target_lang": None})
    (translation,) = generated(several, [line], "--input-format=jsonl", *command)
    assert translation["hypotheses"] == expected


def test_prefixes_and_constraints_in_a_direction(several: Path) -> None:
    line = {"source": LINES[0], "source_lang": "en", "target_lang": "fr"}
    (translation,) = generated(several, [json.dumps(line | {"prefix": "words", "constraints": ["few more"]})],
                          "--input-format=jsonl")  # fmt: skip
    text = translation["hypotheses"][0]["text"]
    assert text.startswith("words")
    assert "few more" in text


def test_a_direction_has_to_be_named(several: Path) -> None:
    message = failed("generate", several, "--source-lang=en", stdin=b"some words\n")
    assert "--target-lang is missing; name one of de, en, fr" in message
    wrong = json.dumps({"source": "some words", "source_lang": "en", "target_lang": "it"}).encode()
    assert "line 1: the model has no language 'it', but de, en, fr" in failed(
        "generate", several, "--input-format=jsonl", stdin=wrong
    )


def test_documents_have_a_direction(several: Path, tmp_path: Path) -> None:
    (tmp_path / "page.html").write_text('<html lang="en"><p>some <b>words</b> to learn</p></html>', encoding="utf-8")
    run("translate-file", tmp_path / "page.html", "--model", several, "--source-lang=en", "--target-lang=fr")
    assert '<html lang="fr">' in (tmp_path / "page.fr.html").read_text(encoding="utf-8")
