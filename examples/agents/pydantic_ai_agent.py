"""A pydantic-ai agent with memory: a toolset searches it, and puts the context into the instructions.

    eden up && eden run &                     # memory forms from what is said
    export OPENAI_API_KEY=…                   # OPENAI_BASE_URL and MODEL choose others
    python examples/agents/pydantic_ai_agent.py rui c1 "When did I say that the boat is due?"

It is an application like any other: it writes its chat messages to MongoDB, and that is all that memory needs.
"""

import asyncio
import os
import sys
from datetime import UTC, datetime

from pydantic_ai import Agent

from eden_memory.adapters.conversation import ConversationMemory, TurnMessage
from eden_memory.adapters.pydantic_ai import memory_toolset
from eden_memory.api.service import MemoryService

agent = Agent(
    deps_type=ConversationMemory,
    instructions="You help in a boatyard. Be brief.",
    toolsets=[memory_toolset(lambda run: run.deps)],
)


async def answer(memory: ConversationMemory, message: str, model: str) -> str:
    """One turn: ask the model, then write both messages as a chat application does."""
    began = datetime.now(UTC)
    result = await agent.run(message, deps=memory, model=model)
    await memory.messages.add([TurnMessage("user", message)], began)
    await memory.messages.add([TurnMessage("assistant", result.output)])
    return result.output


async def main(user: str, session: str, message: str) -> None:
    """Answer one message."""
    async with MemoryService() as service:
        memory = ConversationMemory(service, session, user)
        print(await answer(memory, message, os.environ.get("MODEL", "openai-chat:gpt-5-mini")))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
