"""Tables on a terminal, as wide as it is; piped, a row is one line."""

import sys
from collections.abc import Collection, Iterable, Sequence
from typing import Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from eden_memory.cli.terminal import plain

NARROW, UNBROKEN = 100, 10_000
"""Columns: below the first, ids stand under the texts that they belong to; the second is more than a line needs."""
UNBROKEN_COLUMNS = ("id", "scope", "of")
SHORT = 12
"""Characters of a word that is never broken, whatever its column."""
GAP = 2
"""Spaces between two columns."""


def line(text: str) -> Text:
    """Return text in one line, without markup."""
    return Text(plain(" ".join(text.split())))


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
    """Print a line for every cell with content, and a blank line between two rows."""
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
    """Yield the words that must not break: dates and names, no addresses."""
    return (word for cell in cells for word in cell.plain.split() if len(word) <= SHORT)


def _put_below(names: list[str], widths: list[int], cells: list[list[Text]], ids: int) -> None:
    """Move each id below the longest text of its row, and remove its column."""
    others = (at for at, name in enumerate(names) if at != ids and name not in UNBROKEN_COLUMNS)
    longest = max(others, key=lambda at: max(len(row[at]) for row in cells))
    widths[longest] = max(widths[longest], widths[ids])
    for row in cells:
        row[longest] = Text.assemble(row[longest], "\n", (row[ids].plain, "dim"))
        del row[ids]
    del names[ids], widths[ids]
