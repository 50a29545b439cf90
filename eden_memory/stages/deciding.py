"""One unit from records to confirmed events: decode, look up, decide once, store, publish, finish."""

import asyncio
import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Literal

from eden_memory import metrics
from eden_memory.logs import LibraryLogger
from eden_memory.schemas.documents import DeadLetter, GivenUp
from eden_memory.schemas.events import ModelCalled
from eden_memory.stages.codec import Encoder, Read, Reader, kind_of, members, wanted
from eden_memory.stages.dead_letters import dead_letter
from eden_memory.stages.failure_decisions import Failure, Kind, attempts_allowed, delay, given_up
from eden_memory.stages.handler_run import HandlerRun, KeptElsewhere
from eden_memory.stages.lanes import Again, Queued, Unit
from eden_memory.stages.outcome import OutcomeTooLarge, Reread, StageOutcome
from eden_memory.stages.outcome_publishing import OutcomePublishing
from eden_memory.stages.patience import SERVERS, until_done
from eden_memory.stages.retry_waits import backoff
from eden_memory.stages.stage import Dead, Decision, Delivery, Emit, Emitted, Gather, Result, Retry, Stage
from eden_memory.stages.stage_health import StageHealth
from eden_memory.tasks import Deadline
from eden_memory.telemetry.spans import Processing

if TYPE_CHECKING:
    from eden_memory.stages.worker import Surroundings

log = LibraryLogger()
RECORD_LIMIT = 4_000_000
REREADS = 20
"""How often a decision is made anew because another one was stored first, before that counts as a failure."""


class Deciding:
    """Works on the units of one stage; returns to the lanes whether and when to try again."""

    def __init__(self, stage: Stage, around: "Surroundings", health: StageHealth) -> None:
        self._stage = stage
        self._around = around
        self._group = around.group_of(stage.name)
        self._health = health
        self._reader = Reader(stage, around.registry, health)
        self._encoder = Encoder(stage.name, around.topic_of)
        self._publish = OutcomePublishing(stage, self._encoder, around)
        self._ledger = around.ledger if stage.decides else None
        self._letters, self._origin = around.letters, around.letters.origin(stage.name)
        self._finished = {
            how: metrics.STAGE_RECORDS.labels(stage.name, how) for how in ("decided", "dead", "skipped")
        }
        self._handler_seconds = metrics.STAGE_HANDLER.labels(stage.name)
        self._tells = log.is_enabled_for(logging.DEBUG)
        self._republished = metrics.STAGE_REPUBLISHED.labels(stage.name)
        self._failures = {kind: metrics.STAGE_FAILED.labels(stage.name, str(kind)) for kind in Kind}

    async def __call__(self, unit: Unit) -> Again | None:
        """Work on a unit; it never raises but for a defect of the runtime."""
        read = self._reader.unit(unit)
        if isinstance(read, Failure):
            return await self._give_up_unread(unit, read)
        known = await self._known(unit, read)
        if known:
            await self._publish_known(unit, read, known)
            return None
        if not wanted(read):
            return self._finish(unit, "skipped")
        self._cut(unit, read)
        offset = unit.items[0].record.offset
        with Processing(self._stage.name, self._group, wanted(read), offset) as span:
            result = await self._handled(wanted(read))
            if isinstance(result, Gather):
                span.drop()
                return self._gather(read, result)
            if isinstance(result, Dead | Failure):
                span.failed("dead" if isinstance(result, Dead) else str(result.kind))
            return await self._conclude(unit, read, result)

    async def _known(self, unit: Unit, read: list[Read]) -> list[StageOutcome]:
        """The outcomes of the unit's first records if those were decided before; the unit is cut to fit."""
        ledger, asked = self._ledger, members(read)
        if ledger is None or not asked:
            return []
        found = await until_done(lambda: ledger.find(self._stage.name, asked))
        if not found:
            return []
        decided = [record.delivery is None or record.member in found for record in read]
        unit.keep(_alike(decided))
        del read[len(unit.items) :]
        if not decided[0]:
            return []
        outcomes = (found[record.member] for record in read if record.delivery is not None)
        return list({outcome.key: outcome for outcome in outcomes}.values())

    async def _publish_known(self, unit: Unit, read: Sequence[Read], known: Sequence[StageOutcome]) -> None:
        for outcome in known:
            await self._bury(_by_member(read), outcome.letters)
            await self._publish.decided(unit, wanted(read), outcome)
            self._republished.inc()
        how = "dead" if any(outcome.dead for outcome in known) else "decided"
        self._finish(unit, how, redelivered=True)

    def _gather(self, read: Sequence[Read], asked: Gather) -> Again:
        """Leave the unit in its lane until more comes; what is decoded stays so."""
        for record in read:
            record.item.given = record.delivery
        return Again(asked.seconds, gather=True)

    async def _handled(self, deliveries: Sequence[Delivery]) -> Decision | Gather | Dead | Failure:
        """Call the handler; whatever it raises is a value from here on. A decision carries its model calls."""
        begun, deadline = time.perf_counter(), Deadline(self._stage.timeout)
        run = HandlerRun(deadline.stopped)
        result: Decision | Gather | Dead | Failure = Failure(Kind.BUG, "the handler has not returned")
        try:
            async with deadline, run:
                result = _as_value(await self._stage.handler(deliveries))
        except KeptElsewhere as error:
            result = Failure(Kind.TRANSIENT, str(error), after=0.0, asked=True)
        except asyncio.CancelledError as error:
            result, task = (
                Failure(Kind.BUG, "the handler was cancelled from inside", error),
                asyncio.current_task(),
            )
            if task is None or task.cancelling():
                raise
        except Exception as error:  # noqa: BLE001 - the runtime's edge: it becomes a decision
            result = Failure.of(error)
        finally:
            if not isinstance(result, Gather):
                self._handler_seconds.observe(time.perf_counter() - begun)
            if self._around.usage is not None and not isinstance(result, Decision):
                self._around.usage.add(run.calls)
        if isinstance(result, Decision) and run.calls:
            return replace(result, events=[*result.events, *map(_model_call, run.calls)])
        return result

    async def _conclude(
        self, unit: Unit, read: list[Read], result: Decision | Dead | Failure
    ) -> Again | None:
        """Store and publish a decision; a failure is tried again or given up."""
        if isinstance(result, Failure):
            return await self._failed(unit, read, result)
        self._health.attempt_succeeded()
        if isinstance(result, Dead):
            return await self._failed(unit, read, Failure(Kind.PERMANENT, result.reason))
        acted_on = await self._acted_on(wanted(read)[0]) if unit.items[0].retry else ()
        if result.covers is not None:
            _keep(unit, read, result.covers)
        try:
            outcome = self._outcome(unit, read, result, acted_on)
        except Exception as error:  # noqa: BLE001 - what the handler returned cannot be written
            return await self._failed(unit, read, Failure.of(error))
        try:
            again = await self._settle(unit, read, outcome, result.events)
        except OutcomeTooLarge as error:
            return await self._failed(unit, read, Failure.of(error))
        if again is None and result.published is not None and not unit.home.revoked:
            result.published()
        return again

    def _cut(self, unit: Unit, read: list[Read]) -> None:
        """Keep what belongs together, as the stage judges; the rest goes back to the lane."""
        if self._stage.together_first is not None and len(wanted(read)) > 1:
            _keep(unit, read, self._stage.together_first(wanted(read)))

    def _outcome(
        self, unit: Unit, read: list[Read], decision: Decision, acted_on: Sequence[str]
    ) -> StageOutcome:
        events = [event for event in decision.events if kind_of(event) not in acted_on]
        records = self._encoder.records(events, wanted(read), unit.items[0].retry)
        longest = max((record.size for record in records), default=0)
        if longest > RECORD_LIMIT:
            raise OutcomeTooLarge(f"an event of {longest} bytes, {RECORD_LIMIT} are allowed")
        outcome = self._bare(unit, members(read), decision.key or members(read)[0])
        return replace(
            outcome,
            records=records,
            letters=self._refuse(read, decision.refused),
            writes=decision.writes,
            kinds=tuple(dict.fromkeys(kind_of(event) for event in events)),
            in_parts=self._stage.in_parts,
        )

    def _refuse(self, read: Sequence[Read], refused: Mapping[str, str]) -> tuple[GivenUp, ...]:
        """Give up the records that the handler refused."""
        letters: list[GivenUp] = []
        for record in read:
            if record.delivery is not None and record.delivery.id in refused:
                record.item.refused = True
                reason = Failure(Kind.PERMANENT, refused[record.delivery.id], asked=True)
                letters.append(self._given_up(record.item, record.member, reason, record.item.attempts + 1))
        return tuple(letters)

    async def _acted_on(self, dead: Delivery) -> tuple[str, ...]:
        """Names of the events published, in its own place or beside its dead letter, that later stages count on."""
        ledger = self._ledger
        if ledger is None:
            return ()
        found = await until_done(lambda: ledger.find(self._stage.name, [dead.id]))
        counted, _ = self._publish.in_its_place(dead, Failure(Kind.PERMANENT, "sent again"))
        return tuple(kind for kind in counted if dead.id in found and kind in found[dead.id].kinds)

    def _bare(self, unit: Unit, covered: Sequence[str], key: str) -> StageOutcome:
        """An outcome of this unit that publishes nothing."""
        last, retried = unit.items[-1].record, unit.items[0].retry
        return StageOutcome(
            key=f"{self._stage.name}:{key}",
            stage=self._stage.name,
            members=tuple(covered),
            writes=(),
            records=(),
            topic=last.topic,
            partition=last.partition,
            offset=last.offset,
            decided_at=self._around.clock(),
            retry_of=covered[0].rpartition("#")[0] if retried else None,
        )

    async def _settle(
        self, unit: Unit, read: Sequence[Read], outcome: StageOutcome, events: Sequence[Emitted] = ()
    ) -> Again | None:
        """Store an outcome, publish what is stored, and finish what it covers."""
        stored = outcome
        ledger = self._ledger
        if ledger is not None and (outcome.records or outcome.letters or self._stage.keeps_empty):
            try:
                stored = await until_done(lambda: ledger.store(outcome))
            except Reread as error:
                return await self._reread(unit, read, str(error))
            if members(read)[0] not in stored.members:
                return await self._reread(unit, read, f"{outcome.key} was decided for others")
        mine = stored is outcome
        await self._bury(_by_member(read), stored.letters)
        await self._publish.decided(unit, wanted(read), stored, events if mine else None)
        if mine:
            metrics.count_decided(event.event if isinstance(event, Emit) else event for event in events)
        return self._finish_covered(unit, read, stored)

    def _finish_covered(self, unit: Unit, read: Sequence[Read], stored: StageOutcome) -> Again | None:
        """Finish the records that an outcome covers; adopted, it may hold fewer than were taken."""
        covered = set(stored.members)
        for index, record in enumerate(read):
            if record.delivery is not None and record.member not in covered:
                unit.keep(index)
                break
        return self._finish(unit, "decided" if stored.dead is None else "dead")

    async def _reread(self, unit: Unit, read: Sequence[Read], reason: str) -> Again | None:
        """Another decision came first: decide anew from what is now stored, but not for ever."""
        first = unit.items[0]
        first.rereads += 1
        if first.rereads > REREADS:
            first.rereads = 0
            return await self._failed(unit, read, Failure(Kind.BUG, f"always decided elsewhere: {reason}"))
        return Again(backoff(SERVERS, first.rereads))

    def _finish(
        self,
        unit: Unit,
        how: Literal["decided", "dead", "skipped"] = "decided",
        *,
        redelivered: bool = False,
    ) -> None:
        for item in unit.items:
            if not item.retry:
                item.home.finish(item.record.offset, item.size)
            of_question = self._stage.one_question and item is not unit.items[-1]
            dead = item.refused or (how == "dead" and not of_question)
            self._health.finished(item, dead=dead, counts=not (redelivered or item.refused))
        refused = sum(item.refused for item in unit.items)
        if refused:
            self._finished["dead"].inc(refused)
        self._finished[how].inc(len(unit.items) - refused)
        if self._tells:
            self._say(unit, how)

    def _say(self, unit: Unit, how: str) -> None:
        """A line for each finished record, for those who asked for it."""
        for item in unit.items:
            record = item.record
            at = f"{record.topic}/{record.partition}@{record.offset}"
            log.debug("finished", stage=self._stage.name, how=how, at=at, attempts=item.attempts + 1)

    async def _failed(self, unit: Unit, read: Sequence[Read], failure: Failure) -> Again | None:
        """Count a failed attempt, and say when the next one is, or give the unit up."""
        policy = self._stage.retry
        counts = True
        if failure.kind in (Kind.AWAY, Kind.TRANSIENT, Kind.PROVIDER) and not failure.asked:
            outside = failure.kind is Kind.AWAY or not failure.counts
            stage_fails = not failure.alone and not self._health.attempt_failed(read[0].member, failure)
            counts = not stage_fails and not outside
        attempts = 0 if failure.outage else unit.items[0].attempts + counts
        uncounted = unit.items[0].uncounted + 1 if failure.alone and not counts else 0
        for item in unit.items:
            item.attempts, item.uncounted = attempts, uncounted
            item.waits_for = failure.reason if failure.alone else ""
            item.session = failure.session
        if unit.home.revoked:
            return Again()
        first = unit.items[0].record
        self._failures[failure.kind].inc()
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
            return Again(delay(policy, failure, max(attempts, 1), uncounted), split=failure.split)
        if len(unit.items) > 1 and not self._stage.one_question:
            for item in unit.items:
                item.attempts = 0
            return Again(split=True)
        return await self._give_up(unit, read, failure, attempts)

    async def _give_up(
        self, unit: Unit, read: Sequence[Read], failure: Failure, attempts: int
    ) -> Again | None:
        """Dead-letter a record (of one question the last), and publish what later stages count on in its place."""
        last = [record for record in read if record.delivery is not None][-1]
        item = last.item
        letter = self._given_up(item, last.member, failure, attempts)
        kinds, records = ((), ()) if item.retry else self._publish.in_its_place(wanted(read)[0], failure)
        outcome = self._bare(unit, members(read), read[0].member)
        outcome = replace(outcome, records=records, kinds=kinds, dead=failure.reason, letters=(letter,))
        return await self._settle(unit, read, outcome)

    async def _give_up_unread(self, unit: Unit, failure: Failure) -> None:
        """Dead-letter what cannot even be read, once: it is known by its place and its bytes."""
        item = unit.items[0]
        name = item.record.fingerprint + (f"#{item.retry}" if item.retry else "")
        letter = self._given_up(item, name, failure, item.attempts + 1)
        outcome = replace(self._bare(unit, [name], name), letters=(letter,), dead=failure.reason)
        ledger = self._ledger
        stored = await until_done(lambda: ledger.store(outcome)) if ledger is not None else outcome
        await self._bury({name: item}, stored.letters)
        self._finish(unit, "dead")

    def _given_up(self, item: Queued, member: str, failure: Failure, attempts: int) -> GivenUp:
        record, why = item.record, given_up(member, failure, attempts, self._around.clock())
        metrics.DEAD_LETTERS.labels(self._stage.name, why.error).inc()
        log.error(
            "dead letter",
            stage=self._stage.name,
            reason=failure.reason,
            attempts=attempts,
            at=f"{record.topic}/{record.partition}@{record.offset}",
        )
        return why

    async def _bury(self, items: Mapping[str, Queued], given: Sequence[GivenUp]) -> None:
        """Store the dead letters of records that were given up; a retry that failed changes its letter at its end."""
        letters: list[DeadLetter] = []
        for why in given:
            if (item := items.get(why.member)) is not None:
                item.given_up = why
                if not item.retry:
                    letters.append(dead_letter(item.record, why, self._origin))
        if letters:
            await until_done(lambda: self._letters.put(letters))


def _by_member(read: Sequence[Read]) -> dict[str, Queued]:
    return {record.member: record.item for record in read if record.delivery is not None}


def _as_value(result: Result) -> Decision | Gather | Dead | Failure:
    if isinstance(result, Retry):
        return Failure(Kind.TRANSIENT, result.reason, None, result.after, result.split, asked=True)
    return result if isinstance(result, Decision | Gather | Dead) else Decision(result)


def _model_call(call: ModelCalled) -> Emit:
    """Return the same record at every repeat: its id is the call's."""
    return Emit(call, time=call.started_at, identity=f"call/{call.call_id}")


def _keep(unit: Unit, read: list[Read], count: int) -> None:
    """Keep the records up to the `count`-th (at least the first) that the stage reads; the rest waits, decoded."""
    positions = [index for index, record in enumerate(read) if record.delivery is not None]
    count = max(1, count)
    if count < len(positions):
        for record in read[positions[count] :]:
            record.item.given = record.delivery
        unit.keep(positions[count])
        del read[positions[count] :]


def _alike(flags: Sequence[bool]) -> int:
    """How many of the first flags are the same."""
    return next((index for index, flag in enumerate(flags) if flag is not flags[0]), len(flags))
