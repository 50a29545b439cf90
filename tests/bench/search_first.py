"""First searches of a scope that nothing is cached of, and many scopes under a bound of bytes."""

import asyncio
import gc
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pymongo.asynchronous.database import AsyncDatabase

from eden_memory.schemas.scopes import Scope
from eden_memory.search.fact_candidates import KEPT, NOW
from eden_memory.search.plain_list_store import PlainFactLists
from eden_memory.search.stored_vector_store import VectorCopies
from tests.bench.report import Report, Row, median, percentile
from tests.bench.search_facts import MODEL, Facts, near
from tests.names import NAMES

FIRST_TARGET = {384: 700.0, 1_536: 2_500.0}
"""Milliseconds, for 100,000 facts, by dimensions."""
MEMORY_TARGET = {384: 150.0, 1_536: 270.0}
"""MB for 100,000 facts, by dimensions."""
TEXT, LIST = "who was playing the violin in Porto", 20


@dataclass
class FirstSearches:
    """Milliseconds of each round, and what is cached after it."""

    facts: int
    read: list[float] = field(default_factory=list[float])
    """The bound: reading the same documents as raw batches."""
    meaning: list[float] = field(default_factory=list[float])
    both: list[float] = field(default_factory=list[float])
    """Both lists at once."""
    uncopied: list[float] = field(default_factory=list[float])
    """Both, before the scope's vectors are stored as blocks."""
    copying: float = 0.0
    """Milliseconds of storing them."""
    whole: list[float] = field(default_factory=list[float])
    """Until all documents and words are cached as well."""
    counted: int = 0
    """Bytes, as the cache counts them."""
    grown: list[int] = field(default_factory=list[int])
    """Bytes by which the process grew."""


async def first_searches(database: AsyncDatabase[dict[str, Any]], made: Facts, rounds: int) -> FirstSearches:
    """The first search of the first scope, so many times, each with nothing cached."""
    first = FirstSearches(len(made.ids))
    key, vector = made.scopes[0].key, near(made.vectors[0], 1)
    for _ in range(rounds):
        first.uncopied.append(await _alone(database, key, vector, words=True))
    start = time.perf_counter()
    await VectorCopies(database, NAMES).round()
    first.copying = (time.perf_counter() - start) * 1e3
    for _ in range(rounds):
        first.read.append(await _read(database, key))
        first.meaning.append(await _alone(database, key, vector, words=False))
        before, lists = resident(), PlainFactLists(database, NAMES, MODEL)
        start = time.perf_counter()
        first.both.append(await _first(lists, key, vector, words=True))
        await lists.filled()
        first.whole.append((time.perf_counter() - start) * 1e3)
        first.counted = lists.cached_bytes
        first.grown.append(resident() - before)
        await lists.close()
    return first


async def _alone(database: AsyncDatabase[dict[str, Any]], key: str, vector: bytes, *, words: bool) -> float:
    """A first search with lists of its own."""
    lists = PlainFactLists(database, NAMES, MODEL)
    try:
        return await _first(lists, key, vector, words=words)
    finally:
        await lists.close()


def resident() -> int:
    """Bytes of this process in memory; 0 where the system does not tell."""
    gc.collect()
    pages = Path("/proc/self/statm")
    return int(pages.read_text().split()[1]) * 4_096 if pages.exists() else 0


async def _read(database: AsyncDatabase[dict[str, Any]], key: str) -> float:
    start = time.perf_counter()
    asked = {"scope_key": key, "active": True}
    async for _ in database["memory_facts"].find_raw_batches(asked, KEPT, batch_size=1_000):
        pass
    return (time.perf_counter() - start) * 1e3


async def _first(lists: PlainFactLists, key: str, vector: bytes, *, words: bool) -> float:
    lists.live(True)
    start = time.perf_counter()
    await asyncio.gather(
        lists.semantic([key], [vector], LIST, 0.0, NOW),
        *([lists.textual([key], [TEXT], LIST, 0.0, NOW)] if words else []),
    )
    return (time.perf_counter() - start) * 1e3


def show_first(report: Report, dimensions: int, first: FirstSearches) -> None:
    """Its rows and figures."""
    name, key = f"{first.facts:,} facts of {dimensions:,} numbers", f"{first.facts}_{dimensions}"
    share = 100_000 / first.facts
    target, memory = FIRST_TARGET.get(dimensions), MEMORY_TARGET.get(dimensions)
    read, meaning, both = median(first.read), median(first.meaning), median(first.both)
    report.rows += [
        Row(f"{name}: first search by meaning, median", meaning, "ms", read, "reading the documents"),
        Row(f"{name}: first search, median", both, "ms", read, "reading the documents"),
        Row(f"{name}: first search, median", both, "ms", target, "target, 100,000 facts"),
        Row(f"{name}: first search, fastest", min(first.both), "ms", max(first.both), "slowest"),
        Row(
            f"{name}: before vectors are stored", median(first.uncopied), "ms", read, "reading the documents"
        ),
        Row(f"{name}: until all is cached", median(first.whole), "ms", read, "reading the documents"),
        Row(f"{name}: storing the vectors", first.copying, "ms", read, "reading the documents"),
        Row(f"{name}: counted per 100,000", first.counted * share / 1e6, "MB", memory, "target"),
        Row(f"{name}: process grew per 100,000", max(first.grown) * share / 1e6, "MB", memory, "target"),
    ]
    report.results |= {
        f"{key}_first_ms": both,
        f"{key}_first_meaning_ms": meaning,
        f"{key}_first_uncopied_ms": median(first.uncopied),
        f"{key}_mb_per_100000": first.counted * share / 1e6,
    }
    report.bounds[f"{key}_read_ms"] = read
    report.ratios[f"{key}_first_over_read"] = both / read


@dataclass
class Bounded:
    """Searches over more scopes than fit."""

    most_bytes: int
    taken: list[float] = field(default_factory=list[float])
    largest: int = 0
    evicted: int = 0
    read: int = 0
    """Searches that read their scope anew."""
    kept: int = 0
    """Scopes that were cached at the end."""
    kept_newest: int = 0
    """Of as many scopes, those used last: how many were still cached."""


async def bounded(
    database: AsyncDatabase[dict[str, Any]], made: Facts, searches: int, share: float
) -> Bounded:
    """One scope a search, with room for `share` of all."""
    every = await _all_bytes(database, made)
    found = Bounded(round(every * share))

    def kept(size: int, _: int, evicted: int) -> None:
        found.largest, found.evicted = max(found.largest, size), found.evicted + evicted

    lists = PlainFactLists(database, NAMES, MODEL, most_bytes=found.most_bytes, on_use=kept)

    async def read(key: str) -> bool:
        """Whether a search of a scope had to read it."""
        queries = lists.queries
        found.taken.append(await _first(lists, key, near(made.vectors[0], len(found.taken)), words=True))
        return lists.queries > queries

    used: dict[str, None] = {}
    for key in _unevenly(made.scopes, searches):
        found.read += await read(key)
        used.pop(key, None)
        used[key] = None
    found.kept = lists.cached_scopes
    found.kept_newest = sum([not await read(key) for key in list(used)[-found.kept :][::-1]])
    await lists.close()
    return found


def _unevenly(scopes: Sequence[Scope], count: int) -> list[str]:
    """Keys, four of five of the tenth that is used most."""
    dice, often = random.Random(5), scopes[: max(1, len(scopes) // 10)]
    return [dice.choice(often if dice.random() < 0.8 else scopes).key for _ in range(count)]


async def _all_bytes(database: AsyncDatabase[dict[str, Any]], made: Facts) -> int:
    """What all scopes take if the others are like the first."""
    lists = PlainFactLists(database, NAMES, MODEL)
    await _first(lists, made.scopes[0].key, near(made.vectors[0], 1), words=True)
    await lists.close()
    return lists.cached_bytes * len(made.scopes)


def show_bounded(report: Report, scopes: Sequence[object], found: Bounded) -> None:
    """Its rows and figures."""
    name = f"{len(scopes):,} scopes under a bound"
    report.rows += [
        Row(f"{name}: largest", found.largest / 1e6, "MB", found.most_bytes / 1e6, "bound"),
        Row(f"{name}: evicted", found.evicted, "scopes"),
        Row(f"{name}: cached", found.kept_newest, "scopes", found.kept, "scopes, those used last"),
        Row(f"{name}: searches that read their scope", found.read / len(found.taken), ""),
        Row(f"{name}: search, p50", median(found.taken), "ms"),
        Row(f"{name}: search, p95", percentile(found.taken, 0.95), "ms"),
    ]
    report.results |= {
        "bounded_largest_over_bound": found.largest / found.most_bytes,
        "bounded_evicted": found.evicted,
        "bounded_kept_newest_over_kept": found.kept_newest / found.kept,
        "bounded_p95_ms": percentile(found.taken, 0.95),
    }
