"""`eden rebuild`: memory anew from the memory topics, into a namespace."""

import asyncio
import gc
import sys
from contextlib import suppress
from datetime import UTC, datetime
from typing import Annotated

import typer
from rich.console import Console

from eden_memory.cli.replay.progress import Shown
from eden_memory.cli.replay.verifying import SHOWN, Verdict, verify
from eden_memory.cli.replay.wiring import Installation, installation, rebuilding
from eden_memory.domain.replay.namespaces import checked
from eden_memory.logs import warnings_only
from eden_memory.settings import Settings

Name = Annotated[str, typer.Argument(help="the namespace; made if there is none")]
Follow = Annotated[bool, typer.Option("--follow", help="go on with what is published, until Ctrl-C")]
Verify = Annotated[
    bool, typer.Option("--verify", help="then compare with live memory; exit code 1: different")
]
Most = Annotated[int, typer.Option("--show", min=0, help="how many differences are listed")]

COLLECTED_EVERY = (20_000, 20, 10)
"""Records and documents hold no cycles: looking for these as often as Python does takes a fifth of the CPU."""


def rebuild(name: Name, follow: Follow = False, compare: Verify = False, show: Most = SHOWN) -> None:
    """Rebuild memory from the memory topics into a namespace, without any model; safe to stop and to repeat.

    Live memory is not touched, and nothing is published.
    """
    gc.set_threshold(*COLLECTED_EVERY)
    equal = True
    with warnings_only(), suppress(KeyboardInterrupt):
        equal = asyncio.run(_work(Settings(), checked(name), follow=follow, most=show if compare else None))
    if not equal:
        sys.exit(1)


async def _work(settings: Settings, name: str, *, follow: bool, most: int | None) -> bool:
    console = Console(highlight=False, soft_wrap=True)
    verdicts: list[Verdict] = []
    async with installation(settings) as at:
        with Shown(console) as shown:
            async with rebuilding(at, name, shown) as (work, worker):

                async def once_in() -> None:
                    counts = await at.namespaces.counts(work.namespace.prefix)
                    console.print(f"{name} has all that was there: {_said(counts)}")
                    if most is not None:
                        verdicts.append(await verify(at, work, most))
                        await _told(console, at, name, verdicts[0])

                await work.run(worker, once_in, follow=follow)
    return all(one.equal for one in verdicts)


def _said(counts: dict[str, int]) -> str:
    return ", ".join(f"{count:,} {name}" for name, count in counts.items())


async def _told(console: Console, at: Installation, name: str, verdict: Verdict) -> None:
    for line in [*verdict.lines(), *map(str, verdict.differences)]:
        console.print(line, markup=False)
    if (more := verdict.differing - len(verdict.differences)) > 0:
        console.print(f"and {more:,} more")
    if verdict.equal:
        await at.namespaces.verified(name, datetime.now(UTC))
    console.print("equal to live" if verdict.equal else f"{verdict.differing:,} documents differ from live")
