"""`eden up`, `eden down`, `eden status`: the local servers."""

import json
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from textwrap import wrap
from typing import Annotated

import typer
from rich.console import Console

from eden_memory.errors import EdenError
from eden_memory.local import servers
from eden_memory.local.servers import ServerReport
from eden_memory.settings import Settings

PIPED = 80
"""Columns of a line that no terminal reads."""
Who = Annotated[
    str | None, typer.Option(help="as in the application, or typed: s.TEXT, i.5, u.UUID, o.OBJECTID")
]


def up() -> None:
    """Start MongoDB and Kafka locally, unless EDEN_MONGODB_URI and EDEN_KAFKA_BOOTSTRAP name others."""
    for report in servers.up(Settings()):
        for note in report.notes:
            _say(f"  {note}")
        _say(_after_up(report))


def down() -> None:
    """Stop the local servers; their data stays."""
    stopped = servers.down(Settings())
    _say(f"stopped {' and '.join(stopped)}; the data is kept" if stopped else "no local server was running")


def status(
    agent: Who = None,
    session: Who = None,
    user: Who = None,
    as_json: Annotated[bool, typer.Option("--json", help="JSON on standard output")] = False,
) -> None:
    """Show which servers run and what is waiting; for an agent, session or user, when it consolidates.

    Examples:

    eden status

    eden status --user ada

    eden status --session s1 --json
    """
    reports = servers.status(Settings())
    listed = [report.model_dump(mode="json") for report in reports]
    if agent is None and session is None and user is None:
        if as_json:
            typer.echo(json.dumps(listed, indent=2))
        else:
            _say("\n".join(map(_line, reports)))
            _say_standing(reports)
        return
    from eden_memory.cli import terminal  # noqa: PLC0415 - `eden up` needs none of it
    from eden_memory.cli.memory import shown  # noqa: PLC0415 - the same
    from eden_memory.cli.memory.viewer import ask  # noqa: PLC0415 - the same

    found = ask(agent, session, user, lambda who: who.memory.get_consolidation_status(**who.named))
    if as_json:
        terminal.show_json({"servers": listed, "consolidation": found})
    else:
        _say("\n".join([*map(_line, reports), ""]))
        shown.consolidation(found, user)


def _say_standing(reports: Sequence[ServerReport]) -> None:
    """Print the live namespace, waiting messages, budgets and stopped stages, or why MongoDB does not say."""
    if any(report.name.startswith("MongoDB") and report.running is False for report in reports):
        return
    from pymongo.errors import PyMongoError  # noqa: PLC0415 - `eden up` needs none of it

    from eden_memory.cli import (  # noqa: PLC0415 - the same
        budget_commands,
        error_messages,
        live_namespace,
        sessions,
        source_commands,
        stage_commands,
    )

    try:
        lines = live_namespace.standing(Settings())
    except TimeoutError:
        _say(f"MongoDB does not answer within {live_namespace.ANSWER_SECONDS:g} s; check EDEN_MONGODB_URI")
        return
    except (EdenError, PyMongoError) as error:
        if (known := error_messages.told(error)) is None:
            raise
        _say(f"{known.what}\n{known.hint}")
        return
    for line in lines:
        _say(line)
    for part in (source_commands, sessions, budget_commands, stage_commands):
        for line in part.standing(Settings()):
            _say(line)


def _after_up(report: ServerReport) -> str:
    if report.origin == "settings":
        return f"{report.name}: {report.endpoint} is used as the settings say; nothing was started"
    word = "was running already" if report.already else "runs"
    return f"{report.name} {report.version} {word}: {report.endpoint}"


def _line(report: ServerReport) -> str:
    if report.origin == "settings":
        return f"{report.name}: {report.endpoint} (named by the settings; `eden doctor` checks it)"
    if not report.running:
        return f"{report.name}: not running (`eden up` starts it)"
    where = f"{report.endpoint}, pid {report.pid}{_since(report)}, log {report.log}"
    return f"{report.name} {report.version}: {where}"


def _since(report: ServerReport) -> str:
    if report.started_at is None:
        return ""
    return f" since {datetime.fromtimestamp(report.started_at, UTC):%Y-%m-%d %H:%M:%S} UTC"


def _say(lines: str) -> None:
    """Print lines that fit the terminal; piped, 80 columns. Addresses and paths are never broken."""
    width = Console().width if sys.stdout.isatty() else PIPED
    for line in lines.splitlines():
        kept = line[: len(line) - len(line.lstrip())]
        parts = wrap(
            line, width, subsequent_indent=f"{kept}  ", break_long_words=False, break_on_hyphens=False
        )
        typer.echo("\n".join(parts))
