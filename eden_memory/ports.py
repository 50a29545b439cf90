"""The few Protocols between what the program decides and what it stands on."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Protocol

from eden_memory.domain.budgets.budgets import Admitted, AskedWindow, Held
from eden_memory.models.reranking.candidates import Ranked, When
from eden_memory.schemas.events import ModelCalled


class FactLists(Protocol):
    """Facts to rank: those of the named scopes, and of no other, by meaning or by words.

    One list for each vector or query, over all scopes together, best first, at most `most` with a score of at least
    `least`; the same fact is in a list once. Scores: semantic (1 + cosine) / 2; textual as each store documents.
    """

    async def semantic(
        self, scope_keys: Sequence[str], vectors: Sequence[bytes], most: int, least: float, when: When
    ) -> Sequence[Sequence[Ranked]]:
        """Near packed float32 vectors of the embedder's model; a fact of another model's vector is left out."""
        ...

    async def textual(
        self, scope_keys: Sequence[str], queries: Sequence[str], most: int, least: float, when: When
    ) -> Sequence[Sequence[Ranked]]:
        """By the words of each query: data, never syntax."""
        ...


class Accesses(Protocol):
    """How often facts were found (`memory_access`)."""

    async def count(self, found: Mapping[str, int], at: datetime) -> None:
        """Each fact so many times more, the last time at `at`."""
        ...


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
