"""`eden reembed`: every fact gets a vector of the model that is configured now."""

import asyncio
from contextlib import suppress
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from eden_memory.assembly.tailer import inbox_name
from eden_memory.memory.reembedding_store import Reembedding
from eden_memory.models.embeddings import local_embedder
from eden_memory.models.providers.catalogue import embedding_model
from eden_memory.replay.installation import installation
from eden_memory.settings import Settings
from eden_memory.task_ending import heeding

LOOK_SECONDS = 1.0


def reembed(
    wait: Annotated[
        bool, typer.Option("--wait/--no-wait", help="show the progress until all facts have their vector")
    ] = True,
) -> None:
    """Embed all facts of another embedding model again; safe to stop and repeat."""
    with suppress(KeyboardInterrupt):
        asyncio.run(heeding(_work(Settings(), wait=wait)))


def model_name(settings: Settings) -> str:
    """The model of the vectors that is configured."""
    model = embedding_model(settings)
    return local_embedder.MODEL if model is None else model.name


async def _work(settings: Settings, *, wait: bool) -> None:
    console, model = Console(highlight=False), model_name(settings)
    async with installation(settings) as at:
        work = Reembedding(at.database, at.settings.names, at.source[inbox_name(settings)], model)
        count = await work.left()
        if not count:
            console.print(f"every active fact has a vector of {model}")
            return
        written = 0
        async for written in work.ask():
            console.print(f"asked for {written:,} of {count:,} facts")
        if wait:
            console.print("waiting for `eden run`, which carries it out; Ctrl-C stops only the watching")
            await _watch(work, console, count)


async def _watch(work: Reembedding, console: Console, count: int) -> None:
    columns = (TextColumn("new vectors"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console) as progress:
        bar = progress.add_task("", total=count)
        while left := await work.left():
            progress.update(bar, total=max(count, left), completed=max(count - left, 0))
            await asyncio.sleep(LOOK_SECONDS)
        progress.update(bar, completed=count)
