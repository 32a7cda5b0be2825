"""The queue of the service: which items share a batch, whose turn it is, and who is turned away."""

import asyncio
from collections.abc import Callable, Coroutine, Hashable, Sequence
from concurrent.futures import Future
from typing import Any

import pytest

from nmt.errors import NmtError
from nmt.serving.scheduler import Busy, Item, Scheduler


class Workers:
    """Records batches and finishes them when told to."""

    def __init__(self) -> None:
        self.batches: list[list[str]] = []
        self._futures: list[Future[Sequence[str]]] = []

    def submit(self, _: Hashable, payloads: list[Any]) -> "Future[Sequence[str]]":
        self.batches.append(payloads)
        self._futures.append(Future())
        return self._futures[-1]

    async def finish(self, number: int) -> None:
        self._futures[number].set_result([payload.upper() for payload in self.batches[number]])
        await settled()

    async def fail(self, number: int, error: Exception) -> None:
        self._futures[number].set_exception(error)
        await settled()


async def settled() -> None:
    for _ in range(10):
        await asyncio.sleep(0.001)


def items(names: str, kind: str = "a", tokens: int = 1, shares: bool = True) -> list[Item]:
    return [Item(kind, name, tokens, shares) for name in names]


def with_scheduler(
    test: Callable[[Scheduler, Workers], Coroutine[Any, Any, None]], workers: int = 1, batch_tokens: int = 4
) -> None:
    async def work() -> None:
        recorded = Workers()
        await test(Scheduler(recorded.submit, workers=workers, batch_tokens=batch_tokens, most_waiting=10), recorded)

    asyncio.run(asyncio.wait_for(work(), 60))


def test_a_worker_gets_its_next_batch_before_the_answers_of_the_last_one_are_made() -> None:
    async def test(scheduler: Scheduler, workers: Workers) -> None:
        async def batches_at_the_answer() -> int:
            await scheduler.run(items("x"))
            return len(workers.batches)

        first = asyncio.create_task(batches_at_the_answer())
        await settled()
        second = asyncio.create_task(scheduler.run(items("y")))
        await settled()
        await workers.finish(0)
        assert await first == 2
        await workers.finish(1)
        assert await second == ["Y"]

    with_scheduler(test)


def test_waiting_items_of_one_kind_share_a_batch_up_to_its_tokens() -> None:
    async def test(scheduler: Scheduler, workers: Workers) -> None:
        requests = [asyncio.create_task(scheduler.run(items("x")))]
        await settled()
        requests += [asyncio.create_task(scheduler.run(items(names))) for names in ("bc", "d", "ef")]
        requests.append(asyncio.create_task(scheduler.run(items("g", kind="b"))))
        await settled()
        assert workers.batches == [["x"]]
        await workers.finish(0)
        assert len(workers.batches[1]) == 4
        await workers.finish(1)
        for number in (2, 3):
            await workers.finish(number)
        assert sorted(map(sorted, workers.batches[1:])) == [["b", "c", "d", "e"], ["f"], ["g"]]
        assert [await request for request in requests] == [["X"], ["B", "C"], ["D"], ["E", "F"], ["G"]]
        assert scheduler.waiting == 0

    with_scheduler(test)


def test_a_long_request_does_not_hold_up_a_short_one() -> None:
    async def test(scheduler: Scheduler, workers: Workers) -> None:
        long = asyncio.create_task(scheduler.run(items("abcdefgh", tokens=4)))
        await settled()
        short = asyncio.create_task(scheduler.run(items("s", kind="b", tokens=4)))
        await settled()
        for number in range(3):
            await workers.finish(number)
        assert short.done()
        for number in range(3, 9):
            await workers.finish(number)
        assert await short == ["S"]
        assert await long == list("ABCDEFGH")

    with_scheduler(test)


def test_items_that_do_not_share_are_alone() -> None:
    async def test(scheduler: Scheduler, workers: Workers) -> None:
        request = asyncio.create_task(scheduler.run([*items("ab", shares=False), *items("c")]))
        for number in range(3):
            await settled()
            await workers.finish(number)
        assert await request == ["A", "B", "C"]
        assert workers.batches == [["a"], ["b"], ["c"]]

    with_scheduler(test)


def test_all_workers_get_their_share() -> None:
    async def test(scheduler: Scheduler, workers: Workers) -> None:
        request = asyncio.create_task(scheduler.run(items("abcdef")))
        await settled()
        assert workers.batches == [["a", "b", "c"], ["d", "e", "f"]]
        for number in (1, 0):
            await workers.finish(number)
        assert await request == list("ABCDEF")

    with_scheduler(test, workers=2)


def test_a_full_queue_turns_requests_away() -> None:
    async def test(scheduler: Scheduler, workers: Workers) -> None:
        first = asyncio.create_task(scheduler.run(items("a", tokens=4)))
        await settled()
        second = asyncio.create_task(scheduler.run(items("bcdefghi")))
        await settled()
        with pytest.raises(Busy):
            await scheduler.run(items("xyz"))
        with pytest.raises(NmtError, match="the request has 11 sentences, but at most 10 may wait"):
            await scheduler.run(items("abcdefghijk"))
        assert scheduler.waiting == 8
        second.cancel()  # its client has gone
        await settled()
        assert scheduler.waiting == 0
        third = asyncio.create_task(scheduler.run(items("xyz")))
        await settled()
        await workers.finish(0)
        await workers.finish(1)
        assert (await first, await third) == (["A"], ["X", "Y", "Z"])

    with_scheduler(test)


def test_an_item_that_fails_does_not_spoil_the_others() -> None:
    async def test(scheduler: Scheduler, workers: Workers) -> None:
        requests = [asyncio.create_task(scheduler.run(items("x")))]
        await settled()
        requests += [asyncio.create_task(scheduler.run(items(name))) for name in "ab"]
        await settled()
        await workers.finish(0)
        await workers.fail(1, NmtError("one of them"))
        await workers.finish(2)
        assert [request.done() for request in requests] == [True, True, False]
        await workers.fail(3, NmtError("it was this one"))
        assert workers.batches[1:] == [["a", "b"], ["a"], ["b"]]
        assert [await request for request in requests[:2]] == [["X"], ["A"]]
        with pytest.raises(NmtError, match="it was this one"):
            await requests[2]

    with_scheduler(test)


def test_the_rest_of_a_request_that_has_failed_is_not_tried() -> None:
    async def test(scheduler: Scheduler, workers: Workers) -> None:
        request = asyncio.create_task(scheduler.run(items("abc")))
        await settled()
        await workers.fail(0, NmtError("one of them"))
        await workers.fail(1, NmtError("it was the first one"))
        with pytest.raises(NmtError, match="it was the first one"):
            await request
        await workers.finish(2)
        assert workers.batches == [["a", "b", "c"], ["a"], ["b"]]

    with_scheduler(test)
