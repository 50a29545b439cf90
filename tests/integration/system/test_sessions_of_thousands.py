"""Thousands join one session: records and documents stay small, its members see its memory, nobody else does."""

from collections.abc import AsyncGenerator
from datetime import UTC, datetime
from typing import Any

import pytest
from bson import encode
from rich.console import Console

from eden_memory.api.service import MemoryService
from eden_memory.cli.replay.rebuild import from_nothing
from eden_memory.directory.directory_store import MongoAudiences
from eden_memory.mongo.ids import encode_id
from eden_memory.replay.rebuild.document_comparing import MemoryComparison
from eden_memory.schemas.events import FormationRequested
from eden_memory.schemas.scopes import LISTED_USERS
from eden_memory.settings import Settings
from tests.integration.system.obedient_model import obey
from tests.integration.system.running_system import AGENT, System, fast, stages, system, until
from tests.integration.system.test_restored_from_nothing import lose_everything, settled
from tests.model_server.serving import serving

pytestmark = pytest.mark.servers
JOINERS = 3_000
EARLY, LATE = "note session: A few plan a picnic.", "note session: The crowd plans a parade."
CROWD = "crowd"
TOPICS = ("memory.formations", "memory.extractions", "memory.reflections", "memory.changes")


def user(number: int) -> str:
    return f"user-{number:05}"


@pytest.fixture
async def crowded(settings: Settings) -> AsyncGenerator[System]:
    """A session that lists no users: each of 3,000 writes one message, and all of them are formed."""
    async with serving(obey) as models, system(fast(settings, models), models, run=False) as one:
        async with stages(one.settings):
            await one.source["sessions"].insert_one({"_id": CROWD, "agent_id": AGENT})
            await one.source["messages"].insert_many(map(_message, range(JOINERS)))
            await one.form(CROWD)
            await until(lambda: _has(one, LATE), "the last window is formed")
            await settled(one)
        yield one


def _message(number: int) -> dict[str, Any]:
    return {
        "_id": f"m-{number:05}",
        "session_id": CROWD,
        "role": "user",
        "user_id": user(number),
        "content": {10: EARLY, JOINERS - 1: LATE}.get(number, "hello"),
        "created_at": datetime.now(UTC),
    }


async def _has(one: System, text: str) -> bool:
    return text.partition(": ")[2] in await one.contents("reflections")


async def _windows(one: System) -> list[FormationRequested]:
    events = [came.event for came in await one.records("memory.formations")]
    return [event for event in events if isinstance(event, FormationRequested)]


async def _is_listed(one: System, *users: str) -> None:
    await one.source["sessions"].update_one({"_id": CROWD}, {"$set": {"users": list(users)}})


@pytest.mark.slow
async def test_thousands_who_join_leave_small_records_and_see_what_they_heard(crowded: System) -> None:
    windows = await _windows(crowded)
    assert len(windows) > 60
    for topic in TOPICS:
        sizes = [len(came.value or b"") for came in await crowded.records(topic)]
        assert sizes, topic
        assert max(sizes) < 30_000, topic
    documents: dict[str, list[int]] = {}
    for name in ("snapshots", "contexts", "windows"):
        documents[name] = [len(encode(row)) async for row in crowded.memory(name).find()]
    assert max(size for sizes in documents.values() for size in sizes) < 60_000
    (state,) = await crowded.memory("sessions").find().to_list()
    assert len(encode(state)) < 150 * JOINERS
    await _sees(crowded)
    await _exports(crowded)

    states = await crowded.memory("sessions").find(sort=[("_id", 1)]).to_list()
    await lose_everything(crowded)
    await from_nothing(crowded.settings, Console(quiet=True))
    comparing = MemoryComparison(crowded.database, "copy_memory_", "memory_")
    assert not (await comparing.whole()).differing
    names = ("_id", "seq", "audience_changes", "users")
    restored = await crowded.memory("sessions").find(sort=[("_id", 1)]).to_list()
    assert [{key: row[key] for key in names} for row in restored] == [
        {key: row[key] for key in names} for row in states
    ]
    await _sees(crowded)


async def _sees(one: System) -> None:
    """Who sees which memory, as the session's users change."""
    await one.source["sessions"].update_one({"_id": CROWD}, {"$unset": {"users": ""}})
    everybody = [user(number) for number in range(JOINERS)]
    await one.shows(CROWD, everybody[0], "parade", without=["picnic"])
    await one.shows(CROWD, "stranger", without=["parade", "picnic"])
    await _is_listed(one, *everybody[1:])  # one has left: the others still see what all of them heard
    await one.shows(CROWD, everybody[7], "parade", without=["picnic"])
    await _is_listed(one, *everybody[1:], "stranger")
    await one.shows(CROWD, everybody[7], without=["parade", "picnic"])
    await _is_listed(one, *everybody[:45])  # those of the first window
    await one.shows(CROWD, everybody[7], "picnic", without=["parade"])
    await _is_listed(one, *everybody[: LISTED_USERS + 1])
    await one.shows(CROWD, everybody[7], "parade", without=["picnic"])
    await one.memory("sessions").update_one(
        {"_id": encode_id(CROWD)}, {"$rename": {"audience_changes": "away"}}
    )
    assert "parade" not in await _rendered(one, everybody[7]), (
        "who belongs to it is not known: it is not shown"
    )
    await one.memory("sessions").update_one(
        {"_id": encode_id(CROWD)}, {"$rename": {"away": "audience_changes"}}
    )


async def _rendered(one: System, name: str) -> str:
    """The context as MongoDB has it now: nothing kept in the process counts."""
    async with MemoryService(AGENT, client=one.database.client, settings=one.settings) as service:
        return await service.get_memory_context(CROWD, name)


async def _exports(one: System) -> None:
    found: dict[str, list[dict[str, Any]]] = await one.service.export_user(user(0))
    assert "parade" in str(found)
    assert user(1) not in str(found)
    for name in ("stranger", user(JOINERS)):
        assert "parade" not in str(await one.service.export_user(name))
    heard = await MongoAudiences(one.database, one.settings.names).heard_by(encode_id(user(JOINERS - 1)))
    assert list(heard.values()) == [encode_id(CROWD)]
