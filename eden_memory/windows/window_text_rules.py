"""When the texts of a window are needed no longer. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

KEPT = timedelta(days=7)
"""After everything that reads them is done."""
DEAD_LETTERS_KEPT = timedelta(days=30)
"""As long as their topics keep them (topics.yaml): until then somebody may try them again."""


@dataclass(frozen=True, slots=True)
class Concluded:
    """How a stage ended its work on a window."""

    at: datetime
    dead: bool = False
    settled: bool = False
    """A dead letter that was tried again with success, or dropped."""

    def final(self, now: datetime) -> bool:
        """Whether the stage will not read the window again."""
        return not self.dead or self.settled or now - self.at >= DEAD_LETTERS_KEPT


def complete(stages: Sequence[Concluded | None], now: datetime) -> bool:
    """Whether all stages that read a window are done with it; None: one has not ended its work."""
    return all(one is not None and one.final(now) for one in stages)
