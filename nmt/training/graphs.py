"""CUDA graphs: the GPU repeats the kernels of an earlier micro-batch of the same shape, which the CPU launches at once.

An update of the base model launches more than a thousand kernels. If the CPU launches them one by one, it takes
longer than a fast GPU computes.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from nmt.data.loader import MicroBatch
from nmt.model.device import moved
from nmt.model.masks import bound_on

# Computes on a batch and a factor, and returns the loss and the negative log-likelihood.
Pass = Callable[[MicroBatch, Tensor], tuple[Tensor, Tensor]]
# More shapes than these are computed without graphs, which take memory.
_MOST_GRAPHS = 64


# A graph, the tensors that it reads and writes, and the model's buffers, which the model may replace.
_Recorded = tuple[torch.cuda.CUDAGraph, list[Tensor], tuple[Tensor, Tensor], list[Tensor]]


class GraphedPass:
    """Computes on packed micro-batches. It records a graph when a shape comes for the second time.

    The computation must be the same in all calls.

    Attributes:
        recorded: the graphs by shape.
        used: whether a recording was begun, which takes memory.
    """

    def __init__(self, model: nn.Module, device: torch.device) -> None:
        self._model, self._device = model, device
        self._seen = set[tuple[int, ...]]()
        self.recorded: dict[tuple[int, ...], _Recorded] = {}
        self.used = False

    def __call__(self, computation: Pass, batch: MicroBatch, factor: float) -> tuple[Tensor, Tensor]:
        """Returns what the computation returns; the tensors keep their values until the next call."""
        layouts = batch.source.layout, batch.target.layout
        shape = tuple(n for x in layouts for n in (len(x.positions_F), len(x.lengths_B), bound_on(x.longest)))
        if shape not in self.recorded:
            if shape not in self._seen or len(self.recorded) == _MOST_GRAPHS:
                self._seen.add(shape)
                return computation(moved(batch, self._device), moved(torch.tensor(factor), self._device))
            self.used = True
            on_device, factor_input = moved(batch, self._device), torch.zeros((), device=self._device)
            # Graphs can share their memory, because no two are executed at the same time.
            pool = next((graph.pool() for graph, *_ in self.recorded.values()), None)
            graph = torch.cuda.CUDAGraph()
            # Kernels that are recorded are not executed. A thread of NCCL may look at its events meanwhile.
            with torch.cuda.graph(graph, pool=pool, capture_error_mode="thread_local"):
                outputs = computation(on_device, factor_input)
            inputs = [*on_device.tensors(), factor_input]
            self.recorded[shape] = graph, inputs, outputs, list(self._model.buffers())
        graph, inputs, outputs, _ = self.recorded[shape]
        for recorded_input, value in zip(inputs, [*batch.tensors(), torch.tensor(factor)], strict=True):
            recorded_input.copy_(value.pin_memory(), non_blocking=True)
        graph.replay()
        return outputs
