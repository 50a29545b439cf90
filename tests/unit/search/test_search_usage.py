"""Calls of searches in the totals: once each, in few documents, whatever MongoDB does meanwhile."""

import asyncio
from collections.abc import Sequence
from decimal import Decimal

from eden_memory.metrics import unpriced
from eden_memory.models.cached_embedders import ENTRY_BYTES, SearchEmbedder
from eden_memory.schemas.events import ModelCalled
from eden_memory.search.search_count_store import SearchUsage
from tests.calls import called
from tests.unit.model_calls.model_fakes import FakeVectors, MemoryAnswers, embedder_over


class Store:
    """Totals that fail so many times after they were written."""

    def __init__(self, failures: int) -> None:
        self.failures, self.calls = failures, dict[str, ModelCalled]()

    async def count(self, calls: Sequence[ModelCalled]) -> Sequence[ModelCalled]:
        new = [one for one in calls if one.call_id not in self.calls]
        self.calls |= {one.call_id: one for one in new}
        if self.failures:
            self.failures -= 1
            raise TimeoutError
        return new


class Watch:
    """Counts what it is told."""

    def __init__(self) -> None:
        self.told = 0

    def called(self, call: ModelCalled) -> None:
        self.told += 1


async def test_calls_alike_are_written_as_one_and_a_batch_written_again_counts_once() -> None:
    store, watch = Store(failures=2), Watch()
    usage = SearchUsage(store, watch, seconds=0.01)
    for number in range(300):
        price = Decimal("0.001") if number % 3 else None
        usage.called(called(f"q{number}", stage="search", input_tokens=2, items=1, cost_usd=price))
    for _ in range(3):
        await usage.flush()
    usage.called(called("late", stage="search", input_tokens=2, cost_usd=Decimal("0.001")))
    await usage.close()
    rows = list(store.calls.values())
    assert len(rows) == 3
    assert watch.told == 301
    assert sum(one.requests for one in rows) == 301
    assert sum(one.requests for one in rows if unpriced(one)) == 100
    assert sum(one.cost_usd or 0 for one in rows) == Decimal("0.201")
    assert not any(one.call_id.startswith(("q", "late")) for one in rows)


class HeldStore(Store):
    """A write stands still until it is let go."""

    def __init__(self) -> None:
        super().__init__(failures=0)
        self.begun, self.let = asyncio.Event(), asyncio.Event()

    async def count(self, calls: Sequence[ModelCalled]) -> Sequence[ModelCalled]:
        self.begun.set()
        await self.let.wait()
        return await super().count(calls)

    async def until(self, requests: int) -> None:
        """Once so many requests are in the totals."""
        async with asyncio.timeout(60):
            while sum(call.requests for call in self.calls.values()) < requests:  # noqa: ASYNC110 - of a fake
                await asyncio.sleep(0.01)


async def test_a_kill_loses_only_the_write_under_way_and_what_came_since_it_began() -> None:
    store = HeldStore()
    usage = SearchUsage(store, Watch(), seconds=0.01)
    usage.called(called("first", stage="search"))
    await store.begun.wait()
    for number in range(5):
        usage.called(called(f"meanwhile-{number}", stage="search"))
    assert store.calls == {}, "what a kill loses now"
    store.let.set()
    await store.until(6)  # nobody closes or flushes: this is what stands after a kill
    usage.called(called("later", stage="search"))
    await store.until(7)
    await usage.close()


async def test_cached_vectors_are_bounded_by_bytes_and_the_oldest_leave_first() -> None:
    provider, refused = FakeVectors(), list[str]()

    async def admit(_: object) -> None:
        refused.append("asked")

    inner = embedder_over(provider, MemoryAnswers())
    embedder = SearchEmbedder(inner, admit, cache_bytes=2 * (ENTRY_BYTES + 8))
    for text in ("a", "bb", "a", "ccc", "a", "bb"):
        (found,) = await embedder.embed([text])
        assert len(found.vector) == 8
    assert len(refused) == 4, "bb left when ccc came, a was used since"
