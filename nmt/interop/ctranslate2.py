"""Exports a checkpoint in the format of CTranslate2, which translates in C++ and in int8.

The export needs the package `ctranslate2`. CTranslate2 reads and writes pieces. Therefore the exported folder also
has the subword models, which convert between text and pieces.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from nmt import console
from nmt.checkpoint import Checkpoint
from nmt.config import Facts
from nmt.config.translation import LONGEST_EXPORTED
from nmt.data.folder import model_names
from nmt.data.vocabulary_map import VocabularyMap
from nmt.errors import importing
from nmt.files import new_folder
from nmt.interop.conversion import check_supported
from nmt.interop.model_card import example, example_codec, model_card
from nmt.model.transformer import bias_without_bos, sinusoids
from nmt.text.corpus import read_lines
from nmt.text.subword import BOS, EOS, NEVER, SILENT, UNK

# What the exported subword models of these kinds do not do, for a warning.
_NOT_SENTENCEPIECE = {
    "wordpiece": "segments words greedily, but sentencepiece with the exported subword model does not; get the pieces "
    "from nmt.load_checkpoint({!r}).codec instead",
    "subword-nmt": "has BPE codes; the exported subword models are codes for subword-nmt, not sentencepiece models",
}
_LARGEST = 63  # the largest weight in 8 bits, where CTranslate2 itself takes 127
# Python code that loads the exported folder, and that translates prepared lines with it.
_LOAD = """import ctranslate2, sentencepiece

source, target = map(sentencepiece.SentencePieceProcessor, {models})
translator = ctranslate2.Translator(".")"""
# CTranslate2 would cut sentences at 1,024 pieces, and translations at 256.
_TRANSLATE = """limits = {{"max_input_length": 0, "max_decoding_length": {longest}}}
results = translator.translate_batch({pieces}, {given}beam_size=4, **limits)
lines = [target.decode(result.hypotheses[0]{rest}) for result in results]"""


def export_ctranslate2(
    checkpoint: Checkpoint, origin: str, output: str, quantization: str, facts: Facts, vocabulary_map: str | None = None
) -> None:
    """Writes the folder `output`, as `write_ctranslate2` does, and warns of what its users must know."""
    with new_folder(output, "--output") as folder:
        write_ctranslate2(checkpoint, origin, folder, quantization, facts, vocabulary_map)
    text = checkpoint.codec.config
    if text.tags:
        tags = f"{origin} has tags, which are not text for the exported subword model"
        console.warn(f"{tags}; put the pieces {' '.join(text.tags)} before those of a source sentence")
    if text.languages:
        tokens = f"{origin} has tokens of languages, which are not text for the exported subword model"
        console.warn(f"{tokens}; put {text.language_pieces[0]} and the like where config.json says ({text.placement})")
    if text.subword in _NOT_SENTENCEPIECE:
        console.warn(f"{origin} {_NOT_SENTENCEPIECE[text.subword].format(origin)}")


def write_ctranslate2(
    checkpoint: Checkpoint,
    origin: str,
    folder: Path,
    quantization: str,
    facts: Facts,
    vocabulary_map: str | None,
    never: Sequence[int] = NEVER,
) -> None:
    """Writes the model, its text processing, vocabularies and subword models, and `vocabulary_map` as vmap.txt."""
    codec = checkpoint.codec
    if vocabulary_map is not None:  # CTranslate2 takes unknown pieces for UNK, and an empty map ends its process
        lines = list(read_lines(vocabulary_map))
        VocabularyMap.parsed(lines, vocabulary_map, codec)
        (folder / "vmap.txt").write_bytes("".join(f"{line}\n" for line in lines).encode())
    specification(checkpoint, origin, quantization, "nmt export ctranslate2", never).save(str(folder))
    for name, model in zip(model_names(codec.config), (codec.source, codec.target), strict=True):
        (folder / name).write_bytes(model.model)
    size = (folder / "model.bin").stat().st_size
    if codec.config.subword in _NOT_SENTENCEPIECE:
        use = "CTranslate2 takes and returns pieces. The `codec` of the checkpoint converts them from and to text."
    else:
        longest = min(1000, (checkpoint.model_config.learned_positions or LONGEST_EXPORTED) - 1)
        load, pieces = _LOAD.format(models=model_names(codec.config)), "source.encode(lines, out_type=str)"
        given = rest = ""
        if codec.config.languages:
            directed = example_codec(checkpoint)
            before, behind = map(codec.source.pieces, codec.language_tokens(directed.direction))
            prefix = codec.target.pieces(codec.given_ids(directed.direction))
            pieces, rest = f"[{before} + line + {behind} for line in {pieces}]", f"[{len(prefix)}:]"
            given = f"target_prefix=[{prefix}] * len(lines), "
        use = example(checkpoint, load, _TRANSLATE.format(longest=longest, pieces=pieces, given=given, rest=rest))
    (folder / "README.md").write_text(model_card(checkpoint, origin, use, facts, size), encoding="utf-8")


def specification(
    checkpoint: Checkpoint, origin: str, quantization: str, user: str, never: Sequence[int] = NEVER
) -> Any:
    """Returns CTranslate2's specification of the model, with quantised weights. Its method `save` writes a folder.

    Args:
        user: what needs CTranslate2, for messages: a flag or a command.
        never: pieces that no translation has. log P is computed among the others.
    """
    with importing("ctranslate2", user, extra="ctranslate2"):
        from ctranslate2.specs import transformer_spec
        from ctranslate2.specs.model_spec import visit_spec
    c, codec = checkpoint.model_config, checkpoint.codec
    check_supported(c, origin, "CTranslate2", ["norm", "learned_positions", "sinusoids", "bos_is_eos"])
    spec = transformer_spec.TransformerSpec.from_config(
        (c.encoder_layers, c.decoder_layers),
        c.heads,
        pre_norm=c.norm == "pre",
        activation=transformer_spec.common_spec.Activation[c.activation.upper()],
        # Words are aligned as in nmt.translate.alignment. The trained head is the first one.
        alignment_layer=c.guided_alignment - 1 if c.guided_alignment else -1,
        alignment_heads=1 if c.guided_alignment else c.heads,
    )
    # These are copies, because quantisation scales some weights in place.
    weights = {name: np.array(tensor.float().numpy()) for name, tensor in checkpoint.weights.items()}
    embedding = weights["target_embedding.weight"]
    positions = sinusoids(LONGEST_EXPORTED, c).numpy()
    spec.encoder.embeddings[0].weight = weights.get("source_embedding.weight", embedding)
    spec.decoder.embeddings.weight = spec.decoder.projection.weight = embedding
    spec.decoder.start_from_zero_embedding = c.sinusoids == "marian"
    if c.bos_is_eos:
        embedding[BOS], weights["output_bias"] = embedding[EOS], bias_without_bos(len(embedding)).numpy()
    if c.output_bias or c.bos_is_eos or never:
        bias = weights.get("output_bias", np.zeros(len(embedding), np.float32))
        bias[list(never)] = SILENT
        spec.decoder.projection.bias = bias
    for side, stack, language in ((spec.encoder, "encoder", "source"), (spec.decoder, "decoder", "target")):
        side.position_encodings.encodings = weights.get(f"{language}_positions.table", positions)
        for i, layer in enumerate(side.layer):
            _fill_layer(layer, weights, f"{stack}.{i}")
        if c.norm == "pre":
            _fill_norm(side.layer_norm, weights, f"{stack}_norm")
    # The exported vocabularies have the order of ours, so that every piece keeps its id.
    spec.register_source_vocabulary(codec.source.vocabulary)
    spec.register_target_vocabulary(codec.target.vocabulary)
    settings = spec.config
    settings.unk_token, settings.bos_token, settings.eos_token = codec.target.pieces([UNK, BOS, EOS])
    settings.decoder_start_token, settings.layer_norm_epsilon = settings.bos_token, 1e-5
    settings.add_source_eos = not codec.config.languages or codec.config.placement != "behind_source"
    settings.add_attribute("text", codec.config.to_dict())
    spec.validate()
    if quantization == "int8":
        spec.optimize()
        visit_spec(spec, _quantize)
    else:
        spec.optimize(quantization=quantization)
    return spec


def _quantize(layer: Any, name: str, value: Any) -> None:
    """Replaces a weight by 8-bit numbers up to _LARGEST, with a scale for each row.

    Processors without VNNI instructions add two products of an activation, up to 255, and a weight in 16 bits.
    With larger weights, that sum would overflow.
    """
    attribute = name.rpartition("/")[2]
    if hasattr(layer, f"{attribute}_scale") and not isinstance(value, str):  # a string refers to an equal weight
        weight, variable = value.numpy(), type(value)
        scale = _LARGEST / np.abs(weight).max(axis=1, initial=1e-30)
        setattr(layer, attribute, variable(np.rint(weight * scale[:, None]).astype(np.int8)))
        setattr(layer, f"{attribute}_scale", variable(scale.astype(np.float32)))


def _fill_layer(layer: Any, weights: Mapping[str, np.ndarray], name: str) -> None:
    attention, ffn = layer.self_attention, layer.ffn
    linears = dict(zip(("self_attention.query_key_value", "self_attention.output"), attention.linear, strict=True))
    linears |= {"feed_forward.inner": ffn.linear_0, "feed_forward.outer": ffn.linear_1}
    norms = {"self_attention": attention.layer_norm, "feed_forward": ffn.layer_norm}
    if hasattr(layer, "attention"):
        matrices = "cross_attention.query", "cross_attention.key_value", "cross_attention.output"
        linears |= zip(matrices, layer.attention.linear, strict=True)
        norms["cross_attention"] = layer.attention.layer_norm
    for matrix, linear in linears.items():
        linear.weight = weights[f"{name}.{matrix}.weight"]
        if (bias := f"{name}.{matrix}.bias") in weights:
            linear.bias = weights[bias]
    for sublayer, norm in norms.items():
        _fill_norm(norm, weights, f"{name}.{sublayer}_residual.norm")


def _fill_norm(norm: Any, weights: Mapping[str, np.ndarray], name: str) -> None:
    norm.gamma, norm.beta = weights[f"{name}.weight"], weights[f"{name}.bias"]
