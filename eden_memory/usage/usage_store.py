"""The totals of model calls (invariant counted-once), and their sums by day, stage, model, agent and user.

The same transaction adds what was spent to the budgets that it concerns.
"""

from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import partial
from typing import Any, Literal, NamedTuple

from pymongo import ReadPreference, UpdateOne
from pymongo.asynchronous.client_session import AsyncClientSession
from pymongo.asynchronous.database import AsyncDatabase
from pymongo.errors import BulkWriteError, DuplicateKeyError
from pymongo.read_concern import ReadConcern

from eden_memory.metrics import MOST_AGENTS, known_cost, unpriced
from eden_memory.mongo.client import server_time
from eden_memory.mongo.documents import plain, stored
from eden_memory.mongo.refusals import DUPLICATE_KEY
from eden_memory.mongo.transactions import Transactions
from eden_memory.mongo.validators import Indexes, index_on
from eden_memory.names import Names
from eden_memory.schemas.documents import (
    Budget,
    CountedCall,
    Fact,
    ForgottenMark,
    Message,
    UsageState,
    UsageTotal,
)
from eden_memory.schemas.events import ModelCalled
from eden_memory.usage.budget_rules import concerning, period_of
from eden_memory.usage.costs import Embedded

Row = dict[str, Any]
LIVE = "live"
KEPT = timedelta(days=90)
"""How long counted calls are remembered after they were counted: thrice what `memory.usage` keeps."""
ATTEMPTS = 10
STATE: Row = {"_id": "usage"}
KEPT_FIELDS = tuple(
    name for name in ModelCalled.model_fields if name in CountedCall.model_fields and name != "cost_usd"
)
REDUCED = ("session", "user")
"""Whose ids forgetting takes out of what was counted."""
GROUP = ("day", "namespace", "agent_id", "user_id", "stage", "model")
"""The keys of a total."""
ADDED = (
    "calls",
    "failed_calls",
    "input_tokens",
    "cached_tokens",
    "output_tokens",
    "cost_usd",
    "unpriced_calls",
)
USAGE_INDEXES: Indexes = {
    CountedCall.COLLECTION: (
        index_on("erase_at", expireAfterSeconds=0),
        index_on("formation_id", sparse=True),
        index_on("user_id", sparse=True),
        index_on("session_id", sparse=True),
        index_on("agent_id", "stage", "-started_at"),
    ),
    UsageTotal.COLLECTION: (index_on("day", "agent_id"), index_on("user_id", "day")),
}


class MongoUsage:
    """The collections `usage`, `calls` and `usage_state`, and `spent_usd` of `budgets`."""

    def __init__(
        self,
        database: AsyncDatabase[Row],
        names: Names,
        kept: timedelta = KEPT,
        clock: Callable[[], Awaitable[datetime]] | None = None,
    ) -> None:
        """`clock`: MongoDB's own, if none is given."""
        self._transactions, self._kept = Transactions(database.client), kept
        self._now = clock or partial(server_time, database.client)
        self._totals = database[names[UsageTotal.COLLECTION]]
        self._calls = database[names[CountedCall.COLLECTION]]
        self._state = database[names[UsageState.COLLECTION]]
        self._budgets = database[names[Budget.COLLECTION]]
        self._forgotten = database.get_collection(
            names[ForgottenMark.COLLECTION],
            read_preference=ReadPreference.PRIMARY,
            read_concern=ReadConcern("majority"),
        )

    async def prepare(self) -> None:
        """Create the indexes, and the document that every count moves on."""
        await self._calls.create_indexes(list(USAGE_INDEXES[CountedCall.COLLECTION]))
        await self._totals.create_indexes(list(USAGE_INDEXES[UsageTotal.COLLECTION]))
        await self._budgets.create_index("_id")
        await self._state.update_one(STATE, {"$setOnInsert": {"calls": 0, "reckoned": 0}}, upsert=True)

    async def count(self, calls: Sequence[ModelCalled]) -> Sequence[ModelCalled]:
        """Add calls to the totals, those of forgotten users and sessions as nobody's; return the new ones.

        A call that began in the future, by the clock of a process that ran ahead, counts as of now.
        """
        if not calls:
            return ()
        now = await self._now()
        calls = [
            call if call.started_at <= now else call.model_copy(update={"started_at": now}) for call in calls
        ]
        counted = await self._counted_once(calls, now)
        await self._reduce_forgotten(calls)
        return counted

    async def _counted_once(self, calls: Sequence[ModelCalled], now: datetime) -> Sequence[ModelCalled]:
        for attempt in range(1, ATTEMPTS + 1):
            try:
                return await self._transactions.run(
                    lambda async_client_session: self._count(async_client_session, calls, now)
                )
            except (DuplicateKeyError, BulkWriteError) as error:
                if attempt == ATTEMPTS or not _duplicate(error):
                    raise
        return ()

    async def _reduce_forgotten(self, calls: Sequence[ModelCalled]) -> None:
        """Take out ids that were forgotten before their calls were counted (invariant mark-read-write-mark)."""
        ids = {kind: {getattr(call, f"{kind}_id") for call in calls} - {None} for kind in REDUCED}
        of = [{"kind": kind, "target": {"$in": sorted(names)}} for kind, names in ids.items() if names]
        marks = await self._forgotten.find({"$or": of, "until": {"$ne": None}}).to_list() if of else []
        for mark in marks:
            kind, name, until = mark["kind"], mark["target"], mark["until"]
            if any(getattr(call, f"{kind}_id") == name and call.started_at <= until for call in calls):
                await self.reduce(kind, name, until)

    async def reduce(self, kind: Literal["session", "user"], name: str, until: datetime) -> None:
        """Take the ids of a forgotten session or user out of what was counted up to a time; the numbers stay."""
        of: Row = {f"{kind}_id": name, "started_at": {"$lte": until}}
        nobody: Row = {"user_id": None, "session_id": None, "scope": None}
        await self._calls.update_many(of, {"$set": nobody})
        if kind == "user":
            days: Row = {"user_id": name, "day": {"$lte": period_of("day", until)}}
            for row in await self._totals.find(days).to_list():
                await self._transactions.run(partial(self._merge_into_nobody, row))

    async def _merge_into_nobody(self, row: Row, session: AsyncClientSession) -> None:
        """Add a user's total to that of nobody in particular, once."""
        found = await self._totals.find_one_and_delete({"_id": row["_id"]}, session=session)
        if found is not None:
            group = {**{name: found.get(name) for name in GROUP}, "user_id": None}
            change = {"$setOnInsert": group, "$inc": {name: found[name] for name in ADDED if name in found}}
            await self._totals.update_one(
                {"_id": _identity(group.values())}, change, upsert=True, session=session
            )

    async def counted(self, call_ids: Iterable[str]) -> set[str]:
        """Those of the calls that are in the totals."""
        wanted = list(call_ids)
        rows = await self._calls.find({"_id": {"$in": wanted}}, {"_id": 1}).to_list() if wanted else []
        return {row["_id"] for row in rows}

    async def _count(
        self, session: AsyncClientSession, calls: Sequence[ModelCalled], now: datetime
    ) -> Sequence[ModelCalled]:
        ids = [call.call_id for call in calls]
        known = await self._calls.find({"_id": {"$in": ids}}, {"_id": 1}, session=session).to_list()
        there = {row["_id"] for row in known}
        new = [call for call in calls if call.call_id not in there]
        if new:
            moved = {
                "$inc": {"calls": len(new)},
                "$max": {"counted_to": max(model_called.started_at for model_called in new)},
            }
            await self._state.update_one(STATE, moved, upsert=True, session=session)
            erase_at = now + self._kept
            await self._calls.insert_many(
                [_row(model_called, erase_at) for model_called in new], session=session
            )
            await self._totals.bulk_write(_totals(new), ordered=False, session=session)
            await self._spend(session, new)
        return new

    async def _spend(self, session: AsyncClientSession, calls: Sequence[ModelCalled]) -> None:
        """Add calls to the budgets that they concern, in the periods in which they began."""
        spent: defaultdict[str, defaultdict[str, Decimal]] = defaultdict(lambda: defaultdict(Decimal))
        for call in calls:
            if call.namespace == LIVE and call.cost_usd is not None:
                for name, per in concerning(call.agent_id, call.user_id):
                    spent[name][f"spent_usd.{period_of(per, call.started_at)}"] += call.cost_usd
        there = self._budgets.find({"_id": {"$in": list(spent)}}, {"_id": 1}, session=session)
        for row in await there.to_list() if spent else ():
            change = {"$inc": {period: stored(usd) for period, usd in spent[row["_id"]].items()}}
            await self._budgets.update_one({"_id": row["_id"]}, change, session=session)


def _row(call: ModelCalled, erase_at: datetime) -> Row:
    """Remembered from its counting on: a call may be months old when a record of it is read (again)."""
    row: Row = {"_id": call.call_id, **{name: getattr(call, name) for name in KEPT_FIELDS}}
    row["cost_usd"] = None if call.cost_usd is None else stored(call.cost_usd)
    return row | {"erase_at": erase_at}


def _totals(calls: Sequence[ModelCalled]) -> list[UpdateOne]:
    """One update for each day, agent, user, stage and model."""
    groups: defaultdict[tuple[Any, ...], list[ModelCalled]] = defaultdict(list)
    for call in calls:
        day = period_of("day", call.started_at)
        groups[day, call.namespace, call.agent_id, call.user_id, call.stage, call.model].append(call)
    return [_total(group, members) for group, members in groups.items()]


def _total(group: tuple[Any, ...], calls: Sequence[ModelCalled]) -> UpdateOne:
    added = {
        "calls": sum(call.requests for call in calls),
        "failed_calls": sum(call.requests for call in calls if call.outcome != "answered"),
        "input_tokens": sum(call.input_tokens for call in calls),
        "cached_tokens": sum(call.cached_tokens for call in calls),
        "output_tokens": sum(call.output_tokens for call in calls),
        "cost_usd": stored(sum((call.cost_usd or Decimal(0) for call in calls), Decimal(0))),
        "unpriced_calls": sum(call.requests for call in calls if unpriced(call)),
    }
    change = {"$setOnInsert": dict(zip(GROUP, group, strict=True)), "$inc": added}
    return UpdateOne({"_id": _identity(group)}, change, upsert=True)


def _identity(group: Iterable[Any]) -> str:
    return "/".join(str(part if part is not None else "-") for part in group)


def _duplicate(error: DuplicateKeyError | BulkWriteError) -> bool:
    """Another worker has counted one of these meanwhile."""
    if isinstance(error, DuplicateKeyError):
        return True
    failed: list[Row] = (error.details or {}).get("writeErrors", [])
    return bool(failed) and all(error["code"] == DUPLICATE_KEY for error in failed)


def newest(moment: datetime | None) -> str:
    """How far usage is, for people."""
    return "nothing counted yet" if moment is None else f"counted up to {moment:%Y-%m-%d %H:%M:%S} UTC"


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
    database: AsyncDatabase[dict[str, Any]], names: Names, now: datetime, agents: int = MOST_AGENTS
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
