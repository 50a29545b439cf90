"""`eden trace`, `eden watch`, `eden tap`: follow one message or memory, memory as it forms, or a topic's records."""

import asyncio
import json
import logging
import sys
from collections.abc import Sequence
from contextlib import aclosing, suppress
from datetime import datetime
from typing import Annotated, Any

import typer
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text
from rich.tree import Tree

from eden_memory.cli.live_namespace import live_if_there, live_now
from eden_memory.cli.memory.viewer import Agent, Session, User, who
from eden_memory.cli.structured_logs import warnings_only
from eden_memory.cli.tables import console
from eden_memory.cli.terminal import as_written, folded, moment, parse_time, plain
from eden_memory.errors import NotFound
from eden_memory.kafka.connection import client_kwargs
from eden_memory.kafka.topics import load_topics
from eden_memory.local.servers import endpoints
from eden_memory.metrics import known_cost
from eden_memory.observability.lineage import Node
from eden_memory.observability.lineage_store import LineageReader, Tracer
from eden_memory.observability.tapping import Filter, Start, Tapped, as_json, line, tapping
from eden_memory.observability.watching import CallTotals, FormationProgress, NewMemory, watching
from eden_memory.replay.installation import installation
from eden_memory.schemas.ids import split
from eden_memory.schemas.scopes import Scope
from eden_memory.settings import Settings
from eden_memory.tasks import heeding

SAID = ("reason", "waits_for", "model", "prompt")
"""Named in a node and no ids."""
SO = {"asked_for": "formation requested"}
"""In place of a name that is a question."""
STYLES = {"message": "cyan", "window": "bold", "call": "yellow", "fact": "green", "reflection": "magenta"}


MOST_BLOBS = 2
COLOURS = {"fact": "cyan", "reflection": "magenta", "blob": "green"}
Topic = Annotated[str, typer.Argument(help="a topic without prefix, as `eden topics describe` lists them")]
ScopeKey = Annotated[
    list[str] | None,
    typer.Option(help="only this scope key or session id; * and ? may stand in it; repeatable"),
]
Type = Annotated[
    list[str] | None, typer.Option("--type", help="only these events: FactChanged, FactChanged.v1, tombstone")
]
Since = Annotated[
    datetime | None,
    typer.Option(parser=parse_time, metavar="TIME", help="only records of this time (ISO, UTC) or later"),
]
Until = Annotated[
    datetime | None,
    typer.Option(parser=parse_time, metavar="TIME", help="only records before this time (ISO, UTC)"),
]
From = Annotated[
    str, typer.Option("--from", help="where to begin: start, end, or when the broker got it (ISO)")
]
UntilEnd = Annotated[bool, typer.Option("--until-end", help="stop at the end that the topic has now")]
AsJson = Annotated[bool, typer.Option("--json", help="one JSON object a line, everything in it")]


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
    node = asyncio.run(_lineage(Settings(), name, agent, session, user))
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


async def _lineage(
    settings: Settings, name: str, agent: str | None, session: str | None, user: str | None
) -> Node:
    if agent is session is user is None:
        return await lineage_of(settings, name)
    async with who(settings, agent, session, user) as viewer:
        asker = viewer.asker
        tracer = Tracer(await viewer.scope_keys(), asker.user_id, asker.session_id)
        return await lineage_of(settings, name, tracer)


async def lineage_of(settings: Settings, name: str, tracer: Tracer | None = None) -> Node:
    """The lineage of a message, fact, reflection, formation or blob; an EdenError if nothing has that name."""
    async with installation(settings) as at:
        return await LineageReader(at, tracer).tree(name)


def watch() -> None:
    """Show windows, facts with their decisions, reflections, blobs, calls, cost and lag, until Ctrl-C."""
    with suppress(KeyboardInterrupt):
        asyncio.run(heeding(_watch(Settings())))


async def _watch(settings: Settings) -> None:
    progress = FormationProgress()
    console = Console(highlight=False)
    with Live(console=console, refresh_per_second=4, get_renderable=lambda: render(progress)):
        async with watching(await live_now(settings, restored_too=False), progress):
            await asyncio.Event().wait()


def render(progress: FormationProgress) -> Any:
    """The whole picture."""
    parts: list[Any] = [_counts(progress)]
    if progress.newest:
        parts += [Text(), _newest(progress)]
    if progress.spent:
        parts += [Text(), _spent(progress)]
    if progress.lag:
        parts += [Text(), _lag(progress)]
    return Group(*parts)


def scope_name(key: str) -> str:
    """A scope as a person would say it: `user mara`, `session s-1`, `agent juniper`."""
    scope = Scope.of_key(key, "s.")
    named = scope.user_id or scope.group_id or scope.session_id or scope.shard
    if named is None:
        return plain(f"agent {split(key.partition(':')[2])[1]}")
    return plain(f"{scope.kind} {named if scope.kind == 'shard' else split(named)[1]}")


def _counts(progress: FormationProgress) -> Table:
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(style="dim", width=13)
    table.add_column()
    windows = f"{progress.windows} window{'s' * (progress.windows != 1)}"
    rows = {
        "messages": f"{progress.messages}, {progress.windowed} of them in {windows}",
        "facts": ", ".join(f"{count} {name}" for name, count in sorted(progress.decisions.items())) or "-",
        "reflections": ", ".join(f"{count} {kind}" for kind, count in progress.reflections.items()) or "-",
        "blobs": _blobs(progress) or "-",
    }
    for name, value in rows.items():
        table.add_row(name, value)
    return table


def _blobs(progress: FormationProgress) -> str:
    """The newest blobs, and how many others there are: a system with thousands of scopes fits the screen, too."""
    newest = list(progress.blobs.items())[-MOST_BLOBS:]
    told = [f"{scope_name(key)} v{version} ({words} words)" for key, (version, words) in newest]
    others = len(progress.blobs) - len(newest)
    return ", ".join(told) + (f", and {others} others" if others else "")


def _newest(progress: FormationProgress) -> Table:
    table = Table(box=None, pad_edge=False, expand=True)
    table.add_column("new", header_style="dim", width=10)
    table.add_column("scope", header_style="dim", width=20, no_wrap=True, overflow="ellipsis")
    table.add_column("text", header_style="dim", ratio=3, no_wrap=True, overflow="ellipsis")
    table.add_column("why", header_style="dim", ratio=1, no_wrap=True, overflow="ellipsis")
    for item in progress.newest:
        text, why = (Text(plain(said.replace("\n", " "))) for said in (item.text, item.why))
        table.add_row(_what(item), Text(scope_name(item.scope)), text, why)
    return table


def _what(item: NewMemory) -> Text:
    return Text(item.what, style=COLOURS[item.what])


def _spent(progress: FormationProgress) -> Table:
    table = Table(box=None, pad_edge=False)
    for name in ("calls of", "calls", "failed", "tokens in", "tokens out", "USD"):
        table.add_column(name, header_style="dim", justify="left" if name == "calls of" else "right")
    for stage, spent in [*progress.spent.items(), ("all", progress.total)]:
        table.add_row(stage, *_figures(spent))
    return table


def _figures(spent: CallTotals) -> tuple[str, ...]:
    known = known_cost(spent.cost, spent.calls, spent.unpriced, spent.tokens_in + spent.tokens_out)
    cost = "unknown" if known is None else f"{known:.4f}"
    if known is not None and spent.unpriced:
        cost += f" + {spent.unpriced} unknown"
    figures = spent.calls, spent.failed or "", f"{spent.tokens_in:,}", f"{spent.tokens_out:,}"
    return (*map(str, figures), cost)


def _lag(progress: FormationProgress) -> Text:
    behind = ", ".join(f"{group} {count}" for group, count in progress.lag.items() if count)
    return Text(f"lag, records: {behind or 'none'}", style="dim")


def tap(
    topic: Topic,
    scope: ScopeKey = None,
    kind: Type = None,
    since: Since = None,
    until: Until = None,
    begin: From = "start",
    until_end: UntilEnd = False,
    as_json: AsJson = False,
) -> None:
    """Show the records of a topic, until Ctrl-C. Joins no consumer group and commits nothing.

    Examples:

      eden tap memory.facts --until-end --json

      eden tap memory.facts --scope 'user:*' --type FactChanged --from end

      eden tap chat.messages --type tombstone --since 2026-01-31
    """
    wanted = Filter(tuple(scope or ()), tuple(kind or ()), since, until)
    start: Start = begin if begin in ("start", "end") else parse_time(begin)
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)  # it says the same at every attempt
    with suppress(KeyboardInterrupt), warnings_only():
        asyncio.run(heeding(_tap(Settings(), topic, start, wanted, until_end=until_end, json_lines=as_json)))


async def _tap(
    settings: Settings, topic: str, start: Start, wanted: Filter, *, until_end: bool, json_lines: bool
) -> None:
    kafka = client_kwargs(settings.kafka, endpoints(settings).kafka)
    name = _full_name(await live_if_there(settings), topic)
    async with tapping(kafka, name, start, until_end=until_end) as records, aclosing(records):
        async for record in records:
            if wanted.matches(record):
                _show(record, json_lines=json_lines)


def _show(record: Tapped, *, json_lines: bool) -> None:
    if json_lines:
        typer.echo(json.dumps(as_json(record)))  # ASCII: what a terminal would obey is spelled out
        return
    at, what, said = line(record)
    head = f"{typer.style(at, dim=True)} {typer.style(what, fg='cyan')}"
    typer.echo("\n".join([head, *folded(said, "  ")]) if sys.stdout.isatty() else f"{head} {said}")


def _full_name(settings: Settings, topic: str) -> str:
    topics = load_topics(settings.kafka, settings.placement)
    if topic in topics.file.topics:
        return topics.name(topic)
    if topic in [declared.name for declared in topics]:
        return topic
    known = ", ".join(topics.file.topics)
    raise NotFound(f"topics.yaml declares no topic {topic}", f"There are: {known}.")
