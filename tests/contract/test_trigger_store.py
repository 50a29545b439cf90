"""What formation-trigger counts on from its store: one suite for MongoDB and for the one that properties use."""

from collections.abc import AsyncGenerator
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

import pytest
from pymongo import AsyncMongoClient

from eden_memory.domain.participants import Missing
from eden_memory.domain.trigger import OutboxEntry, Session, StoredMessage
from eden_memory.domain.window_request import SessionWrite, StoredWindow
from eden_memory.domain.windows import Closed, Limits, Waiting
from eden_memory.mongo.client import connect
from eden_memory.mongo.trigger_store import MongoTriggerStore
from eden_memory.ports import TriggerStore
from eden_memory.settings import Settings
from schemas.documents import Document, Message, SessionState, WindowTexts
from tests.unit.formation_trigger.memory_store import MemoryStore
from tests.unit.formation_trigger.records import (
    NOON,
    Sessions,
    asked,
    gone,
    message,
    run,
    trigger,
    version,
    watermark,
)

pytestmark = pytest.mark.servers
S = "s.s"


@dataclass
class Stored:
    """A store, and its database if it has one."""

    store: TriggerStore
    database: Any = None


@pytest.fixture
async def database(settings: Settings) -> AsyncGenerator[Any]:
    assert settings.mongodb.uri
    client: AsyncMongoClient[dict[str, Any]] = connect(
        settings.mongodb, settings.mongodb.uri.get_secret_value()
    )
    yield client[settings.mongodb.database]
    await client.close()


@pytest.fixture
async def mongo(database: Any) -> MongoTriggerStore:
    store = MongoTriggerStore(database, "memory_", Limits())
    await store.create_indexes()
    return store


@pytest.fixture(params=["memory", "mongodb"])
def store(request: pytest.FixtureRequest) -> TriggerStore:
    return MemoryStore(Limits()) if request.param == "memory" else request.getfixturevalue("mongo")


def told(name: str, number: int = 1, **fields: Any) -> StoredMessage:
    one = StoredMessage(name, S, version(number), NOON, "user", "i.1", "hello", 5, False)
    return replace(one, **fields)


async def session(store: TriggerStore, name: str = S) -> Session:
    return (await store.sessions([name], 0))[name]


def window(members: list[StoredMessage], seq: int = 1, name: str = "s.s/1-aa") -> StoredWindow:
    return StoredWindow(name, S, seq, tuple(members), Closed((), "asked", NOON, "o.1", "ana"), "00-1-2-01")


async def closing(store: TriggerStore, members: list[StoredMessage]) -> SessionWrite:
    """The session as it closes a window over members."""
    state = await session(store)
    state.seq, state.outbox = 1, [OutboxEntry("s.s/1-aa", 1)]
    return SessionWrite(state, new=[window(members)])


async def test_a_session_comes_back_as_it_was_put(store: TriggerStore) -> None:
    state = await session(store)
    assert (state.rev, state.partition) == (0, 0)
    state.pending.add(Waiting("s.m1", version(1), NOON, 1.5))
    state.seq, state.waits_for, state.users = 3, "no document", ("i.1",)
    state.outbox, state.controls = [OutboxEntry("s.s/3-aa", 3, True)], ["o.1"]
    state.audiences = [["i.1"], ["i.1", "i.2"]]
    assert await store.put_sessions([SessionWrite(state)])
    found = await session(store)
    assert found.rev == 1
    assert (found.seq, found.waits_for, found.users) == (3, "no document", ("i.1",))
    assert (found.outbox, found.controls, found.audiences) == (state.outbox, ["o.1"], state.audiences)
    assert found.pending.waiting == [Waiting("s.m1", version(1), NOON, 1.5)]


async def test_what_waits_comes_back_in_order_however_it_changed(store: TriggerStore) -> None:
    def waiting(name: str, number: int = 1) -> Waiting:
        return Waiting(name, version(number), NOON, float(number))

    steps: list[tuple[list[Waiting], str]] = [
        ([waiting("s.m1"), waiting("s.m2")], "s.none"),
        ([waiting("s.m3"), waiting("s.m4")], "s.none"),
        ([waiting("s.m2", 2)], "s.none"),
        ([waiting("s.m5")], "s.m1"),
        ([], "s.m3"),
    ]
    expected: list[Waiting] = []
    for added, removed in steps:
        state = await session(store)
        state.pending.remove(removed)
        for one in added:
            state.pending.add(one)
        expected = list(state.pending.waiting)
        assert await store.put_sessions([SessionWrite(state)])
        assert (await session(store)).pending.waiting == expected
    assert [one.message_id for one in expected] == ["s.m2", "s.m4", "s.m5"]


async def test_of_two_who_read_the_same_session_one_writes(store: TriggerStore) -> None:
    first, second = await session(store), await session(store)
    assert await store.put_sessions([SessionWrite(first)])
    assert not await store.put_sessions([SessionWrite(second)])
    third, fourth = await session(store), await session(store)
    assert await store.put_sessions([SessionWrite(third)])
    assert not await store.put_sessions([SessionWrite(fourth)])


async def test_of_two_who_read_the_same_message_one_writes(store: TriggerStore) -> None:
    assert await store.put_messages([told("s.m1"), told("s.m2")])
    assert not await store.put_messages([told("s.m2"), told("s.m3")]), "new for both"
    assert await store.put_messages([told("s.m1", 2, replaces=version(1))])
    assert not await store.put_messages([told("s.m1", 3, replaces=version(1))])
    found = await store.messages(["s.m1", "s.m2", "s.m3", "s.m4"])
    assert {one.message_id: one.version for one in found.values()} == {
        "s.m1": version(2),
        "s.m2": version(1),
        "s.m3": version(1),
    }


async def test_a_window_takes_its_members_and_their_texts(store: TriggerStore) -> None:
    members = [told("s.m1"), told("s.m2")]
    await store.put_messages(members)
    assert await store.put_sessions([await closing(store, members)])
    found = await store.messages(["s.m1", "s.m2"])
    assert [(one.formation_id, one.text) for one in found.values()] == [("s.s/1-aa", None)] * 2
    (kept,) = (await store.windows(["s.s/1-aa", "s.s/2-bb"])).values()
    assert [one.text for one in kept.messages] == ["hello", "hello"]
    assert (kept.closed.because, kept.closed.control_id, kept.closed.asked_by) == ("asked", "o.1", "ana")
    assert not await store.put_messages([told("s.m1", 2, replaces=version(1))]), "read before it was formed"


@pytest.mark.parametrize(
    "meanwhile",
    [{"session_id": "s.other"}, {"deleted": True, "text": None}],
    ids=["moved", "deleted"],
)
async def test_a_window_whose_member_has_left_meanwhile_is_not_stored_at_all(
    store: TriggerStore, meanwhile: dict[str, Any]
) -> None:
    members = [told("s.m1"), told("s.m2")]
    await store.put_messages(members)
    write = await closing(store, members)
    assert await store.put_messages([told("s.m2", 2, replaces=version(1), **meanwhile)])
    assert not await store.put_sessions([write])
    assert (await session(store)).rev == 0
    assert not await store.windows(["s.s/1-aa"])
    assert (await store.messages(["s.m1"]))["s.m1"].formation_id is None


async def test_a_window_of_a_session_that_changed_meanwhile_is_not_stored_at_all(store: TriggerStore) -> None:
    await store.put_messages([told("s.m1")])
    write = await closing(store, [told("s.m1")])
    assert await store.put_sessions([SessionWrite(await session(store))])
    assert not await store.put_sessions([write])
    assert not await store.windows(["s.s/1-aa"])
    assert (await store.messages(["s.m1"]))["s.m1"].text == "hello"


async def test_due_are_the_sessions_gone_cold_by_then_of_this_partition(store: TriggerStore) -> None:
    for number in range(4):
        state = (await store.sessions([f"s.{number}"], number // 3))[f"s.{number}"]
        for one in range(4):
            moment = NOON + timedelta(minutes=10 - number)
            state.pending.add(Waiting(f"s.m{number}{one}", version(1), moment, 1.0))
        await store.put_sessions([SessionWrite(state)])
    noon = NOON + timedelta(minutes=19)
    assert await store.due(0, noon, 10) == ["s.2", "s.1"]
    assert await store.due(0, noon, 1) == ["s.2"]
    assert await store.due(1, noon, 10) == ["s.3"]


async def test_unpublished_sessions_come_by_id_and_leave_when_confirmed(store: TriggerStore) -> None:
    for name in ("s.a", "s.b", "s.c", "s.d"):
        state = await session(store, name)
        state.outbox = (
            [OutboxEntry(f"{name}/1-aa", 1), OutboxEntry(f"{name}/2-bb", 2)] if name != "s.d" else []
        )
        state.waits_for = "no document" if name == "s.b" else None
        await store.put_sessions([SessionWrite(state)])
    assert await store.unpublished(0, "", 2) == ["s.a", "s.b"]
    assert await store.unpublished(0, "s.b", 2) == ["s.c"]
    assert await store.waiting(0) == 1
    await store.published([("s.a", "s.a/1-aa"), ("s.c", "s.c/1-aa"), ("s.c", "s.c/2-bb")])
    assert await store.unpublished(0, "", 9) == ["s.a", "s.b"]
    assert (await session(store, "s.a")).outbox == [OutboxEntry("s.a/2-bb", 2)]


async def test_what_the_stage_stores_is_as_described(mongo: MongoTriggerStore, database: Any) -> None:
    sessions = Sessions({"s.waits": Missing("no document s.waits in sessions")})
    records = [
        *(message(f"s.m{number}", S, number, number / 60, user=f"i.{number}") for number in range(1, 4)),
        message("s.empty", S, 4, 1, "", role="assistant", user=None),
        gone("s.m3", S, 5, 2),
        gone("s.never", None, 6, 2),
        asked(S, 7, 3),
        message("s.m1", S, 8, 4, "edited"),
        message("s.m9", S, 9, 5, "waits"),
        message("s.m10", "s.waits", 10, 5),
        asked("s.waits", 11, 6),
        watermark(12, 7),
    ]
    stage = trigger(mongo, sessions)
    published = await run(stage, records, [watermark(13, 8)])
    messages = {one["_id"]: one for one in await _valid(database, Message)}
    assert set(messages) == {"s.m1", "s.m2", "s.m3", "s.empty", "s.never", "s.m9", "s.m10"}
    assert messages["s.m1"]["changed_after_formation"]
    assert messages["s.never"]["session_id"] is None
    states = {one["_id"]: one for one in await _valid(database, SessionState)}
    assert [one["message_id"] for one in states[S]["pending"]] == ["s.m9"]
    assert states[S]["outbox"] == ()
    assert states["s.waits"]["waits_for"] == "no document s.waits in sessions"
    assert [one["requested"] for one in states["s.waits"]["outbox"]] == [False]
    windows = {one["session_id"]: one for one in await _valid(database, WindowTexts)}
    requests = [
        one.event.json_bytes().decode() for one in published if one.event.NAME == "FormationRequested"
    ]
    assert [windows[S]["requested"]] == requests
    assert windows["s.waits"]["requested"] is None


async def _valid(database: Any, kind: type[Document]) -> list[dict[str, Any]]:
    """Everything in the collection of a kind of document; a ValidationError if one is not what it should be."""
    found = await database["memory_" + kind.COLLECTION].find().to_list()
    return [kind.model_validate(one, strict=False).model_dump() for one in found]
