"""Every call of a provider passes its breaker, its gate and its time limit."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from typing import TypeVar

from eden_memory import metrics
from eden_memory.failures import PermanentError
from eden_memory.models.calls import CallFailed, Completion, Stopwatch
from eden_memory.models.guard.breaker import WAITS, Breaker, Ping, ProviderAway
from eden_memory.models.guard.gate import Gate, Growth
from eden_memory.models.guard.pace import Pace
from eden_memory.stages.handler_run import off_the_clock

T = TypeVar("T")
PATIENCE = 20.0
"""Seconds that a call waits for a provider that wants none for so long; beyond, its unit comes back later."""
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
        """The breaker of a model; the first ping given is the one used."""
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
        """Let gate, breaker and pace learn from a call that fails; CallFailed where it took too long."""
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
        """Those who have a place wait with it: nobody is to call for so long."""
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
            return  # it answers, if not this

    def _tell(self) -> None:
        metrics.PROVIDER_LIMIT.labels(self._provider).set(int(self.gate.limit))
        metrics.PROVIDER_RUNNING.labels(self._provider).set(self.gate.running)


def _written(result: object) -> int:
    """Tokens of an answer; 0 of vectors."""
    return result.tokens.output if isinstance(result, Completion) else 0
