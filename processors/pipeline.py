"""The table of the system: which stage does what, reads which events, publishes which, and how much at once.

A test holds it against topics.yaml. A new stage is a file beside this one, a row here, and a program there.
"""

from collections.abc import Mapping, Sequence
from itertools import takewhile

from eden_memory.formation.fact_statements import adds_together, closed_all_the_same, failed_extraction
from eden_memory.limits import MOST_FACTS_TOGETHER
from eden_memory.schemas.events import (
    FactChanged,
    FactCommanded,
    FactsExtracted,
    FactsProposed,
    Forgotten,
    FormationAsked,
    FormationRequested,
    MemoryCommanded,
    MessageRecorded,
    ModelCalled,
    ReflectionFormed,
    ScopeChanged,
    ScopeConsolidated,
    SessionClosed,
    SessionEnded,
    Watermark,
)
from eden_memory.stages.stage import Delivery, Emitted, Handler, Stage

FORMATION_TRIGGER = "formation-trigger"
FACT_EXTRACTION = "fact-extraction"
FACT_DEDUP = "fact-dedup"
REFLECTION_EXTRACTION = "reflection-extraction"
CONSOLIDATION = "consolidation"
PROPAGATION = "propagation"
FORGETTING = "forgetting"
ATLAS_WRITER = "atlas-writer"
CONTEXT_CACHE = "context-cache"
USAGE = "usage"
WEBHOOKS = "webhooks"

NAMES = (
    FORMATION_TRIGGER,
    FACT_EXTRACTION,
    FACT_DEDUP,
    REFLECTION_EXTRACTION,
    CONSOLIDATION,
    PROPAGATION,
    FORGETTING,
    ATLAS_WRITER,
    CONTEXT_CACHE,
    USAGE,
    WEBHOOKS,
)
"""In flow order."""
KEEP_THEIR_OWN_STATE = frozenset({FORMATION_TRIGGER, ATLAS_WRITER, CONTEXT_CACHE, USAGE, WEBHOOKS})
"""Idempotent, or with state and outcome in one document: they have no outcomes in the ledger."""


def stages(handlers: Mapping[str, Handler]) -> tuple[Stage, ...]:
    """Return the stages that have a handler, in flow order."""
    table = (
        Stage(
            FORMATION_TRIGGER,
            _of(handlers, FORMATION_TRIGGER),
            reads=(MessageRecorded, SessionEnded, FormationAsked, Watermark),
            writes=(FormationRequested, Forgotten, MessageRecorded),
            batch=2_500,
            records_at_once=5_000,
            rest=0.25,
            decides=False,
        ),
        Stage(
            FACT_EXTRACTION,
            _of(handlers, FACT_EXTRACTION),
            reads=(FormationRequested,),
            writes=(FactsExtracted, FactsProposed, ModelCalled),
            on_dead=failed_extraction,
        ),
        Stage(
            FACT_DEDUP,
            _of(handlers, FACT_DEDUP),
            reads=(FactsProposed, FactCommanded),
            writes=(FactChanged, FactCommanded, ModelCalled),
            together=40,
            together_first=statements_together,
        ),
        Stage(
            REFLECTION_EXTRACTION,
            _of(handlers, REFLECTION_EXTRACTION),
            reads=(FactsExtracted,),
            writes=(ReflectionFormed, SessionClosed, ModelCalled),
            on_dead=closed_all_the_same,
        ),
        Stage(
            CONSOLIDATION,
            _of(handlers, CONSOLIDATION),
            reads=(ScopeChanged, MemoryCommanded),
            writes=(ScopeConsolidated, ReflectionFormed, ScopeChanged, Forgotten, ModelCalled),
            together=100,
            rest=0.1,
            together_first=changes_together,
            one_question=True,
            keeps_empty=False,
        ),
        Stage(
            PROPAGATION,
            _of(handlers, PROPAGATION),
            reads=(ScopeConsolidated,),
            writes=(ReflectionFormed, ModelCalled),
            keeps_empty=False,
        ),
        Stage(
            FORGETTING,
            _of(handlers, FORGETTING),
            reads=(Forgotten,),
            writes=(Forgotten, FactCommanded, MemoryCommanded, FactsExtracted, FactsProposed),
            in_parts=True,
            noted=True,
        ),
        Stage(
            ATLAS_WRITER,
            _of(handlers, ATLAS_WRITER),
            reads=(FactChanged, ReflectionFormed, SessionClosed, ScopeConsolidated),
            writes=(ScopeChanged, FactCommanded, Forgotten),
            batch=500,
            decides=False,
            noted=True,
        ),
        Stage(
            CONTEXT_CACHE,
            _of(handlers, CONTEXT_CACHE),
            reads=(ScopeChanged,),
            batch=500,
            rest=0.05,
            decides=False,
        ),
        Stage(
            USAGE,
            _of(handlers, USAGE),
            reads=(ModelCalled,),
            batch=500,
            rest=0.5,
            decides=False,
        ),
        Stage(
            WEBHOOKS,
            _of(handlers, WEBHOOKS),
            reads=(FactChanged, ReflectionFormed),
            batch=500,
            rest=0.2,
            decides=False,
        ),
    )
    return tuple(stage for stage in table if stage.name in handlers)


async def _absent(deliveries: Sequence[Delivery]) -> Sequence[Emitted]:
    """Stand in for a handler that was not given; its stage is left out."""
    raise NotImplementedError(f"no handler for {deliveries[0].topic}")


def _of(handlers: Mapping[str, Handler], name: str) -> Handler:
    return handlers.get(name, _absent)


def changes_together(deliveries: Sequence[Delivery]) -> int:
    """Return how many waiting records of a scope to decide at once: changes up to the next command, else it alone."""
    changes = takewhile(lambda delivery: not isinstance(delivery.event, MemoryCommanded), deliveries)
    return max(sum(1 for _ in changes), 1)


def statements_together(deliveries: Sequence[Delivery]) -> int:
    """Return how many waiting records of a scope to decide at once: proposals or additions of ≤ 64 facts; else 1."""
    if not isinstance(deliveries[0].event, FactsProposed):
        return max(adds_together(deliveries[:MOST_FACTS_TOGETHER]), 1)
    facts = 0
    for index, delivery in enumerate(deliveries):
        if not isinstance(delivery.event, FactsProposed):
            return index
        facts += len(delivery.event.facts)
        if facts > MOST_FACTS_TOGETHER:
            return max(index, 1)
    return len(deliveries)
