"""What has been forgotten, as every stage looks it up: the collection `forgotten`."""

from collections.abc import Iterable
from typing import Any

from pymongo import ReadPreference
from pymongo.asynchronous.database import AsyncDatabase
from pymongo.read_concern import ReadConcern

from eden_memory.forgotten import Mark, Marks
from eden_memory.mongo.shared_reads import SharedReads
from eden_memory.names import Names
from eden_memory.schemas.documents import ForgottenMark

Row = dict[str, Any]


class MongoForgetting:
    """Reads and writes the collections of one namespace."""

    def __init__(self, database: AsyncDatabase[Row], names: Names) -> None:
        self._marks = database.get_collection(
            names[ForgottenMark.COLLECTION],
            read_preference=ReadPreference.PRIMARY,
            read_concern=ReadConcern("majority"),
        )
        self._reads = SharedReads(self._read)

    async def among(self, named: Iterable[tuple[str, str]]) -> Marks:
        """The marks of (kind, target) pairs, in one query; look-ups of the same moment share it."""
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


def _mark(row: Row) -> Mark:
    return Mark(row["kind"], row["target"], row["reach"], row.get("version"), row.get("until"))
