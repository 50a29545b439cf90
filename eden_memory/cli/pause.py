"""`eden pause` and `eden resume`: let a stage stand still, in all its copies, and go on."""

import asyncio
from datetime import UTC, datetime
from typing import Annotated

import typer

from eden_memory.cli.replay.live import live_settings
from eden_memory.domain.control import Pause
from eden_memory.domain.errors import EdenError
from eden_memory.local.servers import endpoints
from eden_memory.mongo.client import connect
from eden_memory.mongo.controls import MongoControls
from eden_memory.runtime.contract.topics import load_topics
from eden_memory.settings import Settings

Stage = Annotated[str, typer.Argument(help="the stage's name, as in topics.yaml")]
Reason = Annotated[str, typer.Option(help="shown wherever the stage's state is shown")]


def pause(stage: Stage, reason: Reason = "paused by hand") -> None:
    """Let a stage stand still: it keeps its place and its partitions, and starts nothing new."""
    settings = Settings()
    _check(settings, stage)
    asyncio.run(_pause(settings, Pause(stage, "hand", reason, datetime.now(UTC))))
    typer.echo(f"{stage} is paused; `eden resume {stage}` lets it go on")


def resume(stage: Stage) -> None:
    """Let a stage go on, whatever it was paused for."""
    settings = Settings()
    _check(settings, stage)
    lifted = asyncio.run(_resume(settings, stage))
    typer.echo(f"{stage} goes on" if lifted else f"{stage} was not paused")


def _check(settings: Settings, stage: str) -> None:
    programs = load_topics(settings.kafka, settings.placement).file.programs
    if stage not in programs:
        raise EdenError(f"there is no stage {stage}", f"Stages: {', '.join(programs)}.")


async def _pause(settings: Settings, asked: Pause) -> None:
    async with connect(settings.mongodb, endpoints(settings).mongodb) as client:
        database = client[settings.mongodb.database]
        await MongoControls(database, (await live_settings(settings, database)).names).pause(asked)


async def _resume(settings: Settings, stage: str) -> int:
    async with connect(settings.mongodb, endpoints(settings).mongodb) as client:
        database = client[settings.mongodb.database]
        return await MongoControls(database, (await live_settings(settings, database)).names).resume(stage)
