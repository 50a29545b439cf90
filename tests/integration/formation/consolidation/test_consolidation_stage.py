"""consolidation on real servers, beside the writer: reflections in, blobs in MongoDB out."""

import asyncio
from collections.abc import AsyncGenerator
from datetime import timedelta
from typing import Any

import pytest

from eden_memory.directory.directory_store import MongoDirectory
from eden_memory.directory.participants import SessionFacts
from eden_memory.directory.stream_store import MongoStreams
from eden_memory.errors import PermanentError, ProviderError
from eden_memory.formation.consolidation_rules import change_of
from eden_memory.formation.decided_store import MongoDecided
from eden_memory.formation.due_scope_store import announce, scopes_due
from eden_memory.memory.snapshot_store import MongoSnapshots
from eden_memory.processors import pipeline
from eden_memory.schemas.envelope import Envelope
from eden_memory.schemas.events import REGISTRY, ScopeChanged, ScopeConsolidated
from eden_memory.schemas.scopes import Scope
from eden_memory.settings import Settings
from eden_memory.stages.stage import Delivery
from tests.integration.formation.consolidation.consolidation_kit import BOTH, NOON, Kit, reflection, user
from tests.integration.stages_on_servers import PARTITIONS, on_servers
from tests.names import NAMES

pytestmark = pytest.mark.servers


@pytest.fixture
async def kit(settings: Settings) -> AsyncGenerator[Kit]:
    async with on_servers(Kit, settings) as kit:
        yield kit


async def test_full_buffers_become_blobs_version_after_version(kit: Kit) -> None:
    async with kit.running(*BOTH):
        await kit.put(reflection(user(one), number) for one in (1, 2, 3) for number in range(1, 5))
        for one in (1, 2, 3):
            found = await kit.until(user(one), blob_version=1, buffer=[])
            assert found["blob"] == "insight 1 insight 2 insight 3 insight 4"
        await kit.put(reflection(user(1), number) for number in range(5, 9))
        found = await kit.until(user(1), blob_version=2, buffer=[])
        assert found["blob"] == " ".join(f"insight {number}" for number in range(1, 9))
    assert len(kit.model.paid) == 4


async def test_a_version_that_the_writer_has_not_applied_is_not_paid_for_twice(kit: Kit) -> None:
    async with kit.running(pipeline.ATLAS_WRITER):
        await kit.put(reflection(user(1), number) for number in range(1, 5))
        await kit.holds(lambda: kit.database["memory_snapshots"].find_one({"buffer.3": {"$exists": True}}))
    snapshots = await MongoSnapshots(kit.database, NAMES).snapshots([user(1).key])
    change = change_of(snapshots[user(1).key])
    async with kit.running(pipeline.CONSOLIDATION):
        await kit.put([_again(change, 0)])  # the writer may have been stopped before it had announced it
        await kit.holds(lambda: MongoDecided(kit.database, NAMES).decided([f"blob:{user(1).key}@1"]))
        for number in range(1, 5):
            await kit.put([_again(change, number)])
        await _consumed(kit)
    assert len(kit.model.paid) == 1
    async with kit.running(*BOTH):
        await kit.until(user(1), blob_version=1, buffer=[])
    assert await kit.database["memory_outcomes"].count_documents({"stage": "consolidation"}) == 1


def _again(change: ScopeChanged, number: int) -> Delivery:
    """The change announced once more."""
    envelope = Envelope(f"again{number}", change.NAME, 1, "test", NOON, change.subject(), change.scope.key)
    return Delivery(envelope, change, "memory.changes", change.key())


async def _consumed(kit: Kit) -> None:
    """Everything in the topic of changes has been looked at."""
    from aiokafka import AIOKafkaConsumer, TopicPartition

    name, group = kit.topics.name("memory.changes"), kit.topics.group(pipeline.CONSOLIDATION)
    consumer: Any = AIOKafkaConsumer(group_id=group, enable_auto_commit=False, **kit.client)
    await consumer.start()
    partitions = [TopicPartition(name, number) for number in range(PARTITIONS)]
    async with asyncio.timeout(60):
        while True:
            ends = await consumer.end_offsets(partitions)
            done = [await consumer.committed(one) or 0 for one in partitions]
            if done == [ends[one] for one in partitions]:
                break
            await asyncio.sleep(0.1)
    await consumer.stop()


async def test_a_consolidation_given_up_loses_nothing_and_the_next_one_takes_all(kit: Kit) -> None:
    kit.model.fails = lambda asking: PermanentError("never valid") if not kit.model.answers else None
    async with kit.running(*BOTH):
        await kit.put(reflection(user(1), number) for number in range(1, 5))
        await kit.holds(lambda: kit.database["memory_outcomes"].find_one({"dead": {"$exists": True}}))
        assert len((await kit.snapshot(user(1)))["buffer"]) == 4
        kit.model.fails = lambda asking: None
        await kit.put(reflection(user(1), number) for number in range(5, 9))
        found = await kit.until(user(1), blob_version=1)
        left = [one["content"] for one in found["buffer"]]
        assert {*left, *_insights(found["blob"])} >= {f"insight {number}" for number in range(1, 5)}


def _insights(blob: str) -> list[str]:
    return [f"insight {one}" for one in blob.removeprefix("insight ").split(" insight ")]


async def test_a_provider_that_is_away_for_a_moment_costs_nothing(kit: Kit) -> None:
    failures = [ProviderError("away"), ProviderError("away")]
    kit.model.fails = lambda asking: failures.pop() if failures else None
    async with kit.running(*BOTH):
        await kit.put(reflection(user(1), number) for number in range(1, 5))
        await kit.until(user(1), blob_version=1, buffer=[])
    assert await kit.database["memory_outcomes"].count_documents({"dead": {"$exists": True}}) == 0


async def test_scopes_over_their_threshold_are_found_at_the_start_without_an_event(kit: Kit) -> None:
    ended = Scope.of_session("s.a", "s.one", ("i.1",), 2)
    rows = [
        _row(user(1), 4),
        _row(user(2), 3),
        _row(Scope.of_agent("s.a"), 2),
        _row(ended, 1, closed=True, session_id="s.one", audience=["i.1"]),
        _row(user(3), 1, blob="b", blob_version=1, highest_blob_version=2, consolidated_at=NOON),
        _row(user(4), 4, blob="b", blob_version=1, highest_blob_version=1, consolidated_at=NOON),
    ]
    stream = {"_id": "s.a/agent", "agent_id": "s.a", "scope": "agent", "threshold": 2}
    await kit.database["memory_streams"].insert_one(stream)
    await kit.database["memory_snapshots"].insert_many(rows)
    found = {one.scope_key: one async for one in scopes_due(kit.database, NAMES, kit.streams)}
    wanted = {user(1).key, "agent:s.a", ended.key, user(3).key}
    assert set(found) == wanted
    assert change_of(found[ended.key]).scope == ended

    async def changes() -> AsyncGenerator[Any]:
        for one in found.values():
            yield change_of(one)

    for _ in range(2):  # two processes start
        assert await announce(changes(), kit.publisher, kit.topics.topic_of, "consolidation") == 4
    async with kit.running(*BOTH):
        decided = MongoDecided(kit.database, NAMES)
        versions = {key: 3 if key == user(3).key else 1 for key in wanted}
        for key, version in versions.items():
            await kit.holds(lambda key=key, version=version: decided.decided([f"blob:{key}@{version}"]))
        await _consumed(kit)
    assert sorted(kit.model.paid) == sorted(f"consolidation:{key}@{n}:1" for key, n in versions.items())


def _row(scope: Scope, buffered: int, **fields: Any) -> dict[str, Any]:
    times = {"formed_at": NOON, "said_at": NOON}
    buffer = [
        {"reflection_id": f"r{number}", "content": f"insight {number}", "private": False, **times}
        for number in range(buffered)
    ]
    row: dict[str, Any] = {
        "_id": scope.key,
        "scope": scope.kind,
        "scope_key": scope.key,
        "agent_id": "s.a",
        "group_id": None,
        "user_id": scope.user_id,
        "session_id": None,
        "audience": [],
        "revision": 1,
        "blob": None,
        "blob_version": 0,
        "consolidated_at": None,
        "buffer": buffer,
        "recent_facts": [],
        "active_facts": 0,
        "applied": 0,
        "highest_blob_version": 0,
        "closed": False,
        "changed_at": NOON,
    }
    return row | fields


async def test_events_of_blobs_say_what_they_were_made_from(kit: Kit) -> None:
    async with kit.running(*BOTH):
        await kit.put(reflection(user(1), number) for number in range(1, 5))
        await kit.until(user(1), blob_version=1, buffer=[])
    outcome = await kit.database["memory_outcomes"].find_one({"_id": f"consolidation:{user(1).key}@1"})
    assert outcome is not None
    event = REGISTRY.decode("ScopeConsolidated", ScopeConsolidated.VERSION, bytes(outcome["records"][0]["v"]))
    assert isinstance(event, ScopeConsolidated)
    assert len(event.absorbed) == 4
    assert event.consolidated_at == NOON + timedelta(minutes=4)


async def test_streams_are_read_once_a_while_and_broken_ones_left_out(kit: Kit) -> None:
    time = [0.0]
    streams = MongoStreams(kit.database, NAMES, keep_seconds=30.0, clock=lambda: time[0])
    good = {"_id": "s.a/user", "agent_id": "s.a", "scope": "user", "threshold": 7, "of a later version": 1}
    shard = {"_id": "s.a/shard/x", "agent_id": "s.a", "scope": "shard", "shard": "x y"}
    broken = {"_id": "s.a/agent", "agent_id": "s.a", "scope": "agent", "threshold": "many"}
    nameless = {"_id": "s.a/shard/", "agent_id": "s.a", "scope": "shard"}
    other = {"_id": "s.b/user", "agent_id": "s.b", "scope": "user", "threshold": 9}
    collection = kit.database["memory_streams"]
    await kit.database.command("collMod", "memory_streams", validationLevel="off")
    await collection.insert_many([good, shard, broken, nameless, other])
    found = await streams.of("s.a")
    assert set(found) == {"user", "shard:x y"}
    assert found["user"].threshold == 7
    await collection.update_one({"_id": "s.a/user"}, {"$set": {"active": False}})
    assert (await streams.of("s.a"))["user"].active
    time[0] = 30.0
    assert not (await streams.of("s.a"))["user"].active


async def test_documents_that_are_no_streams_hold_up_nobody(kit: Kit) -> None:
    await kit.database.command("collMod", "memory_streams", validationLevel="strict")
    of_shards = [{"shard": "good"}, {}, {"shard": None}, {"shard": ""}, {"shard": "x" * 5_000}]
    rows = [{"agent_id": "s.c", "scope": "shard", **one} for one in of_shards]
    rows.append({"agent_id": "s.c", "scope": "user", "shard": "of a user"})
    collection = kit.database["memory_streams"]
    await collection.insert_many([{"_id": f"s.c/{number}", **row} for number, row in enumerate(rows)])
    assert set(await MongoStreams(kit.database, NAMES).of("s.c")) == {"shard:good"}
    found = (await MongoDirectory(kit.database, collection, Settings()).look_up(["s.one"]))["s.one"]
    assert isinstance(found, SessionFacts)
    assert found.shards == ()
    of_c = {"_id": "two", "agent_id": "c"}
    await kit.database["sessions"].insert_one(of_c)
    mapped = Settings.model_validate({"sessions": {"collection": "sessions"}})
    found = (await MongoDirectory(kit.database, collection, mapped).look_up(["s.two"]))["s.two"]
    assert isinstance(found, SessionFacts)
    assert found.shards == ("good",)


async def test_streams_read_while_they_change_are_not_kept(kit: Kit) -> None:
    streams = MongoStreams(kit.database, NAMES, keep_seconds=300.0)
    collection = kit.database["memory_streams"]
    await collection.insert_one({"_id": "s.d/user", "agent_id": "s.d", "scope": "user"})
    reading = asyncio.create_task(streams.of("s.d"))
    await asyncio.sleep(0)
    streams.forget()
    assert "user" in await reading
    await collection.delete_one({"_id": "s.d/user"})
    assert "user" not in await streams.of("s.d")


async def test_an_author_whom_the_session_does_not_list_is_known_as_private(kit: Kit) -> None:
    await kit.database["sessions"].insert_one({"_id": "left", "users": ["ann"]})
    await kit.database["users"].insert_many(
        [{"_id": "ann", "tier": 0}, {"_id": "zoe", "memory_private": True, "tier": 2, "name": "Zoe"}]
    )
    mapped = Settings.model_validate(
        {"sessions": {"collection": "sessions"}, "users": {"collection": "users"}}
    )
    directory = MongoDirectory(kit.database, kit.database["streams"], mapped)
    found = (await directory.look_up(["s.left"], {"s.left": ["s.zoe"]}))["s.left"]
    assert isinstance(found, SessionFacts)
    assert (found.private_users, found.names, found.tier) == (("s.zoe",), {"s.zoe": "Zoe"}, 0)
