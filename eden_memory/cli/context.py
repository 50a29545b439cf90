"""`eden context`: what an agent is given before a turn in a session."""

import asyncio
from typing import Annotated

import typer

from eden_memory.api.results import ScopeStats
from eden_memory.cli.memory import terminal
from eden_memory.cli.memory.who import AS_ID, Agent, AsJson, nothing, who
from eden_memory.cli.sessions import named_session
from eden_memory.local.servers import endpoints
from eden_memory.mongo.client import connect
from eden_memory.settings import Settings

SessionId = Annotated[str, typer.Argument(help=AS_ID)]
User = Annotated[str | None, typer.Option(help="whose context; unset: the session's only user")]
Message = Annotated[str | None, typer.Option(help="the user's message: what it asks of the past is searched")]
Stats = Annotated[bool, typer.Option("--stats", help="numbers of each visible scope, as JSON, in its place")]


def context(
    session: SessionId,
    user: User = None,
    agent: Agent = None,
    message: Message = None,
    stats: Stats = False,
    as_json: AsJson = False,
) -> None:
    """Print the context of a session's user: the XML for the agent's prompt.

    Examples:

    eden context s1

    eden context s1 --user ada --message "what did I say about Lyon?"
    """
    found = asyncio.run(_context(session, user, agent, message, stats=stats))
    if not isinstance(found, str):
        terminal.show_json(found)
    elif as_json:
        terminal.show_json({"context": found})
    elif found:
        typer.echo(terminal.plain(found))
    else:
        typer.echo(nothing("nothing is remembered that could be shown here", user), err=True)


async def _context(
    session: str, user: str | None, agent: str | None, message: str | None, *, stats: bool
) -> str | dict[str, ScopeStats]:
    async with who(Settings(), agent, session, user, alone=True) as one:
        if stats:
            return await one.memory.get_memory_stats(one.session, one.user)
        found = await one.memory.get_memory_context(one.session, one.user, message)
        if not found:
            await _demand(Settings(), session)
        return found


async def _demand(settings: Settings, session: str) -> None:
    """NotFound where nothing names the session; a typed id is taken as it is."""
    async with connect(settings.mongodb, endpoints(settings).mongodb) as client:
        await named_session(settings, client, session)
