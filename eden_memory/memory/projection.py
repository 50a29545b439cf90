"""Projection of a batch of records onto a scope's documents: the same in any order, however often. Pure.

A fact's document is its highest version, with the 20 before it; of facts alike the oldest is active. A blob's is its
highest version that is not gone. A reflection is absorbed by the lowest stored blob version that lists it, whichever
of the two came first. The snapshot follows from these; only its revision and its time tell how it came about.

What is left of a forgotten fact is added again by commands, which stand at the end.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import replace
from datetime import UTC, datetime
from functools import cache
from typing import TypeVar

from eden_memory.forgotten import Marks
from eden_memory.limits import MOST_SOURCES
from eden_memory.memory.memory_batch import (
    Part,
    Projected,
    ScopeBatch,
    ScopeWrite,
    StoredScope,
    fact_hash,
    is_left,
    scope_fields,
    statement,
    statement_of,
)
from eden_memory.memory.snapshot_projection import UNREAD_BLOB, snapshot_after
from eden_memory.schemas.documents import (
    HISTORY,
    BlobVersion,
    Consolidated,
    Fact,
    FactStatement,
    FactVersion,
    Reflection,
    ReflectionVersion,
    Snapshot,
    StoredBlob,
)
from eden_memory.schemas.events import FactChanged, FactCommanded, ReflectionFormed, ScopeConsolidated
from eden_memory.schemas.ids import split
from eden_memory.schemas.provenance import SourceMessage, newest_said
from eden_memory.schemas.scopes import Scope
from eden_memory.stages.stage import Delivery, Erase

NONE: Set[int] = frozenset()
EPOCH = datetime.fromtimestamp(0, UTC)


def facts_after(batch: ScopeBatch, stored: StoredScope) -> dict[str, Fact]:
    """Return all facts, stored and incoming, as they are afterwards, without those that are gone."""
    coming: dict[str, list[FactChanged]] = {}
    for event in batch.facts.values():
        coming.setdefault(event.fact_id, []).append(event)
    gone: dict[str, set[int]] = {}
    for fact_id, version in batch.gone_facts:
        gone.setdefault(fact_id, set()).add(version)
    names = dict.fromkeys([*stored.facts, *coming])
    merged = {
        name: _merged(
            stored.facts.get(name), coming.get(name, ()), gone.get(name, NONE), stored.next_revision
        )
        for name in names
    }
    return _one_active({name: fact for name, fact in merged.items() if fact is not None})


def duplicates_among(facts: Iterable[Fact]) -> tuple[Fact, ...]:
    """Return facts that are neither retired nor active, because an older one says the same."""
    return tuple(fact for fact in facts if fact.retired_at is None and not fact.active)


def _merged(stored: Fact | None, events: Sequence[FactChanged], gone: Set[int], revision: int) -> Fact | None:
    """Merge a stored fact with its new versions; None if its newest version is gone and there is no newer one."""
    if stored is None and not gone and len(events) == 1 and events[0].version == 1:
        return _fact(events[0], revision)
    known = {event.version: event for event in events}
    if stored is not None and stored.version not in gone and stored.version >= max(known, default=0):
        newest = stored
    elif known:
        newest = _fact(known[max(known)], revision)
    else:
        return None
    newest = _with_history(newest, _history(newest.version, stored, known, gone))
    statements = _statements(newest.version, stored, known, gone)
    return newest if newest.statements == statements else newest.model_copy(update={"statements": statements})


def _statements(
    newest: int, stored: Fact | None, known: Mapping[int, FactChanged], gone: Set[int]
) -> tuple[FactStatement, ...]:
    """Return what a fact was merged from; for a first version, its own text and sources."""
    if newest == 1:
        return ()
    found = {} if stored is None else {said.version: said for said in statements_of(stored)}
    found |= {version: said for version, event in known.items() if (said := statement_of(event)) is not None}
    return tuple(found[version] for version in sorted(found.keys() - gone)[-MOST_SOURCES:])


def statements_of(fact: Fact) -> tuple[FactStatement, ...]:
    """Return the statements that a stored fact was merged from."""
    if fact.version > 1:
        return fact.statements
    return (statement(1, fact.content, fact.sources, fact.said_at),)


def _history(
    newest: int, stored: Fact | None, known: Mapping[int, FactChanged], gone: Set[int]
) -> tuple[FactVersion, ...]:
    kept: dict[int, Fact | FactVersion] = {}
    if stored is not None:
        kept = {stored.version: stored} | {version.version: version for version in stored.history}
    earlier = sorted(
        (number for number in {*known, *kept} if number < newest and number not in gone), reverse=True
    )
    return tuple(_as_version(kept.get(number) or known[number]) for number in earlier[:HISTORY])


def _with_history(fact: Fact, history: tuple[FactVersion, ...]) -> Fact:
    if fact.history == history and (history or fact.previous_content is None):
        return fact
    previous = next((version.content for version in history if version.content != fact.content), None)
    return fact.model_copy(update={"history": history, "previous_content": previous})


def _one_active(facts: Mapping[str, Fact]) -> dict[str, Fact]:
    """Of the facts that are not retired and say the same, make the oldest active."""
    first: dict[str, Fact] = {}
    for fact in facts.values():
        other = first.get(fact.hash)
        if fact.retired_at is None and (other is None or _age(fact) < _age(other)):
            first[fact.hash] = fact
    chosen = {fact.id for fact in first.values()}
    return {name: _active(fact, active=name in chosen) for name, fact in facts.items()}


def _age(fact: Fact) -> tuple[object, str]:
    return fact.formed_at, fact.id


def _active(fact: Fact, *, active: bool) -> Fact:
    return fact if fact.active == active else fact.model_copy(update={"active": active})


def _fact(event: FactChanged, revision: int) -> Fact:
    """Return the document of a version. Copied, because what an event holds is valid already."""
    return _any_fact().model_copy(
        update={
            **scope_fields(event.scope),
            "id": event.fact_id,
            "content": event.text,
            "hash": event.hash,
            "embedding": event.embedding.vector if event.embedding else None,
            "embedding_model": event.embedding.model if event.embedding else None,
            "active": event.retired_at is None,
            "version": event.version,
            "decision": event.decision,
            "reason": event.reason,
            "command": event.command,
            "call": event.call,
            "session_ids": sessions_of(event.sources),
            "message_ids": messages_of(event.sources),
            "sources": event.sources,
            "formed_at": event.formed_at,
            "said_at": event.said_at,
            "occurred_at": event.occurred_at,
            "valid_from": event.valid_from,
            "expires_at": event.expires_at,
            "private": event.private,
            "retired_at": event.retired_at,
            "retired_because": event.retired_because,
            "replaces": event.replaces,
            "replaced_by": event.replaced_by,
            "revision": revision,
        }
    )


@cache
def _any_fact() -> Fact:
    return Fact(
        _id="any",
        **scope_fields(Scope.of_agent("s.any")),
        content="",
        hash="0" * 64,
        active=False,
        version=1,
        decision="ADD",
        formed_at=EPOCH,
        said_at=EPOCH,
        valid_from=EPOCH,
    )


def sessions_of(sources: Iterable[SourceMessage]) -> tuple[str, ...]:
    """Return the sessions of some messages, each once."""
    return tuple(dict.fromkeys([source.session_id for source in sources]))


def messages_of(sources: Iterable[SourceMessage]) -> tuple[str, ...]:
    """Return the ids of some messages, each once."""
    return tuple(dict.fromkeys([source.message_id for source in sources]))


def _as_version(fact: Fact | FactVersion | FactChanged) -> FactVersion:
    if isinstance(fact, FactVersion):
        return fact
    return FactVersion(
        version=fact.version,
        content=fact.text if isinstance(fact, FactChanged) else fact.content,
        decision=fact.decision,
        reason=fact.reason,
        valid_from=fact.valid_from,
        command=fact.command,
        call=fact.call,
    )


def versions_after(batch: ScopeBatch, stored: StoredScope) -> tuple[StoredBlob, ...]:
    """Return the new blob versions, and those that are gone from now on; gone ones stay gone."""
    new = [
        _stored_blob(event)
        for version, event in batch.blobs.items()
        if version not in batch.gone_blobs and version not in stored.versions
    ]
    gone = [
        StoredBlob(_id=f"{batch.key}@{version}", scope_key=batch.key, version=version, gone=True)
        for version in batch.gone_blobs
        if not (version in stored.versions and stored.versions[version].gone)
    ]
    return (*new, *gone)


def reflections_after(
    batch: ScopeBatch, stored: StoredScope, versions: Iterable[StoredBlob]
) -> dict[str, Reflection]:
    """Return all reflections, stored and incoming, as they are afterwards, without those that are gone."""
    absorbed = _absorbed([*stored.absorbing, *versions], batch.gone_blobs)
    coming: dict[str, dict[int, ReflectionFormed]] = {}
    for (name, version), event in batch.reflections.items():
        coming.setdefault(name, {})[version] = event
    gone: dict[str, set[int]] = {}
    for name, version in batch.gone_reflections:
        gone.setdefault(name, set()).add(version)
    after: dict[str, Reflection] = {}
    for name in dict.fromkeys([*stored.reflections, *coming]):
        newest = _newest_reflection(stored.reflections.get(name), coming.get(name, {}), gone.get(name, NONE))
        if newest is not None:
            after[name] = _absorbed_by(newest, absorbed.get(name), batch.gone_blobs)
    return after


def _newest_reflection(
    stored: Reflection | None, coming: Mapping[int, ReflectionFormed], gone: Set[int]
) -> Reflection | None:
    """Merge a stored reflection with new versions; None if its newest version is gone and there is no newer one."""
    if stored is not None and stored.version not in gone and stored.version >= max(coming, default=0):
        newest = stored
    elif coming:
        newest = _reflection(coming[max(coming)])
        if stored is not None:
            into = {"absorbed": stored.absorbed, "absorbed_at": stored.absorbed_at}
            newest = newest.model_copy(update={**into, "absorbed_into": stored.absorbed_into})
    else:
        return None
    earlier: dict[int, Reflection | ReflectionVersion] = {}
    if stored is not None:
        earlier = {stored.version: stored} | {version.version: version for version in stored.history}
    older = {number: event for number, event in coming.items() if number < newest.version}
    earlier = {number: _reflection(event) for number, event in older.items()} | earlier
    kept = sorted(
        (number for number in earlier if number < newest.version and number not in gone), reverse=True
    )
    history = tuple(_reflection_version(earlier[number]) for number in kept[:HISTORY])
    return newest if newest.history == history else newest.model_copy(update={"history": history})


def _reflection_version(reflection: Reflection | ReflectionVersion) -> ReflectionVersion:
    if isinstance(reflection, ReflectionVersion):
        return reflection
    return ReflectionVersion(
        version=reflection.version,
        content=reflection.content,
        private=reflection.private,
        said_at=reflection.said_at,
        command=reflection.command,
    )


def blob_after(batch: ScopeBatch, stored: StoredScope, versions: Iterable[StoredBlob]) -> Consolidated | None:
    """Return the newest blob version with those before it; None if there is none."""
    shown = {version.version: version for version in _versions_in(stored.blob)}
    shown |= {blob.version: blob for blob in stored.left} | {version.version: version for version in versions}
    kept = sorted((blob for blob in shown.values() if not blob.gone), key=lambda blob: -blob.version)
    if not kept:
        return None
    newest, earlier = kept[0], kept[1 : HISTORY + 1]
    assert newest.consolidated_at is not None
    assert newest.said_at is not None
    return Consolidated(
        _id=batch.key,
        **scope_fields(batch.scope, stored.snapshot),
        content=newest.content,
        version=newest.version,
        word_limit=newest.word_limit,
        absorbed=newest.absorbed,
        last_consolidated_at=newest.consolidated_at,
        said_at=newest.said_at,
        pins=newest.pins,
        command=newest.command,
        history=tuple(_blob_version(blob) for blob in earlier),
    )


def _absorbed(versions: Iterable[StoredBlob], gone: set[int]) -> dict[str, StoredBlob]:
    """Return for each reflection the lowest version that lists it."""
    lowest: dict[str, StoredBlob] = {}
    for version in sorted(versions, key=lambda version: version.version):
        if not version.gone and version.version not in gone:
            for name in version.absorbed:
                lowest.setdefault(name, version)
    return lowest


def _absorbed_by(reflection: Reflection, blob: StoredBlob | None, gone: set[int]) -> Reflection:
    into, at = reflection.absorbed_into, reflection.absorbed_at
    if into in gone:
        into = at = None
    if blob is not None and (into is None or blob.version < into):
        into, at = blob.version, blob.consolidated_at
    if into == reflection.absorbed_into:
        return reflection
    return reflection.model_copy(
        update={"absorbed": into is not None, "absorbed_into": into, "absorbed_at": at}
    )


def _reflection(event: ReflectionFormed) -> Reflection:
    """Return the document of a version. Copied, because what an event holds is valid already."""
    sessions = sessions_of(event.sources)
    if event.session_id and event.session_id not in sessions:
        sessions = (*sessions, event.session_id)
    source = event.propagated_from
    return _any_reflection().model_copy(
        update={
            **scope_fields(event.scope),
            "id": event.reflection_id,
            "content": event.text,
            "session_ids": sessions,
            "message_ids": messages_of(event.sources),
            "sources": event.sources,
            "formation_id": event.formation_id,
            "position": event.position,
            "formed_at": event.formed_at,
            "said_at": event.said_at,
            "origin": event.origin,
            "propagated_from": source.reflection_id if source else None,
            "propagated_scope": source.scope.key if source else None,
            "private": event.private,
            "version": event.version,
            "command": event.command,
            "retired_at": event.retired_at,
        }
    )


@cache
def _any_reflection() -> Reflection:
    return Reflection(
        _id="any",
        **scope_fields(Scope.of_agent("s.any")),
        content="",
        position=1,
        formed_at=EPOCH,
        said_at=EPOCH,
    )


def _stored_blob(event: ScopeConsolidated) -> StoredBlob:
    return StoredBlob(
        _id=event.key(),
        scope_key=event.scope.key,
        version=event.version,
        content=event.text,
        absorbed=event.absorbed,
        word_limit=event.word_limit,
        consolidated_at=event.consolidated_at,
        said_at=event.said_at,
        pins=event.pins,
        command=event.command,
    )


def _versions_in(blob: Consolidated | None) -> Iterable[StoredBlob]:
    """Yield the versions that a document holds; the limits of earlier ones are in their own documents."""
    if blob is None:
        return
    newest = BlobVersion(
        version=blob.version,
        content=blob.content,
        absorbed=blob.absorbed,
        consolidated_at=blob.last_consolidated_at,
        said_at=blob.said_at,
        pins=blob.pins,
        command=blob.command,
    )
    for version in (newest, *blob.history):
        yield StoredBlob(
            _id=f"{blob.id}@{version.version}",
            scope_key=blob.scope_key,
            version=version.version,
            content=version.content,
            absorbed=version.absorbed,
            word_limit=blob.word_limit,
            consolidated_at=version.consolidated_at,
            said_at=version.said_at,
            pins=version.pins,
            command=version.command,
        )


def _blob_version(blob: StoredBlob) -> BlobVersion:
    assert blob.consolidated_at is not None
    assert blob.said_at is not None
    return BlobVersion(
        version=blob.version,
        content=blob.content,
        absorbed=blob.absorbed,
        consolidated_at=blob.consolidated_at,
        said_at=blob.said_at,
        pins=blob.pins,
        command=blob.command,
    )


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


UNDO = "undo:"
MOST_ALIKE = 20
"""Statements with one text that are stated anew: each deletion of a message states all of them again."""


def to_state_anew(left: Iterable[FactStatement]) -> list[FactStatement]:
    """Return the statements by version; of equal ones, the newest `MOST_ALIKE`."""
    found: list[FactStatement] = []
    alike: dict[str, int] = {}
    for said in sorted(left, key=lambda said: said.version, reverse=True):
        text = fact_hash(said.text)
        alike[text] = alike.get(text, 0) + 1
        if alike[text] <= MOST_ALIKE:
            found.append(said)
    return found[::-1]


def dropped_from_store(batch: ScopeBatch, stored: StoredScope) -> Iterator[tuple[Fact, Delivery]]:
    """Yield stored facts whose newest version the batch drops, with the record dropped."""
    for (fact_id, version), delivery in batch.dropped.items():
        fact = stored.facts.get(fact_id)
        if fact is not None and fact.version == version:
            yield fact, delivery


def left_of_stored(fact: Fact, dropped: FactChanged, marks: Marks) -> list[FactStatement]:
    """Return the statements of a stored fact that rest on nothing forgotten."""
    return [said for said in statements_of(fact) if is_left(dropped, said, marks)]


def earlier_versions(dropped: Erase, fact: Fact) -> list[Erase]:
    """Return tombstones of a fact's versions before the one dropped, as forgetting publishes them."""
    return [
        replace(dropped, key=f"{fact.id}@{version}", entity_version=str(version))
        for version in range(1, fact.version)
    ]


def is_restated(command_id: str) -> bool:
    """Return whether a command adds again what was left of a fact."""
    return command_id.startswith("restated/")


def undo_id(cause: str, fact_id: str, version: int) -> str:
    """Return the `_id` of the request that changes a fact, or adds its words again, as an attack is undone."""
    return f"{UNDO}{cause}:{fact_id}@{version}"


def undone_fact(command_id: str) -> str | None:
    """Return the fact that the command of such a request is about; None for other commands."""
    try:
        _, text = split(command_id)
    except ValueError:
        return None
    return text.rpartition(":")[2].partition("@")[0] if text.startswith(UNDO) else None


def restated(
    fact_id: str,
    said: FactStatement,
    scope: Scope,
    *,
    asked_at: datetime,
    asked_by: str | None = None,
    expires_at: datetime | None = None,
    decide: bool = False,
    private: bool = False,
) -> FactCommanded:
    """Return the command that adds one statement of a fact again; the same statement gives the same id."""
    return FactCommanded(
        command_id=f"restated/{fact_id}/{said.version}",
        scope=scope,
        action="add",
        text=said.text,
        sources=said.sources,
        expires_at=expires_at,
        decide=decide,
        private=private or None,
        by="forgetting",
        asked_by=asked_by,
        reason="something else that the fact was merged from is forgotten",
        asked_at=asked_at,
        said_at=newest_said(said.sources) or said.said_at,
    )
