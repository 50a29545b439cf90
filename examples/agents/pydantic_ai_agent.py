"""A pydantic-ai agent with memory: the context stands in its instructions, the search is its tool.

    eden up && eden run &                     # memory forms from what is said
    export OPENAI_API_KEY=…                   # OPENAI_BASE_URL and MODEL choose others
    python examples/agents/pydantic_ai_agent.py rui c1 "When did I say that the boat is due?"

It is an application like any other: it writes its chat messages to MongoDB, and that is all that memory needs.
"""

import asyncio
import os
import sys
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from pydantic_ai import Agent, RunContext

from eden_memory.api.service import MemoryService


@dataclass(frozen=True)
class AgentTurn:
    """What one turn is about."""

    memory: MemoryService
    session: str
    user: str
    message: str


agent = Agent(deps_type=AgentTurn, instructions="You help in a boatyard. Be brief.")


@agent.instructions
async def remembered(turn: RunContext[AgentTurn]) -> str:
    """What is known before this turn: data for the model, no instructions."""
    about = turn.deps
    return await about.memory.get_memory_context(about.session, about.user, about.message)


@agent.tool
async def search_facts(turn: RunContext[AgentTurn], queries: list[str]) -> str:
    """Search long-term memory for what was said in earlier conversations; up to 3 phrasings of the question."""
    about = turn.deps
    found = await about.memory.search_facts(queries[:3], session=about.session, user=about.user)
    return (
        "\n".join(f"- {one.content} ({one.formed_at:%Y-%m-%d})" for one in found) or "nothing is known of it"
    )


async def answer(turn: AgentTurn, model: str) -> str:
    """One turn: ask the model, then write both messages as a chat application does."""
    began = datetime.now(UTC)
    result = await agent.run(turn.message, deps=turn, model=model)
    messages: list[dict[str, Any]] = [
        {"role": "user", "content": turn.message, "user_id": turn.user, "created_at": began},
        {"role": "assistant", "content": result.output, "created_at": datetime.now(UTC)},
    ]
    chat = turn.memory.memory.source["messages"]  # the application's own collection, by any client
    await chat.insert_many([{"session_id": turn.session, **one} for one in messages])
    return result.output


async def main(user: str, session: str, message: str) -> None:
    """Answer one message."""
    async with MemoryService() as memory:
        turn = AgentTurn(memory, session, user, message)
        print(await answer(turn, os.environ.get("MODEL", "openai-chat:gpt-5-mini")))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
