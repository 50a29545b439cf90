"""Facts to rank by Atlas' search indexes (also Atlas Local, and servers of one's own that have the search stages)."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from pymongo.asynchronous.database import AsyncDatabase

from eden_memory.models.model_protocols import Embedder
from eden_memory.models.reranking.candidates import Ranked, When
from eden_memory.names import Names
from eden_memory.search import atlas_pipelines
from eden_memory.search.as_of_store import KnownThen
from eden_memory.search.atlas_pipelines import MOST_CANDIDATES
from eden_memory.search.search_documents import candidate, checked
from eden_memory.search.text_index import AskedWord, asked_words

Row = dict[str, Any]
Asked = Callable[[int], list[Row]]
"""The aggregation that finds so many facts."""
LONGEST = 2_000
"""Characters of a query."""


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
        self._then = KnownThen(database, names, model, embedder)

    async def semantic(
        self, scope_keys: Sequence[str], vectors: Sequence[bytes], most: int, least: float, when: When
    ) -> Sequence[Sequence[Ranked]]:
        """For each vector the nearest facts; scores (1 + cosine) / 2."""
        keys = checked(scope_keys)
        if not keys or not vectors or most < 1:
            return [[] for _ in vectors]
        if not when.is_now:
            return await self._then.semantic(keys, vectors, most, least, when)

        def near(vector: bytes) -> Asked:
            return lambda limit: atlas_pipelines.nearest(keys, vector, self._model, limit, least)

        return await asyncio.gather(*(self._ranked(near(one), keys, most, when) for one in vectors))

    async def textual(
        self, scope_keys: Sequence[str], queries: Sequence[str], most: int, least: float, when: When
    ) -> Sequence[Sequence[Ranked]]:
        """For each query facts by Lucene's BM25, counted over the whole index; words as written count most."""
        keys = checked(scope_keys)
        words = [asked_words(query) for query in queries]
        if not keys or not any(words) or most < 1:
            return [[] for _ in queries]
        if not when.is_now:
            return await self._then.textual(keys, words, most, least, when)

        async def found(query: str, asked: Sequence[AskedWord]) -> list[Ranked]:
            if not asked:
                return []
            return await self._ranked(
                lambda limit: atlas_pipelines.by_words(keys, query[:LONGEST], limit, least), keys, most, when
            )

        return await asyncio.gather(*(found(*one) for one in zip(queries, words, strict=True)))

    async def close(self) -> None:
        """Nothing of its own."""

    async def _ranked(self, asked: Asked, keys: Sequence[str], most: int, when: When) -> list[Ranked]:
        """As the index finds them; where hidden facts take places, more of it is read."""
        limit = most
        while True:
            rows = await (await self._facts.aggregate(asked(limit))).to_list()
            shown = [row for row in rows if row["active"] and row["scope_key"] in keys]
            found = [Ranked(candidate(self._comparable(row)), float(row["score"])) for row in shown]
            left = [ranked for ranked in found if not ranked.fact.hidden_from(when.private)]
            if len(left) == len(found) or len(left) >= most or not len(rows) == limit < MOST_CANDIDATES:
                return left[:most]
            limit = min(4 * limit, MOST_CANDIDATES)

    def _comparable(self, row: Row) -> Row:
        return row if row.get("embedding_model") == self._model else {**row, "embedding": None}
