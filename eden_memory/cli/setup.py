"""`eden setup`: collections, validators, indexes and search indexes in MongoDB."""

import asyncio
from typing import Annotated

import typer

from eden_memory.assembly.mongo_setup import check_all, dimensions_of, set_up
from eden_memory.memory.version_store import SHARING_MEANS, settle_sharing, stored_sharing
from eden_memory.replay.installation import installation
from eden_memory.settings import Settings
from eden_memory.windows.pending_store import look_again


def setup(
    dimensions: Annotated[
        int | None, typer.Option(min=1, help="numbers of a vector; unset: the embedder's default")
    ] = None,
    wait: Annotated[float, typer.Option(help="seconds to wait until search indexes answer")] = 300.0,
    only_check: Annotated[
        bool, typer.Option("--check", help="change nothing; exit code 1 if anything lacks")
    ] = False,
) -> None:
    """Create memory's collections, validators and indexes where they are missing; safe to repeat."""
    settings = Settings()
    done = asyncio.run(_work(settings, dimensions or dimensions_of(settings), wait, only_check=only_check))
    for line in done:
        typer.echo(line if only_check else f"made {line}")
    if not done:
        typer.echo("everything is there")
    elif only_check:
        raise typer.Exit(1)


async def _work(settings: Settings, dimensions: int, wait: float, *, only_check: bool) -> list[str]:
    async with installation(settings) as at:
        database, names = at.database, at.settings.names
        if only_check:
            return await check_all(database, names, dimensions)
        made = await set_up(database, names, dimensions, wait)
        if settings.windows.stale_hours:
            await look_again(database[names["messages"]], names["sessions"])
        before = await stored_sharing(database, names)
        sharing = await settle_sharing(database, names, settings.memory.sharing)
        if sharing != before:
            typer.echo(
                f"memory of sessions with users is {sharing}: {SHARING_MEANS[sharing]} (memory.sharing)"
            )
        return made
