"""A tombstone as a handler receives it."""

from pydantic import AwareDatetime

from eden_memory.schemas.envelope import Envelope
from eden_memory.schemas.fields import Part


class Tombstone(Part):
    """One version of an entity that was erased. Erase what you derived from it: someone asked to be forgotten."""

    id: str
    """`ce_id`."""
    event: str
    """The type that was erased: `FactChanged`."""
    key: str
    """The record's key, which names one version: `<fact id>@<version>`."""
    entity: str
    """The fact, reflection, scope or message."""
    scope: str
    """The memory scope or session it was in."""
    reason: str | None
    time: AwareDatetime

    @classmethod
    def of(cls, about: Envelope, key: bytes | None) -> "Tombstone":
        """Read it from a record's headers and key."""
        return cls(
            id=about.id,
            event=about.name,
            key=(key or b"").decode(errors="replace"),
            entity=about.subject,
            scope=about.scope or about.ordering_key,
            reason=about.reason,
            time=about.time,
        )
