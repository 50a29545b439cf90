"""Workers killed under a budget: what is asked for is what counts as in flight, and no window is lost.

Whoever comes after them reads under another group's name, everything from the beginning: as after a loss of offsets,
and without waiting for Kafka to miss the dead. A transaction of theirs, which MongoDB would keep open for a minute,
is ended at once.
"""

import os
from asyncio import create_subprocess_exec
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from decimal import Decimal
from pathlib import Path

import pytest
from bson import Binary
from pymongo.read_concern import ReadConcern

from eden_memory.usage.budget_store import MongoBudgets
from eden_memory.windows.window_rule import Limits
from tests.integration.stages_on_servers import Topic
from tests.integration.system.running_system import until
from tests.integration.windows.harness import PARTITIONS, Kit
from tests.integration.windows.test_killed_trigger_workers import CLOSES_AT, COMMAND, conversation
from tests.names import NAMES
from tests.unit.windows.memory_store import MemoryStore
from tests.unit.windows.records import formations, names, run, trigger, watermark

pytestmark = pytest.mark.servers
LIMIT = Decimal("0.25")


@asynccontextmanager
async def worker(kit: Kit, log: Path, group: str) -> AsyncGenerator[None]:
    """A process of the stage, with models of a known price; killed at the end."""
    mongodb, kafka = kit.settings.mongodb, kit.settings.kafka
    assert mongodb.uri is not None
    assert kafka.bootstrap is not None
    given = {
        "EDEN_MONGODB_URI": f"{mongodb.uri.get_secret_value()}&appName={mongodb.database}",
        "EDEN_MONGODB_DATABASE": mongodb.database,
        "EDEN_KAFKA_BOOTSTRAP": kafka.bootstrap,
        "EDEN_KAFKA_TOPIC_PREFIX": kafka.topic_prefix,
        "EDEN_KAFKA_GROUP_PREFIX": f"{kafka.group_prefix}{group}.",
        "EDEN_WINDOWS_MESSAGES": str(CLOSES_AT),
        "EDEN_LLM": "openai",
    }
    with log.open("ab") as output:
        process = await create_subprocess_exec(
            *COMMAND, env={**os.environ, **given}, stdout=output, stderr=output
        )
    try:
        yield
    finally:
        process.kill()
        await process.wait()
        await end_transactions(kit)


async def end_transactions(kit: Kit) -> None:
    """Those of workers: what MongoDB does by itself after transactionLifetimeLimitSeconds."""
    steps = [
        {"$currentOp": {"allUsers": True, "idleSessions": True}},
        {"$match": {"type": "idleSession", "appName": kit.settings.mongodb.database}},
    ]
    admin = kit.mongo.get_database("admin", read_concern=ReadConcern("local"))
    idle = await (await admin.aggregate(steps)).to_list()
    if idle:
        patterns = [{"lsid": {**one["lsid"], "id": Binary.from_uuid(one["lsid"]["id"])}} for one in idle]
        await admin.command({"killAllSessionsByPattern": patterns})


async def test_killed_under_a_budget_workers_leave_each_window_asked_for_once_and_in_flight(
    kit: Kit, tmp_path: Path
) -> None:
    log, output = conversation(500, 25, seed=11), tmp_path / "workers.log"
    quiet = await run(trigger(MemoryStore(Limits(messages=CLOSES_AT))), log, [watermark(10_000, 30)])
    expected = {one.formation_id: names(one) for one in formations(quiet)}
    budgets = MongoBudgets(kit.database, NAMES)
    await budgets.set(None, None, "month", LIMIT, "test")
    await kit.put([*log, *(watermark(10_000, 30, partition) for partition in range(PARTITIONS))])
    async with kit.topic("memory.formations") as topic:
        for group, least in (("first", 1), ("second", 10)):
            async with worker(kit, output, group), worker(kit, output, group):
                await until(lambda least=least: flying(kit, least), f"{least} windows in flight", 60)
        async with worker(kit, output, "last"):
            await until(
                lambda: every_window_is_closed(kit, len(expected)), f"{len(expected)} windows closed", 90
            )
            await until(lambda: all_published(kit, topic), "what is in flight is asked for", 90)
            held = {one.formation_id: one for one in topic.windows}
            kept = await budgets.in_flight()
            assert 0 < len(held) < len(expected)
            assert held.keys() == kept.keys(), "asked for is what is in flight"
            (budget,) = (await budgets.all()).values()
            assert budget.in_flight == sum(cost.usd for cost in kept.values()) >= LIMIT
            await budgets.set(None, None, "month", 1_000 * LIMIT, "test")
            later = iter(range(10_001, 20_000))
            await until(lambda: goes_on(kit, topic, next(later), len(expected)), "all windows are asked for")
        found = {one.formation_id: names(one) for one in topic.windows}
    assert found == expected


async def flying(kit: Kit, least: int) -> bool:
    return len(await MongoBudgets(kit.database, NAMES).in_flight()) >= least


async def every_window_is_closed(kit: Kit, number: int) -> bool:
    return await kit.database["memory_windows"].count_documents({}) == number


async def all_published(kit: Kit, topic: Topic) -> bool:
    """What is in flight has been asked for."""
    await topic.read()
    return {one.formation_id for one in topic.windows} == set(
        await MongoBudgets(kit.database, NAMES).in_flight()
    )


async def goes_on(kit: Kit, topic: Topic, number: int, windows: int) -> bool:
    """Another watermark, as the tailer writes them; whether all windows have been asked for."""
    await kit.put(watermark(number, number / 100, partition) for partition in range(PARTITIONS))
    await topic.read()
    return len({one.formation_id for one in topic.windows}) == windows
