"""Searching facts by meaning over the scopes that are visible: exact cosine, best first."""

import asyncio
from collections.abc import Sequence

from eden_memory.api.search.requests import FoundFact, SearchReport, SearchRequest
from eden_memory.domain.asking import Asking
from eden_memory.domain.facts.known_facts import Near
from eden_memory.ports import Embedder, FactSearch
from schemas.scopes import Scope

LEAST = 0.65
"""(1 + cosine) / 2."""


class FactFinder:
    """`least`: similarity from which a fact counts as found."""

    def __init__(self, search: FactSearch, embedder: Embedder, least: float = LEAST) -> None:
        self._search, self._embedder, self._least = search, embedder, least

    async def find(
        self, scopes: Sequence[Scope], request: SearchRequest, asking: Asking | None = None
    ) -> SearchReport:
        """The facts of these scopes nearest to any of the queries (at most three), best first."""
        if not request.texts or not scopes or request.top_k < 1:
            return SearchReport(())
        vectors = [one.vector for one in await self._embedder.embed(request.texts, asking)]
        found = await asyncio.gather(*(self._of(scope, vectors, request.top_k) for scope in scopes))
        best = sorted((one for some in found for one in some), key=lambda one: (-one.score, one.fact_id))
        return SearchReport(tuple(best[: request.top_k]))

    async def _of(self, scope: Scope, vectors: Sequence[bytes], most: int) -> list[FoundFact]:
        """Each fact of one scope once, by the query that it is nearest to."""
        best: dict[str, Near] = {}
        for near in await self._search.nearest(scope.key, vectors, most, self._least):
            for one in near:
                known = best.get(one.fact.fact_id)
                if known is None or one.similarity > known.similarity:
                    best[one.fact.fact_id] = one
        return [_found(scope, one) for one in best.values() if one.fact.scope_key == scope.key]


def _found(scope: Scope, near: Near) -> FoundFact:
    fact = near.fact
    return FoundFact(
        fact.fact_id,
        fact.text,
        scope,
        near.similarity,
        fact.formed_at,
        fact.version,
        fact.valid_from,
        scores={"semantic": near.similarity},
    )
