"""Decides which sentences of all waiting requests are worked on together, and in which order.

A request takes its turn by the tokens that it has already got, so that a long one does not hold up short ones
(start-time fair queueing, Goyal et al. 1996). A worker takes no more than its share of the tokens, so that the others
get work too. Everything here runs in the event loop.
"""

import asyncio
import math
from bisect import insort
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import Future
from typing import Any, NamedTuple

from starlette.exceptions import HTTPException

from nmt.config import ServeConfig
from nmt.errors import NmtError
from nmt.serving.guard import BATCHES, RETRY

# Submits items of one kind, as the kind and the payloads, and returns their future results.
Submit = Callable[[tuple[Hashable, list[Any]]], "Future[Sequence[Any]]"]


class Item(NamedTuple):
    """What a worker does for a request.

    Attributes:
        kind: items of the same kind can be worked on together.
        payload: what the worker gets.
        tokens: how much work it is.
        shares: whether it may be worked on together with others.
    """

    kind: Hashable
    payload: Any
    tokens: int
    shares: bool = True


class _Waiting(NamedTuple):
    turn: int
    item: Item
    result: "asyncio.Future[Any]"


class Scheduler:
    """A bounded queue in front of the workers."""

    def __init__(self, submit: Submit, config: ServeConfig) -> None:
        self._submit, self._config, self._idle_workers = submit, config, config.workers
        self._queues: dict[Hashable, list[_Waiting]] = {}
        self._now = 0  # the turn of the newest batch
        self._tokens_at_work = 0
        self._running: set[asyncio.Task[None]] = set()

    @property
    def waiting(self) -> int:
        """The number of items in the queue."""
        return sum(map(len, self._queues.values()))

    async def run(self, items: Sequence[Item]) -> list[Any]:
        """Returns the results of the items of a request. If the caller is cancelled, its waiting items are dropped.

        Raises:
            HTTPException: there is no room for all of them.
        """
        most = self._config.max_waiting
        if len(items) > most:
            raise NmtError(f"the request has {len(items):,} sentences, but at most {most:,} may wait; send it in parts")
        if self.waiting + len(items) > most:
            raise HTTPException(503, "too many sentences are waiting; try again later", RETRY)
        waiting = self._queued(items)
        self._start_batches()
        try:
            return list(await asyncio.gather(*(one.result for one in waiting)))
        finally:
            self._drop(waiting)

    def _queued(self, items: Sequence[Item]) -> list[_Waiting]:
        turn, waiting = self._now, []
        for item in items:
            turn += item.tokens
            waiting.append(_Waiting(turn, item, asyncio.get_running_loop().create_future()))
            insort(self._queues.setdefault(item.kind, []), waiting[-1], key=lambda one: one.turn)
        return waiting

    def _drop(self, waiting: Sequence[_Waiting]) -> None:
        """Takes out of the queue what is still in it."""
        for one in waiting:
            one.result.cancel()
        for kind, queue in list(self._queues.items()):
            queue[:] = [one for one in queue if not one.result.done()]
            self._forget_empty(kind)

    def _forget_empty(self, kind: Hashable) -> None:
        if not self._queues[kind]:
            del self._queues[kind]

    def _start_batches(self) -> None:
        while self._idle_workers and self._queues:
            batch = self._next_batch()
            self._idle_workers -= 1
            self._tokens_at_work += sum(one.item.tokens for one in batch)
            task = asyncio.create_task(self._work(batch))
            self._running.add(task)
            task.add_done_callback(self._running.discard)

    def _next_batch(self) -> list[_Waiting]:
        """Takes the item whose turn it is, and as many of its kind as fit into a worker's share."""
        queue = min(self._queues.values(), key=lambda queue: queue[0].turn)
        tokens = self._tokens_at_work + sum(one.item.tokens for one in queue)
        batch = [queue.pop(0)]
        self._now = max(self._now, batch[0].turn)
        share = math.ceil(tokens / self._config.workers)
        room = min(self._config.batch_tokens, share) - batch[0].item.tokens
        while batch[0].item.shares and queue and queue[0].item.shares and queue[0].item.tokens <= room:
            room -= queue[0].item.tokens
            batch.append(queue.pop(0))
        self._forget_empty(batch[0].item.kind)
        return batch

    async def _work(self, batch: list[_Waiting]) -> None:
        """Has a batch worked on. If it fails, its items are tried one by one, so that one cannot spoil others."""
        BATCHES.observe(len(batch))
        found = await self._found(batch)
        if isinstance(found, Exception) and len(batch) > 1:
            for one in batch:
                if not one.result.done():
                    _answer([one], await self._found([one]))
        self._tokens_at_work -= sum(one.item.tokens for one in batch)
        self._idle_workers += 1
        self._start_batches()  # before the answers are made, which takes long, so that the worker need not wait
        _answer(batch, found)

    async def _found(self, batch: Sequence[_Waiting]) -> Sequence[Any] | Exception:
        """Returns the results of a batch, or why it failed."""
        try:
            return await asyncio.wrap_future(self._submit((batch[0].item.kind, [one.item.payload for one in batch])))
        except Exception as error:
            return error


def _answer(batch: Sequence[_Waiting], found: Sequence[Any] | Exception) -> None:
    """Sets the result of each item that has none yet; an item whose request has ended or failed has one."""
    for number, one in enumerate(batch):
        if one.result.done():
            continue
        if isinstance(found, Exception):
            one.result.set_exception(found)
        else:
            one.result.set_result(found[number])
