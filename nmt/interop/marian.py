"""Imports models of Marian, such as those of Firefox, which have weights in 8 bits, and those of Opus-MT.

It needs no torch. See https://marian-nmt.github.io for the options, and marian's src/common/binary.cpp for its files.
"""

import re
import struct
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np

from nmt import __version__
from nmt.checkpoint_format import write_model
from nmt.config import ModelConfig
from nmt.errors import NmtError, importing
from nmt.files import Output
from nmt.text.codec import TextCodec, TextConfig
from nmt.text.languages import MULTIPLE
from nmt.text.mapped import SPECIAL_PIECES, Mapped, language_tokens
from nmt.text.subword import processor_of

Array = np.ndarray
_OPTIONS = "special:model.yml"  # the tensor with the architecture
_LANGUAGES = re.compile(r"\.([a-z]{2,3}?)([a-z]{2,3})\.")  # as in model.enpt.intgemm.alphas.bin
# The text processing of models that get raw text.
_RAW: dict[str, Any] = {
    "source_tokenizer": "none", "target_tokenizer": "none", "normalize_punctuation": "none", "lowercase": False,
    "subword": "marian",
}  # fmt: skip
_SILENT = -100.0  # the logit of a piece that no output has
_HEADER, _COUNT = struct.Struct("<QQQQ"), struct.Struct("<Q")
_FLOAT32, _INT8, _CHARACTERS = 0x404, 0x4101, 0x101
_NAME_BYTES, _TENSORS, _DIMENSIONS = 200, 10_000, 4  # more than any model has

# The options that nmt has, and others with the only value that it can represent.
_KNOWN: dict[str, tuple[Any, ...]] = {
    "type": ("transformer",),
    "transformer-decoder-autoreg": ("self-attention", "rnn"),
    "transformer-ffn-activation": ("relu", "swish", "gelu"),
    "transformer-ffn-depth": (2,),
    "transformer-postprocess-emb": ("d", ""),
    "transformer-train-position-embeddings": (False,),
    "transformer-train-positions": (False,),
    "transformer-no-projection": (False,),
    "transformer-no-bias": (False,),
    "transformer-pool": (False,),
    "transformer-tied-layers": ([],),
    "transformer-depth-scaling": (False, True),  # it scales only what training begins with
    "transformer-decoder-dim-ffn": (0,),
    "transformer-decoder-ffn-depth": (0,),
    "transformer-rnn-projection": (False,),
    "bert-train-type-embeddings": (False, True),
    "ulr": (False,),
    "lemma-dim-emb": (0,),
    "input-types": ([],),
    "output-omit-bias": (False, True),
    "right-left": (False,),
}
_NORMS = {("", "dan", ""): "post", ("n", "da", "n"): "pre", ("", "an", ""): "post", ("n", "a", "n"): "pre"}


def read_binary(path: Path) -> dict[str, Array]:
    """Returns the tensors in a file of Marian by name. Numbers of 8 bits become float32.

    A file has a version, the number of tensors, the lengths of name, type, shape and data of each, all names, all
    shapes, padding, and all data.

    Raises:
        NmtError: the file is damaged, or has other types of numbers.
    """
    try:
        data = np.memmap(path, np.uint8, "r")
    except (OSError, ValueError) as error:
        raise NmtError(f"{path} cannot be read ({error!s:.100}); check the path") from error
    damaged = NmtError(f"{path} is not a whole binary model of Marian; download it again")
    position = 0

    def take(size: int) -> Array:
        nonlocal position
        if not 0 <= size <= len(data) - position:
            raise damaged
        position += size
        return data[position - size : position]

    def numbers(layout: struct.Struct) -> tuple[int, ...]:
        return layout.unpack(take(layout.size))

    version, count = *numbers(_COUNT), *numbers(_COUNT)
    if version != 1 or not 0 < count <= _TENSORS:
        raise damaged
    headers = [numbers(_HEADER) for _ in range(count)]
    if any(name > _NAME_BYTES or dimensions > _DIMENSIONS for name, _, dimensions, _ in headers):
        raise damaged
    names = [bytes(take(length)).rstrip(b"\0").decode(errors="replace") for length, *_ in headers]
    shapes = [struct.unpack(f"<{dimensions}i", take(4 * dimensions)) for _, _, dimensions, _ in headers]
    take(*numbers(_COUNT))
    tensors: dict[str, Array] = {}
    for name, shape, (_, kind, _, size) in zip(names, shapes, headers, strict=True):
        content = take(size)
        length = int(np.prod([max(0, each) for each in shape], dtype=object))
        if kind == _CHARACTERS:
            tensors[name] = content
        elif kind == _FLOAT32 and 4 * length <= size:
            tensors[name] = content[: 4 * length].view(np.float32).reshape(shape)
        elif kind == _INT8 and length + 4 <= size:
            (multiplier,) = content[length : length + 4].view(np.float32)
            numbers_of_weight = content[:length].view(np.int8).astype(np.float32) / multiplier
            # A matrix lies in memory as its transpose, unless it is an embedding.
            is_embedding = name.endswith("Wemb")
            tensors[name] = (
                numbers_of_weight.reshape(shape) if is_embedding else numbers_of_weight.reshape(shape[::-1]).T
            )
        elif not name.endswith("QuantMultA"):
            raise NmtError(
                f"{path} has numbers of type {kind:#x} in {name:.80}, but nmt reads float32 and int8; take another file of this model"
            )
    return tensors


def _read_npz(path: Path) -> dict[str, Array]:
    try:
        with np.load(path, allow_pickle=False) as file:
            return {name.removesuffix(".npy"): file[name] for name in file.files}
    except (OSError, ValueError, BadZipFile, EOFError) as error:
        raise NmtError(f"{path} is not a whole .npz model of Marian ({error!s:.100}); download it again") from error


class _Tensors:
    """The tensors of a model; each is taken once."""

    def __init__(self, tensors: dict[str, Array], path: Path) -> None:
        self._tensors, self._path = tensors, path

    def take(self, name: str, *shape: int) -> Array:
        """Returns a tensor of this shape."""
        tensor = self._tensors.pop(name, None)
        if tensor is None:
            raise NmtError(f"{self._path} has no tensor {name}, which its architecture needs; download it again")
        if tensor.shape != shape:
            given = f"{self._path} has the tensor {name} with the shape {tensor.shape}"
            raise NmtError(f"{given}, but its architecture needs {shape}; download it again")
        return tensor.astype(np.float32, copy=False)

    def __contains__(self, name: str) -> bool:
        return name in self._tensors

    def check_all_taken(self) -> None:
        """Raises an error if tensors are left, because the model computes more than nmt would."""
        if rest := [name for name in self._tensors if not name.endswith("QuantMultA")]:
            raise NmtError(f"{self._path} has the tensor {min(rest):.80}, which nmt does not have; take another model")


def import_marian(folder: str, source_lang: str | None, target_lang: str | None) -> Callable[[Output], None]:
    """Returns what writes the checkpoint of the model in a folder to a file.

    Args:
        source_lang, target_lang: the languages; None if the names of the files say them, such as `model.enpt.bin`.

    Raises:
        NmtError: a file is missing or damaged, or nmt cannot represent the model.
    """
    path = Path(folder)
    model_path = _model_file(path)
    stored = _read_npz(model_path) if model_path.suffix == ".npz" else read_binary(model_path)
    if _OPTIONS not in stored:
        raise NmtError(f"{model_path} does not say its architecture in {_OPTIONS}; take a model of Marian 1.5 or newer")
    options = _yaml(bytes(stored.pop(_OPTIONS)).rstrip(b"\0").decode(errors="replace"), model_path)
    config = _model_config(options, model_path)
    codec, ids = _text(path, model_path, options, source_lang, target_lang)
    weights = _weights(config, options, _Tensors(stored, model_path), ids)
    provenance = {"nmt": __version__, "imported": {"format": "marian", "folder": folder}}
    return lambda file: write_model(file, config, codec, weights, provenance)


def _yaml(text: str, path: Path) -> dict[str, Any]:
    with importing("yaml", "nmt import marian", extra="marian"):
        import yaml
    try:
        values = yaml.load(text, yaml.CSafeLoader)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise NmtError(f"{path} is not YAML ({error!s:.100}); download it again") from error
    if not isinstance(values, dict):
        raise NmtError(f"{path} does not have options by name; download it again")
    return values


def _model_file(path: Path) -> Path:
    """Returns the file of the weights in a folder: the one that a decoder's configuration names, or the only one."""
    if not path.is_dir():
        raise NmtError(f"{path} is not a folder; give the folder of a model of Marian")
    for config in sorted(path.glob("*.yml")):
        models = (
            _yaml(config.read_text(errors="replace"), config).get("models") if config.stat().st_size < 10_000 else None
        )
        if isinstance(models, list) and len(models) == 1 and isinstance(models[0], str):
            return path / Path(models[0]).name
    files = [
        file for file in sorted(path.iterdir()) if file.suffix in (".npz", ".bin") and not file.name.startswith("lex")
    ]
    if len(files) != 1:
        raise NmtError(f"{path} has {len(files)} models of Marian (.bin or .npz); leave one in it, and its vocabulary")
    return files[0]


def _model_config(options: Mapping[str, Any], path: Path) -> ModelConfig:
    for name, values in _KNOWN.items():
        if options.get(name, values[0]) not in values:
            raise NmtError(f"{path} has {name} {options[name]!r:.40}, which nmt does not have; take another model")
    norm = _NORMS.get(
        tuple(str(options.get(f"transformer-{each}", "")) for each in ("preprocess", "postprocess", "postprocess-top"))
    )
    if norm is None:
        raise NmtError(
            f"{path} has layers with other norms than post-norm (dan) or pre-norm (n, da, n); take another model"
        )
    is_recurrent = options.get("transformer-decoder-autoreg") == "rnn"
    if is_recurrent and (options.get("dec-cell") != "ssru" or options.get("dec-cell-base-depth", 2) != 2):
        raise NmtError(
            f"{path} has a decoder with the cell {options.get('dec-cell')!r:.40}, but nmt has ssru; take another model"
        )
    sizes = [
        options.get(name) for name in ("dim-emb", "transformer-heads", "transformer-dim-ffn", "enc-depth", "dec-depth")
    ]
    if not all(type(size) is int and size > 0 for size in sizes) or sizes[0] % sizes[1]:
        raise NmtError(f"{path} does not have the sizes of a Transformer; download it again")
    d_model, heads, d_ff, encoder_layers, decoder_layers = sizes
    head = d_model // heads
    # Students of Firefox learn alignments with the first head of the last layer.
    return ModelConfig(
        encoder_layers=encoder_layers, decoder_layers=decoder_layers, d_model=d_model, d_ff=d_ff, heads=heads, d_k=head,
        d_v=head, dropout=0.1, norm=norm, activation=options.get("transformer-ffn-activation", "relu"),
        attention_biases=True, output_bias=True, sinusoids="marian", decoder="ssru" if is_recurrent else "attention",
        guided_alignment=decoder_layers if is_recurrent else None,
    )  # fmt: skip


def _text(
    path: Path, model_path: Path, options: Mapping[str, Any], source_lang: str | None, target_lang: str | None
) -> tuple[TextCodec, list[list[int]]]:
    """Returns the text processing, and Marian's id for each of our pieces of both sides; -1 for those it lacks."""
    named = _LANGUAGES.search(model_path.name)
    source_lang, target_lang = source_lang or (named and named[1]), target_lang or (named and named[2])
    is_shared = bool(options.get("tied-embeddings-all") or options.get("tied-embeddings-src"))
    sizes = options.get("dim-vocabs")
    if not isinstance(sizes, list) or len(sizes) != 2:
        raise NmtError(f"{model_path} does not have two vocabularies; take a model that translates text")
    sides = [_vocabulary(path, side) for side in ("source", "target")]
    for (file, pieces, _), size in zip(sides, sizes, strict=True):
        if size != len(pieces):
            raise NmtError(f"{file} has {len(pieces):,} pieces, but {model_path} has {size}; download both again")
        if pieces.index("</s>") != 0 or pieces.index("<unk>") != 1:
            raise NmtError(f"{file} has other ids of </s> and <unk> than 0 and 1; take another model")
    tokens = language_tokens(sides[0][1])
    languages: dict[str, Any] = {"source_lang": source_lang, "target_lang": target_lang, "tags": tokens}
    if len(tokens) > 1:
        codes = [token.removeprefix(">>").removesuffix("<<") for token in tokens]
        directions = [f"{source_lang} {code}" for code in codes if source_lang and code != source_lang]
        languages = {"source_lang": MULTIPLE, "target_lang": MULTIPLE, "languages": codes, "language_pieces": tokens}
        languages["directions"] = directions
    elif not source_lang or not target_lang or source_lang == target_lang:
        raise NmtError(f"{model_path} does not name two languages; give them with --source-lang and --target-lang")
    text = TextConfig.from_dict(_RAW | languages | {"joint_vocab": is_shared}, str(path))
    models = [
        Mapped([*SPECIAL_PIECES, *(each for i, each in enumerate(pieces) if i > 1)], model, "marian")
        for _, pieces, model in sides
    ]
    ids = [[-1, 1, -1, 0, *range(2, len(pieces))] for _, pieces, _ in sides]
    source, target = models
    return TextCodec.checked(text, source, source if text.one_model else target, str(path)), ids


def _vocabulary(path: Path, side: str) -> tuple[Path, list[str], bytes]:
    """Returns the file of a side's vocabulary, its pieces by their ids, and the sentencepiece model that cuts text."""
    listed = [file for name in ("*.spm", "*.yml", "*.yaml") for file in sorted(path.glob(name))]
    first = {"source": ("source", "src"), "target": ("target", "trg", "tgt")}[side]
    models = [file for file in listed if file.suffix == ".spm"]
    model = next(
        (file for file in models if file.name.startswith(first)),
        models[0 if side == "source" else -1] if models else None,
    )
    if model is None:
        raise NmtError(
            f"{path} has no sentencepiece model (.spm); take a model with one, because nmt does not know how to cut its text"
        )
    data = model.read_bytes()
    try:
        processor = processor_of(data)
    except RuntimeError as error:
        raise NmtError(f"{model} is not a sentencepiece model, or is damaged; download it again") from error
    vocabularies = [file for file in listed if file.suffix != ".spm" and "vocab" in file.name]
    file = next(
        (file for file in vocabularies if first[0] in file.name or first[1] in file.name),
        vocabularies[0] if vocabularies else model,
    )
    if file is model:
        return model, [processor.id_to_piece(i) for i in range(len(processor))], data
    ids = _yaml(file.read_text(errors="replace"), file)
    if sorted(ids.values(), key=str) != sorted(range(len(ids)), key=str):
        raise NmtError(
            f"{file} does not have the ids from 0 to {len(ids) - 1:,}, each for one piece; download it again"
        )
    return file, [str(piece) for piece, _ in sorted(ids.items(), key=lambda item: item[1])], data


def _weights(
    config: ModelConfig, options: Mapping[str, Any], tensors: _Tensors, ids: list[list[int]]
) -> dict[str, Array]:
    """Returns the weights by our names."""
    weights: dict[str, Array] = {}
    d_model, d_ff = config.d_model, config.d_ff

    def product(name: str, prefix: str, *parts: str, inputs: int, outputs: int) -> None:
        """Joins the matrices W, which have the inputs first, and their biases b."""
        weights[f"{name}.weight"] = np.concatenate(
            [tensors.take(f"{prefix}_W{part}", inputs, outputs).T for part in parts]
        )
        weights[f"{name}.bias"] = np.concatenate([tensors.take(f"{prefix}_b{part}", 1, outputs)[0] for part in parts])

    def norm(name: str, prefix: str, suffix: str) -> None:
        for ours, theirs in (("weight", "scale"), ("bias", "bias")):
            weights[f"{name}.{ours}"] = tensors.take(f"{prefix}_ln_{theirs}{suffix}", 1, d_model)[0]

    def attention(name: str, prefix: str, *joined: tuple[str, str]) -> None:
        for part, letters in (*joined, ("output", "o")):
            product(f"{name}.{part}", prefix, *letters, inputs=d_model, outputs=d_model)
        norm(f"{name}_residual.norm", f"{prefix}_Wo", suffix)

    suffix = "_pre" if config.norm == "pre" else ""
    for side, layers in (("encoder", config.encoder_layers), ("decoder", config.decoder_layers)):
        for i in range(layers):
            name, prefix = f"{side}.{i}", f"{side}_l{i + 1}"
            if side == "decoder" and config.decoder == "ssru":
                matrices = [tensors.take(f"{prefix}_rnn_{each}", d_model, d_model).T for each in ("Wf", "W")]
                weights[f"{name}.self_attention.forget_candidate.weight"] = np.concatenate(matrices)
                weights[f"{name}.self_attention.forget_bias"] = tensors.take(f"{prefix}_rnn_bf", 1, d_model)[0]
                norm(f"{name}.self_attention_residual.norm", f"{prefix}_rnn{'' if suffix else '_ffn'}", suffix)
            else:
                attention(f"{name}.self_attention", f"{prefix}_self", ("query_key_value", "qkv"))
            if side == "decoder":
                attention(f"{name}.cross_attention", f"{prefix}_context", ("query", "q"), ("key_value", "kv"))
            product(f"{name}.feed_forward.inner", f"{prefix}_ffn", "1", inputs=d_model, outputs=d_ff)
            product(f"{name}.feed_forward.outer", f"{prefix}_ffn", "2", inputs=d_ff, outputs=d_model)
            norm(f"{name}.feed_forward_residual.norm", f"{prefix}_ffn_ffn", suffix)
        if config.norm == "pre":
            norm(f"{side}_norm", f"{side}_top", "")
    names = ["decoder_Wemb", "encoder_Wemb"]
    if options.get("tied-embeddings-all") or options.get("tied-embeddings-src"):
        names = ["Wemb"]
    for ours, theirs, order in zip(("target", "source"), names, reversed(ids)):
        # PAD and BOS are zero: Marian begins a target with a vector of zeros.
        table_VD = np.vstack([tensors.take(theirs, len(order) - 2, d_model), np.zeros((1, d_model), np.float32)])
        weights[f"{ours}_embedding.weight"] = table_VD[order]
    bias = "decoder_ff_logit_out_b"
    bias_V = tensors.take(bias, 1, len(ids[1]) - 2)[0] if bias in tensors else np.zeros(len(ids[1]) - 2, np.float32)
    weights["output_bias"] = np.append(bias_V, np.float32(_SILENT))[ids[1]]
    tensors.check_all_taken()
    return weights
