"""Models of many languages come in and go out: transformers computes the same ids, logits and translations."""

import json
import re
import shutil
import struct
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers  # loads its models only when a test uses one
from checkpoints import saved
from commands import failed, needs_linux, run, weights
from marian import change, mixed_lines, write_model
from multilingual import bpe_model, bpe_pieces, write_m2m, write_nllb
from safetensors.torch import load_file, save_file
from test_export import Argos

import nmt
from nmt.checkpoint import build_model
from nmt.interop.sentencepiece_model import changed, needed_pieces
from nmt.text.codec import TextCodec
from nmt.text.directions import Direction
from nmt.text.subword import BOS, EOS, PAD, UNK, with_bos, with_eos

pytestmark = pytest.mark.xdist_group("transformers")  # so that one process of the suite imports its models
KINDS: dict[str, Callable[..., Any]] = {
    "nllb": write_nllb, "m2m": write_m2m, "small": lambda folder: write_m2m(folder, small=True),
}  # fmt: skip
DIRECTIONS = {"nllb": Direction("eng_Latn", "fra_Latn"), "m2m": Direction("en", "fr"), "small": Direction("en", "fr")}
LINES = [
    *mixed_lines(200, seed=3), "", " ", "\u3000 a\tb \u200b c\u0007d", "</s> eng_Latn __en__<unk><pad><mask> <s>",
    "ภาษาไทย abc", "ქართული", "a\ufeffb  c", "𝕏 e\u0301 ﬁ ½",
]  # fmt: skip


@dataclass(frozen=True)
class Imported:
    """A model in a folder, and its checkpoint next to it."""

    folder: Path
    kind: str
    theirs: Any

    @property
    def path(self) -> Path:
        return self.folder.with_suffix(".safetensors")

    @cached_property
    def codec(self) -> TextCodec:
        return nmt.load_checkpoint(self.path).codec.directed(DIRECTIONS[self.kind])

    @cached_property
    def tokenizer(self) -> Any:
        tokenizer = tokenizer_of(self.folder, self.kind)
        tokenizer.src_lang = DIRECTIONS[self.kind].source
        return tokenizer

    @property
    def target_token(self) -> int:
        piece = "__fr__" if self.kind != "nllb" else "fra_Latn"
        return int(self.tokenizer.convert_tokens_to_ids(piece))

    def source_ids(self, line: str) -> list[int]:
        """Returns the ids of a line, by the tokenizer of transformers. That of SMaLL-100 puts another token first."""
        ids = list(self.tokenizer(line).input_ids)
        return [self.target_token, *ids[1:]] if self.kind == "small" else ids

    def source(self, line: str) -> list[int]:
        """Returns our ids of a line."""
        (ids,), (front, back) = self.codec.encode_source([line]), self.codec.language_tokens(self.codec.direction)
        return with_eos([*front, *ids, *back]).tolist()


def tokenizer_of(folder: Path, kind: str) -> Any:
    """Returns the tokenizer in a folder. transformers does not have the class of SMaLL-100, a copy of M2M-100's."""
    name = "AutoTokenizer" if kind == "nllb" else "M2M100Tokenizer"
    return getattr(transformers, name).from_pretrained(folder)


def stripped(line: str) -> str:
    """Returns a line without spaces at its end, which NllbTokenizer of transformers 5 keeps."""
    return line.rstrip(" \u00a0\u3000▁")


def their_ids(ours: list[int]) -> list[int]:
    """Returns the ids in Hugging Face for ours, which begin with PAD, UNK, BOS, EOS, and a renamed <s>."""
    return [{PAD: 1, UNK: 3, BOS: 2, EOS: 2, 4: 0}.get(i, i - 1) for i in ours]


@pytest.fixture(scope="module")
def imported(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Imported]:
    """Returns a function that returns the model of a kind, which no test may change."""

    @cache
    def make(kind: str) -> Imported:
        folder = tmp_path_factory.mktemp("imported") / kind
        model = Imported(folder, kind, KINDS[kind](folder))
        run("import", "huggingface", folder, "--output", model.path)
        return model

    return make


def import_(folder: Path, *options: str | Path) -> Path:
    """Imports a folder, and returns the checkpoint."""
    path = folder.with_name(f"{folder.name}.safetensors")
    run("import", "huggingface", folder, "--output", path, *options)
    return path


@pytest.mark.parametrize("kind", KINDS)
def test_text_has_the_ids_of_their_tokenizer(imported: Callable[[str], Imported], kind: str) -> None:
    model = imported(kind)
    lines = [line for line in LINES if "</s>" not in line]  # they turn names in a text into special tokens
    lines = list(map(stripped, lines)) if kind == "nllb" else lines
    assert [their_ids(model.source(line)) for line in lines] == [model.source_ids(line) for line in lines]
    assert any(UNK in model.source(line) for line in lines)
    encoded = model.codec.encode_source(lines)
    assert model.codec.decode_target(encoded) == [
        model.tokenizer.decode(their_ids(ids), skip_special_tokens=True).strip() for ids in encoded
    ]


@pytest.mark.parametrize("kind", KINDS)
def test_names_of_special_pieces_in_a_text_stay_text(imported: Callable[[str], Imported], kind: str) -> None:
    codec = imported(kind).codec
    special = {PAD, BOS, EOS, *codec.target.ids([*codec.config.language_pieces, "<mask>", "<<s>>"])} - {UNK}
    for line in LINES:
        assert not special & {*codec.encode_source([line])[0]}, line


@torch.no_grad()
@pytest.mark.parametrize("kind", KINDS)
def test_logits_are_those_of_transformers(imported: Callable[[str], Imported], kind: str) -> None:
    model = imported(kind)
    ours = build_model(nmt.load_checkpoint(model.path), "")
    size, draw = len(model.codec.target), torch.Generator().manual_seed(0)
    real = [i for i in range(size) if i != BOS]
    for line in LINES[:20]:
        source = model.source(line)
        target = with_bos(
            [*model.codec.given_ids(model.codec.direction), *torch.randint(4, size, (7,), generator=draw).tolist()]
        ).tolist()
        logits = ours(torch.tensor([source]), torch.tensor([target]))[0]
        ids = torch.tensor([their_ids(source)]), torch.tensor([their_ids(target)])
        theirs = model.theirs(ids[0], decoder_input_ids=ids[1]).logits[0]
        assert (logits[:, real] - theirs[:, their_ids(real)]).abs().max() <= 1e-5 * theirs.abs().max()
        assert logits[:, BOS].max() < logits.max() - 50  # EOS has this token's probability


@pytest.mark.parametrize("engine", ["pytorch", "ctranslate2"])
@pytest.mark.parametrize("kind", KINDS)
def test_translations_are_those_of_transformers(
    imported: Callable[[str], Imported], kind: str, engine: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    model, (source, target) = imported(kind), DIRECTIONS[kind]
    lines = [line for line in map(stripped, mixed_lines(60, seed=8)) if 3 < len(line) < 40]
    lines = [line for line in lines if not re.search("[😀-🙏]|&|▁", line)][:16]  # nmt would keep such words
    options = ["--device=cpu", "--beam=1", "--max-length-offset=20", "--output-format=jsonl", f"--engine={engine}"]
    options += ["--precision=fp32"] if engine == "pytorch" else []
    stdin = "".join(f"{line}\n" for line in lines).encode()
    done = run("generate", model.path, "--source-lang", source, "--target-lang", target, *options, stdin=stdin)
    outputs = []
    for line, translated in zip(lines, done.stdout.splitlines(), strict=True):
        (hypothesis,) = json.loads(translated)["hypotheses"]
        forced = {} if kind == "small" else {"forced_bos_token_id": model.target_token}
        options_ = {"num_beams": 1, "max_new_tokens": 60, "begin_suppress_tokens": [2], **forced}
        ids = model.theirs.generate(torch.tensor([model.source_ids(line)]), **options_)[0, 1 + bool(forced) :]
        ours = their_ids(model.codec.target.ids(hypothesis["pieces"]))
        assert ours == ids[: len(ours)].tolist(), line
        if len(ours) < len(ids) and ids[len(ours)] == 2:  # it ends; the language's token does not count
            assert len(hypothesis["log_probs"]) == len(ours) + 1
            assert hypothesis["text"] == model.tokenizer.decode(ids, skip_special_tokens=True).strip()
        outputs.append(hypothesis["text"])
    assert len(set(outputs)) > 5


def shards(folder: Path) -> None:
    """Replaces the weights by two files and an index."""
    tensors = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    weight_map = {name: f"model-0000{1 + i % 2}-of-00002.safetensors" for i, name in enumerate(tensors)}
    for file in set(weight_map.values()):
        save_file({name: tensors[name] for name in tensors if weight_map[name] == file}, folder / file)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))


def torch_file(folder: Path) -> None:
    """Replaces the weights by a torch file like those of the first models, with copies and position encodings."""
    tensors = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    shared = tensors["model.shared.weight"]
    names = "model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight", "lm_head.weight"
    tensors |= dict.fromkeys(names, shared)
    positions = transformers.models.m2m_100.modeling_m2m_100.M2M100SinusoidalPositionalEmbedding(64, 32, 1)
    tensors |= {f"model.{stack}.embed_positions.weights": positions.weights for stack in ("encoder", "decoder")}
    torch.save(tensors, folder / "pytorch_model.bin")


@pytest.mark.parametrize(("kind", "dtype", "change"), [
    ("nllb", torch.float32, None), ("nllb", torch.bfloat16, shards), ("m2m", torch.float16, torch_file),
    ("small", torch.float32, shards),
])  # fmt: skip
def test_a_model_goes_out_as_it_came_in(
    kind: str, dtype: torch.dtype, change: Callable[[Path], None] | None, tmp_path: Path
) -> None:
    write = write_nllb if kind == "nllb" else write_m2m
    write(tmp_path / "first", dtype=dtype, **({"small": True} if kind == "small" else {}))
    expected = load_file(tmp_path / "first" / "model.safetensors")
    if change:
        change(tmp_path / "first")
    first = import_(tmp_path / "first")
    assert {weight.dtype for weight in weights(first).values()} == {dtype}
    run("export", "huggingface", first, "--output", tmp_path / "second")
    tensors = load_file(tmp_path / "second" / "model.safetensors")
    assert tensors.keys() == expected.keys()
    assert all(torch.equal(tensors[name], expected[name]) for name in expected)
    assert tensors["model.shared.weight"].dtype == dtype
    second = import_(tmp_path / "second")
    assert nmt.load_checkpoint(first).codec.to_dict() | {"source_model": None} == nmt.load_checkpoint(
        second
    ).codec.to_dict() | {"source_model": None}
    tokenizers = [tokenizer_of(tmp_path / name, kind) for name in ("first", "second")]
    for tokenizer in tokenizers:
        tokenizer.src_lang = DIRECTIONS[kind].source
    assert tokenizers[0](LINES[:200]).input_ids == tokenizers[1](LINES[:200]).input_ids
    codes = list(nmt.load_checkpoint(second).codec.config.language_pieces)
    assert tokenizers[0].convert_tokens_to_ids(codes) == tokenizers[1].convert_tokens_to_ids(codes)
    if kind != "small" and dtype == torch.float32:
        theirs = transformers.M2M100ForConditionalGeneration.from_pretrained(tmp_path / "second")
        assert torch.equal(theirs.model.shared.weight, expected["model.shared.weight"])


def test_a_changed_row_of_bos_changes_nothing(imported: Callable[[str], Imported]) -> None:
    """Targets begin with EOS, so that a tuned model stays one that transformers can have."""
    checkpoint = nmt.load_checkpoint(imported("m2m").path)
    ids = torch.tensor([[9, 8, EOS]]), torch.tensor([[BOS, 7, 9]])
    expected = build_model(checkpoint, "")(*ids)
    embedding_VD = checkpoint.weights["target_embedding.weight"].clone()
    embedding_VD[BOS] = 7
    checkpoint.weights["target_embedding.weight"] = embedding_VD
    logits = build_model(checkpoint, "")(*ids)
    assert torch.equal(logits[..., EOS:], expected[..., EOS:])


@torch.no_grad()
def test_trimming_keeps_the_segmentation_and_the_logits(imported: Callable[[str], Imported], tmp_path: Path) -> None:
    model = imported("nllb")
    text = [line for line in mixed_lines(40, seed=11) if line.strip()]
    (tmp_path / "text").write_text("".join(f"{line}\n" for line in text))
    path = tmp_path / "trimmed.safetensors"
    options = ["--languages", "en,fra_Latn", "--pieces-of", tmp_path / "text"]
    run("import", "huggingface", model.folder, "--output", path, *options)
    small = nmt.load_checkpoint(path)
    codec, full = small.codec.directed(DIRECTIONS["nllb"]), model.codec
    assert small.codec.config.languages == ("eng_Latn", "fra_Latn")
    pieces = set(codec.target.vocabulary)
    assert len(pieces) < len(full.target.vocabulary) - 100
    assert {piece for piece in bpe_pieces() if len(piece) == 1} <= pieces
    segmentations = [[each.source.pieces(ids) for ids in each.encode_source(text)] for each in (codec, full)]
    assert segmentations[0] == segmentations[1]
    kept = torch.tensor([i for i, piece in enumerate(codec.target.vocabulary) if i != BOS])
    full_ids = torch.tensor(full.target.ids(codec.target.pieces(kept)))
    models = build_model(small, ""), build_model(nmt.load_checkpoint(model.path), "")
    for line, other in pairwise(text[:6]):
        logits = []
        for each, network in zip((codec, full), models, strict=True):
            (source,), (target,) = each.encode_source([line]), each.encode_target([other])
            ids = (
                with_eos([*each.language_tokens(each.direction)[0], *source]),
                with_bos([*each.given_ids(each.direction), *target]),
            )
            logits.append(network(*(torch.from_numpy(side)[None] for side in ids))[0])
        assert torch.allclose(logits[0][:, kept], logits[1][:, full_ids], rtol=0, atol=1e-5)
    run("export", "huggingface", path, "--output", tmp_path / "out")
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "out", src_lang="eng_Latn")
    reimported = nmt.load_checkpoint(import_(tmp_path / "out"))
    assert reimported.codec.target.vocabulary == codec.target.vocabulary
    for line in map(stripped, text):
        ids = [*codec.language_tokens(codec.direction)[0], *codec.encode_source([line])[0], EOS]
        assert their_ids(ids) == tokenizer(line).input_ids


def test_the_card_of_a_tuned_model_translates_in_a_direction_of_its_last_training(
    imported: Callable[[str], Imported], tmp_path: Path
) -> None:
    first = nmt.load_checkpoint(imported("nllb").path)
    tuned = saved(replace(first, provenance={"directions": ["fra_Latn eng_Latn"]}), tmp_path / "tuned.safetensors")
    run("export", "huggingface", tuned, "--output", tmp_path / "out")
    card = (tmp_path / "out" / "README.md").read_text()
    assert 'src_lang="fra_Latn"' in card and 'convert_tokens_to_ids("eng_Latn")' in card


# Options of an import, after which a model has other languages or ids than M2M-100 or NLLB-200, or other places of them
OTHER_LANGUAGES: dict[str, tuple[str, list[str]]] = {
    "all": ("m2m", []),
    "some": ("m2m", ["--languages=fr, en ,zh"]),
    "one more": ("m2m", ["--add-language=tyv=kk"]),
    "behind": ("m2m", ["--language-tokens=behind_source"]),
    "some behind": ("m2m", ["--languages=en,fr", "--language-tokens=behind_source"]),
    "small": ("small", []),
    "some of small": ("small", ["--languages=fr,en", "--add-language=tyv=en"]),
    "some of NLLB": ("nllb", ["--languages=en,fr"]),
    "one more of NLLB": ("nllb", ["--add-language=tyv_Cyrl=eng_Latn", "--language-tokens=behind_source"]),
}


def test_what_a_model_learnt_in_nmt_comes_back(imported: Callable[[str], Imported], tmp_path: Path) -> None:
    checkpoint = nmt.load_checkpoint(imported("nllb").path)
    pieces = checkpoint.codec.source.vocabulary[10:15]
    marks = {"term_pieces": tuple(pieces[:3]), "context": 2, "context_piece": pieces[3], "similar_piece": pieces[4]}
    text = replace(checkpoint.codec.config, **marks, endings=("/s",))
    codec = TextCodec(text, checkpoint.codec.source, checkpoint.codec.target)
    config = replace(checkpoint.model_config, guided_alignment=1)
    path = saved(replace(checkpoint, codec=codec, model_config=config), tmp_path / "tuned.safetensors")
    run("export", "huggingface", path, "--output", tmp_path / "out")
    again = nmt.load_checkpoint(import_(tmp_path / "out"))
    assert (again.codec.config, again.model_config) == (text, config)


@torch.no_grad()
@pytest.mark.parametrize("case", OTHER_LANGUAGES)
def test_the_tokenizer_of_an_exported_folder_has_every_language(
    imported: Callable[[str], Imported], case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind, options = OTHER_LANGUAGES[case]
    path, line = tmp_path / "other.safetensors", "abc déf 字"
    run("import", "huggingface", imported(kind).folder, "--output", path, *options)
    run("export", "huggingface", path, "--output", tmp_path / "out")
    codec = nmt.load_checkpoint(path).codec
    text, (ids,) = codec.config, codec.encode_source([line])

    def source(direction: Direction) -> list[int]:
        front, back = codec.language_tokens(direction)
        return their_ids(with_eos([*front, *ids, *back]).tolist())

    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "out")
    has_codes = type(tokenizer).__name__ == "M2M100Tokenizer"
    assert has_codes == (case in ("all", "small"))
    for place, (language, token) in enumerate(zip(text.languages, text.language_pieces, strict=True)):
        if place:  # the tokenizer begins with the first one
            tokenizer.src_lang = language if has_codes else token
        assert tokenizer(line).input_ids == source(Direction(language, language))
        assert tokenizer.convert_tokens_to_ids([token]) == their_ids(codec.target.ids([token]))

    (code,) = re.findall("```python\n(.*?)```", (tmp_path / "out" / "README.md").read_text(), re.DOTALL)
    monkeypatch.chdir(tmp_path / "out")
    names: dict[str, Any] = {}
    exec(code.replace("…", line).replace("generate(", "generate(max_new_tokens=4, "), names)
    direction = Direction(*text.languages[-2:])
    assert names["batch"].input_ids.tolist() == [source(direction)]
    assert names["language"] == their_ids(codec.target.ids([text.language_pieces[-1]]))[0]
    assert f"# sentences in {direction.source}" in code


@pytest.mark.parametrize("rslora", [False, True])
def test_an_adapter_is_merged(imported: Callable[[str], Imported], rslora: bool, tmp_path: Path) -> None:
    model = imported("nllb")
    adapter = tmp_path / "adapter"
    adapter.mkdir()
    options = {"peft_type": "LORA", "r": 4, "lora_alpha": 8, "use_rslora": rslora}
    (adapter / "adapter_config.json").write_text(json.dumps(options))
    name, (down, up) = "model.decoder.layers.0.encoder_attn.out_proj", (torch.randn(4, 32), torch.randn(32, 4))
    tensors = {f"base_model.model.{name}.lora_{which}.weight": value for which, value in (("A", down), ("B", up))}
    save_file(tensors, adapter / "adapter_model.safetensors")
    assert "has an adapter; give the folder of its model with --base" in failed(
        "import", "huggingface", adapter, "--output", tmp_path / "x.safetensors"
    )
    path = import_(adapter, "--base", model.folder)
    run("export", "huggingface", path, "--output", tmp_path / "out")
    base, merged = (load_file(folder / "model.safetensors") for folder in (model.folder, tmp_path / "out"))
    scale = 8 / 4**0.5 if rslora else 8 / 4
    assert torch.allclose(merged[f"{name}.weight"], base[f"{name}.weight"] + scale * up @ down, atol=1e-5)
    assert [n for n in base if not torch.equal(base[n], merged[n])] == [f"{name}.weight"]
    assert nmt.load_checkpoint(path).provenance["imported"] | {"format": ""} == {
        "format": "", "folder": str(adapter), "model_folder": str(model.folder),
    }  # fmt: skip
    for other, said in (
        ({"init_lora_weights": "pissa"}, "has init_lora_weights 'pissa', which changes the weights of the model"),
        ({"lora_alpha": None}, "has no number as its lora_alpha"),
    ):
        (adapter / "adapter_config.json").write_text(json.dumps(options | other))
        command = ["import", "huggingface", adapter, "--base", model.folder, "--output", tmp_path / "x.safetensors"]
        assert said in failed(*command)
    (adapter / "adapter_config.json").write_text(json.dumps(options))
    save_file({f"{n}.x": value for n, value in tensors.items()}, adapter / "adapter_model.safetensors")
    command = ["import", "huggingface", adapter, "--base", model.folder, "--output", tmp_path / "x.safetensors"]
    assert "which does not fit the model of --base" in failed(*command)


def write_adapter(folder: Path, tensors: dict[str, torch.Tensor]) -> Path:
    """Writes an adapter with a LoRA matrix, and with tensors as PEFT names them; returns the folder."""
    folder.mkdir()
    (folder / "adapter_config.json").write_text(json.dumps({"peft_type": "LORA", "r": 2, "lora_alpha": 2}))
    draw = torch.Generator().manual_seed(1)
    factors = {f"{LORA}.lora_A.weight": (2, 32), f"{LORA}.lora_B.weight": (32, 2)}
    tensors = {name: torch.randn(shape, generator=draw) for name, shape in factors.items()} | tensors
    tensors = {f"base_model.model.{name}": tensor for name, tensor in tensors.items()}
    save_file(tensors, folder / "adapter_model.safetensors")
    return folder


LORA = "model.encoder.layers.0.self_attn.q_proj"
EMBEDDINGS = (
    "model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight", "lm_head.weight", "model.shared.weight",
)  # fmt: skip
# Tensors that PEFT stores of what was trained as a whole, with their shapes, and the name of each in the model. In an
# adapter with one value for all, each has this value.
WHOLE: dict[str, dict[str, tuple[tuple[int, ...], str]]] = {
    "bias of a layer with LoRA": {f"{LORA}.base_layer.bias": ((32,), f"{LORA}.bias")},
    "other biases": {f"model.encoder.{x}.bias": ((n,), f"model.encoder.{x}.bias")
                     for x, n in (("layers.1.fc1", 48), ("layer_norm", 32), ("layers.0.final_layer_norm", 32))},
    "norm": {f"model.decoder.layer_norm.{x}": ((32,), f"model.decoder.layer_norm.{x}") for x in ("weight", "bias")},
    "matrix": {"model.decoder.layers.0.fc2.weight": ((32, 48), "model.decoder.layers.0.fc2.weight")},
    "weight of a layer with LoRA": {f"{LORA}.base_layer.weight": ((32, 32), f"{LORA}.weight")},
    "embeddings": dict.fromkeys(EMBEDDINGS, ((1210, 32), "model.shared.weight")),
    "embeddings that compute": dict.fromkeys(EMBEDDINGS[:3], ((1210, 32), "model.shared.weight")),
    "an embedding that computes nothing": {"model.shared.weight": ((1210, 32), "")},
}  # fmt: skip


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("case", WHOLE)
def test_what_an_adapter_has_trained_as_a_whole_replaces_the_model(
    imported: Callable[[str], Imported], case: str, dtype: torch.dtype, tmp_path: Path
) -> None:
    base, tensors = imported("nllb").folder, {name: torch.full(shape, 0.3) for name, (shape, _) in WHOLE[case].items()}
    if dtype != torch.float32:
        base = tmp_path / "base"
        write_nllb(base, dtype=dtype)
    adapter = write_adapter(tmp_path / "adapter", tensors)
    run("export", "huggingface", import_(adapter, "--base", base), "--output", tmp_path / "out")
    base_weights, merged_weights = (load_file(folder / "model.safetensors") for folder in (base, tmp_path / "out"))
    stored = load_file(adapter / "adapter_model.safetensors")
    down, up = (stored[f"base_model.model.{LORA}.lora_{factor}.weight"] for factor in "AB")
    expected = base_weights | {
        name: torch.full(shape, 0.3, dtype=dtype) for shape, name in WHOLE[case].values() if name
    }
    expected[f"{LORA}.weight"] = (expected[f"{LORA}.weight"].float() + up @ down).to(dtype)
    assert merged_weights.keys() == base_weights.keys()
    for name, tensor in expected.items():
        torch.testing.assert_close(merged_weights[name], tensor, rtol=0, atol=1e-6 if dtype == torch.float32 else 0.02)


REFUSED: dict[str, tuple[dict[str, tuple[int, ...]], str]] = {
    "softmax alone": ({"lm_head.weight": (1210, 32)}, "makes lm_head.weight differ from model.encoder.embed_tokens"),
    "one side": ({EMBEDDINGS[1]: (1210, 32)}, "makes model.decoder.embed_tokens.weight differ from"),
    "softmax with LoRA": (
        {"lm_head.lora_A.weight": (2, 32), "lm_head.lora_B.weight": (1210, 2)}, "train it with ensure_weight_tying",
    ),
    "more pieces": (dict.fromkeys(EMBEDDINGS, (1211, 32)), "does not fit the model of --base; give the model that"),
    "another width": ({f"{LORA}.base_layer.bias": (16,)}, f"{LORA}.base_layer.bias', which does not fit the model of"),
    "bias of LoRA": ({f"{LORA}.lora_B.bias": (32,)}, "or merge it with peft first"),
    "rows of an embedding": (
        {"model.shared.token_adapter.trainable_tokens_delta": (2, 32)}, "or merge it with peft first",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_an_adapter_that_cannot_be_merged_is_refused(
    imported: Callable[[str], Imported], case: str, tmp_path: Path
) -> None:
    shapes, message = REFUSED[case]
    adapter = write_adapter(tmp_path / "adapter", {name: torch.ones(shape) for name, shape in shapes.items()})
    output = tmp_path / "x.safetensors"
    command = ["import", "huggingface", adapter, "--base", imported("nllb").folder, "--output", output]
    assert message in failed(*command)
    assert not output.exists()


@pytest.mark.parametrize(("settings", "options", "source"), [
    ({"legacy_behaviour": True}, [], ["▁a", "</s>", "eng_Latn"]),
    ({}, ["--language-tokens=behind_source"], ["▁a", "</s>", "eng_Latn"]),
    ({"legacy_behaviour": True}, ["--language-tokens=target_on_source"], ["fra_Latn", "▁a", "</s>"]),
])  # fmt: skip
def test_the_place_of_language_tokens_is_in_the_folder_or_given(
    imported: Callable[[str], Imported], settings: dict[str, Any], options: list[str], source: list[str], tmp_path: Path
) -> None:
    folder = Path(shutil.copytree(imported("nllb").folder, tmp_path / "model"))
    change("tokenizer_config.json", **settings)(folder)
    path = import_(folder, *options)
    codec = nmt.load_checkpoint(path).codec.directed(DIRECTIONS["nllb"])
    (ids,), (front, back) = codec.encode_source(["a"]), codec.language_tokens(codec.direction)
    assert codec.source.pieces(with_eos([*front, *ids, *back]).tolist()) == source
    run("export", "huggingface", path, "--output", tmp_path / "out")
    assert nmt.load_checkpoint(import_(tmp_path / "out")).codec.config.placement == codec.config.placement


@pytest.mark.parametrize("kind", ["nllb", "small"])
def test_a_package_for_argos_translate_has_one_direction(
    imported: Callable[[str], Imported], kind: str, tmp_path: Path
) -> None:
    model, package = imported(kind), tmp_path / "model.argosmodel"
    direction = ["--source-lang=en", "--target-lang=fr"]
    run("export", "argos", model.path, "--quantization=float32", "--output", package, *direction)
    argos, lines = Argos(package), [line for line in mixed_lines(30, seed=8) if re.fullmatch("[^&▁😀-🙏]{4,30}", line)]
    assert argos.folder.name == "nmt-en_fr"
    options = ["--device=cpu", "--precision=fp32", "--beam=1", "--max-length-offset=0", "--output-format=jsonl"]
    done = run("generate", model.path, *direction, *options, stdin="".join(f"{line}\n" for line in lines).encode())
    for line, output in zip(lines, done.stdout.splitlines(), strict=True):
        (hypothesis,) = json.loads(output)["hypotheses"]
        given, count = int(kind == "nllb"), len(hypothesis["pieces"])
        pieces = argos.search(line, beam_size=1, max_decoding_length=count + given)
        assert pieces[given:] == hypothesis["pieces"], line
        assert argos.decode(pieces) == hypothesis["text"]
        assert "fra" not in argos.decode(pieces + pieces)
    assert f"# {model.codec.config.source_lang} to" in (argos.folder / "README.md").read_text()
    command = ["export", "argos", model.path, "--output", tmp_path / "other.argosmodel"]
    assert "-lang is missing; name one of" in failed(*command)
    assert "-lang is missing; name" in failed(*command, "--target-lang=fr")


def test_a_package_has_no_token_behind_the_source(imported: Callable[[str], Imported], tmp_path: Path) -> None:
    path, package = tmp_path / "model.safetensors", tmp_path / "model.argosmodel"
    run("import", "huggingface", imported("nllb").folder, "--output", path, "--language-tokens=behind_source")
    command = ["export", "argos", path, "--output", package, "--source-lang=en", "--target-lang=fr"]
    assert "needs it (behind_source); serve this one with nmt serve" in failed(*command)
    assert not package.exists()


@pytest.mark.parametrize("format", ["onnx", "web"])
def test_formats_without_languages_are_refused(
    imported: Callable[[str], Imported], format: str, tmp_path: Path
) -> None:
    output = tmp_path / "out"
    said = failed("export", format, imported("nllb").path, "--output", output)
    assert f"nmt export {format} has no tokens of languages as" in said
    assert not output.exists()


# Folders that are damaged, or have something that nmt does not


def index(*files: str) -> Callable[[Path], None]:
    def apply(folder: Path) -> None:
        (folder / "model.safetensors").unlink()
        weight_map = {str(i): file for i, file in enumerate(files)}
        (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))

    return apply


def tensor(name: str, value: torch.Tensor) -> Callable[[Path], None]:
    def apply(folder: Path) -> None:
        path = folder / "model.safetensors"
        save_file(load_file(path) | {name: value}, path)

    return apply


def tokenizer(apply: Callable[[dict[str, Any]], object]) -> Callable[[Path], None]:
    """Returns a function that replaces the sentencepiece model and vocab.json by a changed tokenizer.json."""

    def replace(folder: Path) -> None:
        for name in ("sentencepiece.bpe.model", "vocab.json"):
            (folder / name).unlink()
        merges = [["a", "b"], ["▁", "a"]]
        vocabulary = {piece: i for i, piece in enumerate([*bpe_pieces()[:4], "ab", "▁a", "a", "b", "▁"])}
        model = {"type": "BPE", "vocab": vocabulary, "merges": merges}
        content = {"model": model, "added_tokens": [{"id": 9, "content": "eng_Latn"}], "normalizer": None}
        apply(content)
        (folder / "tokenizer.json").write_text(json.dumps(content))

    return replace


def remove(folder: Path) -> None:
    (folder / "sentencepiece.bpe.model").unlink()


config = "config.json"
CASES: dict[str, tuple[Callable[[Path], object], str]] = {
    "index leaves the folder": (index("a.safetensors", "../b.safetensors"), "'../b.safetensors', which is not in its"),
    "index names a folder": (index(".."), "'..', which is not in its folder"),
    "index without a shard": (index("model-1.safetensors"), "'model-1.safetensors', which is not in its folder"),
    "index of numbers": (
        lambda f: (index()(f), change("model.safetensors.index.json", weight_map=[1])(f)), "names the file ''",
    ),
    "id is text": (change("vocab.json", another="5"), "has the id '5' for the piece 'another'"),
    "untied": (change(config, tie_word_embeddings=False), "has tie_word_embeddings False, which nmt does not have"),
    "other softmax": (tensor("lm_head.weight", torch.zeros(1309, 32)), "lm_head.weight in"),
    "experts": (change(config, model_type="nllb-moe"), "'nllb-moe', which nmt does not have"),
    "8 bits": (change(config, quantization_config={"load_in_8bit": True}), "has quantization_config {'load_in_8bit'"),
    "not scaled": (change(config, scale_embedding=False), "has scale_embedding False"),
    "fewer rows": (
        lambda f: (tensor("model.shared.weight", torch.zeros(1300, 32))(f), change(config, vocab_size=1300)(f)),
        "has the id 1300 for the piece '__zu__', but the model has 1,300 ids",
    ),
    "rows and config differ": (change(config, vocab_size=1300), "with the shape (1309, 32), but config.json says"),
    "no text": (remove, "has neither sentencepiece.bpe.model nor tokenizer.json"),
    "tokens of another form": (change("tokenizer_config.json", added_tokens_decoder=[1]), "as transformers writes"),
    "other merges": (tokenizer(lambda t: t["model"]["merges"].pop()), "does not merge pieces as sentencepiece does"),
    "merges twice": (tokenizer(lambda t: t["model"]["merges"].append(["a", "b"])), "does not merge pieces as"),
    "unigram": (tokenizer(lambda t: t["model"].update(type="Unigram")), "does not merge pieces as sentencepiece"),
    "normaliser": (
        tokenizer(lambda t: t.update(normalizer={"normalizers": [{"type": "Replace"}, {"type": "NFKC"}]})),
        "normalises text with NFKC; add the model's sentencepiece.bpe.model",
    ),
    "other start": (change(config, decoder_start_token_id=0), "has decoder_start_token_id 0, which nmt does not have"),
    "no languages": (tokenizer(lambda t: t.update(added_tokens=[])), "lists no languages; add the special_tokens"),
    "other sinusoids": (tensor("model.encoder.embed_positions.weights", torch.zeros(66, 32)), "are not the sinusoids"),
    "unknown tensor": (tensor("model.encoder.layernorm_embedding.weight", torch.zeros(32)), "which nmt does not know"),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_damaged_and_unsuitable_folders_are_refused(
    imported: Callable[[str], Imported], case: str, tmp_path: Path
) -> None:
    folder = Path(shutil.copytree(imported("m2m").folder, tmp_path / "model"))
    apply, message = CASES[case]
    apply(folder)
    said = failed("import", "huggingface", folder, "--output", tmp_path / "model.safetensors")
    assert message in said
    assert len(said) < 600
    assert list(tmp_path.iterdir()) == [folder]


def test_flags_of_the_other_kind_of_model_are_refused(imported: Callable[[str], Imported], tmp_path: Path) -> None:
    command: list[Any] = ["import", "huggingface", imported("nllb").folder, "--output", tmp_path / "x.safetensors"]
    assert "is a model of many languages; leave out --source-lang" in failed(*command, "--source-lang=en")
    assert "has no language 'xx', but ace_Arab, deu_Latn" in failed(*command, "--languages=en,xx")
    marian = tmp_path / "marian"
    write_model(marian, encoder_layers=1, decoder_layers=1, d_model=8)
    command[2] = marian
    assert "is a model of MarianMT, which stays as it is" in failed(*command, "--languages=en")


@torch.no_grad()
@pytest.mark.parametrize("kind", ["nllb", "m2m"])
def test_a_language_and_pieces_are_added(imported: Callable[[str], Imported], kind: str, tmp_path: Path) -> None:
    model = imported(kind)
    words = ["қазақша", "тілінде", "сөйлейді", "қаладағы"]
    # The model knows neither of the last two letters; the last one occurs once.
    new, old = (
        [*(f"{a} {b}Ԙ" for a in words for b in words), "Ԟ"],
        [line for line in mixed_lines(60, seed=4) if line.strip()],
    )
    for name, lines in (("new", new), ("old", old)):
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines))
    code, related = ("tyv_Cyrl", "zho_Hans") if kind == "nllb" else ("tyv", "kk")
    options: list[Any] = ["--add-language", f"{code}={related}", "--add-pieces", tmp_path / "new", "--pieces=12"]
    path = tmp_path / "more.safetensors"
    run("import", "huggingface", model.folder, "--output", path, *options, "--unchanged", tmp_path / "old")
    base, extended = nmt.load_checkpoint(model.path), nmt.load_checkpoint(path)
    pieces = extended.codec.target.vocabulary[len(base.codec.target) :]
    assert len(pieces) == 13
    assert "Ԙ" in pieces and "Ԟ" not in pieces
    assert extended.codec.config.languages == (*base.codec.config.languages, code)
    assert extended.provenance["added_pieces"] == pieces  # they learn in full, whatever is frozen
    assert extended.codec.encode_source(old) == base.codec.encode_source(old)
    lengths = [sum(map(len, each.codec.encode_source(new))) for each in (base, extended)]
    assert lengths[1] < lengths[0] - 40
    assert set(pieces[1:]) <= needed_pieces(extended.codec.source.model, new)  # each is reached
    rows, more = (each.weights["target_embedding.weight"] for each in (base, extended))
    assert torch.equal(more[: len(rows)], rows)
    token = dict(zip(extended.codec.config.languages, extended.codec.config.language_pieces, strict=True))
    (related_id,) = extended.codec.target.ids([token[related]])
    assert torch.equal(more[len(rows)], rows[related_id])
    for row, piece in zip(more[len(rows) + 1 :], pieces[1:], strict=True):
        (ids,) = base.codec.encode_source([piece.replace("▁", " ")])
        if piece.startswith("▁"):  # others are segmented in another way at the beginning of a line
            assert torch.allclose(row, rows[ids].mean(0), atol=1e-6)

    other = next(lang for lang in base.codec.config.languages if lang != related)
    for lang in (related, other):
        (tmp_path / f"text.{lang}").write_text("".join(f"{line}\n" for line in new))
    files = ["--train", tmp_path / "text", "--valid", tmp_path / "text", f"--directions={related}-{other}"]
    for like, lacking in ((model.path, 17), (path, 1)):
        dest = tmp_path / f"data{lacking}"
        said = run("preprocess", "--like", like, *files, f"--languages={related},{other}", "--dest", dest).stderr
        assert f"{lacking} of 17 training pairs have characters that {like} does not know" in said

    run("export", "huggingface", path, "--output", tmp_path / "out")
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "out", src_lang=pieces[0])
    codec = extended.codec.directed(Direction(code, related))
    for line in map(stripped, [*new, *LINES[:50]]):
        assert (
            their_ids([*codec.language_tokens(codec.direction)[0], *codec.encode_source([line])[0], EOS])
            == tokenizer(line).input_ids
        )
    reimported = nmt.load_checkpoint(import_(tmp_path / "out"))
    assert reimported.codec.encode_source([*new, *old]) == extended.codec.encode_source([*new, *old])
    theirs = transformers.M2M100ForConditionalGeneration.from_pretrained(tmp_path / "out")
    assert theirs.config.vocab_size == len(more) - 1


def test_the_share_of_lines_that_keep_their_pieces_is_printed(
    imported: Callable[[str], Imported], tmp_path: Path
) -> None:
    files = {"new": ["қазақша тілінде"] * 3, "old": ["abc", ""], "both": ["abc", "қазақша", "def", "x"]}
    for name, lines in files.items():
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines))
    options: list[Any] = ["--add-pieces", tmp_path / "new", "--unchanged", tmp_path / "old"]
    options += ["--pieces-of", tmp_path / "both", "--pieces-of", tmp_path / "new"]
    folder, path = imported("nllb").folder, tmp_path / "more.safetensors"
    said = run("import", "huggingface", folder, "--output", path, *options).stderr
    for name, share, count in (("old", "100.00%", 2), ("both", "75.00%", 4), ("new", "0.00%", 3)):
        assert f"{tmp_path / name}: {share} of {count} lines have the same pieces as before" in said


@pytest.mark.parametrize(("kind", "options"), [
    ("nllb", []), ("nllb", ["--language-tokens=behind_source"]), ("m2m", ["--languages=fr,en"]), ("small", []),
])  # fmt: skip
def test_an_export_for_ctranslate2_says_where_language_tokens_stand(
    imported: Callable[[str], Imported], kind: str, options: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, lines = tmp_path / "model.safetensors", ["abc déf", "字 abc", "fed cba"]
    run("import", "huggingface", imported(kind).folder, "--output", path, *options)
    done, codec = run("export", "ctranslate2", path, "--output", tmp_path / "out"), nmt.load_checkpoint(path).codec
    text, (source, target) = codec.config, codec.config.languages[-2:]
    assert f"put {text.language_pieces[0]} and the like where config.json says ({text.placement})" in done.stderr
    assert json.loads((tmp_path / "out" / "config.json").read_text())["text"]["placement"] == text.placement
    (code,) = re.findall("```python\n(.*?)```", (tmp_path / "out" / "README.md").read_text(), re.DOTALL)
    monkeypatch.chdir(tmp_path / "out")
    names: dict[str, Any] = {"LINES": lines}
    exec(code.replace('["…"]', "LINES").replace("beam_size=4", "beam_size=1").replace("1000", "12"), names)
    search = ["--device=cpu", "--precision=fp32", "--beam=1", "--max-length-offset=20", "--output-format=jsonl"]
    command = ["generate", path, f"--source-lang={source}", f"--target-lang={target}", *search]
    done = run(*command, stdin="".join(f"{line}\n" for line in lines).encode())
    for translation, line in zip(names["results"], done.stdout.splitlines(), strict=True):
        (hypothesis,) = json.loads(line)["hypotheses"]
        pieces = [*codec.target.pieces(codec.given_ids(Direction(source, target))), *hypothesis["pieces"]]
        assert translation.hypotheses[0] == pieces[: len(translation.hypotheses[0])]
    assert not [token for token in text.language_pieces if token in " ".join(names["lines"])]


def test_a_new_language_is_new_and_needs_a_related_one(imported: Callable[[str], Imported], tmp_path: Path) -> None:
    command: list[Any] = ["import", "huggingface", imported("nllb").folder, "--output", tmp_path / "x.safetensors"]
    assert "does not name a new language and a related one" in failed(*command, "--add-language=deu_Latn=eng_Latn")
    for option in (f"--unchanged={__file__}", "--pieces=12"):
        assert "needs --add-pieces; add it" in failed(*command, option)
        assert "needs --add-pieces; add it" in failed("extend", *command[2:], option)


@needs_linux
@pytest.mark.nightly
def test_a_model_of_the_true_size_is_imported_in_a_minute_and_a_gibibyte(tmp_path: Path) -> None:
    """The size is that of NLLB-200 600M. The weights are zeros, which take no room on disk."""
    folder, rows = tmp_path / "model", 256_206
    folder.mkdir()
    with torch.device("meta"):
        config = transformers.M2M100Config(vocab_size=rows)  # all other sizes are the default
        shapes = dict(transformers.M2M100ForConditionalGeneration(config).named_parameters())
    header: dict[str, Any] = {}
    end = 0
    for name, weight in shapes.items():
        start, end = end, end + 4 * weight.numel()
        header[name] = {"dtype": "F32", "shape": list(weight.shape), "data_offsets": [start, end]}
    text = json.dumps(header).encode()
    with (folder / "model.safetensors").open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        file.truncate(8 + len(text) + end)
    config.save_pretrained(folder)
    more = (f"{i:06x}" for i in range(rows - 5 - len(bpe_pieces())))
    (folder / "sentencepiece.bpe.model").write_bytes(changed(bpe_model(), more=more))
    (folder / "special_tokens_map.json").write_text(json.dumps({"additional_special_tokens": ["eng_Latn", "fra_Latn"]}))
    path, most, begin = tmp_path / "model.safetensors", 0, time.monotonic()
    command = [sys.executable, "-m", "nmt", "import", "huggingface", str(folder), "--output", str(path)]
    with subprocess.Popen(command) as process:
        while process.poll() is None:
            if own := re.search(r"RssAnon:\s+(\d+) kB", Path(f"/proc/{process.pid}/status").read_text()):
                most = max(most, int(own[1]))
            time.sleep(0.05)
    assert process.returncode == 0
    assert time.monotonic() - begin < 60
    assert most < 1 << 20
    read = f"from nmt.checkpoint_format import read_model; size = len(read_model({str(path)!r})[1].target)"
    code = f"{read}; import sys; print(size, 'torch' in sys.modules)"
    begin = time.monotonic()
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == f"{rows + 1} False\n"
    assert time.monotonic() - begin < 2
