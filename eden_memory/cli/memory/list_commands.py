"""`eden facts`, `eden reflections`, `eden blobs`: list the memory that a user may see."""

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Annotated, TypeVar

import typer

from eden_memory.cli import tables, terminal
from eden_memory.cli.memory.viewer import (
    Agent,
    AsJson,
    OccurredAfter,
    OccurredBefore,
    Scopes,
    Session,
    User,
    Viewer,
    ask,
    kinds_of,
    nothing,
)
from eden_memory.cli.terminal import parse_time
from eden_memory.memory.browsing_store import FactOrder
from eden_memory.memory.results import BlobView, FactView, Page, ReflectionView
from eden_memory.schemas.scopes import Scope

T = TypeVar("T")
Row = tuple[Scope, str, *tuple[str, ...]]
"""A line of a list: scope, text, then times, state and id."""


HoldsSince = Annotated[
    datetime | None,
    typer.Option("--since", parser=parse_time, metavar="TIME", help="since then or later (UTC)"),
]
HoldsUntil = Annotated[
    datetime | None,
    typer.Option("--until", parser=parse_time, metavar="TIME", help="since before then (UTC)"),
]
FactSort = Annotated[FactOrder, typer.Option("--sort", help="newest first, by this time")]
SaidSince = Annotated[
    datetime | None,
    typer.Option("--since", parser=parse_time, metavar="TIME", help="said then or later (UTC)"),
]
SaidUntil = Annotated[
    datetime | None, typer.Option("--until", parser=parse_time, metavar="TIME", help="said before then (UTC)")
]
Limit = Annotated[int, typer.Option(min=1, max=200, help="a page's length")]
Cursor = Annotated[str | None, typer.Option(help="of the page before this one")]


def facts(
    agent: Agent = None,
    session: Session = None,
    user: User = None,
    scopes: Scopes = None,
    retired: Annotated[bool, typer.Option("--retired", help="retired ones alone")] = False,
    everything: Annotated[bool, typer.Option("--all", help="retired ones too")] = False,
    since: HoldsSince = None,
    until: HoldsUntil = None,
    occurred_after: OccurredAfter = None,
    occurred_before: OccurredBefore = None,
    sort: FactSort = "formed_at",
    limit: Limit = 50,
    cursor: Cursor = None,
    as_json: AsJson = False,
) -> None:
    """List the facts that a user may see; those formed last come first.

    They stand in the order of the column "formed"; --since and --until go by "since": from when a fact holds.

    Examples:

    eden facts --user ada

    eden facts --session s1 --scope agent --since 2026-03-01

    eden facts --user ada --all --json
    """
    active = None if everything else not retired

    async def work(who: Viewer) -> Page[FactView]:
        return await who.memory.list_facts(
            **who.named,
            scopes=kinds_of(scopes),
            active=active,
            since=since,
            until=until,
            occurred_after=occurred_after,
            occurred_before=occurred_before,
            sort=sort,
            limit=limit,
            cursor=cursor,
        )

    def row(fact: FactView) -> Row:
        version = f"v{fact.version}" + ("" if fact.active else f" retired: {fact.retired_because or 'asked'}")
        times = terminal.moment(fact.valid_from), terminal.moment(fact.formed_at)
        return fact.scope, fact.content, *times, version, fact.fact_id

    page = ask(agent, session, user, work)
    _show(page, ("scope", "fact", "since", "formed", "version", "id"), row, user, as_json=as_json)


def reflections(
    agent: Agent = None,
    session: Session = None,
    user: User = None,
    scopes: Scopes = None,
    buffered: Annotated[
        bool, typer.Option("--buffered", help="those that wait for a blob to absorb them")
    ] = False,
    since: SaidSince = None,
    until: SaidUntil = None,
    limit: Limit = 50,
    cursor: Cursor = None,
    as_json: AsJson = False,
) -> None:
    """List the reflections that a user may see, newest first.

    Examples:

    eden reflections --user ada

    eden reflections --session s1 --scope session --buffered
    """

    async def work(who: Viewer) -> Page[ReflectionView]:
        return await who.memory.list_reflections(
            **who.named,
            scopes=kinds_of(scopes),
            absorbed=False if buffered else None,
            since=since,
            until=until,
            limit=limit,
            cursor=cursor,
        )

    def row(item: ReflectionView) -> Row:
        return item.scope, item.content, terminal.moment(item.said_at), _state(item), item.reflection_id

    page = ask(agent, session, user, work)
    _show(page, ("scope", "reflection", "said", "absorbed", "id"), row, user, as_json=as_json)


def blobs(
    agent: Agent = None,
    session: Session = None,
    user: User = None,
    scopes: Scopes = None,
    as_json: AsJson = False,
) -> None:
    """Show the consolidated text of every scope that a user may see.

    Examples:

    eden blobs --user ada

    eden blobs --session s1 --scope session --json
    """

    async def work(who: Viewer) -> list[BlobView]:
        return await who.memory.list_blobs(**who.named, scopes=kinds_of(scopes))

    found = ask(agent, session, user, work)
    if as_json:
        terminal.show_json(found)
        return
    if not found:
        typer.echo(nothing("no blobs to show here", user), err=True)
    for blob in found:
        head = f"{terminal.scope_name(blob.scope)}, version {blob.version}, {blob.words} of {blob.word_limit} words"
        tables.console().print(
            f"{terminal.plain(head)}, {terminal.moment(blob.consolidated_at)}", style="bold"
        )
        for name, said in (("scope", blob.scope.key), *(("pinned", pin) for pin in blob.pins)):
            tables.console().print(f"{name}: {terminal.plain(said)}", soft_wrap=True)
        tables.console().print(terminal.plain(blob.content) + "\n", soft_wrap=True)


def _state(item: ReflectionView) -> str:
    absorbed = f"in blob v{item.absorbed_into}" if item.absorbed else "buffered"
    state = absorbed if item.retired_at is None else "retired"
    return state + (f", v{item.version}" if item.version > 1 else "") + (", private" if item.private else "")


def _show(
    page: Page[T], columns: Sequence[str], row: Callable[[T], Row], user: str | None, *, as_json: bool
) -> None:
    """Print a page as JSON, or as a table and how to get the next page."""
    if as_json:
        terminal.show_json(page)
        return
    rows = (
        (terminal.scope_name(scope), tables.line(text), *cells)
        for scope, text, *cells in map(row, page.items)
    )
    tables.show_table(columns, rows, nothing(f"no {columns[1]}s to show here", user))
    if page.cursor is not None:
        typer.echo(f"more: --cursor {page.cursor}", err=True)
