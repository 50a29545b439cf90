"""`eden namespace`: what memory there is beside the live one, how large it is, and away with it."""

import asyncio
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from eden_memory.cli.replay.wiring import Installation, installation
from eden_memory.settings import Settings
from schemas.documents import Namespace

app = typer.Typer(help="Memory beside the live one: what `eden rebuild` fills.", no_args_is_help=True)
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
    """Drop a namespace: its collections and its consumer group. Live memory and the topics stay."""
    asyncio.run(_drop(Settings(), name, yes=yes))


async def _list(settings: Settings) -> None:
    table = Table("namespace", "state", "made", "documents", "size")
    async with installation(settings) as at:
        table.add_row("live", "live", "", *await _sizes(at, at.prefix))
        for one in await at.namespaces.all():
            made = f"{one.created_at:%Y-%m-%d %H:%M}"
            table.add_row(one.id, one.state, made, *await _sizes(at, one.prefix))
    Console().print(table)


async def _sizes(at: Installation, prefix: str) -> tuple[str, str]:
    sizes = (await at.namespaces.sizes(prefix)).values()
    return f"{sum(count for count, _ in sizes):,}", megabytes(sum(size for _, size in sizes))


async def _show(settings: Settings, name: str) -> None:
    console = Console(highlight=False)
    async with installation(settings) as at:
        one = await at.named(name)
        table = Table("collection", "documents", "size")
        for short, (count, size) in (await at.namespaces.sizes(one.prefix)).items():
            table.add_row(one.prefix + short, f"{count:,}", megabytes(size))
    for line in _said(one):
        console.print(line)
    console.print(table)


def _said(one: Namespace) -> list[str]:
    done = sum(min(place.reached, place.end) - place.begin for place in one.places)
    whole = sum(place.end - place.begin for place in one.places)
    lines = [
        f"{one.id}: {one.kind} of {one.source}*, {one.state}",
        f"made {one.created_at:%Y-%m-%d %H:%M:%S}, {done:,} of {whole:,} offsets read, group {one.group}",
    ]
    lines += [f"caught up {one.caught_up_at:%Y-%m-%d %H:%M:%S}"] if one.caught_up_at else []
    lines += [f"verified {one.verified_at:%Y-%m-%d %H:%M:%S}"] if one.verified_at else []
    return [*lines, f"{one.unreadable:,} records could not be read"] if one.unreadable else lines


async def _drop(settings: Settings, name: str, *, yes: bool) -> None:
    async with installation(settings) as at:
        one = await at.named(name)
        if not yes:
            documents, size = await _sizes(at, one.prefix)
            typer.confirm(f"{name} has {documents} documents, {size}; drop it?", abort=True)
        await at.drop(one)
    typer.echo(f"{name} is dropped")


def megabytes(size: int) -> str:
    """Bytes as people read them."""
    return f"{size / 1_000_000:,.1f} MB"
