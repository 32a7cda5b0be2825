"""The loss equals torch's label-smoothed cross-entropy in float64, and the learning rate follows the paper."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
from conftest import token_arrays
from torch import nn
from torch.nn import functional as F

import nmt.training.loss
from nmt.config import ModelConfig, TrainConfig
from nmt.data.folder import ParallelSplit
from nmt.data.loader import MicroBatch, make_micro_batch
from nmt.model.transformer import Transformer
from nmt.training.learning_rate import learning_rate
from nmt.training.loss import TrainingLoss

CONFIG = ModelConfig(encoder_layers=1, decoder_layers=1, d_model=16, d_ff=16, heads=2, d_k=8, d_v=8, dropout=0.0)


def batch(pairs: int, vocabulary: int) -> MicroBatch:
    """Returns a batch with several chunks of labels and with padding between and after the sentences."""
    random = np.random.default_rng(0)
    sentences = [random.integers(4, vocabulary, random.integers(5, 20)) for _ in range(pairs)]
    split = ParallelSplit(*token_arrays(sentences, sentences))
    return make_micro_batch(split, [np.arange(pairs // 2), np.arange(pairs // 2, pairs)])


@pytest.fixture(params=["cpu", "gpu"])
def _code(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Computes with the code for each device; here, both run on the CPU."""
    monkeypatch.setattr("nmt.training.loss._nll_on_cpu", getattr(nmt.training.loss, f"_nll_on_{request.param}"))


@pytest.mark.usefixtures("_code")
@pytest.mark.parametrize("smoothing, biased, bf16", [
    (0.0, False, False), (0.0, True, False), (0.1, False, False), (0.4, True, False), (0.1, False, True),
])  # fmt: skip
def test_loss_and_gradient_equal_those_of_torchs_cross_entropy(smoothing: float, biased: bool, bf16: bool) -> None:
    """The reference computes all labels at once, in float64."""
    torch.manual_seed(0)
    module = TrainingLoss(Transformer(replace(CONFIG, output_bias=biased), 300, 300, shared=True), smoothing)
    if biased:
        nn.init.normal_(module.model.output_bias)
    made = batch(400, 300)
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=bf16):
        loss, nll = module(made)
    loss.backward()
    assert loss.dtype == torch.float32
    gradients = {name: parameter.grad.clone() for name, parameter in module.named_parameters()}
    module.zero_grad()
    model = module.double().model
    encoded = model.encode(made.source.ids_F, made.source.layout)
    logits = model.logits(model.decode(made.target.ids_F, made.target.layout, encoded, made.source.layout))
    summed = partial(F.cross_entropy, logits, made.labels_M, ignore_index=0, reduction="sum")
    expected = summed(label_smoothing=smoothing)
    expected.backward()
    assert loss.item() == pytest.approx(expected.item(), rel=1e-4 if bf16 else 1e-6)
    assert nll.item() == pytest.approx(summed().item(), rel=1e-4 if bf16 else 1e-6)
    for name, parameter in module.named_parameters():
        assert parameter.grad is not None
        assert (gradients[name] - parameter.grad).norm() / parameter.grad.norm() < (0.1 if bf16 else 1e-5)


@pytest.mark.usefixtures("_code")
def test_a_label_with_probability_0_in_fp32_has_a_finite_loss() -> None:
    torch.manual_seed(0)
    module = TrainingLoss(Transformer(CONFIG, 30, 30, shared=True), 0.0)
    with torch.no_grad():
        module.model.target_embedding.weight *= 2000
    _, nll = module(batch(4, 30))
    assert 500 < nll.item() < float("inf")


@pytest.mark.parametrize("update, expected", [
    (1, 512**-0.5 * 4000**-1.5), (4000, 6.987712429686843e-4), (16000, 3.4938562148434214e-4),
])  # fmt: skip
def test_the_learning_rate_follows_the_papers_formula(update: int, expected: float) -> None:
    assert learning_rate(update, 512, TrainConfig(save_dir="run")) == pytest.approx(expected)
    assert learning_rate(update, 512, TrainConfig(save_dir="run", lr_scale=2.0)) == pytest.approx(2 * expected)


@pytest.mark.parametrize("schedule", ["paper", "inverse-sqrt", "linear", "constant"])
def test_the_learning_rate_equals_torchs_schedulers(schedule: str) -> None:
    """The reference is torch's LambdaLR and its schedulers, at every update of a training."""
    peak = 512**-0.5 * 40**-0.5
    given = {} if schedule == "paper" else {"lr": peak}
    config = TrainConfig(save_dir="run", lr_schedule=schedule, warmup_updates=40, max_updates=200, **given)  # type: ignore[arg-type]
    adam = torch.optim.Adam([torch.zeros(1, requires_grad=True)], lr=peak)
    warmup = torch.optim.lr_scheduler.LinearLR(adam, 1 / 40, 1.0, 39)
    rest: torch.optim.lr_scheduler.LRScheduler = {
        "linear": lambda: torch.optim.lr_scheduler.LinearLR(adam, 1.0, 1e-12, 160),
        "constant": lambda: torch.optim.lr_scheduler.ConstantLR(adam, 1.0, 160),
    }.get(schedule, lambda: torch.optim.lr_scheduler.LambdaLR(adam, lambda n: (40 / (40 + n)) ** 0.5))()
    scheduler = torch.optim.lr_scheduler.SequentialLR(adam, [warmup, rest], [39])
    for update in range(1, 200):
        assert learning_rate(update, 512, config) == pytest.approx(adam.param_groups[0]["lr"], rel=1e-6, abs=1e-12)
        adam.step()
        scheduler.step()
