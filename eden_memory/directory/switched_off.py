"""Who is switched off: sessions and users of whom nothing is formed or kept."""

from typing import NamedTuple


class Off(NamedTuple):
    """Sessions that say so, or all of whose users do; users that say so."""

    sessions: frozenset[str] = frozenset()
    users: frozenset[str] = frozenset()

    def of(self, session_id: str, user_id: str | None) -> bool:
        """Whether nothing of this author in this session is kept."""
        return session_id in self.sessions or user_id in self.users


NOBODY = Off()
