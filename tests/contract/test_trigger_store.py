"""What formation-trigger counts on from its store: one suite for MongoDB and for the one that properties use."""

from asyncio import gather
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import reduce
from sys import getsizeof
from typing import Any

import pytest

from eden_memory.directory.participants import Audiences, Missing, Off
from eden_memory.schemas.documents import Document, Message, PartitionState, SessionState, WindowTexts
from eden_memory.windows.formation_requests import (
    BatchWrite,
    SessionWrite,
    StoredWindow,
    TriggerStore,
    leave_out,
)
from eden_memory.windows.session_state import Session, StoredMessage, UnpublishedWindow
from eden_memory.windows.trigger_store import MongoTriggerStore
from eden_memory.windows.window_rule import Closed, Limits
from tests.names import NAMES
from tests.unit.windows.memory_store import MemoryStore
from tests.unit.windows.records import (
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
async def mongo(database: Any) -> MongoTriggerStore:
    store = MongoTriggerStore(database, NAMES, Limits())
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


async def put(store: TriggerStore, partition: int = 0, **given: Any) -> bool:
    """A batch that was read just now; whether it is stored."""
    seen = await store.place(partition)
    places = [one.place or 0 for one in given.get("messages", ())]
    write = BatchWrite(partition, seen, max([seen, *places]), **given)
    return await store.put(write) is not None


def window(members: list[StoredMessage], seq: int = 1, name: str = "s.s/1-aa") -> StoredWindow:
    return StoredWindow(name, S, seq, tuple(members), Closed((), "asked", NOON, "o.1", "ana"), "00-1-2-01")


async def closing(store: TriggerStore, members: list[StoredMessage], **touched: Any) -> SessionWrite:
    """The session as it closes a window over members."""
    state = await session(store)
    state.seq, state.outbox = 1, [UnpublishedWindow("s.s/1-aa", 1)]
    state.formed_to = max((one.place or 0 for one in members), default=0)
    return SessionWrite(state, new=[window(members)], **touched)


async def test_a_session_comes_back_as_it_was_put(store: TriggerStore) -> None:
    state = await session(store)
    assert (state.stored, state.partition, state.due_at) == (False, 0, None)
    state.seq, state.formed_to, state.waits_for, state.users = 3, 7, "no document", ("i.1",)
    state.outbox, state.controls = [UnpublishedWindow("s.s/3-aa", 3, True)], ["o.1"]
    state.audiences = reduce(Audiences.followed_by, [["i.1"], ["i.1", "i.2"], ["i.2"]], Audiences())
    assert await put(store, sessions=[state])
    found = await session(store)
    assert (found.stored, found.seq, found.formed_to) == (True, 3, 7)
    assert (found.waits_for, found.users) == ("no document", ("i.1",))
    assert (found.outbox, found.controls, found.audiences) == (state.outbox, ["o.1"], state.audiences)


async def test_what_waits_is_found_by_its_place_with_or_without_a_document(store: TriggerStore) -> None:
    later = NOON + timedelta(minutes=3)
    messages = [
        told("s.m1", place=1),
        told("s.m2", place=5, user_id="i.2", since=later),
        told("s.m3", place=4),
        told("s.m4", place=None),
        told("s.m5", place=6, session_id="s.other"),
        told("s.m6", place=7, formation_id="s.s/1-aa", text=None),
    ]
    assert await put(store, messages=messages)
    found = await session(store)
    assert (found.stored, list(found.held)) == (False, ["s.m1", "s.m3", "s.m2"])
    assert found.users == ("i.1", "i.2")
    assert found.text_bytes == sum(getsizeof(message.text) for message in found.held.values())
    assert [one.time for one in found.pending.waiting] == [NOON, NOON, later]
    found.formed_to = 4
    assert await put(store, sessions=[found])
    again = await store.sessions([S, "s.other", "s.none"], 0)
    assert [list(again[name].held) for name in (S, "s.other", "s.none")] == [["s.m2"], ["s.m5"], []]
    assert again[S].held["s.m2"].text == "hello"


async def test_an_id_that_gets_another_text_is_no_alias_any_more(store: TriggerStore) -> None:
    assert await put(store, messages=[told("s.n1", alias_of="s.m1", formation_id="s.s/1-aa", deleted=True)])
    assert (await store.messages(["s.n1"]))["s.n1"].alias_of == "s.m1"
    replaces = version(1), "s.s/1-aa"
    assert await put(store, messages=[told("s.n1", 2, text="another", replaces=replaces)])
    assert (await store.messages(["s.n1"]))["s.n1"].alias_of is None


async def test_of_two_who_read_the_same_partition_one_writes(store: TriggerStore) -> None:
    seen = await store.place(0)
    first, second = (BatchWrite(0, seen, seen, messages=[told(name)]) for name in ("s.m1", "s.m2"))
    assert await store.put(first) == await store.place(0)
    assert await store.put(second) is None
    seen = await store.place(0)
    first, second = (BatchWrite(0, seen, seen, messages=[told(name)]) for name in ("s.m3", "s.m4"))
    assert await store.put(first) is not None
    assert await store.put(second) is None
    assert list(await store.messages(["s.m1", "s.m2", "s.m3", "s.m4"])) == ["s.m1", "s.m3"]
    assert await store.place(1) == 0, "another partition is another matter"


async def test_every_write_moves_the_partition_on_beyond_the_places_given(store: TriggerStore) -> None:
    assert await put(store, messages=[told("s.m1", place=9)])
    assert (reached := await store.place(0)) > 9
    assert await put(store, sessions=[await session(store)])
    assert await store.place(0) > reached


async def test_of_two_who_read_the_same_message_one_writes(store: TriggerStore) -> None:
    assert await put(store, messages=[told("s.m1"), told("s.m2")])
    assert not await put(store, 1, messages=[told("s.m2"), told("s.m3")]), "new for both"
    assert await put(store, 1, messages=[told("s.m1", 2, replaces=(version(1), None))])
    assert not await put(store, messages=[told("s.m1", 3, replaces=(version(1), None))])
    found = await store.messages(["s.m1", "s.m2", "s.m3", "s.m4"])
    assert {one.message_id: one.version for one in found.values()} == {
        "s.m1": version(2),
        "s.m2": version(1),
    }


async def test_a_window_takes_its_members_and_their_texts(store: TriggerStore) -> None:
    members = [told("s.m1", place=1), told("s.m2", place=2)]
    assert await put(store, messages=members[:1])
    assert await put(store, closing=[await closing(store, members, messages=members[1:])])
    found = await store.messages(["s.m1", "s.m2"])
    assert [(one.formation_id, one.text) for one in found.values()] == [("s.s/1-aa", None)] * 2
    (kept,) = (await store.windows(["s.s/1-aa", "s.s/2-bb"])).values()
    assert [one.text for one in kept.messages] == ["hello", "hello"]
    assert (kept.closed.because, kept.closed.control_id, kept.closed.asked_by) == ("asked", "o.1", "ana")
    assert (kept.settled, kept.requested, kept.value) == (False, None, None)
    assert not (await session(store)).held
    edit = told("s.m1", 2, replaces=(version(1), None))
    assert not await put(store, messages=[edit]), "read before it was formed"


async def test_a_window_takes_what_was_stored_before_and_what_came_with_it(store: TriggerStore) -> None:
    assert await put(store, messages=[told("s.m1", place=1)])
    edited, new = told("s.m1", 2, place=1, text="hi", replaces=(version(1), None)), told("s.m2", 2, place=2)
    write = await closing(store, [edited, new], messages=[edited, new])
    assert await put(store, closing=[write])
    found = await store.messages(["s.m1", "s.m2"])
    assert {(one.version, one.formation_id, one.text) for one in found.values()} == {
        (version(2), "s.s/1-aa", None)
    }
    assert (await session(store)).held == {}
    (kept,) = (await store.windows(["s.s/1-aa"])).values()
    assert [one.text for one in kept.messages] == ["hi", "hello"]


async def test_a_window_keeps_no_text_of_what_it_leaves_out(store: TriggerStore) -> None:
    members = [told("s.m1", place=1), told("s.m2", place=2, user_id="i.2")]
    assert await put(store, messages=members)
    write = await closing(store, members)
    leave_out(write.new[0], Off(users=frozenset({"i.2"})))
    assert await put(store, closing=[write])
    found = await store.messages(["s.m1", "s.m2"])
    assert [(one.formation_id, one.text) for one in found.values()] == [("s.s/1-aa", None)] * 2
    assert [one.opted_out for one in found.values()] == [False, True]
    (kept,) = (await store.windows(["s.s/1-aa"])).values()
    assert [one.message_id for one in kept.messages] == ["s.m1"]
    assert [(one.message_id, one.version) for one in kept.left_out] == [("s.m2", version(1))]


async def test_a_waiting_window_loses_what_is_left_out_when_it_is_asked_for(store: TriggerStore) -> None:
    members = [told("s.m1", place=1), told("s.m2", place=2, user_id="i.2")]
    assert await put(store, closing=[await closing(store, members, messages=members)])
    (kept,) = (await store.windows(["s.s/1-aa"])).values()
    leave_out(kept, Off(users=frozenset({"i.2"})))
    assert await put(store, closing=[SessionWrite(await session(store), requested=[kept])])
    (kept,) = (await store.windows(["s.s/1-aa"])).values()
    assert [one.message_id for one in kept.messages] == ["s.m1"]
    assert [one.message_id for one in kept.left_out] == ["s.m2"]
    found = await store.messages(["s.m1", "s.m2"])
    assert [one.opted_out for one in found.values()] == [False, True]


@pytest.mark.parametrize(
    "meanwhile",
    [{"session_id": "s.other"}, {"deleted": True, "text": None}, {"forgotten": True, "text": None}],
    ids=["moved", "deleted", "forgotten"],
)
async def test_a_window_whose_member_has_left_meanwhile_is_not_stored_at_all(
    store: TriggerStore, meanwhile: dict[str, Any]
) -> None:
    members = [told("s.m1", place=1), told("s.m2", place=2)]
    await put(store, messages=members)
    write = await closing(store, members)
    assert await put(store, 1, messages=[told("s.m2", 2, replaces=(version(1), None), **meanwhile)])
    before = await store.place(0)
    assert not await put(store, closing=[write])
    assert not (await session(store)).stored
    assert not await store.windows(["s.s/1-aa"])
    assert (await store.messages(["s.m1"]))["s.m1"].formation_id is None
    assert await store.place(0) == before


async def test_a_message_that_was_forgotten_since_it_was_read_is_not_written(store: TriggerStore) -> None:
    assert await put(store, messages=[told("s.m1", place=1)])
    forgotten = told("s.m1", text=None, forgotten=True, replaces=(version(1), None))
    assert await put(store, 1, messages=[forgotten])
    assert not await put(store, messages=[told("s.m1", 2, text="edited", replaces=(version(1), None))])
    assert await put(store, messages=[replace(forgotten, version=version(2))]), "its newer version is noted"
    (found,) = (await store.messages(["s.m1"])).values()
    assert (found.forgotten, found.text, found.version) == (True, None, version(2))


async def test_what_is_forgotten_loses_its_text_in_closed_windows(store: TriggerStore) -> None:
    members = [told("s.m1", place=1), told("s.m2", place=2)]
    assert await put(store, closing=[await closing(store, members, messages=members)])
    assert await put(store, forgotten=["s.m1"])
    (kept,) = (await store.windows(["s.s/1-aa"])).values()
    assert [one.text for one in kept.messages] == [None, "hello"]


async def test_due_are_the_sessions_gone_cold_by_then_of_this_partition(store: TriggerStore) -> None:
    for number in range(4):
        state = (await store.sessions([f"s.{number}"], number // 3))[f"s.{number}"]
        moment = NOON + timedelta(minutes=10 - number)
        for one in range(4):
            name = f"s.m{number}{one}"
            state.hold(told(name, session_id=state.session_id, time=moment), moment, one + 1)
        assert state.needs_writing()
        assert await put(store, number // 3, sessions=[state])
    noon = NOON + timedelta(minutes=19)
    assert await store.due(0, noon, 10) == ["s.2", "s.1"]
    assert await store.due(0, noon, 1) == ["s.2"]
    assert await store.due(1, noon, 10) == ["s.3"]
    for most, first in ((10, ["s.2", "s.1"]), (2, ["s.2", "s.1"]), (1, ["s.2"])):  # asked at the same moment
        both = await gather(*(store.due(partition, noon, most) for partition in (0, 1, 2)))
        assert list(both) == [first, ["s.3"], []]
    early = await gather(store.due(0, noon, 10), store.due(0, noon - timedelta(minutes=1), 10))
    assert list(early) == [["s.2", "s.1"], ["s.2"]]


async def test_unpublished_sessions_come_by_id_and_leave_when_confirmed(store: TriggerStore) -> None:
    for name in ("s.a", "s.b", "s.c", "s.d"):
        state = await session(store, name)
        state.outbox = (
            [UnpublishedWindow(f"{name}/1-aa", 1), UnpublishedWindow(f"{name}/2-bb", 2)]
            if name != "s.d"
            else []
        )
        state.waits_for = "no document" if name == "s.b" else None
        assert await put(store, sessions=[state])
    assert await store.unpublished(0, "", 2) == ["s.a", "s.b"]
    assert await store.unpublished(0, "s.b", 2) == ["s.c"]
    together = await gather(store.unpublished(0, "s.b", 2), store.unpublished(1, "", 2), store.waiting(1))
    assert together == [["s.c"], [], 0]
    assert await store.waiting(0) == 1
    await store.published([("s.a", "s.a/1-aa"), ("s.c", "s.c/1-aa"), ("s.c", "s.c/2-bb")])
    assert await store.unpublished(0, "", 9) == ["s.a", "s.b"]
    assert (await session(store, "s.a")).outbox == [UnpublishedWindow("s.a/2-bb", 2)]


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
    assert list((await session(mongo)).held) == ["s.m9"]
    assert states[S]["outbox"] == ()
    (partition,) = await _valid(database, PartitionState)
    assert partition["place"] == await mongo.place(0)
    assert states["s.waits"]["waits_for"] == "no document s.waits in sessions"
    assert [one["requested"] for one in states["s.waits"]["outbox"]] == [False]
    windows = {one["session_id"]: one for one in await _valid(database, WindowTexts)}
    requests = [
        one.event.json_bytes().decode() for one in published if one.event.NAME == "FormationRequested"
    ]
    assert [windows[S]["requested"]] == requests
    assert windows["s.waits"]["requested"] is None


async def test_a_message_written_under_the_id_of_a_deleted_one_is_in_a_window_of_its_own(
    store: TriggerStore,
) -> None:
    first = [message("s.m1", S, 1, 0, "first"), asked(S, 2, 0)]
    await run(trigger(store), first)
    before = (await store.messages(["s.m1"]))["s.m1"]
    again = [gone("s.m1", S, 3, 1), message("s.m1", S, 4, 1, "second")]
    await run(trigger(store), again)
    (waiting,) = (await session(store)).held.values()
    assert (waiting.text, waiting.version, waiting.deleted) == ("second", version(4), False)
    await run(trigger(store), again, [asked(S, 5, 2)])
    after = (await store.messages(["s.m1"]))["s.m1"]
    assert after.formation_id not in (None, before.formation_id)
    assert not after.changed_after_formation
    await run(trigger(store), first, again, [asked(S, 5, 2)])
    assert (await store.messages(["s.m1"]))["s.m1"].formation_id == after.formation_id


async def _valid(database: Any, kind: type[Document]) -> list[dict[str, Any]]:
    """Everything in the collection of a kind of document; a ValidationError if one is not what it should be."""
    found = await database["memory_" + kind.COLLECTION].find().to_list()
    return [kind.model_validate(one, strict=False).model_dump() for one in found]


async def test_a_window_is_found_by_its_place_and_keeps_what_explains_it_until_that_is_forgotten(
    store: TriggerStore,
) -> None:
    members = [told("s.m1", place=1), told("s.m2", place=2)]
    write = await closing(store, members, messages=members)
    write.new[0].before = (told("s.m0"),)
    assert await put(store, closing=[write])
    found = await store.windows_at({(S, 1), (S, 2), ("s.other", 1)}, 1)
    assert {place: [one.message_id for one in kept.messages] for place, kept in found.items()} == {
        (S, 1): ["s.m2"]
    }
    await store.erase_in_windows(["s.m0", "s.m1"])
    (kept,) = (await store.windows(["s.s/1-aa"])).values()
    assert [one.text for one in (*kept.before, *kept.messages)] == [None, None, "hello"]


async def test_a_waiting_window_gets_what_explains_it_with_its_request(store: TriggerStore) -> None:
    members = [told("s.m1", place=1)]
    assert await put(store, closing=[await closing(store, members, messages=members)])
    (kept,) = (await store.windows(["s.s/1-aa"])).values()
    kept.before = (told("s.m0"),)
    assert await put(store, closing=[SessionWrite(await session(store), requested=[kept])])
    (kept,) = (await store.windows(["s.s/1-aa"])).values()
    assert [one.text for one in kept.before] == ["hello"]
