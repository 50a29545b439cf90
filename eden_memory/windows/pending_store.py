"""Count messages that no window holds yet, and say when they will form."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from pymongo.asynchronous.collection import AsyncCollection

from eden_memory.usage.budget_rules import HELD
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
