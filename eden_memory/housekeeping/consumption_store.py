"""The janitor's notes of how far every consumer group was, round by round."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from pymongo.asynchronous.database import AsyncDatabase

from eden_memory.housekeeping.consumption import ConsumptionMark, Offsets
from eden_memory.names import Names

Document = dict[str, Any]


class ConsumptionMarks:
    """The collection `consumption`: one document a round."""

    def __init__(self, database: AsyncDatabase[Document], names: Names) -> None:
        self._marks = database[names["consumption"]]

    async def add(self, mark: ConsumptionMark) -> None:
        """Store a note; of two notes of the same moment, the later one counts."""
        committed = [{"group": group, "offsets": _rows(offsets)} for group, offsets in mark.committed.items()]
        ids = [[topic, topic_id] for topic, topic_id in sorted(mark.ids.items())]
        document = {"ends": _rows(mark.ends), "committed": committed, "ids": ids}
        await self._marks.replace_one({"_id": mark.at}, document, upsert=True)

    async def since(self, oldest: datetime) -> Sequence[ConsumptionMark]:
        """Return the notes from `oldest` on, oldest first, and remove earlier ones."""
        await self._marks.delete_many({"_id": {"$lt": oldest}})
        return [_mark(document) async for document in self._marks.find().sort("_id", 1)]


def _rows(offsets: Offsets) -> list[list[Any]]:
    return [[topic, number, offset] for (topic, number), offset in sorted(offsets.items())]


def _offsets(rows: Sequence[Sequence[Any]]) -> dict[tuple[str, int], int]:
    return {(topic, number): offset for topic, number, offset in rows}


def _mark(document: Document) -> ConsumptionMark:
    committed = {row["group"]: _offsets(row["offsets"]) for row in document["committed"]}
    return ConsumptionMark(
        document["_id"], _offsets(document["ends"]), committed, dict(document.get("ids", ()))
    )
