"""The recorded calls of models, added up: by window for a plan, by stage for a report on one session."""

from collections.abc import AsyncGenerator
from typing import Any

from pymongo.asynchronous.database import AsyncDatabase

from eden_memory.call_costs import CHARGED
from eden_memory.mongo.documents import plain
from eden_memory.names import Names
from eden_memory.replay.reform.expected_cost import VECTORS, RecordedRow, StageCalls
from eden_memory.schemas.documents import CountedCall
from eden_memory.usage.totals_store import SUMMED, UsageSum
from eden_memory.usage.usage_store import LIVE

Row = dict[str, Any]
TOKENS = ("input_tokens", "cached_tokens", "output_tokens")
SUMS: Row = {name: {"$sum": f"${name}"} for name in (*TOKENS, "cost_usd")}
CHARGED_FOR: Row = {"$in": ["$outcome", sorted(CHARGED)]}
UNPRICED: Row = {"$eq": [{"$ifNull": ["$cost_usd", None]}, None]}


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
    unpriced = {"$sum": {"$cond": [UNPRICED, 1, 0]}}
    return [
        {"$match": {"namespace": account, "outcome": {"$in": sorted(CHARGED)}, "agent_id": {"$ne": None}}},
        {"$group": {"_id": by, "calls": {"$sum": "$requests"}, "unpriced": unpriced, **SUMS}},
    ]


def _row(row: Row, formation: str | None) -> RecordedRow:
    by = row["_id"]
    stage = VECTORS if by["operation"] == "embeddings" else by["stage"]
    usd = None if row["unpriced"] else plain(row["cost_usd"])
    given, cached, out = (float(row[name]) for name in TOKENS)
    return RecordedRow(
        by["agent_id"], formation, stage, StageCalls(float(row["calls"]), given, cached, out, usd)
    )


async def session_calls(
    database: AsyncDatabase[Row], names: Names, account: str, session_id: str
) -> list[UsageSum]:
    """The calls for one session by stage, 90 days back: the totals of usage know no sessions."""
    unpriced = {"$and": [UNPRICED, {"$or": [CHARGED_FOR, {"$gt": ["$input_tokens", 0]}]}]}
    group: Row = {
        "_id": "$stage",
        "calls": {"$sum": "$requests"},
        "failed_calls": _requests_if({"$ne": ["$outcome", "answered"]}),
        "unpriced_calls": _requests_if(unpriced),
        **SUMS,
    }
    match = {"namespace": account, "session_id": session_id}
    rows = await database[names[CountedCall.COLLECTION]].aggregate([{"$match": match}, {"$group": group}])
    return [
        UsageSum(row["_id"], plain(row["cost_usd"]), {name: int(row[name]) for name in SUMMED})
        async for row in rows
    ]


def _requests_if(condition: Row) -> Row:
    return {"$sum": {"$cond": [condition, "$requests", 0]}}
