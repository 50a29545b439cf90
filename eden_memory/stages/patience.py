"""Repeats steps on our own servers until they work, because decisions are already paid for."""

import asyncio
import math
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

from eden_memory.errors import EdenError, ServerAway, describe
from eden_memory.logs import SAID_SECONDS, Awaited, LibraryLogger
from eden_memory.mongo.refusals import wrong_account
from eden_memory.stages.failure_decisions import passes, refused
from eden_memory.stages.retry_waits import backoff
from eden_memory.stages.stage import RetryPolicy

log = LibraryLogger()
T = TypeVar("T")
SERVERS = RetryPolicy(first=0.1, cap=5.0)
"""Seconds between two attempts to store or publish; there is no last attempt."""

REFUSED_HINT = "`eden doctor` says which rights are needed."


class ServerRefusals:
    """Refusals by servers of steps that this process is repeating."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._standing: dict[object, str] = {}
        self._said = -SAID_SECONDS

    @property
    def reason(self) -> str | None:
        """The newest refusal; None while no step is refused."""
        return next(reversed(self._standing.values()), None)

    def met(self, step: object, error: Exception) -> None:
        """Record that a step was refused; it is repeated until the right is granted."""
        self._standing[step] = describe(error)
        if self._clock() - self._said >= SAID_SECONDS:
            self._said = self._clock()
            log.error("refused, tried again", error=self._standing[step], hint=REFUSED_HINT)

    def over(self, step: object) -> None:
        """Record that a step is no longer repeated."""
        self._standing.pop(step, None)


REFUSALS = ServerRefusals()


async def until_done(
    step: Callable[[], Awaitable[T]], policy: RetryPolicy | None = None, doing: str | None = None
) -> T:
    """Repeat a step on our own servers until it works; only what no repeat can cure is raised.

    Failures are logged once in a while. `doing` names a step that no stage waits for: what refuses it does not make
    the process unready.
    """
    attempts, said, known = 0, -math.inf, object()
    try:
        while True:
            try:
                return await step()
            except Exception as error:
                if not passes(error):
                    raise
                attempts += 1
                said = _say(known, error, attempts, said, doing)
                await asyncio.sleep(backoff(policy or SERVERS, attempts))
    finally:
        REFUSALS.over(known)


def _say(step: object, error: Exception, attempts: int, said: float, doing: str | None) -> float:
    """Log a failure unless one of this step was logged just now; return when one was."""
    if doing is None and refused(error):
        REFUSALS.met(step, error)
        return said
    REFUSALS.over(step)
    now = time.monotonic()
    if now - said < SAID_SECONDS:
        return said
    named = {} if doing is None else {"doing": doing}
    log.warning("server away, tried again", error=describe(error), attempt=attempts, **named)
    return now


async def until_there(step: Callable[[], Awaitable[T]], server: str, seconds: float, hint: str) -> T:
    """Repeat a process's first step on a server until it is there; an EdenError with the hint after `seconds`.

    At the start of a deployment everything comes up at once.
    """
    awaited = Awaited(server, hint)
    async with awaited.said():
        return await _there(step, server, seconds, hint, awaited)


async def _there(
    step: Callable[[], Awaitable[T]], server: str, seconds: float, hint: str, awaited: Awaited
) -> T:
    loop = asyncio.get_running_loop()
    until, attempts = loop.time() + seconds, 0
    while True:
        try:
            return await step()
        except Exception as error:
            if wrong_account(error):
                raise
            if refused(error):
                raise EdenError(f"{server} refuses: {describe(error)}", REFUSED_HINT) from error
            if not passes(error):
                raise
            attempts += 1
            pause = 0.2 + backoff(SERVERS, attempts)
            if loop.time() + pause >= until:
                raise ServerAway(f"{server} does not answer: {describe(error)}", hint) from error
            said = describe(error)
            awaited.away(said.partition(": ")[2] or said)
            await asyncio.sleep(pause)
