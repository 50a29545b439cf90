"""OpenAI Agents SDK: a session in the chat collection, the search tool, and instructions (extra `openai-agents`)."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, cast

from eden_memory.adapters.conversation import SEARCH, ConversationMemory, TurnMessage
from eden_memory.errors import needs_extra

with needs_extra("eden_memory.adapters.openai_agents", "openai-agents"):
    from agents import FunctionTool, TResponseInputItem
    from agents.memory import SessionABC, SessionSettings
    from agents.tool_context import ToolContext

from eden_memory.mongo.document_fields import Unusable, text_of


class ChatSession(SessionABC):
    """A conversation's history in the application's chat collection, from which memory is formed.

    It holds what user and assistant said; tool calls and their results are not stored. `pop_item` and
    `clear_session` delete messages, so memory forgets what it derived from them.
    """

    session_settings: SessionSettings | None = None

    def __init__(self, memory: ConversationMemory) -> None:
        self.session_id = str(memory.session)
        self._messages = memory.messages

    async def get_items(self, limit: int | None = None) -> list[TResponseInputItem]:
        """Return the newest messages, oldest first."""
        return [_item(said) for said in await self._messages.read(limit)]

    async def add_items(self, items: list[TResponseInputItem]) -> None:
        """Write the messages among the items."""
        await self._messages.add([said for item in items if (said := _said(cast("Any", item))) is not None])

    async def pop_item(self) -> TResponseInputItem | None:
        """Delete the newest message, and return it."""
        said = await self._messages.pop()
        return None if said is None else _item(said)

    async def clear_session(self) -> None:
        """Delete all messages of the session."""
        await self._messages.clear()


def search_tool(memory: ConversationMemory) -> FunctionTool:
    """Return the tool that searches memory, for `Agent(tools=[…])`; it is off where the agent is not offered it."""

    async def search(context: ToolContext[Any], arguments: str) -> str:
        del context
        return await memory.search(arguments)

    async def offered(context: Any, agent: Any) -> bool:
        del context, agent
        return await memory.offers_search_tool()

    return FunctionTool(
        SEARCH["name"],
        SEARCH["description"],
        SEARCH["parameters"],
        search,
        strict_json_schema=False,
        is_enabled=offered,
    )


def instructions(memory: ConversationMemory, own: str = "") -> Callable[[Any, Any], Awaitable[str]]:
    """Return `Agent(instructions=…)`: your own text, then what is known before the turn."""

    async def context(run: Any, agent: Any) -> str:
        del run, agent
        return "\n\n".join(filter(None, (own, await memory.instructions())))

    return context


def _said(item: Mapping[str, Any]) -> TurnMessage | None:
    role = item.get("role")
    if role not in ("user", "assistant"):
        return None
    try:
        return TurnMessage(role, text_of(item.get("content")))
    except Unusable:
        return None


def _item(said: TurnMessage) -> TResponseInputItem:
    return cast("TResponseInputItem", {"role": said.role, "content": said.text})
