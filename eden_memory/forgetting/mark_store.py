"""The collection `forgotten`: marks are written, looked up for records and batches, and belong to one pipeline.

`memory.forgotten` is shared, so ids of derived records bear the pipeline that they are of; the marks that they stand
for are kept by each pipeline by itself. Messages, sessions and users, and what was asked for, concern all.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from pymongo import UpdateOne
from pymongo.asynchronous.database import AsyncDatabase

from eden_memory.forgotten import Mark, Marks
from eden_memory.mongo.client import majority
from eden_memory.mongo.transactions import SharedReads
from eden_memory.names import ORIGINAL, Names
from eden_memory.schemas.documents import ForgottenMark
from eden_memory.schemas.events import Forgotten
from eden_memory.stages.stage import Decision, Delivery, Emit, Emitted, Handler, Result

MARK = "ns@"
"""No fact, reflection or blob has an id that begins so."""


def bearing(event: Forgotten, pipeline: str) -> Forgotten:
    """Return a derived record with the pipeline in its id; records of the first pipeline stay as they are."""
    if event.because != "derived" or pipeline == ORIGINAL:
        return event
    return event.model_copy(update={"id": f"{MARK}{pipeline}@{event.id}"})


def own(event: Forgotten, pipeline: str) -> Forgotten | None:
    """Return a record as the pipeline sees it; None if it is derived from another pipeline's memory."""
    if event.because != "derived":
        return event
    if not event.id.startswith(MARK):
        return event if pipeline == ORIGINAL else None
    of, _, name = event.id.removeprefix(MARK).partition("@")
    return event.model_copy(update={"id": name}) if of == pipeline else None


def of_pipeline(handler: Handler, pipeline: str) -> Handler:
    """Wrap a handler so that it sees and publishes derived records of its own pipeline only."""

    async def run(deliveries: Sequence[Delivery]) -> Result:
        seen = [_own(delivery, pipeline) for delivery in deliveries]
        mine = [delivery for delivery in seen if delivery is not None]
        if not mine:
            return Decision(())
        assert len(mine) == len(seen), "records of other pipelines come one by one"
        result = await handler(mine)
        if not isinstance(result, Decision) or pipeline == ORIGINAL:
            return result
        return replace(result, events=[_bearing(event, pipeline) for event in result.events])

    return run


def _own(delivery: Delivery, pipeline: str) -> Delivery | None:
    if not isinstance(delivery.event, Forgotten):
        return delivery
    event = own(delivery.event, pipeline)
    return None if event is None else delivery._replace(event=event)


def _bearing(outgoing: Emitted, pipeline: str) -> Emitted:
    if (
        not isinstance(outgoing, Emit)
        or not isinstance(outgoing.event, Forgotten)
        or outgoing.event.because != "derived"
    ):
        return outgoing
    return replace(
        outgoing,
        event=bearing(outgoing.event, pipeline),
        identity=outgoing.identity and f"{pipeline}/{outgoing.identity}",
    )


Row = dict[str, Any]


class MongoForgetting:
    """Marks of one namespace; look-ups, and writes, of the same moment share a query."""

    def __init__(self, database: AsyncDatabase[Row], names: Names) -> None:
        self._marks = majority(database, names[ForgottenMark.COLLECTION])
        self._reads = SharedReads(self._read)
        self._writes = SharedReads(self._write)

    async def mark(self, marks: Iterable[Mark], event_id: str, at: datetime) -> None:
        """Store marks; a wider version or time takes the place of a narrower one, nothing else changes."""
        await self._writes.get((mark, event_id, at) for mark in marks)

    async def _write(self, marks: list[tuple[Mark, str, datetime]]) -> Mapping[Any, None]:
        await self._marks.bulk_write([_written(*mark) for mark in marks], ordered=False)
        return {}

    async def among(self, named: Iterable[tuple[str, str]]) -> Marks:
        """Return the marks of (kind, target) pairs, in one query."""
        found = await self._reads.get(set(named))
        return Marks(mark for marks in found.values() for mark in marks)

    async def _read(self, named: list[tuple[str, str]]) -> dict[tuple[str, str], list[Mark]]:
        targets: dict[str, list[str]] = {}
        for kind, target in named:
            targets.setdefault(kind, []).append(target)
        each: list[Row] = [{"kind": kind, "target": {"$in": found}} for kind, found in targets.items()]
        marks: dict[tuple[str, str], list[Mark]] = {}
        async for row in self._marks.find({"$or": each}):
            marks.setdefault((row["kind"], row["target"]), []).append(_mark(row))
        return marks


AT_ONCE = 20_000
"""Targets of one query: 16 MB of it are the server's limit."""


class MongoBatchMarks:
    """Marks for batches of tens of thousands of pairs: a query for each kind that has any mark at all."""

    def __init__(self, database: AsyncDatabase[Row], names: Names) -> None:
        self._marks = majority(database, names[ForgottenMark.COLLECTION])

    async def among(self, named: Iterable[tuple[str, str]]) -> Marks:
        """Return the marks of (kind, target) pairs; kinds without any mark are not asked for."""
        there = set(await self._marks.distinct("kind"))
        if not there:
            return Marks()
        targets: dict[str, list[str]] = {}
        for kind, target in {pair for pair in named if pair[0] in there}:
            targets.setdefault(kind, []).append(target)
        found: list[Mark] = []
        for kind, asked in targets.items():
            for start in range(0, len(asked), AT_ONCE):
                query = {"kind": kind, "target": {"$in": asked[start : start + AT_ONCE]}}
                found += [_mark(row) async for row in self._marks.find(query)]
        return Marks(found)


def _mark(row: Row) -> Mark:
    return Mark(
        row["kind"],
        row["target"],
        row["reach"],
        row.get("version"),
        row.get("until"),
        row.get("by_hand", False),
    )


def _written(mark: Mark, event_id: str, at: datetime) -> UpdateOne:
    """Return the write of a mark; its reach only grows, to the highest version and latest time ever asked for."""
    row: Row = {"kind": mark.kind, "target": mark.target, "reach": mark.reach}
    grown: Row = {}
    if mark.version is not None:
        grown["version"] = mark.version
    if mark.until is not None:
        grown["until"] = mark.until
    change: Row = {"$setOnInsert": {**row, "event_id": event_id, "forgotten_at": at}}
    if mark.by_hand:
        change["$set"] = {"by_hand": True}
    if grown:
        change["$max"] = grown
    return UpdateOne({"_id": f"{mark.kind}:{mark.target}/{mark.reach}"}, change, upsert=True)
