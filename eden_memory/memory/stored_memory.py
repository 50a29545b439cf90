"""A scope's stored memory as far as a batch touches it, and the change that the batch makes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from eden_memory.memory.memory_batch import ScopeBatch
from eden_memory.schemas.documents import (
    BufferedReflection,
    Consolidated,
    Fact,
    RecentFact,
    Reflection,
    Snapshot,
    StoredBlob,
)
from eden_memory.schemas.scopes import Scope

Part = Literal["facts", "reflections", "blob"]


@dataclass(slots=True)
class StoredScope:
    """Read after the snapshot: if the snapshot is unchanged at the write, all of this is unchanged, too."""

    snapshot: Snapshot | None = None
    facts: dict[str, Fact] = field(default_factory=dict[str, Fact])
    """Those that the batch names, and all not retired that share a text (hash) with one, before or after it."""
    reflections: dict[str, Reflection] = field(default_factory=dict[str, Reflection])
    """Those that the batch names, lists as absorbed, or frees by removing a blob."""
    blob: Consolidated | None = None
    """Read if the batch has or removes a blob."""
    versions: dict[int, StoredBlob] = field(default_factory=dict[int, StoredBlob])
    """Of the blob versions that the batch has or removes, those that are known; without their texts."""
    absorbing: tuple[StoredBlob, ...] = ()
    """Blob versions that list a reflection of the batch, or one that it frees; without their texts."""
    left: tuple[StoredBlob, ...] = ()
    """If the batch removes a version that is shown or in the history: the newest versions that stay."""
    highest: int = 0
    """The highest blob version ever given; read only where there is no snapshot."""
    other_facts: tuple[RecentFact, ...] = ()
    """The newest active facts beside `facts`, if one of the snapshot's list may leave it."""
    other_reflections: tuple[BufferedReflection, ...] = ()
    """The oldest buffered reflections beside `reflections`, if the snapshot's buffer is full."""

    @property
    def next_revision(self) -> int:
        """Of the commit that changes something."""
        return 1 if self.snapshot is None else self.snapshot.revision + 1


@dataclass(slots=True)
class ScopeWrite:
    """The documents to write of one scope, all or none, if its snapshot is still at `based_on`."""

    snapshot: Snapshot | None
    """None where nothing but numbers of forgotten blob versions is known of the scope."""
    based_on: int | None
    """The revision that was read; None: no snapshot yet."""
    facts: tuple[Fact, ...] = ()
    gone_facts: tuple[str, ...] = ()
    released: tuple[str, ...] = ()
    """Facts whose text another fact of this change takes over: their texts are freed first."""
    reflections: tuple[Reflection, ...] = ()
    gone_reflections: tuple[str, ...] = ()
    blob: Consolidated | None = None
    blob_gone: bool = False
    versions: tuple[StoredBlob, ...] = ()
    parts: tuple[Part, ...] = ()
    known: frozenset[str] = frozenset()
    """Ids of documents that existed when the scope was read."""


@dataclass(slots=True)
class Projected:
    """A batch applied to what is stored."""

    snapshot: Snapshot | None
    """The snapshot after the change, or the stored one if nothing changes."""
    change: ScopeWrite | None
    duplicates: tuple[Fact, ...] = ()
    """Facts kept out of search because an older one says the same."""


@dataclass(frozen=True, slots=True)
class AppliedScope:
    """The result of applying a scope's batch."""

    snapshot: Snapshot | None
    parts: tuple[Part, ...] = ()
    """The parts that changed; empty if the batch changed nothing."""
    duplicates: tuple[Fact, ...] = ()


def scope_fields(scope: Scope | None, snapshot: Snapshot | None = None) -> dict[str, Any]:
    """Return the fields that say to whom a document belongs, from a scope or from the scope's snapshot."""
    if scope is not None:
        return {
            "scope": scope.kind,
            "scope_key": scope.key,
            "agent_id": scope.agent_id,
            "group_id": scope.group_id,
            "user_id": scope.user_id,
        }
    assert snapshot is not None, "a blob or fact that is stored has a snapshot"
    return {
        name: getattr(snapshot, name) for name in ("scope", "scope_key", "agent_id", "group_id", "user_id")
    }


class MemoryStore(Protocol):
    """The memory collections; only atlas-writer writes them."""

    async def load(self, batches: Sequence[ScopeBatch]) -> Mapping[str, StoredScope]:
        """Return each scope's stored memory as far as its batch touches it; empty if a document cannot be read."""
        ...

    async def apply(
        self, batches: Sequence[ScopeBatch], stored: Mapping[str, StoredScope] | None = None
    ) -> Mapping[str, AppliedScope | Exception]:
        """Write each scope's records, all or none; return results by scope key, an error for those that failed.

        `stored`: what `load` found for these batches a moment ago.
        """
        ...
