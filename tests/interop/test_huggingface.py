"""MarianMT models come in and go out: transformers computes the same ids, logits, losses and translations."""

import json
import os
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, cached_property
from operator import itemgetter
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers  # loads its models only when a test uses one
from checkpoints import CONFIG, FP32, TEXT_CONFIG, saved, small_checkpoint
from commands import LANGS, TRAIN, failed, run, same_weights, train, valid_losses, weights
from conftest import invented_pairs
from marian import mixed_lines, write_model
from test_export import check_probabilities

import nmt
from nmt.checkpoint import save_checkpoint
from nmt.config import SearchConfig
from nmt.text.codec import TextCodec
from nmt.text.subword import BOS, EOS, PAD, Subword

pytestmark = pytest.mark.xdist_group("transformers")  # so that one process of the suite imports its models
SEPARATE = {"scale_embedding": True, "share_encoder_decoder_embeddings": False}
SHAPES: dict[str, dict[str, Any]] = {
    "Opus-MT": {"activation_function": "swish", "scale_embedding": True},
    "gelu, separate embeddings": {"activation_function": "gelu", **SEPARATE},
    "relu, separate vocabularies, spare ids": {
        "activation_function": "relu", "separate_vocabs": True, "spare_ids": 5, **SEPARATE,
    },
    "embeddings not scaled": {
        "activation_function": "silu", "scale_embedding": False, "d_model": 20, "encoder_layers": 3,
    },
}  # fmt: skip


@dataclass(frozen=True)
class Imported:
    """A random model of transformers in marian/, and the checkpoint that `nmt import` made of it, model.safetensors."""

    folder: Path
    theirs: "transformers.MarianMTModel"

    @cached_property
    def tokenizer(self) -> "transformers.MarianTokenizer":
        return transformers.MarianTokenizer.from_pretrained(self.folder / "marian")

    @cached_property
    def ours(self) -> nmt.Translator:
        return nmt.Translator.load(self.folder / "model.safetensors", runtime=FP32)

    @cached_property
    def vocabularies(self) -> list[dict[str, int]]:
        """The ids of both sides, with the names that nmt gives to special and spare ids."""
        names = ["vocab.json", "target_vocab.json" if self.tokenizer.separate_vocabs else "vocab.json"]
        config = self.theirs.config
        extra = {"<s>": config.decoder_start_token_id} | {f"<unused {i}>": i for i in range(config.vocab_size)}
        return [json.loads((self.folder / "marian" / name).read_text()) | extra for name in names]

    def source_ids(self, ours: list[int]) -> list[int]:
        """Returns the ids of transformers for ours; `target_ids` does the same for the other side."""
        return [self.vocabularies[0][piece] for piece in self.ours.codec.source.pieces(ours)]

    def target_ids(self, ours: list[int]) -> list[int]:
        return [self.vocabularies[1][piece] for piece in self.ours.codec.target.pieces(ours)]


@pytest.fixture(scope="module")
def imported(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Imported]:
    """Returns a function that returns the model of a shape, which no test may change."""

    @cache
    def make(shape: str) -> Imported:
        folder = tmp_path_factory.mktemp("imported")
        model = write_model(folder / "marian", **SHAPES[shape])
        run("import", "huggingface", folder / "marian", "--output", folder / "model.safetensors")
        return Imported(folder, model)

    return make


@pytest.fixture
def opus(imported: Callable[[str], Imported]) -> Path:
    """Returns the checkpoint of a model like those of Opus-MT; the model itself is in marian/ next to it."""
    return imported("Opus-MT").folder / "model.safetensors"


LINES = [
    *mixed_lines(990, seed=3), ">>fra<< abc", ">>fra<<abc", "abc >>fra<<", ">>deu<< abc", ">>fra", "", " ",
    "ภาษาไทย abc", "ქართული", "a\udc80b",
]  # fmt: skip


@pytest.mark.parametrize("shape", ["Opus-MT", "relu, separate vocabularies, spare ids"])
def test_text_has_the_ids_of_marians_tokenizer(imported: Callable[[str], Imported], shape: str) -> None:
    model = imported(shape)
    codec, tokenizer = model.ours.codec, model.tokenizer
    lines = [line.replace("\udc80", "\ufffd") for line in LINES]  # transformers has no rule for lone surrogates
    expected = tokenizer(lines).input_ids
    assert tokenizer.unk_token_id in {i for line in expected for i in line}
    assert [model.source_ids([*line, EOS]) for line in codec.encode_source(LINES)] == expected
    targets = tokenizer(text_target=lines).input_ids
    encoded = codec.encode_target(LINES)
    assert [model.target_ids([*line, EOS]) for line in encoded] == targets
    assert codec.decode_target(encoded) == tokenizer.batch_decode(targets, skip_special_tokens=True)


def forced_end(length: int, eos: int) -> Callable[[torch.Tensor, torch.Tensor], torch.Tensor]:
    """Returns a rule that ends outputs at `length` with the log P of EOS; the rule of transformers counts it as 0."""

    def rule(input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        if input_ids.shape[1] < length:
            return scores
        return torch.full_like(scores, -torch.inf).index_copy(1, torch.tensor([eos]), scores[:, [eos]])

    return rule


@torch.no_grad()
@pytest.mark.parametrize("shape", SHAPES)
def test_logits_and_translations_are_those_of_transformers(imported: Callable[[str], Imported], shape: str) -> None:
    model = imported(shape)
    ours, theirs = model.ours, model.theirs
    lines = [line for line in LINES[:25] if 0 < len(line) < 30]
    expected = model.tokenizer(lines).input_ids
    draw = torch.Generator().manual_seed(0)
    theirs_of_ours = model.target_ids(list(range(1, len(ours.codec.target))))
    for source, source_ids in zip(ours.codec.encode_source(lines), expected, strict=True):
        target = [BOS, *torch.randint(4, len(ours.codec.target), (7,), generator=draw).tolist()]
        target_ids = torch.tensor([model.target_ids(target)])
        our_logits = ours.models[0](torch.tensor([[*source, EOS]]), torch.tensor([target]))[0]
        logits = theirs(torch.tensor([source_ids]), decoder_input_ids=target_ids).logits[0]
        assert (our_logits[:, 1:] - logits[:, theirs_of_ours]).abs().max() < 1e-5
        assert our_logits[:, PAD].max() < our_logits.max() - 50  # this id does not exist there

    for beam in (1, 4):
        search = SearchConfig(beam=beam, n_best=beam, alpha=0, max_length_offset=4)
        options = {"num_beams": beam, "num_return_sequences": beam, "do_sample": False, "length_penalty": 0.0}
        options["forced_eos_token_id"] = None
        if beam == 1:  # an only translation is never empty
            options["begin_suppress_tokens"] = [0]
        for line, source_ids, hypotheses in zip(lines, expected, ours.hypotheses(lines[:6], search), strict=False):
            longest = len(source_ids) + 4
            limits = {"max_new_tokens": longest, "logits_processor": [forced_end(longest, 0)]}
            rows = theirs.generate(torch.tensor([source_ids]), **options, **limits).tolist()
            output = [row[: row.index(0, 1) + 1] for row in rows]
            hypothesis_ids = [ours.codec.target.ids(list(h.pieces)) for h in hypotheses]
            assert [model.target_ids([BOS, *ids, EOS]) for ids in hypothesis_ids] == output, line


def test_a_constraint_of_unknown_characters_is_warned_about(opus: Path) -> None:
    line = '{"source": "abc", "constraints": ["日本"]}\n'.encode()
    said = run("generate", opus, "--max-length-offset=5", "--input-format=jsonl", stdin=line).stderr
    assert "line 1: a constraint has a character that the model does not know, and cannot be kept" in said


def test_fine_tuning_begins_with_the_loss_of_transformers(
    imported: Callable[[str], Imported], opus: Path, tmp_path: Path
) -> None:
    model = imported("Opus-MT")
    lines = [line for line in mixed_lines(60, seed=5) if line.strip(" \u3000\u00a0▁")]
    for lang, text in (("en", lines), ("fr", lines[::-1])):
        (tmp_path / f"text.{lang}").write_text("".join(f"{line}\n" for line in text))
    corpora = ["--train", tmp_path / "text", "--valid", tmp_path / "text", "--dest", tmp_path / "data"]
    run("preprocess", "--source-lang=en", "--target-lang=fr", *corpora, "--like", opus, "--workers=1")
    options = ["--max-updates=2", "--valid-metric=nll", "--lr-schedule=constant", "--lr=1e-3", "--ema=0.5"]
    run("train", tmp_path / "data", *TRAIN[1:], *options, "--init-from", opus, "--save-dir", tmp_path / "run")

    total = tokens = 0.0
    for source, target in zip(lines, lines[::-1], strict=True):
        batch = model.tokenizer(source, text_target=target, return_tensors="pt")
        count = batch.labels.shape[1]
        total, tokens = total + model.theirs(**batch).loss.item() * count, tokens + count
    first_loss, *_, last_loss = valid_losses(tmp_path / "run").values()
    assert first_loss == pytest.approx(total / tokens, abs=1e-5)
    assert last_loss < first_loss - 0.01
    tuned = tmp_path / "run" / "best.safetensors"
    assert not torch.equal(weights(opus)["output_bias"], weights(tuned)["output_bias"])


def test_other_commands_take_an_imported_model(opus: Path, tmp_path: Path) -> None:
    lines = [line for line in mixed_lines(20, seed=7) if 3 < len(line) < 30]
    options = ["--precision=fp32", "--device=cpu", "--output-format=jsonl"]
    text = "".join(f"{line}\n" for line in lines).encode()
    generated = run("generate", opus, "--max-length-offset=5", *options, stdin=text).stdout
    run("average-checkpoints", opus, opus, "--output", tmp_path / "average.safetensors")
    scored = run("rescore", tmp_path / "average.safetensors", "--input-format=jsonl", *options, stdin=generated).stdout
    for line in scored.splitlines():
        for hypothesis in filter(
            itemgetter("pieces"), json.loads(line)["hypotheses"]
        ):  # some lines need no translation
            assert hypothesis["rescored"]["log_probs"] == pytest.approx(hypothesis["log_probs"], abs=1e-4)
    run("export", "ctranslate2", tmp_path / "average.safetensors", "--output", tmp_path / "ct2")
    assert "MB, converted with nmt from another format." in (tmp_path / "ct2" / "README.md").read_text()
    check_probabilities(opus, tmp_path / "ct2", lines[:4], lines[4:8])


def assert_same(*paths: Path) -> None:
    first, second = map(nmt.load_checkpoint, paths)
    assert (first.model_config, first.codec.to_dict()) == (second.model_config, second.codec.to_dict())
    assert same_weights(*paths)


@pytest.mark.parametrize("trained", [False, True])  # the biases of a new model are zero
@pytest.mark.parametrize("options", [
    {}, {"attention_biases": True, "output_bias": True, "activation": "swish", "attention_dropout": 0.1},
])  # fmt: skip
def test_a_checkpoint_comes_back_as_it_was(tmp_path: Path, options: dict[str, Any], trained: bool) -> None:
    first, back, marian = (tmp_path / name for name in ("first.safetensors", "back.safetensors", "marian"))
    new = small_checkpoint(0, replace(CONFIG, **options))
    random = {name: torch.randn_like(weight) for name, weight in new.weights.items()}
    save_checkpoint(replace(new, weights=random) if trained else new, first)
    run("export", "huggingface", first, "--output", marian)
    command = ["import", "huggingface", marian, "--output", back]
    run(*command, "--source-lang=en")
    assert_same(first, back)
    assert "--target-lang is xx, but nmt exported" in failed(*command, "--target-lang=xx")
    path = marian / "vocab.json"
    path.write_text(json.dumps({piece: {8: 9, 9: 8}.get(i, i) for piece, i in json.loads(path.read_text()).items()}))
    assert "vocab.json have different pieces" in failed(*command)


@pytest.mark.parametrize("shape", SHAPES)
def test_a_model_goes_out_and_comes_back(imported: Callable[[str], Imported], shape: str, tmp_path: Path) -> None:
    first = imported(shape)
    run("export", "huggingface", first.folder / "model.safetensors", "--output", tmp_path / "second")
    second = transformers.MarianMTModel.from_pretrained(tmp_path / "second").eval()
    tokenizer = transformers.MarianTokenizer.from_pretrained(tmp_path / "second")
    for part in (second, tokenizer):
        part.save_pretrained(tmp_path / "third")
    for name in ("second", "third"):
        run("import", "huggingface", tmp_path / name, "--output", tmp_path / f"{name}.safetensors")
        assert_same(first.folder / "model.safetensors", tmp_path / f"{name}.safetensors")
    losses = [
        model(**model_tokenizer("abc def", text_target="abc", return_tensors="pt")).loss.item()
        for model_tokenizer, model in ((first.tokenizer, first.theirs), (tokenizer, second))
    ]
    assert losses[0] == pytest.approx(losses[1], abs=1e-5)


def test_the_code_in_the_model_card_translates_without_nmt(
    write_corpus: Callable[..., str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The model has all that MarianTokenizer does not do: Moses and lowercasing; and separate vocabularies."""
    words = ["eins", "Zwei", "drei", "vier", "fünf", "sechs"]
    lines = [f"“{line.upper()}”" for line, _ in invented_pairs(6)]
    targets = [" ".join(words[: i + 1]) + "." for i in range(6)]
    corpus = write_corpus("text", 20 * list(zip(lines, targets, strict=True)))
    corpora = ["--train", corpus, "--valid", corpus, "--dest", tmp_path / "data"]
    text = ["--vocab-size=300", "--separate-vocab", "--lowercase", "--workers=1"]
    run("preprocess", *LANGS, *corpora, *text)
    fast = ["--max-updates=40", "--lr-schedule=constant", "--lr=1e-2", "--warmup-updates=10", "--batch-groups=1"]
    train(tmp_path / "data", tmp_path / "run", *fast, "--valid-metric=nll", "--valid-updates=40", "--save-updates=40")
    checkpoint = tmp_path / "run" / "best.safetensors"
    (tmp_path / "scores").write_text("BLEU 12.34 nrefs:1|case:mixed|tok:13a\n")
    command = ["export", "huggingface", checkpoint, "--output", tmp_path / "marian"]
    run(*command, "--scores", tmp_path / "scores")
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
    assert all(re.fullmatch(r"[a-zü ]+\.", line) for line in expected), expected
    assert len(set(expected)) > 2


def test_the_model_card_has_no_paths_and_any_file_name(opus: Path, tmp_path: Path) -> None:
    checkpoint = tmp_path / os.fsdecode(b"m\xff.safetensors")
    run("average-checkpoints", opus, opus, "--output", checkpoint)
    done = run("export", "huggingface", checkpoint, "--output", tmp_path / "marian")
    assert "warning" not in done.stderr  # MarianTokenizer knows the language codes of the model
    card = (tmp_path / "marian" / "README.md").read_text()
    assert "from `m\\udcff.safetensors`" in card
    assert str(opus.parents[1]) not in card
    provenance = json.loads(card.split("```")[-2])
    assert provenance["averaged"] == ["model.safetensors", "model.safetensors"]
    assert provenance["last"]["imported"] == {"format": "huggingface", "folder": "marian"}


def test_the_model_card_says_how_to_give_tags(tmp_path: Path) -> None:
    line = invented_pairs(1)[0][0]
    subword = Subword.train([line], "bpe", 290, tags=["<bt>"])
    codec = TextCodec(replace(TEXT_CONFIG, tags=("<bt>",)), subword, subword)
    checkpoint = saved(small_checkpoint(0, codec=codec), tmp_path / "tagged.safetensors")
    done = run("export", "huggingface", checkpoint, "--output", tmp_path / "marian")
    assert "has the tags <bt>, which MarianTokenizer turns into other pieces" in done.stderr
    card = (tmp_path / "marian" / "README.md").read_text()
    assert str(tmp_path) not in card
    tokenizer = transformers.MarianTokenizer.from_pretrained(tmp_path / "marian")
    code = "tokenizer.convert_tokens_to_ids('<bt>')"
    assert code in card
    expected = [*codec.encode_source([f"<bt> {line}"])[0], EOS]
    assert [eval(code), *tokenizer(line).input_ids] == expected
    assert tokenizer(f"<bt> {line}").input_ids != expected


def test_what_cannot_be_exported_is_refused(opus: Path, tmp_path: Path) -> None:
    command = ["export", "huggingface", opus, "--output", tmp_path / "model"]
    assert "does not exist" in failed(*command, "--scores", tmp_path / "missing")
    assert not (tmp_path / "model").exists()


# Models of several target languages, which a code at the beginning of the source names
CODES = (">>fra<<", ">>ron<<", ">>cmn_Hant<<")


@pytest.fixture(scope="module")
def several(tmp_path_factory: pytest.TempPathFactory) -> Imported:
    """Returns such a model, which no test may change."""
    folder = tmp_path_factory.mktemp("several")
    model = write_model(folder / "marian", codes=CODES, **SHAPES["Opus-MT"])
    run("import", "huggingface", folder / "marian", "--output", folder / "model.safetensors")
    return Imported(folder, model)


def test_language_codes_become_languages(several: Imported, tmp_path: Path) -> None:
    lines = [line for line in mixed_lines(30, seed=9) if 3 < len(line) < 30]
    lines = [line for line in lines if not re.search("[😀-🙏]|&|▁", line)][:4]  # nmt would keep such words
    path, text = several.folder / "model.safetensors", "".join(f"{line}\n" for line in lines).encode()
    options = ["--beam=1", "--max-length-offset=4", "--precision=fp32", "--device=cpu", "--output-format=jsonl"]
    outputs = []
    for code, target in (("fr", ">>fra<<"), ("fra", ">>fra<<"), ("zh", ">>cmn_Hant<<"), ("ro_RO", ">>ron<<")):
        done = run("generate", path, f"--target-lang={code}", "--source-lang=eng", *options, stdin=text)
        assert "warning" not in done.stderr
        outputs.append([json.loads(line)["hypotheses"][0] for line in done.stdout.splitlines()])
        for line, hypothesis in zip(lines, outputs[-1], strict=True):
            source_ids = several.tokenizer(f"{target} {line}").input_ids
            limits = {"max_new_tokens": 60, "begin_suppress_tokens": [0]}
            ids = several.theirs.generate(torch.tensor([source_ids]), num_beams=1, **limits)[0, 1:].tolist()
            ours = several.target_ids(several.ours.codec.target.ids(hypothesis["pieces"]))
            assert ours == ids[: len(ours)]
    assert outputs[0] == outputs[1] != outputs[2] != outputs[3]
    text_config = several.ours.codec.config
    assert text_config.trained == [("en", "fra"), ("en", "ron"), ("en", "cmn_Hant")]

    run("export", "huggingface", path, "--output", tmp_path / "out")
    tokenizer = transformers.MarianTokenizer.from_pretrained(tmp_path / "out")
    codec = several.ours.codec.directed(text_config.direction(target="ro"))
    assert "Each sentence begins with the token of its target language: `>>fra<< …`." in (
        (tmp_path / "out" / "README.md").read_text()
    )
    assert 'lines = [">>fra<< …"]  # sentences in en\n' in (tmp_path / "out" / "README.md").read_text()
    run("export", "ctranslate2", path, "--output", tmp_path / "ctranslate2")
    pieces = "[['>>fra<<'] + line + [] for line in source.encode(lines, out_type=str)]"
    assert pieces in (tmp_path / "ctranslate2" / "README.md").read_text()
    for line in LINES[:50]:
        ids = [*codec.language_tokens(codec.direction)[0], *codec.encode_source([line])[0], EOS]
        assert tokenizer(f">>ron<< {line}").input_ids == ids
    run("import", "huggingface", tmp_path / "out", "--output", tmp_path / "again.safetensors")
    assert_same(path, tmp_path / "again.safetensors")


def test_a_language_code_in_a_line_is_text_in_a_model_of_several_languages(several: Imported) -> None:
    codec = several.ours.codec.directed(several.ours.codec.config.direction(target="fra"))
    tokens = {*codec.source.ids(CODES)}
    assert codec.language_tokens(codec.direction)[0] == codec.source.ids([">>fra<<"])
    for line in (">>ron<< abc", ">>ron<<abc", ">>deu<< abc", "abc >>ron<<"):
        (ids,) = codec.encode_source([line])
        pieces = several.tokenizer.spm_source.encode(line, out_type=str)
        assert codec.source.ids(pieces) == ids
        assert not tokens & {*ids}


@pytest.mark.parametrize(("source_lang", "options", "source"), [
    ("roa", [], None), ("", [], None), ("roa", ["--source-lang=it"], "it"), ("gil", ["--source-lang=gil"], "gil"),
    ("pt_BR", [], "pt_BR"), ("ro", [], "ron"),
])  # fmt: skip
def test_the_source_language_is_in_the_folder_or_given(
    source_lang: str, options: list[str], source: str | None, tmp_path: Path
) -> None:
    folder, path = tmp_path / "marian", tmp_path / "model.safetensors"
    tiny = {"encoder_layers": 1, "decoder_layers": 1, "d_model": 8}
    write_model(folder, codes=CODES, source_lang=source_lang, **tiny)
    run("import", "huggingface", folder, "--output", path, *options)
    config = nmt.load_checkpoint(path).codec.config
    if source is None:
        assert config.trained == []
        assert config.direction(target="fr") == ("und", "fra")
    else:
        assert {direction.source for direction in config.trained} == {source}
        assert config.direction(target="fr") == (source, "fra")
    assert "the model has no language 'xx', but" in failed("generate", path, "--target-lang=xx", stdin=b"a\n")
    assert "--target-lang is missing; name one of cmn_Hant, fra" in failed("generate", path, stdin=b"a\n")
    said = failed("import", "huggingface", folder, "--output", tmp_path / "x.safetensors", "--target-lang=fr")
    assert "translates into several languages; leave out --target-lang here" in said
