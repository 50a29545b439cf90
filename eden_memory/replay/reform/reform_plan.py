"""The plan of a reform: the windows that were asked for, and about what forming them again costs.

A stage is expected to ask for each message what live formation asked for it on average, less the share of the
messages for which its answers are kept. Before anything was recorded, start values stand in. Costs are US dollars.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from math import ceil
from typing import Any

from pymongo.asynchronous.database import AsyncDatabase

from eden_memory.assembly import handlers
from eden_memory.directory.directory_store import MongoAudiences
from eden_memory.directory.stream_store import Streams, streams_in
from eden_memory.errors import EdenError
from eden_memory.formation import prompts
from eden_memory.kafka.connection import client_kwargs
from eden_memory.kafka.topics import load_topics
from eden_memory.local.servers import endpoints
from eden_memory.metrics import CHARGED
from eden_memory.models.catalogue import (
    OFFLINE,
    chosen,
    embedder_of,
    embedding_model,
    provider_name,
)
from eden_memory.models.provider_calls import Tokens
from eden_memory.models.question import Role
from eden_memory.mongo.documents import plain
from eden_memory.replay.group_progress import recorded
from eden_memory.replay.reform.reform_settings import STREAMS, takes
from eden_memory.schemas.documents import CountedCall, ReformAsked, ReformCalls
from eden_memory.schemas.events import FormationRequested
from eden_memory.settings import Settings
from eden_memory.usage.costs import CONSOLIDATING, FORMING, tokens_of
from eden_memory.usage.usage_store import LIVE

Row = dict[str, Any]
FACTS, DEDUP, VECTORS, REFLECTIONS, CONSOLIDATION = (
    "fact-extraction",
    "fact-dedup",
    "vectors",
    "reflection-extraction",
    "consolidation",
)
ROLES: Mapping[str, Role | None] = {
    FACTS: "facts",
    DEDUP: "decisions",
    VECTORS: None,
    REFLECTIONS: "reflections",
    CONSOLIDATION: "consolidation",
}
"""Stage, as it is shown, and what its calls are for; vectors are fact-dedup's other calls."""
ALL = frozenset(ROLES)
PLACES = Decimal("0.000000000001")


@dataclass(slots=True)
class StageCalls:
    """Calls of one stage, added up."""

    calls: float = 0.0
    input: float = 0.0
    cached: float = 0.0
    """A part of `input`."""
    output: float = 0.0
    usd: Decimal | None = Decimal(0)
    """None: unknown, at least of one."""

    def times(self, factor: float) -> "StageCalls":
        """Return so many times these calls."""
        usd = None if self.usd is None else self.usd * Decimal(factor)
        return StageCalls(
            self.calls * factor, self.input * factor, self.cached * factor, self.output * factor, usd
        )


START = {FACTS: FORMING["facts"], DEDUP: FORMING["decisions"], REFLECTIONS: FORMING["reflections"]}
START[CONSOLIDATION] = CONSOLIDATING
"""The call that each stage is expected to make for a window before anything was recorded."""

Price = Callable[[str, StageCalls], Decimal | None]
"""(stage, calls) → US dollars by the price tables; None where the price is unknown."""


@dataclass(slots=True)
class AskedWindows:
    """The windows that live formation asked for; the figures are those of the selected sessions."""

    times: dict[str, datetime] = field(default_factory=dict[str, datetime])
    """When each was asked for."""
    messages_of: dict[str, int] = field(default_factory=dict[str, int])
    """How many messages each has."""
    windows: int = 0
    messages: int = 0
    characters: int = 0
    sessions: set[str] = field(default_factory=set[str])
    tier: int = 0
    """The highest."""
    as_before: int = 0
    """Windows of agents whose streams are those that live formation has."""

    def take(self, asked: FormationRequested) -> None:
        """Add a selected window."""
        self.windows, self.messages = self.windows + 1, self.messages + len(asked.messages)
        self.characters, self.tier = self.characters + asked.characters, max(self.tier, asked.tier)
        self.sessions.add(asked.session_id)


@dataclass(frozen=True, slots=True)
class ReformPlan:
    """The windows to form, with their expected calls and cost."""

    windows: int
    messages: int
    rows: tuple[ReformCalls, ...]
    message_usd: Decimal = Decimal(0)
    """What one message is expected to cost, as far as prices are known."""
    times: Mapping[str, datetime] = field(default_factory=dict[str, datetime])


async def plan(
    database: AsyncDatabase[Row],
    live: Settings,
    own: Settings,
    asked: ReformAsked,
    at_once: int,
    streams: Sequence[Row] | None = None,
) -> ReformPlan:
    """`live` are the settings of the namespace whose windows are taken, `own` the reform's; `streams` its own, if it
    has any, as documents."""
    heard = await MongoAudiences(database, live.names).heard_by(asked.user_id)
    before = await database[live.names[STREAMS]].find().to_list() if streams is not None else ()
    found = await _asked_windows(live, asked, heard, agents_changed(before, streams or ()))
    calls = RecordedCalls(database, live)
    changed = changed_stages(live, own, await calls.prompts())
    kept = set[str]() if asked.rewindow else kept_stages(changed, one_at_a_time=at_once == 1)
    share = found.as_before / max(1, found.windows)
    each = await calls.of_a_message(found.messages_of)
    price = _prices(own, found.tier)
    windows = found.windows
    if asked.rewindow and live.windows != own.windows:
        windows = max(len(found.sessions), ceil(found.messages / own.windows.messages))
    return expected(found, windows, each, dict.fromkeys(kept, share), price, repriced=other_models(live, own))


def expected(
    found: AskedWindows,
    windows: int,
    each: Mapping[str, StageCalls],
    kept: Mapping[str, float],
    price: Price,
    *,
    repriced: Collection[str] = (),
) -> ReformPlan:
    """Return the plan; `each`: live formation's calls for a message by stage, none if nothing was recorded.

    `windows`: how many there will be; `kept`: the share of the windows for which a stage finds its answers;
    `repriced`: stages whose model is another one than live's.
    """
    together: dict[str, StageCalls] = {}
    if each:
        cut_smaller = max(1.0, windows / max(1, found.windows))
        together = {stage: calls.times(found.messages * cut_smaller) for stage, calls in each.items()}
    elif windows:
        for stage, call in START.items():
            tokens = tokens_of(call, found.characters // windows)
            together[stage] = StageCalls(1, tokens[0], 0, tokens[1]).times(windows)

    def usd(stage: str, calls: StageCalls) -> Decimal | None:
        return price(stage, calls) if stage in repriced or not calls.usd else calls.usd

    rows: list[ReformCalls] = []
    for stage in (stage for stage in ROLES if stage in together and round(together[stage].calls)):
        calls, share = together[stage], kept.get(stage, 0.0)
        cost = usd(stage, calls) if share < 1 else Decimal(0)
        rows.append(
            ReformCalls(
                stage=stage,
                calls=round(calls.calls),
                input_tokens=round(calls.input),
                output_tokens=round(calls.output),
                usd=summed([cost and cost * Decimal(1 - share)]),
                reused=round(calls.calls * share),
            )
        )
    whole = sum((row.usd for row in rows if row.usd is not None), Decimal(0))
    message_usd = (whole / max(1, found.messages)).quantize(PLACES)
    return ReformPlan(windows, found.messages, tuple(rows), message_usd, found.times)


def summed(amounts: Iterable[Decimal | None]) -> Decimal | None:
    """Return the sum; None where one is unknown."""
    found = list(amounts)
    known = [amount for amount in found if amount is not None]
    return None if len(known) < len(found) else sum(known, Decimal(0)).quantize(PLACES)


def total(rows: Sequence[ReformCalls]) -> Decimal | None:
    """Return the cost of all rows; None where a price is unknown."""
    return summed(row.usd for row in rows)


async def _asked_windows(
    live: Settings, asked: ReformAsked, heard: Collection[str], changed: Set[str]
) -> AskedWindows:
    """Read `memory.formations` as far as it goes now; `changed`: agents with other streams than before."""
    topics = load_topics(live.kafka, live.placement)
    kafka = client_kwargs(live.kafka, endpoints(live).kafka)
    found = AskedWindows()
    async for batch in recorded(kafka, topics.topic_of(FormationRequested)):
        for event, _, record in batch:
            if isinstance(event, FormationRequested) and event.formation_id not in found.times:
                found.times[event.formation_id] = datetime.fromtimestamp(record.timestamp / 1000, UTC)
                found.messages_of[event.formation_id] = len(event.messages)
                if takes(asked, event, heard):
                    found.take(event)
                    found.as_before += event.agent_id not in changed
    return found


def agents_changed(before: Iterable[Row], now: Iterable[Row]) -> set[str]:
    """Return the agents of which these stream documents are not the same."""
    live, own = streams_by_agent(before), streams_by_agent(now)
    return {agent for agent in live.keys() | own.keys() if live.get(agent) != own.get(agent)}


def streams_by_agent(rows: Iterable[Row]) -> Mapping[str, Streams]:
    """Return stream documents by agent and label."""
    found: dict[str, list[Row]] = {}
    for row in rows:
        found.setdefault(row["agent_id"], []).append(row)
    return {agent: streams_in(own) for agent, own in found.items()}


class RecordedCalls:
    """The calls of models that formed live memory, as far back as they are kept.

    What a reform formed before it became live stands on its own account; what comes later on that of live.
    """

    def __init__(self, database: AsyncDatabase[Row], live: Settings) -> None:
        self._calls = database[live.names[CountedCall.COLLECTION]]
        self._accounts = [live.placement.pipeline, LIVE]

    async def of_a_message(self, messages_of: Mapping[str, int]) -> dict[str, StageCalls]:
        """Return the calls of each stage for one message on average; empty: none are recorded."""
        of = {"namespace": {"$in": self._accounts}}
        formed: Row = {**of, "stage": FACTS, "formation_id": {"$ne": None}}
        by_window: Row = {"_id": {"formation": "$formation_id", "account": "$namespace"}}
        windows = await self._calls.aggregate([{"$match": formed}, {"$group": by_window}], allowDiskUse=True)
        messages = sum([messages_of.get(row["_id"]["formation"], 0) async for row in windows])
        if not messages:
            return {}
        unpriced = {"$cond": [{"$eq": [{"$ifNull": ["$cost_usd", None]}, None]}, 1, 0]}
        sums: Row = {
            name: {"$sum": f"${name}"} for name in ("input_tokens", "cached_tokens", "output_tokens")
        }
        by_stage: Row = {
            "_id": {"stage": "$stage", "operation": "$operation"},
            "calls": {"$sum": "$requests"},
            "usd": {"$sum": "$cost_usd"},
            "unpriced": {"$sum": unpriced},
            **sums,
        }
        charged: Row = {**of, "outcome": {"$in": sorted(CHARGED)}, "agent_id": {"$ne": None}}
        found: dict[str, StageCalls] = {}
        async for row in await self._calls.aggregate([{"$match": charged}, {"$group": by_stage}]):
            stage = VECTORS if row["_id"]["operation"] == "embeddings" else row["_id"]["stage"]
            given, cached, out = (float(row[name]) for name in sums)
            usd = None if row["unpriced"] else plain(row["usd"])
            if stage in ROLES and (stage != VECTORS or row["_id"]["stage"] == DEDUP):
                found[stage] = StageCalls(float(row["calls"]), given, cached, out, usd).times(1 / messages)
        return found

    async def prompts(self) -> set[tuple[str, str]]:
        """Return (stage, prompt with its version) of these calls."""
        match: Row = {"namespace": {"$in": self._accounts}, "operation": "chat", "prompt": {"$ne": None}}
        group: Row = {"_id": {"stage": "$stage", "prompt": "$prompt"}}
        cursor = await self._calls.aggregate([{"$match": match}, {"$group": group}])
        return {(row["_id"]["stage"], row["_id"]["prompt"]) async for row in cursor}


def kept_stages(changed: Set[str], *, one_at_a_time: bool) -> Set[str]:
    """Return the stages of which a reform finds every answer; `changed`: stages that ask differently.

    An answer is used again where model, parameters and prompt are the same. A stage's prompt holds what others made:
    decisions and reflections the facts extracted, reflections the blobs, blobs the reflections. Several windows at
    once meet other candidates, blobs and buffers than before: they find some answers, which are not counted.
    """
    if FACTS in changed:
        return set()
    if not one_at_a_time:
        return {FACTS}
    last = {REFLECTIONS, CONSOLIDATION}
    return ALL - changed - (last if changed & last else set())


def changed_stages(live: Settings, own: Settings, prompted: Iterable[tuple[str, str]]) -> set[str]:
    """Return stages that ask another model, other words or on other grounds than before."""
    current = prompts.versions(short=own.models.prompts == "short")
    recorded = set(prompted)
    changed = {stage for stage, prompt in recorded if prompt not in current}
    if own.formation_limits.one_call or (FACTS, prompts.MEMORY_EXTRACTION) in recorded:
        changed.add(FACTS)  # its prompt holds memory, or did
    changed |= other_models(live, own)
    if live.models.effort != own.models.effort:
        changed |= ALL
    if (live.memory.similar, live.memory.dedup) != (own.memory.similar, own.memory.dedup):
        changed.add(DEDUP)
    if live.limits != own.limits:
        changed |= ALL
    if live.memory.demote_names != own.memory.demote_names:
        changed |= {DEDUP, REFLECTIONS, CONSOLIDATION}
    return changed


def other_models(live: Settings, own: Settings) -> set[str]:
    """Return stages whose model is another one."""
    found = {
        stage
        for stage, role in ROLES.items()
        if role is not None and any(chosen(role, tier, live) != chosen(role, tier, own) for tier in (0, 1))
    }
    if (embedder_of(live), embedding_model(live)) != (embedder_of(own), embedding_model(own)):
        found |= {VECTORS, DEDUP}
    return found


def _prices(own: Settings, tier: int) -> Price:
    cost = handlers.Prices().cost

    def price(stage: str, calls: StageCalls) -> Decimal | None:
        role = ROLES[stage]
        if role is None:
            embedding = embedding_model(own)
            provider, model = (None, "") if embedding is None else (embedder_of(own), embedding.name)
        else:
            choice = chosen(role, tier, own)
            provider, model = None if choice.provider == OFFLINE else choice.provider, choice.model or ""
        if provider is None:  # nobody is asked
            return Decimal(0)
        tokens = [round(part / calls.calls) for part in (calls.input, calls.cached, calls.output)]
        usd = cost(
            provider_name(provider), model, Tokens(input=tokens[0], cached=tokens[1], output=tokens[2])
        )
        return None if usd is None else usd * Decimal(calls.calls)

    return price


def refuse_unpriced(plan: ReformPlan, cap: Decimal | None) -> None:
    """Raise an EdenError for a cap that could not hold, because a price is not known."""
    unknown = ", ".join(row.stage for row in plan.rows if row.usd is None)
    if cap is not None and unknown:
        raise EdenError(
            f"no price is known of what {unknown} would ask: a cap could not be kept",
            "Leave --cap out, or name models whose price is known (`eden models check` says which).",
        )
