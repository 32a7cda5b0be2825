"""Muon for the matrices of the layers: steps, gradients that are not finite, resumed and parallel trainings."""

from pathlib import Path

import forks
import pytest
import torch
from commands import SMALL, TRAIN, assert_resumes, failed, run, train, weights
from torch import Tensor

from nmt.config import ModelConfig, TrainConfig
from nmt.model.transformer import Transformer, matrices
from nmt.training.optimizer import LossScale, Optimizer

MODEL = ModelConfig(
    encoder_layers=1, decoder_layers=1, d_model=16, d_ff=48, heads=2, d_k=4, d_v=8, dropout=0.1, attention_biases=True
)  # fmt: skip
CONFIG = TrainConfig(save_dir="run", optimizer="muon", lr_schedule="constant", lr=0.01, warmup_updates=1)


Numbers = dict[str, Tensor]  # of each weight


def optimised(gradients: list[Numbers], scale: LossScale | None = None) -> tuple[Numbers, Transformer]:
    """Returns the weights before and a model after one step with each of the gradients."""
    torch.manual_seed(0)
    model = Transformer(MODEL, 20, 20, shared=True)
    before = {name: weight.detach().clone() for name, weight in model.named_parameters()}
    optimizer = Optimizer(model.parameters(), 16, CONFIG, scale, list(matrices(model)))
    for update, gradient in enumerate(gradients, 1):
        for name, weight in model.named_parameters():
            weight.grad = gradient[name] * (scale.scale if scale else 1.0)
        optimizer.step(update)
        if scale:
            scale.scale *= 3
    return before, model


def random_gradients(seed: int) -> Numbers:
    torch.manual_seed(seed)
    model = Transformer(MODEL, 20, 20, shared=True)
    return {name: torch.randn(weight.shape) for name, weight in model.named_parameters()}


def parts(name: str, weight: Tensor) -> tuple[Tensor, ...]:
    """Returns the projections that a weight holds: queries and keys have 2 · 4 rows, and values 2 · 8."""
    if name.endswith("query_key_value.weight"):
        return weight.split([8, 8, 16])
    return weight.split([8, 16]) if name.endswith("key_value.weight") else (weight,)


def test_the_first_step_is_the_gradient_with_singular_values_near_one() -> None:
    """Five steps of Newton and Schulz bring all but the smallest singular values to between 0.6 and 1.4."""
    gradients = random_gradients(1)
    before, model = optimised([gradients])
    seen = 0
    for name, weight in model.named_parameters():
        if weight.ndim < 2 or "embedding" in name:
            continue
        step = (before[name] - weight.detach()).double()
        for matrix, gradient in zip(parts(name, step), parts(name, gradients[name].double()), strict=True):
            u, sizes, v = torch.linalg.svd(gradient, full_matrices=False)
            found = u.T @ (matrix / (0.01 * 0.2 * max(matrix.shape) ** 0.5)) @ v.T
            torch.testing.assert_close(found, found.diagonal().diag(), atol=0.06, rtol=0, msg=name)
            assert ((found.diagonal() - 1).abs() < 0.4)[sizes > 0.05 * sizes.norm()].all(), name
            seen += 1
    assert seen == 3 + 1 + 2 + 3 + 1 + 1 + 2 + 1 + 2


def test_other_weights_take_the_step_of_adam() -> None:
    gradients = [random_gradients(seed) for seed in (1, 2, 3)]
    before, model = optimised(gradients)
    others = [n for n, weight in model.named_parameters() if weight.ndim < 2 or "embedding" in n]
    expected = [torch.nn.Parameter(before[name]) for name in others]
    adam = torch.optim.Adam(expected, 0.01, (0.9, 0.98), 1e-9)
    for gradient in gradients:
        for name, weight in zip(others, expected, strict=True):
            weight.grad = gradient[name]
        adam.step()
    for name, weight in zip(others, expected, strict=True):
        torch.testing.assert_close(model.get_parameter(name), weight, msg=name)


def test_the_loss_scale_does_not_change_the_steps() -> None:
    gradients = [random_gradients(seed) for seed in (1, 2)]
    _, expected = optimised(gradients)
    _, found = optimised(gradients, LossScale(torch.device("cpu")))
    torch.testing.assert_close(found.state_dict(), expected.state_dict())


def test_a_gradient_that_is_not_finite_changes_nothing() -> None:
    bad = random_gradients(2)
    bad["encoder.0.feed_forward.inner.bias"][0] = torch.inf
    _, expected = optimised([random_gradients(1), random_gradients(3)])
    _, found = optimised([random_gradients(1), bad, random_gradients(3)])
    for (name, weight), reference in zip(found.named_parameters(), expected.parameters(), strict=True):
        assert torch.equal(weight, reference), name


@pytest.mark.parametrize("precision", ["fp32", "bf16", "fp16"])
def test_a_resumed_run_ends_with_the_same_weights(trained: Path, tmp_path: Path, precision: str) -> None:
    options = ["--optimizer=muon", "--valid-metric=nll", "--ema=0.9", f"--precision={precision}"]

    def train_until(folder: Path, update: int) -> None:
        train(trained / "data", folder, *options, f"--max-updates={update}")

    assert_resumes(train_until, tmp_path, [3, 6])
    command = ["train", trained / "data", "--save-dir", tmp_path / "whole", *TRAIN, *SMALL, "--optimizer=adam"]
    assert "because the state of the optimiser does not fit" in failed(*command)


def test_two_ranks_train_the_same_model_as_one(trained: Path, tmp_path: Path) -> None:
    options = [trained / "data", *TRAIN, *SMALL, "--optimizer=muon", "--dropout=0", "--max-updates=5"]
    forks.run_ranks(2, "train", f"--save-dir={tmp_path / 'two'}", *options)
    run("train", f"--save-dir={tmp_path / 'one'}", *options)
    one, two = (weights(tmp_path / name / "snapshot-00000005.safetensors") for name in ("one", "two"))
    for name, weight in one.items():
        torch.testing.assert_close(two[name], weight, atol=2e-3, rtol=0, msg=name)
