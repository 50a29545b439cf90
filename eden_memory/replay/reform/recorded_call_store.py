"""The recorded calls of models, added up by window, or by agent where no window is named."""

from collections.abc import AsyncGenerator
from typing import Any

from pymongo.asynchronous.database import AsyncDatabase

from eden_memory.call_costs import CHARGED
from eden_memory.mongo.money import plain
from eden_memory.names import Names
from eden_memory.replay.reform.expected_cost import VECTORS
from eden_memory.replay.reform.recorded_cost import RecordedRow, StageCalls
from eden_memory.schemas.documents import CountedCall
from eden_memory.usage.usage_store import LIVE

Row = dict[str, Any]
SUMMED = ("input_tokens", "cached_tokens", "output_tokens", "cost_usd")
UNPRICED: Row = {"$sum": {"$cond": [{"$eq": [{"$ifNull": ["$cost_usd", None]}, None]}, 1, 0]}}


class MongoRecordedCalls:
    """Over `calls`; `pipeline` is the one whose windows are formed anew."""

    def __init__(self, database: AsyncDatabase[Row], names: Names, pipeline: str) -> None:
        self._calls = database[names[CountedCall.COLLECTION]]
        self._accounts = [pipeline, LIVE]
        """In which order: what a reform formed before it became live stands on its own account."""
        self._formed: set[str] = set()

    async def rows(self) -> AsyncGenerator[RecordedRow]:
        """Calls that brought an answer, each window's from one account only."""
        for account in self._accounts:
            found: set[str] = set()
            async for row in await self._calls.aggregate(_steps(account), allowDiskUse=True):
                formation = row["_id"].get("formation_id")
                if formation is None or formation not in self._formed:
                    yield _row(row, formation)
                if formation is not None:
                    found.add(formation)
            self._formed |= found

    async def prompts(self) -> set[tuple[str, str]]:
        """(stage, prompt with its version) of these calls."""
        match: Row = {"namespace": {"$in": self._accounts}, "operation": "chat", "prompt": {"$ne": None}}
        group: Row = {"_id": {"stage": "$stage", "prompt": "$prompt"}}
        cursor = await self._calls.aggregate([{"$match": match}, {"$group": group}])
        return {(row["_id"]["stage"], row["_id"]["prompt"]) async for row in cursor}


def _steps(account: str) -> list[Row]:
    by = {name: f"${name}" for name in ("agent_id", "formation_id", "stage", "operation")}
    group: Row = {"_id": by, "calls": {"$sum": {"$ifNull": ["$requests", 1]}}, "unpriced": UNPRICED}
    group |= {name: {"$sum": f"${name}"} for name in SUMMED}
    return [
        {"$match": {"namespace": account, "outcome": {"$in": sorted(CHARGED)}, "agent_id": {"$ne": None}}},
        {"$group": group},
    ]


def _row(row: Row, formation: str | None) -> RecordedRow:
    by = row["_id"]
    stage = VECTORS if by["operation"] == "embeddings" else by["stage"]
    usd = None if row["unpriced"] else plain(row["cost_usd"])
    given, cached, out = (float(row[name]) for name in SUMMED[:3])
    return RecordedRow(
        by["agent_id"], formation, stage, StageCalls(float(row["calls"]), given, cached, out, usd)
    )
