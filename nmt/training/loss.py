"""Label-smoothed cross-entropy (paper §5.4), summed over target tokens.

Shapes: I target tokens, D d_model, V target vocabulary.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from nmt.data.loader import Batch
from nmt.model.transformer import Transformer

# Rows of logits that exist at once: few enough to stay in a CPU's cache.
_CHUNK_ROWS = 256


def summed_nll(hidden_ID: Tensor, weight_VD: Tensor, labels_I: Tensor) -> Tensor:
    """−Σ log softmax(hidden · weightᵀ)[label], without ever holding all I × V logits where torch offers that."""
    if not hasattr(F, "linear_cross_entropy"):  # torch before 2.13
        return F.cross_entropy(F.linear(hidden_ID, weight_VD).float(), labels_I, reduction="sum")
    options = torch.nn.LinearCrossEntropyOptions(
        batch_chunk_size=_CHUNK_ROWS, chunking_method=None, acc_policy="accurate"
    )
    return F.linear_cross_entropy(hidden_ID, weight_VD, labels_I, reduction="sum", options=options)


class TrainingLoss(nn.Module):
    """Model and loss in one module, so that data parallelism wraps exactly what training calls."""

    def __init__(self, model: Transformer, label_smoothing: float) -> None:
        super().__init__()
        self.model, self.label_smoothing = model, label_smoothing

    def forward(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """The loss to train on, and the negative log-likelihood in nats, each summed over the batch's target tokens."""
        hidden_ID = self.model(batch.source, batch.target)[batch.real_I]
        weight_VD = self.model.target_embedding.weight
        dtype = (
            torch.get_autocast_dtype(hidden_ID.device.type)
            if torch.is_autocast_enabled(hidden_ID.device.type)
            else hidden_ID.dtype
        )
        nll = summed_nll(hidden_ID.to(dtype), weight_VD.to(dtype), batch.labels_I)
        if not self.label_smoothing:
            return nll, nll.detach()
        # With smoothing ε the loss is nll + ε Σ (logit of the label − mean logit), and a logit is a product with a row
        # of the weights: so the smoothing costs two products of D numbers a token, not a pass over the vocabulary.
        label_rows_ID = F.embedding(batch.labels_I, weight_VD)
        margin = (hidden_ID * (label_rows_ID - weight_VD.mean(0))).sum()
        return nll + self.label_smoothing * margin, nll.detach()
