"""Budgets, and which windows they have room for; the port that counts model calls. Pure; money in US dollars.

A budget has room while what was counted in its period and what the windows in flight are expected to cost are below
its limit. Processes that ask for windows at the same moment find the same room: a limit may be exceeded by what is in
flight.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from decimal import Decimal, InvalidOperation
from itertools import product
from typing import Literal, Protocol

from eden_memory.errors import Invalid
from eden_memory.schemas.events import ModelCalled

Per = Literal["day", "month"]
PERIODS: tuple[Per, ...] = ("day", "month")
HELD = "budget "
"""Prefix of a session's `waits_for` while a budget holds its windows."""
ANY = "*"
LARGEST = Decimal(1_000_000_000)


def period_of(per: Per, at: datetime) -> str:
    """The UTC day (`2026-01-31`) or month (`2026-01`) of a moment."""
    return f"{at:%Y-%m-%d}" if per == "day" else f"{at:%Y-%m}"


def budget_id(agent_id: str | None, user_id: str | None, per: Per) -> str:
    """`<agent>/<user>/<day or month>`; `*` stands for all."""
    return f"{agent_id or ANY}/{user_id or ANY}/{per}"


def limit_of(text: str) -> Decimal:
    """Return US dollars from 0 up, to a millionth; Invalid for anything else."""
    try:
        amount = Decimal(text)
    except InvalidOperation:
        raise Invalid(f"{text!r} is not an amount", "Give US dollars: 5, 0.25.") from None
    if not amount.is_finite() or not 0 <= amount <= LARGEST:
        raise Invalid(f"a limit cannot be {text} USD", "Give an amount from 0 (nothing is formed) up.")
    return amount.quantize(Decimal("0.000001")).normalize()


@dataclass(frozen=True, slots=True)
class Spending:
    """A budget as it stands in its period."""

    id: str
    per: Per
    limit: Decimal
    period: str
    spent: Decimal = Decimal(0)
    in_flight: Decimal = Decimal(0)
    """What the windows that were asked for, and whose calls are not all counted, are expected to cost."""
    agent_id: str | None = None
    user_id: str | None = None

    @property
    def room(self) -> Decimal:
        """US dollars that are neither spent nor in flight."""
        return self.limit - self.spent - self.in_flight

    @property
    def full(self) -> bool:
        """Whether less than a hundredth of the limit is left."""
        return self.room * 100 < self.limit or self.limit == 0


@dataclass(frozen=True, slots=True)
class WindowCost:
    """The expected cost of a window, and the agent and user (None: nobody's alone) on whose account it is."""

    agent_id: str
    user_id: str | None
    usd: Decimal
    """Of the calls whose price is known."""
    priced: bool = True
    """False where a price is not known."""


@dataclass(frozen=True, slots=True)
class AskedWindow:
    """A closed window that is to be asked for."""

    formation_id: str
    session_id: str
    agent_id: str
    user_id: str | None
    """Its only participant; None where there are several or none."""
    characters: int = 0
    tier: int = 0


@dataclass(frozen=True, slots=True)
class HeldWindow:
    """It waits; `budget` is the first that has no room for it."""

    budget: str

    @property
    def reason(self) -> str:
        """As a session's `waits_for` says it."""
        return HELD + self.budget


def concerning(agent_id: str | None, user_id: str | None) -> list[tuple[str, Per]]:
    """Return id and period of every budget that a call or window of this agent, for this one user, would count in."""
    found = sorted(product({None, agent_id}, {None, user_id}, PERIODS), key=str)
    return [(budget_id(agent, user, per), per) for agent, user, per in found]


def concerned(
    budgets: Mapping[str, Spending], agent_id: str | None, user_id: str | None
) -> Iterator[Spending]:
    """Yield the budgets, given by id, that a call or window of this agent, for this one user, counts in."""
    for name, _ in concerning(agent_id, user_id):
        if (budget := budgets.get(name)) is not None:
            yield budget


def first_without_room(
    budgets: Mapping[str, Spending], agent_id: str | None, user_id: str | None
) -> Spending | None:
    """Return the first budget that concerns this agent and user and has no room; None if money may be spent."""
    return next((budget for budget in concerned(budgets, agent_id, user_id) if budget.room <= 0), None)


def with_in_flight(budgets: Mapping[str, Spending], windows: Iterable[WindowCost]) -> dict[str, Spending]:
    """Return the budgets with the expected cost of these windows added to each that they concern."""
    sums = dict(budgets)
    for window in windows:
        for budget in concerned(sums, window.agent_id, window.user_id):
            sums[budget.id] = replace(budget, in_flight=budget.in_flight + window.usd)
    return sums


def admitted(
    windows: Sequence[AskedWindow], costs: Mapping[str, WindowCost], budgets: Mapping[str, Spending]
) -> dict[str, WindowCost | HeldWindow]:
    """Admit windows in order, by formation id, while every budget that concerns them has room.

    A session's windows behind one that is held are held too.
    """
    found: dict[str, WindowCost | HeldWindow] = {}
    held: dict[str, HeldWindow] = {}
    for window in windows:
        full = first_without_room(budgets, window.agent_id, window.user_id)
        if full is not None:
            held.setdefault(window.session_id, HeldWindow(full.id))
        if window.session_id in held:
            found[window.formation_id] = held[window.session_id]
        else:
            found[window.formation_id] = cost = costs[window.formation_id]
            budgets = with_in_flight(budgets, [cost])
    return found


def users_alone(participants: Iterable[str]) -> str | None:
    """Whose budget a window counts in: its one participant's."""
    known = tuple(dict.fromkeys(participants))
    return known[0] if len(known) == 1 else None


class WindowBudgets(Protocol):
    """Admits windows as long as the budgets that concern them have room."""

    async def any(self) -> bool:
        """Whether there is a budget at all; what was set or removed is seen within two seconds."""
        ...

    def still_held(self, waits_for: str | None) -> bool:
        """Whether a session waits for a budget that still has no room."""
        ...

    async def admit(self, windows: Sequence[AskedWindow]) -> Mapping[str, WindowCost | HeldWindow]:
        """Admit windows in order, by formation id; those admitted are in flight. Asked twice, one counts once."""
        ...


class UsageStore(Protocol):
    """The totals of model calls, and which calls are in them."""

    async def count(self, calls: Sequence[ModelCalled]) -> Sequence[ModelCalled]:
        """Add calls (each id once) to the totals; return those that were not in them yet."""
        ...
