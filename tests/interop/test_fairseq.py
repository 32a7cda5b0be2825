"""Imported fairseq models have the logits of fairseq's formulas and the pieces of subword-nmt."""

import argparse
import io
import math
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from checkpoints import FP32
from commands import LANGS, TRAIN, failed, run
from conftest import invented_pairs
from subword_nmt.apply_bpe import BPE
from subword_nmt.learn_bpe import learn_bpe
from test_export import check_probabilities
from torch import Tensor, nn
from torch.nn import functional as F

import nmt
from nmt.text.subword import BOS, EOS

WIDTH, HEADS, LAYERS = 16, 4, 2
SIZES = {"embed_dim": WIDTH, "ffn_embed_dim": 24, "attention_heads": HEADS, "layers": LAYERS, "normalize_before": False}
BASE = {f"{side}_{name}": value for side in ("encoder", "decoder") for name, value in SIZES.items()}
BASE |= {"dropout": 0.1, "source_lang": "en", "target_lang": "de"}
TEXT = ["It's a well-known dog.", 'A "quoted" <b> & [c] | d', "Dogs don't run — they sleep!", "1,000.5 % of it"] * 3


def state_dict(source: int, target: int, *, pre: bool, joint: bool) -> dict[str, Tensor]:
    """Returns random weights of fairseq's transformer, in its names."""
    draw = torch.Generator().manual_seed(0)

    def random(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=draw) * 0.3

    tensors: dict[str, Tensor] = {}

    def linear(name: str, rows: int, columns: int) -> None:
        tensors[f"{name}.weight"], tensors[f"{name}.bias"] = random(rows, columns), random(rows)

    def norm(name: str) -> None:
        tensors[f"{name}.weight"], tensors[f"{name}.bias"] = 1 + random(WIDTH), random(WIDTH)

    for stack, attentions in (("encoder", ["self_attn"]), ("decoder", ["self_attn", "encoder_attn"])):
        tensors[f"{stack}.version"] = torch.tensor([3.0])
        tensors[f"{stack}.embed_positions._float_tensor"] = torch.zeros(1)
        for prefix in (f"{stack}.layers.{n}" for n in range(LAYERS)):
            for attention in attentions:
                for part in ("k_proj", "v_proj", "q_proj", "out_proj"):
                    linear(f"{prefix}.{attention}.{part}", WIDTH, WIDTH)
                norm(f"{prefix}.{attention}_layer_norm")
            linear(f"{prefix}.fc1", 24, WIDTH)
            linear(f"{prefix}.fc2", WIDTH, 24)
            norm(f"{prefix}.final_layer_norm")
        if pre:
            norm(f"{stack}.layer_norm")
    tensors["encoder.embed_tokens.weight"] = random(source, WIDTH)
    tensors["decoder.embed_tokens.weight"] = tensors["encoder.embed_tokens.weight"] if joint else random(target, WIDTH)
    return tensors


def as_old(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    """Returns the weights as the checkpoints of 2018 have them."""
    old_weights = dict(weights)
    for name in [name for name in weights if ".q_proj." in name]:
        prefix, kind = name.split(".q_proj.")
        old_weights[f"{prefix}.in_proj_{kind}"] = torch.cat(
            [old_weights.pop(f"{prefix}.{p}_proj.{kind}") for p in "qkv"]
        )
    norms = {"encoder": ["self_attn", "final"], "decoder": ["self_attn", "encoder_attn", "final"]}
    for name in list(old_weights):
        side = name.split(".")[0]
        for index, kind in enumerate(norms[side]):
            if f".{kind}_layer_norm." in name:
                old_weights[name.replace(f"{kind}_layer_norm", f"layer_norms.{index}")] = old_weights.pop(name)
    return old_weights


def logits(weights: dict[str, Tensor], source: list[int], target: list[int], activation: Callable, pre: bool) -> Tensor:
    """Returns the logits of one sentence by torch's layers and fairseq's positions, with fairseq's ids."""

    def loaded(side: str, stack: nn.Module) -> nn.Module:
        side_weights = {name.removeprefix(f"{side}."): tensor for name, tensor in as_old(weights).items()}
        names = {"fc1": "linear1", "fc2": "linear2", "encoder_attn": "multihead_attn", "layer_norm.": "norm."}
        names |= {f"layer_norms.{i}": f"norm{i + 1}" for i in range(3)}
        for theirs, name in names.items():
            side_weights = {key.replace(theirs, name): tensor for key, tensor in side_weights.items()}
        stack.load_state_dict({name: side_weights[name] for name in stack.state_dict()})
        return stack.eval()

    def embedded(ids: list[int], side: str) -> Tensor:
        half = WIDTH // 2
        frequencies = torch.exp(torch.arange(half, dtype=torch.float) * -(math.log(10000) / (half - 1)))
        angles = torch.arange(100, dtype=torch.float)[:, None] * frequencies[None]
        positions = torch.cat([torch.sin(angles), torch.cos(angles)], dim=1)
        first = 1 + 1  # padding_idx + 1
        return math.sqrt(WIDTH) * weights[f"{side}.embed_tokens.weight"][ids] + positions[first : first + len(ids)]

    sizes = {"d_model": WIDTH, "nhead": HEADS, "dim_feedforward": 24}
    options = {**sizes, "activation": activation, "norm_first": pre, "batch_first": True}
    norm = nn.LayerNorm(WIDTH) if pre else None
    encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(**options), LAYERS, norm, enable_nested_tensor=False)
    memory = loaded("encoder", encoder)(embedded(source, "encoder")[None])
    decoder = nn.TransformerDecoder(nn.TransformerDecoderLayer(**options), LAYERS, norm)
    causal = nn.Transformer.generate_square_subsequent_mask(len(target))
    decoded = loaded("decoder", decoder)(embedded(target, "decoder")[None], memory, tgt_mask=causal)
    return decoded[0] @ weights["decoder.embed_tokens.weight"].T


class Fairseq:
    """The files of a random model of fairseq, and `command`, which imports it to `model`."""

    def __init__(
        self, folder: Path, *, joint: bool = True, old: bool = False, fastbpe: bool = False, **options: Any
    ) -> None:
        self.model, self.options = folder / "nmt.safetensors", BASE | options
        self.tokens = [line.replace("-", " @-@ ").replace("&", "&amp;") for line in TEXT]
        codes = io.StringIO()
        learn_bpe(io.StringIO("\n".join(self.tokens)), codes, 60, min_frequency=1)
        self.bpe = BPE(io.StringIO(codes.getvalue()))
        merges = codes.getvalue().splitlines()[1:]
        (folder / "codes").write_text("".join(f"{merge} 7\n" for merge in merges) if fastbpe else codes.getvalue())
        characters = sorted({c for line in self.tokens for c in line if c != " "})
        merged = [left + right for left, right in self.bpe.bpe_codes]
        symbols = [c for p in [*characters, *merged] for c in (p.replace("</w>", ""), f"{p}@@") if "</w>@@" not in c]
        self.pieces = [
            ["<s>", "<pad>", "</s>", "<unk>", *dict.fromkeys(symbols[extra:])] for extra in (0, 0 if joint else 2)
        ]
        for name, pieces in zip(("dict.en.txt", "dict.de.txt"), self.pieces, strict=True):
            (folder / name).write_text("".join(f"{piece} 9\n" for piece in pieces[4:]))
        pre = self.options["encoder_normalize_before"]
        self.weights = state_dict(*map(len, self.pieces), pre=pre, joint=joint)
        softmax = {"decoder.output_projection.weight": self.weights["decoder.embed_tokens.weight"]}
        saved = as_old(self.weights) if old else self.weights | softmax
        model = argparse.Namespace(**self.options)
        content = {"args": model} if old else {"args": None, "cfg": {"model": model, "task": {"_name": "translation"}}}
        content |= {"model": saved, "optimizer_history": [{"num_updates": 3}], "last_optimizer_state": {140 * 10**9: 1}}
        torch.save(content, folder / "model.pt", _use_new_zipfile_serialization=not old)
        files = [f"--dict={folder}/dict.en.txt", f"--dict={folder}/dict.de.txt", f"--codes={folder}/codes"]
        self.command = ["import", "fairseq", f"{folder}/model.pt", *files, f"--output={self.model}"]


CASES: dict[str, dict[str, Any]] = {
    "post-norm, relu, joined dictionary": {},
    "checkpoint of 2018": {"old": True, "relu_dropout": 0.1},
    "pre-norm, gelu, separate dictionaries": {
        "joint": False, "activation_fn": "gelu", "encoder_normalize_before": True, "decoder_normalize_before": True,
    },
    "fastBPE": {"fastbpe": True},
}  # fmt: skip


@torch.no_grad()
@pytest.mark.parametrize("case", CASES)
def test_text_and_logits_are_those_of_fairseq(tmp_path: Path, case: str) -> None:
    theirs = Fairseq(tmp_path, **CASES[case])
    run(*theirs.command)
    ours = nmt.Translator.load(theirs.model, runtime=FP32)
    assert ours.codec.config.joint_vocab == CASES[case].get("joint", True)
    assert ours.models[0].config.activation_dropout == theirs.options.get("relu_dropout", 0)
    activation = getattr(F, theirs.options.get("activation_fn", "relu"))
    pre = theirs.options["encoder_normalize_before"]
    for line in TEXT[:4]:
        (source,), (target,) = ours.codec.encode_source([line]), ours.codec.encode_target([line[::-1]])
        ids = [
            [
                theirs.pieces[side].index(piece) if piece in theirs.pieces[side] else 3
                for piece in subword.pieces(piece_ids)
            ]
            for side, (subword, piece_ids) in enumerate(((ours.codec.source, source), (ours.codec.target, target)))
        ]
        our_logits = ours.models[0](torch.tensor([[*source, EOS]]), torch.tensor([[BOS, *target]]))[0]
        expected = logits(theirs.weights, [*ids[0], 2], [2, *ids[1]], activation, pre)
        order = [1, 3, 2, 2, 0, *range(4, len(theirs.pieces[1]))]
        kept = [i for i in range(len(order)) if i != BOS]
        assert (our_logits[:, kept] - expected[:, [order[i] for i in kept]]).abs().max() < 1e-5
        torch.testing.assert_close(our_logits[:, BOS] + 100, our_logits[:, EOS])
        log_probs = expected.log_softmax(-1)[:, [order[i] for i in kept]]
        torch.testing.assert_close(our_logits.log_softmax(-1)[:, kept], log_probs, rtol=0, atol=1e-5)

    codec, known = ours.codec, set(theirs.pieces[0])
    line = "a well-known dog & b"
    assert codec.source.decode(codec.encode_source([line])) == ["a well @-@ known dog &amp; b"]
    assert codec.decode_target(codec.encode_target([line])) == [line]
    for tokens, ids in zip(theirs.tokens, codec.source.encode(theirs.tokens), strict=True):
        expected = [piece if piece in known else "<unk>" for piece in theirs.bpe.segment(tokens).split()]
        assert codec.source.pieces(ids) == expected


def test_an_imported_model_is_tuned_and_exported(write_corpus: Callable[..., str], tmp_path: Path) -> None:
    theirs = Fairseq(tmp_path)
    for path in (tmp_path / "dict.en.txt", tmp_path / "codes"):  # as editors on Windows write them
        path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))
    run(*theirs.command)
    corpus = write_corpus("text", invented_pairs(10))
    corpora = ["--train", corpus, "--valid", corpus, "--dest", tmp_path / "data"]
    run("preprocess", *LANGS, *corpora, "--like", theirs.model, "--workers=1")
    options = [*TRAIN[1:], "--max-updates=2", "--valid-metric=nll", "--init-from", theirs.model]
    run("train", tmp_path / "data", "--save-dir", tmp_path / "run", *options)
    tuned = tmp_path / "run" / "best.safetensors"
    run("export", "ctranslate2", tuned, "--output", tmp_path / "ct2")
    check_probabilities(tuned, tmp_path / "ct2", ["a dog"], ["a dog"])
    said = failed("export", "huggingface", tuned, "--output", tmp_path / "hf")
    assert "does not support --sinusoids" in said


@pytest.mark.parametrize(("options", "message"), [
    ({"activation_fn": "gelu_accurate"}, "has activation_fn 'gelu_accurate'"),
    ({"decoder_ffn_embed_dim": 8}, "different encoder_ffn_embed_dim and decoder_ffn_embed_dim"),
    ({"encoder_layers": 3}, "no tensor encoder.layers.2.self_attn.q_proj.weight, but its options or --dict"),
    ({"no_scale_embedding": True}, "has no_scale_embedding True, which nmt does not have"),
    ({"cross_self_attention": True}, "has cross_self_attention True, which nmt does not have"),
    ({"source_lang": None}, "give it to nmt import with --source-lang"),
])  # fmt: skip
def test_unsuitable_models_are_refused(tmp_path: Path, options: dict[str, Any], message: str) -> None:
    theirs = Fairseq(tmp_path, **options)
    assert message in failed(*theirs.command)
    assert not theirs.model.exists()


@pytest.mark.parametrize(("name", "content", "message"), [
    ("dict.en.txt", "a\n", "dict.en.txt, line 1: 'a' is not a new piece and a number"),
    ("dict.en.txt", "a 1\na 1\n", "dict.en.txt, line 2: 'a 1' is not a new piece"),
    ("dict.en.txt", "a 1\n", "but its options or --dict says that it has (5, 16); give the dict files"),
    ("dict.de.txt", "a 1\n\udcff", "dict.de.txt, line 2: byte 1 (0xff) is not UTF-8"),
    ("codes", "a b\na\n", "codes, line 2: 'a' is not a merge of two pieces"),
    ("codes", "#version: 0.2\n", "codes has no merges, but is perhaps a dictionary"),
    ("codes", "#version: x\na b\n", "codes is not a file of BPE codes"),
    ("codes", "a 12\nb@@ 3\n", "codes has no merges, but is perhaps a dictionary; give BPE codes"),
    ("model.pt", "x", "is not a torch file with the weights of a model"),
    ("model.pt", None, "model.pt cannot be read (Is a directory); give the name of a file, or download all"),
    ("codes", None, "codes is a folder; give the path of a text file"),
    ("dict.en.txt", "", "dict.en.txt, line 1: '' is not a new piece and a number"),
    ("codes", "", "codes, line 1: '' is not a merge of two pieces"),
])  # fmt: skip
def test_damaged_files_and_folders_are_refused(tmp_path: Path, name: str, content: str | None, message: str) -> None:
    theirs = Fairseq(tmp_path)
    (tmp_path / name).unlink()
    if content is None:
        (tmp_path / name).mkdir()
    else:
        (tmp_path / name).write_bytes(content.encode(errors="surrogateescape"))
    assert message in failed(*theirs.command)
    assert not theirs.model.exists()


def test_a_tensor_whose_name_is_a_number_is_refused(tmp_path: Path) -> None:
    theirs = Fairseq(tmp_path)
    content = torch.load(tmp_path / "model.pt", weights_only=False)
    content["model"][5] = torch.ones(3)
    torch.save(content, tmp_path / "model.pt")
    assert "has the tensor '5', which nmt does not know" in failed(*theirs.command)


def test_an_empty_or_equal_language_is_refused(tmp_path: Path) -> None:
    theirs = Fairseq(tmp_path)
    assert "give it to nmt import with --source-lang" in failed(*theirs.command, "--source-lang=")
    assert "both languages are de" in failed(*theirs.command, "--source-lang=de")
    run(*theirs.command, "--source-lang=fr")
    assert nmt.load_checkpoint(theirs.model).codec.config.source_lang == "fr"


def test_the_package_for_the_codes_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    theirs = Fairseq(tmp_path)
    run(*theirs.command)
    monkeypatch.setitem(sys.modules, "subword_nmt.apply_bpe", None)
    for command in (theirs.command, ["generate", theirs.model]):
        assert "pip install '.[fairseq]'" in failed(*command)
