"""The optimiser: the average of the weights, fp16 with a loss scale, and Muon."""

from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

import forks
import pytest
import torch
from commands import SMALL, TRAIN, assert_resumes, failed, run, same_weights, train, valid_losses, weights
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

import nmt
from nmt import console
from nmt.config import ModelConfig, RuntimeConfig, TrainConfig
from nmt.model import device
from nmt.model.device import set_up
from nmt.model.transformer import Transformer
from nmt.training import optimizer as optimizer_module
from nmt.training.learning_rate import learning_rate
from nmt.training.optimizer import Optimizer
from nmt.training.state import matrices
from nmt.training.train import train as train_model

EMA = ["--valid-metric=nll", "--save-updates=1"]


@pytest.fixture(scope="module")
def averaged(trained: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns a run folder of five updates with an average, whose decay reaches its maximum at the third."""
    folder = tmp_path_factory.mktemp("ema") / "run"
    train(trained / "data", folder, *EMA, "--max-updates=5", "--ema=0.3")
    return folder


def test_checkpoints_have_the_average_and_training_is_not_changed(
    trained: Path, averaged: Path, tmp_path: Path
) -> None:
    """The reference computes the average in float64 from the weights after each update of a training without it."""
    train(trained / "data", tmp_path, *EMA, "--max-updates=5")
    average: dict[str, torch.Tensor] = {}
    for update in range(1, 6):
        raw = weights(tmp_path / f"snapshot-{update:08d}.safetensors")
        decay = min(0.3, (1 + update) / (10 + update))
        average = {name: decay * average.get(name, w.double()) + (1 - decay) * w.double() for name, w in raw.items()}
        snapshot = weights(averaged / f"snapshot-{update:08d}.safetensors")
        for name in raw:
            torch.testing.assert_close(snapshot[name].double(), average[name], rtol=0, atol=1e-6)
    assert same_weights(tmp_path / "state-00000005.safetensors", averaged / "state-00000005.safetensors")


def test_validation_uses_the_average(trained: Path, averaged: Path, tmp_path: Path) -> None:
    (loss,) = valid_losses(averaged).values()
    run("train", trained / "data", f"--init-from={averaged}/best.safetensors", f"--save-dir={tmp_path}", *TRAIN[1:],
        *EMA, "--max-updates=1")  # fmt: skip
    assert valid_losses(tmp_path)[0] == pytest.approx(loss, abs=1e-6)


def test_an_average_can_begin_and_end_when_training_resumes(trained: Path, tmp_path: Path) -> None:
    train(trained / "data", tmp_path, *EMA, "--max-updates=2")
    said = train(trained / "data", tmp_path, *EMA, "--max-updates=4", "--ema=0.5")
    assert "changed option: --ema was None and is now 0.5" in said
    assert not same_weights(tmp_path / "state-00000004.safetensors", tmp_path / "snapshot-00000004.safetensors")
    train(trained / "data", tmp_path, *EMA, "--max-updates=6")
    assert same_weights(tmp_path / "state-00000006.safetensors", tmp_path / "snapshot-00000006.safetensors")


# Training in fp16 with a loss scale, on a CPU as far as torch supports it


NLL = ["--dropout=0", "--valid-metric=nll"]


def scale_of(folder: Path, update: int) -> dict[str, float]:
    return dict(nmt.load_checkpoint(folder / f"state-{update:08d}.safetensors").training["loss_scale"])


@pytest.fixture(scope="module")
def five_updates(trained: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns a run folder of five updates in fp16, each with a validation."""
    folder = tmp_path_factory.mktemp("fp16") / "run"
    said = train(trained / "data", folder, *NLL, "--max-updates=5", "--valid-updates=1", "--precision=fp16")
    assert "fp16" in said
    return folder


def test_training_in_fp16_stays_close_to_training_in_fp32(trained: Path, five_updates: Path, tmp_path: Path) -> None:
    """Only the first updates are compared: rounding alone makes two courses differ, and more with each update.

    With eight other seeds, the losses differed by at most 1e-4 in the first five updates, and by 4e-4 in ten.
    """
    train(trained / "data", tmp_path, *NLL, "--max-updates=5", "--valid-updates=1")
    assert valid_losses(five_updates) == pytest.approx(valid_losses(tmp_path), rel=1e-3)
    best = five_updates / "best.safetensors"
    assert all(weight.dtype == torch.float32 for weight in weights(best).values())
    run("generate", best, "--precision=fp16", "--device=cpu", stdin=b"ba de\n")


def test_two_ranks_have_the_scale_and_the_loss_of_one(trained: Path, five_updates: Path, tmp_path: Path) -> None:
    options = [*NLL, "--max-updates=5", "--valid-updates=1", "--precision=fp16"]
    forks.run_ranks("train", trained / "data", f"--save-dir={tmp_path}", *TRAIN, *SMALL, *options)
    assert scale_of(five_updates, 5) == scale_of(tmp_path, 5)
    assert valid_losses(tmp_path) == pytest.approx(valid_losses(five_updates), rel=1e-3)


def test_the_scale_falls_after_an_overflow_and_rises_after_many_good_updates(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(optimizer_module, "_GROWTH_UPDATES", 3)
    weight, scales = torch.nn.Parameter(torch.zeros(3)), []
    optimizer = Optimizer([weight], ADAM, scales_loss=True)
    assert optimizer.loss_scale is not None
    for gradient in (torch.inf, torch.nan, 1.0, 1.0, 1.0, 1.0, -torch.inf, 1.0, 1.0, 1.0):
        weight.grad = torch.full((3,), gradient)
        optimizer.step(0.1)
        scales.append(optimizer.loss_scale.item() / 2**16)
    assert scales == [0.5, 0.25, 0.25, 0.25, 0.5, 0.5, 0.25, 0.25, 0.25, 0.5]


def test_overflowing_updates_are_skipped_until_the_scale_fits_and_a_resumed_run_keeps_the_scale(
    trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(optimizer_module, "_FIRST_SCALE", 2.0**28)
    options = ["--precision=fp16", "--valid-metric=nll", "--max-skipped-updates=16"]
    said = []

    def train_until(folder: Path, update: int) -> None:
        said.append(train(trained / "data", folder, *options, f"--max-updates={update}"))

    assert_resumes(train_until, tmp_path, [4, 12, 16])
    skipped = said[0].count("was skipped")
    assert 3 < skipped < 15
    assert scale_of(tmp_path / "whole", 16)["scale"] == 2.0 ** (28 - skipped)
    assert scale_of(tmp_path / "whole", 16) == scale_of(tmp_path / "resumed", 16)
    assert valid_losses(tmp_path / "whole")[16] < 5


@pytest.mark.parametrize("bf16, capability, expected", [
    (True, (9, 0), "bf16"), (False, (7, 5), "fp16"), (False, (7, 0), "fp16"), (False, (6, 1), "fp32"),
])  # fmt: skip
def test_auto_chooses_fp16_on_gpus_without_bf16(
    monkeypatch: pytest.MonkeyPatch, bf16: bool, capability: tuple[int, int], expected: str
) -> None:
    monkeypatch.setattr(device, "_gpus", lambda: 1)
    monkeypatch.setattr(torch.cuda, "set_device", lambda _: None)
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation: bf16)  # noqa: ARG005
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: capability)
    assert set_up(RuntimeConfig()).precision == expected


class CpuProducts(TorchDispatchMode):
    """Records the types in which matrices are multiplied."""

    def __init__(self) -> None:
        super().__init__()
        self.dtypes = set[torch.dtype]()

    def __torch_dispatch__(self, operation: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if operation.overloadpacket.__name__ in ("mm", "bmm", "addmm", "baddbmm"):
            self.dtypes.add(args[0].dtype)
        return operation(*args, **(kwargs or {}))


@pytest.mark.parametrize("avx512_bf16, capability, expected", [
    (True, "AVX512", {torch.bfloat16}), (True, "AVX2", {torch.float32}), (False, "AVX512", {torch.float32}),
])  # fmt: skip
def test_training_multiplies_in_bf16_only_where_the_processor_does(
    trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    avx512_bf16: bool, capability: str, expected: set[torch.dtype],
) -> None:  # fmt: skip
    monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda: avx512_bf16)
    monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: False)
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: capability)
    options: dict[str, Any] = {"arch": "transformer_tiny", "optimizer": "muon", "valid_metric": ("nll",)}
    config = TrainConfig(save_dir=str(tmp_path), device="cpu", max_updates=1, batch_tokens=500, **options)
    with CpuProducts() as products:
        train_model(str(trained / "data"), MODEL, config)
    # The products of attention are always fp32 on a CPU.
    assert products.dtypes - {torch.float32} == expected - {torch.float32}


@pytest.mark.usefixtures("printing")
def test_a_precision_that_the_processor_emulates_gives_a_warning(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(device, "is_native", lambda dtype, _: dtype == torch.float32)
    console.warn_once.cache_clear()
    set_up(RuntimeConfig(device="cpu", precision="bf16"))
    assert "--precision bf16 is emulated here and may be slow" in capsys.readouterr().err
    set_up(RuntimeConfig(device="cpu"))
    set_up(RuntimeConfig(device="cpu", precision="bf16"), process=1)  # another worker, whose first one has warned
    assert not capsys.readouterr().err


# Muon for the matrices of the layers


MODEL = ModelConfig(
    encoder_layers=1, decoder_layers=1, d_model=16, d_ff=48, heads=2, d_k=4, d_v=8, dropout=0.1, attention_biases=True
)  # fmt: skip
CONFIG = TrainConfig(save_dir="run", optimizer="muon", lr_schedule="constant", lr=0.01, warmup_updates=1)
ADAM = TrainConfig(save_dir="run", lr_schedule="constant", lr=0.01, warmup_updates=1)


Numbers = dict[str, Tensor]  # of each weight


def optimised(
    gradients: list[Numbers],
    config: TrainConfig = CONFIG,
    dtype: torch.dtype = torch.float32,
    *,
    scales_loss: bool = False,
) -> tuple[Numbers, Transformer]:
    """Returns the weights before and a model after one step with each of the gradients."""
    torch.manual_seed(0)
    model = Transformer(MODEL, 20, 20, shared=True)
    initial_weights = {name: weight.detach().clone() for name, weight in model.named_parameters()}
    muon_weights = matrices(model) if config.optimizer == "muon" else ()
    optimizer = Optimizer(model.parameters(), config, muon_weights, dtype, scales_loss=scales_loss)
    for update, gradient in enumerate(gradients, 1):
        for name, weight in model.named_parameters():
            weight.grad = gradient[name] * (1.0 if optimizer.loss_scale is None else optimizer.loss_scale)
        optimizer.step(learning_rate(update, 16, config))
        if optimizer.loss_scale is not None:
            optimizer.loss_scale *= 3
    return initial_weights, model


def random_gradients(seed: int) -> Numbers:
    torch.manual_seed(seed)
    model = Transformer(MODEL, 20, 20, shared=True)
    return {name: torch.randn(weight.shape) for name, weight in model.named_parameters()}


def parts(name: str, weight: Tensor) -> tuple[Tensor, ...]:
    """Returns the projections that a weight holds: queries and keys have 2 · 4 rows, and values 2 · 8."""
    if name.endswith("query_key_value.weight"):
        return weight.split([8, 8, 16])
    return weight.split([8, 16]) if name.endswith("key_value.weight") else (weight,)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_first_step_is_the_gradient_with_singular_values_near_one(dtype: torch.dtype) -> None:
    """Five steps of Newton and Schulz bring all but the smallest singular values to between 0.6 and 1.4."""
    gradients = random_gradients(1)
    initial_weights, model = optimised([gradients], dtype=dtype)
    seen = 0
    for name, weight in model.named_parameters():
        if weight.ndim < 2 or "embedding" in name:
            continue
        step = (initial_weights[name] - weight.detach()).double()
        for matrix, gradient in zip(parts(name, step), parts(name, gradients[name].double()), strict=True):
            u, sizes, v = torch.linalg.svd(gradient, full_matrices=False)
            sigma = u.T @ (matrix / (0.01 * 0.2 * max(matrix.shape) ** 0.5)) @ v.T
            torch.testing.assert_close(sigma, sigma.diagonal().diag(), atol=0.06, rtol=0, msg=name)
            assert ((sigma.diagonal() - 1).abs() < 0.4)[sizes > 0.05 * sizes.norm()].all(), name
            seen += 1
    assert seen == 3 + 1 + 2 + 3 + 1 + 1 + 2 + 1 + 2


@pytest.mark.parametrize("elements", [1, 300, 2**20])
def test_the_steps_are_those_of_torch(monkeypatch: pytest.MonkeyPatch, elements: int) -> None:
    """`torch.optim.Muon` computes one matrix at a time, in bfloat16."""
    monkeypatch.setattr(optimizer_module, "_ELEMENTS", {"cpu": elements})
    gradients = [random_gradients(seed) for seed in (1, 2, 3)]
    initial_weights, model = optimised(gradients, dtype=torch.bfloat16)
    names = [n for n, weight in initial_weights.items() if weight.ndim == 2 and "embedding" not in n]
    expected = {name: [torch.nn.Parameter(part) for part in parts(name, initial_weights[name])] for name in names}
    muon = torch.optim.Muon(chain(*expected.values()), 0.01, weight_decay=0.0, adjust_lr_fn="match_rms_adamw")
    for gradient in gradients:
        for name, matrices_ in expected.items():
            for weight, part in zip(matrices_, parts(name, gradient[name]), strict=True):
                weight.grad = part
        muon.step()
    for name, matrices_ in expected.items():
        torch.testing.assert_close(model.get_parameter(name), torch.cat(matrices_), atol=1e-4, rtol=0, msg=name)


def test_other_weights_take_the_step_of_adam() -> None:
    gradients = [random_gradients(seed) for seed in (1, 2, 3)]
    initial_weights, model = optimised(gradients)
    others = [n for n, weight in model.named_parameters() if weight.ndim < 2 or "embedding" in n]
    expected = [torch.nn.Parameter(initial_weights[name]) for name in others]
    adam = torch.optim.Adam(expected, 0.01, (0.9, 0.98), 1e-9)
    for gradient in gradients:
        for name, weight in zip(others, expected, strict=True):
            weight.grad = gradient[name]
        adam.step()
    for name, weight in zip(others, expected, strict=True):
        torch.testing.assert_close(model.get_parameter(name), weight, msg=name)


@pytest.mark.parametrize("config", [CONFIG, ADAM, replace(ADAM, clip_norm=0.5)], ids=["muon", "adam", "clipped"])
def test_the_loss_scale_does_not_change_the_steps(config: TrainConfig) -> None:
    gradients = [random_gradients(seed) for seed in (1, 2)]
    _, expected = optimised(gradients, config=config)
    _, model = optimised(gradients, config, scales_loss=True)
    torch.testing.assert_close(model.state_dict(), expected.state_dict())


def test_a_gradient_that_is_not_finite_changes_nothing() -> None:
    bad = random_gradients(2)
    bad["encoder.0.feed_forward.inner.bias"][0] = torch.inf
    _, expected = optimised([random_gradients(1), random_gradients(3)])
    _, model = optimised([random_gradients(1), bad, random_gradients(3)])
    for (name, weight), reference in zip(model.named_parameters(), expected.parameters(), strict=True):
        assert torch.equal(weight, reference), name


def test_the_size_of_the_moments_is_known_before_the_first_step() -> None:
    model = Transformer(MODEL, 20, 20, shared=True)
    optimizer = Optimizer(model.parameters(), CONFIG, matrices=matrices(model))
    known, adam_bytes = optimizer.moment_bytes, optimizer.adam_bytes
    model(torch.ones(1, 2, dtype=torch.int64), torch.ones(1, 2, dtype=torch.int64)).sum().backward()
    optimizer.step(0.1)
    saved = {name: tensor.nbytes for name, tensor in optimizer.state_dict().items() if not name.endswith("step")}
    assert known == sum(saved.values())
    assert adam_bytes == sum(size for name, size in saved.items() if "exp_avg" in name)


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
    forks.run_ranks("train", f"--save-dir={tmp_path / 'two'}", *options)
    run("train", f"--save-dir={tmp_path / 'one'}", *options)
    expected, joint_weights = (weights(tmp_path / name / "snapshot-00000005.safetensors") for name in ("one", "two"))
    # Newton and Schulz's iteration in bfloat16 amplifies rounding in single elements.
    assert sum(float((joint_weights[name] - weight).square().sum()) for name, weight in expected.items()) ** 0.5 < 0.05
