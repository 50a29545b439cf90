"""One stage in one process: records in from Kafka, through the lanes, events out, offsets committed."""

import asyncio
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from aiokafka import TopicPartition
from aiokafka.errors import KafkaError

from eden_memory import metrics
from eden_memory.errors import describe
from eden_memory.kafka import KafkaArguments
from eden_memory.kafka.record import Record, as_record
from eden_memory.logs import LibraryLogger
from eden_memory.schemas.registry import Registry
from eden_memory.stages.codec import TopicOf
from eden_memory.stages.controls import MongoControls, MongoGroupNotes, Pause, PauseKind
from eden_memory.stages.dead_letter_store import DeadLetters
from eden_memory.stages.dead_retries import DeadRetries
from eden_memory.stages.deciding import Deciding
from eden_memory.stages.handler_run import UsageLog
from eden_memory.stages.lanes import Lanes, Queued, Slots
from eden_memory.stages.membership import LEAVE_SECONDS, Fetched, Membership
from eden_memory.stages.outcome import Ledger, Publishing
from eden_memory.stages.outcome_publishing import EndPublished
from eden_memory.stages.patience import REFUSALS, until_done
from eden_memory.stages.process import State
from eden_memory.stages.stage import Stage
from eden_memory.stages.stage_health import StageGauges, StageHealth
from eden_memory.tasks import end, run_until_first, until_tick

log = LibraryLogger()
LAST_SECONDS = 2.0
"""For leaving a group, however short the deadline is, and for what a stage says to its other copies as it ends."""


REPORT_SECONDS = 5.0
"""The least time between two different reports of a stage for `eden status`."""
RENEW_SECONDS = 30.0
"""So often it is reported again while it lasts."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """How much of one partition waits in memory, and how often things are done."""

    records: int = 2_000
    bytes: int = 16_000_000
    poll_records: int = 500
    poll_seconds: float = 0.2
    """So often it is seen whether a partition that is not fetched may be fetched again."""
    idle_seconds: float = 3.0
    """So long a poll waits for records while all partitions are fetched; what comes ends the wait."""
    commit_seconds: float = 1.0
    stop_seconds: float = 25.0
    """Seconds for units to end that run when the stage is told to stop."""
    dead_share: float | None = None
    retry_cap: float | None = None
    """Stage.dead_share and RetryPolicy.cap of every stage; None: as its row says."""

    def apply(self, stage: Stage) -> Stage:
        """The row of a stage under these bounds."""
        share = stage.dead_share if self.dead_share is None else self.dead_share
        cap = stage.retry.cap if self.retry_cap is None else self.retry_cap
        return replace(stage, dead_share=share, retry=replace(stage.retry, cap=cap))


@dataclass(frozen=True, slots=True)
class Surroundings:
    """Clients, stores and bounds that all stages of a process share."""

    kafka: KafkaArguments
    """Connection arguments of aiokafka."""
    topic_of: TopicOf
    group_of: Callable[[str], str]
    registry: Registry
    publisher: Publishing
    ledger: Ledger
    notes: MongoGroupNotes
    controls: MongoControls
    slots: Slots
    letters: DeadLetters
    usage: UsageLog | None = None
    """Publishes the model calls of attempts that came to no decision; None where no stage asks a model."""
    end_published: EndPublished | None = None
    """Ends what was forgotten while it was decided; None where nothing that a stage publishes is ever forgotten."""
    bounds: Bounds = Bounds()
    clock: Callable[[], datetime] = lambda: datetime.now(UTC)


class Worker:
    """A stage's consumer. `run` returns when it was told to stop, and raises when it cannot go on."""

    def __init__(self, stage: Stage, around: Surroundings) -> None:
        self.stage = stage = around.bounds.apply(stage)
        self._around = around
        self._bounds = around.bounds
        self._most = max(around.bounds.records, 2 * stage.batch)
        self.health = StageHealth(
            stage.name, stage.dead_share, around.clock, announce=self._announce, finished=self._finished
        )
        self.lanes = Lanes(
            Deciding(stage, around, self.health),
            at_once=stage.at_once,
            together=stage.batch or stage.together,
            records_at_once=stage.records_at_once,
            slots=around.slots,
        )
        self.health.control(self.lanes)
        topics = list(dict.fromkeys(around.topic_of(event) for event in stage.reads))
        self.membership = Membership(
            around.kafka,
            around.group_of(stage.name),
            topics,
            around.notes,
            self.lanes.drop_revoked,
            self._on_assigned,
            rest=stage.rest,
            noted=stage.noted,
        )
        self._retries = DeadRetries(around.letters, stage.name, self._queue_retry)
        self._stopping = asyncio.Event()
        self._held_back: set[TopicPartition] = set()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._controlled = asyncio.Lock()
        self._gauges = StageGauges(stage.name)
        self._reported: str | None = None
        self._reported_at = -math.inf

    async def run(self, deadline: float | None = None) -> None:
        """Work until `stop`; then commit, leave the group, and give what runs `deadline` seconds."""
        try:
            await self.membership.start()
            log.info("stage runs", stage=self.stage.name)
            work = (self._poll(), self._commit_regularly(), self._follow_controls())
            await run_until_first(self.lanes.unawaited.failed, self._stopping, *work)
            self.lanes.unawaited.check()
        finally:  # the group is left also where this is interrupted
            await self._end(self._bounds.stop_seconds if deadline is None else deadline)

    @property
    def name(self) -> str:
        """The stage's name."""
        return self.stage.name

    def stop(self) -> None:
        """End `run`."""
        self._stopping.set()

    def state(self) -> State:
        """Ready while it holds partitions and nothing keeps it from working; it may have much to catch up with."""
        held = len(self.membership.homes)
        waiting = f"{self.lanes.running} running, {self.lanes.queued} waiting"
        what = f"{held} partitions, {waiting}, {_caught_up(self.membership.behind())}"
        pauses = "; ".join(f"{pause.kind}, {pause.reason}" for pause in self.health.pauses.values())
        if pauses:  # an outage ends by itself: another process would do no better
            return State(held > 0 and set(self.health.pauses) == {"outage"}, f"paused: {pauses}; {what}")
        if REFUSALS.reason is not None:
            return State(False, f"refused: {REFUSALS.reason}; {what}")
        if alone := _alone(self.lanes.waiting_alone()):
            what += f"; {alone}"
        return State(held > 0, what if held else "no partition assigned")

    async def _end(self, deadline: float) -> None:
        """Leaving the group and finishing what runs take `deadline` seconds together, whoever is away."""
        clock = asyncio.get_running_loop().time
        until = clock() + deadline
        try:
            await self.membership.leave(min(LEAVE_SECONDS, max(deadline, LAST_SECONDS)))
            finished = await self.lanes.stop(max(0.0, until - clock()))
        finally:
            await self.lanes.stop(0.0)  # whoever cancels a stage that is late leaves nothing of it behind
        await self.health.stop()
        if self._around.usage is not None:
            await self._around.usage.flush(max(LAST_SECONDS, until - clock()))
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=LAST_SECONDS)
        await end(self._tasks)
        self._measure()
        log.info("stage stopped", stage=self.stage.name, all_finished=finished)

    async def _poll(self) -> None:
        while True:
            seconds = self._bounds.poll_seconds if self._held_back else until_tick(self._bounds.idle_seconds)
            fetched = await self.membership.fetch(seconds, self._bounds.poll_records, self._held_back)
            for tp, records in fetched.items():
                self._take(tp, records)
            self._balance()

    def _take(self, tp: TopicPartition, records: Fetched) -> None:
        home = self.membership.homes.get(tp)
        if home is None:
            return
        taken: list[Queued] = []
        for fetched in records:
            record = as_record(fetched)
            size = record.size
            if home.take(record.offset, size):
                taken.append(Queued(record, home, size))
        if self.stage.batch and taken:
            self.lanes.add(self._lane(taken[0].record), *taken)
            return
        for item in taken:
            self.lanes.add(self._lane(item.record), item)

    def _lane(self, record: Record) -> bytes:
        return b"%d" % record.partition if self.stage.batch else record.ordering_key

    def _balance(self) -> None:
        """Fetch no more of a partition whose bound is full, until half of it is free again."""
        for tp, home in self.membership.homes.items():
            full = home.count >= self._most or home.bytes >= self._bounds.bytes
            half = home.count <= self._most // 2 and home.bytes <= self._bounds.bytes // 2
            if full:
                self._held_back.add(tp)
            elif half:
                self._held_back.discard(tp)

    async def _commit_regularly(self) -> None:
        while True:
            await asyncio.sleep(until_tick(self._bounds.commit_seconds))
            self._measure()
            self._report()
            try:
                await self.membership.commit()
            except KafkaError as error:
                log.warning("not committed", stage=self.stage.name, error=describe(error))

    def _measure(self) -> None:
        homes = list(self.membership.homes.values())
        self._gauges.show(
            self.lanes.waiting(),
            running=self.lanes.running,
            pending=sum(home.count for home in homes),
            oldest=max((home.oldest() for home in homes), default=0.0),
            commit_gap=sum(home.gap for home in homes),
            partitions=len(homes),
            held_back=len(self._held_back),
        )

    def _report(self) -> None:
        """Say for `eden status` why the stage, or some of its records, do not go on."""
        outage = self.health.pauses.get("outage")
        still = f"stands still (outage): {outage.reason}" if outage else None
        trouble = still or _alone(self.lanes.waiting_alone())
        since = time.monotonic() - self._reported_at
        if since >= (REPORT_SECONDS if trouble != self._reported else RENEW_SECONDS if trouble else math.inf):
            self._reported, self._reported_at = trouble, time.monotonic()
            self._spawn(self._around.controls.report(self.name, trouble))

    def _on_assigned(self) -> None:
        self._held_back.clear()
        metrics.STAGE_REBALANCES.labels(self.name).inc()
        self._spawn(until_done(lambda: self._retries.look(self.membership.homes)))

    async def _follow_controls(self) -> None:
        async for _ in self._around.controls.changes():
            await until_done(self._obey)

    async def _obey(self) -> None:
        async with self._controlled:
            pauses = await self._around.controls.pauses()
            asked: Mapping[PauseKind, Pause] = {
                pause.kind: pause for pause in pauses if pause.stage == self.stage.name
            }
            self.health.replace(asked)
        await self._retries.look(self.membership.homes)

    def _announce(self, pause: Pause | None) -> None:
        """Let the stage's other copies stand still, or go on, with this one."""
        self._spawn(until_done(lambda: self._tell_copies(pause)))

    async def _tell_copies(self, pause: Pause | None) -> None:
        async with self._controlled:  # what is read next was read after this
            if pause is None:
                await self._around.controls.resume(self.stage.name, "dead-letters")
            else:
                await self._around.controls.pause(pause)
                self.health.written(pause.kind)

    def _queue_retry(self, item: Queued) -> None:
        self.lanes.add(self._lane(item.record), item)

    def _finished(self, item: Queued) -> None:
        if item.retry:
            self._spawn(until_done(lambda: self._retries.finished(item, item.given_up)))

    def _spawn(self, work: Any) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.warning("control not carried out", stage=self.stage.name, error=describe(error))


def _alone(reasons: Sequence[str]) -> str | None:
    """Describe units that wait alone."""
    if not reasons:
        return None
    return f"goes on, but {len(reasons)} of its records wait for another attempt: {reasons[0]}"


def _caught_up(behind: int | None) -> str:
    if behind is None:
        return "how far behind is not known yet"
    return f"{behind} behind" if behind else "caught up"
