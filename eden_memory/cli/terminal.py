"""Memory on a terminal: its texts are data, so nothing in them is obeyed, neither control characters nor markup."""

import json
import re
import sys
from collections.abc import Collection, Iterable, Sequence
from datetime import UTC, datetime
from typing import Any
from urllib.parse import unquote

import typer
from pydantic_core import to_jsonable_python
from rich.console import Console
from rich.table import Table
from rich.text import Text

from eden_memory.errors import Invalid
from eden_memory.schemas.ids import split
from eden_memory.schemas.scopes import Scope

OBEYED = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ufff9-\ufffb]"
)
"""Control characters but tab and line feed, and what turns the direction of writing around."""
NARROW, UNBROKEN = 100, 10_000
"""Columns: below the first, ids stand under the texts that they belong to; the second is more than a line needs."""
UNBROKEN_COLUMNS = ("id", "scope", "of")
SHORT = 12
"""Characters of a word that is never broken, whatever its column."""
GAP = 2
"""Spaces between two columns."""
TYPED = re.compile(r"(?<![\w.~%-])[siuo]\.([\w.~%-]+)", re.ASCII)
LONE = re.compile(r"[\ud800-\udfff]")


def plain(text: str) -> str:
    """A text without what a terminal obeys; each such character becomes �."""
    return LONE.sub("�", OBEYED.sub("�", text))


def as_written(ids: str) -> str:
    """Ids as the application writes them, without their types and encoding, also within scope keys."""
    return plain(TYPED.sub(lambda found: unquote(found[1]), ids))


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
    """Return a console that prints texts as they stand; into a pipe or a file no line is broken."""
    return Console(highlight=False, markup=False, emoji=False, width=width())


def width() -> int | None:
    """Return how wide a console is, None for as wide as its terminal: what is piped is never broken or cut."""
    return None if sys.stdout.isatty() else UNBROKEN


def show_table(
    columns: Sequence[str],
    rows: Iterable[Sequence[Any]],
    empty: str,
    whole: Collection[str] = (),
    words: Collection[str] = (),
) -> None:
    """Print a table, or to standard error that there is nothing.

    No header, id, scope, short word, cell of the columns named by `whole` or word of those named by `words` is ever
    broken: on a narrow terminal ids, and scopes if need be, stand below the texts that they belong to; where that
    is not enough, each row is a block with a line for every cell.
    """
    out = console()
    cells = [[cell if isinstance(cell, Text) else Text(plain(str(cell))) for cell in row] for row in rows]
    if not cells:
        typer.echo(empty, err=True)
        return
    names = list(columns)
    widths = [
        max(len(word) for word in (*name.split(), *_short_words(row[at] for row in cells), ""))
        for at, name in enumerate(names)
    ]
    for at in (names.index(name) for name in whole):
        widths[at] = max(widths[at], *(len(row[at]) for row in cells))
    for at in (names.index(name) for name in words):
        widths[at] = max(widths[at], *(len(word) for row in cells for word in row[at].plain.split()), 0)
    for name in (column for column in UNBROKEN_COLUMNS if column in names):
        at = names.index(name)
        widths[at] = max(len(row[at]) for row in cells)
        if out.width < NARROW and (name == "id" or sum(widths) > _room(out, names)):
            _put_below(names, widths, cells, at)
    room = _room(out, names)
    if sum(widths) > room:
        _show_blocks(out, names, cells)
        return
    table = Table(box=None, pad_edge=False, header_style="dim")
    natural = [
        max(
            len(line)
            for cell in column
            for line in (cell if isinstance(cell, str) else cell.plain).split("\n")
        )
        for column in zip(names, *cells, strict=True)
    ]
    for name, width in zip(names, _fitted(natural, widths, room), strict=True):
        table.add_column(name, overflow="fold", width=width)
    for row in cells:
        table.add_row(*row)
    out.print(table)


def _show_blocks(out: Console, names: Sequence[str], cells: Iterable[Sequence[Text]]) -> None:
    """A line for every cell that holds something, a blank line between two rows."""
    widest = max(map(len, names))
    for at, row in enumerate(cells):
        if at:
            out.print()
        for name, cell in zip(names, row, strict=True):
            if cell:
                out.print(Text.assemble((f"{name:<{widest}}  ", "dim"), cell), soft_wrap=True)


def _fitted(natural: Sequence[int], least: Sequence[int], room: int) -> list[int]:
    """Return widths of columns: the widest give way until all fit, none below its least."""
    widths = [max(pair) for pair in zip(natural, least, strict=True)]
    while sum(widths) > room:
        wider = [at for at, width in enumerate(widths) if width > least[at]]
        if not wider:
            break
        widths[max(wider, key=widths.__getitem__)] -= 1
    return widths


def _room(out: Console, names: Sequence[str]) -> int:
    return out.width - GAP * (len(names) - 1)


def _short_words(cells: Iterable[Text]) -> Iterable[str]:
    """The words that are not worth a break: dates, names, no addresses."""
    return (word for cell in cells for word in cell.plain.split() if len(word) <= SHORT)


def _put_below(names: list[str], widths: list[int], cells: list[list[Text]], ids: int) -> None:
    """Each id becomes the last line of the longest text of its row, and its column goes."""
    others = (at for at, name in enumerate(names) if at != ids and name not in UNBROKEN_COLUMNS)
    longest = max(others, key=lambda at: max(len(row[at]) for row in cells))
    widths[longest] = max(widths[longest], widths[ids])
    for row in cells:
        row[longest] = Text.assemble(row[longest], "\n", (row[ids].plain, "dim"))
        del row[ids]
    del names[ids], widths[ids]


def show_json(value: Any) -> None:
    """One JSON value on standard output, in ASCII."""
    typer.echo(json.dumps(to_jsonable_python(value), indent=2))


def confirm(question: str) -> None:
    """Ask, and abort where the answer is no; Invalid where nobody is there to answer."""
    if not agreed(question):
        raise typer.Abort


def agreed(question: str) -> bool:
    """Ask; Invalid where standard input is no terminal and holds no answer."""
    try:
        return typer.confirm(question, err=True)
    except typer.Abort:
        if sys.stdin.isatty():
            raise
        typer.echo(err=True)
        raise Invalid("nobody is there to be asked", "Give --yes to do it without a question.") from None


def parse_time(text: str) -> datetime:
    """Read an ISO date or time; one without a zone is in UTC. A usage error for anything else."""
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        said = f"{text!r} is no time; give an ISO date or time, as 2026-01-31 or 2026-01-31T09:00"
        raise typer.BadParameter(said) from None
    return at if at.tzinfo else at.replace(tzinfo=UTC)
