"""Session documents that the gateway makes: they never leave out somebody who writes in the session."""

from collections.abc import AsyncGenerator
from typing import Any

import pytest

from eden_memory.api.gateway.chat_access import isolated_user
from eden_memory.settings import Settings
from tests.integration.gateway.gateway_kit import Chats, behind, chats_of
from tests.model_server.chat_upstream import ChatUpstream

pytestmark = pytest.mark.servers
SECRET = "Keeps gold under the floor."


@pytest.fixture
async def making(own_settings: Settings, provider: ChatUpstream) -> AsyncGenerator[Chats]:
    """Sessions are mapped, and the gateway makes their documents."""
    sessions = own_settings.sessions.model_copy(update={"collection": "sessions"})
    settings = behind(own_settings, provider.openai_url, create_sessions=True)
    provider.came.clear()
    async with chats_of(settings.model_copy(update={"sessions": sessions}), provider) as chats:
        yield chats


async def _say(chats: Chats, session: str, **who: Any) -> str:
    """A chat whose turns are stored; what the provider received."""
    await chats.say("Hi", memory_id=session, **who)
    await chats.gateway.keeping.idle()
    return chats.came.raw.decode()


async def _wrote(chats: Chats, session: str, author: str | None) -> None:
    """A message that the application stores itself."""
    message = {"session_id": session, "role": "user", "content": "Hello", "user_id": author}
    await chats.kit.database["messages"].insert_one(message)


async def _document(chats: Chats, session: str) -> dict[str, Any] | None:
    return await chats.kit.database["sessions"].find_one({"_id": session})


@pytest.mark.parametrize("document", [{"agent_id": "default"}, {"agent_id": "default", "users": []}, None])
@pytest.mark.parametrize("author", ["bob", None])
async def test_who_has_written_before_stays_present(
    making: Chats, session: str, user: str, author: str | None, document: dict[str, Any] | None
) -> None:
    if document is not None:
        await making.kit.database["sessions"].insert_one({"_id": session, **document})
    await _wrote(making, session, author)
    await making.remembers(user, SECRET)
    await _say(making, session, user=user)
    made = await _document(making, session)
    assert made == {"_id": session, "agent_id": "default"}, "the authors are its users"
    if author is not None:
        assert SECRET not in await _say(making, session, user=user)


async def test_users_who_speak_are_listed_one_after_the_other(making: Chats, session: str, user: str) -> None:
    await making.remembers(user, SECRET)
    await _say(making, session, user=user)
    assert SECRET in await _say(making, session, user=user)
    await _say(making, session, user="bob")
    assert await _document(making, session) == {
        "_id": session,
        "agent_id": "default",
        "users": [user, "bob"],
    }
    assert SECRET not in await _say(making, session, user=user)


async def test_who_speaks_after_a_chat_without_a_user_is_listed_beside_its_own(
    making: Chats, session: str, user: str
) -> None:
    await making.remembers(user, SECRET)
    await _say(making, session)
    await _say(making, session, user=user)
    listed = [isolated_user(session), user]
    assert await _document(making, session) == {"_id": session, "agent_id": "default", "users": listed}
    assert SECRET not in await _say(making, session, user=user)


async def test_a_document_that_the_application_deletes_or_changes_is_made_good_by_the_next_chat(
    making: Chats, session: str, user: str
) -> None:
    sessions = making.kit.database["sessions"]
    await _say(making, session, user=user)
    made = await _document(making, session)
    await sessions.delete_one({"_id": session})
    await _say(making, session, user=user)
    assert await _document(making, session) == made
    await sessions.update_one({"_id": session}, {"$set": {"users": ["bob"]}})
    await _say(making, session, user=user)
    assert await _document(making, session) == {"_id": session, "agent_id": "default", "users": ["bob", user]}
