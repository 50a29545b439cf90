"""Memory on a terminal: its texts are data, so nothing in them is obeyed, neither control characters nor markup."""

import json
import re
import shutil
import signal
import sys
import textwrap
from datetime import datetime
from typing import Any
from urllib.parse import unquote

import typer
from pydantic_core import to_jsonable_python

from eden_memory.errors import Invalid
from eden_memory.schemas.ids import split
from eden_memory.schemas.scopes import Scope
from eden_memory.tasks import in_utc

OBEYED = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ufff9-\ufffb]"
)
"""Control characters but tab and line feed, and what turns the direction of writing around."""
TYPED = re.compile(r"(?<![\w.~%-])[siuo]\.([\w.~%-]+)", re.ASCII)
LONE = re.compile(r"[\ud800-\udfff]")


def sigterm_as_interrupt() -> None:
    """Make SIGTERM end a command as Ctrl-C does: what it has started is stopped."""
    signal.signal(signal.SIGTERM, _interrupted)


def _interrupted(number: int, frame: object) -> None:
    del number, frame
    signal.raise_signal(signal.SIGINT)


def plain(text: str) -> str:
    """Replace each character that a terminal obeys by �."""
    return LONE.sub("�", OBEYED.sub("�", text))


def folded(text: str, indent: str, behind: str | None = None) -> list[str]:
    """Fold a text to the terminal's width; words and ids stay whole. `behind`: the indent of later lines."""
    return textwrap.wrap(
        text,
        shutil.get_terminal_size().columns,
        initial_indent=indent,
        subsequent_indent=indent if behind is None else behind,
        break_long_words=False,
        break_on_hyphens=False,
    )


def as_written(ids: str) -> str:
    """Return ids as the application writes them, without types and encoding, also within scope keys."""
    return plain(TYPED.sub(lambda found: unquote(found[1]), ids))


def moment(at: datetime | None) -> str:
    """Format a time to the minute, in UTC."""
    return "" if at is None else f"{at:%Y-%m-%d %H:%M}"


def scope_name(scope: Scope) -> str:
    """Name a scope: `user ada`, `session s-1`, `agent default`."""
    named = scope.user_id or scope.group_id or scope.session_id or scope.agent_id
    return f"{scope.kind} {scope.shard if scope.shard is not None else split(named)[1]}"


def show_json(value: Any) -> None:
    """Print a JSON value in ASCII."""
    typer.echo(json.dumps(to_jsonable_python(value), indent=2))


def confirm(question: str) -> None:
    """Ask, and abort if the answer is no; Invalid if nobody can answer."""
    if not agreed(question):
        raise typer.Abort


def agreed(question: str) -> bool:
    """Return the answer to a question; Invalid if standard input is no terminal and has no answer."""
    try:
        return typer.confirm(question, err=True)
    except typer.Abort:
        if sys.stdin.isatty():
            raise
        typer.echo(err=True)
        raise Invalid(
            "this needs a confirmation, and standard input is no terminal", "Give --yes to skip the question."
        ) from None


def parse_time(text: str) -> datetime:
    """Read an ISO date or time; one without a zone is in UTC. A usage error for anything else."""
    try:
        return in_utc(datetime.fromisoformat(text))
    except ValueError:
        said = f"{text!r} is not a time; give an ISO date or time, as 2026-01-31 or 2026-01-31T09:00"
        raise typer.BadParameter(said) from None
