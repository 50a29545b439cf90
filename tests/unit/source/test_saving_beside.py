"""The position is saved while more is published, and only of what Kafka has confirmed."""

import asyncio
from typing import Any, cast

import pytest

from eden_memory.mongo.changes import SourceFailed
from eden_memory.mongo.leases import LeaseLost
from eden_memory.source.leader import Leader, Source
from eden_memory.source.position_store import TailerPosition


class Confirming:
    """A publisher whose confirmation waits for a word."""

    def __init__(self) -> None:
        self.word = asyncio.Event()

    async def confirmed(self) -> bool:
        await self.word.wait()
        return True

    async def stop(self) -> None:
        return


class Stored:
    """Positions saved and inbox documents erased."""

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error
        self.tokens: list[str] = []
        self.erased: list[Any] = []

    async def save(self, epoch: int, position: TailerPosition) -> None:
        if self.error is not None:
            raise self.error
        self.tokens.append(position.token)

    async def erase(self, ids: list[Any]) -> None:
        self.erased += ids


def leader(publisher: Confirming, stored: Stored) -> Leader:
    source = Source(
        cast(Any, None), cast(Any, None), cast(Any, stored), cast(Any, stored), *[cast(Any, None)] * 3
    )
    return Leader(1, source, cast(Any, None), cast(Any, publisher), 0.0, asyncio.Event())


async def settled() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_a_batch_is_published_on_while_the_one_before_waits_for_its_confirmation() -> None:
    publisher, stored = Confirming(), Stored()
    leading = leader(publisher, stored)
    leading.erase_later(["a"])
    await leading.advance(TailerPosition("1", "1"))
    leading.erase_later(["b"])
    await leading.advance(TailerPosition("2", "2"))
    await settled()
    assert stored.tokens == []
    publisher.word.set()
    await settled()
    assert (stored.tokens, stored.erased) == (["1"], ["a"])
    await leading.settle()
    assert (stored.tokens, stored.erased) == (["1", "2"], ["a", "b"])


async def test_a_leader_that_was_replaced_learns_it_at_its_next_step() -> None:
    publisher = Confirming()
    publisher.word.set()
    leading = leader(publisher, Stored(LeaseLost("replaced")))
    await leading.advance(TailerPosition("1", "1"))
    await settled()
    with pytest.raises(LeaseLost):
        await leading.advance(TailerPosition("2", "2"))


async def test_a_position_that_could_not_be_saved_is_saved_the_next_time() -> None:
    publisher, stored = Confirming(), Stored(SourceFailed("no primary"))
    publisher.word.set()
    leading = leader(publisher, stored)
    leading.erase_later(["a"])
    await leading.advance(TailerPosition("1", "1"))
    await settled()
    stored.error = None
    await leading.settle()
    assert (stored.tokens, stored.erased) == (["1"], ["a"])


async def test_a_leader_that_ends_waits_for_no_confirmation() -> None:
    publisher, stored = Confirming(), Stored()
    leading = leader(publisher, stored)
    await leading.advance(TailerPosition("1", "1"))
    await settled()
    await leading.close()
    assert stored.tokens == []
