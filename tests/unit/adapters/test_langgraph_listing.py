"""LangGraph's store asks for no more facts than a search without a query needs."""

from types import SimpleNamespace
from typing import Any

import pytest
from langgraph.store.base import SearchOp

from eden_memory.adapters.langgraph import MOST_LISTED, EdenStore


@pytest.mark.parametrize(
    ("wanted", "asked_for"), [(None, 7), ({"text": "Pixel barks."}, MOST_LISTED)], ids=["all", "filtered"]
)
async def test_a_listing_reads_as_many_facts_as_it_returns(wanted: Any, asked_for: int) -> None:
    limits: list[int] = []

    async def list_facts(*, limit: int, **_: Any) -> Any:
        limits.append(limit)
        return SimpleNamespace(items=(), cursor=None)

    store = EdenStore(SimpleNamespace(list_facts=list_facts))  # pyright: ignore[reportArgumentType]
    assert await store.abatch([SearchOp(("agent",), filter=wanted, limit=5, offset=2)]) == [[]]
    assert limits == [asked_for]
