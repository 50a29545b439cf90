"""The faults, drawn from a seed: what is struck, how often, and what is waited for after each."""

import asyncio
import random
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from eden_memory.local.server import ServerInFolder
from tests.chaos.servers import Servers
from tests.chaos.tailers import TailerProcess, Tailers
from tests.chaos.waiting import until
from tests.replica_set import LocalReplicaSet

WEIGHTS = {
    "leader kill -9": 6,
    "stand-by kill -9": 2,
    "leader frozen": 4,
    "tailer restart": 4,
    "mongod kill -9": 2,
    "mongod restart": 1,
    "mongod frozen": 2,
    "kafka kill -9": 2,
    "kafka restart": 1,
    "kafka frozen": 2,
}
TAKEOVER = "leader kill -9"
OF_A_SET = {"step-down": 3, "primary kill -9": 2}


def plan(seed: int, count: int, *, replica_set: bool) -> list[str]:
    """`count` faults by name: each kind once as far as there is room, the others by weight, shuffled."""
    chance = random.Random(f"{seed}/plan")
    weights = {**WEIGHTS, **(OF_A_SET if replica_set else {})}
    kinds = chance.sample([*weights], len(weights))[:count]
    drawn = chance.choices([*weights], [*weights.values()], k=count - len(kinds))
    return chance.sample([*kinds, *drawn], count)


@dataclass(frozen=True)
class Struck:
    """One fault: when it was done and when the next one began (monotonic seconds)."""

    name: str
    done: float
    until: float


class Faults:
    """Strikes; `flows` waits for a message written from now on to arrive."""

    def __init__(
        self,
        seed: int,
        servers: Servers,
        tailers: Tailers,
        flows: Callable[[], Awaitable[None]],
        lease_seconds: float,
    ) -> None:
        self._chance = random.Random(f"{seed}/faults")
        self._servers, self._tailers, self._flows = servers, tailers, flows
        self._lease_seconds = lease_seconds
        self._thawing: set[asyncio.Task[None]] = set()
        self.struck: list[Struck] = []

    @property
    def counts(self) -> Counter[str]:
        """How many of each kind."""
        return Counter(one.name for one in self.struck)

    async def strike(self, name: str) -> None:
        """One fault, and the pause after it."""
        what, _, how = name.partition(" ")
        if what in ("leader", "stand-by", "tailer"):
            await self._tailer(what, how)
        elif name == "step-down":
            assert isinstance(self._servers.mongo, LocalReplicaSet)
            await asyncio.to_thread(self._servers.mongo.step_down)
        else:
            await asyncio.to_thread(self._server, what, how)
        done = time.monotonic()
        await asyncio.sleep(self._chance.uniform(0.3, 1.5))
        if self._chance.random() < (0.8 if name == TAKEOVER else 0.4):
            await self._flows()
        self.struck.append(Struck(name, done, time.monotonic()))

    async def calm(self) -> None:
        """Everything runs again."""
        await asyncio.gather(*self._thawing)
        await asyncio.to_thread(self._servers.revive)

    async def _tailer(self, what: str, how: str) -> None:
        leader = await self._leader()
        others = [one for one in self._tailers.running if one is not leader]
        if what == "stand-by" and others:
            await self._tailers.kill(self._chance.choice(others))
        elif how == "kill -9":
            await until(lambda: self._tailers.stands_by, "another tailer stands by")
            await self._tailers.kill(await self._leader())
        elif how == "frozen":
            thawing = self._tailers.freeze(leader, self._lease_seconds * self._chance.uniform(1.2, 2.0))
            task = asyncio.create_task(thawing)
            self._thawing.add(task)
            task.add_done_callback(self._thawing.discard)
        else:
            await self._tailers.restart(self._chance.choice([leader, leader, *others]))

    async def _leader(self) -> TailerProcess:
        """The leader; soon after another fault there may be none for a while."""
        found: list[TailerProcess] = []

        def leads() -> bool:
            found.extend(one for one in [self._tailers.leader] if one is not None)
            return bool(found)

        await until(leads, "a tailer leads")
        return found[0]

    def _server(self, what: str, how: str) -> None:
        server: ServerInFolder = {
            "kafka": lambda: self._servers.kafka,
            "primary": self._servers.primary,
            "mongod": lambda: self._servers.member(self._chance),
        }[what]()
        if how == "restart":
            server.restart()
        elif how == "frozen":
            server.freeze()
            time.sleep(self._lease_seconds * self._chance.uniform(0.3, 1.5))
            server.thaw()
        else:
            server.kill()
            time.sleep(self._chance.uniform(0.0, 1.0))
            server.start()
