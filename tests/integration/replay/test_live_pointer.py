"""The pointer to what is live: one of several switches wins, nothing unready is switched to, all hear of it."""

import asyncio
from contextlib import aclosing
from datetime import UTC, datetime
from typing import Any, Literal

import pytest

from eden_memory.errors import EdenError
from eden_memory.mongo.client import connect
from eden_memory.names import Placement
from eden_memory.replay.comparing.comparing import ReportRequest, compared
from eden_memory.replay.installation import installation
from eden_memory.replay.namespaces.dropping import drop
from eden_memory.replay.namespaces.namespace_store import MongoLive
from eden_memory.replay.reform.reform_store import alone
from eden_memory.schemas.documents import Namespace
from eden_memory.settings import Settings

pytestmark = pytest.mark.servers
ORIGINAL, MAY, JUNE = Placement(), Placement("may"), Placement("june", "june")
State = Literal["filling", "caught_up", "verified", "dropped"]


def document(placement: Placement, state: State = "caught_up") -> dict[str, Any]:
    return Namespace(
        id=placement.memory,
        kind="rebuild",
        prefix=f"memory_ns_{placement.memory}_",
        group=f"atlas-writer.{placement.memory}",
        source="memory_",
        pipeline=placement.pipeline,
        state=state,
        created_at=datetime.now(UTC),
    ).stored()


async def test_one_of_several_switches_wins_and_all_who_follow_hear_of_it(settings: Settings) -> None:
    assert settings.mongodb.uri is not None
    async with connect(settings.mongodb.uri.get_secret_value()) as client:
        database = client[settings.mongodb.database]
        live = MongoLive(database, "memory_")
        await database["memory_namespaces"].insert_many([document(MAY), document(JUNE)])
        async with aclosing(live.changes()) as changes:
            assert await anext(changes) == ORIGINAL
            for expected, others in ((ORIGINAL, (MAY, JUNE)), (None, (ORIGINAL, MAY, JUNE))):
                before = expected or await live.placement()
                targets = [one for one in others if one != before] * 4
                ended = await asyncio.gather(
                    *(live.switch(one, before) for one in targets), return_exceptions=True
                )
                assert [type(one) for one in ended if one is not None] == [EdenError] * (len(targets) - 1)
                now = targets[ended.index(None)]
                assert await live.placement() == now
                async with asyncio.timeout(60):
                    assert await anext(changes) == now
        document_ = await live.read()
        assert document_ is not None
        assert (document_.revision, document_.previous is not None) == (2, True)


async def test_what_is_not_ready_never_becomes_live(settings: Settings) -> None:
    assert settings.mongodb.uri is not None
    async with connect(settings.mongodb.uri.get_secret_value()) as client:
        database = client[settings.mongodb.database]
        live = MongoLive(database, "memory_")
        await database["memory_namespaces"].insert_many(
            [document(MAY, "filling"), document(JUNE, "dropped"), document(Placement("ready"))]
        )
        for to in (MAY, JUNE, Placement("nobody"), Placement("ready", "june")):
            with pytest.raises(EdenError):
                await live.switch(to, ORIGINAL)
        assert await live.read() is None
        await live.switch(Placement("ready"), ORIGINAL)
        await live.switch(ORIGINAL, Placement("ready"))
        await database["memory_namespaces"].insert_one(document(ORIGINAL, "dropped"))
        await live.switch(Placement("ready"), ORIGINAL)
        with pytest.raises(EdenError):
            await live.switch(ORIGINAL, Placement("ready"))


async def test_what_a_command_is_forming_is_not_dropped(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not even while it only reads chat, and is in no group yet."""
    async with installation(settings) as at:
        await at.database["memory_namespaces"].insert_one({**document(JUNE, "filling"), "kind": "reform"})
        async with alone(at.database, at.settings.names, "june"):
            monkeypatch.setattr("eden_memory.replay.reform.reform_store.BUSY_SECONDS", 0.5)
            with pytest.raises(EdenError, match="another command is forming june"):
                await drop(at, "june")
        found = await at.namespaces.get("june")
    assert found is not None
    assert found.state == "filling"


async def test_what_is_live_is_not_compared_with_what_was_dropped(settings: Settings) -> None:
    async with installation(settings) as at:
        await at.database["memory_namespaces"].insert_many([document(MAY), document(ORIGINAL)])
        await at.live.switch(MAY, ORIGINAL)
        await at.live.give_up(ORIGINAL)
        with pytest.raises(EdenError, match="what was live before is dropped"):
            await compared(settings, at.database, "may", ReportRequest())
        with pytest.raises(EdenError, match="no namespace original"):
            await compared(settings, at.database, "may", ReportRequest(against="original"))
