"""Contexts that lie ready in the database: which there are, and which change concerns them. Pure."""

from dataclasses import dataclass
from datetime import datetime

from eden_memory.access.visible import Asked


@dataclass(frozen=True, slots=True)
class Ready:
    """A context that is kept fresh, as far as is needed to build it again."""

    asked: Asked
    active_until: datetime
    built_at: datetime | None = None
    """None: not built yet. Whoever builds it anew replaces this building alone."""
    users: tuple[str, ...] = ()
    """For whom it holds."""

    @property
    def name(self) -> str:
        """`<session id>/<user id>`."""
        return f"{self.asked.session_id}/{self.asked.user_id or ''}"


def holds_for(users: frozenset[str] | None) -> tuple[str, ...]:
    """The users that a ready context names."""
    return tuple(sorted(users or ()))


@dataclass(frozen=True, slots=True)
class Built:
    """A context as it is to be stored in the place of `before`."""

    before: Ready
    xml: str
    revisions: dict[str, int]
    """Scope key → revision of the snapshot that went in."""
    scope_keys: tuple[str, ...]
    users: tuple[str, ...]
    """All who were in the session: it holds among any of them. None where that cannot be known."""
    built_at: datetime
    active_until: datetime
    stale_at: datetime | None = None
    """When the first of its facts expires."""
