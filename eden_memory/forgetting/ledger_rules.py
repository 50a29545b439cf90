"""Records of stored outcomes without what is forgotten. Pure."""

from collections.abc import Iterable
from typing import TypeGuard

from eden_memory.forgotten import Marks, ids_of, ids_of_window
from eden_memory.memory.memory_batch import Memory, fact_hash, is_forgotten, named_by
from eden_memory.schemas.envelope import Envelope
from eden_memory.schemas.events import (
    Event,
    FactChanged,
    FactCommanded,
    FactsExtracted,
    FactsProposed,
    FormationRequested,
    MemoryCommanded,
    ReflectionFormed,
    ScopeConsolidated,
)
from eden_memory.schemas.events.formation import Window
from eden_memory.schemas.provenance import SourceMessage
from eden_memory.stages.codec import event_id
from eden_memory.stages.stage import Delivery, Emit, Erase

Stating = FactsExtracted | FactsProposed
Commanding = FactCommanded | MemoryCommanded
REASON = "forgotten"
ENDED: dict[str, type[Event]] = {of.NAME: of for of in (FactsProposed, FactCommanded, MemoryCommanded)}
"""Events that a tombstone ends when nothing is left of them."""

MEMORY = frozenset(of.NAME for of in (FactChanged, ReflectionFormed, ScopeConsolidated))
"""Events of which nothing but numbers is left once they are erased; the writer's topics end them by tombstones."""


def concerned(events: Iterable[Event]) -> set[tuple[str, str]]:
    """Return (kind, target) of everything whose forgetting concerns any of the events."""
    named: set[tuple[str, str]] = set()
    for event in events:
        named |= {*named_by([event]), *ids_of(None, _sources(event))}
    return named


def window_of(event: Event | None) -> Window | None:
    """Return the window that a question about this event shows."""
    match event:
        case FormationRequested():
            return event
        case FactsExtracted():
            return event.window
        case _:
            return None


def asked_about(event: Event | None) -> set[tuple[str, str]]:
    """Return (kind, target) of everything whose forgetting concerns a question about this event."""
    if (window := window_of(event)) is not None:
        return ids_of_window(window)
    return concerned([event]) if _is_compared(event) else set()


def showed_forgotten(event: Event | None, marks: Marks) -> bool:
    """Return whether a question about this event may have shown something that is forgotten by now."""
    if (window := window_of(event)) is not None:
        return marks.window_gone(window)
    return _is_compared(event) and marks.any_gone(_sources(event))


def _is_compared(event: Event | None) -> TypeGuard[FactsProposed | FactCommanded]:
    """Return whether a model may be asked what it means for the facts near it."""
    return isinstance(event, FactsProposed) or (isinstance(event, FactCommanded) and event.decide)


def without_forgotten(event: Event, marks: Marks) -> Event | None:
    """Return an event without what is forgotten: the same one if nothing is, None if nothing else is in it."""
    match event:
        case FactsExtracted() | FactsProposed():
            facts = tuple(fact for fact in event.facts if not marks.any_gone(fact.sources))
            if len(facts) == len(event.facts):
                return event
            left = event.model_copy(update={"facts": facts})
            return left if facts or isinstance(event, FactsExtracted) else None
        case FactCommanded() | MemoryCommanded():
            return None if marks.any_gone(event.sources) else event
        case FactChanged() | ReflectionFormed() | ScopeConsolidated():
            return _without_text(event) if event.text and is_forgotten(event, marks) else event
        case _:
            return event


def _without_text(event: Memory) -> Event:
    """Return a version with its numbers alone: who decides next goes on from them."""
    match event:
        case FactChanged():
            empty: dict[str, object] = {
                "hash": fact_hash(""),
                "embedding": None,
                "statement": None,
                "reason": None,
            }
        case ScopeConsolidated():
            empty = {"words": 0, "pins": ()}
        case _:
            empty = {}
    return event.model_copy(update={"text": "", **empty})


def published_again(left: Event | None, before: Envelope, key: str, cause: Delivery) -> Emit | Erase | None:
    """Return the record that takes the place of one in a topic kept until it is consumed; None if none has to.

    It has the id of the record that it replaces, so a reader of that one skips it. Whoever ends a record publishes
    the same tombstone.
    """
    if isinstance(left, Stating):
        return Emit(left, cause, time=before.time, identity=before.id)
    if (of := ENDED.get(before.name)) is None:
        return None
    scope, identity = before.ordering_key, event_id(before.id, "forgetting", 0)
    return Erase(of, key, scope, before.subject, REASON, scope=scope, cause=cause, identity=identity)


def _sources(event: Event) -> list[SourceMessage]:
    match event:
        case FactsExtracted() | FactsProposed():
            return [source for fact in event.facts for source in fact.sources]
        case FactCommanded() | MemoryCommanded():
            return list(event.sources)
        case _:
            return []
