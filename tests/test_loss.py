"""Label-smoothed loss against torch's cross-entropy in float64, and the learning rate against the paper's formula."""

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from nmt.config import ModelConfig
from nmt.data.loader import Batch, make_side
from nmt.model.transformer import Transformer
from nmt.training.loss import TrainingLoss, summed_nll
from nmt.training.schedule import learning_rate

CONFIG = ModelConfig(encoder_layers=1, decoder_layers=1, d_model=16, d_ff=16, heads=2, d_k=8, d_v=8, dropout=0.0)


def batch() -> Batch:
    source, target = [[[4, 5, 3], [6, 3]]], [[[2, 7, 8, 9], [2, 10]]]
    sides = [make_side([[np.array(s) for s in block] for block in blocks]) for blocks in (source, target)]
    return Batch(sides[0], sides[1], torch.tensor([7, 8, 9, 3, 10, 3, 0, 0]), 5, 6)


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.4])
def test_loss_and_gradient_equal_torchs_cross_entropy(smoothing: float) -> None:
    torch.manual_seed(0)
    module = TrainingLoss(Transformer(CONFIG, 30, 30, shared=True), smoothing)
    made = batch()
    loss, nll = module(made)
    loss.backward()
    found = {name: p.grad.clone() for name, p in module.named_parameters() if p.grad is not None}
    module.zero_grad()
    module.double()
    logits = module.model.logits(module.model(made.source, made.target))
    expected = F.cross_entropy(logits, made.labels_M, ignore_index=0, reduction="sum", label_smoothing=smoothing)
    expected.backward()
    assert loss.item() == pytest.approx(expected.item(), rel=1e-5)
    assert nll.item() == pytest.approx(
        F.cross_entropy(logits, made.labels_M, ignore_index=0, reduction="sum").item(), rel=1e-5
    )
    for name, parameter in module.named_parameters():
        assert parameter.grad is not None
        torch.testing.assert_close(found[name].double(), parameter.grad, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("rows", [1, 256, 700])
def test_nll_in_chunks_equals_nll_at_once(rows: int) -> None:
    torch.manual_seed(rows)
    hidden, weight, labels = torch.randn(rows, 8), torch.randn(11, 8), torch.randint(1, 11, (rows,))
    expected = F.cross_entropy(hidden.double() @ weight.double().T, labels, reduction="sum")
    assert summed_nll(hidden, weight, labels).item() == pytest.approx(expected.item(), rel=1e-5)


def test_nll_without_linear_cross_entropy_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    hidden, weight, labels = torch.randn(300, 8), torch.randn(11, 8), torch.randint(1, 11, (300,))
    chunked = summed_nll(hidden, weight, labels)
    monkeypatch.delattr(F, "linear_cross_entropy", raising=False)
    torch.testing.assert_close(summed_nll(hidden, weight, labels), chunked)


@pytest.mark.parametrize(
    ("update", "expected"),
    [(1, 512**-0.5 * 4000**-1.5), (4000, 6.987712429686843e-4), (16000, 3.4938562148434214e-4)],
)
def test_learning_rate_is_the_papers(update: int, expected: float) -> None:
    assert learning_rate(update, 512, 4000) == pytest.approx(expected)
    assert learning_rate(update, 512, 4000, scale=2.0) == pytest.approx(2 * expected)
