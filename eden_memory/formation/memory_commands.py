"""Commands on reflections and blobs, carried out without a model. Pure.

A command that names a version is carried out only while that version stands. A reflection can be changed until a blob
has absorbed it; from then on the blob is what can be edited. A reflection can be marked as private at any time.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from hashlib import blake2b
from typing import Protocol

from eden_memory.formation.consolidation_rules import (
    BlobEdit,
    BlobText,
    CurrentBlob,
    Refusal,
    stored_blob,
    unversioned,
    versioned,
)
from eden_memory.limits import ScopeLimits, words_of
from eden_memory.schemas.documents import Reflection, Snapshot
from eden_memory.schemas.events import (
    Forgotten,
    MemoryCommanded,
    MemoryCommandRef,
    Propagated,
    ReflectionFormed,
    ScopeConsolidated,
)
from eden_memory.schemas.scopes import Scope
from eden_memory.stages.stage import Delivery


@dataclass(frozen=True, slots=True)
class CurrentMemory:
    """The memory that a command is judged by: the stored one of its scope, with later decisions applied."""

    blob: CurrentBlob
    reflection: ReflectionFormed | None = None
    """The newest version of the reflection that the command names."""
    absorbed: bool = False
    """Whether a version of the blob lists that reflection."""


class DecidedMemory(Protocol):
    """Look-up of decisions about reflections and blobs, whether the writer has applied them or not."""

    async def decided(self, writes: Sequence[str]) -> bool:
        """Return whether any of these versions (`blob:KEY@N`, `reflection:ID@N`) is decided."""
        ...

    async def blobs_beyond(self, scope_key: str, version: int) -> Sequence[ScopeConsolidated]:
        """Return the blob versions decided above this one, in order."""
        ...

    async def reflection(self, reflection_id: str) -> Reflection | None:
        """Return a reflection as stored."""
        ...

    async def reflections(self, reflection_ids: Sequence[str]) -> Sequence[Reflection]:
        """Return the reflections that are stored."""
        ...

    async def reflections_beyond(self, reflection_id: str, version: int) -> Sequence[ReflectionFormed]:
        """Return the versions of a reflection decided above this one, in order."""
        ...

    async def supported_by(self, reflection: ReflectionFormed) -> Sequence[str]:
        """Return what was propagated from other scopes of its kind and rests on its messages, too."""
        ...


async def current_memory(
    command: MemoryCommanded, snapshot: Snapshot | None, decided: DecidedMemory
) -> CurrentMemory:
    """Return the memory that the command is about, as decided so far."""
    stored = stored_blob(snapshot)
    blobs = await decided.blobs_beyond(command.scope.key, stored.highest)
    blob = stored
    for later in blobs:
        blob = _following(blob, later)
    if command.reflection_id is None:
        return CurrentMemory(blob)
    document = await decided.reflection(command.reflection_id)
    if document is not None and document.scope_key != command.scope.key:
        return CurrentMemory(blob)
    version = 0 if document is None else document.version
    later_versions = await decided.reflections_beyond(command.reflection_id, version)
    known = None if document is None else reflection_formed(document, command)
    newest = later_versions[-1] if later_versions else known
    absorbed = (document is not None and document.absorbed) or any(
        command.reflection_id in later.absorbed for later in blobs
    )
    return CurrentMemory(blob, newest, absorbed)


def _following(blob: CurrentBlob, later: ScopeConsolidated) -> CurrentBlob:
    highest = max(blob.highest, later.version)
    text = unversioned(later.text)
    return CurrentBlob(later.version, highest, text, later.pins, later.consolidated_at, later.said_at)


def reflection_formed(document: Reflection, command: MemoryCommanded) -> ReflectionFormed:
    """Return the event of a stored reflection's newest version, as far as the document holds it."""
    source = None
    if document.propagated_from is not None and document.propagated_scope is not None:
        scope = Scope.of_key(document.propagated_scope, document.agent_id)
        source = Propagated(reflection_id=document.propagated_from, scope=scope)
    return ReflectionFormed(
        cause="stored",
        reflection_id=document.id,
        version=document.version,
        scope=command.scope,
        text=document.content,
        position=document.position,
        formation_id=document.formation_id,
        session_id=document.session_ids[-1] if document.session_ids else None,
        origin=document.origin,
        sources=document.sources,
        formed_at=document.formed_at,
        said_at=document.said_at,
        private=document.private,
        propagated_from=source,
        asked_by=None,
        retired_at=document.retired_at,
    )


def carry_out(
    delivery: Delivery,
    command: MemoryCommanded,
    current: CurrentMemory,
    limits: ScopeLimits,
    settings_version: str,
) -> ReflectionFormed | ScopeConsolidated | Refusal:
    """Return the version that the command leads to, or why it leads to none."""
    match command.action:
        case "add_reflection":
            return _added(delivery, command)
        case "edit_reflection" | "retire_reflection":
            return _reflection(delivery, command, current)
        case _:
            return _blob(delivery, command, current.blob, limits, settings_version)


def _ref(command: MemoryCommanded) -> MemoryCommandRef:
    return MemoryCommandRef(
        command_id=command.command_id,
        action=command.action,
        by=command.by,
        asked_by=command.asked_by,
        reason=command.reason,
        asked_at=command.asked_at,
    )


def _said_at(command: MemoryCommanded) -> datetime:
    return min(command.said_at or command.asked_at, command.asked_at)


def added_reflection_id(command_id: str) -> str:
    """Return the id of the reflection that a command to add one leads to."""
    return blake2b(command_id.encode(), digest_size=16).hexdigest()


def _added(delivery: Delivery, command: MemoryCommanded) -> ReflectionFormed:
    assert command.text is not None
    return ReflectionFormed(
        cause=delivery.id,
        reflection_id=added_reflection_id(command.command_id),
        scope=command.scope,
        text=" ".join(command.text.split()),
        position=1,
        session_id=command.sources[0].session_id if command.sources else None,
        origin="imported" if command.by == "import" else "added",
        sources=command.sources,
        formed_at=command.asked_at,
        said_at=_said_at(command),
        private=bool(command.private),
        asked_by=command.asked_by,
        command=_ref(command),
    )


def _reflection(
    delivery: Delivery, command: MemoryCommanded, current: CurrentMemory
) -> ReflectionFormed | Refusal:
    reflection = current.reflection
    if reflection is None:
        return "unknown"
    changes_text = command.action == "retire_reflection" or command.text is not None
    absorbed = current.absorbed and changes_text
    refusal = reflection_refusal(reflection, command.expected_version, absorbed=absorbed)
    if refusal is not None:
        return refusal
    changed = {"retired_at": command.asked_at}
    if command.action == "edit_reflection":
        text = reflection.text if command.text is None else " ".join(command.text.split())
        private = reflection.private if command.private is None else command.private
        if (text, private) == (reflection.text, reflection.private):
            return "needless"
        said_at = reflection.said_at if text == reflection.text else _said_at(command)
        changed = {"text": text, "private": private, "said_at": said_at}
    version = {"version": reflection.version + 1, "cause": delivery.id, "call": None}
    return reflection.model_copy(update={**changed, **version, "command": _ref(command)})


def taken_back(
    changed: ReflectionFormed, *, absorbed: bool, supported: Sequence[str] = ()
) -> list[Forgotten]:
    """Return the records that forget what was propagated from a reflection that has become private, or is retired.

    `absorbed`: only then can it be propagated itself; `supported`: what was propagated because it shows the same.
    """
    command = changed.command
    if command is None or not is_withdrawn(changed):
        return []
    own = [Propagated.id_of(changed.reflection_id)] if absorbed else []
    return [
        Forgotten(
            kind="reflection",
            id=name,
            reach="for_ever",
            because="asked",
            asked_by=command.asked_by,
            forgotten_at=command.asked_at,
        )
        for name in [*own, *supported]
    ]


def is_withdrawn(reflection: ReflectionFormed) -> bool:
    """Return whether a reflection may support nothing in a broader scope."""
    return reflection.private or reflection.retired_at is not None


def reflection_refusal(
    reflection: Reflection | ReflectionFormed, expected_version: int | None, *, absorbed: bool
) -> Refusal | None:
    """Return why a reflection cannot be edited or retired; None: it can."""
    if reflection.retired_at is not None:
        return "unknown"
    if expected_version not in (None, reflection.version):
        return "stale"
    return "absorbed" if absorbed else None


def _blob(
    delivery: Delivery,
    command: MemoryCommanded,
    blob: CurrentBlob,
    limits: ScopeLimits,
    settings_version: str,
) -> ScopeConsolidated | Refusal:
    assert command.text is not None
    changed = BlobEdit(command.action, command.text, command.expected_version).applied_to(blob, limits)
    if not isinstance(changed, BlobText):
        return changed
    asked, said_at = command.asked_at, _said_at(command)
    return ScopeConsolidated(
        cause=delivery.id,
        scope=command.scope,
        version=blob.highest + 1,
        based_on=blob.version,
        text=versioned(changed.text, blob.highest + 1, limits),
        words=words_of(changed.text),
        word_limit=limits.blob_words,
        absorbed=(),
        because="imported" if command.by == "import" else "edited",
        pins=changed.pins,
        command=_ref(command),
        consolidated_at=max(asked, blob.consolidated_at or asked),
        said_at=max(said_at, blob.said_at or said_at),
        settings_version=settings_version,
    )
