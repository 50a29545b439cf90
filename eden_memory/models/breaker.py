"""Pauses a model that is away: whether others succeed while a unit fails, time limits of calls, and probes."""

import asyncio
import random
import time
from collections import Counter, OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import replace

from eden_memory.logs import LibraryLogger
from eden_memory.models.call_accounts import Accounts, Cost, Ended, error_kind, price, unanswered_id
from eden_memory.models.provider_calls import (
    CallFailed,
    ChatProvider,
    EmbeddingProvider,
    PromptTurn,
    Stopwatch,
    Tokens,
)
from eden_memory.models.question import Asking
from eden_memory.schemas.answers import ModelAnswer
from eden_memory.stages.retry_waits import SEVERAL, growing
from eden_memory.stages.stage import RetryPolicy

log = LibraryLogger()


UNMEASURED = 5
"""Multiple of the least deadline, for an endpoint that has not answered any call yet."""

LONGEST = 15
"""Greatest multiple of the least deadline."""

MARGIN = 2.0
"""Multiple of the time that the longest allowed answer takes at the measured speed."""

SLOWEST = 3.0
"""Multiple of the slowest recent call."""

FORGETS = 0.9
"""A slower call counts in full at once; a faster one lowers the measure by a tenth of the difference."""

SHORT = 16
"""A shorter answer says nothing about the speed: most of its time went into the prompt."""


class Pace:
    """Deadlines in seconds, never below `least` and never above LONGEST times that.

    Measured from a call's begin to its answer, so a server that works on several calls one after the other
    counts as slow as it is.
    """

    def __init__(self, least: float, *, known: bool = True) -> None:
        """`known`: the provider is known to be fast, so the least deadline suffices for the first calls."""
        self._least, self._most = least, least * LONGEST
        self._of_token = self._slowest = 0.0
        self._patience = least if known else least * UNMEASURED

    def deadline(self, tokens: int = 0) -> float:
        """Return the seconds for a call whose answer has at most so many tokens."""
        measured = max(MARGIN * self._of_token * tokens, SLOWEST * self._slowest)
        return min(self._most, max(self._least, self._patience, measured))

    def answered(self, seconds: float, tokens: int) -> None:
        """Record an answered call."""
        self._patience = self._least
        self._slowest = _slower(self._slowest, seconds)
        if tokens >= SHORT:
            self._of_token = _slower(self._of_token, seconds / tokens)

    def late(self, deadline: float) -> None:
        """Record a call that exceeded its deadline: the next one has twice as long."""
        self._patience = min(self._most, max(self._patience, 2 * deadline))


def _slower(known: float, new: float) -> float:
    return max(new, FORGETS * known + (1 - FORGETS) * new)


REMEMBERED = 20_000


class Successes:
    """Answered calls of one model, counted by stage, and how many each unit had seen at its last failure."""

    def __init__(self) -> None:
        self._answered: Counter[str] = Counter()
        self._seen: OrderedDict[tuple[str, str], int] = OrderedDict()

    def began(self, stage: str, unit: str) -> None:
        """Record that a call of a unit begins; the count from an earlier failure stays."""
        self._seen.setdefault((stage, unit), self._answered[stage])
        while len(self._seen) > REMEMBERED:
            self._seen.popitem(last=False)

    def succeeded(self, stage: str, unit: str) -> None:
        """Record an answered call."""
        self._answered[stage] += 1
        self._seen.pop((stage, unit), None)

    def failed(self, stage: str, unit: str) -> bool:
        """Note a failed call; whether another unit of the stage succeeded since the unit's last failure, or,
        before it has failed, since its call began."""
        seen = self._seen.pop((stage, unit), self._answered[stage])
        self._seen[stage, unit] = self._answered[stage]
        return self._answered[stage] > seen


AGAIN = 2
"""One question failed this often and nothing succeeded since: it may be an outage, too."""

WAITS = (1.0, 10.0)
"""Seconds between two probes, the first time and at most."""

LONGEST_ASKED = 60.0
"""Most seconds to the next probe if the provider names a time."""

LEAST_DEADLINE = 120.0

Ping = Callable[[], Awaitable[None]]


class ProviderAway(CallFailed):
    """The provider as a whole is away; if `called` is False, nothing was sent."""

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
        """Calls of the model that were sent and not answered yet."""
        self._answers = 0
        self.name, self._ping, self._clock = name, ping, clock
        self._waits = RetryPolicy(*waits)
        self._opened = opened
        self._failing: Counter[str] = Counter()
        self._asking: asyncio.Task[None] | None = None
        self._probes = 0
        """Failed probes in a row."""
        self._next_probe = 0.0
        self.successes = Successes()
        self.away: CallFailed | None = None
        """Why the breaker is open; None while calls are let through."""

    async def admit(self) -> None:
        """Return if a call may be made; ProviderAway at once if not. Probes decide again from time to time."""
        if self.away is not None and self._clock() >= self._next_probe:
            await self._ask()
        if self.away is not None:
            raise ProviderAway(self.away, self._until_probe(), called=False)

    def succeeded(self) -> None:
        """Record an answered call."""
        self._answers += 1
        self._failing.clear()
        if self.away is not None:
            log.info("provider answers again", provider=self.name)
            self.away = None
            self._probes = 0
            self._opened(False)

    async def failed(self, unit: str, failure: CallFailed) -> CallFailed:
        """Record a failed call; return what to raise: the failure, or that the provider is away."""
        self._failing[unit] += 1
        doubtful = len(self._failing) >= SEVERAL or self._failing[unit] >= AGAIN
        if self.away is None and doubtful:
            await self._ask()
        return failure if self.away is None else ProviderAway(failure, self._until_probe())

    async def _ask(self) -> None:
        """Probe the model; concurrent callers share one probe."""
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
        """Whether calls contradict a failed probe: one was answered meanwhile, or the probe waited behind others."""
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


NAME = "ping/1"

STAGE = "ping"

SYSTEM = 'Answer with the JSON object {"works": true} and nothing else.'

MOST = 64
"""Tokens of a probe's answer."""

QUESTION = PromptTurn("user", "Do you work?")

ON_NOBODYS_BEHALF = Asking(STAGE, "facts", STAGE, "", "")


class Works(ModelAnswer):
    """The answer to the smallest question."""

    works: bool


class Pings:
    """Makes the probes of chat and embedding models."""

    def __init__(self, accounts: Accounts, cost: Cost) -> None:
        self._accounts, self._cost = accounts, cost

    def chat(self, provider: ChatProvider, model: str) -> Ping:
        """Return the probe of a chat model."""

        async def ask() -> Tokens:
            return (await provider.complete(model, SYSTEM, [QUESTION], Works, MOST)).tokens

        return lambda: self._ping(Ended.of("chat", provider.name, model, NAME), ask)

    def embeddings(self, provider: EmbeddingProvider, model: str) -> Ping:
        """Return the probe of an embedding model."""

        async def ask() -> Tokens:
            return (await provider.embed(model, ["ping"]))[1]

        return lambda: self._ping(Ended.of("embeddings", provider.name, model), ask)

    async def _ping(self, ended: Ended, ask: Callable[[], Awaitable[Tokens]]) -> None:
        watch = Stopwatch()
        try:
            with watch.timing():
                tokens = await ask()
        except BaseException as error:
            outcome, kind = error_kind(error)
            self._note(replace(ended, outcome=outcome, error=kind), watch)
            raise
        cost = price(self._cost, ended.provider, ended.model, tokens)
        self._note(replace(ended, tokens=tokens, cost=cost), watch)

    def _note(self, ended: Ended, watch: Stopwatch) -> None:
        took = replace(ended, started_at=watch.started_at, seconds=watch.seconds)
        self._accounts.note(replace(took, call_id=unanswered_id(STAGE)), ON_NOBODYS_BEHALF)
