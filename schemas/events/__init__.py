"""Every record of every topic (docs/reference/events.md), and `decode`."""

from schemas.events.base import Derived, Event
from schemas.events.changes import ScopeChanged
from schemas.events.chat import FormationAsked, MessageRecorded, SessionEnded, Watermark
from schemas.events.facts import CommandRef, Considered, FactChanged, FactCommanded, FactsProposed
from schemas.events.forgetting import Forgotten
from schemas.events.formation import ExtractedFact, FactsExtracted, FormationRequested, Window
from schemas.events.reflections import Propagated, ReflectionFormed, ScopeConsolidated, SessionClosed
from schemas.events.usage import ModelCalled
from schemas.registry import Registry, SchemaViolation

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
        ReflectionFormed,
        SessionClosed,
        ScopeConsolidated,
        Forgotten,
        ScopeChanged,
        ModelCalled,
    ),
    upcasts={},
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
