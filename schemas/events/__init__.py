"""Every record of every topic (docs/reference/events.md), and `decode`."""

from typing import Any

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
from eden_memory.schemas.registry import Payload, Registry, SchemaViolation, Upcast


def _unchanged(payload: Payload) -> Payload:
    """The newer version only allows more (positions within a transaction, audiences that are not listed), and
    what it adds has a default."""
    return payload


def _with(field: str, value: Any) -> Upcast:
    return lambda payload: {**payload, field: value}


EVENTS: tuple[tuple[type[Event], *tuple[Upcast, ...]], ...] = (
    (MessageRecorded, _with("mapping", None)),
    (SessionEnded, _unchanged),
    (FormationAsked, _with("if_due", False)),
    (Watermark,),
    (FormationRequested, _unchanged, _unchanged, _unchanged),
    (FactsExtracted, _unchanged, _unchanged, _unchanged, _unchanged),
    (FactsProposed, _unchanged, _unchanged, _unchanged),
    (FactCommanded, _unchanged, _unchanged, _unchanged, _unchanged),
    (FactChanged, _unchanged, _unchanged, _unchanged, _unchanged),
    (MemoryCommanded,),
    (ReflectionFormed, _unchanged, _unchanged, _unchanged),
    (SessionClosed, _unchanged),
    (ScopeConsolidated, _unchanged, _unchanged, _unchanged),
    (Forgotten, _with("after", None), _unchanged),
    (ScopeChanged, _unchanged),
    (ModelCalled, _with("requests", 1)),
)
"""Every event with its upcasts: v1 to v2, v2 to v3, …"""

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
