"""`eden source reread`: messages read again after the field mapping was corrected."""

import asyncio
import time
from datetime import UTC, datetime
from getpass import getuser
from typing import Annotated, Any

import typer
from pymongo import AsyncMongoClient
from pymongo.asynchronous.collection import AsyncCollection

from eden_memory.assembly.tailer import misread_of
from eden_memory.cli.live_namespace import soon
from eden_memory.cli.terminal import parse_time
from eden_memory.errors import EdenError, Invalid
from eden_memory.mongo.ids import encode_id
from eden_memory.replay.installation import installation
from eden_memory.settings import Settings
from eden_memory.source.inbox_store import ask, named_session
from eden_memory.source.messages_store import Misread, inbox_name, message_mapping
from eden_memory.tasks import heeding

MongoClient = AsyncMongoClient[dict[str, Any]]
LOOK_SECONDS = 0.5
STORED_SECONDS, STILL_SECONDS = 20.0, 2.0
"""For formation-trigger to store what was recorded: at most, and for as long nothing must have changed."""

app = typer.Typer(help="Read messages again after a corrected field mapping.", no_args_is_help=True)


@app.callback()
def source() -> None:
    """Read messages again after a corrected field mapping."""


@app.command()
def reread(
    session: Annotated[
        str | None,
        typer.Option("--session", help="only this session's messages: its id, or typed (s.TEXT, i.5)"),
    ] = None,
    since: Annotated[
        datetime | None,
        typer.Option(parser=parse_time, metavar="TIME", help="only messages created then (UTC) or later"),
    ] = None,
) -> None:
    """Read messages again with the field mapping as it is now; `eden run` has to run with it, too.

    Messages that it reads otherwise get a new version: those that wait for their window are corrected in place,
    those that memory was formed from are marked, and `eden reform` forms them anew. What an earlier mapping refused
    is recorded, and its dead letters are settled. What was forgotten stays forgotten. Safe to repeat.

    Examples:

    eden source reread

    eden source reread --session 65f0…

    eden source reread --since 2026-05-01
    """
    if session is not None and since is not None:
        raise Invalid("--session and --since cannot be given together", "Leave one of them out.")
    if since is not None and since > datetime.now(UTC):
        raise Invalid(
            "--since lies in the future: no message is created then or later", "Give a time before now."
        )
    try:
        for line in asyncio.run(heeding(_reread(Settings(), session, since))):
            typer.echo(line)
    except KeyboardInterrupt:
        typer.echo("not waited for any longer; `eden run` goes on reading", err=True)
        raise typer.Exit(130) from None


def standing(settings: Settings) -> list[str]:
    """Return lines about messages that another mapping read; none if MongoDB does not answer at once."""
    return asyncio.run(soon(_misread(settings))) or []


async def _misread(settings: Settings) -> list[str]:
    async with installation(settings) as at:
        return (await misread_of(at.settings, at.database.client)).lines()


async def _reread(settings: Settings, session: str | None, since: datetime | None) -> list[str]:
    async with installation(settings) as at:
        live, client = at.settings, at.database.client
        await _refuse_other_mapping(live, client)
        only = None if session is None else await named_session(at.source, at.database, at.settings, session)
        inbox = at.source[inbox_name(settings)]
        request = await ask(
            inbox,
            {"kind": "reread", "session_id": only, "since": since, "asked_by": f"eden source, {getuser()}"},
        )
        typer.echo(
            "asked; waiting for `eden run` to read the messages (Ctrl-C: it goes on without this command)"
        )
        await _erased(inbox, request)
        return await _result(live, client, encode_id(request))


async def _refuse_other_mapping(settings: Settings, client: MongoClient) -> None:
    """The tailer reads with the mapping that it began with."""
    positions = client[settings.mongodb.database][settings.names["positions"]]
    position = await positions.find_one({"_id": settings.source_name}) or {}
    reads, wanted = position.get("mapping"), message_mapping(settings).version
    if reads != wanted:
        running = "nothing has read them yet" if reads is None else f"`eden run` read them last with {reads}"
        raise EdenError(
            f"the field mapping set here is {wanted}, but {running}",
            "Start (or restart) every `eden run` with the same settings, then ask again.",
        )


async def _erased(inbox: AsyncCollection[dict[str, Any]], request: Any) -> None:
    """Until the tailer has done what the request asks."""
    while True:
        if await inbox.find_one({"_id": request}, {"_id": 1}) is None:
            return
        await asyncio.sleep(LOOK_SECONDS)


async def _result(settings: Settings, client: MongoClient, request: str) -> list[str]:
    database = client[settings.mongodb.database]
    position: dict[str, Any] = (
        await database[settings.names["positions"]].find_one({"_id": settings.source_name}) or {}
    )
    result: dict[str, Any] = position.get("reread") or {}
    if result.get("id") != request:
        return [
            "the request was not carried out: `eden dead list --stage tailer` says why, if it was refused"
        ]
    said = [f"{result['read']:,} messages read, {result['changed']:,} recorded anew"]
    if result["accepted"]:
        said.append(f"{result['accepted']:,} dead letters of the earlier mapping are settled")
    if result["refused"]:
        said.append(f"{result['refused']:,} cannot be used: `eden dead list --stage tailer`")
    if not result["changed"]:
        return [*said, *(await misread_of(settings, client)).lines()]
    return [*said, *(await _settled(settings, client)).lines()]


async def _settled(settings: Settings, client: MongoClient) -> Misread:
    """Wait until formation-trigger seems to have stored the messages; return what is still misread."""
    began = still = time.monotonic()
    found = await misread_of(settings, client)
    while (now := time.monotonic()) - still < STILL_SECONDS and now - began < STORED_SECONDS:
        await asyncio.sleep(LOOK_SECONDS)
        if (newer := await misread_of(settings, client)) != found:
            found, still = newer, time.monotonic()
    return found
