"""`eden pause`, `eden resume`, `eden groups restart`, `eden restored`: stages stand still, go on or start over."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Annotated

import typer

from eden_memory.cli.live_namespace import soon
from eden_memory.cli.terminal import confirm
from eden_memory.errors import Invalid, MemoryRestored, NotFound
from eden_memory.local.servers import endpoints
from eden_memory.mongo.client import connect
from eden_memory.processors.pipeline import NAMES
from eden_memory.replay.installation import installation
from eden_memory.replay.namespaces.namespace_store import is_restored
from eden_memory.schemas.documents import Context
from eden_memory.settings import Settings
from eden_memory.stages.controls import MongoControls, MongoGroupNotes, Pause

Stage = Annotated[str, typer.Argument(help=f"one of: {', '.join(NAMES)}")]
Reason = Annotated[str, typer.Option(help="shown wherever the stage's state is shown")]


def pause(stage: Stage, reason: Reason = "paused by hand") -> None:
    """Pause a stage: it keeps its offsets and partitions, and starts nothing new."""
    _check(stage)
    asyncio.run(_pause(Settings(), Pause(stage, "hand", reason, datetime.now(UTC))))
    typer.echo(f"{stage} is paused; `eden resume {stage}` lets it go on")


def resume(stage: Stage) -> None:
    """Resume a stage that was paused by hand or for its dead letters; an outage ends by itself."""
    _check(stage)
    lifted = asyncio.run(_resume(Settings(), stage))
    typer.echo(f"{stage} goes on" if lifted else f"{stage} was not paused (an outage would end by itself)")


def restored() -> None:
    """Say that a backup of MongoDB was restored: `eden run` forgets again what was forgotten since.

    Readers show nothing until that is done. Run it before anything else is started.
    """
    asyncio.run(_restored(Settings()))
    typer.echo("nothing is shown now; `eden run` forgets again what was forgotten since the backup")


async def _restored(settings: Settings) -> None:
    async with installation(settings, restored_too=True) as at:
        await at.live.shut()
        await at.database[at.settings.names[Context.COLLECTION]].delete_many({})
        await MongoGroupNotes(at.database, at.settings.names).forget_reached()


def standing(settings: Settings) -> list[str]:
    """Pauses in force and what stages report, a line each; nothing where MongoDB does not answer at once."""
    return asyncio.run(soon(_standing(settings))) or []


def _check(stage: str) -> None:
    if stage not in NAMES:
        raise Invalid(f"there is no stage {stage}", f"Stages: {', '.join(NAMES)}.")


async def _standing(settings: Settings) -> list[str]:
    async with installation(settings, restored_too=True) as at:
        controls, live = MongoControls(at.database, at.settings.names), await at.live.read()
        pauses, troubles = await controls.pauses(), await controls.troubles()
    return [
        *([MemoryRestored().what] if is_restored(live) else ()),
        *(f"{stopped.stage} stands still ({stopped.kind}): {stopped.reason}" for stopped in pauses),
        *(f"{stage} {reason}" for stage, reason in troubles),
    ]


async def _pause(settings: Settings, asked: Pause) -> None:
    async with _controls(settings) as controls:
        await controls.pause(asked)


async def _resume(settings: Settings, stage: str) -> int:
    async with _controls(settings) as controls:
        return await controls.resume(stage)


@asynccontextmanager
async def _controls(settings: Settings) -> AsyncGenerator[MongoControls]:
    """Of the namespace that is live."""
    async with installation(settings, restored_too=True) as at:
        yield MongoControls(at.database, at.settings.names)


groups = typer.Typer(help="Restart a consumer group that has lost its offsets.", no_args_is_help=True)


@groups.command()
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
    async with connect(endpoints(settings).mongodb) as client:
        return await MongoGroupNotes(client[settings.mongodb.database], settings.names).forget(group)
