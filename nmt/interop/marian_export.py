"""Writes models for Marian and its engines in browsers, Bergamot and Firefox: the inverse of `nmt.interop.marian`."""

import json
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from nmt import console
from nmt.checkpoint import Checkpoint, materialized
from nmt.config import Facts, ModelConfig
from nmt.errors import NmtError
from nmt.files import new_folder
from nmt.interop.conversion import check_supported
from nmt.interop.huggingface_text import check_text
from nmt.interop.marian import layers
from nmt.interop.marian_files import FLOAT32, INT8, OPTIONS, TEXT, Array
from nmt.interop.model_card import model_card
from nmt.interop.sentencepiece_model import CONTROL, protobuf
from nmt.text.codec import SubwordModel
from nmt.text.mapped import SPECIAL_PIECES
from nmt.text.subword import EOS, PAD, SILENT, UNK, processor_of

_USE = """The folder is for Marian's engines, such as Bergamot, which Firefox translates with. `config.yml` names the
files. `marian-decoder -c config.yml` of browsermt's Marian translates with it, one sentence a line."""
_ALIGNMENT = 256  # bytes
# What Marian expects to read, though it has no effect on these models.
_OFF = (
    "skip layer-normalization right-left tied-embeddings-src ulr ulr-trainable-transformation output-omit-bias "
    "transformer-no-projection transformer-pool transformer-train-position-embeddings transformer-aan-nogate "
    "transformer-rnn-projection bert-train-type-embeddings"
)
_WITHOUT_EFFECT = {
    "input-types": [], "transformer-tied-layers": [], "enc-type": "bidirectional", "enc-cell": "gru",
    "transformer-aan-activation": "swish", "lemma-dim-emb": 0, "ulr-dim-emb": 0, "transformer-postprocess-emb": "d",
    "enc-cell-depth": 1, "dec-cell-high-depth": 1, "dec-cell-base-depth": 2, "transformer-aan-depth": 2,
    "bert-type-vocab-size": 2, "dim-rnn": 1024, "transformer-dim-aan": 1024,
} | dict.fromkeys(_OFF.split(), False)  # fmt: skip


def export_marian(checkpoint: Checkpoint, origin: str, output: str, *, facts: Facts, quantization: str) -> None:
    """Writes a folder with model.bin, the vocabularies, config.yml and README.md.

    Args:
        quantization: `float32`, or `int8` for matrices in 8 bits.

    Raises:
        NmtError: Marian does not support the architecture or the text processing.
    """
    config, text = checkpoint.model_config, checkpoint.codec.config
    check_supported(config, origin, "Marian", ("decoder", "sinusoids"))
    if config.activation == "gelu":
        raise NmtError(f"--activation gelu of {origin} is another function in versions of Marian; train one with relu")
    if config.sinusoids != "marian":
        raise NmtError(f"Marian needs a model with --sinusoids marian, but {origin} has {config.sinusoids}; train one")
    check_text(checkpoint.codec, origin, "Marian")
    if text.has_moses or text.lowercase or text.languages:
        problem = f"{origin} needs Moses, small letters or such tokens; export it in another format"
        raise NmtError(f"Marian's engines take raw text without tokens of languages, but {problem}")
    if text.tags:
        tags = f"{origin} has the tags {' '.join(text.tags)}, which Marian's engines do not put before a sentence"
        console.warn(f"{tags}; they translate every sentence as one without a tag")
    if quantization == "int8" and (config.d_model % 64 or config.d_ff % 64):
        sizes = f"{origin} has d_model {config.d_model} and d_ff {config.d_ff}"
        raise NmtError(f"products in 8 bits need multiples of 64, but {sizes}; give --quantization float32")
    names = ["vocab.spm"] * 2 if text.joint_vocab else ["srcvocab.spm", "trgvocab.spm"]
    sides = [_spm(side, origin) for side in (checkpoint.codec.source, checkpoint.codec.target)]
    tensors = _tensors(checkpoint)
    options = _options(config, [len(processor_of(side)) for side in sides], text.joint_vocab)
    data = _binary(tensors, json.dumps(options), int8=quantization == "int8")
    precision = "int8shiftAll" if quantization == "int8" else "float32"
    lists = {"models": ["model.bin"], "vocabs": names}
    settings = "".join(f"{key}:\n" + "".join(f"  - {name}\n" for name in listed) for key, listed in lists.items())
    settings += f"relative-paths: true\nbeam-size: 1\nnormalize: 1.0\nword-penalty: 0\ngemm-precision: {precision}\n"
    files = {"model.bin": data, "config.yml": settings.encode(), **dict(zip(names, sides, strict=True))}
    again = "`nmt import marian` makes it a checkpoint of the toolkit nmt again."
    files["README.md"] = model_card(checkpoint, origin, _USE, facts, len(data), again).encode()
    with new_folder(output, "--output") as folder:
        for name, content in files.items():
            (Path(folder) / name).write_bytes(content)


def _options(config: ModelConfig, sizes: list[int], shared: bool) -> dict[str, Any]:
    is_recurrent = config.decoder == "ssru"
    return _WITHOUT_EFFECT | {
        "type": "transformer", "dim-vocabs": sizes, "dim-emb": config.d_model, "transformer-heads": config.heads,
        "transformer-dim-ffn": config.d_ff, "enc-depth": config.encoder_layers, "dec-depth": config.decoder_layers,
        "tied-embeddings-all": shared, "tied-embeddings": not shared, "transformer-ffn-depth": 2,
        "transformer-ffn-activation": config.activation, "transformer-preprocess": "",
        "transformer-postprocess": "dan", "transformer-postprocess-top": "",
        "transformer-decoder-autoreg": "rnn" if is_recurrent else "self-attention",
        "dec-cell": "ssru" if is_recurrent else "gru", "version": "v1.9.56",
        "transformer-guided-alignment-layer": str(config.guided_alignment or "last"),
    }  # fmt: skip


def _rows(size: int) -> list[int]:
    """Returns our id for each of Marian's: </s> and <unk> come first, and PAD fills the ids up to a multiple of 8.

    Products in 8 bits need that.
    """
    return [EOS, UNK, *range(EOS + 1, size), *[PAD] * (-(size - 2) % 8)]


def _spm(side: SubwordModel, origin: str) -> bytes:
    """Returns a sentencepiece model with Marian's ids; see `_rows`."""
    proto = protobuf().ModelProto.FromString(side.model)
    ours = [each for each in proto.pieces if each.piece not in SPECIAL_PIECES]
    if [each.piece for each in ours] != side.vocabulary[EOS + 1 :]:
        problem = f"{origin} has other pieces than its sentencepiece model, but Marian has one list"
        raise NmtError(f"{problem}; export it in another format")
    special = {each.piece: each for each in proto.pieces if each.piece in SPECIAL_PIECES}
    ordered = [special[SPECIAL_PIECES[EOS]], special[SPECIAL_PIECES[UNK]], *ours]
    del proto.pieces[:]
    proto.pieces.extend(ordered)
    for i in range(len(_rows(len(side))) - len(ordered)):
        proto.pieces.add(piece=f"<unused {i}>", type=CONTROL)
    proto.trainer_spec.vocab_size = len(proto.pieces)
    proto.trainer_spec.eos_id, proto.trainer_spec.unk_id = 0, 1
    proto.trainer_spec.bos_id = proto.trainer_spec.pad_id = -1
    return bytes(proto.SerializeToString())


def _tensors(checkpoint: Checkpoint) -> dict[str, Array]:
    """Returns Marian's tensors by name, in its order. Biases that the model lacks are zero."""
    weights = {name: materialized(weight).float().numpy() for name, weight in checkpoint.weights.items()}
    tensors: dict[str, Array] = {}
    for name, parts, shape in layers(checkpoint.model_config):
        joined = weights[name] if name in weights else np.zeros((len(parts) * shape[0], *shape[1:]), np.float32)
        for part, weight in zip(parts, np.split(joined, len(parts)), strict=True):
            tensors[part] = weight.T if weight.ndim == 2 else weight[None]
    shared = checkpoint.codec.config.joint_vocab
    for side in ("target",) if shared else ("target", "source"):
        name = "Wemb" if shared else {"target": "decoder_Wemb", "source": "encoder_Wemb"}[side]
        tensors[name] = weights[f"{side}_embedding.weight"][_rows(len(weights[f"{side}_embedding.weight"]))]
    bias_V = weights.get("output_bias", np.zeros(len(weights["target_embedding.weight"]), np.float32)).copy()
    bias_V[PAD] = SILENT
    tensors["decoder_ff_logit_out_b"] = bias_V[None, _rows(len(bias_V))]
    return dict(sorted(tensors.items()))


def _binary(tensors: Mapping[str, Array], options: str, *, int8: bool) -> bytes:
    """Returns the content of a binary model; see `nmt.interop.marian_files`."""
    stored: list[tuple[str, int, tuple[int, ...], bytes]] = []
    for name, tensor in tensors.items():
        if int8 and len(tensor) > 1:
            factor = np.float32(127 / np.abs(tensor).max())
            numbers = np.rint(tensor * factor).astype(np.int8)
            content = (numbers if name.endswith("Wemb") else numbers.T).tobytes() + factor.tobytes()
            stored.append((name, INT8, tensor.shape, content))
        else:
            stored.append((name, FLOAT32, tensor.shape, np.ascontiguousarray(tensor, np.float32).tobytes()))
    stored.append((OPTIONS, TEXT, (len(options) + 1,), options.encode() + b"\0"))
    contents = [content + bytes(-len(content) % _ALIGNMENT) for *_, content in stored]
    parts = [struct.pack("<2Q", 1, len(stored))]
    for (name, kind, shape, _), content in zip(stored, contents, strict=True):
        parts.append(struct.pack("<4Q", len(name) + 1, kind, len(shape), len(content)))
    parts += [name.encode() + b"\0" for name, *_ in stored]
    parts += [struct.pack(f"<{len(shape)}i", *shape) for _, _, shape, _ in stored]
    padding = -(sum(map(len, parts)) + 8) % _ALIGNMENT
    return b"".join([*parts, struct.pack("<Q", padding), bytes(padding), *contents])
