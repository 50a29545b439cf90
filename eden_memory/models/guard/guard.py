"""What every call of a provider goes through: its breaker, its gate, its time limit."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Protocol, TypeVar

from eden_memory.domain.failures import PermanentError
from eden_memory.models.calls import CallFailed
from eden_memory.models.guard.breaker import WAITS, Breaker, Ping, ProviderAway
from eden_memory.models.guard.gate import Gate

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
    ) -> None:
        self._provider, self._seconds, self._watch, self._clock = provider, seconds, watch, clock
        self._waits = waits
        self.gate = Gate(at_once, clock)
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
            )
        return self._breakers[model]

    async def run(self, breaker: Breaker, unit: str, call: Callable[[], Awaitable[T]]) -> T:
        """The call's result; CallFailed (ProviderAway in an outage), PermanentError."""
        await breaker.admit()
        try:
            async with self.gate.turn():
                await self._wait_for_rate()
                await breaker.admit()
                self._tell()
                return await self._called(breaker, call)
        except ProviderAway:
            raise
        except CallFailed as error:
            failure = error
        finally:
            self._tell()
        failed = await breaker.failed(unit, failure)
        raise _without_blame(failed) from failure

    async def _called(self, breaker: Breaker, call: Callable[[], Awaitable[T]]) -> T:
        """One call, from which gate and breaker learn."""
        begun = self._clock()
        try:
            result = await self._in_time(call)
        except CallFailed as error:
            if error.outcome == "rate_limited":
                self.gate.refused(begun, error.retry_after)
            raise
        except PermanentError:
            breaker.succeeded()
            raise
        self.gate.succeeded()
        breaker.succeeded()
        return result

    async def _in_time(self, call: Callable[[], Awaitable[T]], seconds: float | None = None) -> T:
        limit = self._seconds if seconds is None else min(seconds, self._seconds)
        try:
            async with asyncio.timeout(limit):
                return await call()
        except TimeoutError as error:
            raise CallFailed("timed_out", f"no answer in {limit:g} s") from error

    async def _wait_for_rate(self) -> None:
        """Those who have a place wait with it: nobody is to call for so long."""
        while (held := self.gate.held()) > 0:
            if held > PATIENCE:
                busy = CallFailed("rate_limited", "the provider wants no calls for now")
                raise ProviderAway(busy, held, called=False)
            await asyncio.sleep(held)

    async def _pinged(self, ping: Ping) -> None:
        try:
            await self._in_time(ping, PING_SECONDS)
        except PermanentError:
            return  # it answers, if not this

    def _tell(self) -> None:
        if self._watch is not None:
            self._watch.places(self._provider, int(self.gate.limit), self.gate.running)


def _without_blame(failure: CallFailed) -> CallFailed:
    """A rate limit says nothing of the question: its attempts are counted by the call budget alone."""
    if failure.outcome == "rate_limited" and failure.counts:
        return CallFailed(failure.outcome, str(failure), failure.retry_after, counts=False)
    return failure
