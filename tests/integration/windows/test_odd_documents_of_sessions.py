"""A document of a session or a user that cannot be read holds back its own session, and no other of the partition."""

from typing import Any

import pytest
from bson import DatetimeMS, DBRef

from tests.awaiting import until
from tests.integration.source.odd_documents import BAD_UUID
from tests.integration.stages_on_servers import PARTITIONS
from tests.integration.windows.harness import Kit, changed
from tests.unit.windows.records import asked, message, watermark

pytestmark = pytest.mark.servers
MAPPED = {"sessions": {"collection": "sessions"}, "users": {"collection": "users"}}
ODD: dict[str, Any] = {"by": BAD_UUID, "until": DatetimeMS(2**62), "of": DBRef("c", BAD_UUID)}


async def test_windows_close_beside_odd_documents_of_the_application(kit: Kit) -> None:
    await kit.database["users"].insert_many([{"_id": 1, **ODD}, {"_id": 2.0, "name": "no id"}])
    await kit.database["sessions"].insert_many(
        [
            {"_id": "odd", "users": [1], **ODD},
            {"_id": "wrong", "agent_id": BAD_UUID, "users": [1]},
            {"_id": "good", "users": [1, 2]},
        ]
    )
    sessions = ("s.odd", "s.wrong", "s.good")
    async with kit.running(changed(kit.settings, **MAPPED)), kit.topic("memory.formations") as formations:
        await kit.put([message(f"s.m{n}", name, n, 0, user="i.1") for n, name in enumerate(sessions, 1)])
        await kit.put([asked(name, 10 + n, 1) for n, name in enumerate(sessions)])
        await kit.put(watermark(90, 15, partition) for partition in range(PARTITIONS))
        await formations.until(2)
        assert {window.session_id for window in formations.windows} == {"s.odd", "s.good"}
    waits = (await kit.state("s.wrong"))["waits_for"]
    assert "agent_id of the document s.wrong" in waits


async def test_windows_close_beside_stored_messages_that_cannot_be_read(kit: Kit) -> None:
    """A Watermark closes quiet sessions of a partition together; what stands in our own collections may be broken."""
    sessions = [f"s.good{number}" for number in range(2 * PARTITIONS)] + ["s.broken"]
    waiting = [message(f"{name}m{n}", name, n, 0) for name in sessions for n in range(1, 6)]
    async with kit.running():
        await kit.put(waiting)
        await until(lambda: _waits(kit, len(waiting)), "all messages wait")
    await kit.database["memory_messages"].update_one({"_id": "s.brokenm2"}, {"$unset": {"role": ""}})
    async with kit.running(), kit.topic("memory.formations") as formations:
        await kit.put(watermark(90, 15, partition) for partition in range(PARTITIONS))
        await formations.until(len(sessions) - 1)
        assert {window.session_id for window in formations.windows} == set(sessions) - {"s.broken"}


async def _waits(kit: Kit, count: int) -> bool:
    return len(await kit.waiting()) == count
