"""`eden trace`: follow a message to the memory that came of it, or a memory back to the messages it rests on."""

import asyncio
import json
from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Any

import typer
from rich.text import Text
from rich.tree import Tree

from eden_memory.cli.memory.viewer import Agent, Session, User, who
from eden_memory.cli.tables import console
from eden_memory.cli.terminal import as_written, moment, plain
from eden_memory.observability.causal_chain import Node
from eden_memory.observability.causal_chain_store import CausalChains, Tracer
from eden_memory.replay.installation import installation
from eden_memory.settings import Settings

SAID = ("reason", "waits_for", "model", "prompt")
"""Named in a node and no ids."""
SO = {"asked_for": "formation requested"}
"""In place of a name that is a question."""
STYLES = {"message": "cyan", "window": "bold", "call": "yellow", "fact": "green", "reflection": "magenta"}


def trace(
    name: Annotated[
        str,
        typer.Argument(
            metavar="ID",
            help="a message, a fact (with @VERSION or without), a reflection, a formation, "
            "or a blob by its scope key: user:AGENT:USER, …@VERSION",
        ),
    ],
    agent: Agent = None,
    session: Session = None,
    user: User = None,
    content: Annotated[bool, typer.Option("--content", help="texts too: they are people's words")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="one JSON object on standard output")] = False,
) -> None:
    """Trace a message to the memories formed from it, or a memory back to its messages.

    With --agent, --session or --user it traces only what they see; what the trace leads to is not checked.
    """
    node = asyncio.run(_chain(Settings(), name, agent, session, user))
    if as_json:
        told = node.as_dict(content=content)
        typer.echo(json.dumps(told, indent=2, ensure_ascii=False, default=_plain))
        return
    tree = Tree(_line(node, content=content))
    _grow(tree, node.nodes, content=content)
    console().print(tree)


def _grow(tree: Tree, nodes: Sequence[Node], *, content: bool) -> None:
    for node in nodes:
        _grow(tree.add(_line(node, content=content)), node.nodes, content=content)


def _line(node: Node, *, content: bool) -> Text:
    """Kind and id, what is known of it, its text below where asked for; never read as markup."""
    line = Text.assemble((node.kind, STYLES.get(node.kind, "")), " ", as_written(node.id))
    for name, value in node.told.items():
        if value is True:
            line.append(f"  {SO.get(name, name.replace('_', ' '))}", style="dim")
        elif value not in (None, [], {}, False):
            shown = plain(_shown(value)) if name in SAID else as_written(_shown(value))
            line.append(f"  {name.replace('_', ' ')} ", style="dim").append(shown)
    if content and node.content:
        line.append("\n").append(node.content, style="italic")
    return line


def _shown(value: Any) -> str:
    match value:
        case list():
            return ", ".join(map(str, value))  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
        case dict():
            return ", ".join(f"{name} {number}" for name, number in value.items())  # pyright: ignore[reportUnknownVariableType]
        case datetime():
            return moment(value)
        case _:
            return str(value)


def _plain(value: Any) -> Any:
    return value.isoformat(timespec="seconds") if isinstance(value, datetime) else str(value)


async def _chain(
    settings: Settings, name: str, agent: str | None, session: str | None, user: str | None
) -> Node:
    if agent is session is user is None:
        return await chain_of(settings, name)
    async with who(settings, agent, session, user) as viewer:
        asker = viewer.asker
        tracer = Tracer(await viewer.scope_keys(), asker.user_id, asker.session_id)
        return await chain_of(settings, name, tracer)


async def chain_of(settings: Settings, name: str, tracer: Tracer | None = None) -> Node:
    """The chain of a message, fact, reflection, formation or blob; an EdenError if nothing has that name."""
    async with installation(settings) as at:
        return await CausalChains(at.settings, at.database, tracer).chain(name)
