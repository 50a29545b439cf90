"""Kills what rebuilds, again and again, at moments that nobody chooses, and the broker now and then."""

import asyncio
import multiprocessing
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from multiprocessing.context import ForkServerProcess
from pathlib import Path

from tests.chaos import rebuild_process
from tests.chaos.rebuild_process import Place
from tests.chaos.servers import Servers
from tests.chaos.stages_process import SERVER_AWAY
from tests.chaos.stages_workers import Forked

SOONEST, LATEST, OF_NOTHING = 0.2, 3.0, 12.0
"""Seconds from a process's start to its end, for every fourth one: some have not joined their group yet.

`--from-nothing` has many steps, and is ended within OF_NOTHING seconds.
"""
WRITES_SECONDS, AFTER = 20.0, 1.0
"""The others are waited for until they write, so long at most, and end within so many seconds of it."""
LOOK_SECONDS = 0.05
BROKER_EVERY = 40
"""Kills, roughly, between two of the broker."""
Written = Callable[[], Awaitable[int]]


class Killer:
    """`environment` is that of the commands; `folder` keeps their logs."""

    def __init__(
        self, seed: int, servers: Servers, environment: Mapping[str, str], folder: Path, session_ms: int
    ) -> None:
        self._chance = random.Random(f"{seed}/rebuild")
        self._servers, self.environment = servers, environment
        self._folder, self._session_ms = folder, session_ms
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload([rebuild_process.__name__])
        self.counts: Counter[str] = Counter()
        self.violations: list[str] = []
        self._started = self._turn = 0

    async def kill(self, name: str | None, times: int, written: Written) -> int:
        """So often, the same command each time, or until it is done; how often. `written`: how much is there."""
        done = 0
        while done < times:
            self._turn += 1
            before = await written()
            process, log = self._start(name)
            try:
                await self._moment(name, process, before, written)
                if self._chance.random() < 1 / BROKER_EVERY:
                    await self._strike_broker()
            finally:
                ended = process.exitcode
                process.kill()
                code = await Forked(process).wait()
            if ended is None:
                done += 1
                self.counts["killed from nothing" if name is None else "killed"] += 1
                self.counts["killed after it had written"] += await written() != before
            else:
                self._judge(code, log, name)
                if name is None:
                    return done
        return done

    async def _moment(
        self, name: str | None, process: ForkServerProcess, before: int, written: Written
    ) -> None:
        if name is None or self._turn % 4 == 0:
            await asyncio.sleep(self._chance.uniform(SOONEST, OF_NOTHING if name is None else LATEST))
            return
        end = asyncio.get_running_loop().time() + WRITES_SECONDS
        while asyncio.get_running_loop().time() < end and process.exitcode is None:
            if await written() != before:
                break
            await asyncio.sleep(LOOK_SECONDS)
        await asyncio.sleep(self._chance.uniform(0, AFTER))

    async def to_the_end(self, name: str | None, times: int = 5) -> int:
        """The same command without a kill, again where a server was away; its exit code."""
        code = SERVER_AWAY
        while code == SERVER_AWAY and (times := times - 1) >= 0:
            process, log = self._start(name)
            code = await Forked(process).wait()
            if code:
                self.violations.append(
                    f"{log.stem} ended with {code}:\n{log.read_text(errors='replace')[-2_000:]}"
                )
        return code

    def _start(self, name: str | None) -> tuple[ForkServerProcess, Path]:
        self._started += 1
        log = self._folder / f"rebuild-{self._started:04}.log"
        place = Place(self.environment, self._folder, self._session_ms, name)
        process = self._context.Process(target=rebuild_process.main, args=(place, log), daemon=True)
        process.start()
        return process, log

    def _judge(self, code: int | None, log: Path, name: str | None) -> None:
        """Who follows never ends by itself, unless a server is away; who restores may have been done."""
        self.counts["ended before it could be killed"] += 1
        if code not in ({0, SERVER_AWAY} if name is None else {SERVER_AWAY}):
            said = log.read_text(errors="replace")[-2_000:]
            self.violations.append(f"{log.stem} ended by itself with {code}:\n{said}")

    async def _strike_broker(self) -> None:
        self.counts["kafka killed"] += 1
        await asyncio.to_thread(self._servers.kafka.kill)
        await asyncio.to_thread(self._servers.kafka.start)
