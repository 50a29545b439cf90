"""The plan of a reform: the windows that were asked for, and what their formation took."""

from collections.abc import Callable, Collection, Iterable, Sequence, Set
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from decimal import Decimal
from math import ceil
from typing import Any

from pymongo.asynchronous.database import AsyncDatabase

from eden_memory.assembly import handlers
from eden_memory.directory.audience_store import MongoAudiences
from eden_memory.errors import EdenError
from eden_memory.formation import prompts
from eden_memory.kafka.connection import client_kwargs
from eden_memory.kafka.record import Record
from eden_memory.kafka.topic_reading import reading
from eden_memory.kafka.topics import load_topics
from eden_memory.local.servers import endpoints
from eden_memory.models.catalogue import OFFLINE, chosen, embedder_of, embedding_model, provider_name
from eden_memory.models.provider_calls import Tokens
from eden_memory.replay.reform.expected_cost import (
    ALL,
    STAGES,
    VECTORS,
    Expecting,
    Pricing,
    RecordedCalls,
    Reuse,
    StageCalls,
    recorded,
    reuse,
    total,
)
from eden_memory.replay.reform.recorded_call_store import MongoRecordedCalls
from eden_memory.replay.reform.selection import PlannedWindow, planned, takes
from eden_memory.schemas.documents import ReformAsked, ReformCalls, Stream
from eden_memory.schemas.envelope import Envelope, EnvelopeError
from eden_memory.schemas.events import FormationRequested, SchemaViolation, decode
from eden_memory.settings import Settings, WindowsSettings

Row = dict[str, Any]
BY_COUNT = ("messages", "tokens")


@dataclass(slots=True)
class AskedWindows:
    """The windows that live formation asked for."""

    events: list[FormationRequested] = field(default_factory=list[FormationRequested])
    """Of the selected sessions."""
    all: dict[str, PlannedWindow] = field(default_factory=dict[str, PlannedWindow])
    times: dict[str, datetime] = field(default_factory=dict[str, datetime])
    """When each was."""


@dataclass(frozen=True, slots=True)
class ReformPlan:
    """The windows to form, with their expected calls and cost."""

    expecting: Expecting
    times: dict[str, datetime]
    rows: tuple[ReformCalls, ...]

    @property
    def usd(self) -> Decimal | None:
        """All of it; None where a price is unknown."""
        return total(self.rows)


async def plan(
    database: AsyncDatabase[Row],
    live: Settings,
    own: Settings,
    asked: ReformAsked,
    at_once: int,
    streams: Sequence[Row] | None = None,
) -> ReformPlan:
    """`live` are the settings of the namespace whose windows are taken, `own` the reform's; `streams` its own."""
    heard = await MongoAudiences(database, live.names).heard_by(asked.user_id)
    found = await _asked(live, asked, heard)
    calls = MongoRecordedCalls(database, live.names, live.placement.pipeline)
    known = recorded([row async for row in calls.rows()], found.all)
    changed = changed_stages(live, own, await calls.prompts())
    untouched = None if streams is None else await _untouched(database, live, streams, found.events)
    expecting = _expecting(known, live, own)
    expecting.reuse = kept_answers(changed, asked, untouched, one_at_a_time=at_once == 1)
    selected = [planned(event) for event in found.events]
    for window in cut_anew(selected, found.events, live.windows, own.windows) if asked.rewindow else selected:
        expecting.add(window)
    return ReformPlan(expecting, found.times, expecting.rows())


async def _asked(live: Settings, asked: ReformAsked, heard: Collection[str]) -> AskedWindows:
    """`memory.formations` as far as it goes now."""
    topics = load_topics(live.kafka, live.placement)
    kafka = client_kwargs(live.kafka, endpoints(live).kafka)
    found = AskedWindows()
    async with reading(kafka, [topics.topic_of(FormationRequested)]) as log:
        async for batch in log.batches():
            for record in batch:
                event = request_of(record)
                if event is not None and event.formation_id not in found.times:
                    found.times[event.formation_id] = datetime.fromtimestamp(record.timestamp / 1000, UTC)
                    found.all[event.formation_id] = planned(event)
                    if takes(asked, event, heard):
                        found.events.append(event)
    return found


def request_of(record: Record) -> FormationRequested | None:
    """None: it cannot be read, and is no window of formation-trigger's either."""
    try:
        envelope = Envelope.of_headers(record.headers)
        event = record.value and decode(envelope.name, envelope.version, record.value)
    except (EnvelopeError, SchemaViolation):
        return None
    return event if isinstance(event, FormationRequested) else None


def kept_answers(
    changed: Set[str], asked: ReformAsked, untouched: Set[str] | None, *, one_at_a_time: bool
) -> Callable[[PlannedWindow], Reuse]:
    """Of which stages a window finds its answers; `untouched`: windows that no changed stream is of."""
    same = not asked.rewindow
    alone = one_at_a_time and untouched is None
    of_untouched = reuse(changed, one_at_a_time=alone, same_windows=same)
    of_touched = reuse(ALL, one_at_a_time=alone, same_windows=same)

    def of(window: PlannedWindow) -> Reuse:
        is_untouched = untouched is None or window.formation_id in untouched
        return of_untouched if is_untouched else of_touched

    return of


async def _untouched(
    database: AsyncDatabase[Row], live: Settings, streams: Sequence[Row], events: Sequence[FormationRequested]
) -> set[str]:
    """The windows of which every scope is formed as before."""
    stored = {row["_id"]: row async for row in database[live.names[Stream.COLLECTION]].find()}
    given = {row["_id"]: row for row in streams}
    other = {
        (row["agent_id"], row["scope"], row.get("shard"))
        for name in stored.keys() | given.keys()
        for row in (given.get(name), stored.get(name))
        if row is not None and _stream(given.get(name)) != _stream(stored.get(name))
    }
    shards = {agent for agent, scope, _ in other if scope == "shard"}
    return {
        event.formation_id
        for event in events
        if not any((event.agent_id, scope.kind, scope.shard) in other for scope in event.scopes)
        and not (event.agent_id in shards and any(scope.kind == "agent" for scope in event.scopes))
    }


def _stream(row: Row | None) -> Stream | None:
    return None if row is None else Stream.model_validate(row, strict=False, extra="ignore")


def changed_stages(live: Settings, own: Settings, prompted: Iterable[tuple[str, str]]) -> set[str]:
    """Stages that ask another model, other words or on other grounds than before."""
    current = prompts.versions(short=own.models.prompts == "short")
    changed = {stage for stage, prompt in prompted if prompt not in current}
    changed |= other_models(live, own)
    if live.models.effort != own.models.effort:
        changed |= ALL
    if (live.memory.similar, live.memory.dedup) != (own.memory.similar, own.memory.dedup):
        changed.add("fact-dedup")
    if live.limits != own.limits:
        changed |= ALL
    if live.memory.demote_names != own.memory.demote_names:
        changed |= {"fact-dedup", "reflection-extraction", "consolidation"}
    return changed


def other_models(live: Settings, own: Settings) -> set[str]:
    """Stages whose model is another one."""
    found = {
        stage
        for stage, role in STAGES.items()
        if role is not None and any(chosen(role, tier, live) != chosen(role, tier, own) for tier in (0, 1))
    }
    if (embedder_of(live), embedding_model(live)) != (embedder_of(own), embedding_model(own)):
        found |= {VECTORS, "fact-dedup"}
    return found


def _expecting(known: RecordedCalls, live: Settings, own: Settings) -> Expecting:
    cost = handlers.Prices().cost

    def price(stage: str, tier: int, calls: StageCalls) -> Decimal | None:
        if not calls.calls:
            return Decimal(0)
        provider, model = _asks(stage, tier, own)
        if provider is None:
            return Decimal(0)
        tokens = [round(total / calls.calls) for total in (calls.input, calls.cached, calls.output)]
        usd = cost(provider, model, Tokens(input=tokens[0], cached=tokens[1], output=tokens[2]))
        return None if usd is None else usd * Decimal(calls.calls)

    return Expecting(known, Pricing(price, frozenset(other_models(live, own))))


def _asks(stage: str, tier: int, own: Settings) -> tuple[str | None, str]:
    """Provider and model; no provider: nobody is asked."""
    role = STAGES[stage]
    if role is None:
        model = embedding_model(own)
        return (None, "") if model is None else (provider_name(embedder_of(own)), model.name)
    choice = chosen(role, tier, own)
    return (None, "") if choice.provider == OFFLINE else (provider_name(choice.provider), choice.model or "")


def cut_anew(
    windows: Sequence[PlannedWindow],
    events: Sequence[FormationRequested],
    before: WindowsSettings,
    after: WindowsSettings,
) -> list[PlannedWindow]:
    """About the windows that other limits would cut; those that closed for another reason than being full stay."""
    if before == after:
        return list(windows)
    found: list[PlannedWindow] = []
    by_session: dict[str, list[tuple[PlannedWindow, FormationRequested]]] = {}
    for window, event in zip(windows, events, strict=True):
        by_session.setdefault(window.session_id, []).append((window, event))
    for rows in by_session.values():
        messages = sum(window.messages for window, _ in rows)
        tokens = sum(event.weighted_tokens for _, event in rows)
        others = sum(event.closed_because not in BY_COUNT for _, event in rows)
        count = max(1, others, ceil(messages / after.messages), ceil(tokens / after.tokens))
        characters = sum(window.characters for window, _ in rows)
        found += [
            replace(
                rows[0][0],
                formation_id=f"{rows[0][0].session_id}/{number}",
                messages=messages // count + (number < messages % count),
                characters=characters // count,
            )
            for number in range(count)
        ]
    return found


def refuse_unpriced(plan: ReformPlan, cap: Decimal | None) -> None:
    """A cap holds only where prices are known."""
    unknown = ", ".join(row.stage for row in plan.rows if row.usd is None)
    if cap is not None and unknown:
        raise EdenError(
            f"no price is known of what {unknown} would ask: a cap could not be kept",
            "Leave --cap out, or name models whose price is known (`eden models check` says which).",
        )
