"""`eden rebuild`: rebuild memory from its topics into a namespace."""

import asyncio
import sys
from collections.abc import Callable, Coroutine, Mapping
from functools import partial
from typing import Annotated, Any, Never

import typer
from rich.console import Console

from eden_memory.cli.replay.progress import RebuildProgress
from eden_memory.cli.structured_logs import warnings_only
from eden_memory.errors import EdenError
from eden_memory.replay.installation import installation
from eden_memory.replay.namespaces.namespace_store import checked
from eden_memory.replay.rebuild.namespace_rebuild import SHOWN, NamespaceRebuild
from eden_memory.settings import Settings
from eden_memory.stages.process import run

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
    """Rebuild memory from its topics into a namespace, without a model; safe to stop and repeat.

    Live memory is not touched, and nothing is published. Exit code 1: it differs from live memory; 130: stopped
    before it was done.
    """
    others = {
        "NAME": name,
        "--follow": follow,
        "--verify": compare,
        "--switch": then_switch,
        "--accept": accept,
    }
    if back:
        _alone("--rollback", {**others, "--from-nothing": nothing})
        from eden_memory.cli.replay.namespace import rolled_back  # noqa: PLC0415 - a rebuild needs none of it

        asyncio.run(rolled_back(Settings()))
        return
    console = Console(highlight=False, soft_wrap=True)
    if nothing:
        _alone("--from-nothing", others)
        if not to_its_end(from_nothing(Settings(), console)):
            stopped("eden rebuild --from-nothing")
        return
    if name is None:
        raise EdenError("no namespace is named", "eden rebuild NAME")
    if accept and not then_switch:
        raise EdenError("--accept requires --switch", f"eden rebuild {name} --switch --accept")
    if follow and then_switch:
        raise EdenError("`eden run` follows the live namespace already", "Leave out --follow or --switch.")
    compared = show if compare or (then_switch and not accept) else None
    bar = RebuildProgress(console)
    work = NamespaceRebuild(
        checked(name), _say(console), bar, follow, compared, switch=then_switch, accept=accept
    )
    ended = to_its_end(_rebuild(Settings(), work, bar))
    if not ended and (not follow or (compared is not None and work.verdict is None)):
        stopped(f"eden rebuild {name}")
    if work.verdict is not None and not work.verdict.equal and not accept:
        sys.exit(1)


def _alone(option: str, others: Mapping[str, object]) -> None:
    if given := [name for name, value in others.items() if value]:
        raise EdenError(f"{option} takes no other options: {', '.join(given)}", f"eden rebuild {option}")


def to_its_end(work: Coroutine[Any, Any, None]) -> bool:
    """Run the work; False if Ctrl-C stopped it."""
    try:
        with warnings_only():
            run(work, COLLECTED_AFTER)
    except KeyboardInterrupt:
        return False
    return True


def stopped(command: str, then: str = "goes on") -> Never:
    """Say which command goes on, and exit."""
    typer.echo(f"stopped; `{command}` {then}", err=True)
    sys.exit(STOPPED)


def _say(console: Console) -> Callable[[str], None]:
    return partial(console.print, markup=False)


async def _rebuild(settings: Settings, work: NamespaceRebuild, bar: RebuildProgress) -> None:
    async with installation(settings) as at:
        with bar:
            await work.run(at)


async def from_nothing(settings: Settings, console: Console) -> None:
    """Restore everything that the topics hold, and print each step; repeating it does no harm."""
    from eden_memory.replay.restore.from_nothing import FromNothing  # noqa: PLC0415 - loads formation, 25 MB

    async with installation(settings, restored_too=True) as at:
        with RebuildProgress(console) as bar:
            await FromNothing(at, _say(console), bar).run()
