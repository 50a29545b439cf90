"""`eden session end|form`, `eden windows`: end or form a session, and show what became of its messages."""

import asyncio
import json
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from getpass import getuser
from typing import Annotated, Any

import typer
from pymongo.errors import ExecutionTimeout

from eden_memory.cli.live_namespace import ANSWER_SECONDS, soon
from eden_memory.cli.tables import show_table
from eden_memory.cli.terminal import moment
from eden_memory.mongo.ids import encode_id
from eden_memory.replay.installation import Installation, installation
from eden_memory.settings import Settings
from eden_memory.source.inbox_store import ask, named_session
from eden_memory.source.messages_store import inbox_name
from eden_memory.windows.window_list_store import (
    NOT_COUNTED,
    describe_pending,
    pending_messages,
    sessions_without_documents,
)
from eden_memory.windows.window_rule import window_limits

NOT_ANSWERED = f"waiting to be formed: not known, MongoDB did not say within {ANSWER_SECONDS:g} s"
NOTHING_WAITS = "waiting to be formed: nothing"
COLUMNS = ("window", "messages", "closed because", "closed at", "requested")
REQUESTED = {True: "yes", False: "waits"}

app = typer.Typer(help="Form a session's waiting messages now, or end the session.", no_args_is_help=True)

SessionId = Annotated[
    str, typer.Argument(help="as in the application, or typed: s.TEXT, i.NUMBER, u.UUID, o.OBJECTID")
]
AsJson = Annotated[bool, typer.Option("--json", help="one JSON object on standard output")]


@app.command()
def end(session: SessionId) -> None:
    """The session is over: form what is pending, then consolidate its memory."""
    _ask("session_ended", session, {}, lambda _: "its last window is formed")


@app.command()
def form(
    session: SessionId,
    if_due: Annotated[bool, typer.Option("--if-due", help="only if a window is due")] = False,
) -> None:
    """Form what is pending in the session now, however little."""
    when = "if a window is due" if if_due else "now"

    def what(pending: int) -> str:
        if pending:
            return f"what is pending is formed {when}"
        return f"no message of the session waits; those that the tailer has not read yet are formed {when}"

    _ask("form_now", session, {"if_due": if_due}, what)


def windows(session: SessionId, as_json: AsJson = False) -> None:
    """Show a session's windows: why they closed, and what is still waiting."""
    found = asyncio.run(_windows(Settings(), session))
    if as_json:
        typer.echo(json.dumps(found, indent=2, default=str))
        return
    rows = [
        (row["formation_id"], row["messages"], row["because"], moment(row["at"]), REQUESTED[row["requested"]])
        for row in found["windows"]
    ]
    show_table(COLUMNS, rows, "no window of this session has closed", whole=("window",), words=COLUMNS)
    typer.echo(f"{found['pending']} messages wait for their window")
    if found["waits_for"]:
        typer.echo(f"the session waits: {found['waits_for']}")


def standing(settings: Settings) -> list[str]:
    """Return lines about messages that wait to be formed, or one that says they could not be counted."""
    found = asyncio.run(soon(_waiting(settings)))
    return [NOT_ANSWERED] if found is None else found


async def _waiting(settings: Settings) -> list[str]:
    async with installation(settings) as at:
        names, limits = at.settings.names, window_limits(at.settings)
        try:
            found = await pending_messages(at.database[names["messages"]], limits.least)
        except ExecutionTimeout:
            return [NOT_COUNTED]
        held = await sessions_without_documents(at.database[names["sessions"]])
        return list(describe_pending(found, held, limits, datetime.now(UTC))) or [NOTHING_WAITS]


def _ask(kind: str, session: str, fields: dict[str, bool], what: Callable[[int], str]) -> None:
    """Ask, and say `what` follows from it, given how many messages wait."""
    request, pending = asyncio.run(_asked(Settings(), kind, session, fields))
    typer.echo(f"asked: {what(pending)} (request {request}; the tailer carries it)")


async def _asked(settings: Settings, kind: str, session: str, fields: dict[str, bool]) -> tuple[str, int]:
    """Return the request, and how many messages wait in memory for their window."""
    async with installation(settings) as at:
        identity = await named_session(at.source, at.database, at.settings, session)
        name = encode_id(identity)
        state = await at.database[at.settings.names["sessions"]].find_one({"_id": name}) or {}
        pending = await _pending(at, name, state)
        request = await ask(
            at.source[inbox_name(settings)],
            {"kind": kind, "session_id": identity, "asked_by": f"eden session, {getuser()}", **fields},
        )
        return encode_id(request), pending


async def _pending(at: Installation, session: str, state: Mapping[str, Any]) -> int:
    """Count the messages of a session, whose state is given, that no window holds yet."""
    waiting = {"session_id": session, "place": {"$gt": state.get("formed_to", 0)}, "formation_id": None}
    return await at.database[at.settings.names["messages"]].count_documents(waiting)


async def _windows(settings: Settings, session: str) -> dict[str, Any]:
    async with installation(settings) as at:
        name = encode_id(await named_session(at.source, at.database, at.settings, session))
        database, names = at.database, at.settings.names
        state = await database[names["sessions"]].find_one({"_id": name}) or {}
        rows = await database[names["windows"]].find({"session_id": name}, sort=[("seq", 1)]).to_list()
        return {
            "session_id": name,
            "pending": await _pending(at, name, state),
            "waits_for": state.get("waits_for"),
            "windows": [
                {
                    "formation_id": row["_id"],
                    "messages": len(row["messages"]),
                    "because": row["closed"]["because"],
                    "at": row["closed"]["at"],
                    "requested": row["requested"] is not None,
                }
                for row in rows
            ],
        }
