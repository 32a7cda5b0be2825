"""Imports checkpoints of fairseq's `transformer`, as its public source describes them, and has its names of weights."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from nmt import __version__
from nmt.checkpoint import Checkpoint, Computed, build_model, materialized
from nmt.config import ModelConfig
from nmt.errors import NmtError
from nmt.interop.conversion import ForeignVocabulary, Languages, Settings, Tensors, our_columns
from nmt.interop.foreign_files import Inert, read_torch_file
from nmt.model.architectures import weight_shapes
from nmt.model.transformer import sinusoids
from nmt.text.codec import TextCodec
from nmt.text.corpus import read_lines
from nmt.text.mapped import Mapped
from nmt.text.text_config import TextConfig

# fairseq's names for each weight of a layer in nmt, which joins some matrices. MarianMT in transformers has them, too.
_WEIGHTS = {
    "self_attention.query_key_value": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
    "self_attention.output": ("self_attn.out_proj",), "self_attention_residual.norm": ("self_attn_layer_norm",),
    "cross_attention.query": ("encoder_attn.q_proj",), "cross_attention.output": ("encoder_attn.out_proj",),
    "cross_attention.key_value": ("encoder_attn.k_proj", "encoder_attn.v_proj"),
    "cross_attention_residual.norm": ("encoder_attn_layer_norm",), "feed_forward.inner": ("fc1",),
    "feed_forward.outer": ("fc2",), "feed_forward_residual.norm": ("final_layer_norm",),
}  # fmt: skip


def _tensor_names(config: ModelConfig) -> Iterator[tuple[str, list[str], tuple[int, ...], int | None]]:
    """Yields our name of each weight and bias of encoder and decoder, fairseq's names, and the shape of each of these.

    The number is the axis that `our_columns` reorders, which is the model's width.
    """
    for name, shape in weight_shapes(config, 1).items():
        ours, _, kind = name.rpartition(".")
        stack, *layer = ours.split(".", 2)
        if kind == "weight" and (len(layer) == 2 or stack.endswith("_norm")):
            final_norm = [f"{stack.removesuffix('_norm')}.layer_norm"]
            theirs = [f"{stack}.layers.{layer[0]}.{x}" for x in _WEIGHTS[layer[1]]] if layer else final_norm
            rows, is_width = shape[0] // len(theirs), ours.endswith(("output", "outer", "norm"))
            yield name, [f"{x}.weight" for x in theirs], (rows, *shape[1:]), 0 if is_width else 1
            yield f"{ours}.bias", [f"{x}.bias" for x in theirs], (rows,), 0 if is_width else None


def _reordered(axis: int | None, columns: Tensor) -> Callable[[Tensor], Tensor]:
    return torch.clone if axis is None else partial(torch.index_select, dim=axis, index=columns)


def from_fairseq(config: ModelConfig, tensors: Tensors, prefix: str = "", first: int = 0) -> dict[str, Computed]:
    """Returns the weights of encoder and decoder by our names, from a model with the names of fairseq.

    The width of a head is d_model / heads. Attention always gets biases, whatever the config says. Besides these
    weights, only position encodings may be left in `tensors`. They must be those of the architecture.

    Args:
        prefix: the beginning of the names.
        first: the row of the first position in the position encodings.
    """
    columns, weights = our_columns(config.d_model), {}
    for ours, theirs, shape, axis in _tensor_names(config):
        parts = [tensors.take(f"{prefix}{name}", shape) for name in theirs]
        whole_shape = len(theirs) * shape[0], *shape[1:]
        weights[ours] = Computed(parts[0].dtype, whole_shape, parts, _reordered(axis, columns))
    for name in (
        f"{prefix}{stack}.embed_positions.weight{ending}" for stack in ("encoder", "decoder") for ending in ("", "s")
    ):
        encodings = tensors.take_if_there(name)
        if encodings is None:
            continue
        rows = encodings.numel() // config.d_model
        expected = sinusoids(rows, config)[: max(0, rows - first), columns.argsort()]
        fits = encodings.shape == (rows, config.d_model)
        # Some models are stored in 16 bits.
        if not fits or not torch.allclose(encodings[first:].float(), expected, rtol=0, atol=5e-3):
            sinusoids_differ = f"position encodings ({name}) that are not the sinusoids of its type of model"
            raise NmtError(f"{tensors.origin} has {sinusoids_differ}; use a model with static positions")
    tensors.check_all_taken()
    return weights


def to_fairseq(config: ModelConfig, weights: Mapping[str, Tensor]) -> dict[str, Computed]:
    """Returns the weights of encoder and decoder by the names of transformers. Biases that the model lacks are zero."""
    columns, tensors = our_columns(config.d_model).argsort(), {}
    for ours, theirs, shape, axis in _tensor_names(config):
        joined = weights.get(ours, torch.zeros(len(theirs) * shape[0], dtype=weights["target_embedding.weight"].dtype))
        for name, part in zip(theirs, joined.split(shape[0]), strict=True):
            tensors[f"model.{name}"] = Computed(part.dtype, shape, [part], _reordered(axis, columns))
    return tensors


# The pieces with ids 0 to 3. A dictionary file of fairseq leaves them out, so its first line has id 4.
FIRST_PIECES = "<s>", "<pad>", "</s>", "<unk>"
_PAD, _EOS, _UNK = range(1, len(FIRST_PIECES))
# fastBPE writes codes like version 0.2 of subword-nmt, and the frequency of each merge behind it.
_VERSION = ["#version:", "0.2"]


def read_dictionary(path: Path) -> ForeignVocabulary:
    """Returns the ids of a dictionary of fairseq."""
    pieces: dict[str, None] = dict.fromkeys(FIRST_PIECES)
    for line_number, line in enumerate(list(read_lines(path)) or [""], start=1):
        piece, _, count = line.removesuffix(" #fairseq:overwrite").rpartition(" ")
        if not piece or not count.isdecimal() or piece in pieces:
            wrong = f"{line!r:.80} is not a new piece and a number"
            raise NmtError(f"{path}, line {line_number}: {wrong}; give fairseq's dict file")
        pieces[piece] = None
    return ForeignVocabulary((_PAD, _UNK, _EOS, _EOS), dict(enumerate(pieces)), len(pieces))


def read_codes(path: Path) -> bytes:
    """Returns the codes of subword-nmt in a file, or those of fastBPE as subword-nmt writes them."""
    merges = [line.strip("\r ").split(" ") for line in "\n".join(read_lines(path)).rstrip("\n").split("\n")]
    version = merges.pop(0) if merges[0][0].startswith("#version") else []
    columns = 3 if merges and len(merges[0]) == 3 else 2
    for line_number, merge in enumerate(merges, start=2 if version else 1):
        if len(merge) != columns or not all(merge):
            line = f"{path}, line {line_number}: {' '.join(merge)!r:.80}"
            raise NmtError(f"{line} is not a merge of two pieces; give BPE codes")
    if columns == 2 and all(merge[1].isdecimal() for merge in merges):
        raise NmtError(f"{path} has no merges, but is perhaps a dictionary; give BPE codes")
    lines = [_VERSION if columns == 3 else version, *(merge[:2] for merge in merges)]
    return "".join(f"{' '.join(line)}\n" for line in lines if line).encode()


# Options that change what the model computes, and that nmt does not have.
_UNSUPPORTED = "no_scale_embedding", "no_token_positional_embeddings", "adaptive_softmax_cutoff"
# Other names of the target embedding, used by the softmax.
_SOFTMAX = "decoder.output_projection.weight", "decoder.embed_out"
# For messages about tensors that do not fit: what determines the expected names and shapes, and what to do.
_ADVICE = "its options or --dict", "give the dict files of this model, or another model"
_OLD_NORMS = {
    "encoder": ("self_attn_layer_norm", "final_layer_norm"),
    "decoder": ("self_attn_layer_norm", "encoder_attn_layer_norm", "final_layer_norm"),
}


def import_fairseq(
    file: str, dictionaries: Sequence[str], codes: str, tokenizer: str, lowercase: bool, languages: Languages
) -> Checkpoint:
    """Returns the model in a checkpoint file of fairseq.

    Args:
        dictionaries: the files of the dictionaries of source and target; one file if they are the same.
        codes: the file of the BPE codes.
        tokenizer: `moses` or `none`.
    """
    path = Path(file)
    content, tensors = read_torch_file(path, "model")
    tensors = {name: tensor.float() for name, tensor in tensors.items()}
    options = _options(content, path)
    for name in (*_UNSUPPORTED, "no_cross_attention", "cross_self_attention"):
        options.choice(name, [False, None], False)
    config = options.model_config(
        d_model=options.both_sides("embed_dim"),
        d_ff=options.both_sides("ffn_embed_dim"),
        activation=options.choice("activation_fn", ["relu", "gelu", "swish"], "relu"),
        activation_dropout=options.values.get("activation_dropout") or options.values.get("relu_dropout") or 0.0,
        norm="pre" if options.both_sides("normalize_before") else "post",
        sinusoids="fairseq",
    )
    vocabularies = {name: read_dictionary(Path(name)) for name in dictionaries}
    sides = dictionaries[0], dictionaries[-1]
    source, target = (vocabularies[name] for name in sides)
    named = Tensors(_modern(tensors, config), path, *_ADVICE)
    source_VD = materialized(named.take("encoder.embed_tokens.weight", (source.size, config.d_model)))
    target_VD = materialized(named.take("decoder.embed_tokens.weight", (target.size, config.d_model)))
    named.drop_copies(_SOFTMAX, target_VD, "use a model with --share-decoder-input-output-embed")
    for stack in ("encoder", "decoder"):
        for buffer in ("version", "embed_positions._float_tensor"):
            named.take_if_there(f"{stack}.{buffer}")
    weights = {name: materialized(weight) for name, weight in from_fairseq(config, named).items()}
    weights["source_embedding.weight"] = materialized(source.our_embedding(source_VD))
    weights["target_embedding.weight"] = materialized(target.our_embedding(target_VD))
    weights["output_bias"] = target.our_bias(torch.zeros(target.size))
    joint = source == target and torch.equal(weights["source_embedding.weight"], weights["target_embedding.weight"])
    if joint:
        del weights["source_embedding.weight"]
    langs = options.languages(languages)
    # The files of a model do not say how its text was tokenised.
    name = "escaping-moses-{}" if tokenizer == "moses" else "none"
    tokenizers = {f"{side}_tokenizer": name.format(langs[f"{side}_lang"]) for side in ("source", "target")}
    rest = {"normalize_punctuation": "both", "lowercase": lowercase, "subword": "subword-nmt", "joint_vocab": joint}
    text = TextConfig.from_dict({**langs, **tokenizers, **rest}, str(path))
    merges = read_codes(Path(codes))
    try:
        subwords = [Mapped(vocabularies[name].our_pieces(name), merges, "subword-nmt") for name in sides]
    except ValueError as error:
        raise NmtError(f"{codes} is not a file of BPE codes ({error}); give the codes file of the model") from error
    provenance = {"nmt": __version__, "imported": {"format": "fairseq", "file": file}}
    checkpoint = Checkpoint(config, TextCodec(text, *subwords), weights, provenance)
    build_model(checkpoint, file)  # checks that the weights fit
    return checkpoint


def _options(content: Mapping[str, Any], path: Path) -> Settings:
    """Returns the options of the model: `args` of old checkpoints, or `cfg` of newer ones."""
    options = content.get("args")
    if options is None and isinstance(content.get("cfg"), dict):
        options = content["cfg"].get("model")
    if isinstance(options, Inert):
        options = options.state
    if not isinstance(options, dict):
        raise NmtError(f"{path} has no options of a fairseq model (args, or cfg with model); use another file")
    return Settings(options, path)


def _modern(tensors: Mapping[str, Tensor], config: ModelConfig) -> dict[str, Tensor]:
    """Returns the tensors with their present names. Old checkpoints number the norms and join some matrices."""
    modern, rows = {}, (3 * config.d_model,)
    for name, tensor in tensors.items():
        if norm := re.fullmatch(r"(encoder|decoder)([.]\w+[.]\w+[.])layer_norms[.]([012])([.]\w+)", name):
            names = _OLD_NORMS[norm[1]]
            modern[f"{norm[1]}{norm[2]}{names[int(norm[3]) % len(names)]}{norm[4]}"] = tensor
        elif (joined := re.fullmatch("(.*[.])in_proj_(weight|bias)", name)) and tensor.shape[:1] == rows:
            parts = zip("qkv", tensor.split(config.d_model), strict=True)
            modern |= {f"{joined[1]}{letter}_proj.{joined[2]}": part for letter, part in parts}
        else:
            modern[name] = tensor
    return modern
