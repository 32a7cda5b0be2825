"""The gradient of an update is the same for any micro-batches, and if memory runs out while it is computed."""

from collections.abc import Callable
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import forks
import numpy as np
import pytest
import torch
import torch.distributed as dist
from torch import Tensor

from nmt.checkpoint import new_model
from nmt.config import ModelConfig
from nmt.data.loader import Batch, make_batch
from nmt.data.store import DataFolder
from nmt.errors import NmtError
from nmt.model.runtime import Runtime
from nmt.training.distributed import World
from nmt.training.gradients import Gradients
from nmt.training.loss import TrainingLoss

MODEL = ModelConfig(encoder_layers=2, decoder_layers=2, d_model=16, d_ff=32, heads=2, d_k=8, d_v=8, dropout=0.0)
RUNTIME = Runtime(torch.device("cpu"), torch.float32)


@pytest.fixture
def folder(trained: Path) -> DataFolder:
    return DataFolder.open(trained / "data")


def make(folder: DataFolder, world: World) -> Gradients:
    torch.manual_seed(0)
    return Gradients(TrainingLoss(new_model(MODEL, folder.codec), 0.1), folder, RUNTIME, world)


def sentences(batch: Batch) -> int:
    return len(batch.source.layout.lengths_B)


def run_out_of_memory(
    gradients: Gradients, where: str, above: int, size_of: Callable[[Batch], int] = sentences
) -> list[str]:
    """Makes passes over batches larger than `above` fail in the encoder's second layer.

    Args:
        where: the pass that fails, "forward" or "backward"; with any other value, none fails.

    Returns:
        A list to which every failure adds an item.
    """
    failures: list[str] = []
    sizes: list[int] = []

    def fail(at: str) -> None:
        if at == where and sizes[-1] > above:
            failures.append(where)
            raise torch.OutOfMemoryError("CUDA out of memory (not really)")

    def watch(_: Any, __: Any, output: Tensor) -> None:
        if output.requires_grad:
            output.register_hook(lambda _: fail("backward"))

    gradients.model.register_forward_pre_hook(lambda _, inputs: sizes.append(size_of(inputs[0])))
    layer = gradients.model.model.encoder[1]
    layer.register_forward_pre_hook(lambda *_: fail("forward"))
    layer.register_forward_hook(watch)
    return failures


def summed(gradients: Gradients, batches: list[list[np.ndarray]]) -> tuple[list[float], list[Tensor]]:
    made = [make_batch(gradients.data.split("train"), blocks) for blocks in batches]
    tokens = sum(batch.target_tokens for batch in made)
    losses = [gradients.add(batch, 1 / tokens, last=batch is made[-1]) for batch in made]
    totals = [float(sum(loss)) for loss in zip(*losses, strict=True)]
    return totals, [p.grad.clone() for p in gradients.parameters if p.grad is not None]


BATCHES = [[np.arange(0, 9), np.arange(9, 12)], [np.arange(12, 19)]]


@pytest.mark.parametrize("where", ["forward", "backward"])
def test_a_micro_batch_that_does_not_fit_is_processed_in_parts(
    where: str, folder: DataFolder, capsys: pytest.CaptureFixture[str]
) -> None:
    expected_losses, expected = summed(make(folder, World()), BATCHES)
    gradients = make(folder, World())
    failures = run_out_of_memory(gradients, where, above=4)
    losses, found = summed(gradients, BATCHES)
    # The first micro-batch has blocks of 9 and 3 sentences. All 12 do not fit, nor do the 9, nor do 5 of the 9. The
    # second micro-batch has 7 sentences, which do not fit.
    assert len(failures) == 4
    assert losses == pytest.approx(expected_losses, rel=1e-6)
    for a, b in zip(expected, found, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-6)
    warning = "memory ran out on a micro-batch of 12 sentence pairs, which is now processed in two"
    assert warning in capsys.readouterr().err


def test_a_single_sentence_that_does_not_fit_ends_training(folder: DataFolder) -> None:
    gradients = make(folder, World())
    run_out_of_memory(gradients, "forward", above=0)
    with pytest.raises(NmtError, match="memory ran out on a single sentence pair"):
        summed(gradients, BATCHES)


def test_the_largest_micro_batches_are_tried_first(folder: DataFolder) -> None:
    gradients = make(folder, World())
    gradients.check_memory(((13, 17), (15, 15)), 2048, 0)
    assert all(p.grad is None or not p.grad.any() for p in gradients.parameters)
    failures = run_out_of_memory(gradients, "backward", 1300, lambda batch: batch.positions)
    with pytest.raises(NmtError, match="--device-tokens 2048 do not fit into memory; give --device-tokens 512"):
        gradients.check_memory(((13, 17), (15, 15)), 2048, 0)
    assert failures == ["backward", "backward"]  # with 2048 and 1024


def _rank(rank: int, data: Path, results: Path) -> None:
    """Saves this rank's gradients of two updates, each time with another failure on rank 1.

    The failures are none, running out of memory in either pass, and a loss that is not finite.
    """
    dist.init_process_group("gloo", store=dist.FileStore(str(results / "store"), 2), rank=rank, world_size=2)
    folder, world = DataFolder.open(data), World(rank, 2, dist.group.WORLD)
    found = {}
    for where in ("nowhere", "forward", "backward"):
        gradients = make(folder, world)
        failures = run_out_of_memory(gradients, where, above=5 if rank == 1 else 100)
        for _ in range(2):  # the update after a failure must work as well
            gradients.model.zero_grad(set_to_none=False)
            _, found[where] = summed(gradients, [[block + 30 * rank for block in batch] for batch in BATCHES])
        assert bool(failures) == (rank == 1 and where != "nowhere")
    gradients = make(folder, world)
    weight = torch.nan if rank == 1 else 1.0
    gradients.add(make_batch(folder.split("train"), BATCHES[0]), weight, last=True)
    found["not finite"] = [p.grad for p in gradients.parameters]
    torch.save(found, results / f"{rank}.pt")
    dist.destroy_process_group()


def test_a_failure_on_one_rank_leaves_all_ranks_with_the_same_gradients(trained: Path, tmp_path: Path) -> None:
    ranks = [forks.start(instead=partial(_rank, rank, trained / "data", tmp_path)) for rank in (0, 1)]
    for rank in ranks:
        rank.wait(0)
    found = [torch.load(tmp_path / f"{rank}.pt") for rank in (0, 1)]
    expected = found[0]["nowhere"]
    for rank, where in product((0, 1), ("nowhere", "forward", "backward")):
        for a, b in zip(expected, found[rank][where], strict=True):
            torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-6)
    assert all(gradient.isnan().all() for rank in (0, 1) for gradient in found[rank]["not finite"])
