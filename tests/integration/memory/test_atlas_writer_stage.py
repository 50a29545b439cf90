"""atlas-writer through the runtime: announced after the commit, also by a redelivery; killed, poisoned, doubled."""

import asyncio
import subprocess
import sys
from random import Random

import pytest

from eden_memory.schemas.events import Event
from eden_memory.schemas.scopes import Scope
from tests.integration.memory.stage_kit import StageKit, changes, commands
from tests.integration.memory.writer_kit import documents, fact_rows, snapshot
from tests.integration.stages.harness import until
from tests.integration.stages_on_servers import Topic
from tests.servers import TestServers
from tests.unit.memory.memory_histories import (
    SESSION,
    USER,
    blob,
    closed,
    delivered,
    fact,
    history,
    minute,
    reflection,
    source,
)
from tests.unit.memory.memory_in_mind import Mind

pytestmark = pytest.mark.servers


def users(count: int) -> list[Scope]:
    return [Scope.of_user("s.assistant", f"i.{number}") for number in range(count)]


async def dead(kit: StageKit) -> set[bytes | None]:
    """The keys that the records of dead letters had."""
    return {letter.key for letter in await kit.letters()}


async def holds(kit: StageKit, letter: bytes) -> bool:
    return letter in await dead(kit)


def told(topic: Topic, scope: Scope, revision: int) -> bool:
    return any((one.scope.key, one.revision) == (scope.key, revision) for one in changes(topic))


async def test_what_is_committed_is_announced(kit: StageKit) -> None:
    events: list[Event] = [
        fact("f"),
        reflection("r1", at=2),
        blob(1, ["r0"]),
        reflection("r2", at=9, scope=SESSION),
        closed(10),
    ]
    await kit.put([delivered(one) for one in events])
    async with kit.topic("memory.changes") as topic, kit.running(kit.worker()):
        await topic.until_true(
            lambda: {one.scope.key for one in changes(topic) if one.buffered} == {USER.key, SESSION.key},
            "both scopes",
        )
        await topic.until_true(
            lambda: any(one.blob_version and one.active_facts and one.buffered for one in changes(topic)),
            "all of the user's",
        )
    last = {one.scope.key: one for one in changes(topic)}
    user, session = last[USER.key], last[SESSION.key]
    assert (user.active_facts, user.buffered, user.blob_version, user.closed) == (1, 1, 1, False)
    assert (user.newest_buffered_at, user.consolidated_at) == (minute(2), minute(60))
    assert (session.scope, session.closed, session.buffered) == (SESSION, True, 1)
    stored = await snapshot(kit.database, USER.key)
    assert (stored.revision, stored.changed_at) == (user.revision, user.committed_at)


async def test_a_redelivery_changes_nothing_and_still_announces(kit: StageKit) -> None:
    await kit.put([delivered(fact(f"f-{scope.user_id}", scope=scope)) for scope in users(5)])
    async with kit.topic("memory.changes") as topic:
        async with kit.running(kit.worker()):
            await topic.until(5)
        before, first = await documents(kit.database), list(topic.records)
        async with kit.running(kit.worker(".again")):
            await topic.until_true(lambda: len(topic.records) >= 10, "announced again")
    again = [one for one in changes(topic) if one.changed == ()]
    assert {one.scope.key for one in again} == {scope.key for scope in users(5)}
    assert await documents(kit.database) == before
    names = [dict(one.headers)["ce_id"] for one in topic.records]
    assert set(names[5:]) == set(names[:5]), "the same revision is the same event"
    assert len(first) == 5


async def test_of_a_batch_a_scope_is_announced_once(kit: StageKit) -> None:
    await kit.put([delivered(fact(f"f{number}", text=f"text {number}")) for number in range(40)])
    async with kit.topic("memory.changes") as topic, kit.running(kit.worker()):
        await topic.until_true(lambda: any(one.active_facts == 40 for one in changes(topic)), "all of them")
    assert len(changes(topic)) < 10


async def test_a_killed_writer_leaves_whole_scopes_and_the_next_one_finishes(
    servers: TestServers, kit: StageKit
) -> None:
    lived = {scope.key: history(Random(number), scope) for number, scope in enumerate(users(60), 1)}
    lived = {key: events for key, events in lived.items() if events}
    rows = [
        delivered(one)
        for number in range(200)
        for events in lived.values()
        for one in events[number : number + 1]
    ]
    await kit.put(rows)
    for killed_at in (len(lived) // 4, len(lived) // 2):
        process = _start(servers, kit)
        try:
            await until(lambda at=killed_at: _count(kit, at), f"{killed_at} snapshots", 60)
        finally:
            process.kill()
            await asyncio.to_thread(process.wait)
    async with kit.topic("memory.changes") as topic, kit.running(kit.worker()):
        await until(lambda: _finished(kit, lived), "everything written", 60)
        for events in lived.values():
            scope = getattr(events[0], "scope")  # noqa: B009 - every event of memory has one
            revision = (await snapshot(kit.database, scope.key)).revision
            await topic.until_true(lambda s=scope, r=revision: told(topic, s, r), "the last revision")


def _start(servers: TestServers, kit: StageKit) -> subprocess.Popen[bytes]:
    module = "tests.integration.memory.writer_process"
    arguments = [servers.mongodb_uri, servers.kafka_bootstrap, kit.settings.mongodb.database]
    return subprocess.Popen([sys.executable, "-m", module, *arguments], stdout=subprocess.DEVNULL)


async def _count(kit: StageKit, least: int) -> bool:
    return await kit.database["memory_snapshots"].count_documents({}) >= least


async def _finished(kit: StageKit, lived: dict[str, list[Event]]) -> bool:
    stored = await documents(kit.database)
    for key, events in lived.items():
        mind = Mind()
        mind.take([delivered(one) for one in events])
        if [row for row in stored if row["scope_key"] == key] != mind.documents():
            return False
    return True


async def test_a_poisoned_scope_is_given_up_alone(kit: StageKit) -> None:
    """A snapshot that nobody can read: its records fail, those around them do not."""
    ill, *well = users(12)
    await kit.put([delivered(fact("f", scope=ill))])
    async with kit.topic("memory.changes") as topic:
        async with kit.running(kit.worker()):
            await topic.until(1)
        broken = {"$set": {"buffer": "not a list"}}
        await kit.database["memory_snapshots"].update_one(
            {"_id": ill.key}, broken, bypass_document_validation=True
        )
        await kit.put(
            [delivered(fact(f"g-{scope.user_id}", text="g", scope=scope)) for scope in (ill, *well)]
        )
        async with kit.running(kit.worker()):
            await topic.until(12)
            letter = f"g-{ill.user_id}@1".encode()
            await until(lambda: holds(kit, letter), "the dead letter")
    assert await dead(kit) - {b"f@1"} == {letter}, "f comes again if it was not committed"
    assert set(await fact_rows(kit.database)) == {"f", *(f"g-{scope.user_id}" for scope in well)}


async def test_a_record_under_the_id_of_anothers_fact_is_given_up_and_changes_nothing(kit: StageKit) -> None:
    owner, thief, other = users(3)
    await kit.put([delivered(fact("f", scope=owner))])
    async with kit.topic("memory.changes") as topic:
        async with kit.running(kit.worker()):
            await topic.until(1)
        await kit.put([delivered(fact("f", 2, text="Stolen.", scope=thief))])
        await kit.put([delivered(fact("g", scope=other))])
        async with kit.running(kit.worker()):
            await topic.until_true(lambda: told(topic, other, 1), "the writer goes on")
            (letter,) = await kit.letters(1)
    assert letter.key == b"f@2"
    assert "Stolen." not in repr((letter.headers, letter.reason, letter.trace))
    rows = await fact_rows(kit.database)
    assert {name: (row["scope_key"], row["version"]) for name, row in rows.items()} == {
        "f": (owner.key, 1),
        "g": (other.key, 1),
    }


async def test_the_younger_of_two_that_say_the_same_is_to_be_retired(kit: StageKit) -> None:
    await kit.put([delivered(fact("young", at=5)), delivered(fact("old", at=1))])
    async with kit.topic("memory.candidates") as topic:
        async with kit.running(kit.worker()):
            await topic.until_true(lambda: len(commands(topic)) >= 1, "the command")
        async with kit.running(kit.worker(".again")):
            await topic.until_true(lambda: len(commands(topic)) >= 2, "asked again")
    (command,) = {one.command_id: one for one in commands(topic)}.values()
    assert (command.action, command.by, command.fact_id, command.expected_version) == (
        "retire",
        "duplicate",
        "young",
        1,
    )
    assert len({dict(one.headers)["ce_id"] for one in topic.records}) == 1
    rows = await fact_rows(kit.database)
    assert {name: row["active"] for name, row in rows.items()} == {"young": False, "old": True}


async def test_what_rests_on_forgotten_messages_is_dropped_and_erased(kit: StageKit) -> None:
    await kit.put([delivered(fact("stored", text="stored", sources=[source(1)]))])
    mark = {
        "kind": "message",
        "target": "i.1",
        "reach": "for_ever",
        "event_id": "e",
        "forgotten_at": minute(0),
    }
    async with kit.topic("memory.changes") as topic:
        async with kit.running(kit.worker()):
            await topic.until(1)
        await kit.database["memory_forgotten"].insert_one({"_id": "message:i.1/for_ever", **mark})
        late = fact("late", text="late", sources=[source(1)])
        both = fact("both", text="both", sources=[source(1), source(2)])
        other = fact("other", text="other", sources=[source(2)])
        await kit.put([delivered(one) for one in (late, both, other)])
        async with kit.topic("memory.facts") as facts, kit.running(kit.worker(".again")):
            await facts.until_true(
                lambda: (
                    {one.key for one in facts.records if one.value is None}
                    >= {b"late@1", b"both@1", b"stored@1"}
                ),
                "their tombstones",
            )
            await until(lambda: _only(kit, {"other"}), "what rests on it is gone")
    ended = next(one for one in facts.records if one.key == b"late@1" and one.value is None)
    headers = {name: value.decode() for name, value in ended.headers}
    assert (headers["ce_reason"], headers["ce_entityversion"], headers["ce_scope"]) == (
        "forgotten",
        "1",
        USER.key,
    )
    found = await snapshot(kit.database, USER.key)
    assert found.reset_revision > 0
    assert [one.fact_id for one in found.recent_facts] == ["other"]


async def _only(kit: StageKit, names: set[str]) -> bool:
    return set(await fact_rows(kit.database)) == names
