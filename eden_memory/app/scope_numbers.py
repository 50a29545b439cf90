"""A view in numbers: what each visible scope holds, and how near it is to its next consolidation."""

import asyncio
from typing import Any

from pymongo.asynchronous.database import AsyncDatabase

from eden_memory.access.visible import VisibleMemory, VisibleScope
from eden_memory.formation.consolidation_rules import due
from eden_memory.memory.results import ConsolidationStatus, ScopeStats
from eden_memory.names import Names
from eden_memory.schemas.documents import Reflection
from eden_memory.scope_limits import label_of
from eden_memory.word_limits import words_of


async def scope_stats(
    database: AsyncDatabase[dict[str, Any]], names: Names, view: VisibleMemory
) -> dict[str, ScopeStats]:
    """By label (`agent`, `user`, `shard:<name>`, …)."""
    reflections = database[names[Reflection.COLLECTION]]
    counts = await asyncio.gather(
        *(reflections.count_documents({"scope_key": shown.scope.key}) for shown in view.shown)
    )
    return {
        label_of(shown.scope): _stats(shown, count) for shown, count in zip(view.shown, counts, strict=True)
    }


def consolidation_status(view: VisibleMemory) -> dict[str, ConsolidationStatus]:
    """By label."""
    return {label_of(shown.scope): _status(shown) for shown in view.shown}


def _stats(shown: VisibleScope, reflections: int) -> ScopeStats:
    snapshot = shown.snapshot
    return ScopeStats(
        scope_key=shown.scope.key,
        words=words_of(snapshot.blob or ""),
        blob_version=snapshot.blob_version,
        reflections=reflections,
        buffered=len(snapshot.buffer),
        facts=snapshot.active_facts,
        consolidated_at=snapshot.consolidated_at,
        changed_at=snapshot.changed_at,
    )


def _status(shown: VisibleScope) -> ConsolidationStatus:
    snapshot = shown.snapshot
    return ConsolidationStatus(
        scope_key=shown.scope.key,
        buffered=len(snapshot.buffer),
        threshold=shown.limits.threshold,
        due=due(snapshot, shown.limits) is not None,
        consolidated_at=snapshot.consolidated_at,
    )
