"""Reflections and blobs as documents: what is absorbed follows from the stored blob versions that list it. Pure."""

from collections.abc import Iterable

from eden_memory.memory.fact_projection import messages_of, sessions_of
from eden_memory.memory.memory_batch import ScopeBatch
from eden_memory.memory.stored_memory import StoredScope, scope_fields
from eden_memory.schemas.documents import HISTORY, BlobVersion, Consolidated, Reflection, StoredBlob
from eden_memory.schemas.events import ReflectionFormed, ScopeConsolidated


def versions_after(batch: ScopeBatch, stored: StoredScope) -> tuple[StoredBlob, ...]:
    """The blob versions that are new, and those that are gone from now on; one that is gone stays so."""
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
    """All reflections that are stored or come in, as they are afterwards; those that are gone are left out."""
    absorbed = _absorbed([*stored.absorbing, *versions], batch.gone_blobs)
    names = [name for name in (*stored.reflections, *batch.reflections) if name not in batch.gone_reflections]
    after: dict[str, Reflection] = {}
    for name in dict.fromkeys(names):
        reflection = stored.reflections.get(name) or _reflection(batch.reflections[name])
        after[name] = _absorbed_by(reflection, absorbed.get(name), batch.gone_blobs)
    return after


def blob_after(batch: ScopeBatch, stored: StoredScope, versions: Iterable[StoredBlob]) -> Consolidated | None:
    """The newest blob version with those before it; None if there is none."""
    shown = {one.version: one for one in _shown(stored.blob)}
    shown |= {one.version: one for one in stored.left} | {one.version: one for one in versions}
    kept = sorted((one for one in shown.values() if not one.gone), key=lambda one: -one.version)
    if not kept:
        return None
    newest, earlier = kept[0], kept[1 : HISTORY + 1]
    assert newest.consolidated_at is not None
    return Consolidated(
        _id=batch.key,
        **scope_fields(batch.scope, stored.snapshot),
        content=newest.content,
        version=newest.version,
        word_limit=newest.word_limit,
        absorbed=newest.absorbed,
        last_consolidated_at=newest.consolidated_at,
        said_at=newest.said_at or newest.consolidated_at,
        history=tuple(_as_version(one) for one in earlier),
    )


def _absorbed(versions: Iterable[StoredBlob], gone: set[int]) -> dict[str, StoredBlob]:
    """For each reflection the lowest version that lists it."""
    lowest: dict[str, StoredBlob] = {}
    for one in sorted(versions, key=lambda one: one.version):
        if not one.gone and one.version not in gone:
            for name in one.absorbed:
                lowest.setdefault(name, one)
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
    sessions = [*sessions_of(event.sources), *([event.session_id] if event.session_id else [])]
    return Reflection(
        _id=event.reflection_id,
        **scope_fields(event.scope),
        content=event.text,
        session_ids=tuple(dict.fromkeys(sessions)),
        message_ids=messages_of(event.sources),
        sources=event.sources,
        formation_id=event.formation_id,
        position=event.position,
        formed_at=event.formed_at,
        said_at=event.said_at,
        propagated_from=event.propagated_from.reflection_id if event.propagated_from else None,
        private=event.private,
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
    )


def _shown(blob: Consolidated | None) -> Iterable[StoredBlob]:
    """The versions that a document holds; the limits of earlier ones are in their own documents."""
    if blob is None:
        return
    newest = BlobVersion(
        version=blob.version,
        content=blob.content,
        absorbed=blob.absorbed,
        consolidated_at=blob.last_consolidated_at,
        said_at=blob.said_at,
    )
    for one in (newest, *blob.history):
        yield StoredBlob(
            _id=f"{blob.id}@{one.version}",
            scope_key=blob.scope_key,
            version=one.version,
            content=one.content,
            absorbed=one.absorbed,
            word_limit=blob.word_limit,
            consolidated_at=one.consolidated_at,
            said_at=one.said_at,
        )


def _as_version(one: StoredBlob) -> BlobVersion:
    assert one.consolidated_at is not None
    return BlobVersion(
        version=one.version,
        content=one.content,
        absorbed=one.absorbed,
        consolidated_at=one.consolidated_at,
        said_at=one.said_at or one.consolidated_at,
    )
