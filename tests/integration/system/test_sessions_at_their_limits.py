"""A session with as many users as it can have, or as large as MongoDB allows, holds up no other of its partition."""

from collections.abc import AsyncGenerator

import bson
import pytest
from prometheus_client import REGISTRY

from eden_memory.limits import MOST_SESSION_USERS
from eden_memory.mongo.ids import encode_id
from eden_memory.processors.pipeline import FORMATION_TRIGGER
from eden_memory.settings import Settings
from eden_memory.stages.publishing import partition_for
from tests.integration.system.obedient_model import obey
from tests.integration.system.running_system import AGENT, PARTITIONS, System, fast, stages, system, until
from tests.model_server.serving import serving

pytestmark = pytest.mark.servers
BIG = "big"
LARGEST = 16 * 1024 * 1024
REFUSED = 12
"""More than the dead letters at which a stage pauses itself."""


def partition_of(session: str) -> int:
    return partition_for(encode_id(session).encode(), PARTITIONS)


NEIGHBOUR = next(name for name in map(str, range(100)) if partition_of(name) == partition_of(BIG))


def user(number: int) -> str:
    return f"{number:024x}"


@pytest.fixture
async def large(settings: Settings) -> AsyncGenerator[System]:
    """Two sessions of one partition that list no users; a chat message of each is stored, and nothing runs."""
    async with serving(obey) as models, system(fast(settings, models), models, run=False) as one:
        async with stages(one.settings):
            await one.source["sessions"].insert_many(
                {"_id": name, "agent_id": AGENT} for name in (BIG, NEIGHBOUR)
            )
            for name in (BIG, NEIGHBOUR):
                await one.write(name, user(0), "hello")
            await until(lambda: _stored(one, 2), "both are stored")
        yield one


async def _stored(one: System, count: int) -> bool:
    return await one.memory("sessions").count_documents({}) == count


async def _join(one: System, count: int, *, fill: bool = False) -> None:
    """Store that so many users joined, one after the other; `fill`: so that nothing more fits the document."""
    users = [encode_id(user(number)) for number in range(count)]
    await _set(one, "audience_changes", [{"joined": [name]} for name in users])
    await _set(one, "users", users)
    if fill:
        row = await one.memory("sessions").find_one({"_id": encode_id(BIG)})
        await _set(one, "users", [*users, "s." + "x" * (LARGEST - len(bson.encode(row)) - 50)])


async def _set(one: System, field: str, value: object) -> None:
    await one.memory("sessions").update_one({"_id": encode_id(BIG)}, {"$set": {field: value}})


async def _reasons(one: System) -> list[str]:
    return [letter.reason for letter in await one.letters("chat.messages")]


async def _until_dead(one: System, count: int) -> list[str]:
    async def dead() -> bool:
        return len(await _reasons(one)) >= count

    await until(dead, f"{count} dead letters")
    return await _reasons(one)


async def _both_form(one: System) -> None:
    await one.told(NEIGHBOUR, user(0), "fact user: Ann keeps nine bees.")
    await one.told(BIG, user(7), "note session: The crowd plans a parade.")


def refused() -> float:
    return REGISTRY.get_sample_value("eden_trigger_refused_messages_total") or 0.0


async def test_further_users_of_a_full_session_are_refused_and_nobody_else(large: System) -> None:
    await _join(large, MOST_SESSION_USERS)
    before = refused()
    async with stages(large.settings) as large.parts:
        for number in range(REFUSED):
            await large.write(BIG, f"stranger-{number}", "hello")
        await _both_form(large)
        reasons = await _until_dead(large, REFUSED)
        assert large.state(FORMATION_TRIGGER).ready
    assert len(reasons) == refused() - before == REFUSED
    assert all(f"{MOST_SESSION_USERS} users" in reason for reason in reasons)
    row = await large.memory("sessions").find_one({"_id": encode_id(BIG)})
    assert row is not None
    assert len(row["users"]) == MOST_SESSION_USERS


@pytest.mark.slow
async def test_a_session_of_16_mb_of_users_is_given_up_and_its_neighbours_form(large: System) -> None:
    await _join(large, 160_000, fill=True)
    async with stages(large.settings) as large.parts:
        await large.write(BIG, user(7), "hello")
        await large.form(BIG)
        await _until_dead(large, 1)
        for number in range(REFUSED):
            await large.write(BIG, user(number), "hello")
        await large.told(NEIGHBOUR, user(0), "fact user: Ann keeps nine bees.")
        reasons = await _until_dead(large, 1 + REFUSED)
        assert large.state(FORMATION_TRIGGER).ready
    assert set(reasons) == {f"session {encode_id(BIG)} cannot be stored: the log says why"}
    assert await large.contents("reflections") == []
