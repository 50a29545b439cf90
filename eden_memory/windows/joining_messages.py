"""Tells messages that only add to a session's waiting ones from records that cause something."""

from collections.abc import Sequence
from datetime import datetime

from eden_memory.schemas.events import MessageRecorded
from eden_memory.stages.stage import Delivery
from eden_memory.windows.cached_sessions import CachedSessions


def only_join(deliveries: Sequence[Delivery], cached: CachedSessions) -> bool:
    """Tell whether all are new messages of cached sessions and of authors known there, and close no window."""
    joining: dict[str, list[tuple[MessageRecorded, datetime]]] = {}
    for delivery in deliveries:
        event = delivery.event
        if not isinstance(event, MessageRecorded) or event.origin != "stream" or delivery.asks_anew:
            return False
        joining.setdefault(event.session_id, []).append((event, delivery.envelope.time))
    sessions = cached.find(joining)
    return len(sessions) == len(joining) and all(
        session.stays_open(joining[name]) for name, session in sessions.items()
    )
