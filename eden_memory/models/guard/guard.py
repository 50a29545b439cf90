"""What every call of a provider goes through: its breaker, its gate, its time limit."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Protocol, TypeVar

from eden_memory.failures import PermanentError
from eden_memory.models.calls import CallFailed, Completion
from eden_memory.models.guard.breaker import WAITS, Breaker, Ping, ProviderAway
from eden_memory.models.guard.gate import Gate
from eden_memory.models.guard.growth import Growth
from eden_memory.models.guard.pace import Pace
from eden_memory.stages.own_time import off_the_clock

T = TypeVar("T")
PATIENCE = 20.0
"""Seconds that a call waits for a provider that wants none for so long; beyond, its unit comes back later."""
PING_SECONDS = 20.0


class GuardWatch(Protocol):
    """Who is told how a provider is treated."""

    def places(self, provider: str, limit: int, running: int) -> None:
        """So many calls of it may run at once, and so many do."""
        ...

    def away(self, provider: str, model: str, away: bool) -> None:
        """A model of it went away, or answers again."""
        ...


class Guard:
    """One provider: calls at once and Retry-After for all of it, outages by model."""

    def __init__(
        self,
        provider: str,
        at_once: int,
        seconds: float,
        watch: GuardWatch | None = None,
        waits: tuple[float, float] = WAITS,
        clock: Callable[[], float] = time.monotonic,
        *,
        known: bool = True,
    ) -> None:
        """`seconds`: the least deadline of a call; `known`: the provider's size and speed are."""
        self._provider, self._seconds, self._watch, self._clock = provider, seconds, watch, clock
        self._waits, self._known = waits, known
        self.gate = Gate(at_once, clock, None if known else Growth(at_once))
        self._breakers: dict[str, Breaker] = {}

    def breaker(self, model: str, ping: Ping) -> Breaker:
        """The breaker of a model; the first ping given is the one used."""
        if model not in self._breakers:
            if self._watch is not None:
                self._watch.away(self._provider, model, away=False)
            self._breakers[model] = Breaker(
                f"{self._provider}/{model}",
                lambda: self._pinged(ping),
                waits=self._waits,
                clock=self._clock,
                opened=lambda away: self._watch.away(self._provider, model, away) if self._watch else None,
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
    ) -> T:
        """The call's result; CallFailed (ProviderAway in an outage), PermanentError.

        `tokens`: of the longest answer allowed. A failure is charged to its unit only if another unit of the stage
        succeeded meanwhile. The handler's deadline stands still: a call has one of its own, which begins when it is
        its turn.
        """
        with off_the_clock():
            return await self._run(breaker, unit, call, stage, tokens)

    async def _run(
        self, breaker: Breaker, unit: str, call: Callable[[], Awaitable[T]], stage: str, tokens: int
    ) -> T:
        await breaker.admit()
        try:
            async with self.gate.turn():
                await self._wait_for_rate()
                await breaker.admit()
                self._tell()
                breaker.successes.began(stage, unit)
                result = await self._called(breaker, call, tokens)
                breaker.successes.succeeded(stage, unit)
                return result
        except ProviderAway:
            raise
        except CallFailed as error:
            failure = error
        finally:
            self._tell()
        charged = breaker.successes.failed(stage, unit)
        failed = await breaker.failed(unit, failure)
        if isinstance(failed, ProviderAway):
            raise failed from failure
        raise CallFailed(failure.outcome, str(failure), failure.retry_after, charged=charged) from failure

    async def _called(self, breaker: Breaker, call: Callable[[], Awaitable[T]], tokens: int) -> T:
        """One call, from which gate, breaker and pace learn."""
        begun, deadline = self._clock(), breaker.pace.deadline(tokens)
        breaker.running += 1
        try:
            result = await _in_time(call, deadline)
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
        seconds, written = self._clock() - begun, _written(result)
        breaker.pace.answered(seconds, written)
        self.gate.succeeded(written, seconds)
        breaker.succeeded()
        return result

    async def _wait_for_rate(self) -> None:
        """Those who have a place wait with it: nobody is to call for so long."""
        while (held := self.gate.held()) > 0:
            if held > PATIENCE:
                busy = CallFailed("rate_limited", "the provider wants no calls for now")
                raise ProviderAway(busy, held, called=False, alone=True)
            await asyncio.sleep(held)

    async def _pinged(self, ping: Ping) -> None:
        try:
            await _in_time(ping, min(PING_SECONDS, self._seconds))
        except PermanentError:
            return  # it answers, if not this

    def _tell(self) -> None:
        if self._watch is not None:
            self._watch.places(self._provider, int(self.gate.limit), self.gate.running)


async def _in_time(call: Callable[[], Awaitable[T]], seconds: float) -> T:
    try:
        async with asyncio.timeout(seconds):
            return await call()
    except TimeoutError as error:
        raise CallFailed("timed_out", f"no answer in {seconds:g} s") from error


def _written(result: object) -> int:
    """Tokens of an answer; 0 of vectors."""
    return result.tokens.output if isinstance(result, Completion) else 0
