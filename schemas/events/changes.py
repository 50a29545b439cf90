"""`memory.changes`: what atlas-writer has committed."""

from typing import Literal

from eden_memory.schemas.events.base import Event
from eden_memory.schemas.fields import Count, Moment
from eden_memory.schemas.scopes import Scope


class ScopeChanged(Event):
    """A scope's memory in MongoDB is now at these versions; the newest record of a scope says it all."""

    scope: Scope
    revision: Count
    """The snapshot's: grows with every commit of the writer that changed something."""
    changed: tuple[Literal["facts", "reflections", "blob"], ...]
    """What the commits since the last record changed; empty when a redelivery changed nothing."""
    applied: Count
    """The highest decision number of the scope that is in MongoDB, with all before it (FactChanged's `outcome`)."""
    active_facts: Count
    buffered: Count
    """Reflections that no blob has absorbed."""
    newest_buffered_at: Moment | None = None
    """Window's time of the newest of them."""
    blob_version: Count
    """0: none yet."""
    consolidated_at: Moment | None = None
    closed: bool = False
    """The session has ended: consolidate whatever the buffer."""
    committed_at: Moment

    def key(self) -> str:
        """The scope."""
        return self.scope.key

    def ordering_key(self) -> str:
        """The scope."""
        return self.scope.key

    def subject(self) -> str:
        """The scope."""
        return self.scope.key
