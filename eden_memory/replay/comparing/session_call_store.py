"""The calls of models for one session: the totals of usage know no sessions, the calls that are kept do."""

from typing import Any

from pymongo.asynchronous.database import AsyncDatabase

from eden_memory.call_costs import CHARGED
from eden_memory.mongo.money import plain
from eden_memory.names import Names
from eden_memory.schemas.documents import CountedCall
from eden_memory.usage.totals_store import SUMMED, UsageSum

Row = dict[str, Any]
REQUESTS: Row = {"$ifNull": ["$requests", 1]}
"""A call of before version 2 of ModelCalled is one request."""
TOKENS = ("input_tokens", "cached_tokens", "output_tokens")
UNPRICED: Row = {
    "$and": [
        {"$eq": [{"$ifNull": ["$cost_usd", None]}, None]},
        {"$or": [{"$in": ["$outcome", sorted(CHARGED)]}, {"$gt": ["$input_tokens", 0]}]},
    ]
}


class MongoSessionCalls:
    """Over `calls`, which go back 90 days."""

    def __init__(self, database: AsyncDatabase[Row], names: Names) -> None:
        self._calls = database[names[CountedCall.COLLECTION]]

    async def sums(self, account: str, session_id: str) -> list[UsageSum]:
        """By stage."""
        group: Row = {
            "_id": "$stage",
            "calls": {"$sum": REQUESTS},
            "failed_calls": {"$sum": _requests_if({"$ne": ["$outcome", "answered"]})},
            **{name: {"$sum": f"${name}"} for name in TOKENS},
            "unpriced_calls": {"$sum": _requests_if(UNPRICED)},
            "cost_usd": {"$sum": "$cost_usd"},
        }
        match = {"namespace": account, "session_id": session_id}
        rows = await (await self._calls.aggregate([{"$match": match}, {"$group": group}])).to_list()
        return [_sum(row) for row in rows]


def _requests_if(condition: Row) -> Row:
    return {"$cond": [condition, REQUESTS, 0]}


def _sum(row: Row) -> UsageSum:
    return UsageSum(row["_id"], plain(row["cost_usd"]), {name: int(row[name]) for name in SUMMED})
