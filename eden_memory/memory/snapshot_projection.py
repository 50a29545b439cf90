"""The snapshot of a scope: all that a context needs of it, from what a batch changed and what was there. Pure."""

from collections.abc import Collection, Iterable, Mapping
from datetime import datetime
from operator import itemgetter
from typing import Final, Protocol

from eden_memory.memory.buffer_order import oldest_first
from eden_memory.memory.memory_batch import ScopeBatch
from eden_memory.memory.stored_memory import StoredScope, scope_fields
from eden_memory.schemas.documents import (
    BUFFER,
    RECENT_FACTS,
    BufferedReflection,
    Consolidated,
    Fact,
    RecentFact,
    Reflection,
    Snapshot,
)
from eden_memory.schemas.scopes import LargeAudience, audience_of


class Kept:
    """In the place of a blob that was not read: what the snapshot says of it stays."""


KEPT: Final = Kept()


def snapshot_after(
    batch: ScopeBatch,
    stored: StoredScope,
    facts: Mapping[str, Fact],
    reflections: Mapping[str, Reflection],
    blob: Consolidated | Kept | None,
) -> Snapshot | None:
    """The snapshot but for its revision and time; None if nothing is known of the scope."""
    before = stored.snapshot
    if before is None and batch.scope is None:
        return None
    base = before or _first(batch)
    closed_at = max((one for one in (base.closed_at, batch.closed_at) if one is not None), default=None)
    buffer = _buffer(base, stored, reflections)
    return base.model_copy(
        update={
            **_blob(blob),
            "audience": base.audience
            if isinstance(base.audience, LargeAudience)
            else audience_of(base.audience),
            "buffer": buffer,
            "recent_facts": _recent(base, stored, facts),
            "active_facts": base.active_facts + _active(facts.values()) - _active(stored.facts.values()),
            "applied": max(base.applied, batch.outcome - 1),
            "highest_blob_version": max(
                base.highest_blob_version, stored.highest, *batch.blobs, *batch.gone_blobs, 0
            ),
            "closed_at": closed_at,
            "closed": _closed(closed_at, buffer),
        }
    )


def _blob(blob: Consolidated | Kept | None) -> dict[str, object]:
    if isinstance(blob, Kept):
        return {}
    return {
        "blob": blob.content if blob else None,
        "blob_version": blob.version if blob else 0,
        "consolidated_at": blob.last_consolidated_at if blob else None,
        "blob_said_at": blob.said_at if blob else None,
    }


def recent_fact(fact: Fact) -> RecentFact:
    """A fact as a snapshot shows it."""
    return RecentFact(
        fact_id=fact.id,
        version=fact.version,
        content=fact.content,
        formed_at=fact.formed_at,
        valid_from=fact.valid_from,
        expires_at=fact.expires_at,
    )


def buffered(reflection: Reflection) -> BufferedReflection:
    """A reflection as a snapshot holds it."""
    return BufferedReflection(
        reflection_id=reflection.id,
        content=reflection.content,
        formed_at=reflection.formed_at,
        said_at=reflection.said_at,
        private=reflection.private,
        position=reflection.position,
    )


def _first(batch: ScopeBatch) -> Snapshot:
    scope = batch.scope
    assert scope is not None
    return Snapshot(
        _id=batch.key,
        **scope_fields(scope),
        session_id=scope.session_id,
        audience=scope.audience,
        revision=0,
        changed_at=batch.time,
    )


def _recent(base: Snapshot, stored: StoredScope, facts: Mapping[str, Fact]) -> tuple[RecentFact, ...]:
    touched = {*facts, *stored.facts}
    known = {one.fact_id: one for one in (*base.recent_facts, *stored.other_facts)}
    found: list[tuple[str, datetime, RecentFact | Fact]] = [
        (one.fact_id, one.valid_from, one) for name, one in known.items() if name not in touched
    ]
    found += [(fact.id, fact.valid_from, fact) for fact in facts.values() if fact.active]
    found.sort(key=itemgetter(0))
    found.sort(key=itemgetter(1), reverse=True)
    newest = (one for _, _, one in found[:RECENT_FACTS])
    return tuple(recent_fact(one) if isinstance(one, Fact) else one for one in newest)


def _buffer(
    base: Snapshot, stored: StoredScope, reflections: Mapping[str, Reflection]
) -> tuple[BufferedReflection, ...]:
    touched = {*reflections, *stored.reflections}
    known = {one.reflection_id: one for one in (*base.buffer, *stored.other_reflections)}
    found = [one for name, one in known.items() if name not in touched]
    found += [buffered(one) for one in reflections.values() if not one.absorbed]
    return tuple(oldest_first(found)[:BUFFER])


def _active(facts: Iterable[Fact]) -> int:
    return sum(fact.active for fact in facts)


def _closed(closed_at: datetime | None, buffer: tuple[BufferedReflection, ...]) -> bool:
    """An ended session is to be consolidated until nothing formed up to its end is left in the buffer."""
    return closed_at is not None and any(one.formed_at <= closed_at for one in buffer)


class Snapshots(Protocol):
    """What is in MongoDB of each scope, in one document."""

    async def snapshots(self, scope_keys: Iterable[str]) -> dict[str, Snapshot]:
        """Those that exist, majority-committed, in one query."""
        ...

    async def without_users(self, scope_keys: Iterable[str], private: Collection[str]) -> dict[str, Snapshot]:
        """The same, the `private` ones without what rests on what users said (eden_memory.access.sharing)."""
        ...
