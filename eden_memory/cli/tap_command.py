"""`eden tap TOPIC`: the records of a topic as they lie there, on a terminal or as JSON lines."""

import asyncio
import json
import logging
import sys
from contextlib import aclosing, suppress
from datetime import datetime
from typing import Annotated

import typer

from eden_memory.cli.live_namespace import live_if_there
from eden_memory.cli.structured_logs import warnings_only
from eden_memory.cli.terminal import folded, parse_time
from eden_memory.errors import NotFound
from eden_memory.kafka.connection import client_kwargs
from eden_memory.kafka.topics import load_topics
from eden_memory.local.servers import endpoints
from eden_memory.observability.tapping import Filter, Start, Tapped, as_json, line, tapping
from eden_memory.settings import Settings
from eden_memory.tasks import heeding

Topic = Annotated[str, typer.Argument(help="a topic without prefix, as `eden topics describe` lists them")]
Scope = Annotated[
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


def tap(
    topic: Topic,
    scope: Scope = None,
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
