"""The budget of a reform: kept back for windows before they are fed, for consolidations before they are asked."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from decimal import Decimal

from eden_memory.replay.reform.expected_cost import MERGES, Expecting
from eden_memory.replay.reform.selection import PlannedWindow
from eden_memory.schemas.events import ModelCalled

ENOUGH = 5
"""Windows formed, or blobs made, from which their own average is believed."""


@dataclass(slots=True)
class ReformBudget:
    """The cap, and the amounts reserved of it; US dollars."""

    expecting: Expecting
    spent: Callable[[], Decimal]
    cap: Decimal | None = None
    formed: int = 0
    """Windows that are complete."""
    characters: int = 0
    """Of those."""
    _merging: dict[str, Decimal] = field(default_factory=dict[str, Decimal])
    """Scopes whose consolidation is asked for now, and what is kept back for it."""
    _refused: set[str] = field(default_factory=set[str])
    """Scopes whose consolidation waits for room."""
    _fed: Decimal = Decimal(0)
    """Kept back for the windows on their way, as they were when one was last looked at."""
    _merges: list[Decimal] = field(default_factory=list[Decimal])
    """The costs of the counted consolidations."""

    def of(self, window: PlannedWindow) -> Decimal:
        """By what this reform has paid for its windows so far, else as expected before."""
        if self.formed < ENOUGH or not self.characters:
            return self.expecting.usd(window)
        each = self.spent() / self.formed
        return max(each, self.spent() * window.characters / self.characters)

    def allows(self, fed: Iterable[PlannedWindow], window: PlannedWindow) -> bool:
        """Whether there is room for a window beside all that is on its way."""
        if self.cap is None:
            return True
        return self._taken(fed) + self.of(window) <= self.cap

    def on_their_way(self, fed: Iterable[PlannedWindow]) -> None:
        """These windows have room kept back for them."""
        self._fed = Decimal(0) if self.cap is None else sum(map(self.of, fed), Decimal(0))

    def reserve(self, unit: str) -> bool:
        """Whether there is room for a consolidation (`KEY@VERSION:ATTEMPT`); then it is kept back."""
        scope = unit.rpartition("@")[0]
        if self.cap is None:
            return True
        others = sum((usd for key, usd in self._merging.items() if key != scope), Decimal(0))
        usd = self._merge()
        if self.spent() + self._fed + others + usd > self.cap:
            self._refused.add(scope)
            return False
        self._refused.discard(scope)
        self._merging[scope] = usd
        return True

    def counted(self, call: ModelCalled) -> None:
        """A call stands in `spent`: nothing is kept back for it any more."""
        if call.stage == MERGES and call.scope is not None:
            self._merging.pop(call.scope, None)
            self._merges.append(call.cost_usd or Decimal(0))

    def out(self, fed: Iterable[PlannedWindow]) -> bool:
        """Whether a consolidation waits for room, and nothing is on its way that could leave any."""
        return bool(self._refused) and not self._merging and not any(True for _ in fed)

    def _taken(self, fed: Iterable[PlannedWindow]) -> Decimal:
        self.on_their_way(fed)
        return self.spent() + self._fed + sum(self._merging.values(), Decimal(0))

    def _merge(self) -> Decimal:
        expected = self.expecting.merge_usd()
        if len(self._merges) < ENOUGH:
            return expected
        return max(expected, sum(self._merges, Decimal(0)) / len(self._merges))
