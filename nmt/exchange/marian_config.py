"""The architecture of MarianMT models of Hugging Face, in their config.json and here."""

from typing import Any

from nmt.config import ModelConfig
from nmt.errors import NmtError
from nmt.exchange.settings import Settings, head_widths
from nmt.exchange.supported import check_supported
from nmt.text.subword import BOS, EOS, PAD

# The positions that an exported model is made for. transformers computes the encodings anew when it loads the model.
POSITIONS = 1024
# Our name of each activation. swish and silu are the same function.
_ACTIVATIONS = {"relu": "relu", "gelu": "gelu", "swish": "swish", "silu": "swish"}
_SHARING = "share_encoder_decoder_embeddings"
_SIZES = ("encoder_layers", "decoder_layers", "d_model", "dropout", "attention_dropout", "activation_dropout")
# Settings that nmt does not have, and the values that change nothing.
_WITHOUT_EFFECT = {
    "normalize_before": False,
    "static_position_embeddings": True,
    "tie_word_embeddings": True,
    "normalize_embedding": False,
    "add_final_layer_norm": False,
}
# Options of the model that MarianMT can express, or that do not matter after training.
_EXPRESSED = (
    "activation",
    "attention_biases",
    "output_bias",
    "attention_dropout",
    "activation_dropout",
    "guided_alignment",
)


def our_config(settings: Settings) -> ModelConfig:
    """Returns the architecture in a config.json, with all biases.

    Raises:
        NmtError: it is of another kind of model, lacks a setting, or has one that nmt does not have.
    """
    values, path = settings.values, settings.path
    if values.get("model_type") != "marian":
        raise NmtError(
            f"{path} is for a model of type {values.get('model_type')!r:.40}, but nmt imports only marian; "
            f"choose a MarianMT model such as those of Opus-MT"
        )
    for name, ignored in _WITHOUT_EFFECT.items():
        if values.get(name, ignored) != ignored:
            raise settings.unknown(name)
    widths = head_widths(settings.required("d_model"), settings.of_both_sides("attention_heads"), path)
    activation = _ACTIVATIONS[settings.choice("activation_function", _ACTIVATIONS)]
    sizes = {name: values.get(name, 0.0) for name in ("attention_dropout", "activation_dropout")}
    sizes |= {name: settings.required(name) for name in ("encoder_layers", "decoder_layers", "dropout")}
    sizes["d_ff"] = settings.of_both_sides("ffn_dim")
    options = {"activation": activation, "attention_biases": True, "output_bias": True}
    return ModelConfig.from_dict({**sizes, **widths, **options}, str(path))


def is_shared(settings: Settings) -> bool:
    """Returns whether both sides have the same embedding.

    Raises:
        NmtError: the setting is not true or false.
    """
    found = settings.values.get(_SHARING, True)
    if not isinstance(found, bool):
        raise settings.unknown(_SHARING)
    return found


def check_expressible(config: ModelConfig, origin: str) -> None:
    """Raises an error if transformers has no MarianMT model of this architecture.

    Raises:
        NmtError: it has none. The message names `origin` and the option.
    """
    check_supported(config, origin, "MarianMT", _EXPRESSED)


def their_config(config: ModelConfig, source_size: int, target_size: int, *, shared: bool) -> dict[str, Any]:
    """Returns the config.json of a MarianMT model."""
    sides = {f"{side}_ffn_dim": config.d_ff for side in ("encoder", "decoder")}
    sides |= {f"{side}_attention_heads": config.heads for side in ("encoder", "decoder")}
    return {
        "model_type": "marian",
        "architectures": ["MarianMTModel"],
        "is_encoder_decoder": True,
        **{name: getattr(config, name) for name in _SIZES},
        **sides,
        "activation_function": config.activation,
        "scale_embedding": True,
        _SHARING: shared,
        "tie_word_embeddings": True,
        "vocab_size": source_size,
        "decoder_vocab_size": target_size,
        "max_position_embeddings": POSITIONS,
        **special_ids(),
        "forced_eos_token_id": EOS,
        "dtype": "float32",
    }


def special_ids() -> dict[str, int]:
    """Returns the special ids of an exported model, as config.json and generation_config.json name them."""
    return {"pad_token_id": PAD, "bos_token_id": BOS, "decoder_start_token_id": BOS, "eos_token_id": EOS}
