"""The faults of the stages' run, drawn from a seed: workers, both servers, and compaction that cannot wait."""

import asyncio
import random
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from eden_memory.local.server import ServerInFolder
from tests.chaos.compaction import HURRY, configure
from tests.chaos.servers import Servers
from tests.chaos.stages_workers import Workers
from tests.chaos.tailers import TailerProcess
from tests.chaos.waiting import until

WEIGHTS = {
    "worker kill -9": 16,
    "worker frozen": 10,
    "worker restart": 7,
    "worker joins": 5,
    "worker leaves": 5,
    "two workers kill -9": 2,
    "mongod kill -9": 1.5,
    "mongod restart": 0.8,
    "mongod frozen": 1,
    "kafka kill -9": 1.2,
    "kafka restart": 0.6,
    "kafka frozen": 1,
    "compaction forced": 2,
}
RESTARTS = ("mongod kill -9", "mongod restart", "kafka kill -9", "kafka restart")
FEWEST, MOST = 2, 5
CALM = {
    "min.cleanable.dirty.ratio": "0.5",
    "segment.ms": "43200000",
    "max.compaction.lag.ms": "86400000",
    "min.compaction.lag.ms": "0",
}


def plan(seed: int, count: int, weights: Mapping[str, float] = WEIGHTS) -> list[str]:
    """`count` faults by name: each kind once as far as there is room, the others by weight, shuffled."""
    chance = random.Random(f"{seed}/plan")
    kinds = chance.sample([*weights], len(weights))[:count]
    drawn = chance.choices([*weights], [*weights.values()], k=count - len(kinds))
    return chance.sample([*kinds, *drawn], count)


class Faults:
    """Strikes; `flows` waits until something put in from now on has come out."""

    def __init__(
        self,
        seed: int,
        servers: Servers,
        workers: Workers,
        topics: Sequence[str],
        flows: Callable[[], Awaitable[None]],
        session_seconds: float,
        most: int = MOST,
    ) -> None:
        self._chance = random.Random(f"{seed}/faults")
        self._servers, self._workers, self._topics, self._flows = servers, workers, topics, flows
        self._session_seconds, self._most = session_seconds, most
        self._going_on: set[asyncio.Task[None]] = set()
        self.counts: Counter[str] = Counter()

    async def strike(self, name: str) -> None:
        """One fault, and the pause after it."""
        what, _, how = name.partition(" ")
        if what in ("worker", "two"):
            await self._worker(how)
        elif what == "compaction":
            self._in_background(self._compact())
        else:
            await asyncio.to_thread(self._server, what, how)
        await self._struck(name)

    async def _struck(self, name: str) -> None:
        self.counts[name] += 1
        await asyncio.sleep(self._chance.uniform(0.1, 0.6))
        if self._chance.random() < 0.12:
            await self._flows()

    async def calm(self) -> None:
        """Everything runs again."""
        await asyncio.gather(*self._going_on)
        await asyncio.to_thread(self._servers.revive)

    async def _worker(self, how: str) -> None:
        await until(lambda: len(self._workers.running) > 1, "two workers run")
        one, other = self._chance.sample(self._workers.running, 2)
        match how:
            case "kill -9":
                await self._workers.kill(one)
            case "workers kill -9":
                await asyncio.gather(self._workers.kill(one), self._workers.kill(other))
            case "frozen":
                seconds = self._session_seconds * self._chance.uniform(1.2, 2.2)
                self._in_background(self._workers.freeze(one, seconds))
            case "joins" if self._workers.size < self._most:
                await self._workers.join()
            case "leaves" if self._workers.size > FEWEST:
                self._leave(one, self._workers.depart)
            case _:
                self._leave(one, self._workers.restart)

    def _leave(self, one: TailerProcess, how: Callable[[TailerProcess], Any]) -> None:
        one.frozen = True  # no further fault for it: it is on its way out
        self._in_background(how(one))

    def _in_background(self, work: Any) -> None:
        task = asyncio.create_task(work)
        self._going_on.add(task)
        task.add_done_callback(self._going_on.discard)

    async def _compact(self) -> None:
        await asyncio.to_thread(configure, self._servers.kafka.endpoint, self._topics, HURRY)
        await asyncio.sleep(self._chance.uniform(3.0, 6.0))
        await asyncio.to_thread(configure, self._servers.kafka.endpoint, self._topics, CALM)

    def _server(self, what: str, how: str) -> None:
        server: ServerInFolder = self._servers.kafka if what == "kafka" else self._servers.primary()
        if how == "restart":
            server.restart()
        elif how == "frozen":
            server.freeze()
            time.sleep(self._session_seconds * self._chance.uniform(0.3, 1.5))
            server.thaw()
        else:
            server.kill()
            time.sleep(self._chance.uniform(0.0, 1.0))
            server.start()
