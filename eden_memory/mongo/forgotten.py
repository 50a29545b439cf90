"""What has been forgotten, as every stage looks it up: the collection `<prefix>forgotten`."""

from collections.abc import Iterable
from typing import Any

from pymongo import ReadPreference
from pymongo.asynchronous.database import AsyncDatabase
from pymongo.read_concern import ReadConcern

from eden_memory.domain.forgotten import Mark, Marks
from schemas.documents import ForgottenMark

Row = dict[str, Any]


class MongoForgetting:
    """`prefix` stands before the collection's name."""

    def __init__(self, database: AsyncDatabase[Row], prefix: str) -> None:
        self._marks = database.get_collection(
            prefix + ForgottenMark.COLLECTION,
            read_preference=ReadPreference.PRIMARY,
            read_concern=ReadConcern("majority"),
        )

    async def among(self, named: Iterable[tuple[str, str]]) -> Marks:
        """The marks of (kind, target) pairs, in one query."""
        targets: dict[str, list[str]] = {}
        for kind, target in set(named):
            targets.setdefault(kind, []).append(target)
        if not targets:
            return Marks()
        each: list[Row] = [{"kind": kind, "target": {"$in": found}} for kind, found in targets.items()]
        rows = await self._marks.find({"$or": each}).to_list()
        return Marks(map(_mark, rows))


def _mark(row: Row) -> Mark:
    return Mark(row["kind"], row["target"], row["reach"], row.get("version"), row.get("until"))
