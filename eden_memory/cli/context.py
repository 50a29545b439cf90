"""`eden context`: the context that an agent gets before a turn in a session."""

import asyncio
from typing import Annotated

import typer

from eden_memory.cli import terminal
from eden_memory.cli.memory.viewer import AS_ID, NOTHING, Agent, AsJson, nothing, say_why, who
from eden_memory.memory.memory_views import ScopeStats
from eden_memory.operations.empty_because import EmptyBecause, empty_because
from eden_memory.operations.parameters import ContextText
from eden_memory.operations.table import BY_NAME
from eden_memory.replay.installation import installation
from eden_memory.settings import Settings
from eden_memory.source.inbox_store import named_session

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
    if stats:
        terminal.show_json(asyncio.run(_stats(session, user, agent)))
        return
    found, because = asyncio.run(_context(session, user, agent, message))
    if as_json:
        terminal.show_json({"context": found})
    elif found:
        typer.echo(terminal.plain(found))
    else:
        typer.echo(nothing(NOTHING, user), err=True)
    say_why(because)


async def _stats(session: str, user: str | None, agent: str | None) -> dict[str, ScopeStats]:
    async with who(Settings(), agent, session, user, alone=True) as viewer:
        return await viewer.memory.get_memory_stats(viewer.session, viewer.user)


async def _context(
    session: str, user: str | None, agent: str | None, message: str | None
) -> tuple[str, EmptyBecause | None]:
    async with who(Settings(), agent, session, user, alone=True) as viewer:
        found = await viewer.memory.get_memory_context(viewer.session, viewer.user, message)
        if not found:
            await _demand(Settings(), session)
        return found, await empty_because(viewer.call, BY_NAME["context"], ContextText(context=found))


async def _demand(settings: Settings, session: str) -> None:
    """Return the session's id; a typed id unchanged; raises NotFound if nothing names the session."""
    async with installation(settings) as at:
        await named_session(at.source, at.database, at.settings, session)
