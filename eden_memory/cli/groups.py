"""`eden groups`: what to do when a consumer group has lost its place."""

import asyncio
from typing import Annotated

import typer

from eden_memory.cli.terminal import confirm
from eden_memory.errors import NotFound
from eden_memory.local.servers import endpoints
from eden_memory.mongo.client import connect
from eden_memory.settings import Settings
from eden_memory.stages.controls import MongoGroupNotes

app = typer.Typer(help="Restart a consumer group that has lost its offsets.", no_args_is_help=True)


@app.command()
def restart(
    group: Annotated[str, typer.Argument(help="the group's whole name, as the error gives it")],
    yes: Annotated[bool, typer.Option("--yes", help="do not ask")] = False,
) -> None:
    """Let a group that has lost its offsets read its topics from the beginning.

    Outcomes that are still stored are published again and cost nothing; what has none is decided anew.
    """
    if not yes:
        confirm(f"{group} will read its topics from the beginning; go on?")
    if not asyncio.run(_forget(Settings(), group)):
        raise NotFound(
            f"no group {group} has ever committed here", "Give its whole name, as the error says it."
        )
    typer.echo(f"{group} starts from the beginning where it has no offset")


async def _forget(settings: Settings, group: str) -> bool:
    async with connect(settings.mongodb, endpoints(settings).mongodb) as client:
        return await MongoGroupNotes(client[settings.mongodb.database], settings.names).forget(group)
