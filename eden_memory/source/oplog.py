"""How long a place in the oplog lasts. Pure."""

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True)
class OplogWindow:
    """The oplog's ends by its entries' times, and its size in bytes, as it is and at most."""

    first: datetime
    last: datetime
    used: float
    most: float

    @property
    def seconds(self) -> float:
        """Between its ends."""
        return max(0.0, (self.last - self.first).total_seconds())

    def left(self, place: datetime) -> tuple[float, float] | None:
        """(seconds, bytes) until the entries after `place` go, at the window's pace; None: too young to judge.

        Nothing is removed before the oplog is full, so what is still free counts too.
        """
        if self.seconds < 1 or self.used <= 0:
            return None
        pace = self.used / self.seconds
        behind = min(max(0.0, (place - self.first).total_seconds()), self.seconds)
        room = behind * pace + max(0.0, self.most - self.used)
        return room / pace, room
