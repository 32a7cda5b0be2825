"""Arithmetic on an architecture: its parameters, and the operations that training takes. Needs no torch."""

from nmt.config import ModelConfig


def parameters(config: ModelConfig, vocab_size: int, source_size: int = 0) -> int:
    """Returns the number of trainable numbers.

    Args:
        vocab_size: the pieces of the vocabulary that target and softmax share, and usually the source too.
        source_size: the pieces of the source vocabulary if it is a separate one.
    """
    attention = config.d_model * config.heads * 2 * (config.d_k + config.d_v)
    feed_forward = 2 * config.d_model * config.d_ff + config.d_ff + config.d_model
    if config.attention == "additive":
        attention += config.heads * config.d_k
    if config.attention_biases:
        attention += config.heads * (2 * config.d_k + config.d_v) + config.d_model
    norm = 2 * config.d_model
    encoder = config.encoder_layers * (attention + feed_forward + 2 * norm)
    decoder = config.decoder_layers * (2 * attention + feed_forward + 3 * norm)
    final_norms = 2 * norm if config.norm == "pre" else 0
    positions = 2 * (config.learned_positions or 0) * config.d_model
    embeddings = (vocab_size + source_size) * config.d_model + (vocab_size if config.output_bias else 0)
    return embeddings + positions + encoder + decoder + final_norms


def training_flops(config: ModelConfig, vocab_size: int, source_tokens: int, target_tokens: int) -> float:
    """Returns the floating-point operations to train on so many tokens: six for each weight that meets a token.

    The decoder's keys and values of the encoder output are computed from source tokens. Operations whose number depends
    on the lengths of sentences are left out: attention scores are about 1 % at usual lengths.
    """
    half = config.d_model * config.heads * (config.d_k + config.d_v)  # queries and output, or keys and values
    feed_forward = 2 * config.d_model * config.d_ff
    encoder = config.encoder_layers * (2 * half + feed_forward) + config.decoder_layers * half
    decoder = config.decoder_layers * (3 * half + feed_forward) + vocab_size * config.d_model
    return 6.0 * (encoder * source_tokens + decoder * target_tokens)
