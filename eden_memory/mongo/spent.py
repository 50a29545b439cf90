"""What the stored totals of usage come to today and this month (UTC), by stage, model and agent."""

from collections import defaultdict
from collections.abc import Mapping
from datetime import datetime
from typing import Any, NamedTuple

from bson.decimal128 import Decimal128
from pymongo.asynchronous.database import AsyncDatabase

from eden_memory.domain.names import Names
from schemas.documents import UsageTotal

LIVE = "live"
NOBODY, OTHERS = "none", "other"


class Spender(NamedTuple):
    """What a sum is of; `period` is `day` or `month`."""

    period: str
    stage: str
    model: str
    agent: str


async def spent(
    database: AsyncDatabase[dict[str, Any]], names: Names, now: datetime, agents: int
) -> Mapping[tuple[str, str, str, str], float]:
    """US dollars; the agents that spent most this month by name, the others together."""
    today = now.strftime("%Y-%m-%d")
    of_month: dict[str, Any] = {"namespace": LIVE, "day": {"$gte": today[:8] + "01", "$lte": today}}
    by = {"today": {"$eq": ["$day", today]}, "stage": "$stage", "model": "$model", "agent": "$agent_id"}
    rows = await database[names[UsageTotal.COLLECTION]].aggregate(
        [{"$match": of_month}, {"$group": {"_id": by, "usd": {"$sum": "$cost_usd"}}}]
    )
    found = [(row["_id"], _dollars(row["usd"])) async for row in rows]
    largest = _largest(found, agents)
    sums: defaultdict[tuple[str, str, str, str], float] = defaultdict(float)
    for key, usd in found:
        agent = key.get("agent") or NOBODY
        for period in ("day", "month") if key["today"] else ("month",):
            sums[Spender(period, key["stage"], key["model"], agent if agent in largest else OTHERS)] += usd
    return sums


def _largest(found: list[tuple[dict[str, Any], float]], most: int) -> set[str]:
    by_agent: defaultdict[str, float] = defaultdict(float)
    for key, usd in found:
        by_agent[key.get("agent") or NOBODY] += usd
    return set(sorted(by_agent, key=lambda one: -by_agent[one])[:most])


def _dollars(value: Any) -> float:
    return float(value.to_decimal()) if isinstance(value, Decimal128) else float(value)
