"""`eden history`: show all versions of a fact, reflection or blob."""

from collections.abc import Iterator
from typing import Annotated, Any

import typer

from eden_memory.cli import tables, terminal
from eden_memory.cli.memory.viewer import Agent, AsJson, Session, User, Viewer, ask
from eden_memory.errors import NotFound
from eden_memory.memory.memory_views import (
    BlobVersionView,
    BlobView,
    CommandView,
    FactHistory,
    ReflectionView,
    VersionView,
)


def history(
    fact: Annotated[
        str, typer.Argument(metavar="ID", help="of a fact or reflection, or the key of a blob's scope")
    ],
    agent: Agent = None,
    session: Session = None,
    user: User = None,
    as_json: AsJson = False,
) -> None:
    """Show all versions of a fact, reflection or blob: the reason for each, its sources and its cost.

    Examples:

    eden history FACT --user ada

    eden history user:s.support:s.ada --user ada --agent support
    """

    found = ask(agent, session, user, lambda who: _found(who, fact))
    if as_json:
        terminal.show_json(found)
    elif isinstance(found, FactHistory):
        _show_fact(found)
    else:
        versions = _versions(found)
        tables.show_table(
            ("", "said" if isinstance(found, ReflectionView) else "since", "why", "text"), versions, ""
        )


async def _found(who: Viewer, wanted: str) -> FactHistory | ReflectionView | BlobView:
    if ":" in wanted:
        blobs = await who.memory.list_blobs(**who.named)
        if (blob := next((blob for blob in blobs if blob.scope.key == wanted), None)) is not None:
            return blob
    try:
        return await who.memory.history(wanted, **who.named)
    except NotFound:
        try:
            return await who.memory.reflection(wanted, **who.named)
        except NotFound:
            raise NotFound(f"there is no fact, reflection or blob {wanted!r} here") from None


def _versions(found: ReflectionView | BlobView) -> Iterator[tuple[Any, ...]]:
    """Yield a line for each version, newest first."""
    formed = "formed" if isinstance(found, ReflectionView) else "consolidated"
    for version in (found, *found.earlier):
        at = version.consolidated_at if isinstance(version, BlobView | BlobVersionView) else version.said_at
        yield (
            f"v{version.version}",
            terminal.moment(at),
            formed if version.command is None else _asked_by(version.command),
            tables.line(version.content),
        )


def _asked_by(command: CommandView) -> str:
    because = f": {command.reason}" if command.reason else ""
    return f"{command.action} by {command.asked_by or command.by}{because}"


def _show_fact(found: FactHistory) -> None:
    rows = (
        (
            f"v{version.version}",
            terminal.moment(version.valid_from),
            _why(version),
            tables.line(version.content),
            _cost(version),
        )
        for version in found.versions
    )
    tables.show_table(("", "since", "why", "text", "USD"), rows, "")
    for name, value in _rest(found).items():
        tables.console().print(f"{name}: {terminal.plain(value)}", soft_wrap=True)


def _why(version_view: VersionView) -> str:
    by = (
        f" ({version_view.action} by {version_view.asked_by or version_view.by})"
        if version_view.action
        else ""
    )
    undone = ", undone" if version_view.undone else ""
    because = f": {version_view.reason}" if version_view.reason else ""
    return f"{version_view.decision}{by}{undone}{because}"


def _cost(version_view: VersionView) -> str:
    if version_view.cost_usd is None:
        return "" if version_view.model is None else "unknown"
    return f"{version_view.cost_usd:.6f}"


def _rest(found: FactHistory) -> dict[str, str]:
    fact = found.fact
    said = {
        "scope": terminal.scope_name(fact.scope),
        "rests on": ", ".join(terminal.as_written(source.message_id) for source in fact.sources),
        "replaces": fact.replaces or "",
        "replaced by": fact.replaced_by or "",
        "retired": f"{terminal.moment(fact.retired_at)} ({fact.retired_because})" if fact.retired_at else "",
        "found by searches": f"{found.found} time{'s' * (found.found != 1)}" if found.found else "",
    }
    return {name: value for name, value in said.items() if value}
