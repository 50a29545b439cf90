"""Cached scopes whose queries fail: what is logged of them holds no id, and a slow text index stops no search."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any, cast

import pytest
from pymongo.errors import ExecutionTimeout, OperationFailure

from eden_memory.search import cached_scope_store
from eden_memory.search.cached_scope import CachedScope
from eden_memory.search.cached_scope_store import CachedScopes
from tests.names import NAMES

KEY = "user:s.a:s.ada"


class Cursor:
    """Has no rows; of a query that may take any time, a test would wait for ever."""

    def __init__(self) -> None:
        self._is_limited = False

    def sort(self, *_: object) -> "Cursor":
        return self

    def limit(self, _: int) -> "Cursor":
        return self

    def max_time_ms(self, _: int) -> "Cursor":
        self._is_limited = True
        return self

    async def to_list(self) -> list[dict[str, Any]]:
        assert self._is_limited
        raise ExecutionTimeout("operation exceeded time limit", 50)

    async def __aiter__(self) -> AsyncIterator[dict[str, Any]]:
        for row in list[dict[str, Any]]():
            yield row


class Collection:
    """Any collection of a server that comes to fail."""

    fails = False

    def get_collection(self, *_: object, **__: object) -> "Collection":
        return self

    __getitem__ = get_collection

    def find(self, *_: object, **__: object) -> Cursor:
        if self.fails:
            raise OperationFailure("not primary", 10107)
        return Cursor()


def cached_scopes(collection: Collection) -> CachedScopes:
    return CachedScopes(
        cast("Any", collection), NAMES, "test", 1_000_000, lambda _bytes, _scopes, _evicted: None
    )


async def test_a_slow_text_index_finds_nothing_within_its_time() -> None:
    assert await cached_scopes(Collection()).by_text(CachedScope(KEY), ["the", "house"], 5) == []


class Lines(asyncio.Queue[str]):
    """A log."""

    def warning(self, event: str, **fields: object) -> None:
        self.put_nowait(f"{event} {fields}")


async def test_the_log_names_no_user(monkeypatch: pytest.MonkeyPatch) -> None:
    lines, collection = Lines(), Collection()
    monkeypatch.setattr(cached_scope_store, "log", lines)
    scopes = cached_scopes(collection)
    scopes.live(True)
    async with scopes.current([KEY]):
        pass
    collection.fails = True
    scopes.changed(KEY)
    async with asyncio.timeout(20):
        line = await lines.get()
    assert "could not be read" in line
    assert "'scope': 'user:" in line
    assert "ada" not in line
