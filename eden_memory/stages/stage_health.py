"""Why a stage stands still, and when it tries again: by hand, too many dead letters, an outage."""

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import get_args

from eden_memory import metrics
from eden_memory.logs import LibraryLogger
from eden_memory.stages.controls import Pause, PauseKind
from eden_memory.stages.failure_decisions import Failure
from eden_memory.stages.lanes import Lanes, Queued
from eden_memory.stages.retry_waits import PROBES, SEVERAL, backoff
from eden_memory.stages.stage import RetryPolicy

log = LibraryLogger()
DEAD_LETTER_PROBE = 60.0
"""Seconds between two probes of a stage that paused because of its dead letters."""
WINDOW = 100
AT_LEAST = 10
OF_A_STAGE = {
    "running": metrics.STAGE_RUNNING,
    "pending": metrics.STAGE_PENDING,
    "oldest": metrics.STAGE_OLDEST,
    "commit_gap": metrics.STAGE_COMMIT_GAP,
    "partitions": metrics.STAGE_PARTITIONS,
    "held_back": metrics.STAGE_HELD_BACK,
}


class StageHealth:
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
        finished: Callable[[Queued], None] = lambda _item: None,
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

    def finished(self, item: Queued, *, dead: bool, counts: bool = True) -> None:
        """Note a finished record; too many dead ones pause the stage.

        `counts`: whether the record can pause or resume the stage. A redelivered one cannot, because it was decided
        before, perhaps by a process since mended; a refused one cannot, because its handler works.
        """
        self._on_finished(item)
        if "outage" in self._pauses and (self._lanes is None or self._lanes.idle):
            self.attempt_succeeded()  # nothing is left that could fail
        if not counts:
            return
        if "dead-letters" in self._pauses:
            if not dead:
                self._announce(None)
                self.lift("dead-letters")
        elif self._rate.finished(dead, item.session):
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
            if self._lanes is not None:
                self._lanes.unawaited.add(self._prober)

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


class Outage:
    """Counts distinct units that failed since the last success of any.

    `epoch` rises with each success after a failure. What a unit failed in an epoch that turned out to be an outage
    counts as one attempt: a provider that is away costs no record, and what always fails ends all the same.
    """

    def __init__(self, several: int = SEVERAL) -> None:
        self._several = several
        self._failing: set[str] = set()
        self._outages: set[int] = set()
        self.epoch = 0
        self.reason: str | None = None
        """Why the stage is down; None while it is not."""

    def failed(self, unit: str, reason: str) -> bool:
        """Note a failed attempt; True if with it an outage begins."""
        self._failing.add(unit)
        if self.reason is not None or len(self._failing) < self._several:
            return False
        self._outages.add(self.epoch)
        self.reason = reason
        return True

    def succeeded(self) -> bool:
        """Note a success of any unit; True if it ends an outage."""
        ended = self.reason is not None
        self.epoch += bool(self._failing)
        self._failing.clear()
        self.reason = None
        return ended

    def was_one(self, epoch: int) -> bool:
        """Whether that epoch was an outage."""
        return epoch in self._outages


class DeadRate:
    """The share of dead letters among the last `window` finished records; those of one session count once."""

    def __init__(self, share: float, window: int = WINDOW, at_least: int = AT_LEAST) -> None:
        self.share = share
        self._at_least = at_least
        self._last: deque[object] = deque(maxlen=window)
        """Of a dead record what it counts as; None for the others."""

    def finished(self, dead: bool, session: str = "") -> bool:
        """Note a finished record; True if with it too many are dead (and at least `at_least`).

        `session`: whose answers could not be read, if it is dead for that reason.
        """
        self._last.append((session or object()) if dead else None)
        counted = len(set(self._last) - {None}) if dead else 0
        return counted >= self._at_least and counted > self.share * len(self._last)

    def clear(self) -> None:
        """Forget what was, as after a pause."""
        self._last.clear()


class StageGauges:
    """Those of one stage; they are there from the first `show` on."""

    def __init__(self, stage: str) -> None:
        self._stage = stage
        self._found: dict[str, Callable[[float], None]] = {}

    def show(self, waiting: Mapping[str, int], **now: float) -> None:
        """`waiting`: records by reason; the others by their names in `OF_A_STAGE`."""
        found = self._found
        if not found:
            found |= {reason: metrics.STAGE_WAITING.labels(self._stage, reason).set for reason in waiting}
            found |= {name: OF_A_STAGE[name].labels(self._stage).set for name in now}
        for name, number in waiting.items():
            found[name](number)
        for name, number in now.items():
            found[name](number)
