"""Commands on reflections and blobs, carried out without a model. Pure.

A command that names a version is carried out only while that version stands. A reflection can be changed until a blob
has absorbed it; from then on the blob is what can be edited.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from hashlib import blake2b
from typing import Literal, Protocol

from eden_memory.schemas.documents import Reflection, Snapshot
from eden_memory.schemas.events import MemoryCommanded, MemoryCommandRef, ReflectionFormed, ScopeConsolidated
from eden_memory.schemas.events.reflections import Propagated
from eden_memory.schemas.scopes import Scope
from eden_memory.scope_limits import ScopeLimits
from eden_memory.stages.stage import Delivery
from eden_memory.word_limits import words_of

Refusal = Literal["unknown", "stale", "needless", "absorbed", "too_long", "pinned"]
"""`unknown`: no such reflection, or a retired one; `stale`: another version stands; `needless`: nothing would change;
`absorbed`: a blob holds it; `too_long`: over the scope's word limit; `pinned`: the text lacks a pinned sentence."""


@dataclass(frozen=True, slots=True)
class CurrentBlob:
    """A scope's blob as decided so far; version 0: none."""

    version: int = 0
    highest: int = 0
    """The highest version ever given."""
    text: str = ""
    pins: tuple[str, ...] = ()
    consolidated_at: datetime | None = None
    said_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class CurrentMemory:
    """What a command is judged by: the stored memory of its scope with what is decided beyond it."""

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

    async def reflections_beyond(self, reflection_id: str, version: int) -> Sequence[ReflectionFormed]:
        """Return the versions of a reflection decided above this one, in order."""
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


def stored_blob(snapshot: Snapshot | None) -> CurrentBlob:
    """Return the blob that a snapshot holds."""
    if snapshot is None:
        return CurrentBlob()
    return CurrentBlob(
        snapshot.blob_version,
        snapshot.highest_blob_version,
        snapshot.blob or "",
        snapshot.pins,
        snapshot.consolidated_at,
        snapshot.blob_said_at,
    )


def _following(blob: CurrentBlob, later: ScopeConsolidated) -> CurrentBlob:
    highest = max(blob.highest, later.version)
    return CurrentBlob(later.version, highest, later.text, later.pins, later.consolidated_at, later.said_at)


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
            return _Blob(delivery, command, current.blob, limits, settings_version).changed()


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


def _added(delivery: Delivery, command: MemoryCommanded) -> ReflectionFormed:
    assert command.text is not None
    return ReflectionFormed(
        cause=delivery.id,
        reflection_id=blake2b(command.command_id.encode(), digest_size=16).hexdigest(),
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
    if reflection is None or reflection.retired_at is not None:
        return "unknown"
    if command.expected_version not in (None, reflection.version):
        return "stale"
    if current.absorbed:
        return "absorbed"
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


@dataclass(frozen=True, slots=True)
class _Blob:
    """One command on a scope's blob."""

    delivery: Delivery
    command: MemoryCommanded
    blob: CurrentBlob
    limits: ScopeLimits
    settings_version: str

    def changed(self) -> ScopeConsolidated | Refusal:
        """Return the next version, or why there is none."""
        if self.command.expected_version not in (None, self.blob.version):
            return "stale"
        assert self.command.text is not None
        match self.command.action:
            case "pin":
                return self._pinned(one_line(self.command.text))
            case "unpin":
                return self._unpinned(one_line(self.command.text))
            case _:
                return self._edited(self.command.text.strip())

    def _edited(self, text: str) -> ScopeConsolidated | Refusal:
        if text == self.blob.text:
            return "needless"
        return "pinned" if missing_pins(text, self.blob.pins) else self._version(text, self.blob.pins)

    def _pinned(self, sentence: str) -> ScopeConsolidated | Refusal:
        if sentence in self.blob.pins:
            return "needless"
        return self._version(with_pins(self.blob.text, (sentence,)), (*self.blob.pins, sentence))

    def _unpinned(self, sentence: str) -> ScopeConsolidated | Refusal:
        if sentence not in self.blob.pins:
            return "unknown"
        return self._version(self.blob.text, tuple(pin for pin in self.blob.pins if pin != sentence))

    def _version(self, text: str, pins: tuple[str, ...]) -> ScopeConsolidated | Refusal:
        if words_of(text) > self.limits.blob_words:
            return "too_long"
        asked, blob = self.command.asked_at, self.blob
        said_at = max(_said_at(self.command), blob.said_at or _said_at(self.command))
        return ScopeConsolidated(
            cause=self.delivery.id,
            scope=self.command.scope,
            version=blob.highest + 1,
            based_on=blob.version,
            text=text,
            words=words_of(text),
            word_limit=self.limits.blob_words,
            absorbed=(),
            because="imported" if self.command.by == "import" else "edited",
            pins=pins,
            command=_ref(self.command),
            consolidated_at=max(asked, blob.consolidated_at or asked),
            said_at=said_at,
            settings_version=self.settings_version,
        )


def one_line(text: str) -> str:
    """Return a sentence without line breaks and doubled spaces."""
    return " ".join(text.split())


def missing_pins(text: str, pins: Sequence[str]) -> list[str]:
    """Return the pinned sentences that a text lacks; line breaks and spaces do not count."""
    said = one_line(text)
    return [pin for pin in pins if pin not in said]


def with_pins(text: str, pins: Sequence[str]) -> str:
    """Return the text, the pinned sentences that it lacks below it, each on a line of its own."""
    return "\n".join([*filter(None, [text.strip()]), *missing_pins(text, pins)])
