"""The windows of a reform that can be formed: those whose request is written."""

from collections.abc import AsyncGenerator
from typing import Any

from pymongo.asynchronous.database import AsyncDatabase

from eden_memory.names import Names
from eden_memory.schemas.documents import WindowTexts
from eden_memory.schemas.events import FormationRequested

Row = dict[str, Any]


class MongoReformWindows:
    """Over `windows` of the reform's namespace."""

    def __init__(self, database: AsyncDatabase[Row], names: Names) -> None:
        self._windows = database[names[WindowTexts.COLLECTION]]

    async def requested(self) -> AsyncGenerator[FormationRequested]:
        """All of them, in no order."""
        async for row in self._windows.find({"requested": {"$ne": None}}, {"requested": 1}):
            yield FormationRequested.model_validate_json(row["requested"], extra="ignore")
