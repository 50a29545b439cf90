"""Why a stage stands still, and when it tries again: by hand, too many dead letters, an outage."""

import asyncio
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import get_args

import structlog

from eden_memory import metrics
from eden_memory.stages.controls import Pause, PauseKind
from eden_memory.stages.dead_letter_rate import DeadRate
from eden_memory.stages.failure_decisions import Failure, backoff
from eden_memory.stages.lanes import Lanes, Queued
from eden_memory.stages.outage import Outage
from eden_memory.stages.stage import RetryPolicy

log = structlog.get_logger()
PROBES = RetryPolicy(first=1.0, cap=30.0)
"""How long a stage waits between two probes of an outage."""
DEAD_LETTER_PROBE = 60.0
"""Seconds between two probes of a stage that paused because of its dead letters."""


class Standing:
    """The pauses of one stage in this process; the lanes stand still while there is any.

    A pause by hand ends by hand. An outage ends with the first success, a pause for dead letters with the
    first record that is finished otherwise: until then one unit at a time is let through as a probe.
    """

    def __init__(
        self,
        stage: str,
        dead_share: float,
        clock: Callable[[], datetime],
        *,
        announce: Callable[[Pause | None], None] = lambda _: None,
        finished: Callable[[Queued, bool], None] = lambda _item, _dead: None,
        probes: RetryPolicy = PROBES,
    ) -> None:
        self._stage = stage
        self._clock = clock
        self._outage = Outage()
        self._rate = DeadRate(dead_share)
        self._announce = announce
        self._on_finished = finished
        self.probes = probes
        self._pauses: dict[PauseKind, Pause] = {}
        self._seen: set[PauseKind] = set()
        self._lanes: Lanes | None = None
        self._prober: asyncio.Task[None] | None = None
        for kind in get_args(PauseKind):
            metrics.STAGE_PAUSED.labels(stage, kind).set(0)
            metrics.STAGE_PAUSES.labels(stage, kind)

    @property
    def epoch(self) -> int:
        """Rises with each success after a failure."""
        return self._outage.epoch

    def was_outage(self, epoch: int) -> bool:
        """Whether the stage as a whole was failing then."""
        return self._outage.was_one(epoch)

    @property
    def pauses(self) -> Mapping[PauseKind, Pause]:
        """The pauses in force, by kind."""
        return self._pauses

    def control(self, lanes: Lanes) -> None:
        """Stop and start these lanes from now on."""
        self._lanes = lanes

    def attempt_failed(self, unit: str, failure: Failure) -> bool:
        """Note a failed attempt; False if it does not count, because the stage as a whole is failing."""
        if self._outage.failed(unit, failure.reason):
            self.put(Pause(self._stage, "outage", failure.reason, self._clock()))
        return self._outage.reason is None

    def attempt_succeeded(self) -> None:
        """Note that a handler returned: an outage is over."""
        if self._outage.succeeded():
            self.lift("outage")

    def finished(self, item: Queued, *, dead: bool, redelivered: bool = False) -> None:
        """Note a finished record; too many dead ones pause the stage.

        A redelivered one was decided before, perhaps by a process since mended: it neither pauses nor resumes.
        """
        self._on_finished(item, dead)
        if "outage" in self._pauses and (self._lanes is None or self._lanes.idle):
            self.attempt_succeeded()  # nothing is left that could fail
        if redelivered:
            return
        if "dead-letters" in self._pauses:
            if not dead:
                self._announce(None)
                self.lift("dead-letters")
        elif self._rate.finished(dead):
            reason = f"more than {self._rate.share:.0%} of the last records were dead-lettered"
            pause = Pause(self._stage, "dead-letters", reason, self._clock())
            self._announce(pause)
            self.put(pause)

    def put(self, pause: Pause) -> None:
        """Put a pause in force."""
        if pause.kind in self._pauses:
            return
        self._pauses[pause.kind] = pause
        metrics.STAGE_PAUSED.labels(self._stage, pause.kind).set(1)
        metrics.STAGE_PAUSES.labels(self._stage, pause.kind).inc()
        log.warning("stage paused", stage=self._stage, kind=pause.kind, reason=pause.reason)
        if self._lanes is not None:
            self._lanes.pause()
        if self._prober is None or self._prober.done():
            self._prober = asyncio.create_task(self._probe())

    def lift(self, kind: PauseKind) -> None:
        """Lift a pause; with the last one the lanes go on."""
        if self._pauses.pop(kind, None) is None:
            return
        metrics.STAGE_PAUSED.labels(self._stage, kind).set(0)
        if kind == "dead-letters":
            self._rate.clear()
        log.info("stage resumed", stage=self._stage, kind=kind)
        if not self._pauses and self._lanes is not None:
            self._lanes.resume()

    def replace(self, asked: Mapping[PauseKind, Pause]) -> None:
        """Take over what is asked for from outside; outages are this process's own."""
        for kind in ("hand", "dead-letters"):
            if kind in asked:
                self._seen.add(kind)
                self.put(asked[kind])
            elif kind in self._seen:  # else it is our own, and not written yet
                self._seen.discard(kind)
                self.lift(kind)

    def written(self, kind: PauseKind) -> None:
        """A pause of our own can be read by all now: it ends where it is not asked for any more."""
        self._seen.add(kind)

    async def stop(self) -> None:
        """End the probing, and show no pause any more: the process may live on without the stage."""
        for kind in self._pauses:
            metrics.STAGE_PAUSED.labels(self._stage, kind).set(0)
        if self._prober is not None:
            self._prober.cancel()
            await asyncio.gather(self._prober, return_exceptions=True)

    async def _probe(self) -> None:
        attempts = 0
        while self._pauses:
            attempts += 1
            slow = "outage" not in self._pauses
            await asyncio.sleep(DEAD_LETTER_PROBE if slow else max(0.1, backoff(self.probes, attempts)))
            if self._pauses and "hand" not in self._pauses and self._lanes is not None:
                self._lanes.probe()
