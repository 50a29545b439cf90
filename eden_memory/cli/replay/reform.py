"""`eden reform`: form memory again from the chat topic, in a standby namespace."""

import asyncio
import os
import sys
from collections.abc import Iterable
from contextlib import aclosing, suppress
from decimal import Decimal
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from rich.console import Console
from typer.core import TyperGroup

from eden_memory.cli.replay import reform_report as shown
from eden_memory.cli.replay.reform_report import report
from eden_memory.cli.structured_logs import warnings_only
from eden_memory.cli.tables import width
from eden_memory.cli.terminal import confirm
from eden_memory.errors import EdenError
from eden_memory.local.servers import endpoints
from eden_memory.mongo.client import connect
from eden_memory.names import Placement
from eden_memory.replay.namespaces.namespace_store import live_settings
from eden_memory.replay.reform.namespace_reform import (
    Confirmation,
    Estimated,
    Formed,
    PausedAtCap,
    ReformRequest,
    ReformStep,
    Switched,
    reform,
)
from eden_memory.replay.reform.reform_settings import overridden
from eden_memory.settings import Settings
from eden_memory.tasks import heeding

if TYPE_CHECKING:
    from eden_memory.evals.dataset import EvalSet

AT_CAP, STOPPED = 3, 130
NICE = 10
"""Live formation on the same machine goes first."""
Ended = Literal["formed", "switched", "capped"]


class _Reforms(TyperGroup):
    """`eden reform NAME …` means `eden reform run NAME …`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if args and args[0] not in (*self.commands, "--help"):
            args = ["run", *args]
        return super().parse_args(ctx, args)


app = typer.Typer(
    cls=_Reforms,
    help="Form memory again in a namespace: `eden reform NAME [OPTIONS]` (options: `eden reform run --help`).",
    no_args_is_help=True,
)
app.command("report")(report)


@app.command()
def run(
    name: Annotated[str, typer.Argument(help="the namespace; made if there is none")],
    agent: Annotated[str | None, typer.Option("--agent", help="only this agent's windows")] = None,
    user: Annotated[str | None, typer.Option("--user", help="only windows with this user")] = None,
    session: Annotated[str | None, typer.Option("--session", help="only this session's windows")] = None,
    rewindow: Annotated[bool, typer.Option("--rewindow", help="cut windows anew")] = False,
    set_: Annotated[
        list[str] | None, typer.Option("--set", help="a setting of its own, as memory.similar=0.8")
    ] = None,
    settings: Annotated[Path | None, typer.Option("--settings", help="settings of its own, TOML")] = None,
    streams: Annotated[
        Path | None, typer.Option("--streams", help="streams in place of the stored ones, a JSON list")
    ] = None,
    at_once: Annotated[
        int | None, typer.Option(min=1, help="windows on their way; unset: a quarter of run.at_once")
    ] = None,
    cap: Annotated[float | None, typer.Option(min=0, help="US dollars at which it pauses")] = None,
    yes: Annotated[bool, typer.Option("--yes", help="do not ask")] = False,
    eval_: Annotated[
        Path | None,
        typer.Option(
            "--eval", help="JSON lines of questions about your chat: compare how both memories answer"
        ),
    ] = None,
    switch: Annotated[bool, typer.Option("--switch", help="then make it live")] = False,
    accept: Annotated[
        bool,
        typer.Option(
            "--accept", help="switch though only a part was formed anew, or retirements match nothing"
        ),
    ] = False,
) -> None:
    """Form memory anew from the recorded chat, with other prompts, models or thresholds, beside live memory.

    What it will cost is estimated and asked first. Stopped or killed at any moment, the same command goes on.
    Exit code 3: it has paused at the cap; a higher --cap goes on.

    Examples:

    eden reform trial --set models.fast=gpt-5.1 --cap 5

    eden reform trial --user ada --set memory.similar=0.8 --yes

    eden reform trial --streams streams.json --rewindow --set windows.messages=20

    eden reform trial --set memory.similar=0.8 --eval questions.jsonl

    eden reform trial --switch
    """
    if accept and not switch:
        raise EdenError("--accept requires --switch", f"eden reform {name} --switch --accept")
    request = ReformRequest(
        agent,
        user,
        session,
        rewindow,
        tuple(set_ or ()),
        settings,
        streams,
        at_once,
        None if cap is None else _usd(cap),
        switch,
        accept,
    )
    console = Console(highlight=False, soft_wrap=True, width=width())
    questions = _questions(eval_) if eval_ else None
    with suppress(AttributeError, OSError):  # not there on Windows
        os.nice(NICE)
    try:
        with warnings_only():
            ended = asyncio.run(
                heeding(reformed(Settings(), name, request, console, yes=yes, questions=questions))
            )
    except KeyboardInterrupt:
        typer.echo(f"stopped; `eden reform {name}` goes on", err=True)
        sys.exit(STOPPED)
    if ended == "capped":
        sys.exit(AT_CAP)


def _usd(cap: float) -> Decimal:
    if not isfinite(cap):
        raise EdenError("--cap must be a finite number", "Leave it out to have no cap.")
    return Decimal(str(cap))


async def reformed(
    settings: Settings,
    name: str,
    request: ReformRequest,
    console: Console,
    *,
    yes: bool = False,
    questions: "EvalSet | None" = None,
) -> Ended:
    """Begin or continue a reform; print its steps, and ask before those that need consent, unless `yes`.

    `questions`: both memories are asked these once everything is formed.
    """
    ended: Ended = "formed"
    with shown.ReformBar(console, name) as bar:
        async with aclosing(reform(settings, name, request, bar.reading, bar.progress)) as steps:
            async for step in steps:
                bar.close()
                for line in _lines(name, request, step):
                    console.print(line, markup=False) if isinstance(line, str) else console.print(line)
                match step:
                    case Confirmation() if not yes:
                        confirm(step.text)
                    case PausedAtCap():
                        ended = "capped"
                    case Formed() if questions is not None:
                        worse = await _evaluated(settings, name, request, step, questions, console)
                        if worse and request.switch and not yes:
                            confirm("Switch anyway?")
                    case Switched():
                        ended = "switched"
                    case _:
                        pass
    return ended


def _questions(file: Path) -> "EvalSet":
    from eden_memory.evals.dataset import read_set  # noqa: PLC0415 - for this option alone

    return read_set(file)


async def _evaluated(
    settings: Settings,
    name: str,
    request: ReformRequest,
    step: Formed,
    questions: "EvalSet",
    console: Console,
) -> bool:
    """Print how the new memory answers beside the live one; return whether it is worse."""
    from eden_memory.evals.trial import tried  # noqa: PLC0415 - numpy and search models, for this alone

    async with connect(endpoints(settings).mongodb) as client:
        live = await live_settings(settings, client[settings.mongodb.database])
    own = overridden(settings, step.reform.asked.overrides).placed(Placement(name, name))
    left = None if request.cap is None else max(Decimal(0), request.cap - step.reform.spent_usd)
    trial = await tried(live, name, own, questions, left)
    for line in shown.evaluated(trial):
        console.print(line, markup=False) if isinstance(line, str) else console.print(line)
    return bool(trial.worse)


def _lines(name: str, request: ReformRequest, step: ReformStep) -> Iterable[Any]:
    match step:
        case Estimated():
            return shown.estimated(name, step.asked, step.plan, step.cap)
        case Confirmation():
            return step.because
        case PausedAtCap():
            return [
                *shown.formed(step.reform, step.missing, step.dead),
                f"it has paused at the cap; go on with: eden reform {name} --cap USD",
            ]
        case Formed():
            edits = shown.user_edits(step.user_edits)
            what_next = [] if request.switch else [f"eden reform report {name}; eden reform {name} --switch"]
            return [*shown.formed(step.reform, step.missing, step.dead), *edits, *what_next]
        case Switched():
            return [f"{name} is live; back: eden namespace rollback", *shown.carried(step.switchover)]
