"""What the stored totals of usage come to today and this month (UTC), by stage, model and agent."""

from collections import defaultdict
from collections.abc import Mapping
from datetime import datetime
from decimal import Decimal
from typing import Any, NamedTuple

from pymongo.asynchronous.database import AsyncDatabase

from eden_memory.call_costs import known_cost
from eden_memory.mongo.money import plain
from eden_memory.names import Names
from eden_memory.schemas.documents import UsageTotal

LIVE = "live"
SUMMED: dict[str, Any] = {
    "usd": {"$sum": "$cost_usd"},
    "calls": {"$sum": "$calls"},
    "unpriced": {"$sum": "$unpriced_calls"},
    "tokens": {"$sum": {"$add": ["$input_tokens", "$output_tokens"]}},
}
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
    """US dollars, where a price is known; the agents that spent most this month by name, the others together."""
    today = now.strftime("%Y-%m-%d")
    of_month: dict[str, Any] = {"namespace": LIVE, "day": {"$gte": today[:8] + "01", "$lte": today}}
    by = {"today": {"$eq": ["$day", today]}, "stage": "$stage", "model": "$model", "agent": "$agent_id"}
    rows = await database[names[UsageTotal.COLLECTION]].aggregate(
        [{"$match": of_month}, {"$group": {"_id": by, **SUMMED}}]
    )
    priced = [(row["_id"], _known(row)) async for row in rows]
    found = [(key, float(usd)) for key, usd in priced if usd is not None]
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


def _known(row: dict[str, Any]) -> Decimal | None:
    return known_cost(plain(row["usd"]), row["calls"], row["unpriced"], row["tokens"])
