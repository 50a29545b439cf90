"""Decide which messages that are not formed yet their user may be shown in another session. Pure."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

from eden_memory.access.visible import Asker, VisibleMemory
from eden_memory.directory.participants import NOBODY, Audiences, Missing, Off, SessionFacts, scopes_of
from eden_memory.forgotten import Marks
from eden_memory.memory.results import RecentMessage, Speaker
from eden_memory.schemas.provenance import SourceMessage
from eden_memory.schemas.scopes import Scope

SPEAKERS: Mapping[str, Speaker] = {"user": "user", "assistant": "agent"}
"""Roles whose messages are shown, and what a context calls them."""
OLDEST_VERSION = "0" * 16
"""Of a message that formation-trigger has not seen: any mark of forgetting reaches it."""
NO_AUDIENCES = Audiences()
Row = Mapping[str, Any]


class WrittenMessage(NamedTuple):
    """A message as it is stored at this moment; ids typed."""

    message_id: str
    session_id: str
    role: str
    text: str
    said_at: datetime
    written_at: datetime
    """The earliest time that is known of it: forgetting up to a moment goes by it."""


@dataclass(frozen=True, slots=True)
class SessionNow:
    """Who is and was in a session, as far as the application and formation-trigger know."""

    facts: SessionFacts | Missing
    authors: frozenset[str] | None
    """Of its messages now; None: they cannot be known."""
    seen: frozenset[str] = frozenset()
    """Authors that formation-trigger has ever seen."""
    audiences: Audiences = NO_AUDIENCES
    """Of the memory that was formed from it."""
    anonymous: bool = False
    """A user wrote in it whom nobody names."""


def is_asked_for(asked: Asker, view: VisibleMemory) -> bool:
    """Tell whether the asker's own memory is shown: only then its messages of other sessions may be."""
    user = asked.user_id
    return user is not None and Scope.of_user(asked.agent_id, user).key in view.scope_keys


def was_alone(asked: Asker, session_id: str, now: SessionNow, off: Off = NOBODY) -> bool:
    """Tell whether the session is the agent's, its only user ever is the asker, and user memory forms from it."""
    facts, user = now.facts, asked.user_id
    if isinstance(facts, Missing) or facts.agent_id != asked.agent_id or now.authors is None or user is None:
        return False
    listed = None if facts.users is None else frozenset(facts.users)
    users, alone = now.authors | now.seen if listed is None else listed, frozenset((user,))
    everybody = users | now.authors | now.seen | _heard(now.audiences)
    if users != alone or everybody != alone or (listed is None and now.anonymous):
        return False
    large = any(change.large is not None for change in now.audiences.changes)
    scopes = scopes_of(facts, session_id, (user,), (user,), (user,), 1)
    return not large and not off.of(session_id, user) and any(scope.kind == "user" for scope in scopes)


def _heard(audiences: Audiences) -> frozenset[str]:
    return frozenset(user for change in audiences.changes for user in change.joined)


def unsettled(
    user_id: str,
    written: Iterable[WrittenMessage],
    known: Mapping[str, Row],
    settled: Collection[str],
    marks: Sequence[Marks],
    since: datetime,
) -> list[RecentMessage]:
    """Return the messages that no memory holds yet, newest first; `known`: their rows of `memory_messages`.

    A message that formation-trigger knows of another session was moved: it is left out until its stage has seen that.
    """
    found = [
        RecentMessage(
            message.message_id, message.session_id, SPEAKERS[message.role], message.text, message.said_at
        )
        for message in written
        if message.role in SPEAKERS
        and message.text.strip()
        and message.said_at >= since
        and _waits(message, known.get(message.message_id), settled)
        and not is_forgotten(user_id, message, known.get(message.message_id), marks)
    ]
    return sorted(found, key=lambda message: (message.said_at, message.message_id), reverse=True)


def _waits(message: WrittenMessage, row: Row | None, settled: Collection[str]) -> bool:
    if row is None:
        return True
    gone = row["deleted"] or row["opted_out"] or row["forgotten"]
    if gone or row["session_id"] != message.session_id:
        return False
    return row["formation_id"] is None or row["formation_id"] not in settled


def is_forgotten(user_id: str, message: WrittenMessage, row: Row | None, marks: Iterable[Marks]) -> bool:
    """Tell whether a mark reaches the message, its session or its user."""
    source = _source(user_id, message, row)
    return any(known.source_gone(source) for known in marks)


def _source(user_id: str, message: WrittenMessage, row: Row | None) -> SourceMessage:
    """Forgetting a user reaches the agent's answers, too."""
    version, time = (row["version"], row["time"]) if row is not None else (OLDEST_VERSION, message.written_at)
    return SourceMessage(
        message_id=message.message_id,
        version=version,
        session_id=message.session_id,
        user_id=user_id,
        time=min(time, message.written_at),
    )


def named_in(user_id: str, written: Sequence[WrittenMessage]) -> set[tuple[str, str]]:
    """Return (kind, id) of everything whose forgetting concerns the messages."""
    messages = {("message", message.message_id) for message in written}
    return messages | {("session", message.session_id) for message in written} | {("user", user_id)}
