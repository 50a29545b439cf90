"""Rank facts by Atlas' search indexes (also Atlas Local, and self-hosted servers that have the search stages).

The scopes stand inside the search stage, never behind it. Queries and scope keys are values wherever MongoDB would
read an operator: no input can change the query.
"""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from itertools import zip_longest
from typing import Any, cast

from pymongo.asynchronous.collection import AsyncCollection
from pymongo.asynchronous.database import AsyncDatabase
from pymongo.errors import OperationFailure
from pymongo.operations import SearchIndexModel

from eden_memory.errors import EdenError
from eden_memory.models.question import Asking, Embedder
from eden_memory.mongo.documents import vector_of
from eden_memory.names import Names
from eden_memory.schemas.documents import Fact
from eden_memory.search.fact_candidates import SHOWN, Ranked, When, candidate, checked
from eden_memory.search.text_index import AskedWord, asked_words
from eden_memory.search.unindexed_list_store import PointInTimeLists

Row = dict[str, Any]

VECTOR_INDEX, TEXT_INDEX = "facts_vector", "facts_text"

FOLDED: Row = {"name": "folded", "tokenizer": {"type": "standard"}, "tokenFilters": [{"type": "icuFolding"}]}

WAYS = {"english": "lucene.english", "folded": "folded", "cjk": "lucene.cjk", "thai": "lucene.thai"}
"""The same words by their English stems, without accents, as pairs of characters, and as Thai words; by analyzer."""

FILTERS = ("agent_id", "user_id", "group_id", "scope", "scope_key")

NOT_THERE = {59, 115, 31_082, 40_324, 6_047_401}
"""CommandNotFound, CommandNotSupported, SearchNotEnabled, unknown stage, "only allowed on Atlas"."""


def definitions(dimensions: int) -> dict[str, tuple[str, Row]]:
    """Name → (type, definition): vectors by cosine and words, both with the scope's filters inside."""
    filters = [{"type": "filter", "path": path} for path in (*FILTERS, "active", "embedding_model")]
    vector = {"type": "vector", "path": "embedding", "numDimensions": dimensions, "similarity": "cosine"}
    ways: Row = {way: {"type": "string", "analyzer": analyzer} for way, analyzer in WAYS.items()}
    words: Row = {"content": {"type": "string", "multi": ways}, "active": {"type": "boolean"}}
    words |= {path: {"type": "token"} for path in FILTERS}
    return {
        VECTOR_INDEX: ("vectorSearch", {"fields": [vector, *filters]}),
        TEXT_INDEX: ("search", {"mappings": {"dynamic": False, "fields": words}, "analyzers": [FOLDED]}),
    }


async def found(facts: AsyncCollection[Row]) -> Sequence[Mapping[str, Any]] | None:
    """Return the search indexes that exist; None if the server has no search."""
    try:
        return await (await facts.list_search_indexes()).to_list()
    except OperationFailure as error:
        if error.code in NOT_THERE:
            return None
        raise


def dimensions_of(there: Sequence[Mapping[str, Any]]) -> int | None:
    """Return the dimensions of the existing vector index; None without one."""
    fields = [
        field
        for mapping in there
        if mapping["name"] == VECTOR_INDEX
        for field in mapping.get("latestDefinition", {}).get("fields", ())
    ]
    return next((int(path["numDimensions"]) for path in fields if "numDimensions" in path), None)


async def make(facts: AsyncCollection[Row], dimensions: int) -> list[str] | None:
    """Create what is missing, and update what differs; return the names, None if there is no search."""
    there = await found(facts)
    if there is None:
        return None
    known = {str(mapping["name"]): mapping for mapping in there}
    made: list[str] = []
    for name, (kind, definition) in definitions(dimensions).items():
        if name not in known:
            await facts.create_search_index(SearchIndexModel(definition, name=name, type=kind))
        elif not same(definition, known[name].get("latestDefinition", {})):
            await facts.update_search_index(name, definition)
        else:
            continue
        made.append(name)
    return made


async def problems(facts: AsyncCollection[Row], dimensions: int) -> list[str]:
    """Return a line for each search index that is missing, differs or does not answer yet."""
    there = await found(facts)
    known = {str(mapping["name"]): mapping for mapping in there or ()}
    wanted = definitions(dimensions) if there is not None else {}
    states = {name: _state(known.get(name), definition) for name, (_, definition) in wanted.items()}
    return [f"search index {facts.name}.{name} {state}" for name, state in states.items() if state]


def _state(there: Mapping[str, Any] | None, definition: Row) -> str | None:
    """Return what is wrong with a search index; None if nothing is."""
    if there is None:
        return "is missing"
    if not same(definition, there.get("latestDefinition", {})):
        return "has another definition"
    return None if there.get("queryable") else f"does not answer yet ({there.get('status', 'PENDING')})"


async def wait_until_queryable(facts: AsyncCollection[Row], seconds: float, pause: float = 1.0) -> None:
    """Wait until both indexes answer; an EdenError if one failed or it takes too long."""
    end = time.monotonic() + seconds
    while True:
        states = {str(mapping["name"]): mapping for mapping in await found(facts) or ()}
        waiting = [name for name in (VECTOR_INDEX, TEXT_INDEX) if not states.get(name, {}).get("queryable")]
        failed = [name for name in waiting if states.get(name, {}).get("status") == "FAILED"]
        if failed:
            raise EdenError(
                f"the search index {failed[0]} failed", "The cluster's page in Atlas says why; drop it there."
            )
        if not waiting:
            return
        if time.monotonic() > end:
            raise EdenError(
                f"the search indexes {', '.join(waiting)} are not ready after {seconds:.0f} s",
                "They go on being built: run `eden setup` again later.",
            )
        await asyncio.sleep(pause)


def same(wanted: Any, there: Any) -> bool:
    """Whether a definition holds all that is wanted; the server adds defaults of its own."""
    if isinstance(wanted, dict) and isinstance(there, dict):
        found = cast(Row, there)
        return all(same(value, found.get(name)) for name, value in cast(Row, wanted).items())
    if isinstance(wanted, list) and isinstance(there, list):
        pairs = zip_longest(cast("list[Any]", wanted), cast("list[Any]", there))
        return all(same(left, right) for left, right in pairs)
    return bool(wanted == there)


async def has_search(database: AsyncDatabase[Row], names: Names) -> bool:
    """Return whether both search indexes answer."""
    indexes = await found(database[names[Fact.COLLECTION]]) or ()
    answering = {str(index["name"]) for index in indexes if index.get("queryable")}
    return {VECTOR_INDEX, TEXT_INDEX} <= answering


Asked = Callable[[int], list[Row]]
"""The aggregation that finds so many facts."""

LONGEST = 2_000
"""Most characters of a query."""

PER_RESULT, MOST_CANDIDATES = 20, 10_000

"""Candidates per result for which the graph is searched, and the server's limit."""

LEAST_CANDIDATES = 200

EXACT_BOOST = 3.0
"""Weight of an exact word over one that only resembles it."""


class AtlasFactLists:
    """FactLists over `facts` with its two search indexes (eden_memory.search.atlas_list_store).

    The indexes follow the collection by seconds at most; what they still hold of a fact that is retired or gone is
    left out by what its document says. Facts as they were known then are compared in this process.
    """

    def __init__(
        self,
        database: AsyncDatabase[Row],
        names: Names,
        model: str,
        *,
        embedder: Embedder | None = None,
    ) -> None:
        self._facts = database[names["facts"]]
        self._model = model
        self._then = PointInTimeLists(database, names, model, embedder)

    async def semantic(
        self,
        scope_keys: Sequence[str],
        vectors: Sequence[bytes],
        most: int,
        least: float,
        when: When,
        asking: Asking | None = None,
    ) -> Sequence[Sequence[Ranked]]:
        """For each vector the nearest facts; scores (1 + cosine) / 2."""
        keys = checked(scope_keys)
        if not keys or not vectors or most < 1:
            return [[] for _ in vectors]
        if not when.is_warm:
            return await self._then.semantic(keys, vectors, most, least, when, asking)

        def near(vector: bytes) -> Asked:
            return lambda limit: nearest(keys, vector, self._model, limit, least)

        return await asyncio.gather(*(self._ranked(near(vector), keys, most, when) for vector in vectors))

    async def textual(
        self, scope_keys: Sequence[str], queries: Sequence[str], most: int, least: float, when: When
    ) -> Sequence[Sequence[Ranked]]:
        """For each query facts by Lucene's BM25, counted over the whole index; words as written count most."""
        keys = checked(scope_keys)
        words = [asked_words(query) for query in queries]
        if not keys or not any(words) or most < 1:
            return [[] for _ in queries]
        if not when.is_warm:
            return await self._then.textual(keys, words, most, least, when)

        async def found_by(query: str, asked: Sequence[AskedWord]) -> list[Ranked]:
            if not asked:
                return []
            return await self._ranked(
                lambda limit: by_words(keys, query[:LONGEST], limit, least), keys, most, when
            )

        return await asyncio.gather(*(found_by(*asked) for asked in zip(queries, words, strict=True)))

    async def _ranked(self, asked: Asked, keys: Sequence[str], most: int, when: When) -> list[Ranked]:
        """Read what the index finds; more of it if hidden facts take places."""
        limit = most
        while True:
            rows = await (await self._facts.aggregate(asked(limit))).to_list()
            shown = [row for row in rows if row["active"] and row["scope_key"] in keys]
            found = [Ranked(candidate(self._comparable(row)), float(row["score"])) for row in shown]
            left = [ranked for ranked in found if not ranked.fact.is_hidden(when)]
            if len(left) == len(found) or len(left) >= most or not len(rows) == limit < MOST_CANDIDATES:
                return left[:most]
            limit = min(4 * limit, MOST_CANDIDATES)

    def _comparable(self, row: Row) -> Row:
        return row if row.get("embedding_model") == self._model else {**row, "embedding": None}


def nearest(scope_keys: Sequence[str], vector: bytes, model: str, most: int, least: float) -> list[Row]:
    """Facts near a packed vector; `vectorSearchScore` is (1 + cosine) / 2."""
    return [
        {
            "$vectorSearch": {
                "index": VECTOR_INDEX,
                "path": "embedding",
                "queryVector": vector_of(vector),
                "numCandidates": min(max(PER_RESULT * most, LEAST_CANDIDATES), MOST_CANDIDATES),
                "limit": most,
                "filter": {
                    "$and": [
                        {"scope_key": {"$in": list(scope_keys)}},
                        {"active": {"$eq": True}},
                        {"embedding_model": {"$eq": model}},
                    ]
                },
            }
        },
        *_shown("vectorSearchScore", least),
    ]


def by_words(scope_keys: Sequence[str], query: str, most: int, least: float) -> list[Row]:
    """Facts by words: as written, in each of `WAYS`, or with a typo; `searchScore` is Lucene's BM25."""
    path = ["content", *({"value": "content", "multi": way} for way in WAYS)]
    exact: Row = {"query": query, "path": path, "score": {"boost": {"value": EXACT_BOOST}}}
    fuzzy: Row = {"query": query, "path": "content", "fuzzy": {"maxEdits": 1, "prefixLength": 1}}
    return [
        {
            "$search": {
                "index": TEXT_INDEX,
                "compound": {
                    "should": [{"text": exact}, {"text": fuzzy}],
                    "minimumShouldMatch": 1,
                    "filter": [
                        {"in": {"path": "scope_key", "value": list(scope_keys)}},
                        {"equals": {"path": "active", "value": True}},
                    ],
                },
            }
        },
        {"$limit": most},
        *_shown("searchScore", least),
    ]


def _shown(score: str, least: float) -> list[Row]:
    fields = dict.fromkeys((*SHOWN, "active", "embedding", "embedding_model"), 1)
    return [
        {"$project": {**fields, "score": {"$meta": score}}},
        {"$match": {"score": {"$gte": least}}},
    ]
