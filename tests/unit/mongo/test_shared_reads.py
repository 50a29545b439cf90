"""Look-ups share queries, and none is answered by a query that began before it was asked."""

import asyncio
from collections.abc import Mapping

import pytest

from eden_memory.mongo.transactions import SharedReads


class Slow:
    """Reads a store; each read waits to be let through."""

    def __init__(self) -> None:
        self.store: dict[str, int] = {}
        self.asked: list[list[str]] = []
        self.gate = asyncio.Semaphore(0)

    async def read(self, keys: list[str]) -> Mapping[str, int]:
        self.asked.append(keys)
        found = {key: self.store[key] for key in keys if key in self.store}
        await self.gate.acquire()
        return found


async def turns(count: int = 5) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def test_what_is_asked_for_at_the_same_moment_is_one_query() -> None:
    slow = Slow()
    slow.store = {"a": 1, "b": 2}
    reads = SharedReads(slow.read)
    slow.gate.release()
    answers = await asyncio.gather(reads.get(["a"]), reads.get(["b", "c"]), reads.get([]))
    assert list(answers) == [{"a": 1}, {"b": 2}, {}]
    assert slow.asked == [["a", "b", "c"]]


async def test_a_look_up_is_never_answered_by_a_query_that_began_before_it() -> None:
    slow = Slow()
    reads = SharedReads(slow.read)
    first = asyncio.create_task(reads.get(["a"]))
    await turns()
    slow.store["a"] = 1
    later = [asyncio.create_task(reads.get(["a"])), asyncio.create_task(reads.get(["a", "b"]))]
    await turns()
    slow.gate.release()
    slow.gate.release()
    assert await first == {}
    assert await asyncio.gather(*later) == [{"a": 1}, {"a": 1}]
    assert slow.asked == [["a"], ["a", "b"]]


async def test_an_error_reaches_all_who_asked_and_the_next_look_up_asks_again() -> None:
    broken = True

    async def read(keys: list[str]) -> Mapping[str, int]:
        if broken:
            raise ConnectionError("away")
        return dict.fromkeys(keys, 1)

    reads = SharedReads(read)
    results = await asyncio.gather(reads.get(["a"]), reads.get(["a", "b"]), return_exceptions=True)
    assert [type(one) for one in results] == [ConnectionError, ConnectionError]
    broken = False
    assert await reads.get(["a"]) == {"a": 1}


async def test_one_who_goes_away_takes_nothing_from_the_others() -> None:
    slow = Slow()
    slow.store = {"a": 1}
    reads = SharedReads(slow.read)
    gone, stays = asyncio.create_task(reads.get(["a"])), asyncio.create_task(reads.get(["a"]))
    await turns()
    gone.cancel()
    with pytest.raises(asyncio.CancelledError):
        await gone
    slow.gate.release()
    assert await stays == {"a": 1}
