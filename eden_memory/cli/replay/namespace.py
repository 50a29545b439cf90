"""`eden namespace`: list, show, switch and drop namespaces."""

import asyncio
from collections.abc import Sequence
from typing import Annotated

import typer

from eden_memory.cli.replay.reform_report import formed, not_carried, report, user_edits
from eden_memory.cli.structured_logs import warnings_only
from eden_memory.cli.tables import show_table
from eden_memory.cli.terminal import confirm
from eden_memory.errors import EdenError
from eden_memory.names import ORIGINAL, Placement
from eden_memory.replay.group_progress import GroupProgress
from eden_memory.replay.installation import Installation, installation
from eden_memory.replay.namespaces.dropping import drop as drop_namespace
from eden_memory.replay.namespaces.dropping import placement_named
from eden_memory.replay.namespaces.namespace_store import WRITER, placement_of
from eden_memory.replay.namespaces.switching import (
    original_of,
    refuse_behind,
    roll_back,
    switch,
    with_original,
)
from eden_memory.replay.reform.reform_settings import selected
from eden_memory.replay.reform.reform_store import MongoReforms
from eden_memory.replay.user_edits.reapplying import carry
from eden_memory.replay.user_edits.user_edits import AppliedEdits
from eden_memory.schemas.documents import Namespace
from eden_memory.settings import Settings

COLUMNS = ("namespace", "", "kind", "pipeline", "state", "made", "documents", "size")

app = typer.Typer(help="List namespaces, and choose which one is live.", no_args_is_help=True)
app.command("diff")(report)
Name = Annotated[str, typer.Argument(help="the namespace")]


@app.command("list")
def listed() -> None:
    """List the live memory and every namespace, with documents and sizes."""
    asyncio.run(_list(Settings()))


@app.command()
def show(name: Name) -> None:
    """Show one namespace: how far it is filled, what it holds, how large it is."""
    asyncio.run(_show(Settings(), name))


@app.command()
def drop(name: Name, yes: Annotated[bool, typer.Option("--yes", help="do not ask")] = False) -> None:
    """Drop a namespace: its collections and groups, and with the last of its pipeline the topics. Live stays."""
    asyncio.run(_drop(Settings(), name, yes=yes))


@app.command("switch")
def switched(
    name: Name,
    as_it_is: Annotated[
        bool, typer.Option("--as-it-is", help="a reform, too, without what came since it was formed")
    ] = False,
) -> None:
    """Make a namespace live: everything that runs and reads follows at once, without a restart."""
    asyncio.run(switched_to(Settings(), name, as_it_is=as_it_is))


@app.command()
def rollback() -> None:
    """Make live again what was live before; from a reform, people's own changes meanwhile are applied again."""
    asyncio.run(rolled_back(Settings()))


@app.command("carry")
def carry_over(name: Name) -> None:
    """Apply in live memory again what people changed in a namespace while that was live; safe to repeat."""
    asyncio.run(carried(Settings(), name))


async def _list(settings: Settings) -> None:
    rows: list[Sequence[str]] = []
    async with installation(settings) as at:
        live = await at.live.placement()
        for namespace in await with_original(at):
            made = "" if namespace.kind == ORIGINAL else f"{namespace.created_at:%Y-%m-%d %H:%M}"
            marked = "live" if placement_of(namespace) == live else ""
            sizes = await _sizes(at, namespace.prefix)
            rows.append(
                (namespace.id, marked, namespace.kind, namespace.pipeline, namespace.state, made, *sizes)
            )
    show_table(COLUMNS, rows, "no namespaces", whole=("namespace",))


async def _sizes(at: Installation, prefix: str) -> tuple[str, str]:
    sizes = (await at.namespaces.sizes(prefix)).values()
    return f"{sum(count for count, _ in sizes):,}", megabytes(sum(size for _, size in sizes))


async def _show(settings: Settings, name: str) -> None:
    async with installation(settings) as at:
        namespace = original_of(at) if name == ORIGINAL else await at.named(name)
        live = placement_of(namespace) == await at.live.placement()
        sizes = (await at.namespaces.sizes(namespace.prefix)).items()
        reform = await MongoReforms(at.database, settings.mongodb.prefix).get(name)
        left = await _offsets_left(at, namespace) if namespace.state == "filling" and reform is None else 0
    lines = [
        *_said(namespace),
        *([f"{left:,} offsets of its topics are still to be read"] if left else []),
        *([f"{reform.state}: {selected(reform.asked)}", *formed(reform)] if reform else []),
    ]
    for line in [*lines, *(["live"] if live else [])]:
        typer.echo(line)
    rows = ((namespace.prefix + short, f"{count:,}", megabytes(size)) for short, (count, size) in sizes)
    show_table(("collection", "documents", "size"), rows, "no collections", whole=("collection",))


async def _offsets_left(at: Installation, namespace: Namespace) -> int:
    topics = at.topics(placement_of(namespace)).read_by(WRITER)
    async with GroupProgress(at.kafka, {namespace.group: topics}) as progress:
        return await progress.behind(await progress.ends())


def _said(namespace: Namespace) -> list[str]:
    lines = [
        f"{namespace.id}: {namespace.kind} of {namespace.source}*, {namespace.state}",
        f"made {namespace.created_at:%Y-%m-%d %H:%M:%S}, group {namespace.group}",
    ]
    lines += [f"caught up {namespace.caught_up_at:%Y-%m-%d %H:%M:%S}"] if namespace.caught_up_at else []
    lines += [f"verified {namespace.verified_at:%Y-%m-%d %H:%M:%S}"] if namespace.verified_at else []
    return [*lines, f"{namespace.unreadable:,} records could not be read"] if namespace.unreadable else lines


async def _drop(settings: Settings, name: str, *, yes: bool) -> None:
    async with installation(settings) as at:
        placement = await placement_named(at, name)
        if placement == await at.live.placement():
            raise EdenError(f"{name} is live and stays", "Switch to another namespace first.")
        if not yes:
            documents, size = await _sizes(at, at.memory_prefix(placement))
            confirm(f"{name} has {documents} documents, {size}; drop it?")
        await drop_namespace(at, name)
    typer.echo(f"{name} is dropped")


async def switched_to(settings: Settings, name: str, *, as_it_is: bool = False) -> None:
    """Make a namespace live and print it; EdenError for a reform that has not caught up, unless `as_it_is`."""
    async with installation(settings) as at:
        if not as_it_is:
            await refuse_behind(at, name)
        was = await switch(at, name)
    typer.echo(f"{name} is live now, in the place of {was.memory}")


async def rolled_back(settings: Settings) -> None:
    """Make the former namespace live again and print it; user edits made meanwhile are applied there."""
    async with installation(settings) as at:
        with warnings_only():
            done = await roll_back(at)
    typer.echo(f"{done.now.memory} is live again, in the place of {done.was.memory}")
    if done.pending:
        typer.echo(f"{done.was.memory}: {done.pending}; {done.now.memory} does not get them", err=True)
    if done.edits is not None:
        _say_edits(done.was, done.edits)
    if done.failed is not None:
        for line in not_carried(done):
            typer.echo(line, err=True)


async def carried(settings: Settings, name: str) -> None:
    """Apply a namespace's user edits to live memory, and print what became of them."""
    async with installation(settings) as at:
        namespace, live = await at.named(name), await at.live.placement()
        if placement_of(namespace) == live:
            raise EdenError(f"{name} is live", "eden namespace list")
        since = namespace.switched_at
        if since is None and name == ORIGINAL:
            # live from the beginning: what it is asked for is what the reform that is live has not taken over
            formed_as = await MongoReforms(at.database, settings.mongodb.prefix).get(live.pipeline)
            since = None if formed_as is None else formed_as.caught_up_at
        if since is None:
            raise EdenError(f"{name} was never live: nobody changed anything in it", "eden namespace list")
        with warnings_only():
            edits = await carry(at, placement_of(namespace), live, since)
    _say_edits(placement_of(namespace), edits)


def _say_edits(of: Placement, edits: AppliedEdits) -> None:
    for line in user_edits(edits) or [f"people changed nothing in {of.memory} meanwhile"]:
        typer.echo(line)


def megabytes(size: int) -> str:
    """Format bytes for people."""
    return f"{size / 1_000_000:,.1f} MB"
