"""The port that counts model calls: used by the usage stage and by searches."""

from collections.abc import Sequence
from typing import Protocol

from eden_memory.schemas.events import ModelCalled


class UsageStore(Protocol):
    """The totals of model calls, and which calls are in them."""

    async def count(self, calls: Sequence[ModelCalled]) -> Sequence[ModelCalled]:
        """Add calls (each id once) to the totals; return those that were not in them yet."""
        ...
