"""Requests of the same moment share a round; who comes alone waits for nobody, who follows waits for others."""

import asyncio

from eden_memory.models.cached_embedders import Batching


class Rounds:
    """Notes what each round held."""

    def __init__(self, linger: float) -> None:
        self.held: list[list[int]] = []
        self._worked = asyncio.Event()
        self.batching: Batching[int] = Batching(self._work, linger)

    async def _work(self, items: list[int]) -> None:
        self.held.append(items)
        self._worked.set()

    async def until(self, count: int) -> None:
        async with asyncio.timeout(20):
            while sum(map(len, self.held)) < count:
                await self._worked.wait()
                self._worked.clear()


async def test_who_comes_alone_waits_for_nobody() -> None:
    rounds = Rounds(linger=3_600)
    rounds.batching.add(1)
    await rounds.until(1)
    await rounds.batching.close()


async def test_requests_of_one_moment_share_a_round() -> None:
    rounds = Rounds(linger=3_600)
    for number in range(5):
        asyncio.get_running_loop().call_soon(rounds.batching.add, number)
    await rounds.until(5)
    assert rounds.held == [[0, 1, 2, 3, 4]]
    await rounds.batching.close()


async def test_who_follows_a_round_waits_for_others() -> None:
    rounds = Rounds(linger=0.2)
    rounds.batching.add(1)
    await rounds.until(1)
    rounds.batching.add(2)
    await asyncio.sleep(0.001)
    rounds.batching.add(3)
    await rounds.until(3)
    assert rounds.held == [[1], [2, 3]]
    await rounds.batching.close()
