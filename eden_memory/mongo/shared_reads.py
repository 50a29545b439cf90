"""Look-ups of many tasks in one query: keys that are asked for while a query is on its way go with the next."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Generic, TypeVar

from pymongo.asynchronous.collection import AsyncCollection

K = TypeVar("K")
V = TypeVar("V")
MOST = 1_000


class _Round(Generic[K, V]):
    """Keys that are looked up together, and the values found."""

    def __init__(self) -> None:
        self.keys: dict[K, None] = {}
        self.found: asyncio.Future[Mapping[K, V]] = asyncio.get_running_loop().create_future()
        self.found.add_done_callback(_heard)


class SharedReads(Generic[K, V]):
    """`read` finds those of some keys (at most 1,000) that exist; it always begins after the keys were asked for."""

    def __init__(self, read: Callable[[list[K]], Awaitable[Mapping[K, V]]]) -> None:
        self._read = read
        self._next: _Round[K, V] | None = None
        self._reading: asyncio.Task[None] | None = None

    async def get(self, keys: Iterable[K]) -> dict[K, V]:
        """Return the values found of these keys; errors of the read are raised."""
        asked = dict.fromkeys(keys)
        if not asked:
            return {}
        if self._next is None:
            self._next = _Round()
        together = self._next
        together.keys.update(asked)
        if self._reading is None or self._reading.done():
            self._reading = asyncio.create_task(self._work())
        found = await asyncio.shield(together.found)  # the error concerns the other waiting tasks, too
        return {key: found[key] for key in asked if key in found}

    async def _work(self) -> None:
        while (together := self._next) is not None:
            self._next = None
            try:
                together.found.set_result(await self._all(list(together.keys)))
            except Exception as error:  # noqa: BLE001 - handed to all who asked
                together.found.set_exception(error)

    async def _all(self, keys: list[K]) -> Mapping[K, V]:
        found: dict[K, V] = {}
        for start in range(0, len(keys), MOST):
            found.update(await self._read(keys[start : start + MOST]))
        return found


def shared_writes(outcomes: AsyncCollection[dict[str, Any]]) -> SharedReads[str, bool]:
    """Return which of some `writes` have stored outcomes."""

    async def read(writes: list[str]) -> dict[str, bool]:
        rows = await outcomes.find({"writes": {"$in": writes}}, {"writes": 1}).to_list()
        return {name: True for row in rows for name in row["writes"]}

    return SharedReads(read)


def _heard(future: "asyncio.Future[Any]") -> None:
    """Mark an error as seen: there may be no task left that waits for it."""
    if not future.cancelled():
        future.exception()
