"""`eden dead`: list, show, retry and drop dead letters."""

import asyncio
import json
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from getpass import getuser
from typing import Annotated, Any

import typer

from eden_memory.cli.terminal import confirm, parse_time
from eden_memory.replay.dead_letters import DeadLetterHandling, Retried
from eden_memory.replay.installation import installation
from eden_memory.schemas.documents import DeadLetter
from eden_memory.settings import Settings
from eden_memory.stages.dead_letter_store import DeadLetterFilter

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

NOTES = {
    "without a document": "is of a document that cannot be read again: fix its cause, then change the document (any "
    "update publishes it again), or ask again for what the inbox asked",
    "incomplete": "holds only a part of its event; `eden dead drop` removes it",
}


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

    async def work(letters: DeadLetterHandling) -> None:
        wanted = letters.filter(topic, stage, reason, since, until)
        rows: list[Sequence[str]] = []
        found = 0
        async for letter in letters.found(wanted, settled=everything):
            found += 1
            if as_json:
                typer.echo(json.dumps(_summary(letter)))
            elif found <= limit:
                attempts, at = str(letter.attempts), f"{letter.at:%Y-%m-%d %H:%M:%S}"
                rows.append((letter.stage, at, attempts, letter.state, _line(letter)[:100], letter.id))
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

    async def work(letters: DeadLetterHandling) -> None:
        letter = await letters.at(dead_letter)
        typer.echo(json.dumps({**_summary(letter), **_whole(letter)}, indent=2, ensure_ascii=False))

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
    """Try dead letters again, inside the stage that gave them up, or read their documents again; safe to repeat."""

    async def work(letters: DeadLetterHandling) -> None:
        wanted = letters.filter(topic, stage, reason, since, until)
        chosen = await _chosen(letters, wanted, ids, yes, "try again")
        done = await letters.retry(chosen, f"eden dead, {getuser()}")
        results = Counter[Retried](done)
        for letter, result in zip(chosen, done, strict=True):
            if result in NOTES:
                typer.echo(f"{letter.id} {NOTES[result]}", err=True)
        if results["published"]:
            typer.echo(f"{results['published']} published: events that the broker had refused")
        typer.echo(
            f"{results['asked']} asked for; their stages try them when they run (`eden dead list --all`)"
        )

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
    """Take dead letters off the list, and erase the records that they hold."""

    async def work(letters: DeadLetterHandling) -> None:
        wanted = letters.filter(topic, stage, reason, since, until)
        chosen = await _chosen(letters, wanted, ids, yes, "drop")
        for letter in chosen:
            await letters.drop(letter)
        typer.echo(f"{len(chosen)} dropped")

    _run(work)


async def _chosen(
    letters: DeadLetterHandling, wanted: DeadLetterFilter, ids: list[str] | None, yes: bool, verb: str
) -> list[DeadLetter]:
    if not ids and wanted == DeadLetterFilter() and not yes:
        confirm(f"{verb} all dead letters?")
    return await letters.chosen(wanted, ids)


def _line(letter: DeadLetter) -> str:
    return letter.reason.partition("\n")[0]


def _summary(letter: DeadLetter) -> dict[str, Any]:
    return {
        "id": letter.id,
        "state": letter.state,
        "stage": letter.stage,
        "at": letter.at.isoformat(),
        "reason": _line(letter),
        "topic": letter.topic,
        "key": _text(letter.key) or "",
    }


def _whole(letter: DeadLetter) -> dict[str, Any]:
    names = ("error", "attempts", "retries", "partition", "offset", "collection", "version", "cut")
    why = {name: value for name in names if (value := getattr(letter, name)) is not None}
    headers = {name: _text(content) for name, content in letter.headers}
    named = None if letter.named is None else list(letter.named)
    return {**why, "named": named, "trace": letter.trace, "headers": headers, "value": _text(letter.value)}


def _text(content: bytes | None) -> str | None:
    return None if content is None else content.decode(errors="replace")


def _run(work: Callable[[DeadLetterHandling], Awaitable[None]]) -> None:
    async def connected() -> None:
        async with installation(Settings()) as at:
            await work(DeadLetterHandling(at))

    asyncio.run(connected())
