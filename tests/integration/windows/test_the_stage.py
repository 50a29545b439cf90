"""formation-trigger as a worker on real servers, from records to published windows and stored documents."""

import asyncio
import time
from collections.abc import AsyncGenerator

import pytest
from typer.testing import CliRunner

from eden_memory.cli.main import app
from eden_memory.stages.stage import Delivery
from tests.integration.stages_on_servers import PARTITIONS
from tests.integration.system.running_system import until
from tests.integration.windows.harness import Kit, changed
from tests.unit.windows.records import asked, ended, gone, message, names, watermark

pytestmark = pytest.mark.servers
S = "s.s"


def some(count: int, session: str = S, first: int = 1, text: str = "hello there") -> list[Delivery]:
    return [message(f"{session}-{one}", session, one, one / 60, text) for one in range(first, first + count)]


def everywhere(number: int, minutes: float) -> list[Delivery]:
    return [watermark(number, minutes, partition) for partition in range(PARTITIONS)]


async def test_windows_close_for_each_reason(kit: Kit) -> None:
    settings = changed(kit.settings, windows={"stale_hours": 24.0})
    records = [
        *some(45, "s.full"),
        *some(4, "s.long", text="x" * 3_000),
        *some(4, "s.next"),
        message("s.next-9", "s.next", 9, 12),
        *some(5, "s.cold"),
        *some(1, "s.stale"),
        *some(2, "s.ended"),
        ended("s.ended", 50, 1),
        ended("s.nothing", 51, 1),
        *some(1, "s.asked"),
        asked("s.asked", 52, 1),
    ]
    await kit.put([*records, *everywhere(60, 15), *everywhere(61, 25 * 60)])
    async with kit.running(settings), kit.topic("memory.formations") as topic:
        found = {one.session_id: one for one in reversed(await topic.until(9))}
        assert {name: one.closed_because for name, one in found.items()} == {
            "s.full": "messages",
            "s.long": "tokens",
            "s.next": "cold",
            "s.cold": "cold",
            "s.stale": "stale",
            "s.ended": "ended",
            "s.nothing": "ended",
            "s.asked": "asked",
        }
        assert [one.closed_because for one in topic.windows if one.session_id == "s.next"] == [
            "cold",
            "stale",
        ]
        assert len(found["s.full"].messages) == 45
        assert found["s.nothing"].messages == ()
    assert not await kit.waiting()
    assert await kit.database["memory_sessions"].count_documents({"due_at": {"$exists": True}}) == 0


async def test_what_waited_before_a_limit_was_set_forms_after_setup(
    kit: Kit, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert kit.settings.mongodb.uri is not None
    monkeypatch.setenv("EDEN_MONGODB_URI", kit.settings.mongodb.uri.get_secret_value())
    monkeypatch.setenv("EDEN_MONGODB_DATABASE", kit.settings.mongodb.database)
    monkeypatch.setenv("EDEN_KAFKA_BOOTSTRAP", str(kit.settings.kafka.bootstrap))
    await kit.put([*some(2, "s.early"), *everywhere(10, 2 * 24 * 60)])
    async with kit.running(changed(kit.settings, windows={"stale_hours": 0})):
        await until(lambda: _wait(kit, 2), "both messages are stored")
    assert "due_at" not in await kit.state("s.early")
    said = await asyncio.to_thread(CliRunner().invoke, app, ["status"])
    shown = " ".join(said.stdout.split())
    assert "2 messages in 1 session of fewer than 4" in shown
    assert "some are overdue" in shown
    done = await asyncio.to_thread(CliRunner().invoke, app, ["setup", "--wait", "0"])
    assert done.exit_code == 0, done.output
    await kit.put(everywhere(20, 2 * 24 * 60 + 1))
    async with kit.running(), kit.topic("memory.formations") as topic:
        (one,) = await topic.until(1)
    assert (names(one), one.closed_because) == (["s.early-1", "s.early-2"], "stale")


async def _wait(kit: Kit, count: int) -> bool:
    return len(await kit.waiting()) == count


async def test_edits_and_deletions_before_and_after_the_window(kit: Kit) -> None:
    before = [*some(4), message(f"{S}-1", S, 20, 1, "edited in time"), gone(f"{S}-2", S, 21, 1)]
    after = [message(f"{S}-3", S, 40, 3, "too late"), gone(f"{S}-4", None, 41, 3), asked(S, 42, 4)]
    async with (
        kit.running(),
        kit.topic("memory.formations") as topic,
        kit.topic("memory.forgotten") as forgotten,
    ):
        await kit.put([*before, asked(S, 30, 2)])
        (one,) = await topic.until(1)
        await kit.put([*after, *everywhere(50, 5)])
        await forgotten.until_true(lambda: len(forgotten.forgotten) == 2, "two forgotten messages")
        assert names(one) == [f"{S}-1", f"{S}-3", f"{S}-4"]
        assert sorted((item.id, item.version) for item in forgotten.forgotten) == [
            (f"{S}-2", f"{21:016x}"),
            (f"{S}-4", f"{41:016x}"),
        ]
    (window,) = await kit.database["memory_windows"].find().to_list()
    assert [item["text"] for item in window["messages"]] == ["edited in time", "hello there", "hello there"]
    edited, deleted = await kit.message(f"{S}-3"), await kit.message(f"{S}-4")
    assert (edited["changed_after_formation"], edited["text"]) == (True, None)
    assert (deleted["changed_after_formation"], deleted["deleted"]) == (True, True)
    assert deleted["formation_id"] == window["_id"]


async def test_a_session_waits_for_its_documents_with_the_reason_and_goes_on(kit: Kit) -> None:
    settings = changed(
        kit.settings,
        sessions={"collection": "sessions"},
        agents={"collection": "agents"},
        users={"collection": "users"},
    )
    async with kit.running(settings), kit.topic("memory.formations") as topic:
        await kit.put([*some(2), asked(S, 10, 1), *some(2, first=11), asked(S, 20, 2)])

        async def waits_for(reason: str) -> None:
            async for _ in _watching(kit, S):
                if reason in ((await kit.state(S)).get("waits_for") or ""):
                    return

        await waits_for("no document s.s in sessions")
        await kit.database["sessions"].insert_one({"_id": "s", "agent_id": 7, "users": [{"id": 1}]})
        await kit.put(everywhere(30, 3))
        await waits_for("users of the document s.s in sessions is no id")
        await kit.database["sessions"].update_one({"_id": "s"}, {"$set": {"users": [1]}})
        await kit.put([message(f"{S}-31", S, 31, 2.5)])
        await waits_for("no document i.7 in agents")
        assert not topic.windows
        await kit.database["agents"].insert_one({"_id": 7, "name": "Ada"})
        await kit.database["users"].insert_one({"_id": 1, "name": "Ben", "tier": 2, "memory_private": True})
        await kit.put(everywhere(40, 4))
        first, second = await topic.until(2)
        assert (names(first), names(second)) == ([f"{S}-1", f"{S}-2"], [f"{S}-11", f"{S}-12"])
        assert (first.agent_id, first.users, first.tier, first.private_users) == (
            "i.7",
            ("i.1",),
            2,
            ("i.1",),
        )
    window = await kit.database["memory_windows"].find_one({"_id": first.formation_id})
    assert window
    assert window["names"] == {"i.7": "Ada", "i.1": "Ben"}
    assert (await kit.state(S))["waits_for"] is None


async def _watching(kit: Kit, session: str) -> AsyncGenerator[None]:
    """Again and again, for as long as a test may take."""
    end = time.monotonic() + 60
    while time.monotonic() < end:
        yield
        await asyncio.sleep(0.05)
    raise AssertionError(f"{session} is {await kit.state(session)}")


async def test_a_message_that_comes_after_its_sessions_end_is_formed_by_the_next_process(kit: Kit) -> None:
    async with kit.running(), kit.topic("memory.formations") as topic:
        await kit.put([ended(S, 50, 1), *some(1)])
        assert names((await topic.until(1))[0]) == []
        async for _ in _watching(kit, S):
            if (await kit.state(S)).get("late"):
                break
    async with kit.running(), kit.topic("memory.formations") as topic:
        await kit.put(everywhere(60, 2))
        await topic.until_true(lambda: {one.seq for one in topic.windows} == {1, 2}, "a second window")
        last = max(topic.windows, key=lambda one: one.seq)
        assert (last.closed_because, last.control_id, names(last)) == (
            "ended",
            ended(S, 50, 1).key,
            [f"{S}-1"],
        )
    assert not await kit.waiting()
    assert "due_at" not in await kit.state(S)
    assert "late" not in await kit.state(S)


async def test_users_who_join_and_leave_begin_session_memory_anew(kit: Kit) -> None:
    settings = changed(kit.settings, sessions={"collection": "sessions"})
    keys: list[str] = []
    async with kit.running(settings), kit.topic("memory.formations") as topic:
        for number, users in enumerate([[1], [1, 2], [1]], 1):
            await kit.database["sessions"].replace_one({"_id": "s"}, {"users": users}, upsert=True)
            await kit.put([*some(1, first=10 * number), asked(S, 10 * number + 5, number)])
            window = (await topic.until(number))[-1]
            keys.append(" ".join(scope.key for scope in window.scopes))
    assert keys == [
        "agent:s.default user:s.default:i.1 session:s.s",
        "agent:s.default session:s.s:2",
        "agent:s.default user:s.default:i.1 session:s.s",
    ]


async def test_a_message_that_moves_between_partitions_is_in_one_window(kit: Kit) -> None:
    here, there = "s.0", "s.1"
    moved = [gone(f"{here}-1", here, 20, 1, "moved"), message(f"{here}-1", there, 20, 1, "moved")]
    async with kit.running(), kit.topic("memory.formations") as topic:
        await kit.put([*some(2, here), *moved, asked(there, 30, 2), asked(here, 31, 2)])
        found = {one.session_id: names(one) for one in await topic.until(2)}
    assert found == {here: [f"{here}-2"], there: [f"{here}-1"]}


async def test_the_state_of_a_long_session_stays_small(kit: Kit) -> None:
    async with kit.running(), kit.topic("memory.formations") as topic:
        await kit.put([*some(45 * 40, text="x" * 200), *everywhere(9_000, 40)])
        await topic.until(40)
        await kit.put(everywhere(9_001, 41))
        async for _ in _watching(kit, S):
            if not (await kit.state(S))["outbox"]:
                break
    assert await _size(kit) < 1_000


async def _size(kit: Kit) -> int:
    rows = await (
        await kit.database["memory_sessions"].aggregate([{"$project": {"size": {"$bsonSize": "$$ROOT"}}}])
    ).to_list()
    return sum(row["size"] for row in rows)
