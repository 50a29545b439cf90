"""Whether others succeed while a unit fails: only then is its failure its own."""

import asyncio
import random
import time
from collections import Counter, OrderedDict
from collections.abc import Awaitable, Callable

from eden_memory.logs import LibraryLogger
from eden_memory.models.calls import CallFailed
from eden_memory.models.guard.pace import Pace
from eden_memory.stages.retry_waits import growing
from eden_memory.stages.stage import RetryPolicy

REMEMBERED = 20_000


class Successes:
    """Answered calls of one model, counted by stage, and how many each unit had seen at its last failure."""

    def __init__(self) -> None:
        self._answered: Counter[str] = Counter()
        self._seen: OrderedDict[tuple[str, str], int] = OrderedDict()

    def began(self, stage: str, unit: str) -> None:
        """Note that a call of a unit begins; what it has seen at an earlier failure stays."""
        self._seen.setdefault((stage, unit), self._answered[stage])
        while len(self._seen) > REMEMBERED:
            self._seen.popitem(last=False)

    def succeeded(self, stage: str, unit: str) -> None:
        """Note an answered call."""
        self._answered[stage] += 1
        self._seen.pop((stage, unit), None)

    def failed(self, stage: str, unit: str) -> bool:
        """Note a failed call; whether another unit of the stage succeeded since the unit's last failure, or,
        before it has failed, since its call began."""
        seen = self._seen.pop((stage, unit), self._answered[stage])
        self._seen[stage, unit] = self._answered[stage]
        return self._answered[stage] > seen


log = LibraryLogger()
SEVERAL = 3
"""So many different questions failed and none succeeded since: it may be an outage."""
AGAIN = 2
"""So often one question failed and nothing succeeded since: it may be one too."""
WAITS = (1.0, 10.0)
"""Seconds between two probes, the first time and at most."""
LONGEST_ASKED = 60.0
"""Seconds to the next probe, at most, where the provider names them."""
LEAST_DEADLINE = 120.0
Ping = Callable[[], Awaitable[None]]


class ProviderAway(CallFailed):
    """The provider is away as a whole; where `called` is False nothing was sent."""

    def __init__(
        self, failure: CallFailed, retry_after: float, *, called: bool = True, alone: bool = False
    ) -> None:
        reason = f"the provider is away: {failure}" if called else str(failure)
        super().__init__(failure.outcome, reason, retry_after, charged=False, alone=alone)
        self.called = called


class Breaker:
    """One model of one provider. `ping` makes the smallest call there is; CallFailed if it fails."""

    def __init__(
        self,
        name: str,
        ping: Ping,
        *,
        clock: Callable[[], float] = time.monotonic,
        waits: tuple[float, float] = WAITS,
        opened: Callable[[bool], None] = lambda _open: None,
        pace: Pace | None = None,
    ) -> None:
        self.pace = pace or Pace(LEAST_DEADLINE)
        self.running = 0
        """Calls of the model that have been sent and not answered."""
        self._answers = 0
        self.name, self._ping, self._clock = name, ping, clock
        self._waits = RetryPolicy(*waits)
        self._opened = opened
        self._failing: Counter[str] = Counter()
        self._asking: asyncio.Task[None] | None = None
        self._probes = 0
        """Failed ones, in a row."""
        self._next_probe = 0.0
        self.successes = Successes()
        self.away: CallFailed | None = None
        """Why it is open; None while calls go through."""

    async def admit(self) -> None:
        """Return if a call may be made; ProviderAway at once if not. Every so often a probe decides anew."""
        if self.away is not None and self._clock() >= self._next_probe:
            await self._ask()
        if self.away is not None:
            raise ProviderAway(self.away, self._until_probe(), called=False)

    def succeeded(self) -> None:
        """A call was answered."""
        self._answers += 1
        self._failing.clear()
        if self.away is not None:
            log.info("provider answers again", provider=self.name)
            self.away = None
            self._probes = 0
            self._opened(False)

    async def failed(self, unit: str, failure: CallFailed) -> CallFailed:
        """Note a failed call; what to raise: the failure, or that the provider is away."""
        self._failing[unit] += 1
        doubtful = len(self._failing) >= SEVERAL or self._failing[unit] >= AGAIN
        if self.away is None and doubtful:
            await self._ask()
        return failure if self.away is None else ProviderAway(failure, self._until_probe())

    async def _ask(self) -> None:
        """Ping it; many who ask at once share one ping."""
        if self._asking is None or self._asking.done():
            self._asking = asyncio.create_task(self._probe())
        await asyncio.shield(self._asking)

    async def _probe(self) -> None:
        answers = self._answers
        try:
            await self._ping()
        except CallFailed as failure:
            if self.away is not None or not self._works(answers, failure):
                self._open(failure)
        else:
            self.succeeded()

    def _works(self, answers: int, failure: CallFailed) -> bool:
        """Whether calls show what the ping did not: answered meanwhile, or it waited behind those that run."""
        return self._answers > answers or (failure.outcome == "timed_out" and self.running > 0)

    def _open(self, failure: CallFailed) -> None:
        if self.away is None:
            log.warning("provider away, calls wait", provider=self.name, reason=str(failure))
            self._opened(True)
        self.away = failure
        self._probes += 1
        self._next_probe = self._clock() + max(
            growing(self._waits, self._probes) * random.uniform(0.5, 1.0),  # noqa: S311 - nothing secret
            min(failure.retry_after or 0.0, LONGEST_ASKED),
        )

    def _until_probe(self) -> float:
        return max(0.05, self._next_probe - self._clock())
