"""What the stage that counts calls asks of its store, and tells those who watch."""

from collections.abc import Sequence
from typing import Protocol

from eden_memory.schemas.events import ModelCalled


class UsageStore(Protocol):
    """The totals of model calls, and which calls are in them."""

    async def count(self, calls: Sequence[ModelCalled]) -> Sequence[ModelCalled]:
        """Add calls (each id once) to the totals; those that were not in them yet."""
        ...


class UsageWatch(Protocol):
    """Who counts what the usage stage does."""

    def counted(self, calls: Sequence[ModelCalled], *, repeated: int) -> None:
        """These went into the totals; so many more were there already."""
        ...
