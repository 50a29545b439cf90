"""`eden watch`: memory as it forms, on a running system."""

import asyncio
from contextlib import suppress

from rich.console import Console
from rich.live import Live

from eden_memory.cli.memory_view import render
from eden_memory.cli.replay.live import live_now
from eden_memory.observability.progress import Progress
from eden_memory.observability.watching import watching
from eden_memory.settings import Settings
from eden_memory.task_ending import heeding


def watch() -> None:
    """Show windows, facts with their decisions, reflections, blobs, calls, cost and lag, until Ctrl-C."""
    with suppress(KeyboardInterrupt):
        asyncio.run(heeding(_watch(Settings())))


async def _watch(settings: Settings) -> None:
    progress = Progress()
    console = Console(highlight=False)
    with Live(console=console, refresh_per_second=4, get_renderable=lambda: render(progress)):
        async with watching(await live_now(settings), progress):
            await asyncio.Event().wait()
