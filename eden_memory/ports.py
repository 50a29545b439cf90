"""The few Protocols between what the program decides and what it stands on."""

from collections.abc import Mapping, Sequence
from typing import Protocol

from eden_memory.domain.budgets.budgets import Admitted, AskedWindow, Held
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


class WindowBudgets(Protocol):
    """What formation may spend: windows are asked for as long as the budgets that concern them have room."""

    def still_held(self, session_id: str, waits_for: str | None) -> bool:
        """Whether a session waits for a budget of which nothing has changed since it held its window back."""
        ...

    async def any(self) -> bool:
        """Whether there is a budget at all; what was set or removed is seen within seconds."""
        ...

    async def admit(self, windows: Sequence[AskedWindow]) -> Mapping[str, Admitted | Held]:
        """Reserve what each window may cost, in order, by formation id; a session's windows from the first one
        that is held on are held too. Reserved twice, a formation counts once.
        """
        ...
