"""Imports models of Marian: those of Firefox, whose weights have 8 bits, and those of Opus-MT. Needs no torch.

See https://marian-nmt.github.io for the options, and src/models/transformer.h of marian-dev for the names of tensors.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from nmt import __version__
from nmt.checkpoint_format import Content, write_model
from nmt.config import ModelConfig
from nmt.data.vocabulary_map import entry
from nmt.errors import NmtError
from nmt.files import Output, read_bytes
from nmt.interop.marian_files import ADVICE, Array, Stored, read_model, read_shortlist, read_yaml
from nmt.text.codec import TextCodec
from nmt.text.languages import MULTIPLE, matching
from nmt.text.mapped import SPECIAL_PIECES, Mapped, language_code_pieces
from nmt.text.subword import BOS, EOS, PAD, SILENT, UNK, processor_of
from nmt.text.text_config import RAW_TEXT, TextConfig

_LANGUAGES = re.compile(r"\.([a-z]{2,3}?)([a-z]{2,3})\.intgemm")  # as in model.enpt.intgemm.alphas.bin
_CONFIG_BYTES = 10_000  # a larger YAML file is a vocabulary
_SIZE = re.compile("[1-9][0-9]{0,5}")
_SIZES = "dim-emb", "transformer-heads", "transformer-dim-ffn", "enc-depth", "dec-depth"
# The options of models that nmt cannot represent.
_NEVER = (
    "right-left ulr transformer-train-positions transformer-train-position-embeddings transformer-no-projection "
    "transformer-disable-position-embeddings transformer-no-bias transformer-no-affine transformer-pool "
    "transformer-rnn-projection"
)
# The options that change what a model computes, and their values that nmt can represent, the default first.
_KNOWN: dict[str, tuple[Any, ...]] = {
    "type": ("transformer",), "input-types": ([],), "lemma-dim-emb": ("0",), "transformer-ffn-depth": ("2",),
    "transformer-decoder-autoreg": ("self-attention", "rnn"), "transformer-decoder-ffn-depth": ("0",),
    "transformer-ffn-activation": ("relu", "swish", "gelu"), "transformer-decoder-dim-ffn": ("0",),
    "transformer-postprocess-emb": ("d", ""), "transformer-attention-mask": ("default",),
    "transformer-tied-layers": ([],),
} | dict.fromkeys(_NEVER.split(), ("false",))  # fmt: skip
# What is done before and after the sub-layers and at the top, without dropout: the sum and the norm. Versions of Marian
# compute norms before the sub-layers differently: older ones and Bergamot normalise only the query of self-attention.
_POST_NORM = ["", "an", ""]


class Vocabulary(NamedTuple):
    """The file of a side's vocabulary, its pieces by Marian's ids, and the sentencepiece model that cuts text."""

    path: Path
    pieces: list[str]
    model: bytes


def import_marian(
    folder: str, source_lang: str | None, target_lang: str | None, origin: str = ""
) -> tuple[Callable[[Output], None], Iterator[str] | None]:
    """Returns a function that writes the model in a folder as a checkpoint, and the lines of its vocabulary map.

    The map is None if the folder has no shortlist.

    Args:
        source_lang, target_lang: the languages; None if the names of the files say them, such as `model.enpt.bin`.
        origin: what the provenance calls the model; by default its folder.

    Raises:
        NmtError: a file is missing or damaged, or nmt cannot represent the model.
    """
    path, vocabulary_paths, shortlist_path = _files(Path(folder))
    options, tensors = read_model(path)
    config = _model_config(options, path)
    shared = "true" in (options.get("tied-embeddings-all"), options.get("tied-embeddings-src"))
    source, target = _vocabulary(vocabulary_paths[0], 0), _vocabulary(vocabulary_paths[-1], -1)
    sizes = [len(source.pieces), len(target.pieces)]
    if options.get("dim-vocabs") != list(map(str, sizes)) or (shared and source.pieces != target.pieces):
        given = f"{source.path} with {sizes[0]:,} pieces and {target.path} with {sizes[1]:,}"
        expected = f"{path} has dim-vocabs {options.get('dim-vocabs')!r:.40}, {'in one' if shared else 'two'} embedding"
        raise NmtError(f"{given} are not its vocabularies: {expected}; download all files again")
    codec = _codec(source, target, shared, path, source_lang, target_lang)
    weights = _weights(config, tensors, sizes, shared, path)
    lines = None
    if shortlist_path:
        lines = _map_lines(read_shortlist(shortlist_path, *sizes), source.pieces, target.pieces, shared)
    provenance = {"nmt": __version__, "imported": {"format": "marian", "folder": origin or folder}}
    return lambda file: write_model(file, config, codec, weights, provenance), lines


def _files(folder: Path) -> tuple[Path, list[Path], Path | None]:
    """Returns the files of the model, of one or both vocabularies, and of the shortlist, if there is one.

    The configuration of a decoder names them. Without it, they are those in the folder.
    """
    if not folder.is_dir():
        raise NmtError(f"{folder} is not a folder; give the folder of a model of Marian")
    listed = sorted(folder.iterdir())
    named: dict[str, Any] = {}
    for path in listed:
        if path.suffix == ".yml" and path.stat().st_size < _CONFIG_BYTES:
            options = read_yaml(read_bytes(path, ADVICE), path)
            named = options if "models" in options else named

    def files(option: str, pattern: str) -> list[Path]:
        names = [name for name in named.get(option) or () if isinstance(name, str) and name.isprintable()]
        # Only the last part of a name counts, so that no file elsewhere is read.
        return [folder / Path(name).name for name in names] or [
            path for path in listed if re.fullmatch(pattern, path.name)
        ]

    models, vocabularies = (
        files("models", r"(?!lex|qualityModel).*\.(bin|npz)"),
        files("vocabs", r".*vocab.*\.(spm|ya?ml)"),
    )
    if len(models) != 1 or not 1 <= len(vocabularies) <= 2:
        counts = f"{len(models)} models (.bin or .npz) and {len(vocabularies)} vocabularies (.spm or .yml)"
        raise NmtError(f"{folder} has {counts}; leave one model in it, and its vocabulary or both vocabularies")
    shortlists = [path for path in files("shortlist", r"lex.*\.bin") if path.suffix == ".bin"]
    return models[0], vocabularies, shortlists[0] if shortlists else None


def _model_config(options: Mapping[str, Any], path: Path) -> ModelConfig:
    for name, values in _KNOWN.items():
        if options.get(name, values[0]) not in values:
            raise NmtError(f"{path} has {name} {options[name]!r:.40}, which nmt does not have; take another model")
    if options.get("transformer-ffn-activation") == "gelu":
        raise NmtError(
            f"{path} has the activation gelu, which versions of Marian compute differently; take another model"
        )
    names = (f"transformer-{place}" for place in ("preprocess", "postprocess", "postprocess-top"))
    steps = {name: str(options.get(name, "")) for name in names}
    if [step.replace("d", "") for step in steps.values()] != _POST_NORM:
        given = ", ".join(f"{name} {step!r:.40}" for name, step in steps.items())
        raise NmtError(f"{path} has {given}, but nmt computes only post-norm (dan) as Marian does; take another model")
    decoder = "attention" if options.get("transformer-decoder-autoreg") != "rnn" else options.get("dec-cell")
    if decoder not in ("attention", "ssru"):
        raise NmtError(f"{path} has dec-cell {decoder!r:.40}, but nmt has ssru; take another model")
    if "true" not in (options.get("tied-embeddings-all"), options.get("tied-embeddings")):
        untied = f"{path} has tied-embeddings {options.get('tied-embeddings')!r:.40}"
        raise NmtError(f"{untied}, but in nmt the softmax has the matrix of the embedding; take another model")
    sizes = [str(options.get(name)) for name in _SIZES]
    if not all(map(_SIZE.fullmatch, sizes)) or int(sizes[0]) % int(sizes[1]):
        given = ", ".join(f"{name} {size:.10}" for name, size in zip(_SIZES, sizes, strict=True))
        raise NmtError(f"{path} has {given}, which are not the sizes of a Transformer; download it again")
    d_model, heads, d_ff, encoder_layers, decoder_layers = map(int, sizes)
    # The head that learned alignments is the first one of this layer. Students of Firefox have one in the last layer.
    aligned = str(options.get("transformer-guided-alignment-layer", "last"))
    guided = int(aligned) if _SIZE.fullmatch(aligned) else decoder_layers if decoder == "ssru" else None
    config = {
        "encoder_layers": encoder_layers, "decoder_layers": decoder_layers, "d_model": d_model, "d_ff": d_ff,
        "heads": heads, "d_k": d_model // heads, "d_v": d_model // heads, "dropout": 0.1,
        "activation": options.get("transformer-ffn-activation", "relu"), "attention_biases": True, "output_bias": True,
        "sinusoids": "marian", "decoder": decoder, "guided_alignment": guided,
    }  # fmt: skip
    return ModelConfig.from_dict(config, str(path))


def _vocabulary(path: Path, side: int) -> Vocabulary:
    """Returns a vocabulary. For a list of pieces, the first (0) or the last (-1) file .spm beside it cuts text."""
    models = [path] if path.suffix == ".spm" else sorted(path.parent.glob("*.spm"))
    if not models:
        raise NmtError(f"{path.parent} has no sentencepiece model (.spm), which cuts text; take a model with one")
    model = read_bytes(models[side], ADVICE)
    try:
        processor = processor_of(model)
        pieces: list[str] = processor.id_to_piece(list(range(len(processor))))
    except (RuntimeError, ValueError) as error:
        raise NmtError(f"{models[side]} is not a sentencepiece model, or is damaged; download it again") from error
    if path.suffix != ".spm":
        ids = read_yaml(read_bytes(path, ADVICE), path)
        if {str(i) for i in ids.values()} != {str(i) for i in range(len(ids))}:
            raise NmtError(f"{path} does not give each id from 0 to {len(ids) - 1:,} to one piece; download it again")
        pieces = sorted(ids, key=lambda piece: int(ids[piece]))
    if pieces[:2] != [SPECIAL_PIECES[EOS], SPECIAL_PIECES[UNK]]:
        raise NmtError(f"{path} begins with {pieces[:2]!r:.80} instead of </s> and <unk>; take another model")
    special = SPECIAL_PIECES[PAD], SPECIAL_PIECES[BOS]
    return Vocabulary(path, [f"<{piece}>" if piece in special else piece for piece in pieces], model)


def _codec(
    source: Vocabulary, target: Vocabulary, shared: bool, path: Path, source_lang: str | None, target_lang: str | None
) -> TextCodec:
    if named := _LANGUAGES.search(path.name):
        source_lang, target_lang = source_lang or named[1], target_lang or named[2]
    tokens = language_code_pieces(source.pieces)
    languages: dict[str, Any] = {"source_lang": source_lang, "target_lang": target_lang, "tags": tokens}
    if len(tokens) > 1:
        languages = target_languages(tokens, source_lang, target_lang, path)
    elif not source_lang or not target_lang or source_lang == target_lang:
        raise NmtError(f"{path} does not name two languages; give them with --source-lang and --target-lang")
    text = TextConfig.from_dict(RAW_TEXT | languages | {"subword": "marian", "joint_vocab": shared}, str(path))
    first, second = (Mapped([*SPECIAL_PIECES, *side.pieces[2:]], side.model, "marian") for side in (source, target))
    return TextCodec.checked(text, first, second, str(path))


def target_languages(
    tokens: Sequence[str], source_lang: str | None, target_lang: str | None, origin: Path
) -> dict[str, Any]:
    """Returns the values of `TextConfig` for a model of several target languages with tokens such as >>fra<<."""
    if target_lang is not None:
        advice = "leave out --target-lang here, and name one when you translate"
        raise NmtError(f"{origin} translates into several languages; {advice}")
    codes = [token.removeprefix(">>").removesuffix("<<") for token in tokens]
    with suppress(NmtError):  # the model does not translate into it
        source_lang = source_lang and matching(source_lang, codes)
    directions = [f"{source_lang} {code}" for code in codes if source_lang not in (None, code)]
    named = {"source_lang": MULTIPLE, "target_lang": MULTIPLE, "languages": codes, "language_pieces": tokens}
    return named | {"directions": directions}


def layers(config: ModelConfig) -> Iterator[tuple[str, list[str], tuple[int, ...]]]:
    """Yields the name of each weight of the layers, Marian's names of its parts, and the shape of each part.

    Marian's matrices are transposed, and its vectors are matrices with one row.
    """
    d_model, d_ff = config.d_model, config.d_ff

    def norm(name: str, prefix: str) -> Iterator[tuple[str, list[str], tuple[int, ...]]]:
        for ours, theirs in (("weight", "scale"), ("bias", "bias")):
            yield f"{name}.{ours}", [f"{prefix}_ln_{theirs}"], (d_model,)

    def product(name: str, prefix: str, letters: str, *shape: int) -> Iterator[tuple[str, list[str], tuple[int, ...]]]:
        shape = shape or (d_model, d_model)
        yield f"{name}.weight", [f"{prefix}_W{letter}" for letter in letters], shape
        yield f"{name}.bias", [f"{prefix}_b{letter}" for letter in letters], shape[:1]

    for side, layers in (("encoder", config.encoder_layers), ("decoder", config.decoder_layers)):
        for name, prefix in ((f"{side}.{i}", f"{side}_l{i + 1}") for i in range(layers)):
            if side == "decoder" and config.decoder == "ssru":
                unit = f"{name}.self_attention"
                yield f"{unit}.forget_candidate.weight", [f"{prefix}_rnn_Wf", f"{prefix}_rnn_W"], (d_model, d_model)
                yield f"{unit}.forget_bias", [f"{prefix}_rnn_bf"], (d_model,)
                yield from norm(f"{unit}_residual.norm", f"{prefix}_rnn_ffn")
            else:
                yield from product(f"{name}.self_attention.query_key_value", f"{prefix}_self", "qkv")
                yield from product(f"{name}.self_attention.output", f"{prefix}_self", "o")
                yield from norm(f"{name}.self_attention_residual.norm", f"{prefix}_self_Wo")
            if side == "decoder":
                for part, letters in (("query", "q"), ("key_value", "kv"), ("output", "o")):
                    yield from product(f"{name}.cross_attention.{part}", f"{prefix}_context", letters)
                yield from norm(f"{name}.cross_attention_residual.norm", f"{prefix}_context_Wo")
            yield from product(f"{name}.feed_forward.inner", f"{prefix}_ffn", "1", d_ff, d_model)
            yield from product(f"{name}.feed_forward.outer", f"{prefix}_ffn", "2", d_model, d_ff)
            yield from norm(f"{name}.feed_forward_residual.norm", f"{prefix}_ffn_ffn")


def _weights(
    config: ModelConfig, tensors: dict[str, Stored], sizes: Sequence[int], shared: bool, path: Path
) -> dict[str, Content]:
    """Returns the weights by our names. Their numbers are computed when they are written.

    Args:
        sizes: the pieces of both vocabularies.
    """

    def take(name: str, *shape: int) -> Stored:
        given = tensors[name].numbers.shape if name in tensors else "no"
        if given != shape:
            raise NmtError(f"{path} has the tensor {name} of shape {given} instead of {shape}; {ADVICE}")
        return tensors.pop(name)

    weights: dict[str, Content] = {}
    for name, parts, shape in layers(config):
        stored = [take(part, *(shape[::-1] if len(shape) == 2 else (1, *shape))) for part in parts]
        weights[name] = _content((len(parts) * shape[0], *shape[1:]), partial(_joined, stored))
    names = {"target": "Wemb"} if shared else {"source": "encoder_Wemb", "target": "decoder_Wemb"}
    for (side, name), size in zip(names.items(), sizes, strict=False):  # if shared, both sizes are equal
        rows = partial(_our_rows, take(name, size, config.d_model), 0.0)
        weights[f"{side}_embedding.weight"] = _content((size + 2, config.d_model), rows)
    name, size = "decoder_ff_logit_out_b", sizes[1]
    bias = take(name, 1, size) if name in tensors else Stored(np.zeros((1, size)))
    rows = partial(_our_rows, bias._replace(numbers=bias.numbers[0]), SILENT)
    weights["output_bias"] = _content((size + 2,), rows)
    if tensors:
        raise NmtError(f"{path} has the tensor {min(tensors)!r:.80}, which nmt does not have; take another model")
    return weights


def _content(shape: tuple[int, ...], compute: Callable[[], Array]) -> Content:
    def parts() -> list[memoryview]:
        return [np.ascontiguousarray(compute(), np.float32).reshape(-1).view(np.uint8).data]

    return Content("float32", shape, parts)


def _joined(parts: Sequence[Stored]) -> Array:
    return np.concatenate([part.read().T for part in parts])


def _our_rows(stored: Stored, missing: float) -> Array:
    """Returns the rows of our ids. Marian has no PAD and no BOS: it begins a target with a vector of zeros."""
    theirs = stored.read()
    ours = theirs[[0, 1, 0, 0, *range(2, len(theirs))]]
    ours[[PAD, BOS]] = missing
    return ours


def _map_lines(shortlist: Sequence[Array], source: Sequence[str], target: Sequence[str], shared: bool) -> Iterator[str]:
    """Yields the lines of a vocabulary map. If both sides share a vocabulary, a piece may also be copied."""
    for i, (piece, ids) in enumerate(zip(["", *source], shortlist, strict=True)):
        yield entry(piece, [*(target[j] for j in ids), *([piece] if shared and i else [])])
