"""How many calls each question has cost in this process: one that cannot succeed ends."""

from collections import OrderedDict

from eden_memory.failures import PermanentError, QuestionSpent
from eden_memory.models.asking.judging import CALLS
from eden_memory.schemas.events.usage import CallOutcome

REMEMBERED = 20_000


class CallBudget:
    """Only calls whose failure the question is to blame for are charged; those refused for their rate (unpaid)
    are counted by themselves."""

    def __init__(self, most: int = CALLS) -> None:
        self._most = most
        self._spent: OrderedDict[str, tuple[int, int]] = OrderedDict()
        self._last: dict[str, str] = {}
        self._refused: OrderedDict[str, str] = OrderedDict()

    def check(self, unit: str, kept: int = 0) -> None:
        """PermanentError if the question may cost no more, QuestionSpent if it has none of the `kept` answers."""
        if unit in self._refused:
            raise QuestionSpent(f"the provider has refused it: {self._refused[unit]}")
        calls, refused = self._spent.get(unit, (0, 0))
        if max(calls, kept) >= self._most or refused >= self._most:
            last = self._last.get(unit, "its answers are kept")
            spent = PermanentError if kept else QuestionSpent
            raise spent(f"{max(calls, kept) + refused} calls brought no valid answer; {last}")

    def charge(self, unit: str, outcome: CallOutcome) -> None:
        """Count a call."""
        calls, refused = self._spent.pop(unit, (0, 0))
        limited = outcome == "rate_limited"
        self._spent[unit] = (calls + (not limited), refused + limited)
        self._last[unit] = f"the last one was {outcome.replace('_', ' ')}"
        while len(self._spent) > REMEMBERED:
            oldest, _ = self._spent.popitem(last=False)
            self._last.pop(oldest, None)

    def refused(self, unit: str, reason: str) -> None:
        """The provider will never accept the question: no further call is made for it."""
        self._refused[unit] = reason
        while len(self._refused) > REMEMBERED:
            self._refused.popitem(last=False)

    def settled(self, unit: str) -> None:
        """Forget a question that is answered."""
        for noted in (self._spent, self._last, self._refused):
            noted.pop(unit, None)
