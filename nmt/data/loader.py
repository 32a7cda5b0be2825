"""Plan and store become tensors: the blocks of a micro-batch, laid flat one after the other.

Batches are made in a thread of their own, with numpy alone: a torch operation there would start a second team of OpenMP
threads, more than there are cores, and OpenMP would then slow down every operation of the training thread by a third.

Shapes: B sentences, N flat source positions, M flat target positions (padding included).
"""

import queue
import threading
from collections.abc import Generator, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor

from nmt.data.batching import UpdatePlan
from nmt.data.layout import Block, Layout, moved
from nmt.data.store import DataFolder, ParallelSplit
from nmt.errors import NmtError
from nmt.text.subword import PAD, with_bos, with_eos

_Item = TypeVar("_Item")
_PREFETCHED_UPDATES = 4
# Matrix products on a CPU are compiled for every new number of rows, at a millisecond and a megabyte each: so let there
# be few such numbers.
_MULTIPLE = 128
_PACKED_MULTIPLE = 8  # matrix products on a GPU are faster with it


@dataclass(frozen=True)
class Side:
    """One language's half of a micro-batch: ids at all flat positions, and how they fall into sentences."""

    ids_F: Tensor
    layout: Layout

    def to(self, device: torch.device) -> "Side":
        return Side(moved(self.ids_F, device), self.layout.to(device))


@dataclass(frozen=True)
class Batch:
    """A micro-batch.

    Attributes:
        source: source sentences with EOS.
        target: target sentences with BOS before and without EOS: the decoder's input.
        labels_M: the token to predict at each target position, PAD at padding.
        source_tokens, target_tokens: how many there are, padding left out.
        sentences: the numbers of its sentence pairs, block by block.
    """

    source: Side
    target: Side
    labels_M: Tensor
    source_tokens: int
    target_tokens: int
    sentences: tuple[np.ndarray, ...]

    @property
    def positions(self) -> int:
        """Positions of both sides, padding included."""
        return len(self.source.ids_F) + len(self.target.ids_F)

    def to(self, device: torch.device) -> "Batch":
        return replace(
            self,
            source=self.source.to(device),
            target=self.target.to(device),
            labels_M=moved(self.labels_M, device),
        )

    def without_labels(self) -> "Batch":
        """The same with nothing to predict, so that its loss and gradient are zero."""
        return replace(self, labels_M=torch.full_like(self.labels_M, PAD), source_tokens=0, target_tokens=0)


@dataclass(frozen=True)
class Update:
    """A rank's part of an update.

    Attributes:
        batches: its micro-batches; every rank has equally many, of which some may be without labels.
        source_tokens, target_tokens: of the whole update, over all ranks.
    """

    batches: list[Batch]
    source_tokens: int
    target_tokens: int


def _padded(sentences: Sequence[np.ndarray], multiple: int = 1) -> np.ndarray:
    """The sentences as one matrix, filled up with PAD, and as wide as a multiple of so many."""
    longest = max(map(len, sentences))
    matrix = np.full((len(sentences), longest + -longest % multiple), PAD, dtype=np.int64)
    for row, sentence in zip(matrix, sentences, strict=True):
        row[: len(sentence)] = sentence
    return matrix


def make_side(blocks: Sequence[Sequence[np.ndarray]], multiple: int = 1, width_multiple: int = 1) -> Side:
    """Lays blocks of sentences (ids, complete with EOS or BOS) flat.

    Pads the end to a multiple of positions, and each block to a multiple of its own.
    """
    matrices = [_padded(block, width_multiple) for block in blocks]
    lengths = [np.array([len(s) for s in block]) for block in blocks]
    positions = [np.tile(np.arange(m.shape[1]), len(m)) for m in matrices]
    layout = Layout(
        positions_F=_flat(positions, multiple),
        lengths_B=torch.from_numpy(np.concatenate(lengths)),
        longest=max(m.shape[1] for m in matrices),
        blocks=tuple(
            Block(len(m), m.shape[1], bool((n < m.shape[1]).any())) for m, n in zip(matrices, lengths, strict=True)
        ),
    )
    return Side(_flat(matrices, multiple), layout)


def _flat(parts: Sequence[np.ndarray], multiple: int = 1) -> Tensor:
    flat = np.concatenate([part.ravel() for part in parts])
    return torch.from_numpy(np.pad(flat, (0, -len(flat) % multiple), constant_values=PAD))


def _packed_side(blocks: Sequence[Sequence[np.ndarray]]) -> Side:
    """As `make_side`, without padding between sentences.

    Padding to a multiple is one dummy sentence at the end, always present, so that both sides have equally many
    sentences.
    """
    sentences = [sentence for block in blocks for sentence in block]
    filler = _PACKED_MULTIPLE - sum(map(len, sentences)) % _PACKED_MULTIPLE
    positions = [np.arange(len(sentence)) for sentence in sentences]
    lengths = [*map(len, sentences), filler]
    layout = Layout(
        positions_F=_flat([*positions, np.zeros(filler, dtype=np.int64)]),
        lengths_B=torch.tensor(lengths),
        longest=max(lengths),
        blocks=None,
    )
    return Side(_flat([*sentences, np.full(filler, PAD)]), layout)


def make_batch(split: ParallelSplit, blocks: Sequence[np.ndarray], *, packs: bool = False) -> Batch:
    """The sentence pairs numbered in `blocks`, padded block by block, or if it `packs`, without padding."""
    sources = [[with_eos(split.source[i]) for i in block] for block in blocks]
    outputs = [[with_eos(split.target[i]) for i in block] for block in blocks]
    inputs = [[with_bos(split.target[i]) for i in block] for block in blocks]
    if packs:
        source, target = _packed_side(sources), _packed_side(inputs)
        labels = [output for block in outputs for output in block]
    else:
        source, target = make_side(sources, _MULTIPLE), make_side(inputs, _MULTIPLE)
        labels = [_padded(block) for block in outputs]
    return Batch(
        source=source,
        target=target,
        labels_M=_flat(labels, len(target.ids_F)),
        source_tokens=sum(len(sentence) for block in sources for sentence in block),
        target_tokens=sum(len(sentence) for block in outputs for sentence in block),
        sentences=tuple(blocks),
    )


def check_ids(batch: Batch, data: DataFolder) -> None:
    """Here, because on a GPU an id beyond the vocabulary ends in a device-side assertion.

    Raises:
        NmtError: there is one; the data folder is damaged.
    """
    for name, side, subword in (
        ("source", batch.source, data.codec.source),
        ("target", batch.target, data.codec.target),
    ):
        largest = int(side.ids_F.max())
        if largest >= len(subword):
            raise NmtError(
                f"{data.path} is damaged: its {name} text holds piece {largest:,}, its vocabulary {len(subword):,} "
                f"pieces; run nmt preprocess again"
            )


def make_update(
    split: ParallelSplit, plan: UpdatePlan, index: int, device_tokens: int, rank: int, ranks: int, *, packs: bool
) -> Update:
    """Returns rank `rank`'s part of update `index`.

    Raises:
        DataChanged: the split's files are gone or have another size.
    """
    split.check_files()
    make = partial(make_batch, split, packs=packs)
    source_tokens, target_tokens = plan.tokens(index)
    mine = plan.micro_batches(index, device_tokens, ranks)[rank::ranks]
    idle = [plan.update(index)[0][:1]]
    return Update(
        [make(blocks) if blocks else make(idle).without_labels() for blocks in mine],
        source_tokens,
        target_tokens,
    )


def updates(
    split: ParallelSplit,
    plan: UpdatePlan,
    device_tokens: int,
    first: int = 0,
    rank: int = 0,
    ranks: int = 1,
    *,
    packs: bool = False,
) -> Generator[Update, None, None]:
    """Yields a rank's part of each update from `first` on, made ahead in another thread. Close it if you leave early.

    Raises:
        DataChanged: the split's files are gone or have another size.
    """
    make = partial(make_update, split, plan, device_tokens=device_tokens, rank=rank, ranks=ranks, packs=packs)
    return prefetched(make(index) for index in range(first, len(plan)))


def prefetched(items: Iterable[_Item]) -> Generator[_Item, None, None]:
    """The same items, a few of them made ahead in another thread; an exception there is raised here."""
    ready: queue.Queue[_Item | BaseException | None] = queue.Queue(_PREFETCHED_UPDATES)
    stop = threading.Event()

    def put(item: _Item | BaseException | None) -> None:
        while not stop.is_set():
            try:
                ready.put(item, timeout=0.1)
                return
            except queue.Full:
                pass

    def work() -> None:
        try:
            for item in items:
                put(item)
                if stop.is_set():
                    return
            put(None)
        except BaseException as error:
            put(error)

    thread = threading.Thread(target=work, daemon=True, name="nmt-loader")
    thread.start()
    try:
        while (item := ready.get()) is not None:
            if isinstance(item, BaseException):
                raise item
            yield item
    finally:
        stop.set()
        thread.join()
