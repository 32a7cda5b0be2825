"""Decides what each worker does next: which waiting sentences it takes, and in which order.

A request takes its turn by the tokens that it has already got, so that a long one does not hold up short ones
(start-time fair queueing, Goyal et al. 1996). A worker takes no more than its share of the tokens, so that the
others get work too. Everything here runs in the event loop.
"""

import asyncio
import math
from bisect import insort
from collections.abc import Hashable, Sequence, Set
from concurrent.futures import Future
from dataclasses import dataclass, field
from itertools import count
from typing import Any, NamedTuple

from nmt.config import ServeConfig
from nmt.errors import NmtError
from nmt.serving.errors import OverloadedError
from nmt.serving.metrics import BATCHES
from nmt.serving.workers import Submit


class Item(NamedTuple):
    """What a worker does for a request.

    Attributes:
        operation: an operation of `nmt.serving.workers`. Items with equal operations can be worked on together.
        payload: what the worker gets.
        tokens: how much work it is.
        shares: whether it may be worked on together with others.
        joins: whether it can join a running search at any time.
        is_counted: whether it counts for the limit of the queue; of the parts of a long sentence, only the first does.
    """

    operation: Any
    payload: Any
    tokens: int
    shares: bool = True
    joins: bool = False
    is_counted: bool = True


class _Entry(NamedTuple):
    """An item with its turn and its future result."""

    turn: int
    item: Item
    result: "asyncio.Future[Any]"

    def give(self, result: Any) -> None:
        """Sets the result of the item. An item whose request has ended or failed has one already."""
        if self.result.done():
            return
        if isinstance(result, Exception):
            self.result.set_exception(result)
        else:
            self.result.set_result(result)


class _Call(NamedTuple):
    """What a worker is asked for: a batch of items, or the next steps of a running search with items of these keys."""

    operation: Any
    payloads: list[Any] | dict[Hashable, Any]
    batch: Sequence[_Entry] = ()
    keys: Set[int] = frozenset()


@dataclass(eq=False)
class _Worker:
    """A worker, and its running searches: items by key. The search that has waited longest is first."""

    submit: Submit
    running: dict[Hashable, dict[int, _Entry]] = field(default_factory=dict)
    has_done_batch: bool = False
    task: "asyncio.Task[None] | None" = None

    @property
    def tokens(self) -> int:
        """The tokens of all running searches."""
        return sum(entry.item.tokens for items in self.running.values() for entry in items.values())


class Scheduler:
    """A bounded queue in front of the workers."""

    def __init__(self, submits: Sequence[Submit], config: ServeConfig) -> None:
        self._workers = [_Worker(submit) for submit in submits]
        self._config, self._keys = config, count()
        # What waits for each operation, and whether it can join its running search.
        self._queues: dict[tuple[Hashable, bool], list[_Entry]] = {}
        self._now = 0  # the latest turn of the items that were taken
        self._tokens_in_batches = 0

    @property
    def waiting(self) -> int:
        """The number of sentences and other work in the queue."""
        return sum(entry.item.is_counted for queue in self._queues.values() for entry in queue)

    async def run(self, items: Sequence[Item]) -> list[Any]:
        """Returns the results of the items of a request. If the caller is cancelled, its waiting items are dropped.

        Raises:
            OverloadedError: there is no room for all of them.
        """
        most, count = self._config.max_waiting, sum(item.is_counted for item in items)
        if count > most:
            raise NmtError(f"the request has {count:,} sentences, but at most {most:,} may wait; send it in parts")
        if self.waiting + count > most:
            raise OverloadedError("too many sentences are waiting; try again later")
        turn, waiting = self._now, []
        for item in items:
            turn += item.tokens
            waiting.append(_Entry(turn, item, asyncio.get_running_loop().create_future()))
            queue = self._queues.setdefault((item.operation, item.joins), [])
            insort(queue, waiting[-1], key=lambda entry: entry.turn)
        for worker in self._workers:
            if self._queues and (worker.task is None or worker.task.done()):
                worker.task = asyncio.create_task(self._work(worker))
        try:
            return list(await asyncio.gather(*(entry.result for entry in waiting)))
        finally:  # what is still in the queue leaves it
            for entry in waiting:
                entry.result.cancel()
            left = {key: [entry for entry in queue if not entry.result.done()] for key, queue in self._queues.items()}
            self._queues = {key: queue for key, queue in left.items() if queue}

    async def _work(self, worker: _Worker) -> None:
        """Has a worker work until there is nothing to do for it.

        While it makes steps of a running search, it already gets its next call, so that it need not wait for the event
        loop. After a batch, the next call is chosen when the batch is done, so that it is as large as possible.
        """
        last: tuple[_Call, Future[Any]] | None = None
        while True:
            if last and last[0].batch:
                await self._receive(worker, *last)
                last = None
            call = self._next_call(worker)
            submitted = (call, worker.submit((call.operation, call.payloads))) if call else None
            if last:
                await self._receive(worker, *last)
            if not submitted and not last:
                return
            last = submitted

    def _next_call(self, worker: _Worker) -> _Call | None:
        """Returns what the worker does next. Batches take turns with running searches."""
        head = min((queue[0] for queue in self._queues.values()), key=lambda entry: entry.turn, default=None)
        if head and not head.item.joins and not (worker.running and worker.has_done_batch):
            worker.has_done_batch = True
            entries = self._taken(worker, (head.item.operation, False), least=1, latest=math.inf)
            self._tokens_in_batches += sum(entry.item.tokens for entry in entries)
            BATCHES.observe(len(entries))
            return _Call(head.item.operation, [entry.item.payload for entry in entries], entries)
        worker.has_done_batch = False
        begun = [head.item.operation] if head and head.item.joins and head.item.operation not in worker.running else []
        for search in [*begun, *worker.running]:
            turns = [queue[0].turn for key, queue in self._queues.items() if key != (search, True)]
            least, latest = 0 if worker.running else 1, min(turns, default=math.inf)
            joining = {next(self._keys): entry for entry in self._taken(worker, (search, True), least, latest)}
            if joining or search in worker.running:
                worker.running[search] = worker.running.pop(search, {}) | joining  # now behind the others
                BATCHES.observe(len(worker.running[search]))
                payloads: dict[Hashable, Any] = {key: entry.item.payload for key, entry in joining.items()}
                return _Call(search, payloads, keys=frozenset(worker.running[search]))
        return None

    def _taken(self, worker: _Worker, key: tuple[Hashable, bool], least: int, latest: float) -> list[_Entry]:
        """Takes `least` items of a queue, and more up to the turn `latest` while they fit the worker's share."""
        queue = self._queues.get(key, [])
        at_work = self._tokens_in_batches + sum(worker.tokens for worker in self._workers)
        share = math.ceil((at_work + sum(entry.item.tokens for entry in queue)) / len(self._workers))
        room = min(self._config.batch_tokens, share) - worker.tokens
        taken: list[_Entry] = []
        while queue:
            entry = queue[0]
            fits = entry.item.tokens <= room and entry.turn <= latest and entry.item.shares
            if len(taken) >= least and not (fits and all(other.item.shares for other in taken)):
                break
            taken.append(queue.pop(0))
            room -= entry.item.tokens
            self._now = max(self._now, entry.turn)
        if not queue:
            self._queues.pop(key, None)
        return taken

    async def _receive(self, worker: _Worker, call: _Call, result: "Future[Any]") -> None:
        """Gives items their results. If a call has failed, its items are tried alone, so that none spoils others."""
        answer = await _answer(result)
        failed = isinstance(answer, Exception)
        if call.batch:
            self._tokens_in_batches -= sum(entry.item.tokens for entry in call.batch)
            if failed and len(call.batch) > 1:
                await self._alone(worker, call.batch)
            else:
                for entry, value in zip(call.batch, [answer] if failed else answer, strict=True):
                    entry.give(value)
            return
        items = worker.running.get(call.operation, {})
        for key, value in () if failed else answer.done.items():
            items.pop(key).give(value)
        # A worker that has died, and was replaced, does not know the items of earlier calls.
        lost = [items.pop(key) for key in call.keys & items.keys() if failed or key not in answer.running]
        if not items:
            worker.running.pop(call.operation, None)
        await self._alone(worker, lost)

    async def _alone(self, worker: _Worker, items: Sequence[_Entry]) -> None:
        """Has items worked on one by one."""
        for entry in items:
            if not entry.result.done():
                answer = await _answer(worker.submit((entry.item.operation, [entry.item.payload])))
                entry.give(answer if isinstance(answer, Exception) else answer[0])


async def _answer(result: "Future[Any]") -> Any:
    """Returns the answer of a worker, or why it failed."""
    try:
        return await asyncio.wrap_future(result)
    except Exception as error:
        return error
