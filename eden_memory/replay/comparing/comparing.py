"""Compare two memories by meaning, scope by scope: settings and names in, a report out.

Facts are matched by their vectors if one model made them all, else by their words; nobody has vectors of reflections.
"""

import asyncio
from collections import defaultdict
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from re import escape
from typing import Any

import numpy as np
from pymongo.asynchronous.database import AsyncDatabase
from pymongo.read_concern import ReadConcern

from eden_memory.directory.directory_store import MongoAudiences
from eden_memory.errors import EdenError
from eden_memory.memory.memory_batch import fact_hash
from eden_memory.metrics import CHARGED
from eden_memory.mongo.documents import packed_of, plain
from eden_memory.names import ORIGINAL, Names, Placement
from eden_memory.processors import pipeline
from eden_memory.replay.comparing.matching import (
    WORDS,
    Floats,
    Pair,
    by_words,
    nearest_pairs,
    put_vector,
    related,
    vector_rows,
)
from eden_memory.replay.comparing.report import (
    BothSpent,
    Differing,
    MemoryReport,
    MemoryText,
    ScopeDiffers,
    blobs_differing,
    differing,
    set_aside,
)
from eden_memory.replay.installation import settings_of
from eden_memory.replay.namespaces.namespace_store import MongoLive, MongoNamespaces, placed
from eden_memory.replay.reform.reform_settings import formed_by
from eden_memory.replay.reform.reform_store import MongoReforms
from eden_memory.replay.user_edits.reapplying import edits_to_apply
from eden_memory.schemas.documents import (
    Consolidated,
    CountedCall,
    Fact,
    Reflection,
    ReformAsked,
    Snapshot,
)
from eden_memory.schemas.scopes import Audience, LargeAudience, Scope
from eden_memory.settings import Settings
from eden_memory.usage.usage_store import LIVE, SUMMED, MongoTotals, UsageQuery, UsageSum, together

Row = dict[str, Any]
Database = AsyncDatabase[Row]
FACTS_OF_A_PAGE, SCOPES_OF_A_PAGE, AT_ONCE = 20_000, 200, 1_000
EVER = "0000-01-01", "9999-12-31"
FORMING = (
    pipeline.FACT_EXTRACTION,
    pipeline.FACT_DEDUP,
    pipeline.REFLECTION_EXTRACTION,
    pipeline.CONSOLIDATION,
)


@dataclass(frozen=True, slots=True)
class ReportRequest:
    """The scopes to compare in two memories, and how many differences to keep."""

    against: str | None = None
    """The other namespace; None: the live one, or what was live before where this one is."""
    beginnings: tuple[str, ...] = ()
    """Of scope keys; none: all."""
    most: int | None = 20
    least: float | None = None
    """(1 + cosine) / 2 from which facts are the same in other words; None: by the embedding model."""
    own: bool = True
    """Whether people's own changes are looked at, where the namespace is a reform's."""


async def compared(settings: Settings, database: Database, name: str, wanted: ReportRequest) -> MemoryReport:
    """Return the report on a namespace."""
    shadow = (await settings_of(settings, database, name)).placement
    live = await _other(settings, database, shadow, wanted.against)
    if live == shadow:
        raise EdenError(f"{name} cannot be compared with itself", "Name another with --against.")
    prefix = settings.mongodb.prefix
    reform = await MongoReforms(database, prefix).get(name)
    asked = ReformAsked() if reform is None else reform.asked
    namespace = await MongoNamespaces(database, prefix).get(shadow.memory)
    complete = namespace is None or namespace.state != "filling"
    report = MemoryReport(live=live.memory, shadow=shadow.memory, most=wanted.most, complete=complete)
    ours, theirs = (ComparedMemory(database, placement.names(prefix)) for placement in (live, shadow))
    heard = await MongoAudiences(database, live.names(prefix)).heard_by(asked.user_id)
    await compare(report, ours, theirs, wanted, formed_by(asked, heard))
    if reform is not None:
        report.spent = await _spent(settings, database, live, shadow, asked)
        report.reused_answers = reform.reused
        if wanted.own:
            report.own = await edits_to_apply(settings, database, live, shadow, reform)
    return report


async def _other(settings: Settings, database: Database, shadow: Placement, against: str | None) -> Placement:
    if against is not None:
        return (await settings_of(settings, database, against)).placement
    live = await MongoLive(database, settings.mongodb.prefix).read()
    now = placed(live)
    if now != shadow or live is None or live.previous is None:
        return now
    try:
        return (await settings_of(settings, database, live.previous.memory)).placement
    except EdenError:
        raise EdenError(
            f"{shadow.memory} is live, and what was live before is dropped", "Name another with --against."
        ) from None


@dataclass(frozen=True, slots=True)
class ComparedScope:
    """A scope, and whose it is; ids are typed."""

    key: str
    agent_id: str
    audience: Audience = ()
    facts: int = 0
    """Active ones."""


@dataclass(slots=True)
class ScopeTexts:
    """Texts of one kind in one scope by what they say: equal keys say the very same."""

    by_key: dict[str, MemoryText] = field(default_factory=dict[str, MemoryText])
    models: set[str | None] = field(default_factory=set[str | None])
    """Facts: whose vectors they have; None among them: some have none."""

    def add(self, text_hash: str, text: MemoryText) -> None:
        """Add a text; one that stands there twice counts twice."""
        key, times = text_hash, 1
        while key in self.by_key:
            times += 1
            key = f"{text_hash}/{times}"
        self.by_key[key] = text


class ComparedMemory:
    """The texts in the memory of one namespace: read as they are stored, by a few fields, page by page."""

    def __init__(self, database: Database, names: Names) -> None:
        majority = ReadConcern("majority")
        self._snapshots, self._facts, self._reflections, self._blobs = (
            database.get_collection(names[kind.COLLECTION], read_concern=majority)
            for kind in (Snapshot, Fact, Reflection, Consolidated)
        )

    async def scopes(self, beginnings: Sequence[str]) -> AsyncGenerator[ComparedScope]:
        """Yield scopes by their snapshots, in the order of their keys; only those whose key begins so, if given."""
        each = [{"_id": {"$regex": f"^{escape(beginning)}"}} for beginning in beginnings]
        query: Row = {"$or": each} if each else {}
        fields = ("agent_id", "audience", "active_facts")
        async for row in self._snapshots.find(query, fields, batch_size=AT_ONCE).sort("_id"):
            stored = row.get("audience", ())
            audience = LargeAudience.model_validate(stored) if isinstance(stored, dict) else tuple(stored)
            yield ComparedScope(row["_id"], row["agent_id"], audience, row.get("active_facts", 0))

    async def facts(self, scope_keys: Sequence[str]) -> Mapping[str, ScopeTexts]:
        """Return active ones, by scope key."""
        query = {"scope_key": {"$in": list(scope_keys)}, "active": True}
        fields = ("scope_key", "hash", "content", "embedding_model")
        found: defaultdict[str, ScopeTexts] = defaultdict(ScopeTexts)
        async for row in self._facts.find(query, fields, batch_size=AT_ONCE):
            texts = found[row["scope_key"]]
            texts.add(row["hash"], MemoryText(id=row["_id"], text=row["content"]))
            texts.models.add(row.get("embedding_model"))
        return found

    async def reflections(self, scope_keys: Sequence[str]) -> Mapping[str, ScopeTexts]:
        """Return all of them, absorbed or not, by scope key."""
        query = {"scope_key": {"$in": list(scope_keys)}}
        found: defaultdict[str, ScopeTexts] = defaultdict(ScopeTexts)
        async for row in self._reflections.find(query, ("scope_key", "content"), batch_size=AT_ONCE):
            text = MemoryText(id=row["_id"], text=row["content"])
            found[row["scope_key"]].add(fact_hash(row["content"]), text)
        return found

    async def blobs(self, scope_keys: Sequence[str]) -> Mapping[str, str]:
        """Return them by scope key."""
        rows = self._blobs.find({"_id": {"$in": list(scope_keys)}}, ("content",), batch_size=AT_ONCE)
        return {row["_id"]: row["content"] async for row in rows}

    async def vectors(self, fact_ids: Sequence[str]) -> AsyncGenerator[tuple[str, bytes]]:
        """Yield packed float32 vectors of those that (still) have one, in any order."""
        for start in range(0, len(fact_ids), AT_ONCE):
            page = fact_ids[start : start + AT_ONCE]
            async for row in self._facts.find({"_id": {"$in": page}}, ("embedding",), batch_size=AT_ONCE):
                if (packed := packed_of(row.get("embedding"))) is not None:
                    yield row["_id"], packed


async def compare(
    report: MemoryReport,
    live: ComparedMemory,
    shadow: ComparedMemory,
    wanted: ReportRequest,
    chosen: Callable[[Scope], bool] = lambda _: True,
) -> None:
    """Compare all scopes, a page at a time; of those that only live memory has, the `chosen` ones."""
    page: list[str] = []
    facts = 0
    scopes = live.scopes(wanted.beginnings), shadow.scopes(wanted.beginnings)
    async for ours, theirs in _side_by_side(*scopes):
        scope = ours or theirs
        assert scope is not None
        if theirs is None and not chosen(Scope.of_key(scope.key, scope.agent_id, scope.audience)):
            continue
        page.append(scope.key)
        facts += sum(side.facts for side in (ours, theirs) if side is not None)
        if facts >= FACTS_OF_A_PAGE or len(page) == SCOPES_OF_A_PAGE:
            await _page(report, live, shadow, page, wanted)
            page, facts = [], 0
    if page:
        await _page(report, live, shadow, page, wanted)


async def _side_by_side(
    live: AsyncGenerator[ComparedScope], shadow: AsyncGenerator[ComparedScope]
) -> AsyncGenerator[tuple[ComparedScope | None, ComparedScope | None]]:
    """Yield each scope once, in the order of their keys."""
    ours, theirs = await anext(live, None), await anext(shadow, None)
    while ours is not None or theirs is not None:
        key = min(scope.key for scope in (ours, theirs) if scope is not None)
        left = ours if ours is not None and ours.key == key else None
        right = theirs if theirs is not None and theirs.key == key else None
        yield left, right
        ours = await anext(live, None) if left is not None else ours
        theirs = await anext(shadow, None) if right is not None else theirs


async def _page(
    report: MemoryReport,
    live: ComparedMemory,
    shadow: ComparedMemory,
    keys: Sequence[str],
    wanted: ReportRequest,
) -> None:
    both, none = (live, shadow), ScopeTexts()
    facts = await asyncio.gather(*(memory.facts(keys) for memory in both))
    reflections = await asyncio.gather(*(memory.reflections(keys) for memory in both))
    blobs = await asyncio.gather(*(memory.blobs(keys) for memory in both))
    for key in keys:
        report.take(
            ScopeDiffers.of_kinds(
                key,
                await _facts(live, shadow, facts[0].get(key, none), facts[1].get(key, none), wanted),
                await _by_words(reflections[0].get(key, none), reflections[1].get(key, none), wanted.most),
                blobs_differing(key, blobs[0].get(key), blobs[1].get(key)),
            )
        )


async def _facts(
    live: ComparedMemory, shadow: ComparedMemory, ours: ScopeTexts, theirs: ScopeTexts, wanted: ReportRequest
) -> Differing:
    models = ours.models | theirs.models
    model = next(iter(models)) if len(models) == 1 else None
    if model is None:
        return await _by_words(ours, theirs, wanted.most)
    same, left, right = set_aside(ours.by_key, theirs.by_key)
    pairs: list[Pair] = []
    if left and right:
        vectors = await _vectors(live, left, None)
        others = await _vectors(shadow, right, vectors.shape[1])
        least = related(model) if wanted.least is None else wanted.least
        pairs = await asyncio.to_thread(nearest_pairs, vectors, others, least)
    return differing(same, left, right, pairs, model, wanted.most)


async def _vectors(memory: ComparedMemory, texts: Sequence[MemoryText], dimensions: int | None) -> Floats:
    """Return the vectors of texts by place; `dimensions` None: those of the first vector that there is."""
    places = {text.id: place for place, text in enumerate(texts)}
    rows = None if dimensions is None else vector_rows(len(texts), dimensions)
    async for fact_id, packed in memory.vectors(list(places)):
        vector = np.frombuffer(packed, "<f4")
        rows = vector_rows(len(texts), vector.size) if rows is None else rows
        put_vector(rows, places[fact_id], vector)
    return vector_rows(len(texts), 1) if rows is None else rows


async def _by_words(ours: ScopeTexts, theirs: ScopeTexts, most: int | None) -> Differing:
    same, left, right = set_aside(ours.by_key, theirs.by_key)
    pairs: list[Pair] = []
    if left and right:
        texts = [[text.text for text in side] for side in (left, right)]
        pairs = await asyncio.to_thread(by_words, *texts)
    return differing(same, left, right, pairs, WORDS, most)


async def _spent(
    settings: Settings, database: Database, live: Placement, shadow: Placement, asked: ReformAsked
) -> dict[str, BothSpent]:
    """Return the cost by stage, since ever; of one session as far back as its calls are kept."""

    async def of(account: str) -> Mapping[str, UsageSum]:
        if asked.session_id is None:
            query = UsageQuery(
                *EVER, by="stage", agent_id=asked.agent_id, user_id=asked.user_id, namespace=account
            )
            found = await MongoTotals(database, settings.names).sums(query)
        else:
            found = await session_calls(database, settings.names, account, asked.session_id)
        return {row.of or "": row for row in found}

    none = together(())
    ours = await of(LIVE if live.pipeline == ORIGINAL else live.pipeline)
    theirs = await of(shadow.pipeline)
    return {
        stage: (ours.get(stage, none), theirs.get(stage, none))
        for stage in FORMING
        if stage in ours or stage in theirs
    }


async def session_calls(
    database: AsyncDatabase[Row], names: Names, account: str, session_id: str
) -> list[UsageSum]:
    """Return the calls for one session by stage, 90 days back: the totals of usage know no sessions."""
    price: Row = {"$eq": [{"$ifNull": ["$cost_usd", None]}, None]}
    charged: Row = {"$in": ["$outcome", sorted(CHARGED)]}
    unpriced = {"$and": [price, {"$or": [charged, {"$gt": ["$input_tokens", 0]}]}]}
    group: Row = {
        "_id": "$stage",
        "calls": {"$sum": "$requests"},
        "failed_calls": _requests_if({"$ne": ["$outcome", "answered"]}),
        "unpriced_calls": _requests_if(unpriced),
        **{
            name: {"$sum": f"${name}"}
            for name in ("input_tokens", "cached_tokens", "output_tokens", "cost_usd")
        },
    }
    match = {"namespace": account, "session_id": session_id}
    rows = await database[names[CountedCall.COLLECTION]].aggregate([{"$match": match}, {"$group": group}])
    return [
        UsageSum(row["_id"], plain(row["cost_usd"]), {name: int(row[name]) for name in SUMMED})
        async for row in rows
    ]


def _requests_if(condition: Row) -> Row:
    return {"$sum": {"$cond": [condition, "$requests", 0]}}
