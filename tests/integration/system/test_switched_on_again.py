"""Memory is switched off and on again, then the messages are read again: nothing said in between is formed."""

from collections.abc import Awaitable, Callable, Sequence

import pytest
from rich.console import Console

from eden_memory.cli.replay.rebuild import from_nothing
from eden_memory.mongo.ids import encode_id
from eden_memory.processors.pipeline import FORMATION_TRIGGER
from eden_memory.schemas.events import FormationRequested
from eden_memory.settings import Settings
from tests.awaiting import gives
from tests.integration.system.running_system import System, fast, stages, system, until
from tests.model_server.serving import Serving

pytestmark = pytest.mark.servers
SECRET = "the safe opens with 4711"
KEPT = "memory_inbox"


async def position_lost(at: System) -> None:
    await at.memory("positions").update_one({}, {"$set": {"token": "82" + "00" * 8 + "garbage"}})


async def collection_restored(at: System) -> None:
    rows = await at.source["messages"].find().to_list()
    await at.source["messages"].drop()
    await at.source["messages"].insert_many(rows)


async def everything_lost(at: System) -> None:
    for name in await at.database.list_collection_names():
        if name.startswith("memory_") and name != KEPT:
            await at.database[name].drop()
    await from_nothing(at.settings, Console(quiet=True))


@pytest.mark.parametrize(
    "lose",
    [
        *(pytest.param(one, marks=pytest.mark.slow) for one in (position_lost, collection_restored)),
        everything_lost,
    ],
)
async def test_what_was_said_while_memory_was_off_is_read_again_and_stays_excluded(
    settings: Settings, shared_models: Serving, lose: Callable[[System], Awaitable[None]]
) -> None:
    async with system(fast(settings, shared_models), shared_models, run=False) as at:
        session = await at.session("ann")
        async with stages(at.settings, {FORMATION_TRIGGER}):
            waited = await at.write(session, "ann", SECRET)
            await until(lambda: gives(waiting(at), waited), "it waits")
            await switch(at, session, off=True)
            excluded = await at.write(session, "ann", SECRET, SECRET)
            await until(lambda: ended(at, [*waited, *excluded]), "the tombstones")
            await switch(at, session, off=False)
        before = await versions(at, [*waited, *excluded])
        await lose(at)
        async with stages(at.settings, {FORMATION_TRIGGER}):
            await until(lambda: newer(at, before), "all messages are read again")
            new = await at.write(session, "ann", "the cat is well")
            await at.form(session)
            await until(lambda: windows(at), "a window")
            assert await windows(at) == [new]
            await until(lambda: ended(at, [*waited, *excluded]), "the tombstones, again")
            assert not await stored(at, SECRET)
            await at.source["messages"].update_one({"_id": excluded[0]}, {"$set": {"content": "an edit"}})
            await until(lambda: gives(waiting(at), excluded[:1]), "the edited message waits")
            await at.form(session)
            await until(lambda: gives(windows(at), [new, excluded[:1]]), "a window of the edited message")


async def switch(at: System, session: str, *, off: bool) -> None:
    await at.source["sessions"].update_one({"_id": session}, {"$set": {"incognito": off}})


async def waiting(at: System) -> list[str]:
    """The messages that wait for a window."""
    rows = await at.memory("messages").find({"formation_id": None, "place": {"$gt": 0}}).to_list()
    return sorted(row["_id"].removeprefix("s.") for row in rows)


async def versions(at: System, names: Sequence[str]) -> dict[str, str]:
    """The versions of messages as they are stored."""
    rows = await at.memory("messages").find({"_id": {"$in": [encode_id(one) for one in names]}}).to_list()
    return {row["_id"].removeprefix("s."): row["version"] for row in rows}


async def newer(at: System, before: dict[str, str]) -> bool:
    now = await versions(at, list(before))
    return all(now.get(name, "") > version for name, version in before.items())


async def ended(at: System, names: Sequence[str]) -> bool:
    """Whether the newest record of each message is a tombstone that says why."""
    newest = {one.key: one for one in await at.records("chat.messages")}
    found = [newest.get(encode_id(one)) for one in names]
    return all(one is not None and one.value is None and one.envelope.reason == "opted_out" for one in found)


async def stored(at: System, text: str) -> list[str]:
    """The documents that hold a text."""
    rows = [row for name in ("messages", "windows") for row in await at.memory(name).find().to_list()]
    return [row["_id"] for row in rows if text in str(row)]


async def windows(at: System) -> list[list[str]]:
    """The messages of each window that is asked for, in order."""
    events = [one.event for one in await at.records("memory.formations")]
    asked = {one.formation_id: one for one in events if isinstance(one, FormationRequested)}
    in_order = sorted(asked.values(), key=lambda one: one.seq)
    return [[ref.message_id.removeprefix("s.") for ref in one.messages] for one in in_order]
