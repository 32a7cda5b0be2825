"""The loss that trains one attention head on given word alignments (Garg et al. 2019, arXiv:1909.02074, §4).

Shapes: see docs/architecture.md; N flat source and M flat target positions, B sentences, T target and S source
positions of a sentence, D d_model, K d_k, L links.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from nmt.data.loader import Links
from nmt.model.attention import DotProduct, padded_blocks
from nmt.model.masks import Mask, PackedMask
from nmt.model.transformer import DecoderLayer, MultiHeadAttention, Transformer


@contextmanager
def alignment_loss(model: Transformer, links: Links) -> Iterator[list[Tensor]]:
    """Yields a list that receives the alignment loss of a padded batch while the model decodes it.

    The loss of a target piece is the mean of −log α over the source pieces that it is linked to, with α the attention
    of the first head of layer --guided-alignment at the position that predicts the piece. It is in nats and summed over
    target pieces.
    """
    losses: list[Tensor] = []

    def record(module: nn.Module, inputs: tuple[Any, ...], _: Tensor) -> None:
        log_weights = _log_weights(cast(MultiHeadAttention, module), *inputs)
        losses.append(-(log_weights[links.places_L] * links.shares_L).sum())

    assert model.config.guided_alignment
    layer = cast(DecoderLayer, model.decoder[model.config.guided_alignment - 1])
    hook = layer.cross_attention.register_forward_hook(record)
    try:
        yield losses
    finally:
        hook.remove()


def _log_weights(attention: MultiHeadAttention, x_MD: Tensor, encoded_ND: Tensor, mask: Mask) -> Tensor:
    """Returns the logarithms of the first head's weights without dropout: BTS of all blocks, end to end."""
    assert isinstance(attention.function, DotProduct)
    assert not isinstance(mask, PackedMask)
    d_k = attention.sizes[0] // attention.heads
    q_M1K = F.linear(x_MD, attention.query.weight[:d_k])[:, None]  # an axis for one head
    k_N1K = F.linear(encoded_ND, attention.key_value.weight[:d_k])[:, None]
    found = []
    for block, q_B1TK, k_B1SK in padded_blocks(mask, q_M1K, k_N1K):
        scores_B1TS = q_B1TK @ k_B1SK.transpose(2, 3)
        scores_B1TS = scores_B1TS.to(torch.promote_types(scores_B1TS.dtype, torch.float32)) * attention.function.scale
        if block.bias is not None:
            scores_B1TS = scores_B1TS + block.bias
        found.append(scores_B1TS.log_softmax(-1).flatten())
    return torch.cat(found)
