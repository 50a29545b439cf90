"""One unit from records to confirmed events: decode, look up, decide once, store, publish, finish."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol, TypeVar

import structlog

from eden_memory.domain.ledger import Ledger
from eden_memory.domain.outcome import Outcome, OutcomeTooLarge, Reread, StoredRecord
from eden_memory.domain.stage import Dead, Decision, Delivery, Outgoing, Retry, RetryPolicy, Stage
from eden_memory.runtime.codec import Encoder, TopicOf, delivery, kind_of
from eden_memory.runtime.dead_letters import Cause, dead_letter
from eden_memory.runtime.failures import Failure, Kind, attempts_allowed, backoff, classify, delay
from eden_memory.runtime.lanes import Again, Queued, Unit
from eden_memory.runtime.records import Record
from schemas.envelope import Envelope, EnvelopeError
from schemas.registry import Registry, SchemaViolation

log = structlog.get_logger()
T = TypeVar("T")
SERVERS = RetryPolicy(first=0.1, cap=5.0)
"""How storing and publishing are repeated, without end: what was decided is paid for."""
REREADS = 20


class Publishing(Protocol):
    """What sends records and returns when they are confirmed."""

    async def publish(self, records: Sequence[StoredRecord]) -> None:
        """Send in order and wait; raises if a record is refused."""
        ...


class Watching(Protocol):
    """What hears how units end, so that it can pause the stage."""

    @property
    def epoch(self) -> int:
        """Rises with each outage: failed attempts of an earlier epoch do not count."""
        ...

    def attempt_failed(self, unit: str, failure: Failure) -> bool:
        """An attempt failed; False if the stage as a whole is failing, so that it does not count."""
        ...

    def attempt_succeeded(self) -> None:
        """A handler returned."""
        ...

    def finished(self, item: Queued, *, dead: bool) -> None:
        """Nothing is left to do for a record."""
        ...


@dataclass(frozen=True, slots=True)
class Tools:
    """What a stage's units are worked on with."""

    topic_of: TopicOf
    registry: Registry
    publisher: Publishing
    ledger: Ledger | None
    clock: Callable[[], datetime]
    group: str


@dataclass(slots=True)
class _Read:
    item: Queued
    delivery: Delivery | None
    """None: a type of this topic that the stage does not read."""
    member: str


class Deciding:
    """Works on the units of one stage; what it returns to the lanes is whether and when to try again."""

    def __init__(self, stage: Stage, tools: Tools, watching: Watching) -> None:
        self._stage = stage
        self._tools = tools
        self._watching = watching
        self._reads = {event.NAME for event in stage.reads}
        self._encoder = Encoder(stage.name, tools.topic_of)
        self._ledger = tools.ledger if stage.decides else None

    async def __call__(self, unit: Unit) -> Again | None:
        """Work on a unit; it never raises but for a defect of the runtime."""
        read = await self._readable(unit)
        if read is None:
            return None
        known = await self._known(unit, read)
        if known:
            await self._publish_known(unit, known)
            return None
        wanted = [one.delivery for one in read if one.delivery is not None]
        if not wanted:
            return self._finish(unit)
        return await self._decide(unit, read, wanted)

    async def _readable(self, unit: Unit) -> list[_Read] | None:
        """The unit up to its first unreadable record; None if that was the first, and is dead-lettered."""
        read: list[_Read] = []
        for index, item in enumerate(unit.items):
            try:
                read.append(self._read(item))
            except (EnvelopeError, SchemaViolation) as error:
                if index > 0:
                    unit.keep(index)
                    return read
                unit.keep(1)
                await self._give_up_unread(unit, Failure(Kind.PERMANENT, str(error), error))
                return None
        return read

    def _read(self, item: Queued) -> _Read:
        if item.epoch != self._watching.epoch:
            item.epoch, item.attempts = self._watching.epoch, 0
        envelope = Envelope.of_headers(item.record.headers)
        member = f"{envelope.id}#{item.retry}" if item.retry else envelope.id
        if envelope.name not in self._reads and envelope.name in self._tools.registry.events:
            return _Read(item, None, member)
        attempt = item.attempts + 1
        seen = delivery(item.record, envelope, self._tools.registry.decode, attempt=attempt, retry=item.retry)
        return _Read(item, seen, member)

    async def _known(self, unit: Unit, read: list[_Read]) -> list[Outcome]:
        """The outcomes of the unit's first records if those were decided before; the unit is cut to fit."""
        if self._ledger is None:
            return []
        members = [one.member for one in read if one.delivery is not None]
        if not members:
            return []
        ledger = self._ledger
        found = await _until_done(lambda: ledger.find(self._stage.name, members))
        if not found:
            return []
        decided = [one.delivery is None or one.member in found for one in read]
        unit.keep(_alike(decided))
        del read[len(unit.items) :]
        if not decided[0]:
            return []
        outcomes = (found[one.member] for one in read if one.delivery is not None)
        return list({outcome.key: outcome for outcome in outcomes}.values())

    async def _publish_known(self, unit: Unit, known: Sequence[Outcome]) -> None:
        for outcome in known:
            await self._publish(unit, outcome.records)
        self._finish(unit, dead=any(outcome.dead for outcome in known))

    async def _decide(self, unit: Unit, read: list[_Read], wanted: list[Delivery]) -> Again | None:
        if self._stage.together_first is not None and len(wanted) > 1:
            wanted = self._cut(unit, read, wanted)
        result = await self._handled(wanted)
        if isinstance(result, Failure):
            return await self._failed(unit, read, result)
        self._watching.attempt_succeeded()
        if isinstance(result, Dead):
            return await self._failed(unit, read, Failure(Kind.PERMANENT, result.reason))
        acted_on = await self._acted_on(wanted[0]) if unit.items[0].retry else ()
        try:
            outcome = self._outcome(unit, read, wanted, result, acted_on)
        except Exception as error:  # noqa: BLE001 - what the handler returned cannot be written
            return await self._failed(unit, read, Failure.of(error))
        try:
            return await self._settle(unit, read, outcome)
        except OutcomeTooLarge as error:
            return await self._failed(unit, read, Failure.of(error))

    async def _handled(self, wanted: Sequence[Delivery]) -> Decision | Dead | Failure:
        """Call the handler; whatever it raises is a value from here on."""
        try:
            async with asyncio.timeout(self._stage.timeout):
                result = await self._stage.handler(wanted)
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            return Failure(Kind.BUG, "the handler was cancelled from inside", error)
        except Exception as error:  # noqa: BLE001 - the runtime's edge: it becomes a decision
            return Failure.of(error)
        if isinstance(result, Retry):
            return Failure(Kind.TRANSIENT, result.reason, None, result.after, result.split, asked=True)
        return result if isinstance(result, Decision | Dead) else Decision(result)

    def _cut(self, unit: Unit, read: list[_Read], wanted: list[Delivery]) -> list[Delivery]:
        """Keep what belongs together, as the stage judges; the rest goes back to the lane."""
        assert self._stage.together_first is not None
        count = max(1, self._stage.together_first(wanted))
        if count >= len(wanted):
            return wanted
        positions = [index for index, one in enumerate(read) if one.delivery is not None]
        unit.keep(positions[count])
        del read[positions[count] :]
        return wanted[:count]

    def _outcome(
        self,
        unit: Unit,
        read: list[_Read],
        wanted: list[Delivery],
        decision: Decision,
        acted_on: Sequence[str],
    ) -> Outcome:
        retry = unit.items[0].retry
        events = [one for one in decision.events if kind_of(one) not in acted_on]
        first = next(one.member for one in read if one.delivery is not None)
        records = self._encoder.records(events, wanted, retry)
        key = decision.key if decision.key is not None else first
        kinds = tuple(dict.fromkeys(kind_of(one) for one in events))
        return self._stored(unit, read, key, records, decision.writes, kinds, None)

    async def _acted_on(self, dead: Delivery) -> tuple[str, ...]:
        """Names of the events published in place of a dead step's result: later stages have used them."""
        ledger = self._ledger
        if ledger is None:
            return ()
        found = await _until_done(lambda: ledger.find(self._stage.name, [dead.id]))
        return found[dead.id].kinds if dead.id in found else ()

    def _stored(
        self,
        unit: Unit,
        read: Sequence[_Read],
        key: str,
        records: tuple[StoredRecord, ...],
        writes: tuple[str, ...],
        kinds: tuple[str, ...],
        dead: str | None,
    ) -> Outcome:
        last = unit.items[-1].record
        return Outcome(
            key=f"{self._stage.name}:{key}",
            stage=self._stage.name,
            members=tuple(dict.fromkeys(one.member for one in read if one.delivery is not None)),
            writes=writes,
            records=records,
            topic=last.topic,
            partition=last.partition,
            offset=last.offset,
            decided_at=self._tools.clock(),
            kinds=kinds,
            dead=dead,
        )

    async def _settle(self, unit: Unit, read: Sequence[_Read], outcome: Outcome) -> Again | None:
        """Store an outcome, publish what is stored, and finish what it covers."""
        stored = outcome
        if self._ledger is not None:
            ledger = self._ledger
            try:
                stored = await _until_done(lambda: ledger.store(outcome))
            except Reread as error:
                return await self._reread(unit, read, str(error))
            if next(one.member for one in read if one.delivery is not None) not in stored.members:
                return await self._reread(unit, read, f"{outcome.key} was decided for others")
        await self._publish(unit, stored.records)
        return self._finish_covered(unit, read, stored)

    def _finish_covered(self, unit: Unit, read: Sequence[_Read], stored: Outcome) -> Again | None:
        """Finish the records that an outcome covers; adopted, it may hold fewer than were taken."""
        covered = set(stored.members)
        for index, one in enumerate(read):
            if one.delivery is not None and one.member not in covered:
                unit.keep(index)
                break
        return self._finish(unit, dead=stored.dead is not None)

    async def _reread(self, unit: Unit, read: Sequence[_Read], reason: str) -> Again | None:
        """Another decision came first: decide anew from what is now stored, but not for ever."""
        first = unit.items[0]
        first.rereads += 1
        if first.rereads > REREADS:
            first.rereads = 0
            return await self._failed(unit, read, Failure(Kind.BUG, f"always decided elsewhere: {reason}"))
        return Again(backoff(SERVERS, first.rereads))

    async def _publish(self, unit: Unit, records: Sequence[StoredRecord]) -> None:
        """Publish until confirmed, or until the partition is another worker's: that one publishes then."""
        if not records:
            return

        async def attempt() -> None:
            if not unit.home.revoked:
                await self._tools.publisher.publish(records)

        await _until_done(attempt)

    def _finish(self, unit: Unit, *, dead: bool = False) -> None:
        for item in unit.items:
            if not item.retry:
                item.home.finish(item.record.offset, item.size)
            self._watching.finished(item, dead=dead)

    async def _failed(self, unit: Unit, read: Sequence[_Read], failure: Failure) -> Again | None:
        """Count a failed attempt, and say when the next one is, or give the unit up."""
        policy = self._stage.retry
        counts = True
        if failure.kind in (Kind.TRANSIENT, Kind.PROVIDER) and not failure.asked:
            counts = self._watching.attempt_failed(read[0].member, failure)
        attempts = unit.items[0].attempts + counts
        for item in unit.items:
            item.attempts = attempts
        if unit.home.revoked:
            return Again()
        first = unit.items[0].record
        where = f"{first.topic}/{first.partition}@{first.offset}"
        log.warning(
            "attempt failed",
            stage=self._stage.name,
            kind=str(failure.kind),
            reason=failure.reason,
            attempt=attempts,
            records=len(unit.items),
            at=where,
        )
        if attempts < attempts_allowed(policy, failure):
            return Again(delay(policy, failure, max(attempts, 1)), split=failure.split)
        if len(unit.items) > 1:
            for item in unit.items:
                item.attempts = 0
            return Again(split=True)
        return await self._give_up(unit, read, failure, attempts)

    async def _give_up(
        self, unit: Unit, read: Sequence[_Read], failure: Failure, attempts: int
    ) -> Again | None:
        """Dead-letter one record, and publish what later stages count on in its place."""
        (item,) = unit.items
        (one,) = read
        assert one.delivery is not None
        instead: Sequence[Outgoing] = ()
        records: tuple[StoredRecord, ...] = ()
        try:
            if self._stage.on_dead is not None and not item.retry:
                instead = self._stage.on_dead(one.delivery, failure.reason)
                records = self._encoder.records(instead, [one.delivery])
        except Exception as error:  # noqa: BLE001 - the dead letter matters more than what stands in its place
            log.error("on_dead failed", stage=self._stage.name, error=f"{type(error).__name__}: {error}")
        letter = self._letter(item.record, failure, attempts)
        kinds = tuple(dict.fromkeys(kind_of(event) for event in instead))
        outcome = self._stored(unit, read, one.member, (letter, *records), (), kinds, failure.reason)
        return await self._settle(unit, read, outcome)

    async def _give_up_unread(self, unit: Unit, failure: Failure) -> None:
        """Dead-letter what cannot even be read; there is no id to store an outcome under."""
        item = unit.items[0]
        await self._publish(unit, [self._letter(item.record, failure, item.attempts + 1)])
        self._finish(unit, dead=True)

    def _letter(self, record: Record, failure: Failure, attempts: int) -> StoredRecord:
        log.error(
            "dead letter",
            stage=self._stage.name,
            reason=failure.reason,
            attempts=attempts,
            at=f"{record.topic}/{record.partition}@{record.offset}",
        )
        cause = Cause(self._stage.name, self._tools.group, failure, attempts, self._tools.clock())
        return dead_letter(record, cause)


def _alike(flags: Sequence[bool]) -> int:
    """How many of the first flags are the same."""
    return next((index for index, flag in enumerate(flags) if flag is not flags[0]), len(flags))


async def _until_done(step: Callable[[], Awaitable[T]]) -> T:
    """Repeat a step on our own servers until it works; only what no repeat can cure is raised."""
    attempts = 0
    while True:
        try:
            return await step()
        except Exception as error:
            if classify(error) is not Kind.TRANSIENT:
                raise
            attempts += 1
            log.warning(
                "server away, tried again", error=f"{type(error).__name__}: {error}", attempt=attempts
            )
            await asyncio.sleep(backoff(SERVERS, attempts))
