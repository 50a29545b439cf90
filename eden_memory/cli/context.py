"""`eden context`: what an agent is given before a turn in a session."""

import asyncio
import json
from dataclasses import asdict
from typing import Annotated, Any

import typer

from eden_memory.api.service import MemoryService
from eden_memory.domain.context.visible import Asked
from eden_memory.domain.source.message_fields import getter
from eden_memory.domain.windows.participants import DEFAULT_AGENT
from eden_memory.local.servers import endpoints
from eden_memory.mongo.client import connect
from eden_memory.mongo.ids import decode_id, encode_id
from eden_memory.mongo.source.requests import session_of, user_of
from eden_memory.mongo.trigger.presence import MongoPresence
from eden_memory.settings import Settings

SessionId = Annotated[
    str, typer.Argument(help="as in the application, or typed: s.TEXT, i.NUMBER, u.UUID, o.OBJECTID")
]
User = Annotated[str | None, typer.Option(help="whose context; unset: the session's only user")]
Agent = Annotated[str | None, typer.Option(help="the agent, typed (s.TEXT, o.…); unset: the session's")]
Message = Annotated[str | None, typer.Option(help="the user's message: what it asks of the past is searched")]
Stats = Annotated[bool, typer.Option("--stats", help="numbers of each visible scope, as JSON, in its place")]


def context(
    session: SessionId,
    user: User = None,
    agent: Agent = None,
    message: Message = None,
    stats: Stats = False,
) -> None:
    """Print the context of a session's user: the XML for the agent's prompt."""
    found = asyncio.run(_context(Settings(), session, user, agent, message, stats=stats))
    if found:
        typer.echo(found)
    else:
        typer.echo("nothing is remembered that could be shown here", err=True)


async def _context(
    settings: Settings,
    session: str,
    user: str | None,
    agent: str | None,
    message: str | None,
    *,
    stats: bool,
) -> str:
    paths = settings.messages
    async with connect(settings.mongodb, endpoints(settings).mongodb) as client:
        source = client[settings.source_database]
        name = await session_of(source, paths.collection, paths.session_id, session)
        agent_id = await _agent(settings, source, name) if agent is None else decode_id(agent)
        if user is None:
            users = await _only_user(settings, client, Asked(encode_id(agent_id), encode_id(name)))
        else:
            users = await user_of(source, paths.collection, paths.user_id, user)
        async with MemoryService(agent_id, client=client, settings=settings) as service:
            if stats:
                numbers = await service.get_memory_stats(name, users)
                return json.dumps({one: asdict(of) for one, of in numbers.items()}, indent=2, default=str)
            return await service.get_memory_context(name, users, message)


async def _agent(settings: Settings, source: Any, session: Any) -> Any:
    """As the session's document says; where sessions are not mapped, the only one there is."""
    mapped = settings.sessions
    row = await source[mapped.collection].find_one({"_id": session}) if mapped.collection else None
    named = getter(mapped.agent_id)(row) if row is not None else None
    return decode_id(DEFAULT_AGENT) if named is None else named


async def _only_user(settings: Settings, client: Any, asked: Asked) -> Any:
    """None where there are several, or none is known."""
    presence = MongoPresence(client[settings.source_database], client[settings.mongodb.database], settings)
    (present,) = (await presence.look_up([asked])).values()
    users = tuple(present.users or ())
    return decode_id(users[0]) if len(users) == 1 else None
