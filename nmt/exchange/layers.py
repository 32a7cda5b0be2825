"""The weights of layers in this toolkit, and in MarianMT and fairseq models, which name them alike.

The others store queries, keys and values separately. They put all sine columns of the position encodings before all
cosine columns; nmt interleaves them. Conversion therefore permutes the d_model axis of each weight.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from nmt.config import ModelConfig


@dataclass(frozen=True)
class Part:
    """A matrix or a LayerNorm, and its bias.

    Attributes:
        ours: its name in nmt, without `.weight`.
        theirs: names of the other toolkit's matrices that are joined in this one.
        shape: the shape of the weight of each of these parts.
        axis: the axis with d_model columns.
        always_biased: whether it has a bias even without --attention-biases.
    """

    ours: str
    theirs: tuple[str, ...]
    shape: tuple[int, ...]
    axis: int
    always_biased: bool = True


def parts(config: ModelConfig) -> Iterator[Part]:
    """Yields all parts of the encoder's and the decoder's layers."""
    for number in range(config.encoder_layers):
        yield from _layer(config, f"encoder.{number}", f"encoder.layers.{number}")
    for number in range(config.decoder_layers):
        ours, theirs = f"decoder.{number}", f"decoder.layers.{number}"
        yield from _layer(config, ours, theirs)
        cross = f"{ours}.cross_attention", f"{theirs}.encoder_attn"
        yield _reading(config, f"{cross[0]}.query", cross[1], "q")
        yield _reading(config, f"{cross[0]}.key_value", cross[1], "kv")
        yield _attention_output(config, *cross)
        yield _norm(config, f"{cross[0]}_residual.norm", f"{cross[1]}_layer_norm")


def _layer(config: ModelConfig, ours: str, theirs: str) -> Iterator[Part]:
    """Yields what encoder and decoder layers have: self-attention and a feed-forward network."""
    attention = f"{ours}.self_attention", f"{theirs}.self_attn"
    yield _reading(config, f"{attention[0]}.query_key_value", attention[1], "qkv")
    yield _attention_output(config, *attention)
    yield _norm(config, f"{attention[0]}_residual.norm", f"{attention[1]}_layer_norm")
    feed_forward = f"{ours}.feed_forward"
    yield Part(f"{feed_forward}.inner", (f"{theirs}.fc1",), (config.d_ff, config.d_model), 1)
    yield Part(f"{feed_forward}.outer", (f"{theirs}.fc2",), (config.d_model, config.d_ff), 0)
    yield _norm(config, f"{feed_forward}_residual.norm", f"{theirs}.final_layer_norm")


def _reading(config: ModelConfig, ours: str, theirs: str, letters: str) -> Part:
    names = tuple(f"{theirs}.{letter}_proj" for letter in letters)
    return Part(ours, names, (config.heads * config.d_k, config.d_model), 1, always_biased=False)


def _attention_output(config: ModelConfig, ours: str, theirs: str) -> Part:
    shape = config.d_model, config.heads * config.d_v
    return Part(f"{ours}.output", (f"{theirs}.out_proj",), shape, 0, always_biased=False)


def _norm(config: ModelConfig, ours: str, theirs: str) -> Part:
    return Part(ours, (theirs,), (config.d_model,), 0)


def our_columns(d_model: int) -> Tensor:
    """Returns, for each of our columns, the number of the same column in a model with all sines before all cosines."""
    return torch.arange(d_model).view(2, -1).T.flatten()


def from_theirs(config: ModelConfig, take: Callable[[str, tuple[int, ...]], Tensor]) -> dict[str, Tensor]:
    """Returns the weights of all layers by our names. The attention has biases, whether the config says so or not.

    Args:
        take: returns the tensor with a name and a shape.
    """
    columns, weights = our_columns(config.d_model), {}
    for part in parts(config):
        weight = torch.cat([take(f"{name}.weight", part.shape) for name in part.theirs])
        bias = torch.cat([take(f"{name}.bias", part.shape[:1]) for name in part.theirs])
        weights[f"{part.ours}.weight"] = weight.index_select(part.axis, columns)
        weights[f"{part.ours}.bias"] = bias[columns] if part.axis == 0 else bias
    return weights


def without_attention_biases(config: ModelConfig, weights: dict[str, Tensor]) -> dict[str, Tensor]:
    """Returns the weights without the biases of attention."""
    biases = {f"{part.ours}.bias" for part in parts(config) if not part.always_biased}
    return {name: weight for name, weight in weights.items() if name not in biases}


def to_theirs(config: ModelConfig, weights: dict[str, Tensor]) -> dict[str, Tensor]:
    """Returns the weights of all layers by their names. Biases that the attention does not have are zero."""
    columns, found = our_columns(config.d_model).argsort(), {}
    for part in parts(config):
        weight = weights[f"{part.ours}.weight"].index_select(part.axis, columns)
        bias = weights.get(f"{part.ours}.bias")
        if bias is None:
            bias = weight.new_zeros(weight.shape[0])
        elif part.axis == 0:
            bias = bias[columns]
        for name, rows, biases in zip(part.theirs, weight.split(part.shape[0]), bias.split(part.shape[0]), strict=True):
            found[f"{name}.weight"], found[f"{name}.bias"] = rows.contiguous(), biases.contiguous()
    return found
