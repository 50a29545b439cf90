"""The collection `dead_letters`: what was given up, of all namespaces. Kept for 30 days.

A letter is stored, acknowledged by a majority, before the offset or position behind its record is committed
(invariant publish-then-commit). Whoever stores one looks for marks afterwards (invariant mark-read-write-mark).
"""

import re
from collections.abc import AsyncIterator, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from pymongo import DeleteOne, UpdateOne
from pymongo.asynchronous.database import AsyncDatabase
from pymongo.errors import BulkWriteError

from eden_memory.forgotten import ForgottenMarks, Mark
from eden_memory.mongo.client import majority
from eden_memory.mongo.refusals import only_duplicates
from eden_memory.mongo.transactions import SharedReads
from eden_memory.mongo.validators import Indexes, index_on
from eden_memory.names import Names, Placement
from eden_memory.schemas.documents import DeadLetter, GivenUp
from eden_memory.stages.dead_letters import Origin, ids_named

Row = dict[str, Any]
KEPT = timedelta(days=30)
OPEN = ("dead", "asked")
"""States of letters that nobody has settled."""
WITHOUT_VALUE = {"value": 0}
TOGETHER = 1_000
DEAD_LETTER_INDEXES: Indexes = {
    DeadLetter.COLLECTION: (
        index_on("named"),
        index_on("state", "program"),
        index_on("member", sparse=True),
        index_on("since", expireAfterSeconds=int(KEPT.total_seconds())),
    )
}


@dataclass(frozen=True, slots=True)
class DeadLetterFilter:
    """Which dead letters; None: all."""

    topic: str | None = None
    """The topic that they came from, whole name."""
    stage: str | None = None
    reason: str | None = None
    """Part of the reason, upper and lower case alike."""
    since: datetime | None = None
    until: datetime | None = None
    ids: tuple[str, ...] | None = None

    def query(self) -> Row:
        """Return the query for them."""
        found: Row = {
            name: value for name in ("topic", "stage") if (value := getattr(self, name)) is not None
        }
        if self.ids is not None:
            found["_id"] = {"$in": list(self.ids)}
        if self.reason is not None:
            found["reason"] = re.compile(re.escape(self.reason), re.IGNORECASE)
        times = {"$gte": self.since, "$lt": self.until}
        if given := {bound: time for bound, time in times.items() if time is not None}:
            found["at"] = given
        return found


class DeadLetters:
    """The dead letters of a placement's programs, and of the tailer.

    `forgotten`: the marks of the pipeline whose programs store letters.
    """

    def __init__(
        self,
        database: AsyncDatabase[Row],
        names: Names,
        forgotten: ForgottenMarks,
        placement: Placement | None = None,
    ) -> None:
        self._letters = majority(database, names[DeadLetter.COLLECTION])
        self._forgotten, self._placement = forgotten, placement or Placement()
        self._reading_named = SharedReads(self._read_named)

    async def prepare(self) -> None:
        """Create the indexes."""
        await self._letters.create_indexes(list(DEAD_LETTER_INDEXES[DeadLetter.COLLECTION]))

    def origin(self, stage: str) -> Origin:
        """Return whose letters a stage of this placement leaves."""
        return Origin(stage, self._placement.group(stage))

    async def put(self, letters: Sequence[DeadLetter]) -> None:
        """Store letters, and take back those that name something forgotten.

        A repeat changes nothing, also of a letter that was settled. A letter of the tailer's replaces that of an
        earlier version of its document.
        """
        if not letters:
            return
        try:
            await self._letters.bulk_write([_stored(letter) for letter in letters], ordered=False)
        except BulkWriteError as error:
            only_duplicates(error)
        named = {letter.id: ids_named(letter) for letter in letters}
        marks = await self._forgotten.among({pair for ids in named.values() for pair in ids.pairs()})
        gone = [letter for letter in letters if named[letter.id].gone(marks)]
        if gone:
            erasing = [DeleteOne({"_id": letter.id, "version": letter.version}) for letter in gone]
            await self._letters.bulk_write(erasing, ordered=False)

    async def naming(self, mark: Mark, after: str = "", most: int = 0) -> tuple[list[str], str | None]:
        """Return letters behind the id `after` that name what is forgotten, and where to go on, if at all.

        `most`: how many are looked at; 0: all.
        """
        name = f"{mark.kind}:{mark.target}"
        if not await self._reading_named.get([name]):
            return [], None
        query: Row = {"named": name, "_id": {"$gt": after}}
        found = [letter async for letter in self._read(query, WITHOUT_VALUE, [("_id", 1)], most)]
        named = [(letter.id, ids_named(letter)) for letter in found]
        marks = await self._forgotten.among({pair for _, ids in named for pair in ids.pairs()})
        gone = [letter_id for letter_id, ids in named if ids.gone(marks)]
        return gone, found[-1].id if found and len(found) == most else None

    async def _read_named(self, names: list[str]) -> dict[str, bool]:
        """Tell of each name whether any letter has it."""
        wanted: Row = {"$match": {"named": {"$in": names}}}
        found = await self._letters.aggregate(
            [wanted, {"$unwind": "$named"}, wanted, {"$group": {"_id": "$named"}}]
        )
        return {row["_id"]: True async for row in found}

    async def erase(self, ids: Sequence[str]) -> None:
        """Remove letters: what they name is forgotten."""
        if ids:
            await self._letters.delete_many({"_id": {"$in": list(ids)}})

    async def there(self, ids: Collection[str]) -> list[str]:
        """Return those of the letters that are there."""
        return [row["_id"] async for row in self._letters.find({"_id": {"$in": list(ids)}}, {"_id": 1})]

    async def open_of(self, ids: Collection[str]) -> list[str]:
        """Return those of the letters that nobody has settled."""
        wanted: Row = {"_id": {"$in": list(ids)}, "state": {"$in": OPEN}}
        return [row["_id"] async for row in self._letters.find(wanted, {"_id": 1})]

    async def unreadable(self) -> Mapping[str, tuple[int, datetime]]:
        """Return how many letters cannot be read, by topic, and when the last of them is removed."""
        held: Row = {"named": {"$size": 0}, "state": {"$in": OPEN}}
        last = {"$group": {"_id": "$topic", "count": {"$sum": 1}, "since": {"$max": "$since"}}}
        found = await self._letters.aggregate([{"$match": held}, last, {"$sort": {"_id": 1}}])
        return {row["_id"]: (row["count"], row["since"] + KEPT) async for row in found}

    def found(
        self, programs: Iterable[str], wanted: DeadLetterFilter, *, settled: bool = False
    ) -> AsyncIterator[DeadLetter]:
        """Yield letters of programs without their values, oldest first; settled ones only on request."""
        query: Row = {"program": {"$in": list(programs)}, **wanted.query()}
        if not settled:
            query["state"] = {"$in": OPEN}
        return self._read(query, WITHOUT_VALUE, [("at", 1), ("_id", 1)])

    async def count(self, programs: Iterable[str]) -> dict[str, int]:
        """Return how many letters nobody has settled, by program, also where there is none."""
        found = dict.fromkeys(programs, 0)
        of: Row = {"program": {"$in": list(found)}, "state": {"$in": OPEN}}
        each = {"$group": {"_id": "$program", "count": {"$sum": 1}}}
        async for row in await self._letters.aggregate([{"$match": of}, each]):
            found[row["_id"]] = row["count"]
        return found

    async def get(self, name: str) -> DeadLetter | None:
        """Return a letter whole."""
        return await anext(self._read({"_id": name}), None)

    async def _read(
        self, query: Row, fields: Row | None = None, sort: Any = None, most: int = 0
    ) -> AsyncIterator[DeadLetter]:
        async for row in self._letters.find(query, fields, sort=sort, limit=most):
            yield DeadLetter.model_validate(row, strict=False)

    async def ask(self, letter: DeadLetter) -> bool:
        """Ask for a letter to be tried again; False if that is asked for already, or it is settled."""
        change = {"$set": {"state": "asked"}, "$inc": {"retries": 1}}
        return await self._change({"_id": letter.id, "state": "dead"}, change)

    async def asked(self, program: str) -> list[DeadLetter]:
        """Return the letters of a program that are to be tried again, without their values."""
        return [letter async for letter in self._read({"state": "asked", "program": program}, WITHOUT_VALUE)]

    async def tried(self, letter_id: str, retries: int, why: GivenUp | None) -> None:
        """Note how the retry of this number ended: published, or given up again; a repeat changes nothing."""
        of: Row = {"_id": letter_id, "state": "asked", "retries": retries}
        if why is None:
            await self._change(of, _settled("published"))
            return
        fields = why.model_dump(exclude={"member"})
        await self._change(of, {"$set": {**fields, "state": "dead"}, "$currentDate": {"since": True}})

    async def settle(self, ids: Iterable[str], state: str) -> int:
        """Note that open letters are `published` or `dropped`; return how many there were."""
        of: Row = {"_id": {"$in": list(ids)}, "state": {"$in": OPEN}}
        return (await self._letters.update_many(of, _settled(state))).modified_count

    async def is_settled(self, member: str, stage: str) -> bool:
        """Tell whether an event's letter was tried again with success, or dropped."""
        of: Row = {"member": member, "program": self.origin(stage).program, "state": {"$nin": OPEN}}
        return await self._letters.find_one(of, {"_id": 1}) is not None

    async def remove_of(self, programs: Iterable[str]) -> None:
        """Remove the letters of programs: their namespace is dropped."""
        await self._letters.delete_many({"program": {"$in": list(programs)}})

    async def _change(self, query: Row, change: Row) -> bool:
        return (await self._letters.update_one(query, change)).matched_count > 0


def _stored(letter: DeadLetter) -> UpdateOne:
    """Return the write of a letter that is not there; one that is makes it a duplicate, which is refused."""
    row = letter.stored()
    place: Row = {"_id": row.pop("_id"), "since": {"$exists": False}}
    if letter.version is not None:
        place = {"_id": place["_id"], "version": {"$lt": letter.version}}
    row.pop("since")
    return UpdateOne(place, {"$set": row, "$currentDate": {"since": True}}, upsert=True)


def _settled(state: str) -> Row:
    return {"$set": {"state": state, "value": None}}
