"""Searching facts in kept scopes: milliseconds warm and after a change, recall, and how well words are ranked.

`python -m tests.bench.search [--facts N,N] [--searches N] [--changes N] [--rounds N] [--dimensions D] [--wide D]
[--first] [--mongodb URI]`: a private MongoDB unless one is named; a table for people and one JSON object as the last
line. `--first`: only first searches, memory, and many scopes under a bound.

A search is both lists of 20 at once, by meaning and by words, without the call of an embedder, and without what
ranks them together. Bounds of the same run: numpy's product of all vectors with the best 20 of it; MongoDB's $text
over the scope; for a new fact, when a bare change stream tells of its write; for a first search, reading the scope's
documents without looking at them. Recall is of the 10 nearest, against the
exact ones. Words: each query has four words of one fact that is to be found, as they stand in it, in another form, or
with a typo; the figure is the mean of 1/rank within 10.
"""

import argparse
import asyncio
import random
import tempfile
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
from pydantic import SecretStr
from pymongo.asynchronous.database import AsyncDatabase

from eden_memory.local.mongo import LocalMongo
from eden_memory.memory.memory_index_store import MEMORY_INDEXES
from eden_memory.mongo.client import connect
from eden_memory.schemas.documents import Fact, Snapshot
from eden_memory.schemas.scopes import Scope
from eden_memory.search.fact_candidates import NOW as WHEN_NOW
from eden_memory.search.fact_candidates import Ranked
from eden_memory.search.plain_list_store import PlainFactLists
from eden_memory.settings import MongoSettings, Settings
from tests.bench.report import Report, Row, median, percentile
from tests.bench.search_changes import Change, changes
from tests.bench.search_facts import MODEL, Facts, facts, near, store
from tests.bench.search_first import bounded, first_searches, show_bounded, show_first
from tests.names import NAMES
from tests.search_following import Following

TARGETS = {1_000: 3.0, 10_000: 5.0, 100_000: 5.0}
"""Milliseconds at p95, by facts of a scope."""
FRESH_TARGET, RECALL_TARGET = 100.0, 0.99
LIST, BEST = 20, 10
SPREAD = 1_000
MORE_SCOPES, BOUND = 3, 0.2
"""Times as many scopes as in other lines, where there is room for a share of what all of them take."""
TOGETHER = 3
"""Scopes of one search where they are many: a user's, a group's, an agent's."""
HOW = ("as written", "other form", "typo")
Database = AsyncDatabase[dict[str, Any]]


@dataclass
class Bench:
    """One set of facts, and who searches it."""

    database: Database
    lists: PlainFactLists
    following: Following
    made: Facts
    dice: random.Random

    def query(self, how: str = "other form") -> tuple[int, str]:
        """Of a fact: its number, and a text that asks for it."""
        number = self.dice.randrange(len(self.made.ids))
        return number, asking(self.made.told[number].words, self.made.told[number].text, how, self.dice)

    def vector(self, number: int) -> bytes:
        """Near a fact's."""
        return near(self.made.vectors[number], self.dice.randrange(2**32))

    def scopes(self, number: int) -> list[str]:
        """Those that a search for a fact goes over."""
        keys = [one.key for one in self.made.scopes]
        others = self.dice.sample(keys, min(TOGETHER, len(keys)))
        return list(dict.fromkeys([keys[self.made.scope_of[number]], *others]))[:TOGETHER]

    async def search(self, keys: Sequence[str], vector: bytes, text: str) -> tuple[list[str], list[str]]:
        """Both lists."""
        (meant,), (said,) = await asyncio.gather(
            self.lists.semantic(keys, [vector], LIST, 0.0, WHEN_NOW),
            self.lists.textual(keys, [text], LIST, 0.0, WHEN_NOW),
        )
        return _ids(meant), _ids(said)


def asking(words: Sequence[str], text: str, how: str, dice: random.Random) -> str:
    """`as written`, `other form`, or `typo`: two letters of each longer word change places."""
    if how == "as written":
        stems = [next(one for one in text.split() if one[:4].lower() == word[:4].lower()) for word in words]
        return f"who {' '.join(stems)}"
    if how == "typo":
        return " ".join(_misspelt(word, dice) for word in words)
    return f"who was {' '.join(words)}s"


def _misspelt(word: str, dice: random.Random) -> str:
    at = dice.randrange(1, len(word) - 2)
    return word[:at] + word[at + 1] + word[at] + word[at + 2 :]


async def timed(times: int, one: Callable[[], Awaitable[Any]]) -> list[float]:
    """Milliseconds of each."""
    taken: list[float] = []
    for _ in range(times):
        start = time.perf_counter()
        await one()
        taken.append((time.perf_counter() - start) * 1e3)
    return taken


async def warm(bench: Bench, searches: int) -> tuple[list[float], int]:
    """Milliseconds of searches while nothing changes, and how often MongoDB was asked meanwhile."""
    asked = [(number, text) for number, text in (bench.query() for _ in range(searches))]
    ready = iter([(bench.scopes(number), bench.vector(number), text) for number, text in asked])
    if len(bench.made.scopes) > 1:
        for scope in bench.made.scopes:
            await bench.search([scope.key], bench.vector(0), "violin")
    else:
        await timed(5, lambda: bench.search([bench.made.scopes[0].key], bench.vector(0), "violin"))
    await bench.following.ready()
    before = bench.lists.queries
    taken = await timed(searches, lambda: bench.search(*next(ready)))
    return taken, bench.lists.queries - before


async def recall(bench: Bench, searches: int) -> float:
    """Of the 10 nearest of all searched scopes, the share that is found."""
    found = 0
    for _ in range(searches):
        number = bench.dice.randrange(len(bench.made.ids))
        keys, vector = bench.scopes(number), bench.vector(number)
        (meant,) = await bench.lists.semantic(keys, [vector], BEST, 0.0, WHEN_NOW)
        found += len(set(_ids(meant)) & set(_exact(bench.made, keys, vector)))
    return found / (searches * BEST)


def _exact(made: Facts, keys: Sequence[str], vector: bytes) -> list[str]:
    rows = [n for n, of in enumerate(made.scope_of) if made.scopes[of].key in keys]
    similar = made.vectors[rows] @ np.frombuffer(vector, "<f4")
    return [made.ids[rows[at]] for at in np.argsort(-similar)[:BEST]]


def brute_force(bench: Bench, searches: int) -> list[float]:
    """Milliseconds of numpy over all vectors: what is searched without a first pass or a text."""
    taken: list[float] = []
    vectors = np.ascontiguousarray(bench.made.vectors)
    for _ in range(searches):
        asked = np.frombuffer(bench.vector(0), "<f4")
        start = time.perf_counter()
        similar = vectors @ asked
        best = np.argpartition(similar, -LIST)[-LIST:]
        best[np.argsort(-similar[best])].tolist()
        taken.append((time.perf_counter() - start) * 1e3)
    return taken


async def by_text_index(bench: Bench, keys: Sequence[str], text: str, most: int = LIST) -> list[str]:
    """MongoDB's own text search over the scopes."""
    asked = {
        "agent_id": bench.made.scopes[0].agent_id,
        "$text": {"$search": text},
        "scope_key": {"$in": list(keys)},
        "active": True,
    }
    shown: dict[str, Any] = {"content": 1, "score": {"$meta": "textScore"}}
    found = bench.database["memory_facts"].find(asked, shown)
    return [row["_id"] async for row in found.sort([("score", {"$meta": "textScore"})]).limit(most)]


async def reciprocal_ranks(bench: Bench, searches: int, how: str) -> tuple[float, float]:
    """Mean of 1/rank within 10: ours, and MongoDB's text index'."""
    ours = theirs = 0.0
    for _ in range(searches):
        number, text = bench.query(how)
        keys, wanted = bench.scopes(number), bench.made.told[number].text
        same = {one for one, told in zip(bench.made.ids, bench.made.told, strict=True) if told.text == wanted}
        (said,) = await bench.lists.textual(keys, [text], BEST, 0.0, WHEN_NOW)
        ours += _reciprocal(_ids(said), same)
        theirs += _reciprocal(await by_text_index(bench, keys, text, BEST), same)
    return ours / searches, theirs / searches


def _reciprocal(found: Sequence[str], wanted: set[str]) -> float:
    return next((1 / rank for rank, one in enumerate(found, 1) if one in wanted), 0.0)


def _ids(found: Sequence[Ranked]) -> list[str]:
    return [one.fact.fact_id for one in found]


@asynccontextmanager
async def stand(settings: Settings, made: Facts) -> AsyncGenerator[Bench]:
    """A database with these facts, and a process that follows it."""
    assert settings.mongodb.uri is not None
    async with connect(settings.mongodb.uri.get_secret_value()) as client:
        database = client[f"{settings.mongodb.database}{uuid4().hex[:4]}"]
        mongodb = settings.mongodb.model_copy(update={"database": database.name})
        for kind in (Fact, Snapshot):
            await database[NAMES[kind.COLLECTION]].create_indexes(list(MEMORY_INDEXES[kind.COLLECTION]))
        await store(database, made)
        lists = PlainFactLists(database, NAMES, MODEL, most_bytes=4_000_000_000)
        following = Following(client, settings.model_copy(update={"mongodb": mongodb}), lists)
        await following.ready()
        try:
            yield Bench(database, lists, following, made, random.Random(7))
        finally:
            await following.close()
            await lists.close()
            await client.drop_database(database.name)


@dataclass
class Figures:
    """Of one set of facts."""

    facts: int
    scopes: int
    cold: float
    warm: list[float]
    queries: int
    changed: list[Change]
    recall: float
    brute: list[float]
    text: list[float]
    held: int
    ranks: dict[str, tuple[float, float]]


async def measure(
    settings: Settings, count: int, spread: int, dimensions: int, searches: int, changed: int
) -> Figures:
    """One line of the table."""
    scopes = [Scope.of_user("s.a", f"s.u{number}") for number in range(spread)]
    made = facts(count, scopes, dimensions, count + spread)
    async with stand(settings, made) as bench:
        start = time.perf_counter()
        await bench.search([scopes[0].key], bench.vector(0), "violin")
        cold = (time.perf_counter() - start) * 1e3
        taken, queries = await warm(bench, searches)
        found = await recall(bench, min(searches, 50))
        ranks = {how: await reciprocal_ranks(bench, min(searches, 60), how) for how in HOW}
        texts = [bench.query() for _ in range(min(searches, 50))]
        asked = iter([(bench.scopes(number), text) for number, text in texts])
        return Figures(
            facts=count,
            scopes=spread,
            cold=cold,
            warm=taken,
            queries=queries,
            recall=found,
            ranks=ranks,
            brute=brute_force(bench, min(searches, 50)),
            text=await timed(len(texts), lambda: by_text_index(bench, *next(asked))),
            held=bench.lists.cached_bytes,
            changed=await changes(bench.database, bench.lists, scopes[0], dimensions, changed),
        )


def show(report: Report, one: Figures) -> None:
    """Its rows and figures."""
    name = f"{one.facts:,} facts" + (f" over {one.scopes:,} scopes" if one.scopes > 1 else "")
    key = f"{one.facts}" + ("_spread" if one.scopes > 1 else "")
    warm, brute, text = percentile(one.warm, 0.95), median(one.brute), median(one.text)
    after, fresh = [each.search_ms for each in one.changed], [each.findable_ms for each in one.changed]
    written, told = [each.written_ms for each in one.changed], median([each.event_ms for each in one.changed])
    target = TARGETS.get(one.facts if one.scopes == 1 else one.facts // one.scopes * TOGETHER, TARGETS[1_000])
    report.rows += [
        Row(f"{name}: search, p50", median(one.warm), "ms", brute, "numpy over all of them, p50"),
        Row(f"{name}: search, p95", warm, "ms", target, "target"),
        Row(f"{name}: search, p95", warm, "ms", text, "MongoDB's $text alone, p50"),
        Row(f"{name}: search after a change, p95", percentile(after, 0.95), "ms", target, "target"),
        Row(f"{name}: committed → findable, p50", median(fresh), "ms", FRESH_TARGET, "target"),
        Row(f"{name}: committed → findable, p95", percentile(fresh, 0.95), "ms", FRESH_TARGET, "target"),
        Row(f"{name}: write begun → findable, p50", median(written), "ms", told, "bare change stream, p50"),
        Row(f"{name}: recall@10", one.recall, "", RECALL_TARGET, "target"),
        Row(f"{name}: asked of MongoDB while warm", one.queries, "queries"),
        Row(f"{name}: first search", one.cold, "ms"),
        Row(f"{name}: memory", one.held / 1e6, "MB"),
    ]
    for how, (ours, theirs) in one.ranks.items():
        report.rows.append(Row(f"{name}: words {how}, 1/rank", ours, "", theirs, "MongoDB's $text"))
        report.results[f"{key}_{how.replace(' ', '_')}_mrr"] = ours
        report.bounds[f"{key}_{how.replace(' ', '_')}_text_mrr"] = theirs
    report.results |= {
        f"{key}_p50_ms": median(one.warm),
        f"{key}_p95_ms": warm,
        f"{key}_changed_p95_ms": percentile(after, 0.95),
        f"{key}_findable_p50_ms": median(fresh),
        f"{key}_findable_p95_ms": percentile(fresh, 0.95),
        f"{key}_recall": one.recall,
        f"{key}_queries": one.queries,
        f"{key}_memory_mb": one.held / 1e6,
    }
    report.bounds |= {f"{key}_numpy_p50_ms": brute, f"{key}_text_p50_ms": text, f"{key}_told_p50_ms": told}
    report.ratios |= {
        f"{key}_findable_over_told": median(written) / told,
        f"{key}_over_numpy_p50": median(one.warm) / brute,
        f"{key}_over_text_p50": median(one.warm) / text,
    }


async def first(settings: Settings, report: Report, sizes: "Sizes") -> None:
    """First searches in the largest scope with each number of dimensions, and many scopes under a bound."""
    largest = max(sizes.counts)
    for dimensions in (sizes.dimensions, sizes.wide):
        made = facts(largest, [Scope.of_user("s.a", "s.u")], dimensions, largest)
        async with stand(settings, made) as bench:
            show_first(report, dimensions, await first_searches(bench.database, made, sizes.rounds))
            report.results[f"{largest}_{dimensions}_recall"] = found = await recall(bench, sizes.searches)
            report.rows.append(Row(f"{dimensions:,} numbers: recall@10", found, "", RECALL_TARGET, "target"))
    scopes = [Scope.of_user("s.a", f"s.u{number}") for number in range(MORE_SCOPES * sizes.spread)]
    made = facts(largest, scopes, sizes.dimensions, largest + 1)
    async with stand(settings, made) as bench:
        show_bounded(report, scopes, await bounded(bench.database, made, 2 * len(scopes), BOUND))


@dataclass(frozen=True)
class Sizes:
    """Of a run."""

    counts: Sequence[int]
    spread: int
    dimensions: int
    wide: int
    searches: int
    changed: int
    rounds: int


async def main(settings: Settings, sizes: Sizes, *, only_first: bool = False) -> Report:
    """All figures: each number of facts in one scope, the greatest also spread; then first searches."""
    report = Report("search", f"searching facts, {sizes.dimensions} dimensions, both lists of {LIST}")
    spread = ((count, 1) for count in sizes.counts), [(max(sizes.counts), sizes.spread)]
    for count, scopes in () if only_first else chain(*spread):
        show(
            report,
            await measure(settings, count, scopes, sizes.dimensions, sizes.searches, sizes.changed),
        )
    await first(settings, report, sizes)
    return report


def _settings(uri: str, database: str) -> Settings:
    return Settings(mongodb=MongoSettings(uri=SecretStr(uri), database=database))  # pyright: ignore[reportCallIssue]


def _given(uri: str | None, stack: ExitStack) -> str:
    if uri is not None:
        return uri
    server = LocalMongo(Path(stack.enter_context(tempfile.TemporaryDirectory())) / "mongodb")
    server.start()
    stack.callback(server.stop)
    return server.endpoint


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--facts", default="1000,10000,100000")
    parser.add_argument("--scopes", type=int, default=SPREAD)
    parser.add_argument("--searches", type=int, default=500)
    parser.add_argument("--changes", type=int, default=60)
    parser.add_argument("--dimensions", type=int, default=384)
    parser.add_argument("--wide", type=int, default=1_536)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--first", action="store_true")
    parser.add_argument("--mongodb", help="a server to use in place of a private one")
    given = parser.parse_args()
    with ExitStack() as servers:
        chosen = _settings(_given(given.mongodb, servers), f"bench{uuid4().hex[:8]}")
        run = Sizes(
            counts=[int(count) for count in given.facts.split(",")],
            spread=given.scopes,
            dimensions=given.dimensions,
            wide=given.wide,
            searches=given.searches,
            changed=given.changes,
            rounds=given.rounds,
        )
        figures = asyncio.run(main(chosen, run, only_first=given.first))
    figures.show()
