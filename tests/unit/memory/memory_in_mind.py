"""Stored memory of one scope as Python values, loaded as the store's loading promises: for pure properties."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from eden_memory.forgotten import Marks
from eden_memory.memory.memory_batch import AppliedScope, ScopeBatch, ScopeWrite, StoredScope, memory_batch
from eden_memory.memory.projection import project
from eden_memory.memory.snapshot_projection import recent_fact
from eden_memory.schemas.documents import Consolidated, Document, Fact, Reflection, Snapshot, StoredBlob
from eden_memory.stages.stage import Delivery
from tests.unit.memory.memory_histories import compared


@dataclass
class Mind:
    """Everything of one scope."""

    snapshot: Snapshot | None = None
    facts: dict[str, Fact] = field(default_factory=dict[str, Fact])
    reflections: dict[str, Reflection] = field(default_factory=dict[str, Reflection])
    blob: Consolidated | None = None
    blobs: dict[int, StoredBlob] = field(default_factory=dict[int, StoredBlob])

    def take(self, deliveries: Sequence[Delivery], marks: Marks | None = None) -> AppliedScope:
        """Apply a batch of one scope."""
        (batch,) = memory_batch(deliveries, marks or Marks()).scopes.values()
        return self.apply(batch)

    def apply(self, batch: ScopeBatch) -> AppliedScope:
        """Apply a batch as it is."""
        projected = project(batch, self.load(batch))
        if projected.change is not None:
            self._write(projected.change)
        parts = projected.change.parts if projected.change else ()
        return AppliedScope(projected.snapshot, parts, projected.duplicates)

    def load(self, batch: ScopeBatch) -> StoredScope:
        """All of it but what is listed as not touched: more than a store needs to load."""
        shown = {self.blob.version, *(one.version for one in self.blob.history)} if self.blob else set[int]()
        left = [one for one in self.blobs.values() if not one.gone and one.version not in batch.gone_blobs]
        named = {name for name, _ in (*batch.facts, *batch.gone_facts, *batch.dropped)}
        hashes = {event.hash for event in batch.facts.values()}
        hashes |= {self.facts[name].hash for name in named if name in self.facts}
        facts = {
            name: one
            for name, one in self.facts.items()
            if name in named or (one.hash in hashes and one.retired_at is None)
        }
        return StoredScope(
            snapshot=self.snapshot,
            facts=facts,
            reflections=dict(self.reflections),
            blob=self.blob if batch.blobs or batch.gone_blobs else None,
            versions=dict(self.blobs),
            absorbing=tuple(one for one in self.blobs.values() if not one.gone),
            left=tuple(sorted(left, key=lambda one: -one.version)[:21]) if shown & batch.gone_blobs else (),
            highest=max(self.blobs, default=0),
            other_facts=tuple(
                recent_fact(one) for name, one in self.facts.items() if one.active and name not in facts
            ),
            other_lasting=tuple(
                recent_fact(one) for name, one in self.facts.items() if one.active and name not in facts
            ),
        )

    def documents(self) -> list[dict[str, Any]]:
        """All documents but for what tells how they came about."""
        return rows_of(self._all())

    def without_marks(self) -> list[dict[str, Any]]:
        """The same without the writer's mark; a snapshot with nothing in it says as much as none."""
        rows = [{name: value for name, value in row.items() if name != "applied"} for row in self.documents()]
        empty = ("active_facts", "buffer", "blob_version", "closed_at")
        return [row for row in rows if row["in"] != "snapshots" or any(row[name] for name in empty)]

    def _all(self) -> list[Document]:
        found = [*self.facts.values(), *self.reflections.values(), *self.blobs.values()]
        return [*found, *(one for one in (self.snapshot, self.blob) if one is not None)]

    def _write(self, change: ScopeWrite) -> None:
        self.snapshot = change.snapshot or self.snapshot
        self.facts |= {one.id: one for one in change.facts}
        self.reflections |= {one.id: one for one in change.reflections}
        self.blobs |= {one.version: one for one in change.versions}
        self.blob = None if change.blob_gone else change.blob or self.blob
        for name in change.gone_facts:
            del self.facts[name]
        for name in change.gone_reflections:
            del self.reflections[name]


def rows_of(documents: Iterable[Document]) -> list[dict[str, Any]]:
    """Documents to compare, in a fixed order."""
    rows = [{"in": one.COLLECTION, **compared(one.stored())} for one in documents]
    return sorted(rows, key=lambda row: (row["in"], row["_id"]))
