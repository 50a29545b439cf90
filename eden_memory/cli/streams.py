"""`eden stream list|show|set|off`: how an agent's scopes and shards are formed (`memory_streams`)."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Annotated, Any, TypeVar

import typer

from eden_memory.cli.live_namespace import agent_and_user, typed_ids
from eden_memory.cli.tables import show_table
from eden_memory.directory.stream_store import NAMES, SETTABLE, StreamName, StreamStore, label
from eden_memory.errors import Invalid
from eden_memory.replay.installation import installation
from eden_memory.schemas.documents import Stream
from eden_memory.settings import Settings

T = TypeVar("T")
app = typer.Typer(
    help="Configure an agent's scopes and shards: guidance, thresholds, limits, switches.",
    no_args_is_help=True,
)
Agent = Annotated[str, typer.Argument(help="the agent, as in the application or typed: s.TEXT, o.OBJECTID")]
Label = Annotated[
    str, typer.Argument(metavar="SCOPE", help="agent, group, user, session, or shard:NAME for a shard")
]
AsJson = Annotated[bool, typer.Option("--json", help="JSON on standard output")]


@app.command("list")
def list_(
    agent: Annotated[str | None, typer.Option(help="only of this agent")] = None, as_json: AsJson = False
) -> None:
    """Every stream: its agent, its scope, whether it is active, and what it sets."""
    agent_id, _ = agent_and_user(agent, None)
    found = _run(lambda streams: streams.list(agent_id))
    if as_json:
        typer.echo(json.dumps([_shown(stream) for stream in found], indent=2))
        return
    if not found:
        typer.echo("no streams: every scope is formed by the settings, and there are no shards")
        return
    rows = (
        (stream.agent_id, label(stream), "yes" if stream.active else "no", ", ".join(_sets(stream)))
        for stream in found
    )
    show_table(("agent", "scope", "active", "sets"), rows, "", whole=("agent",))


def _sets(stream: Stream) -> list[str]:
    return [name for name in _shown(stream) if name not in NAMES | {"active"}]


@app.command()
def show(agent: Agent, scope: Label) -> None:
    """The document of a stream, as JSON. Exit code 3 if there is none."""
    name = _named(agent, scope)
    typer.echo(json.dumps(_shown(_run(lambda streams: streams.get(name))), indent=2))


@app.command("set")
def set_(
    agent: Agent,
    scope: Label,
    fields: Annotated[
        list[str],
        typer.Argument(metavar="FIELD=VALUE…", help=f"{', '.join(sorted(SETTABLE))}; FIELD= unsets it"),
    ],
) -> None:
    """Set fields of a stream, or make it; windows that are requested from now on are formed so.

    Examples:

    eden stream set support user threshold=6 word_limit=250

    eden stream set support shard:pricing extraction_guidance="Prices and quotes, with dates."

    eden stream set support group active=true
    """
    name, given = _named(agent, scope), dict(map(_pair, fields))
    stream = _run(lambda streams: streams.set(name, given))
    typer.echo(f"{label(stream)} of {stream.agent_id}: {json.dumps(_shown(stream))}")


@app.command()
def off(agent: Agent, scope: Label) -> None:
    """Switch a scope or shard off: it is neither formed nor shown; what is stored of it stays.

    `eden stream set AGENT SCOPE active=true` switches it on again. A session's own memory is always formed.
    """
    name = _named(agent, scope)
    stream = _run(lambda streams: streams.set(name, {"active": False}))
    typer.echo(f"{label(stream)} of {stream.agent_id} is off")


def _named(agent: str, scope: str) -> StreamName:
    (agent_id,) = typed_ids([("agent", agent)])
    return StreamName.parse(agent_id, scope)


def _pair(text: str) -> tuple[str, str | None]:
    name, equals, value = text.partition("=")
    if not equals or name in NAMES:
        raise Invalid(f"{text!r} sets nothing", f"Give FIELD=VALUE; the fields are {', '.join(SETTABLE)}.")
    return name, value or None


def _run(work: Callable[[StreamStore], Awaitable[T]]) -> T:
    async def done() -> T:
        async with installation(Settings()) as at:
            return await work(StreamStore(at.database, at.settings))

    return asyncio.run(done())


def _shown(stream: Stream) -> dict[str, Any]:
    """Its document, without what is unset."""
    return {name: value for name, value in stream.stored().items() if value is not None}
