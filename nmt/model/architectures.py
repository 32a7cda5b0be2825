"""The registry of named architectures, their parameters, and the operations that training takes."""

import difflib
import math
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Any

from nmt.config import ModelConfig
from nmt.errors import OptionError

if TYPE_CHECKING:
    from nmt.text.codec import TextCodec

_BASE = ModelConfig(encoder_layers=6, decoder_layers=6, d_model=512, d_ff=2048, heads=8, d_k=64, d_v=64, dropout=0.1)
# The size that Wu et al. 2021 (arXiv:2105.14462) use for the 29,000 pairs of Multi30k.
_TINY = replace(_BASE, encoder_layers=4, decoder_layers=4, d_model=128, d_ff=256, heads=4, d_k=32, d_v=32, dropout=0.3)
_BIG = replace(_BASE, d_model=1024, d_ff=4096, heads=16, dropout=0.3)
_MARIAN: dict[str, Any] = {"decoder": "ssru", "sinusoids": "marian", "attention_biases": True, "output_bias": True}

ARCHITECTURES: dict[str, ModelConfig] = {
    # Paper Table 3, rows "base" and "big"; P_drop of big is 0.3 for en-de and 0.1 for en-fr (§5.4, §6.1).
    "transformer_base": _BASE,
    "transformer_big": _BIG,
    "transformer_big_en_fr": replace(_BIG, dropout=0.1),
    # Paper §6.3: "a 4-layer transformer with d_model = 1024"; "all other parameters" are those of base.
    "transformer_parsing": replace(_BASE, encoder_layers=4, decoder_layers=4, d_model=1024, d_k=128, d_v=128),
    # For treebanks of a few thousand trees.
    "transformer_parsing_small": replace(
        _BASE, encoder_layers=3, decoder_layers=3, d_model=192, d_ff=512, heads=4, d_k=48, d_v=48, dropout=0.3
    ),
    "transformer_tiny": _TINY,
    # Fewer layers learn faster: for trainings of minutes.
    "transformer_mini": replace(_TINY, encoder_layers=2, decoder_layers=2),
    # For lines that are words, whose pieces are characters (Wu et al. 2021, arXiv:2005.10213).
    "transformer_char": replace(_TINY, d_model=256, d_ff=1024, d_k=64, d_v=64, norm="pre"),
    # Students of a teacher: a deep encoder costs little when decoding, and a shallow decoder much less than a deep one
    # (Kasai et al. 2021, arXiv:2006.10369). A deep encoder learns faster with pre-norm. See docs/distillation.md.
    "transformer_base_fast": replace(_BASE, encoder_layers=12, decoder_layers=1, norm="pre"),
    "transformer_tiny_fast": replace(_TINY, encoder_layers=12, decoder_layers=1, norm="pre"),
    # A decoder of two layers without self-attention, as in Bogoychev et al. 2020, "Edinburgh's submissions to the
    # 2020 machine translation efficiency task". `nmt export marian` writes them.
    "transformer_base_ssru": replace(_BASE, decoder_layers=2, **_MARIAN),
    "transformer_tiny_ssru": replace(_TINY, encoder_layers=6, decoder_layers=2, **_MARIAN),
    # The rows of the paper's Table 3. A name has the letter of the row and the difference from base. The two rows
    # about label smoothing are missing, because they are base, trained with --label-smoothing 0 and 0.2.
    **{f"table3_a_h{h}": replace(_BASE, heads=h, d_k=512 // h, d_v=512 // h) for h in (1, 4, 16, 32)},
    **{f"table3_b_dk{d_k}": replace(_BASE, d_k=d_k) for d_k in (16, 32)},
    **{f"table3_c_n{n}": replace(_BASE, encoder_layers=n, decoder_layers=n) for n in (2, 4, 8)},
    "table3_c_dmodel256": replace(_BASE, d_model=256, d_k=32, d_v=32),
    "table3_c_dmodel1024": replace(_BASE, d_model=1024, d_k=128, d_v=128),
    **{f"table3_c_dff{d_ff}": replace(_BASE, d_ff=d_ff) for d_ff in (1024, 4096)},
    **{f"table3_d_dropout{dropout}": replace(_BASE, dropout=dropout) for dropout in (0.0, 0.2)},
    "table3_e_learned": replace(_BASE, learned_positions=1024),
}


def model_config(name: str, **overrides: Any) -> ModelConfig:
    """Returns the architecture called `name`, with other values of some options (see `ModelConfig.overridden`).

    Raises:
        OptionError: there is no such architecture, or an option has a wrong value.
    """
    if name not in ARCHITECTURES:
        close = difflib.get_close_matches(name, ARCHITECTURES, n=3, cutoff=0.4)
        meant = f"did you mean {' or '.join(close)}? " if close else ""
        raise OptionError(f"--arch {name} is unknown; {meant}`nmt architectures` lists nmt's own")
    return ARCHITECTURES[name].overridden(overrides)


def layers_taken(had: int, has: int) -> list[int]:
    """Returns which of `had` layers a model of `has` layers begins with: at even distances, up to the last one.

    Layers are counted from 1.
    """
    return [-(-had * layer // has) for layer in range(1, has + 1)]


@cache
def weight_shapes(config: ModelConfig, vocab_size: int, source_size: int = 0) -> Mapping[str, tuple[int, ...]]:
    """Returns the shape of every weight by its name in a checkpoint.

    Args:
        vocab_size: the pieces of the vocabulary that target and softmax share, and usually the source too.
        source_size: the pieces of the source vocabulary if it is a separate one.
    """
    from nmt.model.device import without_memory  # needs torch
    from nmt.model.transformer import Transformer

    with without_memory():
        model = Transformer(config, source_size, vocab_size, shared=not source_size)
    return {name: tuple(weight.shape) for name, weight in model.named_parameters()}


def parameters(config: ModelConfig, vocab_size: int, source_size: int = 0) -> int:
    """Returns the number of trainable numbers, without torch; the sizes are those of `weight_shapes`."""
    attention = config.d_model * config.heads * 2 * (config.d_k + config.d_v)
    feed_forward = 2 * config.d_model * config.d_ff + config.d_ff + config.d_model
    if config.attention == "additive":
        attention += config.heads * config.d_k
    if config.attention_biases:
        attention += config.heads * (2 * config.d_k + config.d_v) + config.d_model
    norm = 2 * config.d_model
    encoder = config.encoder_layers * (attention + feed_forward + 2 * norm)
    earlier = attention if config.decoder == "attention" else config.d_model * (2 * config.d_model + 1)
    decoder = config.decoder_layers * (earlier + attention + feed_forward + 3 * norm)
    final_norms = 2 * norm if config.norm == "pre" else 0
    positions = 2 * (config.learned_positions or 0) * config.d_model
    embeddings = (vocab_size + source_size) * config.d_model + (vocab_size if config.output_bias else 0)
    return embeddings + positions + encoder + decoder + final_norms


def parameter_count(config: ModelConfig, codec: "TextCodec") -> int:
    """Returns the number of parameters of a model with this text processing."""
    return parameters(config, len(codec.target), 0 if codec.config.joint_vocab else len(codec.source))


def training_flops(config: ModelConfig, vocab_size: int, source_tokens: int, target_tokens: int) -> float:
    """Returns the floating-point operations to train on so many tokens: six for each weight that meets a token.

    The decoder's keys and values of the encoder output are computed from source tokens. Operations whose number depends
    on the lengths of sentences are left out: attention scores are about 1 % at usual lengths.
    """
    source_weights, target_weights = _weights_of_tokens(config, vocab_size)
    return 6.0 * (source_weights * source_tokens + target_weights * target_tokens)


@cache
def _weights_of_tokens(config: ModelConfig, vocab_size: int) -> tuple[int, int]:
    """Returns the numbers of weights that a source token meets, and a target token."""
    weights = {"source": 0, "target": 0}
    for name, shape in weight_shapes(config, vocab_size).items():
        if name.endswith(".weight") and len(shape) == 2:
            meets_source = name.startswith("encoder.") or name.endswith("cross_attention.key_value.weight")
            weights["source" if meets_source else "target"] += math.prod(shape)
    return weights["source"], weights["target"]
