"""Damaged and malicious models of other toolkits are refused in one sentence, and no code in them runs."""

import argparse
import collections
import json
import pickle
import shutil
import struct
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers  # loads its models only when a test uses one
from checkpoints import TEXT_CONFIG, Trap
from commands import failed, run, same_weights
from marian import change, write_model

pytestmark = pytest.mark.xdist_group("transformers")  # so that one process of the suite imports its models


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns the folder of a small MarianMT model."""
    folder = tmp_path_factory.mktemp("marian") / "model"
    sizes = {"d_model": 8, "encoder_attention_heads": 2, "decoder_attention_heads": 2}
    write_model(folder, encoder_layers=1, decoder_layers=1, **sizes)
    return folder


@pytest.fixture
def folder(model: Path, tmp_path: Path) -> Path:
    """Returns a copy of it that a test may change."""
    return Path(shutil.copytree(model, tmp_path / "model"))


def refused(folder: Path) -> str:
    """Returns the error message of an import that fails, which must leave nothing behind."""
    said = failed("import", "huggingface", folder, "--output", folder.with_name("model.safetensors"))
    assert len(said) < 600
    assert list(folder.parent.iterdir()) == [folder]
    return said


def save_torch(folder: Path, content: Any, legacy: bool) -> Path:
    """Replaces the weights by a file of torch.save, in its old format if `legacy`, and returns its path."""
    (folder / "model.safetensors").unlink()
    path = folder / "pytorch_model.bin"
    torch.save(content, path, pickle_protocol=4, _use_new_zipfile_serialization=not legacy)
    return path


config = partial(change, "config.json")


def write(name: str, content: bytes) -> Callable[[Path], object]:
    return lambda folder: (folder / name).write_bytes(content)


def remove(name: str) -> Callable[[Path], None]:
    return lambda folder: (folder / name).unlink()


def tensors(header: dict[str, Any]) -> Callable[[Path], object]:
    """Returns a function that writes a safetensors file with this header."""
    text = json.dumps(header).encode()
    return write("model.safetensors", struct.pack("<Q", len(text)) + text)


def rename(*names: str) -> Callable[[Path], None]:
    """Returns a function that renames pieces of the vocabulary from id 7 on, and `<pad>` itself to `[pad]`."""

    def apply(folder: Path) -> None:
        pieces = {i: piece for piece, i in json.loads((folder / "vocab.json").read_text()).items()}
        pieces |= {len(pieces) - 1: "[pad]", **dict(enumerate(names, start=7))}
        (folder / "vocab.json").write_text(json.dumps({piece: i for i, piece in pieces.items()}))

    return apply


HUGE = {"x": {"dtype": "F32", "shape": [2**40], "data_offsets": [0, 2**42]}}
POSITIONS = "model.encoder.embed_positions.weight"
CASES: dict[str, tuple[Callable[[Path], object], str]] = {
    "another model": (config(model_type="t5"), "is for a model of type 't5'"),
    "models in a list": (config(model_type=["marian"]), "is for a model of type \"['marian']\""),
    "pre-norm": (config(normalize_before=True), "has normalize_before True, which nmt does not have"),
    "untied": (config(tie_word_embeddings=False), "has tie_word_embeddings False"),
    "activation": (config(activation_function="tanh"), "has activation_function 'tanh'"),
    "list as activation": (config(activation_function=["relu"]), "has activation_function ['relu']"),
    "sides differ": (config(decoder_ffn_dim=7), "different encoder_ffn_dim and decoder_ffn_dim"),
    "no size": (config(d_model=None), "config.json has no d_model"),
    "wrong size": (config(encoder_layers="1"), "--encoder-layers must be a whole number"),
    "huge size": (config(encoder_layers=10**9), "--encoder-layers must be at least 1"),
    "heads": (config(encoder_attention_heads=3, decoder_attention_heads=3), "has 3 heads, but"),
    "more layers": (config(encoder_layers=2), "no tensor model.encoder.layers.1.self_attn.q_proj"),
    "fewer layers": (config(encoder_layers=1, decoder_layers=1, d_model=4), "with the shape"),
    "vocabulary size": (config(vocab_size=3), "config.json says that it has (3, 8); download both"),
    "no vocabulary size": (config(vocab_size="9"), "config.json says that it has ('9', 8)"),
    "sharing is text": (config(share_encoder_decoder_embeddings="yes"), "has share_encoder_decoder_embeddings 'yes'"),
    "separate embeddings": (config(share_encoder_decoder_embeddings=False), "no tensor model.encoder.embed_tokens."),
    "piece is no text": (rename("\ud800"), r"has the piece '\ud800', which is not valid text"),
    "piece with a name of nmt": (rename("<pad>", "<<pad>>"), "the piece '<<pad>>', a name that nmt uses"),
    "special id": (config(pad_token_id=10**6), "has the id 1000000 for padding, but the model has"),
    "no config": (remove("config.json"), "config.json cannot be read (No such file or directory)"),
    "config is no JSON": (write("config.json", b"{"), "config.json is not JSON"),
    "deep JSON": (write("config.json", b"[" * 200_000), "config.json is not JSON"),
    "config is a list": (write("config.json", b"[]"), "is a JSON list, not an object"),
    "no languages": (change("tokenizer_config.json", source_lang=None), "give it to nmt import with --source-lang"),
    "same languages": (change("tokenizer_config.json", source_lang="fr"), "both languages are fr"),
    "language with a slash": (change("tokenizer_config.json", source_lang="../x"), "source_lang is '../x'"),
    "no unknown piece": (change("vocab.json", **{"<unk>": None}), "has no piece '<unk>' for unknown text"),
    "id too large": (change("vocab.json", another=10**6), "has the id 1000000 for the piece 'another'"),
    "id is text": (change("vocab.json", another="5"), "has the id '5' for the piece 'another'"),
    "empty segmentation": (write("target.spm", b""), "target.spm is not a sentencepiece model"),
    "no weights": (remove("model.safetensors"), "has neither model.safetensors nor pytorch_model.bin"),
    "empty weights": (write("model.safetensors", b""), "is not a safetensors file"),
    "no tensors": (tensors({}), "no tensor model.shared.weight"),
    "tensor beyond the file": (tensors(HUGE), "is not a safetensors file"),
    "record": (config(nmt={"text": {"subword": "x"}}), "config.json was written by another version of nmt"),
    "record of another subword": (config(nmt={"text": TEXT_CONFIG.to_dict()}), "has the ids -1, 0, 1, 2 for pad, unk"),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_damaged_and_unsuitable_folders_are_refused(folder: Path, case: str) -> None:
    damage, message = CASES[case]
    damage(folder)
    assert message in refused(folder)


def test_a_file_and_a_folder_in_place_of_the_other_are_refused(folder: Path, tmp_path: Path) -> None:
    said = failed("import", "huggingface", folder / "config.json", "--output", tmp_path / "model.safetensors")
    assert "config.json cannot be read (Not a directory); give the name of a file" in said
    (folder / "model.safetensors").unlink()
    (folder / "model.safetensors").mkdir()
    assert "model.safetensors cannot be read (Is a directory); give the name of a file" in refused(folder)


def test_an_import_does_not_replace_its_input(folder: Path) -> None:
    content = (folder / "model.safetensors").read_bytes()
    said = failed("import", "huggingface", folder, "--output", folder / "model.safetensors")
    assert "is the same file as the input" in said
    assert (folder / "model.safetensors").read_bytes() == content


@pytest.mark.parametrize(("legacy", "dtype"), [
    (False, torch.float32), (True, torch.float32), (False, torch.float16), (True, torch.bfloat16),
])  # fmt: skip
def test_weights_in_a_torch_file_are_those_in_safetensors(folder: Path, legacy: bool, dtype: torch.dtype) -> None:
    """The torch file also has position encodings, and all names of the embedding, as those of Opus-MT."""
    theirs = transformers.MarianMTModel.from_pretrained(folder, dtype=dtype)
    theirs.save_pretrained(folder)
    first, second = (folder.with_name(f"{name}.safetensors") for name in ("first", "second"))
    run("import", "huggingface", folder, "--output", first)
    state = theirs.state_dict()
    assert {"lm_head.weight", "model.encoder.embed_tokens.weight", POSITIONS} <= state.keys()
    save_torch(folder, state | {"version": torch.tensor([1])}, legacy)
    run("import", "huggingface", folder, "--output", second)
    assert same_weights(first, second)


@pytest.mark.parametrize(("name", "message"), [
    ("lm_head.weight", "differs from the target embedding, but nmt uses one matrix for both"),
    (POSITIONS, "are not the sinusoids of its type of model"),
    ("final_logits_bias", "has the tensor final_logits_bias with the shape (3,), but config.json says"),
    ("model.encoder.layers.0.adapter", "has the tensor 'model.encoder.layers.0.adapter', which nmt does not know"),
    ("model.encoder.layers.0.fc1.bias", "has the tensor model.encoder.layers.0.fc1.bias with the shape (3,), but"),
])  # fmt: skip
def test_other_weights_are_refused(folder: Path, name: str, message: str) -> None:
    state = transformers.MarianMTModel.from_pretrained(folder).state_dict() | {name: torch.ones(3)}
    save_torch(folder, state, legacy=False)
    assert message in refused(folder)


class Reduced:
    """An object that a pickle makes by the function and the arguments of `reduced`."""

    def __init__(self, *reduced: Any) -> None:
        self.reduced = reduced

    def __reduce__(self) -> Any:
        return self.reduced


NO_TENSOR, DAMAGED = "pytorch_model.bin has no tensor", "is not a torch file with the weights of a model"
# Tensors by the offset, the shape and the stride in their storage, which has four numbers.
TENSORS: dict[str, Any] = {
    "too large": (0, (2**50,), (1,)),
    "beyond the end": (3, (4,), (1,)),
    "repeated": (0, (2**40,), (0,)),
    "negative": (0, (-1,), (1,)),
    "negative offset": (-1, (4,), (1,)),
    "not contiguous": (0, (2, 2), (1, 2)),
    "shape is text": (0, "abc", (1,)),
}


@pytest.mark.parametrize("legacy", [False, True])
@pytest.mark.parametrize("case", TENSORS)
def test_crafted_tensors_are_refused(folder: Path, case: str, legacy: bool) -> None:
    untyped = torch.zeros(4).untyped_storage()
    storage = torch.storage.TypedStorage(wrap_storage=untyped, dtype=torch.float32, _internal=True)
    crafted = Reduced(torch._utils._rebuild_tensor_v2, (storage, *TENSORS[case], False, {}))
    save_torch(folder, {"x": crafted}, legacy)
    messages = dict.fromkeys(("repeated", "not contiguous"), NO_TENSOR)
    if legacy:  # torch makes a storage that is large enough
        messages["too large"] = "pytorch_model.bin does not fit into memory"
    assert messages.get(case, DAMAGED) in refused(folder)


@pytest.mark.parametrize("legacy", [False, True])
def test_truncated_files_and_those_that_torch_did_not_write_are_refused(folder: Path, legacy: bool) -> None:
    path = save_torch(folder, {"x": torch.zeros(99)}, legacy)
    trap = pickle.dumps(Trap(folder.with_name("trapped")))
    for content in (path.read_bytes()[:-60], b"abc\n", b"", trap):
        path.write_bytes(content)
        assert ("names posix.mkdir, which models do not need" if content == trap else DAMAGED) in refused(folder)


def exploits(trapped: Path) -> dict[str, tuple[object, str | None]]:
    """Returns contents of files that would make the folder `trapped`, with the name that is refused, if any."""
    code, trap = f"__import__('os').mkdir({str(trapped)!r})", Trap(trapped)
    return {
        "mkdir": (trap, "posix.mkdir"),
        "eval": (Reduced(eval, (code,)), "builtins.eval"),
        "getattr": (Reduced(getattr, (argparse.Namespace, "mro")), "builtins.getattr"),
        "nested": (Reduced(collections.Counter, (trap,)), "posix.mkdir"),
        "in a dictionary": (collections.OrderedDict(x=trap), "posix.mkdir"),
        "state setter": (Reduced(argparse.Namespace, (), {"a": 1}, None, None, eval), "builtins.eval"),
        "__setstate__": (Reduced(argparse.Namespace, (), trap), "posix.mkdir"),
        "call of a function of torch": (Reduced(torch.hub.set_dir, (str(trapped),)), None),
        "call of numpy": (Reduced(np.memmap, (str(trapped), "u1", "w+", 0, (1,))), None),
    }


@pytest.mark.parametrize("legacy", [False, True])
@pytest.mark.parametrize("name", exploits(Path()))
def test_exploits_in_torch_files_run_nothing(folder: Path, name: str, legacy: bool) -> None:
    content, forbidden = exploits(folder.with_name("trapped"))[name]
    save_torch(folder, {"x": content}, legacy)
    # A call of a name that is known, but not needed, gives an object without effect, which is no tensor.
    message = f"names {forbidden}, which models do not need; do not trust this file" if forbidden else NO_TENSOR
    assert message in refused(folder)
