"""Whether others succeed while a unit fails: only then is its failure its own."""

from collections import Counter, OrderedDict

REMEMBERED = 20_000


class Successes:
    """Answered calls of one model, counted by stage, and how many each unit had seen at its last failure."""

    def __init__(self) -> None:
        self._answered: Counter[str] = Counter()
        self._seen: OrderedDict[tuple[str, str], int] = OrderedDict()

    def began(self, stage: str, unit: str) -> None:
        """Note that a call of a unit begins; what it has seen at an earlier failure stays."""
        self._seen.setdefault((stage, unit), self._answered[stage])
        while len(self._seen) > REMEMBERED:
            self._seen.popitem(last=False)

    def succeeded(self, stage: str, unit: str) -> None:
        """Note an answered call."""
        self._answered[stage] += 1
        self._seen.pop((stage, unit), None)

    def failed(self, stage: str, unit: str) -> bool:
        """Note a failed call; whether another unit of the stage succeeded since the unit's last failure, or,
        before it has failed, since its call began."""
        seen = self._seen.pop((stage, unit), self._answered[stage])
        self._seen[stage, unit] = self._answered[stage]
        return self._answered[stage] > seen
