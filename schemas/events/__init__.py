"""Every record of every topic (docs/reference/events.md), and `decode`."""

from eden_memory.schemas.events.base import Derived, Event
from eden_memory.schemas.events.changes import ScopeChanged
from eden_memory.schemas.events.chat import FormationAsked, MessageRecorded, SessionEnded, Watermark
from eden_memory.schemas.events.facts import CommandRef, Considered, FactChanged, FactCommanded, FactsProposed
from eden_memory.schemas.events.forgetting import Forgotten
from eden_memory.schemas.events.formation import ExtractedFact, FactsExtracted, FormationRequested, Window
from eden_memory.schemas.events.reflections import (
    MemoryCommanded,
    MemoryCommandRef,
    Propagated,
    ReflectionFormed,
    ScopeConsolidated,
    SessionClosed,
)
from eden_memory.schemas.events.usage import ModelCalled
from eden_memory.schemas.registry import Registry, SchemaViolation, Upcast

EVENTS: tuple[tuple[type[Event], *tuple[Upcast, ...]], ...] = (
    (MessageRecorded,),
    (SessionEnded,),
    (FormationAsked,),
    (Watermark,),
    (FormationRequested,),
    (FactsExtracted,),
    (FactsProposed,),
    (FactCommanded,),
    (FactChanged,),
    (MemoryCommanded,),
    (ReflectionFormed,),
    (SessionClosed,),
    (ScopeConsolidated,),
    (Forgotten,),
    (ScopeChanged,),
    (ModelCalled,),
)
"""Every event, followed by its upcasts once it has any: v1 to v2, v2 to v3, …"""

REGISTRY = Registry(
    events=[event for event, *_ in EVENTS],
    upcasts={
        (event.NAME, version): step for event, *steps in EVENTS for version, step in enumerate(steps, 1)
    },
)


def decode(name: str, version: int, value: bytes) -> Event:
    """The event that a record's value holds, in its newest version; a SchemaViolation if it holds none."""
    return REGISTRY.decode(name, version, value)


__all__ = [
    "REGISTRY",
    "CommandRef",
    "Considered",
    "Derived",
    "Event",
    "ExtractedFact",
    "FactChanged",
    "FactCommanded",
    "FactsExtracted",
    "FactsProposed",
    "Forgotten",
    "FormationAsked",
    "FormationRequested",
    "MemoryCommandRef",
    "MemoryCommanded",
    "MessageRecorded",
    "ModelCalled",
    "Propagated",
    "ReflectionFormed",
    "SchemaViolation",
    "ScopeChanged",
    "ScopeConsolidated",
    "SessionClosed",
    "SessionEnded",
    "Watermark",
    "Window",
    "decode",
]
