"""Messages of a session that adapters read, write and delete: those of its agent and of the users that it lists."""

from collections.abc import Awaitable, Callable

import pytest

from eden_memory.adapters.conversation import ChatMessages, ConversationMemory, TurnMessage
from eden_memory.errors import NotFound
from eden_memory.settings import GatewaySettings
from tests.integration.context.harness import Kit

pytestmark = pytest.mark.servers
SAID = [TurnMessage("user", "I sail.")]
CALLS: tuple[Callable[[ChatMessages], Awaitable[object]], ...] = (
    lambda messages: messages.read(),
    lambda messages: messages.pop(),
    lambda messages: messages.clear(),
    lambda messages: messages.add(SAID),
)


async def test_nobody_else_reaches_a_sessions_messages(kit: Kit) -> None:
    gateway = GatewaySettings(create_sessions=True)  # pyright: ignore[reportCallIssue]
    settings = kit.settings.model_copy(update={"gateway": gateway})
    async with kit.service(settings=settings) as of_a, kit.service("b", settings=settings) as of_b:
        ada = ConversationMemory(of_a, "c1", "ada").messages
        assert await ada.read() == []
        assert await ada.add(SAID) == 1
        for service, user in ((of_a, "bob"), (of_b, "ada"), (of_b, None)):
            for call in CALLS:
                with pytest.raises(NotFound):
                    await call(ConversationMemory(service, "c1", user).messages)
        session = await kit.database["sessions"].find_one({"_id": "c1"})
        assert session == {"_id": "c1", "agent_id": "a", "users": ["ada"]}
        assert await ConversationMemory(of_a, "c1").messages.read() == SAID
        assert await ada.pop() == SAID[0]


async def test_where_sessions_are_not_mapped_writing_in_one_is_joining_it(plain: Kit) -> None:
    gateway = GatewaySettings()  # pyright: ignore[reportCallIssue]
    settings = plain.settings.model_copy(update={"gateway": gateway})
    async with plain.service("support", settings=settings) as service:
        for user in ("ada", "bob"):
            assert await ConversationMemory(service, "c1", user).messages.add(SAID) == 1
        assert await ConversationMemory(service, "c1", "bob").messages.read() == SAID * 2
