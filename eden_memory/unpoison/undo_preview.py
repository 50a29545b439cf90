"""Preview of undoing an attack: what would change, as ids and versions without texts. Pure."""

from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import sha256
from typing import Literal

from eden_memory.memory.memory_views import View
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
class PlannedChange(View):
    """Memories to which the same would happen."""

    change: Change
    count: int
    ids: tuple[str, ...]
    """The first 1,000, in order: of a fact or reflection its id, of a restored text `<fact id>@<version>`, of a blob
    `<scope key>@<version>`, the lowest version that goes."""


@dataclass(frozen=True, slots=True)
class UndoPreview(View):
    """All that an undo would change, without texts; no changes: no memory rests on it."""

    changes: tuple[PlannedChange, ...]
    preview: str
    """Names exactly these changes: give it to `undo`, so that it changes nothing else."""


def preview_of(attack: Attack, plan: AttackPlan) -> UndoPreview:
    """Return what a plan changes."""
    changes: list[tuple[Change, list[str]]] = [(change, sorted(ids)) for change, ids in _changes(plan) if ids]
    names = "\n".join(f"{change} {name}" for change, ids in changes for name in ids)
    digest = sha256(f"{attack.kind}\n{attack.id}\n{names}".encode()).hexdigest()
    planned = (PlannedChange(change, len(ids), tuple(ids[:MOST_NAMED])) for change, ids in changes)
    return UndoPreview(tuple(planned), digest[:32])


def _changes(plan: AttackPlan) -> Iterator[tuple[Change, list[str]]]:
    yield ("fact_removed", [fact.fact_id for fact in plan.removed])
    yield ("text_restored", [text_id(restored.fact) for restored in plan.restored])
    yield ("fact_reactivated", [fact.fact_id for fact in plan.returning])
    yield ("reflection_removed", [found.reflection_id for found in plan.reflections])
    yield ("blob_withdrawn", [_named(blob) for blob in plan.blobs if not blob.anew])
    yield ("blob_consolidated_again", [_named(blob) for blob in plan.blobs if blob.anew])


def text_id(fact: FactChanged) -> str:
    """Return the id of a fact's text in this version."""
    return f"{fact.fact_id}@{fact.version}"


def _named(blob: WithdrawnBlob) -> str:
    return f"{blob.scope.key}@{blob.version}"
