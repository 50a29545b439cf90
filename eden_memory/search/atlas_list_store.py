"""Ranks facts by Atlas' search indexes (also Atlas Local, and self-hosted servers that have the search stages).

The scopes stand inside the search stage, never behind it. Queries and scope keys are values wherever MongoDB would
read an operator: no input can change the query.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from pymongo.asynchronous.database import AsyncDatabase

from eden_memory.models.question import Asking, Embedder
from eden_memory.mongo.documents import vector_of
from eden_memory.names import Names
from eden_memory.search.as_of_store import PointInTimeLists
from eden_memory.search.fact_candidates import Ranked, When
from eden_memory.search.search_documents import SHOWN, candidate, checked
from eden_memory.search.search_index_store import TEXT_INDEX, VECTOR_INDEX, WAYS
from eden_memory.search.text_index import AskedWord, asked_words

Row = dict[str, Any]
Asked = Callable[[int], list[Row]]
"""The aggregation that finds so many facts."""
LONGEST = 2_000
"""Characters of a query."""
PER_RESULT, MOST_CANDIDATES = 20, 10_000
"""Candidates that the graph is searched for, per result; the server's greatest number."""
LEAST_CANDIDATES = 200
EXACT_BOOST = 3.0
"""Weight of a word as written over one that only resembles it."""


class AtlasFactLists:
    """FactLists over `facts` with its two search indexes (eden_memory.search.search_index_store).

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
        """As the index finds them; where hidden facts take places, more of it is read."""
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
