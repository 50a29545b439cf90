"""Look-ups of many tasks in one query: while one is on its way, what is asked for meanwhile goes with the next."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")
MOST = 1_000


class SharedReads(Generic[K, V]):
    """`read` finds those of some keys that exist; it always begins after the keys were asked for."""

    def __init__(self, read: Callable[[list[K]], Awaitable[Mapping[K, V]]]) -> None:
        self._read = read
        self._waiting: dict[K, asyncio.Future[V | None]] = {}
        self._reading: asyncio.Task[None] | None = None

    async def get(self, keys: Iterable[K]) -> dict[K, V]:
        """What is found of these keys; what the read raises is raised."""
        asked = {key: self._ask(key) for key in keys}
        if not asked:
            return {}
        if self._reading is None or self._reading.done():
            self._reading = asyncio.create_task(self._work())
        await asyncio.wait(asked.values())
        found = {key: future.result() for key, future in asked.items()}
        return {key: value for key, value in found.items() if value is not None}

    def _ask(self, key: K) -> "asyncio.Future[V | None]":
        future = self._waiting.get(key)
        if future is None:
            future = self._waiting[key] = asyncio.get_running_loop().create_future()
            future.add_done_callback(_heard)
        return future

    async def _work(self) -> None:
        while self._waiting:
            keys = list(self._waiting)[:MOST]
            asked = {key: self._waiting.pop(key) for key in keys}
            try:
                found = await self._read(keys)
            except Exception as error:  # noqa: BLE001 - handed to all who asked
                for future in asked.values():
                    future.set_exception(error)
            else:
                for key, future in asked.items():
                    future.set_result(found.get(key))


def _heard(future: "asyncio.Future[object]") -> None:
    """Nobody may be left who waits: an error is not to be reported then."""
    if not future.cancelled():
        future.exception()
