"""`eden forget KIND ID`, `eden forget --missing`: forget something and what derives only from it."""

import asyncio
from typing import Annotated, Literal

import typer

from eden_memory.cli.terminal import confirm
from eden_memory.cli.undo_attack import undo
from eden_memory.errors import Invalid
from eden_memory.replay.installation import installation
from eden_memory.replay.namespaces.namespace_names import goes_on
from eden_memory.replay.reform.reform_store import neglected
from eden_memory.schemas.documents import Message, Namespace
from eden_memory.settings import Settings
from eden_memory.source.forget_request_store import ForgetKind, ForgetRequests

Named = Literal["message", "session", "user", "fact", "reflection", "blob", "import", "call"]


def forget(
    kind: Annotated[
        Named | None,
        typer.Argument(help="what it is; `import` and `call` only with --caused-by"),
    ] = None,
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="ID",
            help="as the application has it, or typed (s.TEXT, i.5); a blob's: SCOPE_KEY@VERSION",
        ),
    ] = None,
    by: Annotated[str | None, typer.Option("--by", help="who asks, noted in the record")] = None,
    yes: Annotated[bool, typer.Option("--yes", help="do not ask")] = False,
    caused_by: Annotated[
        bool,
        typer.Option(
            "--caused-by",
            help="undo an attack: show all memory that a message, session, user, import or model call led to, then "
            "remove it and restore what it displaced",
        ),
    ] = False,
    missing: Annotated[
        bool,
        typer.Option(
            "--missing",
            help="list the messages whose document was missing after a lost position, and forget them",
        ),
    ] = False,
) -> None:
    """Forget a message, session, user or fact, and everything derived only from it; summaries are rebuilt.

    Examples:

    eden forget message 65f0…

    eden forget user ada --yes --by support

    eden forget --missing

    eden forget --caused-by session 65f0…
    """
    settings = Settings()
    if missing:
        if kind is not None:
            raise Invalid("--missing takes no kind and no ID", "It lists what is missing, and asks.")
        _forget_missing(settings, by, yes=yes)
        return
    if kind is None or name is None:
        raise Invalid("name what to forget", "eden forget message|session|user|fact ID")
    if caused_by:
        undo(settings, kind, name, by, yes=yes)
        return
    if kind in ("import", "call"):
        raise Invalid(f"{kind} goes with --caused-by", f"eden forget --caused-by {kind} {name}")
    if not yes:
        confirm(f"Forget the {kind} {name}? It cannot be undone.")
    _say_asked(asyncio.run(_forget(settings, kind, name, by)))


def _forget_missing(settings: Settings, by: str | None, *, yes: bool) -> None:
    found = asyncio.run(_missing(settings))
    for message in found[:SHOWN]:
        state = "formed" if message.formation_id else "waits for its window"
        typer.echo(f"{message.id}  session {message.session_id}  {message.time:%Y-%m-%d %H:%M:%S}  {state}")
    if len(found) > SHOWN:
        typer.echo(f"… and {len(found) - SHOWN} more")
    if not found:
        typer.echo("No message is missing.")
        return
    if not yes:
        question = f"Forget these {len(found)} messages, which the application does not have any more?"
        confirm(f"{question} It cannot be undone.")
    _say_asked(asyncio.run(_forget_all(settings, found, by)))


def _say_asked(left: list[Namespace]) -> None:
    typer.echo(
        f"Asked. A running system removes it from facts, reflections, blobs and contexts within moments; "
        f"what is in topics kept for a time ages out: {', '.join(AGES_OUT)}."
    )
    for namespace in left:
        typer.echo(f"{namespace.id} keeps what it holds of it until it goes on: {goes_on(namespace)}.")


SHOWN = 50
"""Missing messages that are listed one by one."""
AGES_OUT = (
    "memory.extractions and memory.candidates 7 days after they were consumed",
    "dead letters and memory.usage after 30 days",
    "texts of closed windows 7 days after their formation",
)


async def _forget(settings: Settings, kind: ForgetKind, name: str, by: str | None) -> list[Namespace]:
    """Request the forgetting; return the namespaces that keep the memory for now."""
    async with installation(settings) as at:
        await ForgetRequests(at.source, at.database, at.settings, by).ask(kind, name)
        return await neglected(at.database, settings.mongodb.prefix)


async def _missing(settings: Settings) -> list[Message]:
    async with installation(settings) as at:
        return await ForgetRequests(at.source, at.database, at.settings, None).missing()


async def _forget_all(settings: Settings, messages: list[Message], by: str | None) -> list[Namespace]:
    async with installation(settings) as at:
        await ForgetRequests(at.source, at.database, at.settings, by).ask_for(messages)
        return await neglected(at.database, settings.mongodb.prefix)
