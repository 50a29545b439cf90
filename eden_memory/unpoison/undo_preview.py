"""Preview of undoing an attack: what would change, as ids and versions without texts. Pure."""

from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import sha256
from typing import Literal

from eden_memory.schemas.events import FactChanged
from eden_memory.unpoison.attack_rules import Attack, AttackPlan, WithdrawnBlob

Change = Literal[
    "fact_removed",
    "text_restored",
    "fact_reactivated",
    "reflection_removed",
    "blob_withdrawn",
    "blob_consolidated_again",
]
MOST_NAMED = 1_000
"""Memories of a change that a door names."""


@dataclass(frozen=True, slots=True)
class PlannedChange:
    """Memories to which the same would happen."""

    change: Change
    ids: tuple[str, ...]
    """In order. Of a fact or reflection its id, of a restored text `<fact id>@<version>`, of a blob
    `<scope key>@<version>`, the lowest version that goes."""

    @property
    def count(self) -> int:
        """The number of memories."""
        return len(self.ids)


@dataclass(frozen=True, slots=True)
class UndoPreview:
    """All that would change; nothing: no memory rests on it."""

    changes: tuple[PlannedChange, ...]
    preview: str
    """Names exactly these changes: what would change has this name until it is something else."""


def preview_of(attack: Attack, plan: AttackPlan) -> UndoPreview:
    """Return what a plan changes."""
    changes = tuple(change for change in _changes(plan) if change.ids)
    names = "\n".join(f"{change.change} {name}" for change in changes for name in change.ids)
    digest = sha256(f"{attack.kind}\n{attack.id}\n{names}".encode()).hexdigest()
    return UndoPreview(changes, digest[:32])


def _changes(plan: AttackPlan) -> Iterator[PlannedChange]:
    yield _change("fact_removed", [fact.fact_id for fact in plan.removed])
    yield _change("text_restored", [_text(restored.fact) for restored in plan.restored])
    yield _change("fact_reactivated", [fact.fact_id for fact in plan.returning])
    yield _change("reflection_removed", [found.reflection_id for found in plan.reflections])
    yield _change("blob_withdrawn", [_named(blob) for blob in plan.blobs if not blob.anew])
    yield _change("blob_consolidated_again", [_named(blob) for blob in plan.blobs if blob.anew])


def _text(fact: FactChanged) -> str:
    return f"{fact.fact_id}@{fact.version}"


def _named(blob: WithdrawnBlob) -> str:
    return f"{blob.scope.key}@{blob.version}"


def _change(change: Change, ids: list[str]) -> PlannedChange:
    return PlannedChange(change, tuple(sorted(ids)))
