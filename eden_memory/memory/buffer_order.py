"""The order of a scope's buffer: by when its reflections were said, whenever they were formed. Pure."""

from collections.abc import Iterable
from datetime import datetime

from eden_memory.constants import SHOWN_OF_A_BUFFER
from eden_memory.schemas.documents import BufferedReflection


def oldest_first(buffer: Iterable[BufferedReflection]) -> list[BufferedReflection]:
    """The reflections in the order in which they were said."""
    return sorted(buffer, key=lambda one: (one.said_at, one.formed_at, one.position, one.reflection_id))


def newest(buffer: Iterable[BufferedReflection], threshold: int) -> list[BufferedReflection]:
    """The reflections that prompts show of a buffer, oldest first."""
    return oldest_first(buffer)[-SHOWN_OF_A_BUFFER * threshold :]


def last_formed(buffer: Iterable[BufferedReflection]) -> datetime | None:
    """When the last of them was formed; None without any."""
    return max((one.formed_at for one in buffer), default=None)
