"""Usage totals on real servers: every call counts once, whatever comes twice, at once or after kill -9."""

import asyncio
import os
import random
import sys
from asyncio import create_subprocess_exec
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from eden_memory.forgetting.forgetting_store import MongoForgettingStore
from eden_memory.forgotten import Mark
from eden_memory.schemas.documents import CountedCall, UsageState, UsageTotal
from eden_memory.schemas.envelope import Envelope
from eden_memory.schemas.events import ModelCalled
from eden_memory.settings import Settings
from eden_memory.stages.stage import Delivery
from eden_memory.usage.usage_store import MongoTotals, MongoUsage, UsageQuery
from tests.calls import called
from tests.integration.stages_on_servers import OnServers, on_servers
from tests.integration.system.running_system import until
from tests.names import NAMES

pytestmark = pytest.mark.servers
NOON = datetime(2026, 3, 2, 12, tzinfo=UTC)
YEAR = UsageQuery("2026-01-01", "2026-12-31")
COMMAND = (sys.executable, "-m", "tests.quick_sessions", "run", "usage")


@pytest.fixture
async def kit(settings: Settings) -> AsyncGenerator[OnServers]:
    async with on_servers(OnServers, settings) as kit:
        yield kit


def calls(number: int, seed: int = 1) -> list[ModelCalled]:
    """Of several agents, users, stages and days; one in seven at an unknown price, some failed."""
    dice = random.Random(seed)
    return [
        called(
            f"call-{n}",
            agent_id=f"s.a{dice.randrange(3)}",
            user_id=dice.choice([None, "i.1", "i.2"]),
            stage=dice.choice(["fact-extraction", "fact-dedup", "consolidation"]),
            model=dice.choice(["small", "large"]),
            outcome="rate_limited" if n % 11 == 0 else "answered",
            input_tokens=0 if n % 11 == 0 else dice.randrange(1, 3_000),
            output_tokens=0 if n % 11 == 0 else 7,
            cost_usd=None if n % 7 == 0 or n % 11 == 0 else Decimal(dice.randrange(1, 10**9)) / 10**12,
            started_at=NOON + timedelta(hours=dice.randrange(72)),
        )
        for n in range(number)
    ]


async def as_told(database: Any, told: Sequence[ModelCalled]) -> bool:
    """Whether the totals are what the calls say, to the last digit."""
    (found,) = await MongoTotals(database, NAMES).sums(YEAR) or [None]
    unpriced = [one for one in told if one.cost_usd is None and one.input_tokens]
    return found is not None and (found.cost_usd, found.counts) == (
        sum((one.cost_usd for one in told if one.cost_usd), Decimal(0)),
        {
            "calls": len(told),
            "failed_calls": sum(one.outcome != "answered" for one in told),
            "input_tokens": sum(one.input_tokens for one in told),
            "cached_tokens": 0,
            "output_tokens": sum(one.output_tokens for one in told),
            "unpriced_calls": len(unpriced),
        },
    )


async def test_calls_counted_by_several_at_once_and_again_are_in_the_totals_once(kit: OnServers) -> None:
    store, told, dice = MongoUsage(kit.database, NAMES), calls(300), random.Random(3)
    batches = [dice.sample(told, 60) for _ in range(12)] + [told[:150], told[150:]]
    counted = await asyncio.gather(*(store.count(one) for one in batches))
    assert sum(map(len, counted)) == len(told), "each call is new to one of them"
    assert await as_told(kit.database, told)
    assert await store.count(told) == []
    totals = [UsageTotal.model_validate(row, strict=False) for row in await rows(kit, "usage")]
    assert {one.day for one in totals} <= {"2026-03-02", "2026-03-03", "2026-03-04", "2026-03-05"}
    by_agent = await MongoTotals(kit.database, NAMES).sums(UsageQuery(YEAR.first, YEAR.last, "agent_id"))
    for one in by_agent:
        mine = [call.cost_usd for call in told if call.agent_id == one.of and call.cost_usd]
        assert one.cost_usd == sum(mine, Decimal(0))


async def test_what_is_stored_is_what_the_document_schemas_say(kit: OnServers) -> None:
    await MongoUsage(kit.database, NAMES).count(calls(3))
    (state,) = [UsageState.model_validate(row, strict=False) for row in await rows(kit, "usage_state")]
    assert state.calls == 3
    kept = [CountedCall.model_validate(row, strict=False) for row in await rows(kit, "calls")]
    assert [one.id for one in kept] == ["call-0", "call-1", "call-2"]
    assert kept[0].cost_usd is None
    assert kept[0].erase_at - datetime.now(UTC) >= timedelta(days=60), "twice what the topic keeps"


async def test_calls_of_long_ago_read_again_are_counted_once(kit: OnServers) -> None:
    store, told = MongoUsage(kit.database, NAMES), calls(20)
    await store.prepare()
    assert datetime.now(UTC) - NOON > timedelta(days=90), "long ago"
    assert len(await store.count(told)) == len(told)
    async with expiring(kit):
        assert await store.count(told) == []
    assert await as_told(kit.database, told)


@asynccontextmanager
async def expiring(kit: OnServers) -> AsyncGenerator[None]:
    """The server has looked for what expires since the block was entered.

    A test run's own server looks every second. One that was given sleeps its last minute to the end first.
    """
    admin = kit.database.client.admin
    name = "ttlMonitorSleepSecs"
    before = (await admin.command({"getParameter": 1, name: 1}))[name]
    await admin.command({"setParameter": 1, name: 1})
    try:
        twice = await looks_for_expired(admin) + 2
        await until(lambda: has_looked(admin, twice), "the server has looked for what expires", 180)
        yield
    finally:
        await admin.command({"setParameter": 1, name: before})


async def looks_for_expired(admin: Any) -> int:
    return (await admin.command("serverStatus"))["metrics"]["ttl"]["passes"]


async def has_looked(admin: Any, times: int) -> bool:
    return await looks_for_expired(admin) >= times


async def rows(kit: OnServers, name: str) -> list[dict[str, Any]]:
    found = await kit.database[f"memory_{name}"].find({}, sort=[("_id", 1)]).to_list()
    for row in found:
        for field, value in row.items():
            row[field] = value.to_decimal() if hasattr(value, "to_decimal") else value
    return found


def delivered(call: ModelCalled) -> Delivery:
    envelope = Envelope(
        id=f"call/{call.call_id}",
        name=call.NAME,
        version=1,
        source="test",
        time=call.started_at,
        subject=call.subject(),
        ordering_key=call.ordering_key(),
    )
    return Delivery(envelope, call, "memory.usage", call.key())


async def test_a_consumer_killed_at_its_work_counts_every_record_to_the_cent(
    kit: OnServers, tmp_path: Path
) -> None:
    told = calls(1_500)
    repeats = random.Random(5).sample(told, 200)
    await kit.put(delivered(one) for one in [*told, *repeats])
    for least in (400, len(told)):
        with (tmp_path / "usage.log").open("ab") as log:
            process = await create_subprocess_exec(*COMMAND, env=environment(kit), stdout=log, stderr=log)
            try:
                await until(lambda least=least: counted(kit, least), f"{least} calls counted")
            finally:
                process.kill()
                await process.wait()
    await until(lambda: as_told(kit.database, told), "the totals to be what the calls say")


async def counted(kit: OnServers, least: int) -> bool:
    return (await kit.database["memory_usage_state"].find_one() or {"calls": 0})["calls"] >= least


def environment(kit: OnServers) -> dict[str, str]:
    mongodb, kafka = kit.settings.mongodb, kit.settings.kafka
    assert mongodb.uri is not None
    assert kafka.bootstrap is not None
    return {
        **os.environ,
        "EDEN_MONGODB_URI": mongodb.uri.get_secret_value(),
        "EDEN_MONGODB_DATABASE": mongodb.database,
        "EDEN_KAFKA_BOOTSTRAP": kafka.bootstrap,
        "EDEN_KAFKA_TOPIC_PREFIX": kafka.topic_prefix,
        "EDEN_KAFKA_GROUP_PREFIX": kafka.group_prefix,
    }


async def test_a_forgotten_user_leaves_numbers_that_are_nobodys(kit: OnServers) -> None:
    store, told = MongoUsage(kit.database, NAMES), calls(300)
    await store.count(told)
    for _ in range(2):
        await store.reduce("user", "i.1", NOON + timedelta(days=9))
    assert await as_told(kit.database, told)
    for kind in (UsageTotal, CountedCall):
        found = kit.database[NAMES[kind.COLLECTION]]
        assert await found.count_documents({"user_id": "i.1"}) == 0
        assert await found.count_documents({"user_id": "i.2"}) > 0


async def test_calls_that_are_counted_after_their_user_or_session_is_forgotten_are_nobodys(
    kit: OnServers,
) -> None:
    store, marks, late = (
        MongoUsage(kit.database, NAMES),
        MongoForgettingStore(kit.database, NAMES),
        timedelta(days=9),
    )
    told = [
        *calls(100),
        called("of-session", user_id="i.3", session_id="s.gone", started_at=NOON),
        called("said-later", user_id="i.1", session_id="s.gone", started_at=NOON + 2 * late),
    ]
    until = NOON + late
    up_to = [
        Mark("user", "i.1", "created_up_to", until=until),
        Mark("session", "s.gone", "created_up_to", until=until),
    ]
    await marks.mark(up_to, "e", NOON)
    for _ in range(2):
        await store.count(told)
    rows = await kit.database[NAMES[CountedCall.COLLECTION]].find().to_list()
    assert {row["_id"] for row in rows if row["user_id"] == "i.1" or row["session_id"] == "s.gone"} == {
        "said-later"
    }
