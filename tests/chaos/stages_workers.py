"""The worker processes of the stages' fault run, forked from a server that has imported everything already."""

import asyncio
import multiprocessing
import signal
import time
from collections.abc import Callable
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any, Protocol, cast

from tests.chaos import stages_process
from tests.chaos.stages_process import SERVER_AWAY
from tests.chaos.tailers import TailerProcess, Tailers
from tests.chaos.waiting import NotInTime, until

PARTS = 3
STOP_SECONDS = 40.0
"""Drain, leaving the groups while the broker is away, and what a busy machine adds."""


class Place(Protocol):
    """Where everything is, as the processes are told."""

    @property
    def folder(self) -> Path:
        """Of their logs."""
        ...


Main = Callable[[Any, Path], None]


class Forked:
    """A forked process with the face of asyncio's."""

    def __init__(self, process: ForkServerProcess) -> None:
        self._process = process
        self.pid = cast(int, process.pid)

    @property
    def returncode(self) -> int | None:
        """None while it runs."""
        return self._process.exitcode

    async def wait(self) -> int:
        """Its exit code, once it has one."""
        while (code := self._process.exitcode) is None:  # noqa: ASYNC110 - a process's end sets no event
            await asyncio.sleep(0.05)
        return code


class Workers(Tailers):
    """Several workers; `count` may rise and fall. Who ends because a server is away at its start is replaced."""

    _count: int
    _started: int

    def __init__(
        self, place: Place, count: int, main: Main = stages_process.main, parts: int = PARTS
    ) -> None:
        """`main` runs in each of them, and says so often that a stage runs."""
        super().__init__({}, place.folder, count)
        self._place, self._main, self._parts = place, main, parts
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload([main.__module__])
        self.gave_up_starting = 0

    @property
    def size(self) -> int:
        """How many there are to be."""
        return self._count

    @property
    def started(self) -> int:
        """How many were ever started."""
        return self._started

    async def join(self) -> None:
        """One more."""
        self._count += 1
        await self._launch()

    async def depart(self, one: TailerProcess) -> None:
        """One less, cleanly."""
        self._count -= 1
        await self.restart(one)

    async def restart(self, one: TailerProcess) -> None:
        """SIGTERM, once it has started; it must end with 0 within its drain and the time to leave its groups."""
        try:
            await until(lambda: one.runs or one not in self._watching, f"{one.name} runs")
        except NotInTime as error:
            await self._kill_and_ask(one)
            self.violations.append(f"{error}:\n{one.said(60)}")
            return
        one.expected_end = True
        began = time.monotonic()
        one.send(signal.SIGTERM)
        try:
            async with asyncio.timeout(STOP_SECONDS):
                code = await one.ended()
        except TimeoutError:
            await self._kill_and_ask(one)
            code = -9
        seconds = time.monotonic() - began
        self.stop_seconds.append(seconds)
        if code not in (0, SERVER_AWAY):
            self.violations.append(
                f"{one.name} ended with {code}, {seconds:.1f} s after SIGTERM:\n{one.said(60)}"
            )

    async def _kill_and_ask(self, one: TailerProcess) -> None:
        """Its log has the stacks of its tasks afterwards."""
        one.expected_end = True
        one.send(signal.SIGUSR1)
        await asyncio.sleep(1.0)
        await self.kill(one)

    async def _launch(self) -> None:
        self._started += 1
        log = self._folder / f"worker-{self._started:04}.log"
        log.touch()
        process = self._context.Process(target=self._main, args=(self._place, log), daemon=True)
        process.start()
        one = TailerProcess(cast(Any, Forked(process)), log)
        self._watching[one] = asyncio.create_task(self._watch(one))

    async def _watch(self, one: TailerProcess) -> None:
        code = await one.ended()
        if not one.expected_end:
            self._judge(one, code)
        del self._watching[one]
        if self._replacing and len(self._watching) < self._count:
            await self._launch()

    def _judge(self, one: TailerProcess, code: int) -> None:
        began = self._runs(one.log)
        if code == SERVER_AWAY and not began:
            self.gave_up_starting += 1
        else:
            self.violations.append(f"{one.name} ended by itself with {code}:\n{one.said()}")

    async def all_run(self) -> None:
        """Until each has its stages running."""
        await until(lambda: all(self._runs(one.log) for one in self._watching), "all workers run")

    def _runs(self, log: Path) -> bool:
        return log.read_text(errors="replace").count('"stage runs"') == self._parts
