"""Whether a stage as a whole is failing: several units fail and none succeeds."""

SEVERAL = 3


class Outage:
    """Counts distinct units that failed since the last success of any.

    `epoch` rises with each success after a failure. What a unit failed in an epoch that turned out to be an outage
    counts as one attempt: a provider that is away costs no record, and what always fails ends all the same.
    """

    def __init__(self, several: int = SEVERAL) -> None:
        self._several = several
        self._failing: set[str] = set()
        self._outages: set[int] = set()
        self.epoch = 0
        self.reason: str | None = None
        """Why the stage is down; None while it is not."""

    def failed(self, unit: str, reason: str) -> bool:
        """Note a failed attempt; True if with it an outage begins."""
        self._failing.add(unit)
        if self.reason is not None or len(self._failing) < self._several:
            return False
        self._outages.add(self.epoch)
        self.reason = reason
        return True

    def succeeded(self) -> bool:
        """Note a success of any unit; True if it ends an outage."""
        ended = self.reason is not None
        self.epoch += bool(self._failing)
        self._failing.clear()
        self.reason = None
        return ended

    def was_one(self, epoch: int) -> bool:
        """Whether that epoch was an outage."""
        return epoch in self._outages
