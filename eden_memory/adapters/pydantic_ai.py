"""pydantic-ai: a toolset that searches memory, and whose instructions hold the context (extra `pydantic-ai`)."""

from collections.abc import Callable
from typing import Any, TypeVar

from eden_memory.adapters.conversation import SEARCH, ConversationMemory
from eden_memory.errors import needs_extra

with needs_extra("eden_memory.adapters.pydantic_ai", "pydantic-ai"):
    from pydantic_ai import FunctionToolset, RunContext, Tool
    from pydantic_ai.tools import ToolDefinition

D = TypeVar("D")


def memory_toolset(memory_of: Callable[[RunContext[D]], ConversationMemory]) -> FunctionToolset[D]:
    """Return a toolset for `Agent(toolsets=[…])`; `memory_of` says whose memory a run reads."""

    async def search_facts(run: RunContext[D], **arguments: Any) -> str:
        return await memory_of(run).search(arguments)

    async def context(run: RunContext[D]) -> str:
        return await memory_of(run).instructions(run.prompt if isinstance(run.prompt, str) else None)

    tool = Tool[D].from_schema(
        search_facts, SEARCH["name"], SEARCH["description"], SEARCH["parameters"], takes_ctx=True
    )

    async def offered(run: RunContext[D], definition: ToolDefinition) -> ToolDefinition | None:
        return definition if await memory_of(run).offers_search_tool() else None

    tool.prepare = offered
    return FunctionToolset[D]([tool], instructions=context)
