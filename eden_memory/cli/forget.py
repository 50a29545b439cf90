"""`eden forget KIND ID`, `eden forget --missing`, `eden forget verify FILE`: forget, and look again."""

import asyncio
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple

import typer

from eden_memory.cli.terminal import confirm
from eden_memory.errors import Invalid, NotFound
from eden_memory.receipts.receipt import CheckedReceipt, written
from eden_memory.receipts.receipt_store import checked, erased, signed_receipt
from eden_memory.receipts.signing_key import signing_key, write_private
from eden_memory.replay.installation import Installation, installation
from eden_memory.replay.namespaces.namespace_store import goes_on
from eden_memory.replay.reform.reform_store import neglected
from eden_memory.schemas.documents import Message, Namespace
from eden_memory.settings import Settings
from eden_memory.source.inbox_store import ForgetKind, ForgetRequests

if TYPE_CHECKING:
    from eden_memory.receipts.compact_forgotten import SegmentsHold

Asked = Literal["message", "session", "user", "fact", "reflection", "blob", "import", "call", "verify"]
"""Values of the first argument."""


def forget(
    kind: Annotated[
        Asked | None,
        typer.Argument(
            help="what to forget; `import`, `call`: only with --caused-by; `verify`: checks a receipt"
        ),
    ] = None,
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="ID",
            help="as the application has it, or typed (s.TEXT, i.5); a blob's: SCOPE_KEY@VERSION; a receipt's file",
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
    receipt: Annotated[
        Path | None,
        typer.Option("--receipt", metavar="FILE", help="wait until it is erased, and write a signed receipt"),
    ] = None,
    compact: Annotated[
        bool,
        typer.Option(
            "--compact",
            help="wait until it is erased, then have Kafka compact its topics now; without a kind: what earlier "
            "requests have left in its segments",
        ),
    ] = False,
) -> None:
    """Forget a message, session, user or fact, and everything derived from it; summaries are rebuilt.

    Examples:

    eden forget message 65f0…

    eden forget user ada --yes --by support

    eden forget session c1 --receipt c1.json

    eden forget verify c1.json

    eden forget --missing

    eden forget --caused-by session 65f0…
    """
    settings = Settings()
    if kind == "verify":
        _verify(settings, name)
        return
    if kind is None and (missing or compact):
        if missing and compact:
            raise Invalid("--missing does not wait", "Run `eden forget --compact` once they are erased.")
        if missing:
            _forget_missing(settings, by, yes=yes)
        else:
            _compact(settings)
        return
    if missing:
        raise Invalid("--missing takes no kind and no ID", "It lists what is missing, and asks.")
    if kind is None or name is None:
        raise Invalid("name what to forget", "eden forget message|session|user|fact ID")
    if caused_by and compact:
        raise Invalid("--caused-by does not compact", "Run `eden forget --compact` once the undo is done.")
    if caused_by:
        from eden_memory.cli.undo_attack import undo  # noqa: PLC0415 - reads Kafka, which the base lacks

        undo(settings, kind, name, by, yes=yes, receipt=receipt)
        return
    if kind in ("import", "call"):
        raise Invalid(f"{kind} requires --caused-by", f"eden forget --caused-by {kind} {name}")
    if not yes:
        asyncio.run(_known(settings, kind, name))
        confirm(f"Forget the {kind} {name}? It cannot be undone.")
    _forget_named(settings, (kind, name), by, receipt, compact=compact)


def _forget_named(
    settings: Settings, what: tuple[ForgetKind, str], by: str | None, receipt: Path | None, *, compact: bool
) -> None:
    if receipt is not None:
        asyncio.run(_forget_with_receipt(settings, what, by, receipt))
        typer.echo(f"Erased. {receipt} says what, and when each store is clean.")
    else:
        asked = asyncio.run(_forget(settings, *what, by))
        _say_asked(asked)
        if compact:
            asyncio.run(_erased(settings, asked.request_id))
    if compact:
        _compact(settings)


def _compact(settings: Settings) -> None:
    """Compact, and print what the segments hold before, in between and at the end."""
    from eden_memory.receipts.compact_forgotten import compact_forgotten  # noqa: PLC0415 - of Kafka, which the base lacks

    async def work() -> int:
        async with installation(settings) as at:
            return sum(held.records for held in await compact_forgotten(at, _say_held))

    gone = asyncio.run(work())
    typer.echo(f"{gone:,} ended records are removed from the disks of Kafka.")


def _say_held(held: "Sequence[SegmentsHold]") -> None:
    for segments in held:
        typer.echo(
            f"{segments.topic}: its segments hold {segments.records:,} ended records, without --compact until "
            f"{segments.until:%Y-%m-%d %H:%M} UTC"
        )


async def _erased(settings: Settings, request_id: str) -> None:
    async with installation(settings) as at:
        await erased(at, request_id)


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


def _say_asked(asked: "ForgettingRequested") -> None:
    typer.echo(
        f"Asked. A running system removes it from facts, reflections, blobs and contexts within moments; "
        f"what is in topics kept for a time ages out: {', '.join(AGES_OUT)}."
    )
    for namespace in asked.left:
        typer.echo(f"{namespace.id} keeps what it holds of it until it goes on: {goes_on(namespace)}.")
    for topic, (count, until) in asked.unreadable.items():
        typer.echo(
            f"{topic}: {count} dead letters cannot be read and name no message; the last of them is removed by "
            f"{until:%Y-%m-%d %H:%M} UTC (`eden dead list`)."
        )


class ForgettingRequested(NamedTuple):
    """A request, and what it does not reach."""

    request_id: str
    left: Sequence[Namespace]
    """Namespaces that keep the memory for now."""
    unreadable: Mapping[str, tuple[int, datetime]]
    """Dead letters that name nothing, by topic: how many, and when the last is removed."""


SHOWN = 50
"""Missing messages that are listed one by one."""
AGES_OUT = (
    "the records in Kafka's segments within 36 hours (--compact removes them now)",
    "memory.extractions, memory.candidates and memory.commands 7 days after they were consumed",
    "memory.usage after 30 days",
    "texts of closed windows 7 days after their formation",
)


async def _known(settings: Settings, kind: ForgetKind, name: str) -> None:
    """Raise NotFound if it does not exist, before asking for confirmation."""
    async with installation(settings) as at:
        await ForgetRequests(at.source, at.database, at.settings, None).target(kind, name)


async def _forget(settings: Settings, kind: ForgetKind, name: str, by: str | None) -> ForgettingRequested:
    """Request the forgetting."""
    async with installation(settings) as at:
        asked = await ForgetRequests(at.source, at.database, at.settings, by).ask(kind, name)
        return await _unreached(at, asked)


async def _unreached(at: Installation, request_id: str = "") -> ForgettingRequested:
    return ForgettingRequested(
        request_id,
        await neglected(at.database, at.settings.mongodb.prefix),
        await at.letters.unreadable(),
    )


async def _forget_with_receipt(
    settings: Settings, what: tuple[ForgetKind, str], by: str | None, file: Path
) -> None:
    signing_key(settings.receipts.key)  # without a key nothing is forgotten
    async with installation(settings) as at:
        asked = await ForgetRequests(at.source, at.database, at.settings, by).ask(*what)
        write_private(file, written(await signed_receipt(at, asked)))


def _verify(settings: Settings, name: str | None) -> None:
    if name is None:
        raise Invalid("the receipt's file is missing", "eden forget verify FILE")
    try:
        text = Path(name).read_bytes()
    except OSError as error:
        raise NotFound(f"{name} cannot be read: {error.strerror}", "Name a receipt's file.") from None
    found = asyncio.run(_checked(settings, text))
    for there in found.still_there:
        typer.echo(f"{there.where}: {there.name} is there")
    for namespace in found.not_yet:
        typer.echo(f"namespace {namespace} keeps what it holds of it until it goes on or is dropped")
    for store in found.not_clean:
        typer.echo(f"{store.store}: its disk may hold remains until {store.by:%Y-%m-%d %H:%M:%S} UTC")
    left = (
        f"{len(found.still_there):,} of the things that it names are"
        if found.still_there
        else "Nothing that it names is"
    )
    typer.echo(
        f"The signature is valid. {left} there. Records that wait for Kafka's compaction: {found.on_disk:,}."
    )
    if found.still_there:
        raise typer.Exit(1)


async def _checked(settings: Settings, text: bytes) -> CheckedReceipt:
    async with installation(settings) as at:
        return await checked(at, text)


async def _missing(settings: Settings) -> list[Message]:
    async with installation(settings) as at:
        return await ForgetRequests(at.source, at.database, at.settings, None).missing()


async def _forget_all(settings: Settings, messages: list[Message], by: str | None) -> ForgettingRequested:
    async with installation(settings) as at:
        await ForgetRequests(at.source, at.database, at.settings, by).ask_for(messages)
        return await _unreached(at)
