"""Sessions that could not be read or stored: set aside, so that they cost the others of their partition nothing."""

from collections.abc import Callable, Iterable
from time import monotonic

ASIDE_SECONDS = 600.0
"""How long until a session is tried again."""


class SessionsAside:
    """Names sessions that failed, and why, until it is time to try them again; `clock` gives seconds."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._reasons: dict[str, tuple[float, str]] = {}

    def __len__(self) -> int:
        return len(self._reasons)

    def add(self, sessions: Iterable[str], what: str) -> None:
        """Set sessions aside that cannot be `what`: read, stored."""
        until = self._clock() + ASIDE_SECONDS
        for name in sessions:
            self._reasons[name] = until, f"session {name} cannot be {what}: the log says why"

    def lift(self, session_id: str | None) -> None:
        """Try a session again now."""
        self._reasons.pop(session_id or "", None)

    def reason(self, session_id: str | None) -> str | None:
        """Return why a session is set aside; None if it is not, or is to be tried again."""
        until, reason = self._reasons.get(session_id or "", (0.0, None))
        if reason is not None and until <= self._clock():
            self.lift(session_id)
            return None
        return reason
