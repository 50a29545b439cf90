"""Sums of the stored usage totals, and the facts and messages of the same days, for the cost of one."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any, NamedTuple

from pymongo.asynchronous.database import AsyncDatabase

from eden_memory.metrics import known_cost
from eden_memory.mongo.documents import plain
from eden_memory.names import Names
from eden_memory.schemas.documents import CountedCall, Fact, Message, UsageState, UsageTotal
from eden_memory.usage.memory_cost import Embedded
from eden_memory.usage.usage_store import LIVE, STATE

Row = dict[str, Any]
SUMMED = ("calls", "failed_calls", "input_tokens", "cached_tokens", "output_tokens", "unpriced_calls")
SPENT_SUMS: dict[str, Any] = {
    "usd": {"$sum": "$cost_usd"},
    "calls": {"$sum": "$calls"},
    "unpriced": {"$sum": "$unpriced_calls"},
    "tokens": {"$sum": {"$add": ["$input_tokens", "$output_tokens"]}},
}
NOBODY, OTHERS = "none", "other"


@dataclass(frozen=True, slots=True)
class UsageQuery:
    """Which days (`2026-01-31`, both included), whose, and by what; ids typed."""

    first: str
    last: str
    by: str | None = None
    """A field of the totals; None: all in one."""
    agent_id: str | None = None
    user_id: str | None = None
    namespace: str = LIVE


@dataclass(slots=True)
class UsageSum:
    """Totals of one group."""

    of: str | None
    cost_usd: Decimal = Decimal(0)
    """Of the calls whose price is known."""
    counts: dict[str, int] = field(default_factory=dict[str, int])

    @property
    def known_usd(self) -> Decimal | None:
        """The cost, or None where the price of none of its calls is known."""
        tokens = self.counts["input_tokens"] + self.counts["output_tokens"]
        return known_cost(self.cost_usd, self.counts["calls"], self.counts["unpriced_calls"], tokens)


def together(sums: Sequence[UsageSum]) -> UsageSum:
    """The sum of sums."""
    counts = {name: sum(part.counts[name] for part in sums) for name in SUMMED}
    return UsageSum(None, sum((part.cost_usd for part in sums), Decimal(0)), counts)


class PaidCalls(NamedTuple):
    """The calls of one formation; `usd` None: no price is known."""

    calls: int
    failed: int
    usd: Decimal | None


class MongoTotals:
    """Reads `usage`, `calls`, and how many facts and messages there were."""

    def __init__(self, database: AsyncDatabase[Row], names: Names) -> None:
        self._totals = database[names[UsageTotal.COLLECTION]]
        self._calls = database[names[CountedCall.COLLECTION]]
        self._state = database[names[UsageState.COLLECTION]]
        self._facts, self._messages = (
            database[names[Fact.COLLECTION]],
            database[names[Message.COLLECTION]],
        )

    async def sums(self, asked: UsageQuery) -> list[UsageSum]:
        """The dearest group first."""
        match: Row = {"day": {"$gte": asked.first, "$lte": asked.last}, "namespace": asked.namespace}
        named = {"agent_id": asked.agent_id, "user_id": asked.user_id}
        match |= {name: value for name, value in named.items() if value is not None}
        group: Row = {"_id": f"${asked.by}" if asked.by else None, "cost_usd": {"$sum": "$cost_usd"}}
        group |= {name: {"$sum": f"${name}"} for name in SUMMED}
        rows = await (await self._totals.aggregate([{"$match": match}, {"$group": group}])).to_list()
        found = [
            UsageSum(row["_id"], plain(row["cost_usd"]), {name: int(row[name]) for name in SUMMED})
            for row in rows
        ]
        return sorted(found, key=lambda group: (-group.cost_usd, group.of or ""))

    async def of_namespace(self, namespace: str) -> tuple[Decimal, int]:
        """US dollars, and calls, of all days of one namespace."""
        group: Row = {"_id": None, "usd": {"$sum": "$cost_usd"}, "calls": {"$sum": "$calls"}}
        steps: list[Row] = [{"$match": {"namespace": namespace}}, {"$group": group}]
        found = await (await self._totals.aggregate(steps)).to_list()
        return (plain(found[0]["usd"]), int(found[0]["calls"])) if found else (Decimal(0), 0)

    async def of_formations(self, formation_ids: Collection[str]) -> dict[str, PaidCalls]:
        """Return what each formation paid, as far as its calls are kept."""
        paid: Row = {
            "_id": "$formation_id",
            "calls": {"$sum": "$requests"},
            "failed": {"$sum": {"$cond": [{"$eq": ["$outcome", "answered"]}, 0, "$requests"]}},
            "usd": {"$sum": "$cost_usd"},
            "priced": {"$sum": {"$cond": [{"$gt": ["$cost_usd", None]}, 1, 0]}},
        }
        steps: list[Row] = [{"$match": {"formation_id": {"$in": list(formation_ids)}}}, {"$group": paid}]
        rows = await (await self._calls.aggregate(steps)).to_list()
        return {
            row["_id"]: PaidCalls(row["calls"], row["failed"], plain(row["usd"]) if row["priced"] else None)
            for row in rows
        }

    async def facts_formed(self, asked: UsageQuery) -> int:
        """Facts formed in these days, whatever became of them."""
        wanted: Row = {"formed_at": _days(asked)}
        named = {"agent_id": asked.agent_id, "user_id": asked.user_id}
        wanted |= {name: value for name, value in named.items() if value is not None}
        return await self._facts.count_documents(wanted)

    async def messages_formed(self, asked: UsageQuery) -> int:
        """Messages of these days that a window holds; of one agent alone this is not known."""
        wanted: Row = {"time": _days(asked), "formation_id": {"$ne": None}}
        if asked.user_id is not None:
            wanted["user_id"] = asked.user_id
        return await self._messages.count_documents(wanted)

    async def counted_to(self) -> datetime | None:
        """When the newest call in the totals began."""
        row = await self._state.find_one(STATE)
        return None if row is None else row.get("counted_to")

    async def embedded(self, call_ids: Iterable[str]) -> dict[str, Embedded]:
        """Embedding calls by id, as far as they are still kept."""
        rows = await self._calls.find({"_id": {"$in": list(call_ids)}}).to_list()
        return {
            row["_id"]: Embedded(
                row["model"], None if row["cost_usd"] is None else plain(row["cost_usd"]), row["items"]
            )
            for row in rows
        }


def _days(asked: UsageQuery) -> Row:
    first, last = (datetime.fromisoformat(day).replace(tzinfo=UTC) for day in (asked.first, asked.last))
    return {"$gte": first, "$lt": last + timedelta(days=1)}


class Spender(NamedTuple):
    """The labels of a sum; `period` is `day` or `month`."""

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
        [{"$match": of_month}, {"$group": {"_id": by, **SPENT_SUMS}}]
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
    return set(sorted(by_agent, key=lambda agent: -by_agent[agent])[:most])


def _known(row: dict[str, Any]) -> Decimal | None:
    return known_cost(plain(row["usd"]), row["calls"], row["unpriced"], row["tokens"])
