"""Label-smoothed cross-entropy (paper §5.4), summed over target tokens.

Shapes: M flat target positions, D d_model, V target vocabulary.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from nmt.data.loader import Batch
from nmt.model.transformer import Transformer
from nmt.text.subword import PAD

# Rows of logits that exist at once: few enough to stay in a CPU's cache.
_CHUNK_ROWS = 128


def summed_nll(hidden_MD: Tensor, weight_VD: Tensor, labels_M: Tensor) -> Tensor:
    """−Σ log softmax(hidden · weightᵀ)[label] over labels other than PAD.

    The M × V logits never exist as a whole where torch offers that.
    """
    if not hasattr(F, "linear_cross_entropy"):  # torch before 2.13
        logits_MV = F.linear(hidden_MD, weight_VD).float()
        return F.cross_entropy(logits_MV, labels_M, ignore_index=PAD, reduction="sum")
    options = torch.nn.LinearCrossEntropyOptions(
        batch_chunk_size=_CHUNK_ROWS, chunking_method=None, acc_policy="accurate"
    )
    return F.linear_cross_entropy(hidden_MD, weight_VD, labels_M, ignore_index=PAD, reduction="sum", options=options)


class TrainingLoss(nn.Module):
    """Model and loss in one module, so that data parallelism wraps exactly what training calls."""

    def __init__(self, model: Transformer, label_smoothing: float) -> None:
        super().__init__()
        self.model, self.label_smoothing = model, label_smoothing

    def forward(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """The loss to train on, and the negative log-likelihood in nats, each summed over the batch's target tokens."""
        hidden_MD = self.model(batch.source, batch.target)
        weight_VD = self.model.target_embedding.weight
        dtype = _product_dtype(hidden_MD)
        nll = summed_nll(hidden_MD.to(dtype), weight_VD.to(dtype), batch.labels_M)
        if not self.label_smoothing:
            return nll, nll.detach()
        # With smoothing ε the loss is nll + ε Σ (logit of the label − mean logit), and a logit is a product with a row
        # of the weights: so the smoothing costs a product of D numbers a token, not a pass over the vocabulary.
        margin_M = (hidden_MD * (F.embedding(batch.labels_M, weight_VD) - weight_VD.mean(0))).sum(-1)
        return nll + self.label_smoothing * (margin_M * (batch.labels_M != PAD)).sum(), nll.detach()


def _product_dtype(x: Tensor) -> torch.dtype:
    """What matrix products are computed in here: autocast's type, or the tensor's own."""
    device = x.device.type
    return torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else x.dtype
