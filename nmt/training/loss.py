"""Label-smoothed cross-entropy (paper §5.4), and the loss on given word alignments (Garg et al. 2019)."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from nmt.data.loader import MicroBatch
from nmt.model.attention import DotProduct, padded_blocks
from nmt.model.device import product_dtype
from nmt.model.lora import FrozenTable
from nmt.model.masks import Mask, PackedMask
from nmt.model.transformer import LOGIT_ROWS, DecoderLayer, MultiHeadAttention, Transformer
from nmt.text.subword import PAD

if TYPE_CHECKING:
    from nmt.extensions import Criterion


def _log_weights(attention: MultiHeadAttention, x_MD: Tensor, encoded_ND: Tensor, mask: Mask) -> Tensor:
    """Returns the logarithms of the first head's weights without dropout: BTS of all blocks, end to end."""
    assert isinstance(attention.function, DotProduct)
    assert not isinstance(mask, PackedMask)
    d_k = attention.query.out_features // attention.heads
    q_M1K, k_N1K = (  # with an axis for one head
        F.linear(x_FD, layer.weight[:d_k], None if layer.bias is None else layer.bias[:d_k])[:, None]
        for layer, x_FD in ((attention.query, x_MD), (attention.key_value, encoded_ND))
    )
    log_weights = []
    for block, q_B1TK, k_B1SK in padded_blocks(mask, q_M1K, k_N1K):
        scores_B1TS = q_B1TK @ k_B1SK.transpose(2, 3)
        scores_B1TS = scores_B1TS.to(torch.promote_types(scores_B1TS.dtype, torch.float32)) * attention.function.scale
        if block.bias is not None:
            scores_B1TS = scores_B1TS + block.bias
        log_weights.append(scores_B1TS.log_softmax(-1).flatten())
    return torch.cat(log_weights)


# Rows of the softmax matrix whose gradients are computed at once. Those of very large vocabularies take much memory.
_PRODUCT_ROWS = 2**16


# Returns what `_nll_on_cpu` returns.
Nll = Callable[[Tensor, Tensor, Tensor | None, Tensor, bool], tuple[Tensor, Tensor | None]]


class _ChunkedNll(torch.autograd.Function):
    """−Σ log softmax(hidden · weightᵀ + bias)[label] over labels other than PAD, and its gradient if it is needed.

    Logits are computed a few rows at a time, so that all M × V of them never exist together. Matrix products have
    the type `dtype`. Softmax and sums are computed in fp32 or wider. (`F.linear_cross_entropy` would sum in
    bfloat16 under bfloat16.)

    Args:
        rows_X, added_XD: the rows of a frozen weight that learn, and what gets their gradient.
        smoothing: ε, if the gradient of the weight includes that of ε times the margins Σ hidden · (row of the
            label − mean row). torch would compute it in two more matrices of the size of the weight, while all
            activations are in memory.
    """

    @staticmethod
    def forward(
        ctx: Any,
        hidden_MD: Tensor,
        weight_VD: Tensor,
        bias_V: Tensor | None,
        added_XD: Tensor | None,
        rows_X: Tensor | None,
        labels_M: Tensor,
        nll: Nll,
        dtype: torch.dtype,
        smoothing: float,
        needs_gradient: bool,
    ) -> Tensor:
        grad_hidden_MD = torch.empty_like(hidden_MD)
        # Gradients of the rows that learn, which may be all.
        learns = needs_gradient and (ctx.needs_input_grad[1] or added_XD is not None)
        grad_XD = torch.zeros_like(weight_VD if added_XD is None else added_XD) if learns else None
        grad_bias_V = torch.zeros_like(bias_V) if bias_V is not None and ctx.needs_input_grad[2] else None
        total = torch.zeros((), dtype=torch.promote_types(dtype, torch.float32), device=hidden_MD.device)
        real_M = labels_M != PAD
        weight, bias = weight_VD.to(dtype), None if bias_V is None else bias_V.to(dtype)
        # In 16-bit precision, gradients of the softmax matrix are added, which takes a CPU as long as a hundred rows.
        rows = max(LOGIT_ROWS[hidden_MD.device.type], 512 if dtype.itemsize == 2 and grad_XD is not None else 0)
        blocks = (x.split(rows) for x in (hidden_MD.to(dtype), labels_M[:, None], real_M, grad_hidden_MD))
        for hidden_ID, labels_I1, real_I, grad_hidden_ID in zip(*blocks, strict=True):
            nll_I, grad_IV = nll(hidden_ID, weight, bias, labels_I1, needs_gradient)
            total += (nll_I * real_I).sum()
            if grad_IV is None:
                continue
            grad_hidden_ID.copy_((grad_IV @ weight) * real_I[:, None])
            hidden_ID = hidden_ID * real_I[:, None]
            if grad_bias_V is not None:
                grad_bias_V += grad_IV.T @ real_I.to(dtype)
            if grad_XD is None:
                continue
            grad_IX = grad_IV if rows_X is None else grad_IV[:, rows_X]
            for part_XD, part_IX in zip(grad_XD.split(_PRODUCT_ROWS), grad_IX.split(_PRODUCT_ROWS, 1), strict=True):
                if dtype == part_XD.dtype:
                    part_XD.addmm_(part_IX.T, hidden_ID)
                else:
                    part_XD += part_IX.T @ hidden_ID
        ctx.smoothing, ctx.learns_rows = smoothing, rows_X is not None
        ctx.save_for_backward(grad_hidden_MD, grad_XD, grad_bias_V, hidden_MD if smoothing else None, labels_M)
        return total

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        *own, hidden_MD, labels_M = ctx.saved_tensors
        # In place, because the gradient of a large vocabulary takes as much memory as its embeddings.
        grad_hidden_MD, grad_XD, grad_bias_V = (None if x is None else x.mul_(gradients[0]) for x in own)
        if ctx.smoothing and grad_XD is not None:
            grad_MD = (gradients[0] * ctx.smoothing * (labels_M != PAD))[:, None] * hidden_MD
            grad_row_D = -grad_MD.sum(0) / len(grad_XD)
            ids_U, index_M = labels_M.unique(return_inverse=True)
            grad_UD = torch.ops.aten.embedding_dense_backward(grad_MD, index_M, len(ids_U), -1, False)
            grad_UD = grad_UD + grad_row_D + grad_XD[ids_U]
            grad_XD.add_(grad_row_D)[ids_U] = grad_UD
        grads = (None, grad_bias_V, grad_XD) if ctx.learns_rows else (grad_XD, grad_bias_V, None)
        return grad_hidden_MD, *grads, *[None] * 6


def _nll_on_cpu(
    hidden_ID: Tensor, weight_VD: Tensor, bias_V: Tensor | None, labels_I1: Tensor, needs_gradient: bool
) -> tuple[Tensor, Tensor | None]:
    """Returns −log softmax(hidden · weightᵀ + bias)[label], I, and its gradient by the logits, IV, if it is needed.

    Computes a few rows of logits at a time, which stay in the cache. Products have the type of their factors, and
    the softmax is computed in fp32 or wider.
    """
    dtype = torch.promote_types(hidden_ID.dtype, torch.float32)
    nll_I1 = torch.empty(labels_I1.shape, dtype=dtype)
    grad_IV = hidden_ID.new_empty(len(hidden_ID), len(weight_VD)) if needs_gradient else None
    for first in range(0, len(hidden_ID), LOGIT_ROWS["cpu"]):
        chunk = slice(first, first + LOGIT_ROWS["cpu"])
        logits_JV, labels_J1 = F.linear(hidden_ID[chunk], weight_VD, bias_V).to(dtype), labels_I1[chunk]
        # In fp32, the probabilities become the gradient in place.
        gradient_JV = grad_IV[chunk] if grad_IV is not None and grad_IV.dtype == dtype else None
        probabilities_JV = torch.softmax(logits_JV, -1, out=gradient_JV)
        # log Σ exp is computed from the largest probability, because the label's probability may underflow.
        log_sum_J1 = logits_JV.amax(-1, keepdim=True) - probabilities_JV.amax(-1, keepdim=True).log()
        nll_I1[chunk] = log_sum_J1 - logits_JV.gather(1, labels_J1)
        if grad_IV is not None:
            probabilities_JV.scatter_add_(1, labels_J1, -torch.ones_like(log_sum_J1))
            if gradient_JV is None:
                grad_IV[chunk] = probabilities_JV
    return nll_I1[:, 0], grad_IV


def _nll_on_gpu(
    hidden_ID: Tensor, weight_VD: Tensor, bias_V: Tensor | None, labels_I1: Tensor, needs_gradient: bool
) -> tuple[Tensor, Tensor | None]:
    """Returns the same as `_nll_on_cpu`. Computes all rows of logits at once, and passes over them few times."""
    logits_IV = F.linear(hidden_ID, weight_VD, bias_V)
    log_probs_IV = logits_IV.to(torch.promote_types(logits_IV.dtype, torch.float32)).log_softmax(-1)
    log_probs_I1 = log_probs_IV.gather(1, labels_I1)
    if not needs_gradient:
        return -log_probs_I1[:, 0], None
    grad_IV = log_probs_IV.exp().to(logits_IV.dtype)
    return -log_probs_I1[:, 0], grad_IV.scatter_(1, labels_I1, log_probs_I1.expm1().to(logits_IV.dtype))


class TrainingLoss(nn.Module):
    """A module that holds the model and its loss."""

    def __init__(
        self,
        model: Transformer,
        label_smoothing: float,
        alignment_weight: float = 0.0,
        criterion: "Criterion | None" = None,
    ) -> None:
        super().__init__()
        self.model, self.label_smoothing, self.alignment_weight = model, label_smoothing, alignment_weight
        self.criterion = criterion
        self.nll_on_gpu = _nll_on_gpu

    def forward(self, batch: MicroBatch) -> tuple[Tensor, Tensor]:
        """Returns the training loss and the negative log-likelihood, each in nats and summed over target tokens."""
        source, target, labels_M, alignments = batch.source, batch.target, batch.labels_M, batch.alignments
        layer, aligned = self.model.config.guided_alignment, list[Tensor]()

        def record(attention: nn.Module, inputs: tuple[Any, ...], _: Tensor) -> None:
            # The loss of a target piece is the mean of −log α over the source pieces that it is linked to, with α
            # the attention of the first head of layer --guided-alignment at the position that predicts the piece.
            assert alignments
            log_weights = _log_weights(cast(MultiHeadAttention, attention), *inputs[:3])
            aligned.append(-(log_weights[alignments.indices_L] * alignments.shares_L).sum())

        guided: AbstractContextManager[Any] = nullcontext()
        if alignments and layer:
            guided = cast(DecoderLayer, self.model.decoder[layer - 1]).cross_attention.register_forward_hook(record)
        with guided:
            encoded_ND = self.model.encode(source.ids_F, source.layout)
            hidden_MD = self.model.decode(target.ids_F, target.layout, encoded_ND, source.layout)
        weight_VD, bias_V, table = self.model.softmax_matrix_VD, self.model.output_bias, self.model.target_embedding
        added_XD = table.added if isinstance(table, FrozenTable) else None
        rows_X = table.rows_X if isinstance(table, FrozenTable) and added_XD is not None else None
        dtype, real_M, on_cpu = product_dtype(hidden_MD), labels_M != PAD, hidden_MD.device.type == "cpu"
        # On a GPU, whose graphs need tensors of constant shapes, torch computes the gradient of the margins.
        in_place = on_cpu and not self.criterion and not isinstance(table, FrozenTable)
        nll_on_device, smoothing = _nll_on_cpu if on_cpu else self.nll_on_gpu, self.label_smoothing if in_place else 0.0
        how = nll_on_device, dtype, smoothing, torch.is_grad_enabled()
        with torch.autocast(hidden_MD.device.type, enabled=False):  # _ChunkedNll casts to `dtype` itself
            loss = nll = _ChunkedNll.apply(hidden_MD, weight_VD, bias_V, added_XD, rows_X, labels_M, *how)
        if self.criterion:
            # The addend is 0. It gives the softmax matrix and its bias a gradient even where a batch has no
            # labels, and makes the loss NaN if the model's outputs are not finite, whatever the criterion returns.
            loss = self._own_loss(self.criterion, hidden_MD[real_M].to(dtype), labels_M[real_M]) + 0 * nll
        elif self.label_smoothing:
            # With smoothing ε the loss is nll + ε Σ (logit of the label − mean logit). A logit is a product with a row
            # of the softmax matrix, so smoothing costs one product of D numbers per token, not a pass over all pieces.
            if isinstance(table, FrozenTable):
                rows_MD, mean_D = table(labels_M), table.mean()
            else:
                matrix_VD = weight_VD.detach() if in_place else weight_VD
                rows_MD, mean_D = F.embedding(labels_M, matrix_VD), matrix_VD.mean(0)
            margin_M = (hidden_MD * (rows_MD - mean_D)).sum(-1)
            if bias_V is not None:
                margin_M = margin_M + bias_V[labels_M] - bias_V.mean()
            loss = nll + self.label_smoothing * (margin_M * real_M).sum()
        if aligned:
            loss = loss + self.alignment_weight * aligned[0]
        return loss, nll.detach()

    def _own_loss(self, criterion: "Criterion", hidden_MD: Tensor, labels_M: Tensor) -> Tensor:
        """Returns the loss of --criterion. Logits are computed a few rows at a time, and again in the backward pass."""
        dtype = hidden_MD.dtype

        def chunk_loss(hidden_JD: Tensor, labels_J: Tensor) -> Tensor:
            weight, bias = self.model.softmax_matrix_VD.to(dtype), self.model.output_bias
            logits_JV = F.linear(hidden_JD, weight, None if bias is None else bias.to(dtype))
            table = self.model.target_embedding
            if isinstance(table, FrozenTable) and table.added is not None:  # their gradient does not come from `weight`
                logits_JX = F.linear(hidden_JD, table.added.to(dtype), None if bias is None else bias[table.rows_X])
                logits_JV = logits_JV.index_copy(1, table.rows_X, logits_JX)
            return criterion(logits_JV.float(), labels_J)

        rows = zip(*(x.split(LOGIT_ROWS[x.device.type]) for x in (hidden_MD, labels_M)), strict=True)
        losses = [checkpoint(chunk_loss, *row, use_reentrant=False) for row in rows if len(row[0])]
        return torch.stack(losses).sum() if losses else hidden_MD.sum() * 0
