"""A call of a model as the usage topic tells of it, with what a test does not look at filled in."""

from datetime import UTC, datetime
from typing import Any

from eden_memory.schemas.events import ModelCalled


def called(call_id: str, **fields: Any) -> ModelCalled:
    """An answered chat call of live's fact-extraction, its price unknown; `fields` take the place of the rest."""
    known: dict[str, Any] = {
        "namespace": "live",
        "agent_id": "s.a",
        "stage": "fact-extraction",
        "operation": "chat",
        "provider": "p",
        "model": "m",
        "outcome": "answered",
        "started_at": datetime(2026, 11, 1, 12, tzinfo=UTC),
        "seconds": 0.1,
    }
    return ModelCalled(call_id=call_id, **{**known, **fields})
