"""Forgetting four times as much has MongoDB read and write about four times as much, not sixteen times."""

from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import count
from typing import Any

import pytest

from eden_memory.forgetting.forgetting_store import MongoForgettingStore
from eden_memory.forgetting.mark_store import MongoForgetting
from eden_memory.processors.forgetting import ForgettingStage
from eden_memory.schemas.envelope import Envelope
from eden_memory.schemas.events import Forgotten
from eden_memory.schemas.events.forgetting import Forgettable
from eden_memory.settings import Settings
from eden_memory.stages.stage import Decision, Delivery, Emit, Gather
from tests.integration.stages_on_servers import OnServers, on_servers
from tests.names import NAMES

pytestmark = [pytest.mark.servers, pytest.mark.slow]

Row = dict[str, Any]
NOON = datetime(2026, 1, 2, 12, tzinfo=UTC)
VERSION = "6b00000000000001"
SESSION, USER, SCOPE = "s.long", "i.1", "user:s.a:i.1"
SLICE, FEW, TIMES = 20, 800, 4
MOST_TIMES = 5
"""Of what is done `TIMES` as often; 16 would be the square."""
IN_A_WINDOW, IN_A_BLOB = 40, 20
PROFILE_BYTES = 64_000_000
COUNTED = ("docsExamined", "keysExamined", "nreturned", "nModified", "nUpserted", "ninserted", "ndeleted")
WORK = {"asked": {"$sum": 1}, **{name: {"$sum": f"${name}"} for name in COUNTED}}


def memory(name: str, number: int) -> Row:
    """A fact or reflection that rests on one message."""
    source = {"message_id": f"s.m{number:06d}", "session_id": SESSION, "user_id": USER}
    return {
        "_id": f"{name}{number:06d}",
        "agent_id": "s.a",
        "scope_key": SCOPE,
        "user_id": USER,
        "sources": [{**source, "version": VERSION, "time": NOON}],
        "content": f"{name} {number}",
        "message_ids": [source["message_id"]],
        "session_ids": [SESSION],
        "formed_at": NOON,
        "said_at": NOON,
        "version": 1,
        "hash": f"{name}{number}",
        "active": True,
    }


def message(number: int) -> Row:
    return {
        "_id": f"s.m{number:06d}",
        "session_id": SESSION,
        "user_id": USER,
        "version": VERSION,
        "time": NOON,
        "text": "Hello.",
        "place": number,
    }


def blob(version: int) -> Row:
    absorbed = [f"r{number:06d}" for number in range((version - 1) * IN_A_BLOB, version * IN_A_BLOB, 2)]
    row = {"scope_key": SCOPE, "version": version, "gone": False, "absorbed": absorbed}
    return {"_id": f"{SCOPE}@{version}", **row}


def window(first: int) -> Row:
    members = [
        {"message_id": f"s.m{number:06d}", "version": VERSION, "text": "Hello."}
        for number in range(first, first + IN_A_WINDOW)
    ]
    return {"_id": f"{SESSION}/{first}", "session_id": SESSION, "seq": first, "messages": members}


async def fill(kit: OnServers, count: int) -> None:
    """Messages in windows; a fact and a reflection of every second, which blobs absorbed."""
    blobs = count // IN_A_BLOB
    rows = {
        "messages": [message(number) for number in range(count)],
        "windows": [window(first) for first in range(0, count, IN_A_WINDOW)],
        "facts": [memory("f", number) for number in range(0, count, 2)],
        "reflections": [memory("r", number) for number in range(0, count, 2)],
        "blobs": [blob(version) for version in range(1, blobs + 1)],
        "snapshots": [{"_id": SCOPE, "agent_id": "s.a", "highest_blob_version": blobs}],
    }
    for name, of in rows.items():
        await kit.database[NAMES[name]].delete_many({})
        await kit.database[NAMES[name]].insert_many(of, bypass_document_validation=True)
    await kit.database[NAMES["forgotten"]].delete_many({})


def slices(decision: Decision) -> Iterator[Forgotten]:
    """What asks for the next slice."""
    for one in decision.events:
        if isinstance(one, Emit) and isinstance(one.event, Forgotten) and one.event.after is not None:
            yield one.event


async def forget(kit: OnServers, kind: Forgettable) -> int:
    """Forget all of it; in how many decisions."""
    store, marked = MongoForgettingStore(kit.database, NAMES), MongoForgetting(kit.database, NAMES)
    nobody_erases = count(step=1_000).__next__
    handler = ForgettingStage(store, marked, SLICE, clock=nobody_erases)
    target = SESSION if kind == "session" else USER
    asked = Forgotten(
        kind=kind, id=target, reach="for_ever", because="asked", asked_by=None, forgotten_at=NOON
    )
    left, decisions = [asked], 0
    while left:
        event, decisions = left.pop(), decisions + 1
        key = event.ordering_key()
        envelope = Envelope(f"f{decisions}", "Forgotten", 1, "test", NOON, event.subject(), ordering_key=key)
        delivery = Delivery(envelope, event, "memory.forgotten", event.key())
        while isinstance(decision := await handler([delivery]), Gather):
            pass
        left += slices(decision)
    return decisions


async def work(kit: OnServers, kind: Forgettable, count: int) -> dict[str, int]:
    """What MongoDB examines, returns and changes, and how often it is asked: by operation and collection."""
    await fill(kit, count)
    await kit.database[NAMES["erasures"]].delete_many({})
    profile = kit.database["system.profile"]
    await profile.drop()
    await kit.database.create_collection("system.profile", capped=True, size=PROFILE_BYTES)
    await kit.database.command({"profile": 2})
    decisions = await forget(kit, kind)
    await kit.database.command({"profile": 0})
    assert decisions == 2 * count // SLICE + 1
    assert await kit.database[NAMES["messages"]].count_documents({"text": {"$ne": None}}) == 0
    stored = await kit.database.command({"collStats": "system.profile"})
    assert stored["size"] < PROFILE_BYTES / 2, "the oldest entries are gone"
    of = {"$concat": ["$op", " ", {"$last": {"$split": ["$ns", "."]}}]}
    found = await profile.aggregate([{"$group": {"_id": of, **WORK}}, {"$sort": {"_id": 1}}])
    return {f"{row['_id']} {name}": row[name] async for row in found for name in WORK if row[name]}


@pytest.mark.parametrize("kind", ["session", "user"])
async def test_four_times_as_much_to_forget_is_about_four_times_the_work(
    settings: Settings, kind: Forgettable
) -> None:
    async with on_servers(OnServers, settings) as kit:
        few, many = await work(kit, kind, FEW), await work(kit, kind, TIMES * FEW)
    assert many.keys() == few.keys()
    grown = {name: many[name] / few[name] for name in few if many[name] > MOST_TIMES * few[name]}
    assert grown == {}
