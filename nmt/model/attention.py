"""Attention of queries over keys and values (paper §3.2), by the backend that suits model, batch and hardware.

| backend | used for |
|---|---|
| `nmt.model.products` | CPUs: training, and short sentences; batched matrix products with the softmax in fp32 |
| torch's scaled_dot_product_attention | GPUs, padded batches; on CPUs, long sentences that need no gradient, in fp32 |
| `nmt.model.packed` | GPUs in bf16, batches without padding: one kernel for sentences of all lengths |
| `nmt.model.windows` | --attention-window in long sentences: blocks of queries, each by one of the first two |
| `Additive` | --attention additive |

Shapes: see docs/architecture.md; F flat positions of queries and G of keys, B sentences, Q queries and S keys of a
sentence, H heads, K d_k, U d_v.
"""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from nmt.config import ModelConfig
from nmt.model.dropout import Dropout
from nmt.model.masks import BlockMask, Mask
from nmt.model.packed import PackedMask
from nmt.model.products import product_attention, widened

# Up to this many scores of a sentence and head, batched products are faster on a CPU than torch's function.
_SMALL = 4096


class DotProduct(nn.Module):
    """Dropout(softmax(q kᵀ / √d_k + bias)) v (paper §3.2.1), or without the division by √d_k."""

    def __init__(self, d_k: int, dropout: float, *, scaled: bool) -> None:
        super().__init__()
        self.dropout = dropout
        self.scale = d_k**-0.5 if scaled else 1.0

    def forward(self, q_BHQK: Tensor, k_BHSK: Tensor, v_BHSU: Tensor, bias: Tensor | None = None) -> Tensor:
        """Returns the attended values, BHQU."""
        dropout = self.dropout if self.training else 0.0
        on_cpu = q_BHQK.device.type == "cpu"
        if on_cpu and (torch.is_grad_enabled() or _is_small(q_BHQK, k_BHSK)):
            return product_attention(q_BHQK, k_BHSK, v_BHSU, bias, self.scale, dropout)
        q, k, v = map(widened, (q_BHQK, k_BHSK, v_BHSU)) if on_cpu else (q_BHQK, k_BHSK, v_BHSU)
        mask = None if bias is None else bias.to(q.dtype)
        with torch.autocast(q.device.type, enabled=False):
            return F.scaled_dot_product_attention(q, k, v, mask, dropout, scale=self.scale).to(v_BHSU.dtype)


def _is_small(q_BHQK: Tensor, k_BHSK: Tensor) -> bool:
    return q_BHQK.shape[2] * k_BHSK.shape[2] <= _SMALL


class Additive(nn.Module):
    """Dropout(softmax(w · tanh(q + k) + bias)) v.

    The scores are a feed-forward network with one hidden layer, whose first matrices are W_Q and W_K (Bahdanau et al.
    2015, arXiv:1409.0473; the paper's §3.2.1). It is slow, because each score takes d_k numbers.
    """

    def __init__(self, heads: int, d_k: int, dropout: float) -> None:
        super().__init__()
        self.dropout = Dropout(dropout)
        self.direction_HK = nn.Parameter(torch.empty(heads, d_k))
        nn.init.normal_(self.direction_HK, std=d_k**-0.5)

    def forward(self, q_BHQK: Tensor, k_BHSK: Tensor, v_BHSU: Tensor, bias: Tensor | None = None) -> Tensor:
        """Returns the attended values, BHQU."""
        hidden_BHQSK = torch.tanh(q_BHQK[:, :, :, None] + k_BHSK[:, :, None])
        scores = torch.einsum("bhqsk,hk->bhqs", hidden_BHQSK, self.direction_HK.to(hidden_BHQSK.dtype))
        scores = scores.to(torch.promote_types(scores.dtype, torch.float32))
        weights = (scores if bias is None else scores + bias).softmax(-1)
        return self.dropout(weights).to(v_BHSU.dtype) @ v_BHSU


AttentionFunction = DotProduct | Additive


def attention_function(config: ModelConfig) -> AttentionFunction:
    """Returns the attention function that --attention names."""
    if config.attention == "additive":
        return Additive(config.heads, config.d_k, config.attention_dropout)
    return DotProduct(config.d_k, config.attention_dropout, scaled=config.attention == "scaled-dot-product")


def attend(q_FHK: Tensor, k_GHK: Tensor, v_GHU: Tensor, mask: Mask, function: AttentionFunction) -> Tensor:
    """Returns the attended values of all sentences, FHU; 0 at positions that belong to no sentence."""
    if isinstance(mask, PackedMask):
        assert isinstance(function, DotProduct)
        return mask.attend(q_FHK, k_GHK, v_GHU, function.scale)
    outputs = []
    for block, q_BHQK, k_BHSK, v_BHSU in padded_blocks(mask, q_FHK, k_GHK, v_GHU):
        if block.window is None:
            attended_BHQU = function(q_BHQK, k_BHSK, v_BHSU, block.bias)
        else:
            attended_BHQU = block.window.attend(q_BHQK, k_BHSK, v_BHSU, function)
        outputs.append(attended_BHQU.transpose(1, 2).flatten(0, 1))
    if (rest := len(q_FHK) - sum(map(len, outputs))) > 0:
        outputs.append(outputs[0].new_zeros(rest, *outputs[0].shape[1:]))
    return torch.cat(outputs)


def padded_blocks(mask: tuple[BlockMask, ...], q_FHK: Tensor, *of_keys_GH: Tensor) -> Iterator[tuple[Any, ...]]:
    """Yields the mask of each block, its queries BHQK, and what belongs to its keys (keys and values), BHS and more."""
    query = key = 0
    for block in mask:
        queries, keys = block.sentences * block.queries, block.sentences * block.keys
        flat = (q_FHK[query : query + queries], *(x_GH[key : key + keys] for x_GH in of_keys_GH))
        yield block, *(x.unflatten(0, (block.sentences, -1)).transpose(1, 2) for x in flat)
        query, key = query + queries, key + keys
