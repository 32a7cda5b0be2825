"""Damaged and malicious models of other toolkits are refused in one sentence, and no code in them runs."""

import argparse
import collections
import json
import os
import pickle
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers  # loads its models only when a test uses one
from checkpoints import Trap
from commands import failed, run, same_weights
from marian import write_model

pytestmark = pytest.mark.xdist_group("transformers")  # so that one process of the suite imports its models


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns the folder of a small MarianMT model."""
    folder = tmp_path_factory.mktemp("marian") / "model"
    sizes = {"d_model": 8, "encoder_attention_heads": 2, "decoder_attention_heads": 2}
    write_model(folder, encoder_layers=1, decoder_layers=1, **sizes)
    return folder


def change(name: str, **values: Any) -> Callable[[Path], None]:
    """Returns a function that changes fields of a JSON file; None removes a field."""

    def apply(folder: Path) -> None:
        content = json.loads((folder / name).read_text()) | values
        (folder / name).write_text(json.dumps({k: v for k, v in content.items() if v is not None}))

    return apply


def write(name: str, content: str | bytes) -> Callable[[Path], None]:
    data = content.encode() if isinstance(content, str) else content
    return lambda folder: (folder / name).write_bytes(data) and None


def tensors(header: dict[str, Any], length: int | None = None, data: bytes = b"") -> Callable[[Path], None]:
    """Returns a function that writes a safetensors file with this header."""
    text = json.dumps(header).encode()
    return write("model.safetensors", struct.pack("<Q", len(text) if length is None else length) + text + data)


def remove(name: str) -> Callable[[Path], None]:
    return lambda folder: (folder / name).unlink()


def vocabulary(**changed: Any) -> Callable[[Path], None]:
    return change("vocab.json", **changed)


def rename_piece(folder: Path, name: str) -> None:
    """Renames a piece of the vocabulary, and `<pad>` itself to `[pad]`."""
    path = folder / "vocab.json"
    pieces = {
        "[pad]" if piece == "<pad>" else name if i == 7 else piece: i
        for piece, i in json.loads(path.read_text()).items()
    }
    pieces["<<pad>>"] = pieces.pop(next(piece for piece, i in pieces.items() if i == 8))
    path.write_text(json.dumps(pieces))


HUGE = {"x": {"dtype": "F32", "shape": [2**40], "data_offsets": [0, 2**42]}}
POSITIONS = "model.encoder.embed_positions.weight"
DEEP = "[" * 200_000
CASES: dict[str, tuple[Callable[[Path], None], str]] = {
    "another model": (change("config.json", model_type="t5"), "is for a model of type 't5'"),
    "pre-norm": (change("config.json", normalize_before=True), "has normalize_before True, which nmt does not have"),
    "untied": (change("config.json", tie_word_embeddings=False), "has tie_word_embeddings False"),
    "activation": (change("config.json", activation_function="tanh"), "has activation_function 'tanh'"),
    "list as activation": (change("config.json", activation_function=["relu"]), "has activation_function ['relu']"),
    "sides differ": (change("config.json", decoder_ffn_dim=7), "different encoder_ffn_dim and decoder_ffn_dim"),
    "no size": (change("config.json", d_model=None), "config.json has no d_model"),
    "wrong size": (change("config.json", encoder_layers="1"), "--encoder-layers must be a whole number"),
    "huge size": (change("config.json", encoder_layers=10**9), "--encoder-layers must be at least 1"),
    "heads": (change("config.json", encoder_attention_heads=3, decoder_attention_heads=3), "has 3 heads, but"),
    "more layers": (change("config.json", encoder_layers=2), "no tensor model.encoder.layers.1.self_attn.q_proj"),
    "fewer layers": (change("config.json", encoder_layers=1, decoder_layers=1, d_model=4), "with the shape"),
    "vocabulary size": (change("config.json", vocab_size=3), "has the vocabulary size 3, but"),
    "huge vocabulary": (change("config.json", vocab_size=10**10), "has the vocabulary size 10000000000, but"),
    "no vocabulary size": (change("config.json", vocab_size="9"), "has the vocabulary size '9'"),
    "sharing is text": (
        change("config.json", share_encoder_decoder_embeddings="yes"), "has share_encoder_decoder_embeddings 'yes'"
    ),
    "separate embeddings": (
        change("config.json", share_encoder_decoder_embeddings=False), "no tensor model.encoder.embed_tokens.weight"
    ),
    "weights are a folder": (
        lambda folder: remove("model.safetensors")(folder) or (folder / "model.safetensors").mkdir(),
        "model.safetensors cannot be read (it is a folder); give the name of a file, or download all files",
    ),
    "torch weights are a folder": (
        lambda folder: remove("model.safetensors")(folder) or (folder / "pytorch_model.bin").mkdir(),
        "pytorch_model.bin cannot be read (it is a folder); give the name of a file, or download all files",
    ),
    "piece is no text": (
        lambda folder: rename_piece(folder, "\ud800"), r"has the piece '\ud800', which is not valid text"
    ),
    "piece with a name of nmt": (
        lambda folder: rename_piece(folder, "<pad>"), "the piece '<<pad>>', a name that nmt uses"
    ),
    "special id": (change("config.json", pad_token_id=10**6), "the id of padding is 1000000"),
    "no config": (remove("config.json"), "config.json cannot be read (No such file or directory)"),
    "config is no JSON": (write("config.json", "{"), "config.json is not JSON"),
    "deep JSON": (write("config.json", DEEP), "config.json is not JSON"),
    "config is a list": (write("config.json", "[]"), "is a JSON list, not an object"),
    "no languages": (change("tokenizer_config.json", source_lang=None), "give it with --source-lang"),
    "same languages": (change("tokenizer_config.json", source_lang="fr"), "both languages are fr"),
    "language with a slash": (change("tokenizer_config.json", source_lang="../x"), "source_lang is '../x'"),
    "no vocabulary": (remove("vocab.json"), "vocab.json cannot be read"),
    "no unknown piece": (vocabulary(**{"<unk>": None}), "has no piece '<unk>' for unknown text"),
    "id twice": (vocabulary(another=5), "gives the same id to two pieces"),
    "id too large": (vocabulary(another=10**6), "has the id 1000000 for the piece 'another'"),
    "id is text": (vocabulary(another="5"), "has the id '5' for the piece 'another'"),
    "two vocabularies": (change("tokenizer_config.json", separate_vocabs=True), "one embedding for two vocabularies"),
    "no segmentation": (remove("source.spm"), "source.spm cannot be read"),
    "empty segmentation": (write("target.spm", b""), "target.spm is not a sentencepiece model"),
    "no weights": (remove("model.safetensors"), "has neither model.safetensors nor pytorch_model.bin"),
    "empty weights": (write("model.safetensors", b""), "is not a safetensors file"),
    "no tensors": (tensors({}), "no tensor model.shared.weight"),
    "tensor beyond the file": (tensors(HUGE), "is not a safetensors file"),
    "header beyond the file": (tensors({}, length=2**50), "is not a safetensors file"),
    "shape and bytes differ": (
        tensors({"x": {"dtype": "F32", "shape": [2**62, 4], "data_offsets": [0, 4]}}, data=b"abcd"),
        "is not a safetensors file",
    ),
    "record": (change("config.json", nmt={"text": {"subword": "x"}}), "config.json is damaged"),
    "record of another subword": (
        change("config.json", nmt={"text": {
            "source_lang": "a", "target_lang": "b", "source_tokenizer": "none", "target_tokenizer": "none",
            "normalize_punctuation": "none", "lowercase": False, "subword": "bpe", "joint_vocab": True, "tags": [],
        }}),
        "source.spm has the ids -1, 0, 1, 2 for pad, unk, bos and eos",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_damaged_and_unsuitable_folders_are_refused(model: Path, tmp_path: Path, case: str) -> None:
    damage, message = CASES[case]
    shutil.copytree(model, tmp_path / "model")
    damage(tmp_path / "model")
    said = failed("import", "huggingface", tmp_path / "model", "--output", tmp_path / "model.safetensors")
    assert message in said
    assert len(said) < 600
    assert list(tmp_path.iterdir()) == [tmp_path / "model"]


def test_a_file_instead_of_the_folder_is_refused(model: Path, tmp_path: Path) -> None:
    said = failed("import", "huggingface", model / "config.json", "--output", tmp_path / "model.safetensors")
    assert "config.json is a file; give the folder of the model" in said


@pytest.mark.parametrize(("legacy", "dtype"), [
    (False, torch.float32), (True, torch.float32), (False, torch.float16), (True, torch.bfloat16),
])  # fmt: skip
def test_weights_in_a_torch_file_are_those_in_safetensors(
    model: Path, tmp_path: Path, legacy: bool, dtype: torch.dtype
) -> None:
    """The torch file also has position encodings, and all names of the embedding, as those of Opus-MT."""
    theirs = transformers.MarianMTModel.from_pretrained(model, dtype=dtype)
    theirs.save_pretrained(tmp_path / "safetensors")
    shutil.copytree(model, tmp_path / "model")
    (tmp_path / "model" / "model.safetensors").unlink()
    state = theirs.state_dict()
    assert {"lm_head.weight", "model.encoder.embed_tokens.weight", POSITIONS} <= state.keys()
    path = tmp_path / "model" / "pytorch_model.bin"
    torch.save(state | {"version": torch.tensor([1])}, path, _use_new_zipfile_serialization=not legacy)
    run("import", "huggingface", tmp_path / "model", "--output", tmp_path / "torch.safetensors")
    shutil.copy(tmp_path / "safetensors" / "model.safetensors", tmp_path / "model")
    run("import", "huggingface", tmp_path / "model", "--output", tmp_path / "safetensors.safetensors")
    assert same_weights(tmp_path / "torch.safetensors", tmp_path / "safetensors.safetensors")


@pytest.mark.parametrize(("name", "message"), [
    ("lm_head.weight", "differs from the target embedding, but nmt uses one matrix for both"),
    ("model.encoder.embed_positions.weight", "are not the sinusoids of MarianMT"),
    ("final_logits_bias", "has final_logits_bias for 3 pieces instead of"),
    ("model.encoder.layers.0.adapter", "has the tensor 'model.encoder.layers.0.adapter', which nmt does not know"),
    ("model.encoder.layers.0.fc1.bias", "has the tensor model.encoder.layers.0.fc1.bias with the shape (3,), but"),
])  # fmt: skip
def test_other_weights_are_refused(model: Path, tmp_path: Path, name: str, message: str) -> None:
    shutil.copytree(model, tmp_path / "model")
    (tmp_path / "model" / "model.safetensors").unlink()
    state = transformers.MarianMTModel.from_pretrained(model).state_dict() | {name: torch.ones(3)}
    torch.save(state, tmp_path / "model" / "pytorch_model.bin")
    assert message in failed("import", "huggingface", tmp_path / "model", "--output", tmp_path / "model.safetensors")


_REBUILD = torch._utils._rebuild_tensor_v2  # type: ignore[attr-defined]


class Crafted:
    """A tensor with a shape, an offset and a stride that do not fit its storage."""

    def __init__(self, *arguments: Any) -> None:
        self.arguments = arguments

    def __reduce__(self) -> tuple[Any, ...]:
        storage = torch.zeros(4).untyped_storage()
        typed = torch.storage.TypedStorage(wrap_storage=storage, dtype=torch.float32, _internal=True)
        return _REBUILD, (typed, *self.arguments, False, {})


TENSORS: dict[str, Any] = {
    "too large": (0, (2**40,), (1,)),
    "beyond the end": (3, (4,), (1,)),
    "repeated": (0, (2**40,), (0,)),
    "negative": (0, (-1,), (1,)),
    "negative offset": (-1, (4,), (1,)),
    "not contiguous": (0, (2, 2), (1, 2)),
    "shape is text": (0, "abc", (1,)),
    "shape of text": (0, ("a",), (1,)),
}


@pytest.mark.parametrize("legacy", [False, True])
@pytest.mark.parametrize("case", [*TENSORS, "code", "pickle", "truncated", "text", "empty"])
def test_malicious_torch_files_are_refused_and_nothing_runs(
    model: Path, tmp_path: Path, case: str, legacy: bool
) -> None:
    trap = Trap(tmp_path / "trapped")
    shutil.copytree(model, tmp_path / "model")
    (tmp_path / "model" / "model.safetensors").unlink()
    path = tmp_path / "model" / "pytorch_model.bin"
    content = {"x": Crafted(*TENSORS[case])} if case in TENSORS else {"x": trap, "y": argparse.Namespace(a=1)}
    torch.save(content, path, _use_new_zipfile_serialization=not legacy)
    if case == "truncated":
        path.write_bytes(path.read_bytes()[:-60])
    elif case in ("pickle", "text", "empty"):
        path.write_bytes({"pickle": pickle.dumps(trap), "text": b"abc\n", "empty": b""}[case])
    said = failed("import", "huggingface", tmp_path / "model", "--output", tmp_path / "model.safetensors")
    messages = {
        **dict.fromkeys(("code", "pickle"), "names posix.mkdir, which models do not need; do not trust this file"),
        **dict.fromkeys(("repeated", "not contiguous"), "pytorch_model.bin has no tensor"),
    }
    if legacy:  # torch reads the pickle before it notices the end, and makes a storage that is large enough
        messages |= {"truncated": messages["code"], "too large": "pytorch_model.bin does not fit into memory"}
    assert messages.get(case, "is not a torch file with the weights of a model") in said
    assert not (tmp_path / "trapped").exists()
    assert not (tmp_path / "model.safetensors").exists()


class Reduced:
    """An object that a pickle makes by the function and the arguments of `reduced`."""

    def __init__(self, *reduced: Any) -> None:
        self.reduced = reduced

    def __reduce__(self) -> Any:
        return self.reduced


def exploits(trapped: Path) -> dict[str, tuple[object, str | None]]:
    """Returns contents of files that would make the folder `trapped`, with the name that is refused, if any."""
    command, code = f"mkdir {trapped}", f"__import__('os').mkdir({str(trapped)!r})"
    return {
        "system": (Reduced(os.system, (command,)), "posix.system"),
        "eval": (Reduced(eval, (code,)), "builtins.eval"),
        "exec": (Reduced(exec, (code,)), "builtins.exec"),
        "getattr": (Reduced(getattr, (argparse.Namespace, "mro")), "builtins.getattr"),
        "import": (Reduced(__import__, ("os",)), "builtins.__import__"),
        "nested": (Reduced(collections.Counter, (Reduced(os.mkdir, (str(trapped),)),)), "posix.mkdir"),
        "in a dictionary": (collections.OrderedDict(x=Reduced(os.mkdir, (str(trapped),))), "posix.mkdir"),
        "state setter": (Reduced(argparse.Namespace, (), {"a": 1}, None, None, eval), "builtins.eval"),
        "__setstate__": (Reduced(argparse.Namespace, (), Reduced(os.mkdir, (str(trapped),))), "posix.mkdir"),
        "call of a function of torch": (Reduced(torch.hub.set_dir, (str(trapped),)), None),
        "call of numpy": (Reduced(np.memmap, (str(trapped), "u1", "w+", 0, (1,))), None),
    }


@pytest.mark.parametrize("legacy", [False, True])
@pytest.mark.parametrize("name", exploits(Path()))
def test_exploits_in_torch_files_run_nothing(model: Path, tmp_path: Path, name: str, legacy: bool) -> None:
    content, refused = exploits(tmp_path / "trapped")[name]
    shutil.copytree(model, tmp_path / "model")
    (tmp_path / "model" / "model.safetensors").unlink()
    path = tmp_path / "model" / "pytorch_model.bin"
    torch.save({"x": content}, path, pickle_protocol=4, _use_new_zipfile_serialization=not legacy)
    said = failed("import", "huggingface", tmp_path / "model", "--output", tmp_path / "model.safetensors")
    # A call of a name that is known, but not needed, gives an object without effect, which is no tensor.
    assert (f"names {refused}, which models do not need" if refused else "pytorch_model.bin has no tensor") in said
    assert not (tmp_path / "trapped").exists()
    assert not (tmp_path / "model.safetensors").exists()
