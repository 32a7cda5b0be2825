"""The options of a model's architecture."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, Self

from nmt.config.options import Config, Count, Probability, flag_name, option
from nmt.errors import NmtError, OptionError

# Larger than any machine can use, but small enough that every size computed from them fits into 64 bits.
_MAX_WIDTH, _MAX_POSITIONS = 50_000, 1_000_000
# Fields that may differ between a model and another one that continues with its weights.
_WEIGHTS_STAY = ("dropout", "attention_dropout", "activation_dropout", "attention_window", "guided_alignment")


@dataclass(frozen=True, kw_only=True)
class ModelConfig(Config, panel="Model"):
    """The architecture of a Transformer (paper §3).

    `nmt.model_config(name)` returns a named one. The fields are the options of `nmt train --help` under Model.
    """

    encoder_layers: Count = option(help="Layers of the encoder, N.", at_most=1000)
    decoder_layers: Count = option(help="Layers of the decoder, N.", at_most=1000)
    d_model: int = option(help="Width of embeddings and layer outputs.", at_least=2, at_most=_MAX_WIDTH)
    d_ff: Count = option(help="Inner width of the feed-forward layers.", at_most=_MAX_WIDTH)
    heads: Count = option(help="Attention heads, h.", at_most=1000)
    d_k: Count = option(
        help="Width of a head's queries and keys. It follows --d-model and --heads: d_model / h, as in the paper.",
        at_most=_MAX_WIDTH,
    )
    d_v: Count = option(
        help="Width of a head's values. It follows --d-model and --heads in the same way.", at_most=_MAX_WIDTH
    )
    dropout: Probability = option(
        help="P_drop: dropout on sub-layer outputs and on the sums of embeddings and positions."
    )
    attention_dropout: Probability = option(0.0, "Dropout on attention weights. The paper uses it only for parsing.")
    activation_dropout: Probability = option(0.0, "Dropout on the inner activations of the feed-forward layers.")
    norm: Literal["post", "pre"] = option(
        "post", "Place of LayerNorm: post is after every residual sum, as in the paper; pre is before every sub-layer."
    )
    activation: Literal["relu", "gelu", "swish"] = option(
        "relu", "Activation of the feed-forward layers; the paper uses relu (§3.3)."
    )
    attention: Literal["scaled-dot-product", "dot-product", "additive"] = option(
        "scaled-dot-product", "Function that scores a query against a key (paper §3.2.1)."
    )
    attention_biases: bool = option(
        False, "Add biases to the query, key, value and output projections of attention. The paper has none."
    )
    attention_window: Count | None = option(
        None, "Let each position attend only to this many nearest positions (paper §4)."
    )
    decoder: Literal["attention", "ssru"] = option(
        "attention",
        "How a decoder layer sees earlier positions: by self-attention, as in the paper, or by the state of an SSRU "
        "(Kim et al. 2019), which is faster.",
    )
    sinusoids: Literal["paper", "fairseq", "marian"] = option(
        "paper",
        "Formula of positional encodings that are not learnt: the paper's (§3.5), or that of fairseq or Marian. Both "
        "have other wavelengths, and fairseq's starts at position 2. With marian, a target begins with zeros instead "
        "of an embedding of BOS. Imported models have the formula of their toolkit; a new model needs marian only for "
        "nmt export marian.",
        excludes="learned_positions",
    )
    learned_positions: Count | None = option(
        None,
        "Learn this many positional encodings instead of using sinusoids (paper Table 3, row E). No sentence "
        "may be longer.",
        at_most=_MAX_POSITIONS,
    )
    output_bias: bool = option(False, "Add a bias to the logit of each piece. The paper has none.")
    bos_is_eos: bool = option(
        False,
        "Begin targets with EOS, the piece for the end of a sentence, instead of BOS. Imported M2M-100 and NLLB-200 "
        "do; a new model does not need it.",
        excludes="output_bias",
    )
    guided_alignment: Count | None = option(
        None,
        "Decoder layer, counted from 1, whose first head learns which words translate each other (Garg et al. 2019), "
        "for better generate --alignments. The data folder needs preprocess --alignments; docs/alignments.md shows "
        "how.",
        excludes="attention=additive",
    )

    def _check(self) -> None:
        if self.guided_alignment is not None and self.guided_alignment > self.decoder_layers:
            raise NmtError(
                f"--guided-alignment is layer {self.guided_alignment}, but the decoder has {self.decoder_layers}; "
                f"give a layer from 1 to {self.decoder_layers}"
            )
        if self.sinusoids != "paper" and self.d_model < 4:
            raise NmtError(f"--sinusoids {self.sinusoids} needs a --d-model of at least 4, but it is {self.d_model}")
        if self.d_model % 2:
            raise NmtError(
                f"--d-model must be even, because positions are pairs of sine and cosine, but is {self.d_model}"
            )

    def overridden(self, options: Mapping[str, Any]) -> Self:
        """Returns the architecture with other values of some options.

        If d_model or the number of heads changes, d_k and d_v stay d_model / h (paper §3.2.2), unless they are
        among the options, or were something else before, as in some rows of the paper's Table 3.

        Raises:
            OptionError: an option has a wrong value, or h does not divide d_model.
        """
        model = replace(self, **options)
        changed = (model.d_model, model.heads) != (self.d_model, self.heads)
        follow = [name for name in ("d_k", "d_v") if getattr(self, name) * self.heads == self.d_model and changed]
        width = model.d_model // model.heads
        derived: dict[str, Any] = {name: width for name in follow if name not in options}
        if derived and model.d_model % model.heads:
            raise OptionError(
                f"--heads {model.heads} does not divide --d-model {model.d_model}; change one of them, or give --d-k "
                f"and --d-v"
            )
        return replace(model, **derived)

    def incompatible_options(self, other: Mapping[str, Any]) -> list[tuple[str, Any, Any]]:
        """Returns the fields that differ from another configuration so that its weights do not fit or mean the same."""
        return [change for change in self.changed_from(other) if change[0] not in _WEIGHTS_STAY]

    def in_words(self) -> str:
        """Returns the sizes, and the fields that differ from their defaults."""
        return (
            f"N {self.encoder_layers}+{self.decoder_layers}, d_model {self.d_model}, d_ff {self.d_ff}, h {self.heads}, "
            f"d_k {self.d_k}, d_v {self.d_v}, P_drop {self.dropout:g}"
            + "".join(f", {flag_name(name)} {value}" for name, value in self.variants().items())
        )

    def check_positions(self, needed: int, why: str, advice: str) -> None:
        """Raises an error if the model has fewer learned positions than `needed`."""
        if self.learned_positions is not None and needed > self.learned_positions:
            raise NmtError(f"the model learns {self.learned_positions:,} positions, but {why} {needed:,}; {advice}")
