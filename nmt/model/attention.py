"""Attention of queries over keys and values (paper §3.2): `attend` is how the model calls it.

It cuts a batch into its padded blocks, and `DotProduct` or `Additive` computes each block. On a CPU, `DotProduct`
takes the kernel in `nmt.model.cpu_kernels`. Packed sentences are computed by the kernel in
`nmt.model.packed_attention`. `recording` gives the weights, for word alignments and for the page on attention.

Shapes: see docs/architecture.md.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from nmt.config import ModelConfig
from nmt.model.cpu_kernels import Dropout, product_attention, widened
from nmt.model.masks import BlockMask, Mask, PackedMask

# Keys GHK or values GHU of all sentences in one flat axis, or as a cache holds them: BHSK or BHSU of each block.
KeysOrValues = Tensor | Sequence[Tensor]
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
        if on_cpu and (torch.is_grad_enabled() or q_BHQK.shape[2] * k_BHSK.shape[2] <= _SMALL):
            return product_attention(q_BHQK, k_BHSK, v_BHSU, bias, self.scale, dropout)
        q, k, v = map(widened, (q_BHQK, k_BHSK, v_BHSU)) if on_cpu else (q_BHQK, k_BHSK, v_BHSU)
        mask = None if bias is None else bias.to(q.dtype)
        with torch.autocast("cpu", enabled=False):
            return F.scaled_dot_product_attention(q, k, v, mask, dropout, scale=self.scale).to(v_BHSU.dtype)


class Additive(nn.Module):
    """Dropout(softmax(w · tanh(q + k) + bias)) v.

    The scores are a feed-forward network with one hidden layer, whose first matrices are W_Q and W_K (Bahdanau et
    al. 2015, arXiv:1409.0473; the paper's §3.2.1). It is slow, because each score takes d_k numbers.
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
        return self.dropout((scores if bias is None else scores + bias).softmax(-1)).to(v_BHSU.dtype) @ v_BHSU


AttentionFunction = DotProduct | Additive


def attention_function(config: ModelConfig) -> AttentionFunction:
    """Returns the attention function that --attention names."""
    if config.attention == "additive":
        return Additive(config.heads, config.d_k, config.attention_dropout)
    return DotProduct(config.d_k, config.attention_dropout, scaled=config.attention == "scaled-dot-product")


def attend(q_FHK: Tensor, keys: KeysOrValues, values: KeysOrValues, mask: Mask, function: AttentionFunction) -> Tensor:
    """Returns the attended values of all sentences, FHU; 0 at positions that belong to no sentence."""
    if isinstance(mask, PackedMask):
        assert isinstance(function, DotProduct) and isinstance(keys, Tensor) and isinstance(values, Tensor)
        return mask.attend(q_FHK, keys, values, function.scale, function.dropout if function.training else 0.0)
    outputs = []
    for block, q_BHQK, k_BHSK, v_BHSU in padded_blocks(mask, q_FHK, keys, values):
        if block.window is None:
            attended_BHQU = function(q_BHQK, k_BHSK, v_BHSU, block.bias)
        else:
            attended_BHQU = block.window.attend(q_BHQK, k_BHSK, v_BHSU, function)
        outputs.append(attended_BHQU.transpose(1, 2).flatten(0, 1))
    if (rest := len(q_FHK) - sum(map(len, outputs))) > 0:
        outputs.append(outputs[0].new_zeros(rest, *outputs[0].shape[1:]))
    return outputs[0] if len(outputs) == 1 else torch.cat(outputs)


def padded_blocks(mask: Sequence[BlockMask], q_FHK: Tensor, *keys_values: KeysOrValues) -> Iterator[tuple[Any, ...]]:
    """Yields the mask of each block, its queries BHQK, and what belongs to its keys (keys and values), BHS and more."""
    blocks: list[Sequence[Tensor]] = [cut(q_FHK, [(block.sentences, block.queries) for block in mask])]
    sizes = [(block.sentences, block.keys) for block in mask]
    blocks += [cut(x, sizes) if isinstance(x, Tensor) else x for x in keys_values]
    return zip(mask, *blocks, strict=True)


def cut(x_FHK: Tensor, sizes: Sequence[tuple[int, int]]) -> list[Tensor]:
    """Returns the blocks BHSK that lie in a flat axis, without its rest. Each has so many sentences of one width.

    Unlike slices, the blocks have one gradient, which is concatenated.
    """
    lengths = [sentences * width for sentences, width in sizes]
    *flat, _ = x_FHK.split([*lengths, len(x_FHK) - sum(lengths)])
    return [x.unflatten(0, size).transpose(1, 2) for x, size in zip(flat, sizes, strict=True)]


@contextmanager
def recording(modules: Iterable[nn.Module]) -> Iterator[dict[nn.Module, Tensor]]:
    """Yields a dict that receives the weights BHQS of each of these attention modules when it computes.

    The model's own attention function computes them: with the identity matrix as values, its output is the
    weights. The sentences must form one padded block.
    """
    recorded: dict[nn.Module, Tensor] = {}

    def record(module: Any, inputs: tuple[Any, ...], _: Tensor) -> None:
        x_FD, encoded_ND, mask = inputs[:3]
        assert not isinstance(mask, PackedMask)
        (block,) = mask
        q_FHK, k_GHK, _ = module.projections(x_FD, encoded_ND)
        identity_SS = torch.eye(block.keys, dtype=k_GHK.dtype, device=k_GHK.device)
        identity_GHS = identity_SS.repeat(block.sentences, 1)[:, None].expand(-1, module.heads, -1)
        weights_FHS = attend(q_FHK, k_GHK, identity_GHS, mask, module.function)
        recorded[module] = weights_FHS.unflatten(0, (block.sentences, -1)).transpose(1, 2)

    hooks = [module.register_forward_hook(record) for module in modules]
    try:
        yield recorded
    finally:
        for hook in hooks:
            hook.remove()
