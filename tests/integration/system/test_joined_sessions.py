"""Messages name their session by another field than its `_id`: whose it is, who is present, what is kept out."""

from typing import Any

import pytest

from eden_memory.settings import Settings
from tests.integration.system.running_system import AGENT, System, fast, system
from tests.model_server.serving import Serving

pytestmark = pytest.mark.servers
JOINED = {"id": "chat.id", "users": "owner", "exclude": ("isTemporary",)}


async def chat(at: System, name: str, owner: str, **fields: Any) -> None:
    row = {"chat": {"id": name}, "owner": owner, "agent_id": AGENT, **fields}
    await at.source["sessions"].insert_one(row)


async def says(at: System, session: str, *texts: str) -> list[str]:
    """Messages that name no author, as programs write them that keep the user with the chat; their ids."""
    names = await at.write(session, "nobody", *texts)
    await at.source["messages"].update_many({"_id": {"$in": names}}, {"$unset": {"user_id": ""}})
    return names


async def test_a_session_is_found_by_the_field_that_messages_name(
    settings: Settings, shared_models: Serving
) -> None:
    mapped = fast(settings, shared_models, sessions=JOINED, users={"collection": None})
    async with system(mapped, shared_models) as at:
        sessions = at.source["sessions"]
        await chat(at, "told", "ana")
        await chat(at, "asks", "ana")
        await chat(at, "temporary", "ana", isTemporary=True)
        await says(at, "temporary", "fact user: The dog is called Skot.")
        await says(at, "told", "fact user: The boat is called Gaivota.")
        await at.form("temporary")
        await at.form("told")
        await at.shows("asks", "ana", "Gaivota", without=["<Recent>"])
        assert len(await at.facts("ana")) == 1
        said = [record.value for record in await at.records("chat.messages") if record.value is not None]
        assert any(b"Gaivota" in value for value in said)
        assert not any(b"Skot" in value for value in said)

        asks = {"chat.id": "asks"}
        await sessions.update_one(asks, {"$set": {"owner": "rui"}})
        await at.shows("asks", "ana", without=["Gaivota"])
        await sessions.update_one(asks, {"$set": {"owner": "ana"}})
        await at.shows("asks", "ana", "Gaivota")
        await chat(at, "asks", "rui")  # a document for each user
        await at.shows("asks", "ana", without=["Gaivota"])
        await sessions.delete_one({**asks, "owner": "rui"})
        await at.shows("asks", "ana", "Gaivota")
        await sessions.delete_many(asks)
        await at.shows("asks", "ana", without=["Gaivota"])
