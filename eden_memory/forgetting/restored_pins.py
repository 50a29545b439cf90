"""Pins that people set or removed after a blob version that is forgotten: commands that restore them. Pure."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass

from eden_memory.memory.memory_batch import normalised
from eden_memory.schemas.events import Forgotten, MemoryCommanded, MemoryCommandRef
from eden_memory.schemas.scopes import Scope

RESTORED_FOR = frozenset({"person", "application", "mirror", "forgetting"})
"""Whose pins are restored; `forgetting` has restored one before."""


@dataclass(frozen=True, slots=True)
class PinnedBlob:
    """What one version of a blob says and pins."""

    version: int
    text: str
    pins: tuple[str, ...]
    command: MemoryCommandRef | None


@dataclass(frozen=True, slots=True)
class WithdrawnPins:
    """The versions of a scope's blob that are withdrawn, oldest first, and the one that readers see then."""

    scope: Scope
    withdrawn: Sequence[PinnedBlob]
    before: PinnedBlob | None

    def versions_with_previous(self) -> Iterator[tuple[PinnedBlob | None, PinnedBlob]]:
        """Yield each withdrawn version with the one before it."""
        return zip((self.before, *self.withdrawn), self.withdrawn, strict=False)


def restored_pins(
    forgotten: Forgotten, blobs: Iterable[WithdrawnPins], own: Collection[str], texts: Iterable[str]
) -> list[MemoryCommanded]:
    """Return commands that pin and unpin again what people did in versions that are withdrawn.

    `own`: keys of the scopes that belong to what is forgotten; `texts`: all that the forgotten memory says. Nothing
    of these is pinned again, nor a sentence that the blob held before it was pinned: it may come from what is
    forgotten, here or by another record.
    The same goes for the sessions of a forgotten user, who may have pinned it.
    """
    said = [normalised(text) for text in texts]
    return [
        command
        for scope_blobs in blobs
        if scope_blobs.scope.key not in own
        and not (forgotten.kind == "user" and scope_blobs.scope.kind == "session")
        for command in _commands(forgotten, scope_blobs, said)
    ]


def _commands(forgotten: Forgotten, blobs: WithdrawnPins, said: Sequence[str]) -> Iterator[MemoryCommanded]:
    newest = blobs.withdrawn[-1]
    before = blobs.before.pins if blobs.before else ()
    unpinned = [pin for pin in before if pin not in newest.pins]
    pinned = [pin for pin in newest.pins if pin not in before]
    for number, sentence in enumerate([*unpinned, *pinned], 1):
        changed = _changed_by_people(blobs, sentence)
        if changed is None or f"{blobs.scope.key}@{changed.version}" == forgotten.id:
            continue
        if sentence in pinned and not _is_of_pinner(blobs, changed, normalised(sentence), said):
            continue
        assert changed.command is not None
        asked_at = changed.command.asked_at
        yield MemoryCommanded(
            command_id=f"repinned/{blobs.scope.key}/{newest.version}/{number}",
            scope=blobs.scope,
            action="pin" if sentence in pinned else "unpin",
            text=sentence,
            by="forgetting",
            asked_by=forgotten.asked_by,
            reason="the blob version that it was based on is forgotten",
            asked_at=max(forgotten.forgotten_at, asked_at),
            said_at=asked_at,
        )


def _changed_by_people(blobs: WithdrawnPins, sentence: str) -> PinnedBlob | None:
    """Return the last version that pinned or unpinned a sentence; None if nobody asked for that."""
    changes = [
        version
        for previous, version in blobs.versions_with_previous()
        if (sentence in version.pins) != (previous is not None and sentence in previous.pins)
    ]
    command = changes[-1].command if changes else None
    return changes[-1] if command is not None and command.by in RESTORED_FOR else None


def _is_of_pinner(blobs: WithdrawnPins, pinned: PinnedBlob, sentence: str, said: Sequence[str]) -> bool:
    """Return whether a sentence is the words of whoever pinned it."""
    if any(text in sentence or sentence in text for text in said):
        return False
    earlier = (version for version in blobs.withdrawn if version.version < pinned.version)
    texts = (version.text for version in (*earlier, blobs.before) if version is not None)
    return not any(sentence in normalised(text) for text in texts)
