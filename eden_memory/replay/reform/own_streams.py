"""Where a reform is that has streams of its own. Pure."""

from dataclasses import dataclass, replace

from eden_memory.names import Names
from eden_memory.placement import Placement

STREAMS = "streams"


@dataclass(frozen=True, slots=True)
class OwnStreams(Placement):
    """The same place; only while it is formed, `streams` are the namespace's own."""

    def names(self, prefix: str) -> Names:
        """As of any namespace, with its own streams."""
        return replace(Placement.names(self, prefix), own=frozenset({STREAMS}))
