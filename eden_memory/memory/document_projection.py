"""Facts, reflections and blobs as documents. Pure.

A fact or reflection is its highest version with its history; of facts alike the oldest is active. A reflection is
absorbed by the lowest stored blob version that lists it; a blob is its highest version that is not gone.
"""

from collections.abc import Iterable, Mapping, Sequence, Set
from datetime import UTC, datetime
from functools import cache

from eden_memory.limits import MOST_SOURCES
from eden_memory.memory.memory_batch import ScopeBatch, statement, statement_of
from eden_memory.memory.stored_memory import StoredScope, scope_fields
from eden_memory.schemas.documents import (
    HISTORY,
    BlobVersion,
    Consolidated,
    Fact,
    FactStatement,
    FactVersion,
    Reflection,
    ReflectionVersion,
    StoredBlob,
)
from eden_memory.schemas.events import FactChanged, ReflectionFormed, ScopeConsolidated
from eden_memory.schemas.provenance import SourceMessage
from eden_memory.schemas.scopes import Scope

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
