"""Lists for people: messages that no window holds yet, and closed windows, newest first."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

from pymongo.asynchronous.collection import AsyncCollection
from pymongo.asynchronous.database import AsyncDatabase
from pymongo.errors import ExecutionTimeout

from eden_memory.errors import EdenError
from eden_memory.names import Names
from eden_memory.schemas.documents import Outcome, SessionState, WindowTexts
from eden_memory.stages.outcome_store import MongoLedger
from eden_memory.usage.budget_rules import HELD
from eden_memory.usage.formation_completion import complete
from eden_memory.windows.window_rule import Limits

Row = dict[str, Any]
WAITS: Row = {"$ne": None, "$not": {"$regex": f"^{HELD}"}}
"""`waits_for` of sessions that wait for a document, not for a budget."""
MOST_MILLISECONDS = 2_500
"""The index `pending` holds what waits alone; before `eden setup` has made it, all messages are looked at."""
PENDING: Row = {"formation_id": None, "place": {"$gt": 0}}
NOT_COUNTED = (
    f"waiting to be formed: more than could be counted in {MOST_MILLISECONDS / 1_000:g} s; where `eden setup` has "
    "not made the index `pending` yet, run it"
)
BEGINNING = datetime(1970, 1, 1, tzinfo=UTC)
LATE = "; some are overdue: `eden run` forms them"
OVERDUE = timedelta(minutes=5)
"""So long after its time a window may be still open: Watermarks come every ten seconds, and may be many."""


@dataclass(frozen=True, slots=True)
class PendingMessages:
    """Sessions in which a cold window closes (`enough`), or only a stale one."""

    enough: bool
    sessions: int
    messages: int
    first: datetime
    """The earliest of the sessions' last messages."""
    last: datetime
    """The latest of them."""


async def pending_messages(messages: AsyncCollection[Row], least: int) -> list[PendingMessages]:
    """Count what waits in `memory_messages`; ExecutionTimeout beyond `MOST_MILLISECONDS`."""
    session: Row = {
        "_id": "$session_id",
        "messages": {"$sum": 1},
        "last": {"$max": {"$ifNull": ["$since", "$time"]}},
    }
    kind: Row = {
        "_id": {"$gte": ["$messages", least]},
        "sessions": {"$sum": 1},
        "messages": {"$sum": "$messages"},
        "first": {"$min": "$last"},
        "last": {"$max": "$last"},
    }
    steps: list[Row] = [{"$match": PENDING}, {"$group": session}, {"$group": kind}, {"$sort": {"_id": -1}}]
    rows = await (await messages.aggregate(steps, maxTimeMS=MOST_MILLISECONDS)).to_list()
    return [PendingMessages(enough=row.pop("_id"), **row) for row in rows]


async def look_again(messages: AsyncCollection[Row], sessions: str) -> None:
    """Have the next Watermark look at sessions in which something waits and for which no time is noted.

    So it is where messages had waited before EDEN_WINDOWS_STALE_HOURS was set.
    """
    noted: Row = {"$set": {"due_at": {"$ifNull": ["$due_at", BEGINNING]}}}
    merge: Row = {"into": sessions, "whenMatched": [noted], "whenNotMatched": "discard"}
    await messages.aggregate([{"$match": PENDING}, {"$group": {"_id": "$session_id"}}, {"$merge": merge}])


async def sessions_without_documents(sessions: AsyncCollection[Row]) -> int:
    """Count the sessions whose windows are closed and wait for a document of the application."""
    return await sessions.count_documents({"unpublished": True, "waits_for": WAITS})


def describe_pending(
    found: Sequence[PendingMessages], without_documents: int, limits: Limits, now: datetime
) -> Iterator[str]:
    """Say what waits and when it forms, a line for each kind."""
    for pending in found:
        what = f"{_count(pending.messages, 'message')} in {_count(pending.sessions, 'session')}"
        idle = limits.cold if pending.enough else limits.stale
        overdue = idle is not None and pending.first + idle + OVERDUE < now
        yield f"waiting to be formed: {what}{_when(pending, limits)}{LATE if overdue else ''}"
    if without_documents:
        yield (
            f"the windows of {without_documents:,} sessions wait for a document that is not there: "
            "`eden windows SESSION` names it"
        )


def _when(pending: PendingMessages, limits: Limits) -> str:
    if pending.enough:
        return (
            f": they form at {limits.messages} messages or {limits.tokens:,.0f} weighted tokens in a session, or "
            f"{_period(limits.cold)} after its last one ({_moments(pending, limits.cold)})"
        )
    few = f" of fewer than {limits.least} messages"
    if limits.stale is None:
        return f"{few}: they wait for more, because EDEN_WINDOWS_STALE_HOURS is 0"
    return f"{few}: they form {_period(limits.stale)} after a session's last one ({_moments(pending, limits.stale)})"


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}" if number == 1 else f"{number:,} {what}s"


def _moments(pending: PendingMessages, idle: timedelta) -> str:
    first, last = (f"{at + idle:%Y-%m-%d %H:%M} UTC" for at in (pending.first, pending.last))
    return first if first == last else f"{first} to {last}"


def _period(idle: timedelta) -> str:
    hours = idle / timedelta(hours=1)
    return f"{hours:g} hours" if hours >= 1 else f"{hours * 60:g} minutes"


WindowState = Literal["waits", "forming", "formed", "failed"]
FACTS = "fact-extraction"
"""The stage that every window goes to first."""
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
        return await self.named(
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
        return await self.named(found)

    async def named(self, formation_ids: Sequence[str]) -> list[ListedWindow]:
        """Return these windows, as far as they are stored, those that closed last first."""
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
