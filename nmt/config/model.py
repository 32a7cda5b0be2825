"""The options of a model's architecture."""

from dataclasses import MISSING, dataclass, fields
from typing import Any, Literal

from nmt.errors import NmtError
from nmt.options import Config, option

# More than any machine can use, but small enough for every size computed from them to fit into 64 bits.
_WIDEST, _LONGEST = 50_000, 1_000_000


@dataclass(frozen=True, kw_only=True)
class ModelConfig(Config):
    """A Transformer (paper §3). A registry entry states the shape; the defaults of the rest are the paper's."""

    encoder_layers: int = option(help="Layers of the encoder, N.", panel="Model", at_least=1, at_most=1000)
    decoder_layers: int = option(help="Layers of the decoder, N.", panel="Model", at_least=1, at_most=1000)
    d_model: int = option(help="Width of embeddings and layer outputs.", panel="Model", at_least=2, at_most=_WIDEST)
    d_ff: int = option(help="Inner width of the feed-forward layers.", panel="Model", at_least=1, at_most=_WIDEST)
    heads: int = option(help="Attention heads, h.", panel="Model", at_least=1, at_most=1000)
    d_k: int = option(help="Width of a head's queries and keys.", panel="Model", at_least=1, at_most=_WIDEST)
    d_v: int = option(help="Width of a head's values.", panel="Model", at_least=1, at_most=_WIDEST)
    dropout: float = option(
        help="P_drop, on every sub-layer's output and on the sums of embeddings and positions.",
        panel="Model",
        at_least=0,
        below=1,
    )
    attention_dropout: float = option(
        0.0, help="Dropout on attention weights; the paper's for parsing only.", panel="Model", at_least=0, below=1
    )
    activation_dropout: float = option(
        0.0, help="Dropout on the feed-forward's inner activation.", panel="Model", at_least=0, below=1
    )
    norm: Literal["post", "pre"] = option(
        "post", help="LayerNorm behind every residual sum, as in the paper, or before every sub-layer.", panel="Model"
    )
    attention: Literal["scaled-dot-product", "dot-product", "additive"] = option(
        "scaled-dot-product", help="What a query's fit to a key is computed by (paper §3.2.1).", panel="Model"
    )
    attention_window: int | None = option(
        None,
        help="Restrict self-attention to the r nearest positions that a position may see (paper §4).",
        panel="Model",
        at_least=1,
    )
    learned_positions: int | None = option(
        None,
        help="Learn the encodings of so many positions, which no sentence may exceed, instead of sinusoids "
        "(paper Table 3, row E).",
        panel="Model",
        at_least=1,
        at_most=_LONGEST,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.d_model % 2:
            raise NmtError(
                f"--d-model must be even, because positions are pairs of sine and cosine, but is {self.d_model}"
            )

    def variants(self) -> dict[str, Any]:
        """The fields that have a default, the paper's model's, and another value here."""
        optional = [f for f in fields(self) if f.default is not MISSING]
        return {f.name: getattr(self, f.name) for f in optional if getattr(self, f.name) != f.default}

    def check_positions(self, needed: int, why: str, advice: str) -> None:
        """Raises NmtError if positions are learned and fewer than `needed`; `why` says what needs them."""
        if self.learned_positions is not None and needed > self.learned_positions:
            raise NmtError(f"the model learns {self.learned_positions:,} positions, but {why} {needed:,}; {advice}")
