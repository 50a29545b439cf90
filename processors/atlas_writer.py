"""memory.facts, memory.reflections, memory.consolidations → MongoDB, memory.changes: the only writer; batch form.

One transaction per scope and batch. A redelivered batch changes nothing, and announces again what is there. Live
writing and rebuilding are the same (invariants one-writer, announce-after-commit and any-order-same-documents).
Marks are read before the commit and after it (invariant mark-read-write-mark). A stored fact whose newest version is
dropped is taken apart here as forgetting would: what is left of it is stated anew, and it goes with the tombstones.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence

from eden_memory.forgotten import ForgottenMarks, Marks
from eden_memory.memory.memory_batch import (
    AppliedScope,
    MemoryBatch,
    MemoryStore,
    ScopeBatch,
    commands_behind,
    erased_since,
    memory_batch,
    named_by,
)
from eden_memory.memory.projection import (
    dropped_from_store,
    earlier_versions,
    left_of_stored,
    restated,
    to_state_anew,
)
from eden_memory.memory.snapshot_projection import scope_changed, scope_of
from eden_memory.schemas.documents import Fact, FactStatement, Snapshot
from eden_memory.schemas.events import FactChanged, FactCommanded, Forgotten, ReflectionFormed
from eden_memory.stages.stage import Decision, Delivery, Emit, Emitted

ANNOUNCED_EVERY = 0.05
"""Seconds between two records about one scope."""
MOST_REMEMBERED = 10_000


class AtlasWriter:
    """`clock` in seconds, whatever its origin; it and `sleep` only space out what is announced."""

    def __init__(
        self,
        store: MemoryStore,
        forgetting: ForgottenMarks,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        memory: str = "",
    ) -> None:
        """`memory` goes into the ids of announcements: two writers over the same topics count revisions apart."""
        self._store, self._forgetting, self._memory = store, forgetting, memory
        self._clock, self._sleep = clock, sleep
        self._announced: dict[str, float] = {}

    async def __call__(self, deliveries: Sequence[Delivery]) -> Decision:
        """Write one batch of one partition, up to the first record of a scope that could not be written."""
        batch, results, late = await self._write(deliveries)
        covers = _covered(batch, results, len(deliveries))
        written = {key: applied for key, applied in results.items() if isinstance(applied, AppliedScope)}
        events = [
            event
            for key, applied in written.items()
            for event in _events(applied, batch.last[key], self._memory)
        ]
        await self._space_out(key for key, applied in written.items() if applied.snapshot is not None)
        lost = [_dropped(erase.cause) for erase in batch.erased if erase.cause and _contradicts(erase.cause)]
        erased = [*batch.erased, *commands_behind(batch.erased)]
        return Decision([*_stated_anew(batch.left), *late, *erased, *lost, *events], covers=covers)

    async def _write(
        self, deliveries: Sequence[Delivery]
    ) -> tuple[MemoryBatch, Mapping[str, AppliedScope | Exception], list[Emitted]]:
        """Write the batch, then take back what was forgotten meanwhile, until nothing more was.

        What is stored is read beside the marks, as if none were found; where some are, it is read again.
        """
        batch = memory_batch(deliveries, Marks())
        marks, stored = await asyncio.gather(
            self._marks(deliveries), self._store.load(list(batch.scopes.values()))
        )
        dropped: dict[str, tuple[Fact, Delivery]] = {}
        if marks:
            batch, stored = memory_batch(deliveries, marks), None
            dropped |= await self._dropped_from_store(batch.scopes.values())
        results = await self._store.apply(list(batch.scopes.values()), stored)
        late: list[Emitted] = []
        while marks := await self._marks(deliveries):
            again = memory_batch(deliveries, marks)
            if not (gone := erased_since(batch, again)):
                break
            batch, keys = again, {delivery.envelope.ordering_key for delivery in gone}
            scopes = [batch.scopes[key] for key in sorted(keys)]
            dropped |= await self._dropped_from_store(scopes)
            taken_back = await self._store.apply(scopes)
            results = {
                **results,
                **{key: _both(results[key], applied) for key, applied in taken_back.items()},
            }
            late += [_dropped(delivery) for delivery in gone if isinstance(delivery.event, ReflectionFormed)]
        tombstones = {erase.key: erase for erase in batch.erased}
        for fact, delivery in dropped.values():
            assert isinstance(delivery.event, FactChanged)
            batch.left += [(delivery, said) for said in left_of_stored(fact, delivery.event, marks)]
            late += earlier_versions(tombstones[delivery.event.key()], fact)
        return batch, results, late

    async def _marks(self, deliveries: Sequence[Delivery]) -> Marks:
        return await self._forgetting.among(named_by(delivery.event for delivery in deliveries))

    async def _dropped_from_store(self, scopes: Iterable[ScopeBatch]) -> dict[str, tuple[Fact, Delivery]]:
        """Return stored facts whose newest version is dropped, by id; each scope read alone, if it can be."""
        found: dict[str, tuple[Fact, Delivery]] = {}
        for scope in scopes:
            stored = (await self._store.load([scope])).get(scope.key) if scope.dropped else None
            if stored is not None:
                found |= {fact.id: (fact, delivery) for fact, delivery in dropped_from_store(scope, stored)}
        return found

    async def _space_out(self, keys: Iterable[str]) -> None:
        """Wait until ANNOUNCED_EVERY has passed since each scope's last announcement; the commit is visible."""
        said = list(keys)
        last = max((self._announced.get(key, -ANNOUNCED_EVERY) for key in said), default=-ANNOUNCED_EVERY)
        if (left := last + ANNOUNCED_EVERY - self._clock()) > 0:
            await self._sleep(left)
        now = self._clock()
        if len(self._announced) > MOST_REMEMBERED:
            self._announced = {key: at for key, at in self._announced.items() if at > now - ANNOUNCED_EVERY}
        self._announced.update(dict.fromkeys(said, now))


def _covered(batch: MemoryBatch, results: Mapping[str, AppliedScope | Exception], count: int) -> int:
    """Return how many of the first records are done; raise the error if the very first is not."""
    failed = {key: error for key, error in results.items() if isinstance(error, Exception)}
    covered = min((batch.first[key] for key in failed), default=count)
    if covered == 0:
        raise next(error for key, error in failed.items() if batch.first[key] == 0)
    return covered


def _both(first: AppliedScope | Exception, then: AppliedScope | Exception) -> AppliedScope | Exception:
    """Combine two writes of one scope."""
    if isinstance(first, Exception) or isinstance(then, Exception):
        return then
    return AppliedScope(then.snapshot, tuple(dict.fromkeys([*first.parts, *then.parts])), then.duplicates)


def _contradicts(delivery: Delivery) -> bool:
    return isinstance(delivery.event, FactChanged) and delivery.event.replaces is not None


def _dropped(delivery: Delivery) -> Emit:
    """Ask forgetting to look for what a record that was dropped had changed already.

    A reflection stood in the buffer for a moment, where a blob may have absorbed it; a fact that never stood may
    have contradicted another one.
    """
    event = delivery.event
    assert isinstance(event, FactChanged | ReflectionFormed)
    kind, name = (
        ("fact", event.fact_id) if isinstance(event, FactChanged) else ("reflection", event.reflection_id)
    )
    forgotten = Forgotten(
        kind=kind,
        id=name,
        reach="for_ever",
        because="derived",
        scope=event.scope.key,
        asked_by=None,
        forgotten_at=delivery.envelope.time,
    )
    return Emit(forgotten, delivery, identity=f"derived/{kind}/{name}/late")


def _stated_anew(left: Iterable[tuple[Delivery, FactStatement]]) -> list[Emit]:
    """Return commands for what is left of dropped facts, for each statement once."""
    facts: dict[str, dict[int, tuple[Delivery, FactStatement]]] = {}
    for delivery, said in left:
        assert isinstance(delivery.event, FactChanged)
        facts.setdefault(delivery.event.fact_id, {})[said.version] = delivery, said
    return [
        _restated(found[said.version][0], said)
        for found in facts.values()
        for said in to_state_anew(said for _, said in found.values())
    ]


def _restated(delivery: Delivery, said: FactStatement) -> Emit:
    """Return the command for what is left of a fact that was decided before its sources were forgotten."""
    event = delivery.event
    assert isinstance(event, FactChanged)
    asked_at, until = max(event.formed_at, event.valid_from), event.expires_at
    command = restated(
        event.fact_id, said, event.scope, asked_at=asked_at, expires_at=until, private=event.private
    )
    return Emit(command, delivery, time=asked_at, identity=command.command_id)


def _events(applied: AppliedScope, last: Delivery, memory: str) -> list[Emit]:
    """Return a scope's announcement, and a retirement command for each duplicate of an older fact."""
    asked = [_retire(fact, applied.snapshot) for fact in applied.duplicates if applied.snapshot]
    commands = [Emit(command, last, time=command.asked_at, identity=command.command_id) for command in asked]
    return [*commands, *([_changed(applied, applied.snapshot, last, memory)] if applied.snapshot else [])]


def _changed(applied: AppliedScope, snapshot: Snapshot, last: Delivery, memory: str) -> Emit:
    """Return the announcement of a revision; its id depends on nothing else, so consumers recognise repeats."""
    event = scope_changed(snapshot, applied.parts)
    identity = f"changed/{memory}{snapshot.scope_key}#{snapshot.revision}"
    return Emit(event, last, time=snapshot.changed_at, identity=identity)


def _retire(fact: Fact, snapshot: Snapshot | None) -> FactCommanded:
    """Return the command that retires a duplicate; its id depends on the fact's version alone."""
    assert snapshot is not None
    return FactCommanded(
        command_id=f"duplicate/{fact.id}/{fact.version}",
        scope=scope_of(snapshot),
        action="retire",
        fact_id=fact.id,
        expected_version=fact.version,
        by="duplicate",
        asked_by=None,
        reason="an older fact says the same",
        asked_at=max(fact.formed_at, fact.valid_from),
    )
