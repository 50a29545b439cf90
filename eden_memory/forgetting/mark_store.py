"""The collection `forgotten`: look-ups of single records that share a query, and of batches of thousands."""

from collections.abc import Iterable
from typing import Any

from pymongo import ReadPreference
from pymongo.asynchronous.collection import AsyncCollection
from pymongo.asynchronous.database import AsyncDatabase
from pymongo.read_concern import ReadConcern

from eden_memory.forgotten import Mark, Marks
from eden_memory.mongo.shared_reads import SharedReads
from eden_memory.names import Names
from eden_memory.schemas.documents import ForgottenMark

Row = dict[str, Any]


class MongoForgetting:
    """Marks of one namespace; look-ups of the same moment share a query."""

    def __init__(self, database: AsyncDatabase[Row], names: Names) -> None:
        self._marks = _marks_of(database, names)
        self._reads = SharedReads(self._read)

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
        self._marks = _marks_of(database, names)

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


def _marks_of(database: AsyncDatabase[Row], names: Names) -> AsyncCollection[Row]:
    return database.get_collection(
        names[ForgottenMark.COLLECTION],
        read_preference=ReadPreference.PRIMARY,
        read_concern=ReadConcern("majority"),
    )
