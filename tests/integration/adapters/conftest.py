"""One running memory for the tests of this folder: everything runs, rules form memory, a provider is imitated."""

import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest

from eden_memory.adapters.conversation import ConversationMemory
from eden_memory.api.service import Memory
from eden_memory.settings import Settings
from tests.integration.gateway.gateway_kit import running
from tests.integration.system.conftest import shared_settings as shared_settings  # noqa: PLC0414
from tests.integration.system.running_system import prepare, stages, until
from tests.model_server.chat_upstream import ChatUpstream, Reply, chat_upstream


@dataclass(frozen=True)
class Lived:
    """A memory, and the provider of the agents that use it."""

    settings: Settings
    memory: Memory
    provider: ChatUpstream

    def of(self, session: str, user: str) -> ConversationMemory:
        return ConversationMemory(self.memory.agent(), session, user)

    def answers(self, *replies: Reply) -> None:
        """What the provider says next, in order."""
        left = iter(replies)
        self.provider.reply = partial(_next, left)

    async def formed(self, conversation: ConversationMemory, word: str) -> None:
        """Form what was said, and wait until a fact holds this word."""
        await conversation.service.form_now(conversation.session)
        await until(partial(self._known, conversation, word), f"a fact about {word}")

    async def _known(self, conversation: ConversationMemory, word: str) -> bool:
        facts = await conversation.service.list_facts(user=conversation.user)
        return any(word in fact.content for fact in facts.items)


@pytest.fixture(scope="module")
async def lived(shared_settings: Settings) -> AsyncGenerator[Lived]:
    async with chat_upstream() as provider:
        settings = running(shared_settings, provider.openai_url)
        await prepare(settings)
        async with stages(settings), Memory(settings) as memory:
            yield Lived(settings, memory, provider)


def call_of_search(*queries: str) -> Reply:
    """The model calls the search tool."""
    function = {"name": "search_facts", "arguments": json.dumps({"queries": queries})}
    return Reply((), tool_calls=[{"id": "call-1", "type": "function", "function": function}])


async def eventually(holds: Callable[[], Awaitable[Any]], what: str) -> None:
    async def condition() -> bool:
        return bool(await holds())

    await until(condition, what)


def _next(replies: Iterator[Reply], body: Any) -> Reply:
    del body
    return next(replies)
