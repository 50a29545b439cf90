"""What live formation of an agent cost lately, from its counted calls."""

import json
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

from pymongo.asynchronous.database import AsyncDatabase

from eden_memory.call_costs import CHARGED
from eden_memory.mongo.money import plain
from eden_memory.names import Names
from eden_memory.schemas.documents import CountedCall, WindowTexts
from eden_memory.usage.estimates import Recorded
from eden_memory.usage.usage_store import LIVE

Row = dict[str, Any]
LATELY = timedelta(days=7)
MOST_CALLS = 1_000
FORMING = ("fact-extraction", "fact-dedup", "reflection-extraction")
CONSOLIDATION = "consolidation"


class MongoRecorded:
    """Over the collections `calls` and `windows`."""

    def __init__(self, database: AsyncDatabase[Row], names: Names) -> None:
        self._calls = database[names[CountedCall.COLLECTION]]
        self._windows = database[names[WindowTexts.COLLECTION]]

    async def of(self, agent_id: str, at: datetime) -> Recorded:
        """The last formations of an agent: windows, characters, cost; the oldest of them may be cut."""
        wanted: Row = {
            "agent_id": agent_id,
            "namespace": LIVE,
            "stage": {"$in": [*FORMING, CONSOLIDATION]},
            "started_at": {"$gte": at - LATELY},
        }
        fields = dict.fromkeys(("stage", "formation_id", "cost_usd", "input_tokens", "outcome"), 1)
        rows = await self._calls.find(wanted, fields, sort=[("started_at", -1)], limit=MOST_CALLS).to_list()
        formations = {row["formation_id"] for row in rows if row["stage"] == FORMING[0]} - {None}
        return Recorded(
            windows=len(formations),
            characters=await self._characters(formations),
            usd=_sum(rows, FORMING),
            consolidation_usd=_sum(rows, (CONSOLIDATION,)),
            priced=not any(
                row["cost_usd"] is None and row["input_tokens"] and row["outcome"] in CHARGED for row in rows
            ),
        )

    async def _characters(self, formations: set[str]) -> int:
        wanted: Row = {"_id": {"$in": list(formations)}, "requested": {"$ne": None}}
        rows = await self._windows.find(wanted, {"requested": 1}).to_list()
        return sum(int(json.loads(row["requested"])["characters"]) for row in rows)


def _sum(rows: list[Row], stages: tuple[str, ...]) -> Decimal:
    return sum((plain(row["cost_usd"]) for row in rows if row["stage"] in stages), Decimal(0))
