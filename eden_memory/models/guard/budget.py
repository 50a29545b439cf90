"""How many calls each question has cost in this process: one that cannot succeed ends."""

from collections import OrderedDict

from eden_memory.domain.failures import PermanentError
from eden_memory.models.asking.repair import CALLS
from schemas.events.usage import CallOutcome

REMEMBERED = 20_000


class CallBudget:
    """Calls in an outage are not charged; those refused for their rate (unpaid) are counted by themselves."""

    def __init__(self, most: int = CALLS) -> None:
        self._most = most
        self._spent: OrderedDict[str, tuple[int, int]] = OrderedDict()
        self._last: dict[str, str] = {}

    def check(self, unit: str, kept: int = 0) -> None:
        """PermanentError if the question may cost no more; `kept` answers of it are stored."""
        calls, refused = self._spent.get(unit, (0, 0))
        if max(calls, kept) >= self._most or refused >= self._most:
            last = self._last.get(unit, "its answers are kept")
            raise PermanentError(f"{max(calls, kept) + refused} calls brought no valid answer; {last}")

    def charge(self, unit: str, outcome: CallOutcome) -> None:
        """Count a call."""
        calls, refused = self._spent.pop(unit, (0, 0))
        limited = outcome == "rate_limited"
        self._spent[unit] = (calls + (not limited), refused + limited)
        self._last[unit] = f"the last one was {outcome.replace('_', ' ')}"
        while len(self._spent) > REMEMBERED:
            oldest, _ = self._spent.popitem(last=False)
            self._last.pop(oldest, None)

    def settled(self, unit: str) -> None:
        """Forget a question that is answered."""
        self._spent.pop(unit, None)
        self._last.pop(unit, None)
