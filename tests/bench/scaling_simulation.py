"""Formation without servers, on a clock that skips waiting: what processes, partitions and rate limits allow.

`python -m tests.bench.scaling_simulation [--busy SECONDS]` prints what 100, 1,000 and 10,000 messages/s need.
A window is a chain of calls: facts, then decisions beside reflections, and behind these every second time a
consolidation. Calls of one key run one after the other, in the process that holds the key's partition, through its
gate (the real one); a process works on one thing at a time. MongoDB, Kafka and the network are one constant wait
before each call. `tests/bench/scaling.py` holds it against real runs.
"""

import argparse
import asyncio
import math
import random
import selectors
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from eden_memory.models.guard import Gate
from eden_memory.stages.publishing import partition_for
from tests.bench.report import Report, Row, percentile
from tests.model_server.rate_limit import CallRate

STAGES = ("fact-extraction", "fact-dedup", "reflection-extraction", "consolidation")
CALLS_OF_A_WINDOW, MESSAGES_OF_A_WINDOW = 3.5, 45
TOKENS_OF_A_MESSAGE = 180
"""Of prompts (docs/benchmarks.md, formation)."""
BUSY_SECONDS = 0.017
"""Of a call and all the work around it, on a core of its own (docs/scaling.md)."""
RETRY_AFTER, LEAST_SLEEP = 1.0, 0.001
"""Seconds; a shorter sleep may be too short to move the clock on."""
WARM_SECONDS, WATCHED_SECONDS = 10.0, 20.0
RATES = (100.0, 1_000.0, 10_000.0)
MOST_PROCESSES = 256
QUOTAS = (1.1, 1.25, 1.5, 2.0, 3.0, 4.0)
"""Times the mean of calls."""


@dataclass(frozen=True, slots=True)
class Plant:
    """The installation: `at_once` is `EDEN_MODELS_AT_ONCE`; seconds of a call, of the wait before it, and for
    which it occupies its process, with all the work around it."""

    processes: int
    partitions: int = 6
    at_once: int = 64
    call_seconds: float = 1.0
    hop_seconds: float = 0.05
    busy_seconds: float = BUSY_SECONDS
    calls_per_second: float | None = None
    """That the provider allows to all processes together; it refuses more with 429."""


class ClosedWindow(NamedTuple):
    """A window of a session that closes so many seconds after the start."""

    at: float
    session: int
    consolidates: bool


class _Skipping(selectors.SelectSelector):
    """Instead of waiting, it moves the clock on."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise RuntimeError("the simulation stands still: nothing is left that could happen")
        self.now += timeout
        return []


class SkippingLoop(asyncio.SelectorEventLoop):
    """An event loop in which sleeping takes no time."""

    def __init__(self) -> None:
        self._skipping = _Skipping()
        super().__init__(self._skipping)

    def time(self) -> float:
        """Return the seconds that were slept."""
        return self._skipping.now


@dataclass
class Simulation:
    """One run; assignments and backoffs are drawn from the seed."""

    plant: Plant
    dice: random.Random
    delays: dict[ClosedWindow, float] = field(default_factory=dict[ClosedWindow, float])
    """Seconds from a window's closing to the last of its memory."""
    calls: int = 0
    refused: int = 0

    def __post_init__(self) -> None:
        clock = asyncio.get_running_loop().time
        of_processes = range(self.plant.processes)
        self._clock = clock
        self._gates = [Gate(self.plant.at_once, clock) for _ in of_processes]
        self._loops = [asyncio.Lock() for _ in of_processes]
        self._lanes: defaultdict[tuple[str, str], asyncio.Lock] = defaultdict(asyncio.Lock)
        self._owners = {stage: self._assigned() for stage in STAGES}
        self._rate = CallRate(self.plant.calls_per_second, clock)

    def _assigned(self) -> list[int]:
        """Return the process of each partition: as many each as possible, whichever they are."""
        owners = [number % self.plant.processes for number in range(self.plant.partitions)]
        self.dice.shuffle(owners)
        return owners

    @property
    def seconds(self) -> float:
        """Until the last window's memory is there."""
        return max(window.at + delay for window, delay in self.delays.items())

    async def run(self, windows: Sequence[ClosedWindow]) -> None:
        """Form all windows."""
        async with asyncio.TaskGroup() as group:
            for window in windows:
                group.create_task(self._form(window, group))

    async def _form(self, window: ClosedWindow, group: asyncio.TaskGroup) -> None:
        await asyncio.sleep(window.at)
        await self._call("fact-extraction", f"session-{window.session:04d}")
        await asyncio.gather(self._call("fact-dedup", _scope(window)), self._reflect(window, group))
        await asyncio.sleep(self.plant.hop_seconds)
        self.delays[window] = self._clock() - window.at

    async def _reflect(self, window: ClosedWindow, group: asyncio.TaskGroup) -> None:
        await self._call("reflection-extraction", f"session-{window.session:04d}")
        if window.consolidates:
            group.create_task(self._call("consolidation", _scope(window)))

    async def _call(self, stage: str, key: str) -> None:
        """Make one call in its lane, again after each refusal."""
        process = self._owners[stage][partition_for(key.encode(), self.plant.partitions)]
        async with self._lanes[stage, key]:
            await asyncio.sleep(self.plant.hop_seconds)
            await self._work(process)
            while not await self._answered(process, stage):
                self.refused += 1
                await asyncio.sleep(RETRY_AFTER)
        self.calls += 1

    async def _work(self, process: int) -> None:
        """Half of what a call takes of its process: before it, and on its answer."""
        async with self._loops[process]:
            await asyncio.sleep(self.plant.busy_seconds / 2)

    async def _answered(self, process: int, stage: str) -> bool:
        gate = self._gates[process]
        async with gate.turn(stage):
            while (held := gate.held()) > 0:  # noqa: ASYNC110 - a time that the gate sets
                await asyncio.sleep(max(held, LEAST_SLEEP))
            begun = self._clock()
            if not self._rate.allows():
                gate.refused(begun, RETRY_AFTER)
                return False
            await asyncio.sleep(self.plant.call_seconds)
            gate.succeeded()
        await self._work(process)
        return True


def _scope(window: ClosedWindow) -> str:
    return f"user:s.default:s.user-{window.session:04d}"


def simulated(plant: Plant, windows: Sequence[ClosedWindow], seed: int = 1) -> Simulation:
    """Run the windows through a plant."""

    async def run() -> Simulation:
        simulation = Simulation(plant, random.Random(seed))
        await simulation.run(windows)
        return simulation

    with asyncio.Runner(loop_factory=SkippingLoop) as runner:
        return runner.run(run())


def burst(sessions: int, each: int) -> list[ClosedWindow]:
    """All windows of all sessions at once, in turns; every second one of a user consolidates."""
    return [
        ClosedWindow(0.0, session, number % 2 == 1) for number in range(each) for session in range(sessions)
    ]


def steady(messages_per_second: float, seed: int = 1) -> list[ClosedWindow]:
    """Windows of different sessions at random moments (a Poisson process)."""
    dice, at, windows = random.Random(seed), 0.0, list[ClosedWindow]()
    pace = messages_per_second / MESSAGES_OF_A_WINDOW
    while (at := at + dice.expovariate(pace)) < WARM_SECONDS + WATCHED_SECONDS:
        windows.append(ClosedWindow(at, len(windows), len(windows) % 2 == 1))
    return windows


def delay_beyond_calls(plant: Plant, windows: Sequence[ClosedWindow]) -> float:
    """Return the p99 of delay minus calls, in seconds, of the windows after the warm-up."""
    delays = simulated(plant, windows).delays
    late = [delay for window, delay in delays.items() if window.at >= WARM_SECONDS]
    return percentile(late, 0.99) - 2 * plant.call_seconds


def needed(rate: float, plant: Plant, most_delay: float) -> Plant:
    """Return the smallest plant that keeps p99 of delay minus calls below `most_delay` at so many messages/s."""
    windows = steady(rate)
    processes = max(1, math.ceil(calls_per_second(rate) * plant.busy_seconds))
    while processes <= MOST_PROCESSES:
        tried = replace(plant, processes=processes, partitions=max(6, 2 * processes))
        if delay_beyond_calls(tried, windows) <= most_delay:
            return tried
        processes += max(1, processes // 8)
    raise SystemExit(f"{MOST_PROCESSES} processes do not do for {rate:,.0f} messages/s")


def quota(rate: float, plant: Plant, most_delay: float) -> float:
    """Return the least calls a second, in steps of the mean demand, that keep p99 as `needed` does."""
    windows, mean = steady(rate), calls_per_second(rate)
    for share in QUOTAS:
        if delay_beyond_calls(replace(plant, calls_per_second=share * mean), windows) <= most_delay:
            return share * mean
    raise SystemExit(f"{QUOTAS[-1]} times the mean of calls does not do for {rate:,.0f} messages/s")


def calls_per_second(rate: float) -> float:
    """Return the mean number of calls of so many messages/s."""
    return rate / MESSAGES_OF_A_WINDOW * CALLS_OF_A_WINDOW


def describe(report: Report, rate: float, plant: Plant, most_delay: float) -> None:
    """Add what a rate needs."""
    calls = calls_per_second(rate)
    figures = {
        "processes": plant.processes,
        "partitions": plant.partitions,
        "calls_at_once": calls * plant.call_seconds,
        "calls_per_minute": 60 * calls,
        "quota_of_calls_per_minute": 60 * quota(rate, plant, most_delay),
        "prompt_tokens_per_minute": 60 * rate * TOKENS_OF_A_MESSAGE,
        "beyond_calls_p99_s": delay_beyond_calls(plant, steady(rate)),
    }
    report.results |= {f"{rate:.0f}_{name}": float(value) for name, value in figures.items()}
    report.rows += [Row(f"{rate:,.0f}/s: {name}", float(value), "") for name, value in figures.items()]


def main() -> None:
    """Print what the rates need."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--busy", type=float, default=BUSY_SECONDS, help="seconds that a call occupies its process"
    )
    parser.add_argument("--call", type=float, default=1.0, help="seconds of a call")
    parser.add_argument(
        "--delay", type=float, default=1.0, help="p99 of a window's delay minus its calls, at most"
    )
    parser.add_argument("--rates", type=float, nargs="+", default=RATES, help="messages a second")
    given = parser.parse_args()
    report = Report(
        "scaling-simulation", f"simulated: calls of {given.call:g} s, {given.busy:g} s of a process each"
    )
    for rate in given.rates:
        plant = needed(rate, Plant(1, call_seconds=given.call, busy_seconds=given.busy), given.delay)
        describe(report, rate, plant, given.delay)
    report.show()


if __name__ == "__main__":
    main()
