"""MarianMT models come in and go out: transformers computes the same ids, logits, losses and translations."""

import json
import os
import random
import shutil
import sys
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest
import torch
from commands import TRAIN, failed, records, run, train
from conftest import invented_pairs
from marian import mixed_lines, write_model
from test_export import check_probabilities
from transformers import LogitsProcessor, LogitsProcessorList, MarianMTModel, MarianTokenizer

import nmt
from nmt.checkpoint import Checkpoint
from nmt.config import RuntimeConfig, SearchConfig
from nmt.text.subword import BOS, EOS, PAD

FP32 = RuntimeConfig(device="cpu", precision="fp32")
SHAPES: dict[str, dict[str, Any]] = {
    "Opus-MT": {"activation_function": "swish", "scale_embedding": True},
    "gelu, separate embeddings": {
        "activation_function": "gelu",
        "scale_embedding": True,
        "share_encoder_decoder_embeddings": False,
    },
    "relu, separate vocabularies, spare ids": {
        "activation_function": "relu",
        "scale_embedding": True,
        "share_encoder_decoder_embeddings": False,
        "separate_vocabs": True,
        "spare_ids": 5,
    },
    "embeddings not scaled": {
        "activation_function": "silu",
        "scale_embedding": False,
        "d_model": 20,
        "encoder_layers": 3,
    },
}


@dataclass(frozen=True)
class Imported:
    """A random model of transformers, and the checkpoint that `nmt import` made of it."""

    folder: Path
    theirs: MarianMTModel

    @cached_property
    def tokenizer(self) -> MarianTokenizer:
        return MarianTokenizer.from_pretrained(self.folder / "marian")

    @cached_property
    def ours(self) -> nmt.Translator:
        return nmt.Translator.load(self.folder / "model.pt", runtime=FP32)

    @cached_property
    def vocabularies(self) -> list[dict[str, int]]:
        """The ids of both sides, with the names that nmt gives to special and spare ids."""
        names = ["vocab.json", "target_vocab.json" if self.tokenizer.separate_vocabs else "vocab.json"]
        config = self.theirs.config
        extra = {"<s>": config.decoder_start_token_id} | {f"<unused {i}>": i for i in range(config.vocab_size)}
        return [json.loads((self.folder / "marian" / name).read_text()) | extra for name in names]

    def source_ids(self, ours: list[int]) -> list[int]:
        """Returns the ids of transformers for ours."""
        return [self.vocabularies[0][piece] for piece in self.ours.codec.source.pieces(ours)]

    def target_ids(self, ours: list[int]) -> list[int]:
        """Returns the ids of transformers for ours."""
        return [self.vocabularies[1][piece] for piece in self.ours.codec.target.pieces(ours)]


@pytest.fixture(params=SHAPES)
def imported(request: pytest.FixtureRequest, tmp_path: Path) -> Imported:
    model = write_model(tmp_path / "marian", **SHAPES[request.param])
    run("import", "huggingface", tmp_path / "marian", "--output", tmp_path / "model.pt")
    return Imported(tmp_path, model)


LINES = [
    *mixed_lines(990, seed=3),
    *(
        ">>fra<< abc",
        ">>fra<<abc",
        "abc >>fra<<",
        ">>deu<< abc",
        ">>fra",
        "",
        " ",
        "ภาษาไทย abc",
        "ქართული",
        "a\udc80b",
    ),
]


class ForcedEnd(LogitsProcessor):
    """Ends an output at its greatest length, with the log P of EOS; transformers' own rule counts it as 0."""

    def __init__(self, length: int, eos: int) -> None:
        self.length, self.eos = length, eos

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        if input_ids.shape[1] < self.length:
            return scores
        return torch.full_like(scores, -torch.inf).index_copy(1, torch.tensor([self.eos]), scores[:, [self.eos]])


@pytest.mark.parametrize("imported", ["Opus-MT", "relu, separate vocabularies, spare ids"], indirect=True)
def test_text_has_the_ids_of_marians_tokenizer(imported: Imported) -> None:
    codec, tokenizer = imported.ours.codec, imported.tokenizer
    lines = [line.replace("\udc80", "\ufffd") for line in LINES]  # transformers has no rule for lone surrogates
    expected = tokenizer(lines).input_ids
    assert tokenizer.unk_token_id in {i for line in expected for i in line}
    assert [imported.source_ids([*line, EOS]) for line in codec.encode_source(LINES)] == expected
    targets = tokenizer(text_target=lines).input_ids
    encoded = codec.encode_target(LINES)
    assert [imported.target_ids([*line, EOS]) for line in encoded] == targets
    assert codec.decode_target(encoded) == tokenizer.batch_decode(targets, skip_special_tokens=True)


@torch.no_grad()
def test_logits_and_translations_are_those_of_transformers(imported: Imported) -> None:
    ours, theirs, tokenizer = imported.ours, imported.theirs, imported.tokenizer
    lines = [line for line in LINES[:25] if 0 < len(line) < 30]
    expected = tokenizer(lines).input_ids
    draw = torch.Generator().manual_seed(0)
    theirs_of_ours = imported.target_ids(list(range(1, len(ours.codec.target))))
    differences = []
    for source, source_ids in zip(ours.codec.encode_source(lines), expected, strict=True):
        target = [BOS, *torch.randint(4, len(ours.codec.target), (7,), generator=draw).tolist()]
        target_ids = torch.tensor([imported.target_ids(target)])
        found = ours.models[0](torch.tensor([[*source, EOS]]), torch.tensor([target]))[0]
        logits = theirs(torch.tensor([source_ids]), decoder_input_ids=target_ids).logits[0]
        differences.append((found[:, 1:] - logits[:, theirs_of_ours]).abs().max().item())
        assert found[:, PAD].max() < found.max() - 50  # this id does not exist there
    print(f"largest difference of the logits: {max(differences):.1e}")
    assert max(differences) < 1e-5

    for beam in (1, 4):
        search = SearchConfig(beam=beam, n_best=beam, alpha=0, max_length_offset=4)
        for line, source_ids, hypotheses in zip(lines, expected, ours.hypotheses(lines[:6], search), strict=False):
            output = theirs.generate(
                torch.tensor([source_ids]),
                do_sample=False,
                num_beams=beam,
                num_return_sequences=beam,
                length_penalty=0.0,
                max_new_tokens=len(source_ids) + 4,
                forced_eos_token_id=None,
                logits_processor=LogitsProcessorList([ForcedEnd(len(source_ids) + 4, 0)]),
            ).tolist()
            output = [row[: row.index(0, 1) + 1] for row in output]
            found_ids = [ours.codec.target.ids(list(h.pieces)) for h in hypotheses]
            assert [imported.target_ids([BOS, *ids, EOS]) for ids in found_ids] == output, line


@pytest.fixture(scope="module")
def opus(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, MarianMTModel]:
    """Returns a folder with a model like those of Opus-MT, marian/, and what was imported, model.pt."""
    folder = tmp_path_factory.mktemp("opus")
    model = write_model(folder / "marian", **SHAPES["Opus-MT"])
    run("import", "huggingface", folder / "marian", "--output", folder / "model.pt")
    return folder, model


def test_a_constraint_of_unknown_characters_is_warned_about(opus: tuple[Path, MarianMTModel]) -> None:
    line = '{"source": "abc", "constraints": ["日本"]}\n'.encode()
    options = ["--max-length-offset=5", "--input-format=jsonl"]
    said = run("generate", opus[0] / "model.pt", *options, stdin=line).stderr
    assert "line 1: a constraint has a character that the model does not know, and cannot be kept" in said


def write_corpus(prefix: Path, lines: list[str]) -> None:
    for lang, text in (("en", lines), ("fr", lines[::-1])):
        prefix.with_suffix(f".{lang}").write_text("".join(f"{line}\n" for line in text))


def test_fine_tuning_begins_with_the_loss_of_transformers(opus: tuple[Path, MarianMTModel], tmp_path: Path) -> None:
    folder, model = opus
    lines = [line for line in mixed_lines(60, seed=5) if line.strip(" \u3000\u00a0▁")]
    write_corpus(tmp_path / "text", lines)
    corpora = ["--train", tmp_path / "text", "--valid", tmp_path / "text", "--dest", tmp_path / "data"]
    run("preprocess", "--source-lang=en", "--target-lang=fr", *corpora, "--like", folder / "model.pt", "--workers=1")
    options = ["--max-updates=2", "--valid-metric=nll", "--lr-schedule=constant", "--lr=1e-3", "--ema=0.5"]
    run(
        "train",
        tmp_path / "data",
        "--init-from",
        folder / "model.pt",
        "--save-dir",
        tmp_path / "run",
        *TRAIN[1:],
        *options,
    )

    tokenizer = MarianTokenizer.from_pretrained(folder / "marian")
    total = tokens = 0.0
    for source, target in zip(lines, lines[::-1], strict=True):
        batch = tokenizer(source, text_target=target, return_tensors="pt")
        count = batch.labels.shape[1]
        total, tokens = total + model(**batch).loss.item() * count, tokens + count
    before, *_, after = [record["nll"] for record in records(tmp_path / "run", "valid")]
    assert before == pytest.approx(total / tokens, abs=1e-5)
    assert after < before - 0.01

    run("average-checkpoints", tmp_path / "run", "--last=1", "--output", tmp_path / "tuned.pt")
    run("export", tmp_path / "tuned.pt", "--format=huggingface", "--output", tmp_path / "tuned")
    tuned, weights = (
        MarianMTModel.from_pretrained(tmp_path / "tuned"),
        nmt.load_checkpoint(tmp_path / "tuned.pt").weights,
    )
    assert torch.equal(tuned.final_logits_bias[0], weights["output_bias"])
    assert not torch.equal(weights["output_bias"], nmt.load_checkpoint(folder / "model.pt").weights["output_bias"])


def test_other_commands_take_an_imported_model(opus: tuple[Path, MarianMTModel], tmp_path: Path) -> None:
    folder, _ = opus
    lines = [line for line in mixed_lines(20, seed=7) if 3 < len(line) < 30]
    options = ["--precision=fp32", "--device=cpu", "--output-format=jsonl"]
    text = "".join(f"{line}\n" for line in lines).encode()
    generated = run("generate", folder / "model.pt", "--max-length-offset=5", *options, stdin=text).stdout
    run("average-checkpoints", folder / "model.pt", folder / "model.pt", "--output", tmp_path / "average.pt")
    scored = run("rescore", tmp_path / "average.pt", "--input-format=jsonl", *options, stdin=generated).stdout
    for line in scored.splitlines():
        for hypothesis in json.loads(line)["hypotheses"]:
            assert hypothesis["rescored"]["log_probs"] == pytest.approx(hypothesis["log_probs"], abs=1e-4)
    run("export", folder / "model.pt", "--output", tmp_path / "ct2")
    check_probabilities(folder / "model.pt", tmp_path / "ct2", lines[:4], lines[4:8])


def same(one: Checkpoint, other: Checkpoint) -> bool:
    return (
        one.model_config == other.model_config
        and one.codec.to_dict() == other.codec.to_dict()
        and one.weights.keys() == other.weights.keys()
        and all(torch.equal(weight, other.weights[name]) for name, weight in one.weights.items())
    )


@pytest.mark.parametrize("options", [
    [],
    ["--attention-biases", "--output-bias", "--activation=swish", "--attention-dropout=0.1"],
])  # fmt: skip
def test_a_checkpoint_comes_back_as_it_was(trained: Path, tmp_path: Path, options: list[str]) -> None:
    train(trained / "data", tmp_path / "run", *options, "--max-updates=2", "--valid-metric=nll")
    run("export", tmp_path / "run" / "best.pt", "--format=huggingface", "--output", tmp_path / "marian")
    run("import", "huggingface", tmp_path / "marian", "--output", tmp_path / "back.pt")
    assert same(nmt.load_checkpoint(tmp_path / "run" / "best.pt"), nmt.load_checkpoint(tmp_path / "back.pt"))
    run("import", "huggingface", tmp_path / "marian", "--source-lang=en", "--output", tmp_path / "again.pt")
    message = failed(
        "import", "huggingface", tmp_path / "marian", "--target-lang=xx", "--output", tmp_path / "other.pt"
    )
    assert "--target-lang is xx, but nmt exported" in message
    path = tmp_path / "marian" / "vocab.json"
    path.write_text(json.dumps({piece: {8: 9, 9: 8}.get(i, i) for piece, i in json.loads(path.read_text()).items()}))
    message = failed("import", "huggingface", tmp_path / "marian", "--output", tmp_path / "other.pt")
    assert "vocab.json have different pieces" in message


@pytest.mark.parametrize("shape", SHAPES)
def test_an_imported_model_goes_out_and_comes_back(shape: str, tmp_path: Path) -> None:
    write_model(tmp_path / "first", **SHAPES[shape])
    run("import", "huggingface", tmp_path / "first", "--output", tmp_path / "first.pt")
    run("export", tmp_path / "first.pt", "--format=huggingface", "--output", tmp_path / "second")
    run("import", "huggingface", tmp_path / "second", "--output", tmp_path / "second.pt")
    assert same(*(nmt.load_checkpoint(tmp_path / f"{name}.pt") for name in ("first", "second")))
    first, second = (MarianMTModel.from_pretrained(tmp_path / name).eval() for name in ("first", "second"))
    for part in (second, MarianTokenizer.from_pretrained(tmp_path / "second")):
        part.save_pretrained(tmp_path / "third")
    run("import", "huggingface", tmp_path / "third", "--output", tmp_path / "third.pt")
    assert same(*(nmt.load_checkpoint(tmp_path / f"{name}.pt") for name in ("first", "third")))
    source, target = (["abc def"], ["abc"])
    losses = [
        model(**MarianTokenizer.from_pretrained(tmp_path / name)(source, text_target=target, return_tensors="pt")).loss
        for name, model in (("first", first), ("second", second))
    ]
    assert losses[0].item() == pytest.approx(losses[1].item(), abs=1e-5)


def test_the_code_in_the_model_card_translates_without_nmt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The model has all that MarianTokenizer does not do: Moses and lowercasing; and separate vocabularies."""
    draw, words = random.Random(0), ["eins", "Zwei", "drei", "vier", "fünf", "sechs"]
    lines = [source for source, _ in invented_pairs(300)]
    targets = [" ".join(words[draw.randrange(3) : draw.randrange(3, 7)]) + "." for _ in lines]
    for lang, text in (("en", lines), ("de", targets)):
        (tmp_path / f"text.{lang}").write_text("".join(f"{line}\n" for line in text))
    corpora = ["--train", tmp_path / "text", "--valid", tmp_path / "text", "--dest", tmp_path / "data"]
    text = ["--vocab-size=310", "--separate-vocab", "--lowercase", "--workers=1"]
    run("preprocess", "--source-lang=en", "--target-lang=de", *corpora, *text)
    train(tmp_path / "data", tmp_path / "run", "--max-updates=100", "--valid-metric=nll", "--valid-updates=100")
    checkpoint, lines = tmp_path / "run" / "best.pt", lines[:10]
    (tmp_path / "scores").write_text("BLEU 12.34 nrefs:1|case:mixed|tok:13a\n")
    options = ["--format=huggingface", "--scores", tmp_path / "scores", "--output", tmp_path / "marian"]
    run("export", checkpoint, *options)
    card = (tmp_path / "marian" / "README.md").read_text()
    assert "nrefs:1|case:mixed|tok:13a" in card
    assert '"update": ' in card

    search = ["--alpha=0", "--precision=fp32", "--device=cpu"]
    source = "".join(f"{line}\n" for line in lines).encode()
    expected = run("generate", checkpoint, *search, stdin=source).stdout.decode().splitlines()
    program = card.split("```python\n")[1].split("```")[0]
    program = program.replace('["…"]', "LINES").replace("**batch", "**batch, num_beams=4, length_penalty=0.0")
    monkeypatch.setitem(sys.modules, "nmt", None)
    monkeypatch.chdir(tmp_path / "marian")
    names: dict[str, Any] = {"LINES": lines}
    exec(program, names)
    assert names["lines"] == expected
    assert all(2 < len(line.split()) < 10 and line.endswith(".") for line in expected), expected


def test_an_import_does_not_replace_its_input(opus: tuple[Path, MarianMTModel], tmp_path: Path) -> None:
    shutil.copytree(opus[0] / "marian", tmp_path / "marian")
    path = tmp_path / "marian" / "model.safetensors"
    before = path.read_bytes()
    message = failed("import", "huggingface", tmp_path / "marian", "--output", path)
    assert "is the same file as the input" in message
    assert path.read_bytes() == before


def test_the_model_card_has_no_paths_and_any_file_name(opus: tuple[Path, MarianMTModel], tmp_path: Path) -> None:
    checkpoint = tmp_path / os.fsdecode(b"m\xff.pt")
    run("average-checkpoints", opus[0] / "model.pt", opus[0] / "model.pt", "--output", checkpoint)
    done = run("export", checkpoint, "--format=huggingface", "--output", tmp_path / "marian")
    assert "warning" not in done.stderr  # MarianTokenizer knows the language codes of the model
    card = (tmp_path / "marian" / "README.md").read_text()
    assert "from `m\\udcff.pt`" in card
    assert str(opus[0].parent) not in card
    provenance = json.loads(card.split("```")[-2])
    assert provenance["averaged"] == ["model.pt", "model.pt"]
    assert provenance["last"]["imported"] == {"format": "huggingface", "folder": "marian"}


def test_the_model_card_says_how_to_give_tags(tmp_path: Path) -> None:
    lines = [line for line, _ in invented_pairs(200)]
    write_corpus(tmp_path / "text", lines)
    corpora = ["--train", tmp_path / "text", "--valid", tmp_path / "text", "--dest", tmp_path / "data"]
    languages = ["--source-lang=en", "--target-lang=fr"]
    run("preprocess", *languages, *corpora, "--tag=<bt>", "--vocab-size=320", "--tokenizer=none", "--workers=1")
    train(tmp_path / "data", tmp_path / "run", "--max-updates=1", "--valid-metric=nll")
    checkpoint = tmp_path / "run" / "best.pt"
    done = run("export", checkpoint, "--format=huggingface", "--output", tmp_path / "marian")
    assert "has the tags <bt>, which MarianTokenizer turns into other pieces" in done.stderr
    card = (tmp_path / "marian" / "README.md").read_text()
    assert str(tmp_path) not in card
    tokenizer = MarianTokenizer.from_pretrained(tmp_path / "marian")
    code = "tokenizer.convert_tokens_to_ids('<bt>')"
    assert code in card
    expected = [*nmt.load_checkpoint(checkpoint).codec.encode_source([f"<bt> {lines[0]}"])[0], EOS]
    assert [eval(code), *tokenizer(lines[0]).input_ids] == expected
    assert tokenizer(f"<bt> {lines[0]}").input_ids != expected


def test_what_cannot_be_exported_is_refused(
    trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, opus: tuple[Path, MarianMTModel]
) -> None:
    average = trained / "run" / "average.pt"
    command = ["--format=huggingface", "--output", tmp_path / "model"]
    train(trained / "data", tmp_path / "run", "--d-k=8", "--max-updates=1", "--valid-metric=nll")
    assert "has d_model 32, heads 2, d_k 8" in failed("export", tmp_path / "run" / "best.pt", *command)
    train(
        trained / "data",
        tmp_path / "pre",
        "--norm=pre",
        "--attention-window=3",
        "--max-updates=1",
        "--valid-metric=nll",
    )
    message = failed("export", tmp_path / "pre" / "best.pt", *command)
    assert "MarianMT does not support --norm or --attention-window" in message
    assert "--quantization is only for --format ctranslate2" in failed(
        "export", average, *command, "--quantization=int8"
    )
    assert "--scores is only for" in failed("export", average, "--scores=x", "--output", tmp_path / "model")
    assert "does not exist" in failed("export", average, *command, "--scores", tmp_path / "missing")
    monkeypatch.setitem(sys.modules, "safetensors", None)
    monkeypatch.setitem(sys.modules, "safetensors.torch", None)
    assert "pip install safetensors" in failed("export", average, *command)
    source = opus[0] / "marian"
    assert "pip install safetensors" in failed("import", "huggingface", source, "--output", tmp_path / "model")
    assert not (tmp_path / "model").exists()
