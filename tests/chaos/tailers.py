"""The tailers of a fault run: `eden run tailer` as processes that are killed, frozen, restarted and replaced."""

import asyncio
import os
import signal
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import orjson

from tests.chaos.waiting import until

COMMAND = (sys.executable, "-m", "eden_memory.cli.main", "run", "tailer")
STOP_SECONDS = 5.0
LEFT = frozenset({"leadership lost", "begins again from the saved position"})


class TailerProcess:
    """One process and its log."""

    def __init__(self, process: asyncio.subprocess.Process, log: Path) -> None:
        self._process, self.log = process, log
        self.frozen = False
        self.expected_end = False

    @property
    def name(self) -> str:
        """Of its log."""
        return self.log.stem

    @property
    def epoch(self) -> int:
        """The lease's epoch under which it leads, as far as it knows; 0 when it stands by."""
        epoch = 0
        for line in self._lines():
            epoch = int(line["epoch"]) if line["event"] == "leads" else 0 if line["event"] in LEFT else epoch
        return epoch

    @property
    def runs(self) -> bool:
        """Whether it has started: before that a signal ends it at once."""
        return any(line["event"] == "process runs" for line in self._lines())

    def said(self, lines: int = 12) -> str:
        """The end of its log."""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])

    def send(self, number: signal.Signals) -> None:
        """A signal, unless it has ended."""
        if self._process.returncode is None:
            os.kill(self._process.pid, number)

    async def ended(self) -> int:
        """Its exit code, once it has one."""
        return await self._process.wait()

    def _lines(self) -> list[dict[str, Any]]:
        lines = self.log.read_bytes().splitlines()
        return [orjson.loads(line) for line in lines if line.startswith(b"{") and line.endswith(b"}")]


class Tailers:
    """A few tailers, each replaced as soon as it ends; those that end by themselves are violations."""

    def __init__(self, environment: Mapping[str, str], folder: Path, count: int) -> None:
        self._environment, self._folder, self._count = environment, folder, count
        self._started = 0
        self._watching: dict[TailerProcess, asyncio.Task[None]] = {}
        self._replacing = True
        self.violations: list[str] = []
        self.stop_seconds: list[float] = []

    @property
    def running(self) -> list[TailerProcess]:
        """Those that live and are not frozen."""
        return [one for one in self._watching if not one.frozen]

    @property
    def leader(self) -> TailerProcess | None:
        """The one that leads, if any does."""
        leading = max(self.running, key=lambda one: one.epoch, default=None)
        return leading if leading is not None and leading.epoch else None

    @property
    def stands_by(self) -> bool:
        """Whether another than the leader is there to take over."""
        return sum(one.runs for one in self.running) > 1

    async def start(self) -> None:
        """All of them; from now on those that end are replaced."""
        self._replacing = True
        while len(self._watching) < self._count:
            await self._launch()

    async def stop(self) -> None:
        """All of them, cleanly; none is replaced."""
        self._replacing = False
        await asyncio.gather(*(self.restart(one) for one in self._watching))

    async def abandon(self) -> None:
        """Kill what is left."""
        self._replacing = False
        for one in list(self._watching):
            one.expected_end = True
            one.send(signal.SIGKILL)
        await asyncio.gather(*self._watching.values())

    async def kill(self, one: TailerProcess) -> None:
        """`kill -9`."""
        one.expected_end = True
        one.send(signal.SIGKILL)
        await one.ended()

    async def restart(self, one: TailerProcess) -> None:
        """SIGTERM, once it has started; it must end with 0, within 5 seconds."""
        await until(lambda: one.runs or one not in self._watching, f"{one.name} runs")
        one.expected_end = True
        began = time.monotonic()
        one.send(signal.SIGTERM)
        try:
            async with asyncio.timeout(20):
                code = await one.ended()
        except TimeoutError:
            await self.kill(one)
            code = -9
        seconds = time.monotonic() - began
        self.stop_seconds.append(seconds)
        if code != 0 or seconds > STOP_SECONDS:
            self.violations.append(
                f"{one.name} ended with {code}, {seconds:.1f} s after SIGTERM:\n{one.said()}"
            )

    async def freeze(self, one: TailerProcess, seconds: float) -> None:
        """SIGSTOP, and SIGCONT after so long."""
        one.frozen = True
        one.send(signal.SIGSTOP)
        await asyncio.sleep(seconds)
        one.send(signal.SIGCONT)
        one.frozen = False

    async def _launch(self) -> None:
        self._started += 1
        log = self._folder / f"tailer-{self._started:03}.log"
        with log.open("wb") as file:
            process = await asyncio.create_subprocess_exec(
                *COMMAND,
                env={**os.environ, **self._environment},
                cwd=self._folder,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=file,
                stderr=file,
            )
        one = TailerProcess(process, log)
        self._watching[one] = asyncio.create_task(self._watch(one))

    async def _watch(self, one: TailerProcess) -> None:
        code = await one.ended()
        if not one.expected_end:
            self.violations.append(f"{one.name} ended by itself with {code}:\n{one.said()}")
        del self._watching[one]
        if self._replacing:
            await self._launch()
