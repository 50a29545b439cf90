"""`eden rebuild`: memory anew from the memory topics, into a namespace."""

import asyncio
import sys
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Any, Never

import typer
from rich.console import Console

from eden_memory.cli.replay.progress import Shown
from eden_memory.errors import EdenError
from eden_memory.logs import warnings_only
from eden_memory.replay.installation import Installation, installation, rebuilding
from eden_memory.replay.namespaces.namespace_names import checked
from eden_memory.replay.namespaces.switching import switch
from eden_memory.replay.rebuild.verifying import SHOWN, Verdict, verify
from eden_memory.settings import Settings
from eden_memory.stages.process import run
from eden_memory.task_ending import run_until_first

Name = Annotated[str | None, typer.Argument(help="the namespace; made if there is none")]
Follow = Annotated[bool, typer.Option("--follow", help="go on with what is published, until Ctrl-C")]
Verify = Annotated[
    bool, typer.Option("--verify", help="then compare with live memory; exit code 1: different")
]
Switch = Annotated[
    bool, typer.Option("--switch", help="then compare, as --verify does, and make it live where it is equal")
]
Accept = Annotated[
    bool, typer.Option("--accept", help="with --switch: make it live in spite of differences, or uncompared")
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
STOPPED = 130
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

    Live memory is not touched, and nothing is published. Exit code 1: it differs from live memory; 130: stopped
    before it was done.
    """
    beside = {
        "NAME": name,
        "--follow": follow,
        "--verify": compare,
        "--switch": then_switch,
        "--accept": accept,
    }
    if back:
        _alone("--rollback", {**beside, "--from-nothing": nothing})
        from eden_memory.cli.replay.namespace import rolled_back  # noqa: PLC0415 - a rebuild needs none of it

        asyncio.run(rolled_back(Settings()))
        return
    if nothing:
        _alone("--from-nothing", beside)
        from eden_memory.cli.replay.from_nothing import from_nothing  # noqa: PLC0415 - formation's, 25 MB

        restoring = from_nothing(Settings(), Console(highlight=False, soft_wrap=True))
        if not _to_its_end(restoring):
            _stopped("eden rebuild --from-nothing")
        return
    if name is None:
        raise EdenError("no namespace is named", "eden rebuild NAME")
    if accept and not then_switch:
        raise EdenError("--accept is said to --switch alone", f"eden rebuild {name} --switch --accept")
    if follow and then_switch:
        raise EdenError("what is live is followed by `eden run`", "Leave out --follow or --switch.")
    compared = compare or (then_switch and not accept)
    asked = Asked(checked(name), follow, show if compared else None, then_switch, accept)
    verdicts: list[Verdict] = []
    ended = _to_its_end(_work(Settings(), asked, verdicts))
    if not ended and (not follow or (compared and not verdicts)):
        _stopped(f"eden rebuild {name}")
    if not (accept and then_switch) and not all(one.equal for one in verdicts):
        sys.exit(1)


def _alone(option: str, others: Mapping[str, object]) -> None:
    if given := [name for name, one in others.items() if one]:
        raise EdenError(f"{option} takes nothing beside it: {', '.join(given)}", f"eden rebuild {option}")


def _to_its_end(work: Coroutine[Any, Any, None]) -> bool:
    """False: it was stopped by Ctrl-C."""
    try:
        with warnings_only():
            run(work, COLLECTED_AFTER)
    except KeyboardInterrupt:
        return False
    return True


def _stopped(command: str) -> Never:
    typer.echo(f"stopped; `{command}` goes on", err=True)
    sys.exit(STOPPED)


@dataclass(frozen=True, slots=True)
class Asked:
    """What the command is to do; `most` differences are shown, None: nothing is compared."""

    name: str
    follow: bool
    most: int | None
    switch: bool
    accept: bool


async def _work(settings: Settings, asked: Asked, verdicts: list[Verdict]) -> None:
    """Whether it is equal to live is put into `verdicts`, where that is asked."""
    console, name = Console(highlight=False, soft_wrap=True), asked.name
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
                    elif asked.switch:
                        console.print("nothing was switched; --accept makes it live all the same")

                running = work.run(worker, once_in, follow=asked.follow and not asked.switch)
                await _while_ours(running, at, name, own=asked.switch)


def _may_switch(asked: Asked, verdicts: Sequence[Verdict]) -> bool:
    return asked.accept or all(one.equal for one in verdicts)


async def _while_ours(running: Coroutine[Any, Any, None], at: Installation, name: str, *, own: bool) -> None:
    """Until it has ended; an EdenError once somebody drops the namespace, or (unless it is our `own` doing) makes it
    live: it has a writer then."""
    await run_until_first(running, _taken(at, name, own=own))


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
