"""`eden add` and `eden history`: ask through the inbox that a text is remembered; all versions of a memory."""

import sys
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from enum import StrEnum
from typing import Annotated, Any

import typer

from eden_memory.cli import tables, terminal
from eden_memory.cli.memory.viewer import Agent, AsJson, Session, User, Viewer, ask
from eden_memory.errors import NotFound
from eden_memory.formation.offline.statements import statements
from eden_memory.formation.prompt_material import TranscriptLine
from eden_memory.limits import STANDARD
from eden_memory.memory.memory_views import (
    Added,
    BlobVersionView,
    BlobView,
    CommandView,
    FactHistory,
    ReflectionView,
    VersionView,
)
from eden_memory.models.catalogue import chat_providers
from eden_memory.settings import Settings


class AddedKind(StrEnum):
    """Which memory a verbatim text becomes (api.command_requests.VerbatimKind)."""

    FACT = "fact"
    REFLECTION = "reflection"


def add(
    texts: Annotated[
        list[str], typer.Argument(metavar="TEXT…", help="what to remember; - reads standard input")
    ],
    agent: Agent = None,
    session: Session = None,
    user: User = None,
    scope: Annotated[
        str | None,
        typer.Option(
            help="whose memory it becomes: user (unset, with a user), or agent or shard:NAME, which all users see"
        ),
    ] = None,
    at: Annotated[
        str | None, typer.Option(help="when it was said, if not now: ISO, UTC unless it says", metavar="TIME")
    ] = None,
    verbatim: Annotated[
        bool, typer.Option("--verbatim", help="each text is a fact as it stands, without a model")
    ] = False,
    kind: Annotated[AddedKind, typer.Option(help="of a verbatim text: which memory it is")] = AddedKind.FACT,
    as_json: AsJson = False,
) -> None:
    """Remember a text without a chat: memory is formed from it as from a chat message.

    Examples:

    eden add "Ada moved to Turin." --user ada

    eden add "Ada lives in Oslo." --user ada --at 2024-03-01

    eden add - --user ada < notes.txt

    eden add "We ship on Fridays." --user ada --scope agent

    eden add "A cabin costs 400 euros." --scope shard:pricing

    eden add "Ada's boat is called Tern." --user ada --verbatim
    """
    given = [sys.stdin.read() if text == "-" else text for text in texts]

    async def work(who: Viewer) -> Added:
        messages = [{"role": "user", "content": text} for text in given]
        return await who.memory.add(
            messages, **who.named, scope=scope, at=at, verbatim=verbatim, kind=kind.value
        )

    added = ask(agent, session, user, work)
    if as_json:
        terminal.show_json(added)
    else:
        texts_said = "1 text" if len(given) == 1 else f"{len(given)} texts"
        whose = _whose(session, user, scope)
        does = "adds" if verbatim else "forms"
        into = "to" if verbatim else "into"
        typer.echo(terminal.plain(f"asked: `eden run` {does} {texts_said} {into} memory of {whose}"))
    if not verbatim:
        _say_what_rules_leave(given)


def _whose(session: str | None, user: str | None, scope: str | None) -> str:
    if scope is not None and scope.startswith("shard:"):
        return f"the shard {scope.removeprefix('shard:')}"
    if user is not None and scope != "agent":
        return f"user {user}"
    return "the agent" if session is None or scope == "agent" else f"session {session}"


def _say_what_rules_leave(texts: Sequence[str]) -> None:
    """Warn if memory is formed by rules, and they find nothing in some of the texts."""
    if chat_providers(Settings()):
        return
    lines = [TranscriptLine("User", "user", datetime.now(UTC), text) for text in texts]
    left = sum(not statements([line], STANDARD.fact_words) for line in lines)
    if left:
        of = "it" if len(texts) == 1 else f"{left} of them"
        typer.echo(
            f"No language model is used, and the rules in its place find nothing to remember in {of}: they keep "
            'only plain statements such as "I live in Oslo." Set EDEN_LLM to use a model.',
            err=True,
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
