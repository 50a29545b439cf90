"""`eden capture`: the hook of a coding agent that writes its turns into the chat collection."""

import asyncio
import getpass
import sys
from typing import Annotated

import typer

from eden_memory.adapters.coding_agents import CapturedTurn, captured
from eden_memory.adapters.conversation import ConversationMemory
from eden_memory.api.service import Memory
from eden_memory.errors import EdenError

SECONDS = 10.0
"""The agent waits for its hook."""


def capture(
    event: Annotated[str | None, typer.Argument(help="the hook's JSON; without it, standard input")] = None,
    *,
    user: Annotated[str | None, typer.Option(help="whose turns these are; your login name if unset")] = None,
    agent: Annotated[str, typer.Option(help="the agent whose memory forms from them")] = "default",
) -> None:
    """Write a coding agent's turn, which its hook gives as JSON, into the chat collection.

    It prints nothing.

    Examples:

    echo '{"hook_event_name": "UserPromptSubmit", "session_id": "s1", "prompt": "Use tabs."}' | eden capture
    """
    turn = captured(sys.stdin.read() if event is None else event)
    if turn.said:
        asyncio.run(_write(turn, user or getpass.getuser(), agent))


async def _write(turn: CapturedTurn, user: str, agent: str) -> None:
    try:
        async with asyncio.timeout(SECONDS), Memory() as memory:
            service = memory.agent(await memory.ids.read("agent", agent))
            author = await memory.ids.read("user", user)
            await ConversationMemory(service, turn.session, author).messages.add(turn.said)
    except TimeoutError:
        raise EdenError(
            "MongoDB does not answer: the turn was not stored", "`eden doctor` says why."
        ) from None
