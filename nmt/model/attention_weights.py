"""The weights that attention modules compute, for word alignments and for the page on attention."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from nmt.model.attention import attend
from nmt.model.masks import PackedMask
from nmt.model.transformer import MultiHeadAttention


@contextmanager
def recording(modules: Iterable[nn.Module]) -> Iterator[dict[nn.Module, Tensor]]:
    """Yields a dict that receives the weights BHQS of each of these attention modules when it computes.

    The model's own attention function computes them: with the identity matrix as values, its output is the weights.
    The sentences must form one padded block.
    """
    recorded: dict[nn.Module, Tensor] = {}

    def record(module: nn.Module, inputs: tuple[Any, ...], _: Tensor) -> None:
        assert isinstance(module, MultiHeadAttention)
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
