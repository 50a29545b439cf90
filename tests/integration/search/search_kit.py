"""Stores of facts on a real server, written to by the real writer's store."""

import asyncio
import random
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from pymongo.asynchronous.database import AsyncDatabase

from eden_memory.forgotten import Marks
from eden_memory.memory.memory_batch import ScopeBatch, fact_hash, memory_batch
from eden_memory.memory.memory_index_store import MEMORY_INDEXES
from eden_memory.memory.memory_store import MongoMemoryStore
from eden_memory.memory.scope_matrix import matrix_of
from eden_memory.mongo.documents import packed_of
from eden_memory.schemas.documents import Fact
from eden_memory.schemas.events import FactChanged
from eden_memory.schemas.scopes import Scope
from eden_memory.search.atlas_list_store import make, wait_until_queryable
from eden_memory.search.fact_candidates import NOW, Ranked, When
from eden_memory.search.plain_list_store import PlainFactLists
from eden_memory.search.search_engine import FactLists
from eden_memory.settings import Settings
from tests.names import NAMES
from tests.search_following import Following
from tests.unit.formation.dedup.dedup_kit import DIMENSIONS, WordEmbedder, at, embedded, source
from tests.unit.memory.memory_histories import delivered

PREFIX = "memory_"
ANA, BEN = Scope.of_user("s.agent", "s.ana"), Scope.of_user("s.agent", "s.ben")
TEAM, AGENT = Scope.of_group("s.agent", "s.team"), Scope.of_agent("s.agent")
SOON = 10.0
WORDS = ("ana", "lives", "in", "lyon", "porto", "rome", "with", "cat", "dog", "since", "may", "june")
Database = AsyncDatabase[dict[str, Any]]


@dataclass
class Stand:
    """One store under test, and what it stands on."""

    settings: Settings
    database: Database
    lists: FactLists
    following: Following | None = None
    told: dict[str, int] = field(default_factory=dict[str, int])

    async def write(self, *facts: FactChanged) -> None:
        await write(self.database, facts)

    async def meant(
        self, text: str, *scopes: Scope, most: int = 10, least: float = 0.6, when: When = NOW
    ) -> list[str]:
        """Ids found by meaning."""
        return ids(await self.near(text, *scopes, most=most, least=least, when=when))

    async def near(
        self, text: str, *scopes: Scope, most: int = 10, least: float = 0.6, when: When = NOW
    ) -> Sequence[Ranked]:
        keys = [one.key for one in scopes or (ANA,)]
        (found,) = await self.lists.semantic(keys, [embedded(text).vector], most, least, when)
        return found

    async def said(
        self, text: str, *scopes: Scope, most: int = 10, least: float = 0.0, when: When = NOW
    ) -> list[str]:
        """Ids found by words."""
        return ids(await self.by_words(text, *scopes, most=most, least=least, when=when))

    async def by_words(
        self, text: str, *scopes: Scope, most: int = 10, least: float = 0.0, when: When = NOW
    ) -> Sequence[Ranked]:
        keys = [one.key for one in scopes or (ANA,)]
        (found,) = await self.lists.textual(keys, [text], most, least, when)
        return found

    @property
    def plain(self) -> PlainFactLists:
        assert isinstance(self.lists, PlainFactLists)
        return self.lists


@asynccontextmanager
async def plain(
    settings: Settings, database: Database, *, followed: bool, **options: Any
) -> AsyncGenerator[Stand]:
    """A process of its own: `followed` by a change stream, or asking MongoDB each time."""
    options.setdefault("embedder", WordEmbedder())
    lists = PlainFactLists(database, NAMES, "test", **options)
    following = Following(database.client, settings, lists) if followed else None
    try:
        if following is not None:
            await following.ready()
        yield Stand(settings, database, lists, following)
    finally:
        if following is not None:
            await following.close()
        await lists.close()


async def prepared(database: Database, *, search: bool = False) -> Database:
    """With the indexes of facts; `search`: also those of Atlas."""
    await database[f"{PREFIX}facts"].create_indexes(list(MEMORY_INDEXES[Fact.COLLECTION]))
    if search:
        await make(database[f"{PREFIX}facts"], DIMENSIONS)
        await wait_until_queryable(database[f"{PREFIX}facts"], 120)
    return database


def fact(name: str, text: str, version: int = 1, *, scope: Scope = ANA, **fields: Any) -> FactChanged:
    """A version of a fact, valid from so many minutes on."""
    event = FactChanged(
        cause="c",
        fact_id=name,
        version=version,
        outcome=version,
        scope=scope,
        text=text,
        hash=fact_hash(f"{name} {text}"),
        embedding=embedded(text),
        decision="ADD",
        sources=(source(name),),
        formed_at=at(1),
        said_at=at(1),
        valid_from=at(version),
    )
    return event.model_copy(update={"said_at": fields.get("formed_at", event.formed_at), **fields})


def retired(name: str, text: str, version: int, *, scope: Scope = ANA) -> FactChanged:
    gone: dict[str, Any] = {"retired_at": at(version), "retired_because": "asked", "embedding": None}
    return fact(name, text, version, scope=scope, decision="RETIRE", **gone)


async def write(database: Database, facts: Iterable[FactChanged]) -> None:
    """The writer applies these."""
    deliveries = [delivered(one) for one in facts]
    await _apply(database, list(memory_batch(deliveries, Marks()).scopes.values()))


async def forget(database: Database, one: FactChanged) -> None:
    """The writer meets the tombstone of a fact."""
    batch = ScopeBatch(one.scope.key, one.valid_from)
    batch.gone_facts.add((one.fact_id, one.version))
    await _apply(database, [batch])


async def _apply(database: Database, batches: Sequence[ScopeBatch]) -> None:
    for result in (await MongoMemoryStore(database, NAMES).apply(batches)).values():
        if isinstance(result, Exception):
            raise result


def ids(found: Sequence[Ranked]) -> list[str]:
    return [one.fact.fact_id for one in found]


async def soon(read: Callable[[], Any], wanted: Any) -> None:
    """Until a read gives what is wanted: a change is told, or an index has followed."""
    end = time.monotonic() + SOON
    while (found := await read()) != wanted:
        assert time.monotonic() < end, f"{found!r}, not {wanted!r}"
        await asyncio.sleep(0.005)


def minute(number: float) -> datetime:
    return at(number)


def changed_fact(dice: random.Random, versions: dict[str, int]) -> FactChanged:
    scope = dice.choice((ANA, BEN))
    name = f"{scope.user_id}-{dice.randrange(20)}"
    versions[name] = versions.get(name, 0) + 1
    make = retired if versions[name] > 1 and dice.random() < 0.3 else fact
    return make(name, " ".join(dice.choices(WORDS, k=4)), versions[name], scope=scope)


def said_of(store: Stand, text: str, scope: Scope) -> Callable[[], Awaitable[set[str]]]:
    async def said() -> set[str]:
        return set(await store.said(text, scope, most=100))

    return said


async def compared_by_hand(
    database: Database, scope: Scope, text: str
) -> tuple[dict[tuple[str, str], float], list[float]]:
    """Similarities of all facts with their texts, and of the eight nearest, to four digits."""
    rows = await database["memory_facts"].find({"scope_key": scope.key, "active": True}).to_list()
    texts = {row["_id"]: row["content"] for row in rows}
    matrix = matrix_of(((row["_id"], packed_of(row["embedding"]) or b"") for row in rows), DIMENSIONS)
    (hits,) = matrix.nearest([embedded(text).vector], len(rows) or 1, 0.0)
    near = {(hit.fact_id, texts[hit.fact_id]): round(hit.similarity, 4) for hit in hits}
    return near, [similarity for similarity in near.values() if similarity >= 0.6][:8]


async def having_words(database: Database, scope: Scope, text: str) -> set[str]:
    """Words of the facts that are known, but for those that say nothing."""
    wanted = set(text.split()) - {"in", "with"} or set(text.split())
    rows = await database["memory_facts"].find({"scope_key": scope.key, "active": True}).to_list()
    stems = {word.rstrip("s") for word in wanted}
    return {row["_id"] for row in rows if stems & {word.rstrip("s") for word in row["content"].split()}}
