"""Reflections have no stored vectors: a provider is asked for them on behalf of the caller, and holds up no other."""

import asyncio
from collections.abc import Sequence
from typing import Any, cast

from eden_memory.models.question import Asking
from eden_memory.schemas.fields import pack_vector
from eden_memory.schemas.provenance import Embedding
from eden_memory.schemas.scopes import Scope
from eden_memory.search.search_engine import SearchEngine
from eden_memory.search.search_requests import SearchRequest
from eden_memory.search.unindexed_list_store import READING, ReflectionLists
from tests.names import NAMES
from tests.unit.search.candidate_facts import NOW

AGENT = Scope.of_agent("s.a")
ROW = {
    "_id": "r1",
    "scope_key": AGENT.key,
    "content": "Ana is calm near dogs.",
    "formed_at": NOW,
    "said_at": NOW,
    "version": 1,
}


class Reflections:
    """A database whose every collection holds one reflection."""

    def get_collection(self, *_: object, **__: object) -> "Reflections":
        return self

    find = get_collection

    async def to_list(self) -> list[dict[str, Any]]:
        return [ROW]


class SlowForStoredTexts:
    """Answers with the vectors of stored texts only once so many searches wait for them."""

    model, dimensions = "test", 2

    def __init__(self, waiting: int) -> None:
        self._waiting, self._come = waiting, asyncio.Event()
        self.on_behalf_of: list[Asking | None] = []

    async def embed(self, texts: Sequence[str], asking: Asking | None = None) -> Sequence[Embedding]:
        if ROW["content"] in texts:
            self.on_behalf_of.append(asking)
            if len(self.on_behalf_of) == self._waiting:
                self._come.set()
            await self._come.wait()
        return [Embedding(model=self.model, vector=pack_vector((1.0, 0.0))) for _ in texts]


async def test_searches_wait_for_the_provider_beside_each_other_each_on_behalf_of_its_caller() -> None:
    embedder = SlowForStoredTexts(READING + 1)
    lists = ReflectionLists(cast("Any", Reflections()), NAMES, embedder)
    engine = SearchEngine(lists, embedder, reflections=lists)
    callers = [Asking("search", "facts", "", "s.a", "", user_id=f"s.{n}") for n in range(READING + 1)]
    request = SearchRequest(("dogs",), search_type="semantic", asked_at=NOW, kinds=("reflections",))
    async with asyncio.timeout(20):
        reports = await asyncio.gather(*(engine.find([AGENT], request, caller) for caller in callers))
    assert [[found.content for found in report.facts] for report in reports] == [[ROW["content"]]] * len(
        callers
    )
    assert sorted(map(str, embedder.on_behalf_of)) == sorted(map(str, callers))
