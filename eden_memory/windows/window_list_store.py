"""Lists of closed windows: newest first, of one session, those that wait, and those whose formation was given up."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from pymongo.asynchronous.database import AsyncDatabase
from pymongo.errors import ExecutionTimeout

from eden_memory.errors import EdenError
from eden_memory.names import Names
from eden_memory.schemas.documents import Outcome, SessionState, WindowTexts
from eden_memory.stages.outcome_store import MongoLedger
from eden_memory.usage.formation_completion import complete

Row = dict[str, Any]
WindowState = Literal["waits", "forming", "formed", "failed"]
FACTS = "fact-extraction"
"""The stage that every window goes to first."""
MOST_MILLISECONDS = 2_500
FIELDS: Row = {
    "session_id": 1,
    "seq": 1,
    "closed": 1,
    "completed_at": 1,
    "asked": {"$ne": [{"$ifNull": ["$requested", None]}, None]},
    "count": {"$size": "$messages"},
}


@dataclass(frozen=True, slots=True)
class ListedWindow:
    """A closed window, without its texts."""

    formation_id: str
    session_id: str
    messages: int
    closed_because: str
    closed_at: datetime
    state: WindowState
    reason: str | None
    """The document or budget that it waits for, or why its formation was given up."""


class WindowLists:
    """Reads the windows of one namespace."""

    def __init__(self, database: AsyncDatabase[Row], names: Names) -> None:
        self._windows = database[names[WindowTexts.COLLECTION]]
        self._sessions = database[names[SessionState.COLLECTION]]
        self._outcomes = database[names[Outcome.COLLECTION]]
        self._ledger = MongoLedger(database, names)

    async def newest(self, limit: int, session_id: str | None = None) -> list[ListedWindow]:
        """Return the windows that were stored last, of a session or of all."""
        found = self._windows.find({} if session_id is None else {"session_id": session_id}, FIELDS)
        ordered = found.sort("$natural", -1) if session_id is None else found.sort("seq", -1)
        return await self._listed(await ordered.limit(limit).to_list())

    async def waiting(self, limit: int) -> list[ListedWindow]:
        """Return windows that are closed and not asked for: a document is missing, or a budget has no room."""
        held: Row = {"unpublished": True, "waits_for": {"$ne": None}}
        rows = await self._sessions.find(held, {"outbox": 1}).limit(limit).to_list()
        return await self._named(
            [entry["formation_id"] for row in rows for entry in row["outbox"] if not entry["requested"]]
        )

    async def failed(self, limit: int) -> list[ListedWindow]:
        """Return windows whose formation was given up, while outcomes are kept; EdenError if that takes long."""
        dead: Row = {"stage": FACTS, "dead": {"$exists": True}, "records": {"$exists": True}}
        rows = self._outcomes.find(dead, {"members": 1}).max_time_ms(MOST_MILLISECONDS).limit(limit)
        try:
            found = [_formation(row["members"][0]) async for row in rows]
        except ExecutionTimeout:
            what = f"failed windows could not be found within {MOST_MILLISECONDS / 1_000:g} s"
            raise EdenError(what, "`eden dead list` shows what was given up.") from None
        return await self._named(found)

    async def _named(self, formation_ids: Sequence[str]) -> list[ListedWindow]:
        rows = await self._windows.find({"_id": {"$in": list(formation_ids)}}, FIELDS).to_list()
        return await self._listed(sorted(rows, key=lambda row: row["closed"]["at"], reverse=True))

    async def _listed(self, rows: Sequence[Row]) -> list[ListedWindow]:
        dead = await self._given_up([row["_id"] for row in rows])
        unasked = [row["session_id"] for row in rows if not row["asked"]]
        states = await self._sessions.find({"_id": {"$in": unasked}}, {"waits_for": 1}).to_list()
        waits = {row["_id"]: row.get("waits_for") for row in states}
        unsettled = [row["_id"] for row in rows if row["asked"] and row.get("completed_at") is None]
        formed = await complete(self._ledger, unsettled)
        return [_window(row, dead, waits, formed) for row in rows]

    async def _given_up(self, formation_ids: Sequence[str]) -> dict[str, str]:
        members = [f"{FACTS}:formation/{name}" for name in formation_ids]
        wanted: Row = {"members": {"$in": members}, "dead": {"$exists": True}}
        rows = await self._outcomes.find(wanted, {"members": 1, "dead": 1}).to_list()
        return {_formation(row["members"][0]): row["dead"] for row in rows}


def _formation(member: str) -> str:
    return member.removeprefix(f"{FACTS}:formation/")


def _window(
    row: Row, dead: Mapping[str, str], waits: Mapping[str, str | None], formed: Collection[str]
) -> ListedWindow:
    name = row["_id"]
    done = row.get("completed_at") is not None or name in formed
    state: WindowState = "formed" if done else "forming" if row["asked"] else "waits"
    reason = dead.get(name) or (waits.get(row["session_id"]) if state == "waits" else None)
    return ListedWindow(
        name,
        row["session_id"],
        row["count"],
        row["closed"]["because"],
        row["closed"]["at"],
        "failed" if name in dead else state,
        reason,
    )
