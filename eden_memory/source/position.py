"""How far a tailer has come, and what a reading again has found."""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Position:
    """How far a tailer has come."""

    token: str
    """Where to follow the stream from, once everything older has been read in."""
    version: str
    phase: str = "stream"
    """`backfill` (reading the collection), `merge` (against what the topic knows) or `stream`."""
    page: Any = None
    """The page that the reading has come to."""
    read: int = 0
    """Messages read in so far."""
    published: bool = False
    """Whether any message of this source was published: another source may no longer take its place unasked."""


@dataclass(frozen=True, slots=True)
class RereadResult:
    """What came of reading messages again with a corrected field mapping."""

    id: str
    """Of the request."""
    read: int
    changed: int
    accepted: int
    """Dead letters of an earlier mapping that could be read."""
    refused: int
    """Documents that this mapping cannot use either."""
    everything: bool
    """Nothing was left out: all that is recorded was read with this mapping."""

    def counts(self) -> dict[str, int]:
        """The figures by name."""
        return {
            "read": self.read,
            "changed": self.changed,
            "accepted": self.accepted,
            "refused": self.refused,
        }
