"""Which windows a reform forms anew, and in which order. Pure."""

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from datetime import datetime

from eden_memory.schemas.documents import ReformAsked
from eden_memory.schemas.events import FormationRequested
from eden_memory.schemas.scopes import Scope


def formed_by(asked: ReformAsked, heard: Collection[str] = ()) -> Callable[[Scope], bool]:
    """Whether a reform that was asked so forms a scope by itself: no others have told of it.

    `heard`: keys of session memory with a large audience that the user belongs to
    (eden_memory.directory.audience_store).
    """

    def forms(scope: Scope) -> bool:
        return (
            asked.agent_id in (None, scope.agent_id)
            and asked.session_id in (None, scope.session_id)
            and (asked.user_id is None or scope.key in heard or asked.user_id in _users_of(scope))
        )

    return forms


def _users_of(scope: Scope) -> tuple[str | None, ...]:
    return scope.user_id, *(scope.audience if isinstance(scope.audience, tuple) else ())


@dataclass(frozen=True, slots=True)
class PlannedWindow:
    """A window that is to be formed anew."""

    formation_id: str
    session_id: str
    seq: int
    messages: int
    at: datetime
    """When it was asked for; where that is not known, when it closed."""


def planned(event: FormationRequested, at: datetime | None = None) -> PlannedWindow:
    """Return the parts of a request that are kept while its window waits."""
    return PlannedWindow(
        event.formation_id,
        event.session_id,
        event.seq,
        max(1, len(event.messages)),
        at or event.closed_at,
    )


def takes(asked: ReformAsked, event: FormationRequested, heard: Collection[str] = ()) -> bool:
    """Whether a window is selected: a user's are those in which they take part; `heard` as above."""
    return (
        asked.agent_id in (None, event.agent_id)
        and asked.session_id in (None, event.session_id)
        and (
            asked.user_id is None
            or asked.user_id in event.participants
            or any(scope.key in heard for scope in event.scopes)
        )
    )


def covers_everything(asked: ReformAsked) -> bool:
    """Whether everything is formed anew."""
    return asked.agent_id is None and asked.user_id is None and asked.session_id is None


def in_order(windows: Iterable[PlannedWindow]) -> list[PlannedWindow]:
    """By when they were asked for; those of a session never before an earlier one of it."""
    latest: dict[str, datetime] = {}
    placed: list[tuple[datetime, str, int, PlannedWindow]] = []
    for window in sorted(windows, key=lambda window: (window.session_id, window.seq)):
        at = max(window.at, latest.get(window.session_id, window.at))
        latest[window.session_id] = at
        placed.append((at, window.session_id, window.seq, window))
    return [window for *_, window in sorted(placed, key=lambda row: row[:3])]


def selected(asked: ReformAsked) -> str:
    """Return, for people, whose windows a reform forms."""
    named = {"agent": asked.agent_id, "user": asked.user_id, "session": asked.session_id}
    said = ", ".join(f"{what} {name}" for what, name in named.items() if name is not None)
    return said or "everything"
