"""What live windows wait alone and while reforms run, by turns; what both take of the machine.

`python -m tests.bench.reform_delays [--sessions N] [--each N] [--rounds N]`. Private servers, live stages in one
process, the reform as the command in another, the model server in a third. History of N sessions is formed; in each
round as many sessions are written at a pace, first alone, then while all there is is formed anew with another prompt,
one reform after the other. The p99 is that of all rounds' windows together; its ratio is resampled for an interval.
"""

import argparse
import asyncio
import os
import random
import signal
import tempfile
from collections import Counter
from collections.abc import AsyncGenerator, Generator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil

from eden_memory.replay.installation import installation
from eden_memory.replay.namespaces.dropping import drop
from tests.bench.formation_run import (
    Stand,
    running,
    stand,
    until_followed,
)
from tests.bench.reform import EDEN, GUIDANCE, MORE, PACE, lived, numbered, streams
from tests.bench.report import Report, Row, percentile
from tests.model_server.serving import model_server_process
from tests.servers import TestServers, running_servers

SESSIONS, EACH, ROUNDS = 20, 90, 4
RESAMPLED, INTERVAL = 2_000, 0.9


@dataclass
class Reforms:
    """One after the other, each with another prompt."""

    made: Stand
    folder: Path
    begun: int = 0
    windows: int = 0
    _process: psutil.Popen | None = None

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """From the first window of the first to the end of the block; what they made is dropped."""
        first, over = self.begun, asyncio.Event()
        self._begin()
        await self._until_forming()
        again = asyncio.create_task(self._again(over))
        try:
            yield
        finally:
            over.set()
            await again
            await self._end()
            for number in range(first, self.begun):
                await self._drop(f"trial-{number}")

    def _begin(self) -> None:
        file = streams(self.folder, "s.default", f"{GUIDANCE} ({self.begun})")
        command = (*EDEN, "reform", f"trial-{self.begun}", "--yes", "--streams", str(file))
        self.begun += 1
        with (self.folder / "reform.log").open("ab") as log:
            environment = {**os.environ, **self.made.environment}
            self._process = psutil.Popen(
                command, env=environment, stdout=log, stderr=log, preexec_fn=_interruptible
            )

    async def _until_forming(self) -> None:
        outcomes = self.made.database[f"memory_ns_trial-{self.begun - 1}_outcomes"]
        for _ in range(1_200):
            if await outcomes.count_documents({"stage": "fact-extraction"}):
                return
            await asyncio.sleep(0.1)
        raise SystemExit(f"the reform does not begin:\n{self._said()}")

    async def _again(self, over: asyncio.Event) -> None:
        """As soon as one has come to its end the next begins."""
        while not over.is_set():
            assert self._process is not None
            if (code := self._process.poll()) is not None:
                if code:
                    raise SystemExit(self._said())
                self._begin()
            await asyncio.sleep(0.2)

    async def _end(self) -> None:
        assert self._process is not None
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGINT)
        await asyncio.to_thread(self._process.wait, 60)

    async def _drop(self, name: str) -> None:
        outcomes = self.made.database[f"memory_ns_{name}_outcomes"]
        self.windows += await outcomes.count_documents({"stage": "fact-extraction"})
        if await self.made.database["memory_namespaces"].find_one({"_id": name}):
            async with installation(self.made.settings) as at:
                await drop(at, name)

    def _said(self) -> str:
        return (self.folder / "reform.log").read_text()[-3_000:]


def _interruptible() -> None:
    """Though a shell has started this in the background."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@contextmanager
def cpu(taken: Counter[str], when: str) -> Generator[None]:
    """Seconds by what the servers that were started here take, added up."""
    before = _cpu()
    yield
    for name, seconds in (_cpu() - before).items():
        taken[f"{name}_{when}"] += seconds


def _cpu() -> "Counter[str]":
    found: Counter[str] = Counter()
    for one in psutil.Process().children(recursive=True):
        name, times = one.name(), one.cpu_times()
        if name in ("mongod", "java"):
            found[name] += times.user + times.system  # pyright: ignore[reportArgumentType]
    return found


async def delays(
    report: Report, servers: TestServers, sessions: int, each: int, seconds: float, rounds: int
) -> None:
    """By turns, into the report."""
    alone, beside = list[list[float]](), list[list[float]]()
    taken: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as name, model_server_process(base_seconds=seconds) as models:
        folder = Path(name)
        async with stand(servers, models, {}) as made:
            reforms = Reforms(made, folder)
            with running(made, folder / "run.log"):
                await until_followed(made)
                await lived(made, numbered(sessions, each, 0), None)
                for first in range(200, 200 + 400 * rounds, 400):
                    with cpu(taken, "alone"):
                        alone.append(await _delays(made, sessions, each, first))
                    async with reforms.running():
                        with cpu(taken, "beside"):
                            beside.append(await _delays(made, sessions, each, first + 200))
    described(report, alone, beside)
    report.results |= {"reforms": float(reforms.begun), "reformed_windows": float(reforms.windows)}
    report.results |= {f"cpu_s_{name}": float(used) for name, used in taken.items()}
    report.rows.append(Row("windows formed anew meanwhile", float(reforms.windows), "windows"))


async def _delays(made: Stand, sessions: int, each: int, first: int) -> list[float]:
    formed = await lived(made, numbered(sessions, each, first), PACE)
    return [delay for delay, _ in formed.delays()]


def described(report: Report, alone: Sequence[Sequence[float]], beside: Sequence[Sequence[float]]) -> None:
    """p99 and p50 of all rounds, each round's p99, and how sure the ratio is."""
    both = [[one for some in rounds for one in some] for rounds in (alone, beside)]
    for share, name in ((0.99, "p99"), (0.5, "p50")):
        before, after = (percentile(one, share) for one in both)
        low, high = interval(both[0], both[1], share)
        report.results |= {f"alone_{name}_s": before, f"beside_{name}_s": after}
        report.results |= {f"{name}_ratio_low": low, f"{name}_ratio_high": high}
        report.ratios[f"{name}_beside_to_alone"] = after / before
        said = f"alone; ratio {low:.2f}-{high:.2f} in {INTERVAL:.0%}" + (
            f"; target ≤ {MORE}" if name == "p99" else ""
        )
        report.rows.append(
            Row(f"{name} of {len(both[1])} live windows beside a reform", after, "s", before, said)
        )
    report.bounds["p99_beside_to_alone"] = MORE
    for what, rounds in (("alone", alone), ("beside", beside)):
        each = sorted(percentile(one, 0.99) for one in rounds)
        report.results |= {f"{what}_p99_least_s": each[0], f"{what}_p99_most_s": each[-1]}
        report.rows.append(
            Row(f"p99 by round, {what}: the least", each[0], "s", each[-1], f"the most of {len(each)}")
        )


def interval(before: Sequence[float], after: Sequence[float], share: float) -> tuple[float, float]:
    """In which the ratio of two percentiles lies when both are drawn again (bootstrap, 90 %)."""
    chance = random.Random(1)
    found = sorted(
        percentile(chance.choices(after, k=len(after)), share)
        / percentile(chance.choices(before, k=len(before)), share)
        for _ in range(RESAMPLED)
    )
    edge = (1 - INTERVAL) / 2
    return percentile(found, edge), percentile(found, 1 - edge)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sessions", type=int, default=SESSIONS)
    parser.add_argument("--each", type=int, default=EACH)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--seconds", type=float, default=1.0, help="of a call")
    given = parser.parse_args()
    report = Report("reform-delays", "live windows alone and beside a reform")
    with (
        tempfile.TemporaryDirectory() as name,
        running_servers(os.environ, Path(name), Path(".eden/jars")) as servers,
    ):
        work = delays(report, servers, given.sessions, given.each, given.seconds, given.rounds)
        asyncio.run(work)
    report.show()


if __name__ == "__main__":
    main()
