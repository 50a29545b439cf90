"""`eden dead`: list, show, retry and drop dead letters."""

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any

import typer

from eden_memory.cli.terminal import confirm, parse_time
from eden_memory.errors import EdenError, Invalid, NotFound
from eden_memory.kafka.connection import client_kwargs
from eden_memory.kafka.topics import Topics, load_topics
from eden_memory.local.servers import endpoints
from eden_memory.mongo.client import connect
from eden_memory.replay.namespaces.namespace_store import live_settings
from eden_memory.settings import Settings
from eden_memory.stages.controls import DeadRetry, MongoControls
from eden_memory.stages.dead_letter_reading import DeadLetter, DeadLetterFilter, dead_letter_at, dead_letters
from eden_memory.stages.failure_decisions import UNPUBLISHABLE
from eden_memory.stages.outcome_store import MongoLedger
from eden_memory.stages.publishing import Publisher, new_producer

app = typer.Typer(help="List, retry and drop dead letters.", no_args_is_help=True)

Topic = Annotated[str | None, typer.Option(help="only those of this topic, without prefix")]
Stage = Annotated[str | None, typer.Option(help="only those that this stage gave up")]
Reason = Annotated[str | None, typer.Option(help="only those whose reason holds this text")]
Since = Annotated[
    datetime | None,
    typer.Option(parser=parse_time, metavar="TIME", help="only those given up at this time (UTC) or later"),
]
Until = Annotated[
    datetime | None,
    typer.Option(parser=parse_time, metavar="TIME", help="only those given up before this time (UTC)"),
]
Limit = Annotated[int, typer.Option(min=1, help="most lines of the table; --json prints all")]
Everything = Annotated[bool, typer.Option("--all", help="also those that were dropped or tried again since")]
AsJson = Annotated[bool, typer.Option("--json", help="one JSON object a line on standard output")]
Ids = Annotated[list[str] | None, typer.Argument(help="ids as `eden dead list` shows them")]
Yes = Annotated[bool, typer.Option("--yes", help="do not ask")]

REPORTED = 10_000
"""Dead letters between two lines of progress."""
AT_ITS_SOURCE = (
    "did not come from a stage: fix its cause, then change the document (any update publishes it again)"
)
SETTLED = ("published", "dropped", "dead again")
"""A retry that fails leaves a dead letter of its own, which stands for both."""


@dataclass(frozen=True)
class _Connected:
    settings: Settings
    topics: Topics
    client: dict[str, Any]
    controls: MongoControls
    ledger: MongoLedger

    async def found(
        self, wanted: DeadLetterFilter, *, settled: bool = False
    ) -> AsyncIterator[tuple[DeadLetter, str]]:
        """Yield dead letters with their state; settled ones only on request."""
        states = await self.controls.dead_states()
        async for letter in dead_letters(self.client, self._names(wanted.topic), wanted, _report):
            state = states.get(letter.id, "dead")
            if settled or state not in SETTLED:
                yield letter, state

    async def at(self, name: str) -> tuple[DeadLetter, str]:
        """Return a dead letter with its state; NotFound if there is none of this id."""
        letter = await dead_letter_at(self.client, self._names(), name)
        if letter is None:
            what = f"there is no dead letter {name}"
            raise NotFound(what, "`eden dead list --all` shows all that are kept.")
        return letter, (await self.controls.dead_states()).get(name, "dead")

    async def publish(self, letter: DeadLetter, request: DeadRetry) -> bool:
        """Publish the event that the broker refused, as decided; False if it is incomplete."""
        if (event := letter.event()) is None:
            typer.echo(f"{letter.id} holds only a part of its event; `eden dead drop` removes it", err=True)
            return False
        publisher = Publisher(lambda: new_producer(self.client))
        try:
            await publisher.start()
            await publisher.publish([event])
        except UNPUBLISHABLE as error:
            what = f"{event.topic} still takes no event of {event.size:,} bytes"
            hint = "Raise its `max.message.bytes` (and the broker's `message.max.bytes`), then try again."
            raise EdenError(what, hint) from error
        finally:
            await publisher.stop()
        await self.controls.ask_dead_retry(request)
        for asked in await self.controls.dead_retries():
            if asked.id == letter.id:
                await self.controls.dead_retry_done(asked, "published")
        return True

    def _names(self, of: str | None = None) -> list[str]:
        return [
            topic.name for topic in self.topics if topic.dead_of is not None and of in (None, topic.dead_of)
        ]


@app.command("list")
def list_(
    topic: Topic = None,
    stage: Stage = None,
    reason: Reason = None,
    since: Since = None,
    until: Until = None,
    everything: Everything = False,
    limit: Limit = 50,
    as_json: AsJson = False,
) -> None:
    """List dead letters, oldest first."""

    async def work(connected: _Connected) -> None:
        wanted = _wanted(connected.topics, topic, stage, reason, since, until)
        rows: list[Sequence[str]] = []
        found = 0
        async for letter, state in connected.found(wanted, settled=everything):
            found += 1
            if as_json:
                typer.echo(json.dumps(_summary(letter, state)))
            elif found <= limit:
                attempts, at = letter.why.get("attempts", ""), f"{letter.at:%Y-%m-%d %H:%M:%S}"
                rows.append((letter.stage, at, attempts, state, letter.reason[:100], letter.id))
        if not as_json:
            _show_table(rows, found)

    _run(work)


def _show_table(rows: Sequence[Sequence[str]], found: int) -> None:
    if not rows:
        typer.echo("no dead letters")
        return
    from eden_memory.cli.tables import show_table  # noqa: PLC0415 - rich; mostly nothing is dead

    show_table(("stage", "at", "attempts", "state", "reason", "id"), rows, "")
    if found > len(rows):
        typer.echo(f"{found - len(rows):,} more, given up later: --limit {found} shows them all", err=True)


@app.command()
def show(dead_letter: Annotated[str, typer.Argument(help="its id")]) -> None:
    """Show one dead letter whole: why, headers, and its original value."""

    async def work(connected: _Connected) -> None:
        letter, state = await connected.at(dead_letter)
        told = {**_summary(letter, state), **_whole(letter)}
        typer.echo(json.dumps(told, indent=2, ensure_ascii=False))

    _run(work)


@app.command()
def retry(
    ids: Ids = None,
    topic: Topic = None,
    stage: Stage = None,
    reason: Reason = None,
    since: Since = None,
    until: Until = None,
    yes: Yes = False,
) -> None:
    """Try dead letters again, inside the stage that gave them up; safe to repeat."""

    published: list[str] = []

    async def ask(connected: _Connected, letter: DeadLetter) -> bool:
        request = letter.retry()
        if request is None:
            typer.echo(f"{letter.id} {AT_ITS_SOURCE}", err=True)
            return False
        if not letter.was_refused:
            return await connected.controls.ask_dead_retry(request)
        if await connected.publish(letter, request):
            published.append(letter.id)
        return False

    async def work(connected: _Connected) -> None:
        wanted = _wanted(connected.topics, topic, stage, reason, since, until)
        count = await _each(connected, wanted, ids, yes, "try again", ask)
        if published:
            typer.echo(f"{len(published)} published: events that the broker had refused")
        typer.echo(f"{count} asked for; their stages try them when they run (`eden dead list --all`)")

    _run(work)


@app.command()
def drop(
    ids: Ids = None,
    topic: Topic = None,
    stage: Stage = None,
    reason: Reason = None,
    since: Since = None,
    until: Until = None,
    yes: Yes = False,
) -> None:
    """Take dead letters off the list; their topic keeps them until they age out."""

    async def forget(connected: _Connected, letter: DeadLetter) -> bool:
        await connected.ledger.settled(letter.stage, letter.known_as, letter.record.topic)
        await connected.controls.drop_dead(letter.id, letter.member)
        return True

    async def work(connected: _Connected) -> None:
        wanted = _wanted(connected.topics, topic, stage, reason, since, until)
        typer.echo(f"{await _each(connected, wanted, ids, yes, 'drop', forget)} dropped")

    _run(work)


async def _each(
    connected: _Connected,
    wanted: DeadLetterFilter,
    ids: list[str] | None,
    yes: bool,
    verb: str,
    do: Callable[[_Connected, DeadLetter], Awaitable[bool]],
) -> int:
    if not ids and wanted == DeadLetterFilter() and not yes:
        confirm(f"{verb} all dead letters?")
    found = [letter async for letter, _ in connected.found(wanted) if not ids or letter.id in ids]
    missing = set(ids or ()) - {letter.id for letter in found}
    if missing:
        raise NotFound(f"unknown or settled: {', '.join(sorted(missing))}", "See `eden dead list --all`.")
    return sum([await do(connected, letter) for letter in found])


def _report(done: int, total: int) -> None:
    """Print progress if there are many dead letters."""
    if total >= 2 * REPORTED and done % REPORTED == 0:
        typer.echo(f"{done:,} of {total:,} dead letters read", err=True)


def _wanted(
    topics: Topics,
    topic: str | None,
    stage: str | None,
    reason: str | None,
    since: datetime | None,
    until: datetime | None,
) -> DeadLetterFilter:
    if topic is not None and topic not in topics.file.topics:
        raise Invalid(f"there is no topic {topic}", f"Topics: {', '.join(topics.file.topics)}.")
    if stage is not None and stage not in topics.file.programs:
        raise Invalid(f"there is no stage {stage}", f"Stages: {', '.join(topics.file.programs)}.")
    name = None if topic is None else topics.name(topic)
    return DeadLetterFilter(name, stage, reason, since, until)


def _summary(letter: DeadLetter, state: str) -> dict[str, Any]:
    return {
        "id": letter.id,
        "state": state,
        "stage": letter.stage,
        "at": letter.at.isoformat(),
        "reason": letter.reason,
        "key": (letter.record.key or b"").decode(errors="replace"),
    }


def _whole(letter: DeadLetter) -> dict[str, Any]:
    value = letter.record.value
    headers = {
        name: None if content is None else content.decode(errors="replace")
        for name, content in letter.record.headers
    }
    return {"headers": headers, "value": None if value is None else value.decode(errors="replace")}


def _run(work: Callable[[_Connected], Awaitable[None]]) -> None:
    async def connected() -> None:
        async with _connected() as connection:
            await work(connection)

    asyncio.run(connected())


@asynccontextmanager
async def _connected() -> AsyncGenerator[_Connected]:
    settings = Settings()
    servers = endpoints(settings)
    async with connect(settings.mongodb, servers.mongodb) as mongo:
        database = mongo[settings.mongodb.database]
        settings = await live_settings(settings, database)
        controls = MongoControls(database, settings.names)
        client = client_kwargs(settings.kafka, servers.kafka)
        topics = load_topics(settings.kafka, settings.placement)
        ledger = MongoLedger(database, settings.names)
        yield _Connected(settings, topics, client, controls, ledger)
