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
from eden_memory.schemas.registry import Payload, Registry, SchemaViolation

POSITIONED = (
    MessageRecorded,
    SessionEnded,
    FormationAsked,
    FormationRequested,
    FactsExtracted,
    FactsProposed,
    FactCommanded,
    FactChanged,
    ReflectionFormed,
    Forgotten,
)
"""Since v2 the version of a message may hold a position within its transaction; what v1 holds reads as it is."""

OF_A_SCOPE = (
    FormationRequested,
    FactsExtracted,
    FactsProposed,
    FactCommanded,
    FactChanged,
    ReflectionFormed,
    SessionClosed,
    ScopeConsolidated,
    ScopeChanged,
)
"""Since v3 (SessionClosed and ScopeChanged: v2) audiences of more than 100 users are not listed; an earlier list
reads as it is."""

COMMANDED = (ReflectionFormed, ScopeConsolidated)
"""Since v4 commands change them; what v3 holds reads as version 1, unretired, without pins."""


def _unchanged(payload: Payload) -> Payload:
    return payload


REGISTRY = Registry(
    events=(
        MessageRecorded,
        SessionEnded,
        FormationAsked,
        Watermark,
        FormationRequested,
        FactsExtracted,
        FactsProposed,
        FactCommanded,
        FactChanged,
        MemoryCommanded,
        ReflectionFormed,
        SessionClosed,
        ScopeConsolidated,
        Forgotten,
        ScopeChanged,
        ModelCalled,
    ),
    upcasts={
        **{(event.NAME, 1): _unchanged for event in POSITIONED},
        (ScopeConsolidated.NAME, 1): _unchanged,
        **{
            (event.NAME, 1 if event in (SessionClosed, ScopeChanged) else 2): _unchanged
            for event in OF_A_SCOPE
        },
        **{(event.NAME, 3): _unchanged for event in COMMANDED},
        (FactCommanded.NAME, 3): _unchanged,  # since v4 a command may ask a model to decide
        (MessageRecorded.NAME, 1): lambda payload: {**payload, "mapping": None},
        (FormationAsked.NAME, 1): lambda payload: {**payload, "if_due": False},
        (ModelCalled.NAME, 1): lambda payload: {**payload, "requests": 1},
        (Forgotten.NAME, 1): lambda payload: {**payload, "after": None},
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
