"""Decide which sources of a record are forgotten, and whether the record may stay. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from eden_memory.schemas.events.forgetting import Forgettable, ForgottenKind, Reach
from eden_memory.schemas.events.formation import Window
from eden_memory.schemas.provenance import MessageRef, SourceMessage
from eden_memory.schemas.scopes import LISTED_USERS, Scope


@dataclass(frozen=True, slots=True)
class Mark:
    """One forgotten id and how far it reaches (schemas.events.Forgotten)."""

    kind: ForgottenKind
    target: str
    reach: Reach
    version: str | None = None
    until: datetime | None = None
    by_hand: bool = False
    """Whether someone asked for just this, and it does not follow from something else."""


class Marks:
    """The marks found for some records; asks nothing of any store."""

    def __init__(self, marks: Iterable[Mark] = ()) -> None:
        self._marks: dict[tuple[str, str], list[Mark]] = {}
        for mark in marks:
            self._marks.setdefault((mark.kind, mark.target), []).append(mark)

    def __bool__(self) -> bool:
        return bool(self._marks)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Marks) and self._all() == other._all()

    def __hash__(self) -> int:
        return hash(self._all())

    def asked(self) -> "Marks":
        """Those that someone asked for, without the deletions that the trigger has seen itself."""
        return Marks(mark for mark in self._all() if mark.reach != "up_to_version")

    def source_gone(self, source: SourceMessage) -> bool:
        """Whether a message, its session or its author is forgotten in this version and at this time."""
        return (
            self.message_gone(source)
            or self._reached("session", source.session_id, source.time)
            or (source.user_id is not None and self._reached("user", source.user_id, source.time))
        )

    def message_gone(self, source: MessageRef) -> bool:
        """Whether a message is forgotten in this version."""
        return any(
            mark.reach == "for_ever" or (mark.version is not None and source.version <= mark.version)
            for mark in self._marks.get(("message", source.message_id), ())
        )

    def gone_in(self, window: Window, source: SourceMessage) -> bool:
        """Whether a message that a window shows is forgotten; what no user wrote is, with all who take part.

        Of a hundred participants and more, the window may not name all.
        """
        users = window.participants
        if self.source_gone(source):
            return True
        answers = source.user_id not in users and 0 < len(users) < LISTED_USERS
        return answers and all(self._reached("user", user, source.time) for user in users)

    def entity_gone(self, kind: Forgettable, name: str, version: int) -> bool:
        """Whether a fact, reflection or blob is forgotten, as a whole or in this version (`ID@5`)."""
        return (kind, name) in self._marks or (kind, f"{name}@{version}") in self._marks

    def window_gone(self, window: Window) -> bool:
        """Whether a message of a window or before it is forgotten, or its session or a participant since then."""
        named = [("session", window.session_id), *(("user", user) for user in window.participants)]
        began = window.first_at or window.closed_at
        return any(map(self.message_gone, (*window.messages, *window.before))) or any(
            self._reached(*name, began) for name in named
        )

    def by_hand(self, kind: Forgettable, name: str) -> bool:
        """Whether someone asked to forget just this."""
        return any(mark.by_hand for mark in self._marks.get((kind, name), ()))

    def scope_gone(self, scope: Scope, time: datetime) -> bool:
        """Whether the session or user that a scope belongs to is forgotten as of a time."""
        user = scope.belongs_to
        of_user = user is not None and self._reached("user", user, time)
        return of_user or self.session_gone(scope.session_id, time)

    def session_gone(self, session: str | None, time: datetime) -> bool:
        """Whether a session is forgotten as of a time."""
        return session is not None and self._reached("session", session, time)

    def any_gone(self, sources: Iterable[SourceMessage]) -> bool:
        """Whether any of what a text rests on is forgotten: nobody can tell which words came from it."""
        return any(self.source_gone(source) for source in sources)

    def reaches(self, scope: Scope, sources: Iterable[SourceMessage], time: datetime) -> bool:
        """Whether a memory of this scope, formed at `time`, is to be dropped."""
        return self.any_gone(sources) or self.scope_gone(scope, time)

    def _all(self) -> frozenset[Mark]:
        return frozenset(mark for marks in self._marks.values() for mark in marks)

    def _reached(self, kind: str, name: str, time: datetime) -> bool:
        return any(
            mark.reach == "for_ever" or (mark.until is not None and time <= mark.until)
            for mark in self._marks.get((kind, name), ())
        )


def ids_of(scope: Scope | None, sources: Iterable[SourceMessage]) -> set[tuple[str, str]]:
    """(kind, target) of everything whose forgetting would concern a record."""
    named: set[tuple[str, str]] = set()
    for source in sources:
        named |= {("message", source.message_id), ("session", source.session_id)}
        if source.user_id is not None:
            named.add(("user", source.user_id))
    if scope is not None and (user := scope.belongs_to) is not None:
        named.add(("user", user))
    if scope is not None and scope.session_id is not None:
        named.add(("session", scope.session_id))
    return named


def ids_of_window(window: Window) -> set[tuple[str, str]]:
    """Return (kind, target) of everything whose forgetting would concern a window, shown with those before it."""
    messages = {("message", message.message_id) for message in (*window.messages, *window.before)}
    return (
        messages
        | {("user", participant) for participant in window.participants}
        | {("session", window.session_id)}
    )


class ForgottenMarks(Protocol):
    """The forgetting marks (`memory_forgotten`)."""

    async def among(self, named: Iterable[tuple[str, str]]) -> Marks:
        """The marks of (kind, target) pairs, in one query."""
        ...
