"""Graphs are replayed on the right inputs. A stand-in replaces CUDA graphs, which need a GPU."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

import numpy as np
import pytest
import torch
from conftest import token_arrays
from torch import Tensor, nn

from nmt.data.folder import ParallelSplit
from nmt.data.loader import MicroBatch, make_micro_batch
from nmt.training.graphs import GraphedPass


class Graph:
    """Repeats the computation that ran while it was recorded, on the tensors of that time."""

    recording: "Graph | None" = None

    def pool(self) -> str:
        return "pool"

    def replay(self) -> None:
        for place, value in zip(self.outputs, compute(*self.inputs), strict=True):
            place.copy_(value)


@contextmanager
def record(graph: Graph, pool: str | None, capture_error_mode: str) -> Iterator[None]:
    assert capture_error_mode == "thread_local"
    assert pool == (None if not Graph.recorded else "pool")
    Graph.recording = graph
    yield
    Graph.recording = None
    Graph.recorded.append(graph)


def compute(batch: MicroBatch, factor: Tensor) -> tuple[Tensor, Tensor]:
    """Returns two sums that depend on all tensors."""
    numbers = sum((place * tensor.double().sum() for place, tensor in enumerate(batch.tensors(), 1)), torch.zeros(()))
    outputs = numbers * factor, numbers
    if Graph.recording:
        Graph.recording.inputs, Graph.recording.outputs = (batch, factor), outputs
    return outputs


@pytest.fixture
def graphed(monkeypatch: pytest.MonkeyPatch) -> GraphedPass:
    monkeypatch.setattr(torch.cuda, "CUDAGraph", Graph)
    monkeypatch.setattr(torch.cuda, "graph", record)
    monkeypatch.setattr(Tensor, "pin_memory", lambda tensor: tensor)
    monkeypatch.setattr(Graph, "recorded", [], raising=False)
    return GraphedPass(nn.Linear(1, 1), torch.device("cpu"))


def batch(longest: int, seed: int) -> MicroBatch:
    random = np.random.default_rng(seed)
    sides = [[random.integers(4, 99, random.integers(1, longest)) for _ in range(20)] for _ in range(2)]
    return make_micro_batch(ParallelSplit(*token_arrays(*sides)), [np.arange(20)], packs=True)


def test_every_batch_is_computed_whatever_its_shape(graphed: GraphedPass, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nmt.training.graphs._MOST_GRAPHS", 3)
    for seed in range(80):
        made = batch(8 if seed % 2 else 90, seed)
        expected = [float(x) for x in compute(made, torch.tensor(0.5 + seed))]
        assert [float(x) for x in graphed(compute, made, 0.5 + seed)] == pytest.approx(expected)
    assert len(Graph.recorded) == 3
    assert len(graphed.recorded) == 3


def test_memory_that_runs_out_in_the_first_recording_is_taken_by_graphs(graphed: GraphedPass) -> None:
    def fail(*_: object) -> NoReturn:
        raise torch.OutOfMemoryError("CUDA out of memory (not really)")

    graphed(compute, batch(8, 0), 1.0)
    assert not graphed.used
    with pytest.raises(torch.OutOfMemoryError):
        graphed(fail, batch(8, 0), 1.0)
    assert graphed.used
