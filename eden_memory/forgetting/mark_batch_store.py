"""What has been forgotten, for batches of a thousand records: one query, and none for what nobody has forgotten."""

from collections.abc import Iterable
from typing import Any

from pymongo import ReadPreference
from pymongo.asynchronous.database import AsyncDatabase
from pymongo.read_concern import ReadConcern

from eden_memory.forgotten import Mark, Marks
from eden_memory.names import Names
from eden_memory.schemas.documents import ForgottenMark

Row = dict[str, Any]
AT_ONCE = 20_000
"""Targets of one query: 16 MB of it are the server's limit."""


class MongoBatchMarks:
    """Forgetting, as MongoForgetting is, without its sharing of look-ups: a batch asks for tens of thousands."""

    def __init__(self, database: AsyncDatabase[Row], names: Names) -> None:
        self._marks = database.get_collection(
            names[ForgottenMark.COLLECTION],
            read_preference=ReadPreference.PRIMARY,
            read_concern=ReadConcern("majority"),
        )

    async def among(self, named: Iterable[tuple[str, str]]) -> Marks:
        """The marks of (kind, target) pairs. Only kinds that are there at all are asked for, each time anew."""
        there = set(await self._marks.distinct("kind"))
        targets: dict[str, list[str]] = {}
        for kind, target in named:
            if kind in there:
                targets.setdefault(kind, []).append(target)
        found: list[Mark] = []
        for kind, asked in targets.items():
            for start in range(0, len(asked), AT_ONCE):
                query = {"kind": kind, "target": {"$in": asked[start : start + AT_ONCE]}}
                found += [_mark(row) async for row in self._marks.find(query)]
        return Marks(found)


def _mark(row: Row) -> Mark:
    return Mark(row["kind"], row["target"], row["reach"], row.get("version"), row.get("until"))
