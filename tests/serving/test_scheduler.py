"""The queue of the service: which items share a batch, whose turn it is, and who is turned away."""

import asyncio
from collections.abc import Hashable, Sequence
from concurrent.futures import Future
from typing import Any

import pytest
from virtual_time import in_virtual_time

from nmt.config import ServeConfig
from nmt.errors import NmtError
from nmt.serving.errors import OverloadedError
from nmt.serving.scheduler import Item, Scheduler
from nmt.serving.workers import Advanced


class Workers:
    """Records batches and finishes them when told to. The scheduler has done all it can when a method returns."""

    def __init__(self, count: int) -> None:
        self.batches: list[str] = []
        self._futures: list[Future[Sequence[str]]] = []
        self.scheduler = Scheduler([self._submit] * count, ServeConfig(workers=count, batch_tokens=4, max_waiting=10))

    def _submit(self, batch: tuple[Hashable, list[str]]) -> "Future[Sequence[str]]":
        self.batches.append("".join(batch[1]))
        self._futures.append(Future())
        return self._futures[-1]

    async def request(self, *items: Item) -> "asyncio.Task[list[str]]":
        task = asyncio.create_task(self.scheduler.run(items))
        await settled()
        return task

    async def finish(self, *indexes: int) -> None:
        for index in indexes:
            self._futures[index].set_result(list(self.batches[index].upper()))
            await settled()

    async def fail(self, index: int, message: str) -> None:
        self._futures[index].set_exception(NmtError(message))
        await settled()


@pytest.fixture
def workers() -> Workers:
    return Workers(1)


async def settled() -> None:
    await asyncio.sleep(1)  # of virtual time: it passes when nothing else can be done


def items(names: str, kind: str = "a", tokens: int = 1, shares: bool = True) -> list[Item]:
    return [Item(kind, name, tokens, shares) for name in names]


@in_virtual_time
async def test_a_worker_gets_its_next_batch_before_the_answers_of_the_last_one_are_made(workers: Workers) -> None:
    async def batches_at_the_answer() -> int:
        await workers.scheduler.run(items("x"))
        return len(workers.batches)

    first = asyncio.create_task(batches_at_the_answer())
    await settled()
    second = await workers.request(*items("y"))
    await workers.finish(0)
    assert await first == 2
    await workers.finish(1)
    assert await second == ["Y"]


@in_virtual_time
async def test_waiting_items_of_one_kind_share_a_batch_up_to_its_tokens(workers: Workers) -> None:
    requests = [await workers.request(*items(names)) for names in ("x", "bc", "d", "ef")]
    requests.append(await workers.request(*items("g", kind="b")))
    assert workers.batches == ["x"]
    await workers.finish(0)
    assert len(workers.batches[1]) == 4
    await workers.finish(1, 2, 3)
    assert sorted(map(sorted, workers.batches[1:])) == [["b", "c", "d", "e"], ["f"], ["g"]]
    assert [await request for request in requests] == [["X"], ["B", "C"], ["D"], ["E", "F"], ["G"]]
    assert workers.scheduler.waiting == 0


@in_virtual_time
async def test_a_long_request_does_not_hold_up_a_short_one(workers: Workers) -> None:
    long = await workers.request(*items("abcdefgh", tokens=4))
    short = await workers.request(*items("s", kind="b", tokens=4))
    await workers.finish(0, 1, 2)
    assert short.done()
    await workers.finish(*range(3, 9))
    assert (await short, await long) == (["S"], list("ABCDEFGH"))


@in_virtual_time
async def test_items_that_do_not_share_are_alone(workers: Workers) -> None:
    request = await workers.request(*items("ab", shares=False), *items("c"))
    await workers.finish(0, 1, 2)
    assert await request == ["A", "B", "C"]
    assert workers.batches == ["a", "b", "c"]


@in_virtual_time
async def test_all_workers_get_their_share() -> None:
    workers = Workers(2)
    request = await workers.request(*items("abcdef"))
    assert workers.batches == ["abc", "def"]
    await workers.finish(1, 0)
    assert await request == list("ABCDEF")


@in_virtual_time
async def test_a_full_queue_turns_requests_away(workers: Workers) -> None:
    first = await workers.request(*items("a", tokens=4))
    second = await workers.request(*items("bcdefghi"))
    with pytest.raises(OverloadedError, match="too many sentences are waiting"):
        await workers.scheduler.run(items("xyz"))
    with pytest.raises(NmtError, match="the request has 11 sentences, but at most 10 may wait"):
        await workers.scheduler.run(items("abcdefghijk"))
    assert workers.scheduler.waiting == 8
    second.cancel()  # its client has gone
    await settled()
    assert workers.scheduler.waiting == 0
    third = await workers.request(*items("xyz"))
    await workers.finish(0, 1)
    assert (await first, await third) == (["A"], ["X", "Y", "Z"])


@in_virtual_time
async def test_of_the_parts_of_a_long_sentence_one_counts_for_the_limit(workers: Workers) -> None:
    first, *others = items("abcdefghijklmnop")
    request = await workers.request(first, *(other._replace(is_counted=False) for other in others))
    assert workers.scheduler.waiting == 0
    for index in range(4):
        await workers.finish(index)
    assert await request == list("ABCDEFGHIJKLMNOP")


@in_virtual_time
async def test_an_item_that_fails_does_not_spoil_the_others(workers: Workers) -> None:
    requests = [await workers.request(*items(name)) for name in "xab"]
    await workers.finish(0)
    await workers.fail(1, "one of them")
    await workers.finish(2)
    assert [request.done() for request in requests] == [True, True, False]
    await workers.fail(3, "it was this one")
    assert workers.batches[1:] == ["ab", "a", "b"]
    assert [await request for request in requests[:2]] == [["X"], ["A"]]
    with pytest.raises(NmtError, match="it was this one"):
        await requests[2]


@in_virtual_time
async def test_the_rest_of_a_request_that_has_failed_is_not_tried(workers: Workers) -> None:
    request = await workers.request(*items("abc"))
    await workers.fail(0, "one of them")
    await workers.fail(1, "it was the first one")
    with pytest.raises(NmtError, match="it was the first one"):
        await request
    await workers.finish(2)
    assert workers.batches == ["abc", "a", "b"]


class Searching(Workers):
    """Also records the calls of running searches, as the names that join, and finishes names when told to."""

    def __init__(self, count: int) -> None:
        super().__init__(count)
        self.names: dict[int, str] = {}

    def _submit(self, batch: tuple[Hashable, Any]) -> "Future[Any]":
        operation, payloads = batch
        if not isinstance(payloads, dict):
            return super()._submit((operation, payloads))
        self.names |= payloads
        self.batches.append(f"search {operation}: {''.join(payloads.values())}")
        self._futures.append(Future())
        return self._futures[-1]

    async def advance(self, index: int, done: str, running: str) -> None:
        """Ends a call, after which these names are done, and these are searched."""
        keys = {name: key for key, name in self.names.items()}
        translations = {keys[name]: name.upper() for name in done}
        self._futures[index].set_result(Advanced(translations, [keys[name] for name in running]))
        await settled()


def joining(names: str, kind: str = "a", tokens: int = 1) -> list[Item]:
    return [Item(kind, name, tokens, joins=True) for name in names]


@in_virtual_time
async def test_items_join_a_running_search_and_leave_it_when_they_are_done() -> None:
    workers = Searching(1)
    first = await workers.request(*joining("ab"))
    assert workers.batches == ["search a: ab", "search a: "]  # the worker need not wait for its second call
    second = await workers.request(*joining("cde"))
    await workers.advance(0, done="a", running="b")
    assert workers.batches[2:] == ["search a: cde"]  # there is room for four tokens
    await workers.advance(1, done="", running="b")
    await workers.advance(2, done="bc", running="de")
    assert await first == ["A", "B"]
    third = await workers.request(*joining("f"))
    await workers.advance(3, done="", running="de")
    await workers.advance(4, done="ed", running="")
    assert await second == ["C", "D", "E"]
    await workers.advance(5, done="f", running="")
    assert await third == ["F"]


@in_virtual_time
async def test_running_searches_and_batches_take_turns() -> None:
    workers = Searching(1)
    for item in (*joining("a"), *joining("b", kind="b"), *items("cd", kind="score", shares=False)):
        await workers.request(item)
    for index in range(8):
        if workers.batches[index] in "cd":
            await workers.finish(index)
        else:
            await workers.advance(index, done="", running=workers.batches[index][len("search ")])
    after_two = ["search b: b", "c", "search a: ", "d", "search b: ", "search a: ", "search b: "]
    assert workers.batches[2:9] == after_two


@in_virtual_time
async def test_items_that_a_new_worker_does_not_know_are_tried_alone() -> None:
    workers = Searching(1)
    request = await workers.request(*joining("ab"))
    await workers.advance(0, done="", running="b")  # the process has died and was replaced
    await workers.finish(workers.batches.index("a"))
    await workers.advance(1, done="b", running="")
    assert await request == ["A", "B"]


@in_virtual_time
async def test_the_items_of_a_search_that_fails_are_tried_alone() -> None:
    workers = Searching(1)
    request = await workers.request(*joining("ab"))
    await workers.fail(0, "one of them")
    await workers.finish(workers.batches.index("a"))
    await workers.finish(workers.batches.index("b"))
    await workers.advance(1, done="", running="")
    assert await request == ["A", "B"]
