"""`eden mcp`: serve MCP on standard input and output, for a host that starts it."""

import asyncio
import os
from contextlib import suppress
from typing import Annotated

import typer

from eden_memory.api.mcp.mcp_server import serve_stdio
from eden_memory.api.service import Memory
from eden_memory.cli import structured_logs
from eden_memory.directory.id_reader_store import IdKind
from eden_memory.settings import Settings

Agent = Annotated[
    str | None,
    typer.Option(
        envvar="EDEN_MCP_AGENT", help="whose memory it is; unset: by the key, else the default agent"
    ),
]
User = Annotated[
    str | None, typer.Option(envvar="EDEN_MCP_USER", help="the user; set, no call can name another one")
]
Session = Annotated[
    str | None,
    typer.Option(envvar="EDEN_MCP_SESSION", help="the conversation; set, no call can name another one"),
]


def mcp(
    agent: Agent = None,
    user: User = None,
    session: Session = None,
    debug: Annotated[bool, typer.Option("--debug", help="more log lines, and stack traces")] = False,
) -> None:
    """Serve memory to an MCP host over standard input and output, until the host closes it.

    The API key is taken from EDEN_KEY. Without one everything in this database is open to the host: fix the
    user then.

    Example:

      eden mcp --agent default --user mara
    """
    structured_logs.configure(debug=debug)
    given: dict[IdKind, str | None] = {"agent": agent, "user": user, "session": session}
    fixed: dict[IdKind, str] = {name: value for name, value in given.items() if value}
    with suppress(KeyboardInterrupt):
        asyncio.run(_serve(Settings(), os.environ.get("EDEN_KEY") or None, fixed))


async def _serve(settings: Settings, key: str | None, fixed: dict[IdKind, str]) -> None:
    async with Memory(settings) as memory:
        await serve_stdio(memory, key, fixed)
