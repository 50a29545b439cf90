"""`eden rebuild`: memory anew from the memory topics, into a namespace."""

import asyncio
import sys
from collections.abc import Coroutine, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Any

import typer
from rich.console import Console

from eden_memory.cli.replay.progress import Shown
from eden_memory.domain.errors import EdenError
from eden_memory.domain.replay.namespaces import checked
from eden_memory.logs import warnings_only
from eden_memory.namespaces.switching import switch
from eden_memory.namespaces.verifying import SHOWN, Verdict, verify
from eden_memory.namespaces.wiring import Installation, installation, rebuilding
from eden_memory.runtime.ending import end
from eden_memory.runtime.process import run
from eden_memory.settings import Settings

Name = Annotated[str | None, typer.Argument(help="the namespace; made if there is none")]
Follow = Annotated[bool, typer.Option("--follow", help="go on with what is published, until Ctrl-C")]
Verify = Annotated[
    bool, typer.Option("--verify", help="then compare with live memory; exit code 1: different")
]
Switch = Annotated[
    bool, typer.Option("--switch", help="then make it live: with --verify, where it is equal to live")
]
Accept = Annotated[
    bool, typer.Option("--accept", help="with --verify --switch: make it live in spite of differences")
]
Rollback = Annotated[bool, typer.Option("--rollback", help="make live again what was live before; no NAME")]
Nothing = Annotated[
    bool,
    typer.Option(
        "--from-nothing", help="MongoDB has lost our collections: restore what the topics hold; no NAME"
    ),
]
Most = Annotated[int, typer.Option("--show", min=0, help="how many differences are listed")]

LOOK_SECONDS = 1.0
COLLECTED_AFTER = 50_000
"""Records and documents hold no cycles, but what drivers leave in some holds a megabyte of replies each."""


def rebuild(
    name: Name = None,
    follow: Follow = False,
    compare: Verify = False,
    then_switch: Switch = False,
    accept: Accept = False,
    back: Rollback = False,
    nothing: Nothing = False,
    show: Most = SHOWN,
) -> None:
    """Rebuild memory from the memory topics into a namespace, without any model; safe to stop and to repeat.

    Live memory is not touched, and nothing is published.
    """
    if back:
        from eden_memory.cli.replay.namespace import rolled_back  # noqa: PLC0415 - a rebuild needs none of it

        asyncio.run(rolled_back(Settings()))
        return
    if nothing:
        from eden_memory.cli.replay.from_nothing import from_nothing  # noqa: PLC0415 - formation's, 25 MB

        with warnings_only(), suppress(KeyboardInterrupt):
            run(from_nothing(Settings(), Console(highlight=False, soft_wrap=True)), COLLECTED_AFTER)
        return
    if name is None:
        raise EdenError("no namespace is named", "eden rebuild NAME")
    equal, asked = True, Asked(checked(name), follow, show if compare else None, then_switch, accept)
    with warnings_only(), suppress(KeyboardInterrupt):
        equal = run(_work(Settings(), asked), COLLECTED_AFTER)
    if not equal:
        sys.exit(1)


@dataclass(frozen=True, slots=True)
class Asked:
    """What the command is to do; `most` differences are shown, None: nothing is compared."""

    name: str
    follow: bool
    most: int | None
    switch: bool
    accept: bool


async def _work(settings: Settings, asked: Asked) -> bool:
    """Whether it is equal to live, or that was not asked, or does not matter."""
    console, name = Console(highlight=False, soft_wrap=True), asked.name
    verdicts: list[Verdict] = []
    async with installation(settings) as at:
        with Shown(console) as shown:
            async with rebuilding(at, name, shown) as (work, worker):

                async def once_in() -> None:
                    counts = await at.namespaces.counts(work.namespace.prefix)
                    console.print(f"{name} has all that was there: {_said(counts)}")
                    if asked.most is not None:
                        verdicts.append(await verify(at, work, asked.most))
                        await _told(console, at, name, verdicts[0])
                    if asked.switch and _may_switch(asked, verdicts):
                        was = await switch(at, name)
                        console.print(f"{name} is live now, in the place of {was.memory}")

                running = work.run(worker, once_in, follow=asked.follow and not asked.switch)
                await _while_ours(running, at, name, own=asked.switch)
    return all(one.equal for one in verdicts) or (asked.switch and asked.accept)


def _may_switch(asked: Asked, verdicts: Sequence[Verdict]) -> bool:
    return asked.accept or all(one.equal for one in verdicts)


async def _while_ours(running: Coroutine[Any, Any, None], at: Installation, name: str, *, own: bool) -> None:
    """Until it has ended; an EdenError once somebody drops the namespace, or (unless it is our `own` doing) makes it
    live: it has a writer then."""
    work = asyncio.create_task(running)
    taken = asyncio.create_task(_taken(at, name, own=own))
    try:
        await asyncio.wait([work, taken], return_when=asyncio.FIRST_COMPLETED)
        (work if work.done() else taken).result()
    finally:
        await end([work, taken])


async def _taken(at: Installation, name: str, *, own: bool) -> None:
    while True:
        found, live = await at.namespaces.get(name), await at.live.placement()
        if found is None or found.state == "dropped":
            raise EdenError(f"{name} is being dropped")
        if live.memory == name and not own:
            raise EdenError(f"{name} was made live: `eden run` goes on with it")
        await asyncio.sleep(LOOK_SECONDS)


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
