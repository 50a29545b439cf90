"""Memory on a terminal: its texts are data, so nothing in them is obeyed, neither control characters nor markup."""

import json
import re
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

import typer
from pydantic_core import to_jsonable_python
from rich.console import Console
from rich.table import Table
from rich.text import Text

from schemas.ids import split
from schemas.scopes import Scope

OBEYED = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ufff9-\ufffb]"
)
"""Control characters but tab and line feed, and what turns the direction of writing around."""
LONE = re.compile(r"[\ud800-\udfff]")


def plain(text: str) -> str:
    """A text without what a terminal obeys; each such character becomes �."""
    return LONE.sub("�", OBEYED.sub("�", text))


def line(text: str) -> Text:
    """In one line, and without markup."""
    return Text(plain(" ".join(text.split())))


def moment(at: datetime | None) -> str:
    """To the minute, in UTC."""
    return "" if at is None else f"{at:%Y-%m-%d %H:%M}"


def scope_name(scope: Scope) -> str:
    """`user ada`, `session s-1`, `agent default`."""
    named = scope.user_id or scope.group_id or scope.session_id or scope.agent_id
    return f"{scope.kind} {scope.shard if scope.shard is not None else split(named)[1]}"


def console() -> Console:
    """Prints texts as they stand."""
    return Console(highlight=False, markup=False, emoji=False)


def show_table(columns: Sequence[str], rows: Iterable[Sequence[Any]], empty: str) -> None:
    """A table, or to standard error that there is nothing."""
    table = Table(box=None, pad_edge=False, header_style="dim")
    for name in columns:
        table.add_column(name, overflow="fold")
    for row in rows:
        table.add_row(*(one if isinstance(one, Text) else Text(plain(str(one))) for one in row))
    if table.row_count:
        console().print(table)
    else:
        typer.echo(empty, err=True)


def show_json(value: Any) -> None:
    """One JSON value on standard output, in ASCII."""
    typer.echo(json.dumps(to_jsonable_python(value), indent=2))
