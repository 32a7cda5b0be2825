"""The Transformer (paper §3), read from ids to logits: positions, attention, layers, encoder, decoder, output.

The positions of all sentences lie one after the other in one flat axis, which a `Layout` describes. Sentences lie
in blocks that are filled up with padding or, in training on a GPU, packed without it. Padding is computed like the
rest, and ignored by what reads the result. Only attention looks at sentences: `attend` in `nmt.model.attention`
computes softmax(q kᵀ / √d_k) v with dropout on the weights. It takes a mask of `nmt.model.masks`, which is a bias
on the scores of each block, or says where packed sentences begin.

Training calls `encode` and `decode`, and the loss computes the logits from `softmax_matrix_VD` and `output_bias`.
Decoding position by position begins with `start`, and `step` calls the same layers with a cache of keys and values.

Shapes: see docs/architecture.md; N flat source positions, M flat target positions, F flat positions of either
side, G flat positions of keys, B sentences, R rows of hypotheses with padding at the end, S source and T target
positions of a sentence, D d_model, H heads, K d_k, U d_v, V target vocabulary.
"""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from nmt.config import ModelConfig
from nmt.errors import NmtError
from nmt.model.attention import KeysOrValues, attend, attention_function
from nmt.model.cache import DecoderCache, LayerCache, RecurrentCache
from nmt.model.cpu_kernels import Dropout, Linear, PackedLinear, linear
from nmt.model.device import product_dtype
from nmt.model.masks import BlockMask, Layout, Mask, bound_on, padding_mask, self_attention_mask
from nmt.model.ssru import SSRU, Beginnings
from nmt.text.subword import BOS, EOS, SILENT

if TYPE_CHECKING:
    from nmt.model.lora import FrozenTable


def sinusoids(length: int, config: ModelConfig) -> Tensor:
    """Returns the sinusoidal encodings of the first positions (paper §3.5), (length, d_model).

    PE(pos, 2i) = sin(pos / 10000^(2i/d_model)), and PE(pos, 2i+1) is the cosine of the same. In fairseq and
    Marian, the exponent is 2i/(d_model - 2), and angles are computed in 32 bits. Positions begin with 2 in
    fairseq, the id of its PAD plus one. In Marian, all sines come before all cosines.
    """
    is_paper, is_marian = (config.sinusoids == name for name in ("paper", "marian"))
    first = 2 if config.sinusoids == "fairseq" else 0
    dtype, divisor = (torch.float64, config.d_model) if is_paper else (torch.float32, config.d_model - 2)
    with torch.device("cpu"):  # no checkpoint has them, so they are computed even for a model on the meta device
        frequencies = torch.exp(torch.arange(0, config.d_model, 2, dtype=dtype) * (-math.log(10000.0) / divisor))
        angles = torch.arange(first, first + length, dtype=dtype)[:, None] * frequencies
    columns = angles.sin(), angles.cos()
    return (torch.cat(columns, -1) if is_marian else torch.stack(columns, -1).flatten(1)).float()


def bias_without_bos(size: int) -> Tensor:
    """Returns the bias V of the logits of a model in which BOS has no probability."""
    bias_V = torch.zeros(size, device="cpu")  # no checkpoint has it
    bias_V[BOS : BOS + 1] = SILENT
    return bias_V


class SinusoidalPositions(nn.Module):
    """Looks up sinusoids by position. The table grows when a longer sentence comes."""

    table: Tensor

    def __init__(self, config: ModelConfig, length: int = 512) -> None:
        super().__init__()
        self.config = config
        self.register_buffer("table", sinusoids(length, config), persistent=False)

    def forward(self, positions_F: Tensor, longest: int) -> Tensor:
        """Returns the encodings FD of `positions_F`, all of them below `longest`."""
        # The size is rounded up, because a recorded CUDA graph must not see another table.
        if bound_on(longest) > len(self.table):
            self.table = sinusoids(bound_on(longest), self.config).to(self.table)
        return self.table[positions_F]


class LearnedPositions(nn.Module):
    """Looks up learned encodings by position (paper Table 3, row E). Longer sentences are an error."""

    def __init__(self, d_model: int, length: int) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.empty(length, d_model))
        nn.init.normal_(self.table, std=d_model**-0.5)

    def forward(self, positions_F: Tensor, longest: int) -> Tensor:
        """Returns the encodings FD of `positions_F`, all of them below `longest`."""
        if longest > len(self.table):
            raise NmtError(
                f"a sentence has {longest} positions, but the model has learnt {len(self.table)} only; shorten it"
            )
        return F.embedding(positions_F, self.table)


class MultiHeadAttention(nn.Module):
    """Concat(head_1 … head_h) W_O with head_i = Attention(x W_iQ, y W_iK, y W_iV) (paper §3.2.2).

    The matrices of all heads are stored as one, and so are those that multiply the same input. The paper has no
    biases; --attention-biases adds one to each product.
    """

    def __init__(self, config: ModelConfig, *, cross: bool) -> None:
        super().__init__()
        self.heads, self.cross = config.heads, cross
        self.function = attention_function(config)
        query, key, value = config.heads * config.d_k, config.heads * config.d_k, config.heads * config.d_v
        bias = config.attention_biases
        if cross:
            self.query = Linear(config.d_model, query, bias=bias)
            self.key_value = Linear(config.d_model, key, value, bias=bias)
        else:
            self.query_key_value = Linear(config.d_model, query, key, value, bias=bias)
        self.output = Linear(value, config.d_model, bias=bias)
        # The paper does not say how to initialise. As in its authors' code, Glorot's formula takes a joint matrix
        # as one, which makes its numbers up to √2 times as small. Otherwise, small models long ignore the source.
        for layer in self.children():
            if isinstance(layer, Linear):  # not the attention function
                nn.init.xavier_uniform_(layer.weight)
                if layer.bias is not None:
                    nn.init.zeros_(layer.bias)

    def forward(self, x_FD: Tensor, encoded_ND: Tensor | None, mask: Mask, cache: LayerCache | None = None) -> Tensor:
        """Returns FD: self-attention over x, or cross-attention over the encoder output.

        With a cache, x has the newest position of each hypothesis. Its keys and values are added to those in the
        cache, and the mask shows each hypothesis its own earlier positions. Cross-attention is over the encoder
        output, whose keys and values are in the cache.
        """
        keys: KeysOrValues
        values: KeysOrValues
        if cache is None:
            q_FHK, keys, values = self.projections(x_FD, encoded_ND)
        elif self.cross:
            q_FHK, (keys, values) = self.query(x_FD).unflatten(-1, (self.heads, -1)), cache.source
        else:
            q_FHK, k_FHK, v_FHU = self.projections(x_FD, None)
            keys, values = cache.append(k_FHK, v_FHU, mask)
        return self.output(attend(q_FHK, keys, values, mask, self.function).flatten(1))

    def projections(self, x_FD: Tensor, encoded_ND: Tensor | None) -> tuple[Tensor, ...]:
        """Returns queries FHK, keys GHK and values GHU: of x, or keys and values of the encoder output."""
        if encoded_ND is None:
            return self._by_head(self.query_key_value, x_FD)
        return self.query(x_FD).unflatten(-1, (self.heads, -1)), *self.keys_values(encoded_ND)

    def keys_values(self, encoded_ND: Tensor) -> tuple[Tensor, ...]:
        """Returns keys NHK and values NHU of cross-attention."""
        return self._by_head(self.key_value, encoded_ND)

    def _by_head(self, layer: Linear, x_FD: Tensor) -> tuple[Tensor, ...]:
        return tuple(projection.unflatten(-1, (self.heads, -1)) for projection in layer(x_FD).split(layer.rows, -1))


_ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {"relu": F.relu, "gelu": F.gelu, "swish": F.silu}


class FeedForward(nn.Module):
    """max(0, x W_1 + b_1) W_2 + b_2 (paper §3.3), or with another --activation instead of max(0, …)."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.activation = _ACTIVATIONS[config.activation]
        self.dropout = Dropout(config.activation_dropout)
        self.inner = Linear(config.d_model, config.d_ff)
        self.outer = Linear(config.d_ff, config.d_model)
        for product in (self.inner, self.outer):
            nn.init.xavier_uniform_(product.weight)
            nn.init.zeros_(product.bias)

    def forward(self, x_FD: Tensor) -> Tensor:
        """Returns FD; every position by itself."""
        return self.outer(self.dropout(self.activation(self.inner(x_FD))))


class SublayerNorm(nn.Module):
    """LayerNorm of a sub-layer with a residual connection: behind their sum, or before the sub-layer.

    The former is the paper's post-norm, LayerNorm(x + Sublayer(x)) (§3.1). The latter, pre-norm, is in Wang et al.
    2019 (arXiv:1906.01787) and in the authors' later code.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.pre = config.norm == "pre"
        self.norm = nn.LayerNorm(config.d_model)

    def before(self, x_FD: Tensor) -> Tensor:
        """Returns the input FD of the sub-layer: x itself with post-norm."""
        return self.norm(x_FD) if self.pre else x_FD

    def after(self, sum_FD: Tensor) -> Tensor:
        """Returns the result FD for the sum of x and the sub-layer's output: the sum itself with pre-norm."""
        return sum_FD if self.pre else self.norm(sum_FD)


class EncoderLayer(nn.Module):
    """Self-attention and a feed-forward network (paper §3.1), with dropout on their outputs (§5.4)."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.self_attention = MultiHeadAttention(config, cross=False)
        self.self_attention_residual = SublayerNorm(config)
        self.feed_forward = FeedForward(config)
        self.feed_forward_residual = SublayerNorm(config)
        self.dropout = Dropout(config.dropout)

    def forward(self, x_ND: Tensor, mask: Mask) -> Tensor:
        """Returns the layer's output ND."""
        norm = self.self_attention_residual
        x_ND = norm.after(x_ND + self.dropout(self.self_attention(norm.before(x_ND), None, mask)))
        norm = self.feed_forward_residual
        return norm.after(x_ND + self.dropout(self.feed_forward(norm.before(x_ND))))


class DecoderLayer(nn.Module):
    """Self-attention, cross-attention and a feed-forward network (paper §3.1), with dropout on their outputs (§5.4).

    With --decoder ssru, an `SSRU` is in the place of self-attention.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        is_recurrent = config.decoder == "ssru"
        self.self_attention = SSRU(config.d_model) if is_recurrent else MultiHeadAttention(config, cross=False)
        self.self_attention_residual = SublayerNorm(config)
        self.cross_attention = MultiHeadAttention(config, cross=True)
        self.cross_attention_residual = SublayerNorm(config)
        self.feed_forward = FeedForward(config)
        self.feed_forward_residual = SublayerNorm(config)
        self.dropout = Dropout(config.dropout)

    def forward(
        self,
        x_MD: Tensor,
        encoded_ND: Tensor | None,
        self_mask: Mask | Beginnings,
        cross_mask: Mask,
        cache: LayerCache | None,
    ) -> Tensor:
        """Returns the layer's output MD.

        Args:
            encoded_ND: the encoder output; None with a cache, which has its keys and values.
            self_mask: the beginnings of sentences for an SSRU.
            cache: keys and values of earlier positions, or states, and those of the encoder output; those of x are
                added. None for whole sentences.
        """
        norm = self.self_attention_residual
        x_MD = norm.after(x_MD + self.dropout(self.self_attention(norm.before(x_MD), None, self_mask, cache)))
        norm = self.cross_attention_residual
        x_MD = norm.after(x_MD + self.dropout(self.cross_attention(norm.before(x_MD), encoded_ND, cross_mask, cache)))
        norm = self.feed_forward_residual
        return norm.after(x_MD + self.dropout(self.feed_forward(norm.before(x_MD))))


# The matrix VD of the softmax and its bias V, or None, of all tokens or of some.
OutputLayer = tuple[Tensor, Tensor | None]
# Rows of logits that exist at once: few enough to stay in a CPU's cache, or enough to keep a GPU busy.
LOGIT_ROWS = {"cpu": 128, "cuda": 4096}


class Transformer(nn.Module):
    """Encoder and decoder. The target embedding is also the softmax matrix and, if `shared`, the source embedding.

    The paper shares them (§3.4). Every module initialises its own parameters: matrices with Glorot uniform
    numbers, embeddings with a variance of 1/d_model.

    Args:
        source_size, target_size: pieces in the vocabularies.
        shared: whether both languages have the same vocabulary.
    """

    source_positions: nn.Module
    target_positions: nn.Module

    def __init__(self, config: ModelConfig, source_size: int, target_size: int, *, shared: bool) -> None:
        super().__init__()
        self.config = config
        self.target_embedding: nn.Embedding | FrozenTable = nn.Embedding(target_size, config.d_model)
        self.source_embedding: nn.Embedding | FrozenTable | None
        self.source_embedding = None if shared else nn.Embedding(source_size, config.d_model)
        if config.learned_positions is None:
            self.source_positions = self.target_positions = SinusoidalPositions(config)
        else:
            size = config.d_model, config.learned_positions
            self.source_positions, self.target_positions = LearnedPositions(*size), LearnedPositions(*size)
        self.dropout = Dropout(config.dropout)
        self.encoder = nn.ModuleList(EncoderLayer(config) for _ in range(config.encoder_layers))
        self.decoder = nn.ModuleList(DecoderLayer(config) for _ in range(config.decoder_layers))
        # Only pre-norm has a norm behind the last layer: its layers leave their sums as they are.
        self.encoder_norm, self.decoder_norm = (
            nn.LayerNorm(config.d_model) if config.norm == "pre" else nn.Identity() for _ in range(2)
        )
        self.packed_softmax: PackedLinear | None = None
        self.output_bias: Tensor | None = nn.Parameter(torch.zeros(target_size)) if config.output_bias else None
        if config.bos_is_eos:
            del self.output_bias
            self.register_buffer("output_bias", bias_without_bos(target_size), persistent=False)
        for embedding in (self.target_embedding, self.source_embedding):
            if embedding is not None:
                nn.init.normal_(embedding.weight, std=config.d_model**-0.5)

    def forward(self, source_ids_BS: Tensor, target_ids_BT: Tensor) -> Tensor:
        """Returns the logits BTV of the token after each target position.

        Sources end in EOS and targets begin with BOS; both are filled up with PAD.
        """
        source, target = Layout.of_padded(source_ids_BS), Layout.of_padded(target_ids_BT)
        encoded_ND = self.encode(source_ids_BS.flatten(), source)
        x_MD = self.decode(target_ids_BT.flatten(), target, encoded_ND, source)
        return self.logits(x_MD).unflatten(0, target_ids_BT.shape)

    def encode(self, ids_N: Tensor, source: Layout) -> Tensor:
        """Returns the encoder output ND."""
        embedding = self.target_embedding if self.source_embedding is None else self.source_embedding
        positions_ND = self.source_positions(source.positions_F, source.longest)
        x_ND = self.dropout(embedding(ids_N) * self.config.d_model**0.5 + positions_ND)
        mask = self_attention_mask(source, self.config.attention_window, causal=False)
        for layer in self.encoder:
            x_ND = layer(x_ND, mask)
        return self.encoder_norm(x_ND)

    def decode(self, ids_M: Tensor, target: Layout, encoded_ND: Tensor, source: Layout) -> Tensor:
        """Returns the decoder output MD; each target position sees the target positions up to itself.

        Decoding position by position has another self-attention mask, that of `DecoderCache.next_step`.
        """
        x_MD = self.embed_target(ids_M, target.positions_F, target.longest)
        self_mask: Mask | Beginnings
        if self.config.decoder == "ssru":
            self_mask = Beginnings.of(target)
        else:
            self_mask = self_attention_mask(target, self.config.attention_window, causal=True)
        cross_mask = padding_mask(target, source)
        for layer in self.decoder:
            x_MD = layer(x_MD, encoded_ND, self_mask, cross_mask, None)
        return self.decoder_norm(x_MD)

    def embed_target(self, ids_M: Tensor, positions_M: Tensor, longest: int) -> Tensor:
        """Returns the decoder's input MD; all positions are below `longest`."""
        positions_MD = self.target_positions(positions_M, longest)
        if self.config.bos_is_eos:
            ids_M = ids_M.masked_fill(ids_M == BOS, EOS)
        x_MD = self.target_embedding(ids_M) * self.config.d_model**0.5
        if self.config.sinusoids == "marian":  # which begins a target with a vector of zeros
            x_MD = x_MD.masked_fill((ids_M == BOS)[:, None], 0)
        return self.dropout(x_MD + positions_MD)

    @property
    def softmax_matrix_VD(self) -> Tensor:
        """The matrix whose product with the decoder output are the logits (paper §3.4), without `output_bias`."""
        return self.target_embedding.weight

    def logits(self, x_MD: Tensor, output: OutputLayer | None = None) -> Tensor:
        """Returns the scores MV of every next token before the softmax, or those of the tokens in `output`."""
        if output is None and self.packed_softmax is not None:
            return cast(Tensor, self.packed_softmax(x_MD))
        return linear(x_MD, *(output or (self.softmax_matrix_VD, self.output_bias)))

    def output_layer(self, ids_V: Tensor) -> OutputLayer:
        """Returns the rows of the softmax matrix for these tokens, in the type that autocast computes in, and the bias.

        Autocast keeps the converted copy of a parameter, but not of selected rows, so they are converted here once.
        """
        matrix_VD = self.softmax_matrix_VD[ids_V]
        return matrix_VD.to(product_dtype(matrix_VD)), None if self.output_bias is None else self.output_bias[ids_V]


def pack(model: Transformer) -> None:
    """Makes translation in bfloat16 on a CPU faster, with the same numbers. The model can no longer be trained."""
    for parent in list(model.modules()):
        for name, layer in parent.named_children():
            if isinstance(layer, Linear):
                setattr(parent, name, PackedLinear(layer.weight, layer.bias, layer.rows))
    matrix_VD = model.softmax_matrix_VD
    model.packed_softmax = PackedLinear(matrix_VD, model.output_bias, (len(matrix_VD),))


# Decoding position by position (see `nmt.model.cache`)


def start(model: Transformer, ids_N: Tensor, source: Layout, beam: int) -> DecoderCache:
    """Encodes sentences, which lie in padded blocks; returns the cache to decode `beam` hypotheses of each with."""
    assert source.blocks is not None
    encoded_ND = model.encode(ids_N, source)
    sizes = [(block.sentences, block.width) for block in source.blocks]
    attentions = [cast(DecoderLayer, layer).cross_attention for layer in model.decoder]
    layers = tuple(LayerCache.of_source(cross.keys_values(encoded_ND), sizes, beam) for cross in attentions)
    if model.config.decoder == "ssru":
        state_BWD = encoded_ND.new_zeros(len(source.lengths_B), beam, model.config.d_model, dtype=torch.float32)
        layers = tuple(RecurrentCache((state_BWD,), layer.source) for layer in layers)
    dtype = layers[0].source[0][0].dtype
    mask = tuple(
        replace(block, queries=beam, bias=None if block.bias is None else block.bias.to(dtype))
        for block in cast(tuple[BlockMask, ...], padding_mask(source, source))
    )
    sentences = len(source.lengths_B)
    return DecoderCache(layers, mask, ids_N.new_empty(sentences, beam, 0), ids_N.new_zeros(sentences))


def step(
    model: Transformer, ids_R: Tensor, cache: DecoderCache, output: OutputLayer | None = None
) -> tuple[Tensor, DecoderCache]:
    """Returns the logits RV of the token after `ids_R`, the newest of each hypothesis, and the next cache.

    Logits are those of the tokens in `output`, or of all.
    """
    in_bf16 = ids_R.device.type == "cpu" and torch.is_autocast_enabled("cpu")
    padding = -len(ids_R) % 32 if in_bf16 else 0  # a CPU's bf16 products are compiled for every new number of rows
    _, beam, _ = cache.ancestors_BWT.shape
    positions_R = (cache.length - cache.starts_B).repeat_interleave(beam)
    longest = cache.length + 1 - cache.first
    x_RD = model.embed_target(F.pad(ids_R, (0, padding)), F.pad(positions_R, (0, padding)), longest)
    cache, self_mask = cache.next_step(model.config.attention_window)
    for layer, layer_cache in zip(model.decoder, cache.layers, strict=True):
        x_RD = layer(x_RD, None, self_mask, cache.cross_mask, layer_cache)
    return model.logits(model.decoder_norm(x_RD), output)[: len(ids_R)], cache
