"""Projection of a batch of records onto a scope's documents: the same in any order, however often. Pure.

A fact's document is its highest version, with the 20 before it. A blob's is its highest version that is not
gone. A reflection is absorbed by the lowest stored blob version that lists it, whichever of the two came first.
The snapshot follows from these; only its revision and its time tell how it came about.
"""

from collections.abc import Mapping
from typing import TypeVar

from eden_memory.memory.document_projection import (
    blob_after,
    duplicates_among,
    facts_after,
    reflections_after,
    versions_after,
)
from eden_memory.memory.memory_batch import ScopeBatch
from eden_memory.memory.snapshot_projection import UNREAD_BLOB, snapshot_after
from eden_memory.memory.stored_memory import Part, Projected, ScopeWrite, StoredScope
from eden_memory.schemas.documents import Fact, Reflection, Snapshot

D = TypeVar("D", Fact, Reflection)


def project(batch: ScopeBatch, stored: StoredScope) -> Projected:
    """Apply a scope's records to what is stored of it."""
    versions = versions_after(batch, stored)
    facts = facts_after(batch, stored)
    reflections = reflections_after(batch, stored, versions)
    touched = bool(batch.blobs or batch.gone_blobs)
    blob = blob_after(batch, stored, versions) if touched else stored.blob
    after = snapshot_after(batch, stored, facts, reflections, blob if touched else UNREAD_BLOB)
    before = stored.snapshot
    change = ScopeWrite(
        snapshot=after,
        based_on=None if before is None else before.revision,
        facts=_changed(stored.facts, facts),
        gone_facts=tuple(name for name in stored.facts if name not in facts),
        released=_released(stored.facts, facts),
        reflections=_changed(stored.reflections, reflections),
        gone_reflections=tuple(name for name in stored.reflections if name not in reflections),
        blob=blob if blob != stored.blob else None,
        blob_gone=stored.blob is not None and blob is None,
        versions=versions,
        known=_known(stored),
    )
    change.parts = _parts(before, after, change)
    duplicates = duplicates_among(facts.values())
    if not change.parts:
        return Projected(before, None, duplicates)
    _number(change, stored, batch)
    return Projected(change.snapshot, change, duplicates)


def _changed(before: Mapping[str, D], after: Mapping[str, D]) -> tuple[D, ...]:
    return tuple(
        document for name, document in after.items() if name not in before or before[name] != document
    )


def _known(stored: StoredScope) -> frozenset[str]:
    blobs = [*stored.versions.values(), *([stored.blob] if stored.blob else [])]
    return frozenset([*stored.facts, *stored.reflections, *(blob.id for blob in blobs)])


def _released(before: Mapping[str, Fact], after: Mapping[str, Fact]) -> tuple[str, ...]:
    holder = {fact.hash: name for name, fact in before.items() if fact.active}
    takers = ((name, holder.get(fact.hash)) for name, fact in after.items() if fact.active)
    return tuple(held for name, held in takers if held is not None and held != name)


def _parts(before: Snapshot | None, after: Snapshot | None, change: ScopeWrite) -> tuple[Part, ...]:
    """Return which parts of a scope differ from before."""
    applied = after is not None and after.applied != (before.applied if before else 0)
    closed = after is not None and (after.closed_at, after.closed) != _closing(before)
    highest = before.highest_blob_version if before else 0
    counted = after is not None and after.highest_blob_version != highest
    changed: dict[Part, bool] = {
        "facts": bool(change.facts or change.gone_facts or applied),
        "reflections": bool(change.reflections or change.gone_reflections or closed),
        "blob": bool(change.blob or change.blob_gone or change.versions or counted),
    }
    return tuple(part for part, other in changed.items() if other)


def _closing(snapshot: Snapshot | None) -> tuple[object, bool]:
    return (None, False) if snapshot is None else (snapshot.closed_at, snapshot.closed)


def _number(change: ScopeWrite, stored: StoredScope, batch: ScopeBatch) -> None:
    """Give the snapshot and the facts that change the next revision."""
    if change.snapshot is None:
        return
    revision = stored.next_revision
    update: dict[str, object] = {"revision": revision, "changed_at": batch.time}
    if change.based_on is not None:
        update["changed_at"] = max(change.snapshot.changed_at, batch.time)
    if change.gone_facts or change.gone_reflections or change.blob_gone:
        update["reset_revision"] = revision
    change.snapshot = change.snapshot.model_copy(update=update)
    change.facts = tuple(_numbered(fact, revision) for fact in change.facts)


def _numbered(fact: Fact, revision: int) -> Fact:
    return fact if fact.revision == revision else fact.model_copy(update={"revision": revision})
