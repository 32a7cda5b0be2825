"""Packed batches give the same loss and gradient as padded batches. A stand-in replaces the GPU's attention kernel."""

import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from subprocess import CalledProcessError
from types import ModuleType
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from commands import records, train, weights
from conftest import token_arrays
from torch import Tensor
from torch.nn import functional as F

from nmt.config import ModelConfig
from nmt.data.folder import ParallelSplit
from nmt.data.loader import MicroBatch, make_micro_batch
from nmt.model.device import Runtime
from nmt.model.masks import PackedMask
from nmt.model.packing import compile_layers, obstacle_to_compiling, obstacle_to_kernel, obstacle_to_packing
from nmt.model.transformer import Transformer
from nmt.text.subword import PAD
from nmt.training.loss import TrainingLoss

CONFIG = ModelConfig(encoder_layers=2, decoder_layers=2, d_model=16, d_ff=24, heads=2, d_k=8, d_v=8, dropout=0.0)
VOCABULARY = 40
Ints = list[int]
Losses = list[tuple[Tensor, tuple[Tensor, ...]]]


def attention_weights(q: Tensor, k: Tensor, starts_q: Tensor, starts_k: Tensor, causal: bool, scale: float) -> Tensor:
    """Returns the attention weights HFG, which are 0 between sentences and, if causal, for later positions."""
    assert starts_q.dtype == torch.int32 and (int(starts_q[-1]), int(starts_k[-1])) == (len(q), len(k))
    sentences = [torch.arange(len(starts) - 1).repeat_interleave(starts.diff()) for starts in (starts_q, starts_k)]
    visible = sentences[0][:, None] == sentences[1]
    if causal:
        visible &= torch.arange(len(q))[:, None] >= torch.arange(len(k))
    return (torch.einsum("nhk,mhk->hnm", q, k) * scale).masked_fill(~visible, -torch.inf).softmax(-1).nan_to_num(0)


@torch.library.custom_op("nmt_tests::packed_attention", mutates_args={})
def stand_in(
    q: Tensor, k: Tensor, v: Tensor, starts_q: Tensor, starts_k: Tensor, longest: Ints, causal: bool, scale: float
) -> Tensor:
    assert longest[0] >= int(starts_q.diff().max()) and longest[1] >= int(starts_k.diff().max())
    return torch.einsum("hnm,mhk->nhk", attention_weights(q, k, starts_q, starts_k, causal, scale), v).contiguous()


@stand_in.register_fake
def _(q: Tensor, *_: object) -> Tensor:
    return torch.empty_like(q, memory_format=torch.contiguous_format)


@torch.library.custom_op("nmt_tests::packed_attention_backward", mutates_args={})
def backward(
    grad: Tensor, q: Tensor, k: Tensor, v: Tensor, starts_q: Tensor, starts_k: Tensor, causal: bool, scale: float
) -> tuple[Tensor, Tensor, Tensor]:
    w = attention_weights(q, k, starts_q, starts_k, causal, scale)
    grad_w = torch.einsum("nhk,mhk->hnm", grad, v)
    grad_scores = w * (grad_w - (grad_w * w).sum(-1, keepdim=True)) * scale
    products = (("hnm,mhk->nhk", grad_scores, k), ("hnm,nhk->mhk", grad_scores, q), ("hnm,nhk->mhk", w, grad))
    grad_q, grad_k, grad_v = (torch.einsum(*product).contiguous() for product in products)
    return grad_q, grad_k, grad_v


@backward.register_fake
def _(_: Tensor, *inputs: Any) -> tuple[Tensor, ...]:
    return tuple(torch.empty_like(x, memory_format=torch.contiguous_format) for x in inputs[:3])


def setup_context(ctx: Any, inputs: Any, output: Tensor) -> None:  # noqa: ARG001
    *tensors, _, ctx.causal, ctx.scale = inputs
    ctx.save_for_backward(*tensors)


stand_in.register_autograd(
    lambda ctx, grad: (*backward(grad, *ctx.saved_tensors, ctx.causal, ctx.scale), *(None,) * 5),
    setup_context=setup_context,
)


@pytest.mark.parametrize("causal", [False, True])
def test_the_kernel_drops_attention_weights(causal: bool) -> None:
    pytest.importorskip("triton")  # the kernel is computed by a GPU or by Triton's interpreter
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    generator, queries = torch.Generator().manual_seed(0), torch.tensor([3, 40, 1, 33])
    keys = queries if causal else torch.tensor([7, 25, 33, 2])
    starts = [F.pad(lengths.cumsum(0), (1, 0)).int() for lengths in (queries, keys)]
    mask = PackedMask(starts[0].to(device), starts[1].to(device), 64, 64, causal)
    q, k, v = (torch.randn(int(s[-1]), 2, 80, generator=generator) for s in (starts[0], starts[1], starts[1]))
    grad, scale = torch.randn(q.shape, generator=generator), 80**-0.5

    def attend(q: Tensor, k: Tensor, v: Tensor, seed: int = 1) -> Tensor:
        torch.manual_seed(seed)
        return mask.attend(q.to(device), k.to(device), v.to(device), scale, 0.3).cpu()

    # The attended values are the weights themselves if the values of all keys are different unit vectors.
    dropped = attend(q, k, torch.eye(80)[: len(k), None].repeat(1, 2, 1)).transpose(0, 1)[:, :, : len(k)]
    weights = attention_weights(q, k, *starts, causal, scale)
    kept = (dropped != 0) | (weights == 0)
    torch.testing.assert_close(dropped, weights * kept / 0.7, rtol=0.01, atol=1e-4)
    assert kept[weights != 0].float().mean() == pytest.approx(0.7, abs=0.03)
    assert not torch.equal(kept[0], kept[1])
    assert not torch.equal(attend(q, k, v), attend(q, k, v, seed=2))

    def exact(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return torch.einsum("hnm,mhk->nhk", attention_weights(q, k, *starts, causal, scale) * kept / 0.7, v)

    tensors, expected = (
        [out := function(*inputs), *torch.autograd.grad(out, inputs, grad)]
        for function in (attend, exact)
        for inputs in [[x.clone().requires_grad_() for x in (q, k, v)]]
    )
    for tensor, expected_tensor in zip(tensors, expected, strict=True):
        assert (tensor - expected_tensor).norm() < 0.01 * expected_tensor.norm()


def replace_kernel(attend_packed: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("packed_attention")
    module.attend_packed = attend_packed  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "nmt.model.packed_attention", module)


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replaces attention over packed sentences, which needs a GPU."""

    def attend_packed(*inputs):  # type: ignore[no-untyped-def]
        *tensors, _, longest_q, longest_k, causal, scale, _ = inputs
        return stand_in(*tensors, [longest_q, longest_k], causal, scale), None

    replace_kernel(attend_packed, monkeypatch)


def batch(*blocks: int, packs: bool, seed: int = 0, longest: int = 9) -> MicroBatch:
    """Returns a batch with random sentences of 1 to `longest` pieces, EOS included; `blocks` are sentence counts."""
    random, sentences = np.random.default_rng(seed), sum(blocks)
    sides = [
        [random.integers(4, VOCABULARY, length) for length in random.integers(0, longest, sentences)] for _ in "st"
    ]
    numbers = np.split(np.arange(sentences), np.cumsum(blocks)[:-1])
    return make_micro_batch(ParallelSplit(*token_arrays(*sides)), numbers, packs=packs)


def test_a_packed_batch_equals_one_made_by_hand() -> None:
    sides = [[np.array([5, 6]), np.array([7])], [np.array([8]), np.array([9, 10, 11, 12, 13])]]
    micro_batch = make_micro_batch(ParallelSplit(*token_arrays(*sides)), [np.array([1]), np.array([0])], packs=True)
    assert micro_batch.source.ids_F.tolist() == [7, 3, 5, 6, 3, PAD, PAD, PAD]
    assert micro_batch.source.layout.positions_F.tolist() == [0, 1, 0, 1, 2, 0, 0, 0]
    # Three positions of padding are a sentence of three and an empty one. The number of sentences is rounded up to 8.
    assert micro_batch.source.layout.lengths_B.tolist() == [2, 3, 3, 0, 0, 0, 0, 0]
    assert micro_batch.target.ids_F.tolist() == [2, 9, 10, 11, 12, 13, 2, 8]
    assert micro_batch.labels_M.tolist() == [9, 10, 11, 12, 13, 3, 8, 3]
    assert micro_batch.target.layout.lengths_B.tolist() == [6, 2, 0, 0, 0, 0, 0, 0]
    assert (micro_batch.source.layout.longest, micro_batch.target.layout.longest) == (3, 6)
    assert (micro_batch.source_tokens, micro_batch.target_tokens, micro_batch.positions) == (5, 8, 16)


def losses(batches: list[MicroBatch], *, compiled: bool = False) -> Losses:
    """Returns the loss and the gradients of each batch."""
    torch.manual_seed(0)
    module = TrainingLoss(Transformer(CONFIG, VOCABULARY, VOCABULARY, shared=True), 0.1)
    if compiled:
        compile_layers(module.model)
    batch_losses = [module(made)[0] for made in batches]
    return [(loss.detach(), torch.autograd.grad(loss, list(module.parameters()))) for loss in batch_losses]


def assert_equal(batch_losses: Losses, expected: Losses) -> None:
    for (loss, gradients), (expected_loss, expected_gradients) in zip(batch_losses, expected, strict=True):
        torch.testing.assert_close(loss, expected_loss)
        torch.testing.assert_close(gradients, expected_gradients, rtol=1e-4, atol=1e-5)


@pytest.mark.usefixtures("kernel")
def test_attention_weights_are_dropped_in_training_only(monkeypatch: pytest.MonkeyPatch) -> None:
    right, probabilities = sys.modules["nmt.model.packed_attention"].attend_packed, []
    replace_kernel(lambda *inputs: (probabilities.append(inputs[-1]), right(*inputs))[1], monkeypatch)
    module = TrainingLoss(Transformer(replace(CONFIG, attention_dropout=0.2), VOCABULARY, VOCABULARY, shared=True), 0.1)
    for training in (True, False):
        module.train(training)(batch(3, packs=True))
    assert probabilities == [0.2] * 6 + [0.0] * 6


@pytest.mark.usefixtures("kernel")
@pytest.mark.parametrize("blocks", [(1,), (8, 1, 5)])
def test_packed_and_padded_batches_have_the_same_loss_and_gradient(blocks: tuple[int, ...]) -> None:
    assert_equal(*(losses([batch(*blocks, packs=packs)]) for packs in (True, False)))


@pytest.mark.usefixtures("kernel")
def test_layers_compiled_once_for_all_lengths_give_the_same_loss_and_gradient(monkeypatch: pytest.MonkeyPatch) -> None:
    # This backend traces the layers without generating code, which would take long and would test torch, not us.
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="aot_eager"))
    made = [batch(3 + i, 4 * i + 1, seed=i, longest=9 + 40 * i, packs=True) for i in range(3)]
    torch.compiler.reset()
    # Encoder layers and decoder layers are compiled once each.
    with torch._dynamo.config.patch(recompile_limit=2, fail_on_recompile_limit_hit=True):
        assert_equal(losses(made, compiled=True), losses(made))


@pytest.mark.usefixtures("kernel")
def test_training_on_packs_is_the_same(trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    options = ["--max-updates=2", "--dropout=0", "--valid-metric=nll", "--device-tokens=300"]
    log = train(trained / "data", tmp_path / "padded", *options, "--compile")
    assert "--compile has no effect here: it needs a GPU and bf16" in log
    monkeypatch.setattr("nmt.training.state.obstacle_to_packing", lambda *_: None)
    assert "attention without padding" in train(trained / "data", tmp_path / "packed", *options)
    runs = [tmp_path / "packed", tmp_path / "padded"]
    packed_weights, padded_weights = (weights(folder / "snapshot-00000002.safetensors") for folder in runs)
    torch.testing.assert_close(packed_weights, padded_weights, rtol=0, atol=1e-5)
    packed, padded = (records(folder, "train")[-1]["padding_share"] for folder in runs)
    assert packed < padded


def test_a_broken_compiler_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="eager"))
    assert obstacle_to_compiling(torch.device("cpu")) is None

    def broken(*_: object) -> None:
        raise RuntimeError("no compiler found\nset CC")

    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend=broken))
    assert "torch cannot compile (" in str(obstacle_to_compiling(torch.device("cpu")))
    monkeypatch.setattr(torch, "compile", Mock(side_effect=AssertionError))
    assert obstacle_to_compiling(torch.device("cpu")) == "torch cannot compile (AssertionError())"


PACKAGES = "if a C compiler or Python.h is missing, install gcc and python3-dev"


@pytest.mark.parametrize(("error", "line"), [
    (RuntimeError("Failed to find C compiler. Please specify via CC environment variable."), "Failed to find C co"),
    (CalledProcessError(1, ["gcc", "main.c"]), "Command '['gcc', 'main.c']' returned non-zero exit status 1."),
    (FileNotFoundError(2, "No such file or directory", "/root/.triton"), "No such file or directory: '/root/.triton'"),
    (RuntimeError("out of resource: shared memory\nReducing block sizes may help"), "(out of resource: shared memory)"),
    (AssertionError(), "AssertionError()"),
])  # fmt: skip
@pytest.mark.parametrize("compiled", [False, True])
def test_the_error_of_a_kernel_that_does_not_work_is_one_warning(
    error: Exception, line: str, compiled: bool, trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A GPU would train without graphs and with padding, at half the speed."""
    monkeypatch.setattr("nmt.training.state.obstacle_to_packing", lambda *_: None)
    replace_kernel(Mock(side_effect=error), monkeypatch)
    options = ["--max-updates=1", "--valid-metric=nll", *["--compile"] * compiled]
    log = train(trained / "data", tmp_path / "run", *options)
    (warning,) = (text for text in log.splitlines() if "the kernel of attention does not work here (" in text)
    begins = "warning: --compile has no effect here: " if compiled else "warning: training is slower here than it could"
    assert warning.startswith(begins)
    assert line in warning
    assert warning.endswith(PACKAGES)
    assert "attention without padding" not in log


def test_a_missing_kernel_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "nmt.model.packed_attention", None)
    assert "nmt.model.packed_attention" in str(obstacle_to_kernel(2, 8, torch.device("cpu")))
    obstacle = obstacle_to_packing(CONFIG, Runtime(torch.device("cpu"), torch.bfloat16))
    assert obstacle == "it needs a GPU and bf16"


@pytest.mark.usefixtures("kernel")
@pytest.mark.parametrize(("place", "value"), [(None, None), (9, 1.0), (8, False), (8, True)])
def test_a_kernel_is_used_if_its_results_are_right(
    place: int | None, value: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = sys.modules["nmt.model.packed_attention"].attend_packed

    def attend_packed(*inputs):  # type: ignore[no-untyped-def]
        return right(*(value if index == place else argument for index, argument in enumerate(inputs)))

    replace_kernel(attend_packed, monkeypatch)
    obstacle = obstacle_to_kernel(2, 8, torch.device("cpu"))
    assert obstacle == (None if place is None else "the kernel of attention computes wrong values with --d-k 8")
