"""Erases what stored outcomes and kept answers of models hold of something forgotten."""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from pymongo import ReadPreference
from pymongo.asynchronous.database import AsyncDatabase
from pymongo.read_concern import ReadConcern
from pymongo.write_concern import WriteConcern

from eden_memory.forgetting.forgetting_rules import BlobRef, Resting
from eden_memory.forgetting.ledger_rules import concerned, published_again, without_forgotten
from eden_memory.forgotten import ForgottenMarks
from eden_memory.memory.restating import is_restated
from eden_memory.mongo.indexes import Indexes, index_on
from eden_memory.names import Names
from eden_memory.placement import ORIGINAL
from eden_memory.schemas.documents import Answer, Erasure, Outcome, WindowTexts
from eden_memory.schemas.envelope import Envelope
from eden_memory.schemas.events import Event, decode
from eden_memory.stages.codec import event_id
from eden_memory.stages.stage import Delivery, Emitted
from eden_memory.windows.window_text_store import FACTS, readers_of

Row = dict[str, Any]
ERASURE_INDEXES: Indexes = {Erasure.COLLECTION: (index_on("restated", sparse=True),)}
TOGETHER = 200
"""Outcomes or questions that one query looks for."""


@dataclass(frozen=True, slots=True)
class _Stored:
    """One event of a stored outcome."""

    part: str
    """The document that holds it, at `place` of its records."""
    place: int
    envelope: Envelope
    event: Event


class ForgottenLedgers:
    """The collections `outcomes` of one pipeline and `answers`, as far as they hold texts."""

    def __init__(
        self, database: AsyncDatabase[Row], names: Names, forgotten: ForgottenMarks, pipeline: str = ORIGINAL
    ) -> None:
        safely = database.with_options(
            read_preference=ReadPreference.PRIMARY,
            read_concern=ReadConcern("majority"),
            write_concern=WriteConcern("majority", j=True),
        )
        self._outcomes = safely[names[Outcome.COLLECTION]]
        self._erasures = safely[names[Erasure.COLLECTION]]
        self._answers = safely[names[Answer.COLLECTION]]
        self._windows = safely[names[WindowTexts.COLLECTION]]
        self._forgotten = forgotten
        self._prefix = "" if pipeline == ORIGINAL else f"{pipeline}/"

    async def erase(
        self,
        messages: Iterable[str],
        resting: Sequence[Resting],
        blobs: Sequence[BlobRef],
        cause: Delivery,
    ) -> list[Emitted]:
        """Erase what came from these messages and went into this memory.

        Returns the records that take the place of others in topics kept until they are consumed.
        """
        formations = await self._formations(messages)
        members = [member for formation in formations for member in _of_window(formation)]
        rows = await self._found("members", members)
        rows |= await self._found("members", [name for row in rows.values() for name in _following(row)])
        rows |= await self._found("writes", _writes(resting, blobs))
        rows |= await self._found("members", await self._restating(resting))
        await self._erase_answers([*members, *_questions(rows.values()), *map(_consolidation, blobs)])
        return await self._reduce(await self._events(rows.values()), cause)

    async def _formations(self, messages: Iterable[str]) -> list[str]:
        found: list[str] = []
        for some in _slices(messages):
            found += await self._windows.distinct("_id", {"messages.message_id": {"$in": some}})
        return list(dict.fromkeys(found))

    async def _restating(self, resting: Iterable[Resting]) -> list[str]:
        """Return the members of the ledger whose outcomes hold what these facts were stated anew by."""
        found: list[str] = []
        for some in _slices(name for memory in resting for name in memory.commands if is_restated(name)):
            named = self._erasures.find({"restated": {"$in": some}}, {"_id": 1})
            found += [f"forgetting:{row['_id']}" async for row in named]
        return found

    async def _found(self, field: str, names: Iterable[str]) -> dict[str, Row]:
        rows: dict[str, Row] = {}
        for some in _slices(names):
            found = self._outcomes.find({field: {"$in": some}})
            rows |= {row["_id"]: row async for row in found}
        return rows

    async def _erase_answers(self, units: Iterable[str]) -> None:
        """Delete the answers to these questions, whichever attempt they are of, with the vectors made for them."""
        for some in _slices(units):
            named = [re.compile(f"^{re.escape(self._prefix + unit)}(?:[#/:]|$)") for unit in some]
            await self._answers.delete_many({"unit": {"$in": named}})

    async def _events(self, rows: Iterable[Row]) -> list[_Stored]:
        """Return the events that outcomes hold; those whose records are removed hold none."""
        found: list[_Stored] = []
        for row in rows:
            parts = self._outcomes.find({"_id": {"$in": list(row.get("parts", ()))}})
            for part in (row, *await parts.to_list()):
                found += [event for event in _events_of(part) if event is not None]
        return found

    async def _reduce(self, stored: Sequence[_Stored], cause: Delivery) -> list[Emitted]:
        if not stored:
            return []
        marks = await self._forgotten.among(concerned(held.event for held in stored))
        again: list[Emitted] = []
        for held in stored:
            left = without_forgotten(held.event, marks)
            if left is held.event:
                continue
            value = None if left is None else left.json_bytes()
            await self._outcomes.update_one(
                {"_id": held.part, "records": {"$exists": True}},
                {"$set": {f"records.{held.place}.v": value}},
            )
            if (record := published_again(held.event, left, held.envelope, cause)) is not None:
                again.append(record)
        return again


def _slices(names: Iterable[str]) -> Iterator[list[str]]:
    """Yield the names, each once, as many at a time as one query takes."""
    every = list(dict.fromkeys(names))
    return (every[start : start + TOGETHER] for start in range(0, len(every), TOGETHER))


def _of_window(formation: str) -> list[str]:
    """Return the members of the ledger that read a window."""
    return list(readers_of(formation))


def _following(row: Row) -> list[str]:
    """Return the members that read what a fact extraction has published."""
    asked = {member.partition(":")[2] for member in row["members"] if member.startswith(f"{FACTS}:")}
    return [
        f"fact-dedup:{event_id(cause, FACTS, number)}"
        for cause in asked
        for number in range(len(row.get("kinds", ())))
    ]


def _writes(resting: Iterable[Resting], blobs: Iterable[BlobRef]) -> list[str]:
    """Return the names under which the versions of memory were decided."""
    versions = (
        f"{memory.kind}:{memory.id}@{version}"
        for memory in resting
        for version in range(1, memory.versions + 1)
    )
    return [*versions, *(f"blob:{blob.name}" for blob in blobs)]


def _questions(rows: Iterable[Row]) -> list[str]:
    """Return the questions that were asked for decisions: each is named after the first that it is about."""
    return [row["members"][0] for row in rows if row["members"]]


def _consolidation(blob: BlobRef) -> str:
    return f"consolidation:{blob.name}"


def _events_of(part: Row) -> list[_Stored | None]:
    return [_event(part["_id"], place, record) for place, record in enumerate(part.get("records", ()))]


def _event(part: str, place: int, record: Row) -> _Stored | None:
    """Read one record; None for a tombstone."""
    if record["v"] is None:
        return None
    envelope = Envelope.of_headers((name, bytes(value)) for name, value in record["h"])
    event = decode(envelope.name, envelope.version, bytes(record["v"]))
    return _Stored(part, place, envelope, event)
