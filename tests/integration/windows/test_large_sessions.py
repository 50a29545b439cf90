"""A session that grows large, or cannot be stored or read, holds up no other session of its partition."""

from collections.abc import Awaitable, Callable, Iterator

import pytest

from eden_memory.stages.publishing import partition_for
from eden_memory.stages.stage import Delivery
from tests.integration.source.harness import until
from tests.integration.stages_on_servers import PARTITIONS, Topic
from tests.integration.windows.harness import Kit
from tests.unit.windows.records import asked, message, watermark

pytestmark = pytest.mark.servers
BIG, JOINERS, LARGEST = "s.big", 1_500, 16 * 1024 * 1024


def partition_of(session: str) -> int:
    return partition_for(session.encode(), PARTITIONS)


def neighbours(count: int) -> list[str]:
    """Other sessions of the same partition."""
    names = (f"s.cold-{number}" for number in range(1_000))
    return [one for one in names if partition_of(one) == partition_of(BIG)][:count]


def four(session: str, first: int = 1) -> list[Delivery]:
    return [message(f"{session}-{n}", session, first + n, (first + n) / 1_000) for n in range(4)]


def joins() -> Iterator[Delivery]:
    """Each joins, writes, and has it formed: a generation of the session's memory for each."""
    for number in range(1, JOINERS + 1):
        minutes = number / 1_000
        yield message(f"{BIG}-{number}", BIG, 10 * number, minutes, user=f"i.{number}")
        yield asked(BIG, 10 * number + 1, minutes)


def formed(topic: Topic, session: str) -> int:
    return sum(one.session_id == session for one in topic.windows)


async def until_formed(topic: Topic, *sessions: str) -> None:
    await topic.until_true(lambda: all(formed(topic, one) for one in sessions), f"windows of {sessions}")


@pytest.mark.slow
async def test_fifteen_hundred_users_who_join_one_after_the_other_hold_up_nobody(kit: Kit) -> None:
    cold = neighbours(3)
    async with (
        kit.running(),
        kit.topic("memory.formations") as topic,
    ):
        await kit.put([one for session in cold for one in four(session)])
        await kit.put(joins())
        await topic.until_true(lambda: formed(topic, BIG) == JOINERS, "a window for each")
        await kit.put([watermark(900_000, 60, partition_of(BIG))])
        await until_formed(topic, *cold)
        assert not await kit.letters()
    windows = sorted((one for one in topic.windows if one.session_id == BIG), key=lambda one: one.seq)
    generations = [scope.generation for one in windows for scope in one.scopes if scope.kind == "session"]
    assert generations == list(range(1, JOINERS + 1))
    sizes = [{"$match": {"_id": BIG}}, {"$project": {"size": {"$bsonSize": "$$ROOT"}}}]
    (row,) = await (await kit.database["memory_sessions"].aggregate(sizes)).to_list()
    assert row["size"] < 100 * JOINERS


async def _stored(kit: Kit, sessions: set[str]) -> bool:
    return set(await kit.database["memory_sessions"].distinct("_id")) == sessions


async def spoil_by_size(kit: Kit) -> None:
    """So large that nothing can be added to it."""
    (row,) = await (
        await kit.database["memory_sessions"].aggregate(
            [{"$match": {"_id": BIG}}, {"$project": {"size": {"$bsonSize": "$$ROOT"}}}]
        )
    ).to_list()
    pad = "x" * (LARGEST - row["size"] - 40)
    await kit.database["memory_sessions"].update_one({"_id": BIG}, {"$set": {"pad": pad}})


async def spoil_by_a_missing_field(kit: Kit) -> None:
    await kit.database["memory_sessions"].update_one({"_id": BIG}, {"$unset": {"seq": ""}})


@pytest.mark.parametrize("spoil", [spoil_by_size, spoil_by_a_missing_field])
async def test_a_session_that_cannot_be_stored_or_read_holds_up_nobody(
    kit: Kit, spoil: Callable[[Kit], Awaitable[None]]
) -> None:
    cold = neighbours(3)
    async with kit.running():
        await kit.put(one for session in (BIG, *cold) for one in four(session))
        await until(lambda: _stored(kit, {BIG, *cold}), "all are stored")
    await spoil(kit)
    async with (
        kit.running(),
        kit.topic("memory.formations") as topic,
    ):
        await kit.put([watermark(1_000, 60, partition_of(BIG))])
        await until_formed(topic, *cold)
        assert not await kit.letters(), "a watermark is nobody's in particular"
        later = neighbours(6)[3:]
        new = [one for session in later for one in four(session, 2_000)]
        await kit.put([*new[:6], asked(BIG, 2_100, 3), *new[6:], watermark(3_000, 120, partition_of(BIG))])
        await until_formed(topic, *later)
        (letter,) = await kit.letters(1)
        assert f"session {BIG} cannot be" in letter.reason, "its own record is given up"
    assert not formed(topic, BIG)
