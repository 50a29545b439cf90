"""The guard that every provider call passes: its breaker, its time limit, and how many calls run at once.

A server with one slot queues what it cannot do at once, and refuses nothing: its answers only take longer. So each
step is measured: twice as many calls have to bring clearly more tokens a second, kind by kind, or the step is taken
back.
"""

import asyncio
import time
from collections import OrderedDict, deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import TypeVar

from eden_memory import metrics
from eden_memory.errors import PermanentError
from eden_memory.models.breaker import WAITS, Breaker, Pace, Ping, ProviderAway
from eden_memory.models.provider_calls import CallFailed, Completion, Stopwatch
from eden_memory.stages.handler_run import off_the_clock

T = TypeVar("T")

PATIENCE = 20.0
"""Longest wait for a provider that asks for one; for a longer one the unit is retried later."""

PING_SECONDS = 20.0


class Guard:
    """One provider: calls at once and Retry-After for all of it, outages by model."""

    def __init__(
        self,
        provider: str,
        at_once: int,
        seconds: float,
        waits: tuple[float, float] = WAITS,
        clock: Callable[[], float] = time.monotonic,
        *,
        known: bool = True,
    ) -> None:
        """`seconds`: the least deadline of a call; `known`: the provider's size and speed are."""
        self._provider, self._seconds, self._clock = provider, seconds, clock
        self._waits, self._known = waits, known
        self.gate = Gate(at_once, clock, None if known else Growth(at_once))
        self._breakers: dict[str, Breaker] = {}

    def breaker(self, model: str, ping: Ping) -> Breaker:
        """Return the breaker of a model; the first probe passed for it is used."""
        if model not in self._breakers:
            away = metrics.PROVIDER_AWAY.labels(self._provider, model)
            away.set(0)
            self._breakers[model] = Breaker(
                f"{self._provider}/{model}",
                lambda: self._pinged(ping),
                waits=self._waits,
                clock=self._clock,
                opened=away.set,
                pace=Pace(self._seconds, known=self._known),
            )
        return self._breakers[model]

    async def run(
        self,
        breaker: Breaker,
        unit: str,
        call: Callable[[], Awaitable[T]],
        *,
        stage: str = "",
        tokens: int = 0,
        watch: Stopwatch | None = None,
    ) -> T:
        """Return the call's result; CallFailed (ProviderAway in an outage), PermanentError.

        `tokens`: of the longest answer allowed; `watch` times the call. A failure is charged to its unit only if
        another unit of the stage succeeded meanwhile. The handler's deadline stands still: a call has a deadline of
        its own, which begins when it is its turn.
        """
        watch = watch or Stopwatch()
        with off_the_clock():
            await breaker.admit()
            try:
                async with self.gate.turn(stage):
                    await self._wait_for_rate()
                    await breaker.admit()
                    self._tell()
                    breaker.successes.began(stage, unit)
                    begun, deadline = self._clock(), breaker.pace.deadline(tokens)
                    with self._learning(breaker, begun, deadline), watch.timing():
                        async with asyncio.timeout(deadline):
                            result = await call()
                    self._answered(breaker, stage, self._clock() - begun, _written(result))
                    breaker.successes.succeeded(stage, unit)
                    return result
            except ProviderAway:
                raise
            except CallFailed as error:
                failure = error
            finally:
                self._tell()
            raise await self._failed(breaker, stage, unit, failure) from failure

    @contextmanager
    def _learning(self, breaker: Breaker, begun: float, deadline: float) -> Generator[None]:
        """Let gate, breaker and pace learn from a failed call; CallFailed if it took too long."""
        breaker.running += 1
        try:
            yield
        except TimeoutError as error:
            breaker.pace.late(deadline)
            if not self._known:
                self.gate.refused(begun)
            raise CallFailed("timed_out", f"no answer in {deadline:g} s") from error
        except CallFailed as error:
            if error.outcome == "timed_out":
                breaker.pace.late(deadline)
            if error.outcome == "rate_limited" or (error.outcome == "timed_out" and not self._known):
                self.gate.refused(begun, error.retry_after)
            raise
        except PermanentError:
            breaker.succeeded()
            raise
        finally:
            breaker.running -= 1

    def _answered(self, breaker: Breaker, stage: str, seconds: float, tokens: int) -> None:
        """Let gate, breaker and pace learn from an answer."""
        breaker.pace.answered(seconds, tokens)
        self.gate.succeeded(f"{breaker.name} {stage}", tokens, seconds)
        breaker.succeeded()

    async def _failed(self, breaker: Breaker, stage: str, unit: str, failure: CallFailed) -> CallFailed:
        """Return what to raise: the failure, with whether it is charged, or that the provider is away."""
        charged = breaker.successes.failed(stage, unit)
        failed = await breaker.failed(unit, failure)
        if isinstance(failed, ProviderAway):
            return failed
        return CallFailed(failure.outcome, str(failure), failure.retry_after, charged=charged)

    async def _wait_for_rate(self) -> None:
        """Make callers that have a place wait with it: nobody may call for so long."""
        while (held := self.gate.held()) > 0:
            if held > PATIENCE:
                busy = CallFailed("rate_limited", "the provider wants no calls for now")
                raise ProviderAway(busy, held, called=False, alone=True)
            await asyncio.sleep(held)

    async def _pinged(self, ping: Ping) -> None:
        seconds = min(PING_SECONDS, self._seconds)
        try:
            async with asyncio.timeout(seconds):
                await ping()
        except TimeoutError as error:
            raise CallFailed("timed_out", f"no answer in {seconds:g} s") from error
        except PermanentError:
            return  # the provider answers, even if not to this call

    def _tell(self) -> None:
        metrics.PROVIDER_LIMIT.labels(self._provider).set(int(self.gate.limit))
        metrics.PROVIDER_RUNNING.labels(self._provider).set(self.gate.running)


def _written(result: object) -> int:
    """Tokens of an answer; 0 for vectors."""
    return result.tokens.output if isinstance(result, Completion) else 0


FIRST = 2
"""Calls at once at the beginning."""

STEP = 2

WORTH = 1.2
"""A higher limit has to bring this many times the tokens a second."""

LEAST_ROUND = 4

OTHERS = 4
"""A trial ends after this many rounds whose calls cannot be compared with earlier ones."""

REST = 5
"""Rounds to wait after a withdrawn trial or a halving before the next one."""


class Growth:
    """The number of calls at once, between 1 and `most`.

    Calls are compared with calls of their own kind: a decision of few tokens after an extraction of many says
    nothing of the endpoint.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self.limit = min(FIRST, most)
        self._base, self._base_speeds = self.limit, dict[str, float]()
        self._rest = 0
        self._begin()
        self._settling = 0

    def answered(self, kind: str, tokens: int, seconds: float) -> None:
        """Record an answer (of at least one token) to a call that ran beside as many as were allowed."""
        if self._settling > 0:
            self._settling -= 1
            return
        answers = self._answers.setdefault(kind, _Answers())
        answers.add(tokens, seconds)
        enough = max(LEAST_ROUND, self.limit)
        if self._comparable() >= enough:
            self._judge()
        elif sum(kind_answers.number for kind_answers in self._answers.values()) >= OTHERS * enough:
            self.limit = self._base  # the calls are of another kind now: begin again with these
            self._begin()

    def halve(self) -> None:
        """Record that the limit was too high."""
        self._base_speeds = {}
        self._stay(max(1, self.limit // 2))

    def _comparable(self) -> int:
        """Return how many answers of this round can be judged: during a trial, those of known kinds."""
        kinds = self._base_speeds.keys() if self._tries else self._answers.keys()
        return sum(self._answers[kind].number for kind in self._answers.keys() & kinds)

    @property
    def _tries(self) -> bool:
        return self.limit > self._base

    def _judge(self) -> None:
        """After a round at this limit: keep it, take it back, or try the next one."""
        if self._tries:
            if self._gain() < WORTH:
                self._stay(self._base)
                return
            self._base_speeds = {}
        self._base = self.limit
        self._base_speeds |= {
            kind: self.limit * answers.tokens / answers.seconds for kind, answers in self._answers.items()
        }
        if self._rest > 0:
            self._rest -= 1
        else:
            self.limit = min(self._most, self.limit * STEP)
        self._begin()

    def _gain(self) -> float:
        """Return how many times faster answers come than at the last limit."""
        known = [
            (self._base_speeds[kind], self._answers[kind])
            for kind in self._answers.keys() & self._base_speeds
        ]
        before = sum(answers.tokens / speed for speed, answers in known)
        return self.limit * before / sum(answers.seconds for _, answers in known)

    def _stay(self, limit: int) -> None:
        self.limit = self._base = limit
        self._rest = REST
        self._begin()

    def _begin(self) -> None:
        """Begin a round; its first answers are of calls that began in the previous one."""
        self._settling = self.limit
        self._answers: dict[str, _Answers] = {}


@dataclass(slots=True)
class _Answers:
    """Answers of one kind of a round; `seconds` is what their calls took together."""

    number: int = 0
    tokens: int = 0
    seconds: float = 1e-6

    def add(self, tokens: int, seconds: float) -> None:
        self.number += 1
        self.tokens += tokens
        self.seconds += seconds


LEAST = 1.0

LONGEST_HOLD = 60.0
"""Longest Retry-After that is respected; then the provider is asked again."""


class Gate:
    """Additive increase, multiplicative decrease, never above `most` and never below one.

    An endpoint of unknown size grows as its answers show. Those who wait take turns by what they call for: many
    calls of one stage never stand before another stage's.
    Source: Chiu and Jain, "Analysis of the increase and decrease algorithms for congestion avoidance", 1989.
    """

    def __init__(
        self, most: int, clock: Callable[[], float] = time.monotonic, growth: Growth | None = None
    ) -> None:
        """`growth`: for an endpoint of unknown size."""
        self._most = float(most)
        self._growth = growth
        self._clock = clock
        self._waiting: OrderedDict[str, deque[asyncio.Future[None]]] = OrderedDict()
        """Waiting calls by what they are for; the next one to take its turn comes first."""
        self._halved_at = clock()
        self._held_until = clock()
        self.limit = growth.limit if growth else max(LEAST, most / 2)
        self.running = 0

    @asynccontextmanager
    async def turn(self, of: str = "") -> AsyncGenerator[None]:
        """Wait for a place, and hold it for the block; `of`: what it is for."""
        await self._take(of)
        try:
            yield
        finally:
            self.running -= 1
            self._admit()

    def held(self) -> float:
        """Seconds for which the provider wants no call at all; 0.0: none."""
        return max(0.0, self._held_until - self._clock())

    def succeeded(self, kind: str = "", tokens: int = 0, seconds: float = 0.0) -> None:
        """A call was answered: grow by one for each full round of calls, if the places were wanted."""
        if self._growth is not None:
            if tokens and self.running >= int(self.limit):
                self._growth.answered(kind, tokens, seconds)
                self.limit = self._growth.limit
                self._admit()
        elif self.running + sum(map(len, self._waiting.values())) >= self.limit / 2:
            self.limit = min(self._most, self.limit + 1 / self.limit)
            self._admit()

    def refused(self, begun: float, retry_after: float | None = None) -> None:
        """A call of this round was too much: halve the limit, once for all calls of the same round."""
        now = self._clock()
        if retry_after:
            self._held_until = max(self._held_until, now + min(retry_after, LONGEST_HOLD))
        if begun >= self._halved_at:
            self._halved_at = now
            if self._growth is not None:
                self._growth.halve()
            self.limit = self._growth.limit if self._growth else max(LEAST, self.limit / 2)

    async def _take(self, of: str) -> None:
        if self.running < int(self.limit) and not self._waiting:
            self.running += 1
            return
        place: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(of, deque()).append(place)
        try:
            await place
        except asyncio.CancelledError:
            self._left(of, place)
            raise

    def _left(self, of: str, place: "asyncio.Future[None]") -> None:
        """Handle a cancelled wait; a place given at that very moment goes to the next."""
        if not place.cancelled():
            self.running -= 1
            self._admit()
        elif place in (places := self._waiting.get(of, deque())):  # else its turn has come and was passed on
            places.remove(place)
            if not places:
                del self._waiting[of]

    def _admit(self) -> None:
        while self._waiting and self.running < int(self.limit):
            of, places = self._waiting.popitem(last=False)
            place = places.popleft()
            if places:
                self._waiting[of] = places
            if not place.done():
                place.set_result(None)
                self.running += 1
