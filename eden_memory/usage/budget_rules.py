"""Which windows have room in the budgets that concern them. Pure; money in US dollars."""

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from datetime import datetime
from decimal import Decimal
from typing import Literal, Protocol

Per = Literal["day", "month"]
HELD = "budget "
"""Prefix of a session's `waits_for` while a budget holds its windows."""
ANY = "*"


def period_of(per: Per, at: datetime) -> str:
    """The UTC day (`2026-01-31`) or month (`2026-01`) of a moment."""
    return f"{at:%Y-%m-%d}" if per == "day" else f"{at:%Y-%m}"


def budget_id(agent_id: str | None, user_id: str | None, per: Per) -> str:
    """`<agent>/<user>/<day or month>`; `*` stands for all."""
    return f"{agent_id or ANY}/{user_id or ANY}/{per}"


@dataclass(frozen=True, slots=True)
class Spending:
    """A budget as it stands in its period."""

    id: str
    per: Per
    limit: Decimal
    period: str
    spent: Decimal = Decimal(0)
    reserved: Decimal = Decimal(0)
    agent_id: str | None = None
    user_id: str | None = None

    def concerns(self, agent_id: str | None, user_id: str | None) -> bool:
        """Whether a call or window of this agent, for this one user (None: nobody's alone), counts."""
        return self.agent_id in (None, agent_id) and self.user_id in (None, user_id)

    @property
    def full(self) -> bool:
        """Whether less than a hundredth of the limit is left."""
        return self.room * 100 < self.limit or self.limit == 0

    @property
    def room(self) -> Decimal:
        """US dollars that are neither spent nor reserved."""
        return self.limit - self.spent - self.reserved


@dataclass(frozen=True, slots=True)
class AskedWindow:
    """A closed window that is to be asked for."""

    formation_id: str
    session_id: str
    agent_id: str
    user_id: str | None
    """Its only participant; None where there are several or none."""
    characters: int
    tier: int = 0


@dataclass(frozen=True, slots=True)
class Estimate:
    """The expected cost of a window's formation."""

    usd: Decimal | None
    """Null where no price is known."""
    after: Decimal = Decimal(0)
    """Of it, what a consolidation that it leads to is expected to cost."""
    known: Decimal = Decimal(0)
    """Where `usd` is null: of the calls whose price is known."""

    @property
    def reserved(self) -> Decimal:
        """US dollars to reserve for it."""
        return self.known if self.usd is None else self.usd


@dataclass(frozen=True, slots=True)
class Admitted:
    """It may be asked for; `estimate` is None where no budget concerns it."""

    estimate: Estimate | None = None
    budgets: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class HeldWindow:
    """It waits; `budget` is the first that has no room for it."""

    budget: str
    seen: Spending | None = field(default=None, compare=False)
    """That budget as it stood."""

    @property
    def reason(self) -> str:
        """As a session's `waits_for` says it."""
        return HELD + self.budget


@dataclass(slots=True)
class Admission:
    """Windows one after the other, and what is left of the budgets."""

    budgets: dict[str, Spending]
    reserved: Set[str] = frozenset()
    """Formations that have their reservation already."""
    results: dict[str, Admitted | HeldWindow] = field(default_factory=dict[str, Admitted | HeldWindow])
    _held: dict[str, HeldWindow] = field(default_factory=dict[str, HeldWindow])

    def ask(self, window: AskedWindow, estimate: Estimate) -> None:
        """Admit a window if every budget that concerns it has room, and no earlier one of its session is held."""
        self.results[window.formation_id] = self._of(window, estimate)

    def _of(self, window: AskedWindow, estimate: Estimate) -> Admitted | HeldWindow:
        if (held := self._held.get(window.session_id)) is not None:
            return held
        concerned = self.concerned(window)
        if not concerned or window.formation_id in self.reserved:
            return Admitted(estimate if concerned else None)
        usd = estimate.reserved
        for spending in concerned:
            if spending.spent + spending.reserved + usd > spending.limit or spending.room <= 0:
                return self._held.setdefault(window.session_id, HeldWindow(spending.id, spending))
        for spending in concerned:
            self.budgets[spending.id] = replace(spending, reserved=spending.reserved + usd)
        return Admitted(estimate, tuple(spending.id for spending in concerned))

    def concerned(self, window: AskedWindow) -> list[Spending]:
        """The budgets that a window counts in."""
        return [
            budget for budget in self.budgets.values() if budget.concerns(window.agent_id, window.user_id)
        ]


def users_alone(participants: Iterable[str]) -> str | None:
    """Whose budget a window counts in: its one participant's."""
    known = tuple(dict.fromkeys(participants))
    return known[0] if len(known) == 1 else None


class WindowBudgets(Protocol):
    """Admits windows as long as the budgets that concern them have room."""

    def still_held(self, session_id: str, waits_for: str | None) -> bool:
        """Whether a session waits for a budget of which nothing has changed since it held its window back."""
        ...

    async def any(self) -> bool:
        """Whether there is a budget at all; what was set or removed is seen within seconds."""
        ...

    async def admit(self, windows: Sequence[AskedWindow]) -> Mapping[str, Admitted | HeldWindow]:
        """Reserve what each window may cost, in order, by formation id; a session's windows from the first one
        that is held on are held too. Reserved twice, a formation counts once.
        """
        ...
