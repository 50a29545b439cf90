"""A restored session → documents of formation-trigger; one session after the other."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from datetime import datetime
from typing import Any

from eden_memory.directory.participants import Missing, SessionFacts
from eden_memory.replay.restore.restore_file import RecordedWindow, RestoreFile
from eden_memory.replay.restore.restore_rules import (
    ask_anew,
    cut,
    recorded_window,
    session_before,
    unmark_read_alike,
)
from eden_memory.windows.session_state import Session, StoredMessage
from eden_memory.windows.window_request import StoredWindow, names_of
from eden_memory.windows.window_rule import Limits

TOGETHER = 1_000
"""Documents that are written together, or fewer of CHARACTERS."""
CHARACTERS = 4_000_000
ENDS = ("chat_ends", "formation_ends")


@dataclass(slots=True)
class Restored:
    """The figures of a restoration."""

    messages: int = 0
    waiting: int = 0
    """Messages that wait for their window."""
    sessions: int = 0
    windows: int = 0
    """As recorded."""
    cut: int = 0
    """Windows that had closed, or would have, and were not published: the trigger asks for them next."""
    exact: int = 0
    """Texts of the very version that a window names."""
    other: int = 0
    """Texts of another version: that one is no longer in the topic."""
    gone: int = 0
    """Messages of windows, wanted with text, of which there is none."""
    unreadable: int = 0
    chat_ends: dict[int, int] = field(default_factory=dict[int, int])
    """By partition, up to where `chat.messages` was taken: the offset behind the last record."""
    formation_ends: dict[int, int] = field(default_factory=dict[int, int])
    """The same of `memory.formations`."""

    def stored(self) -> dict[str, Any]:
        """As a document."""
        return asdict(self) | {name: [list(item) for item in getattr(self, name).items()] for name in ENDS}

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> "Restored":
        """Back from a document."""
        told = cls()
        for figure in fields(cls):
            value = row.get(figure.name, 0)
            setattr(told, figure.name, dict(value) if figure.name in ENDS else value)
        return told


@dataclass(slots=True)
class DocumentBatch:
    """Documents that are written together."""

    messages: list[StoredMessage] = field(default_factory=list[StoredMessage])
    sessions: list[Session] = field(default_factory=list[Session])
    windows: list[StoredWindow] = field(default_factory=list[StoredWindow])
    erased: list[StoredWindow] = field(default_factory=list[StoredWindow])
    """Windows without texts, long complete."""
    characters: int = 0

    @property
    def full(self) -> bool:
        """Whether it is time to write it."""
        return self.characters >= CHARACTERS or len(self.messages) + len(self.windows) >= TOGETHER

    def clear(self) -> None:
        """It is written."""
        self.messages, self.sessions, self.windows, self.erased = [], [], [], []
        self.characters = 0


Said = SessionFacts | Missing | None
"""The application's description of a session; None: it was not asked."""


@dataclass(slots=True)
class RestoreWriter:
    """`passed`: by partition, up to when everything is recorded; `described`: sessions have documents.

    `anew`: windows with messages that were read wrong when they were asked for are asked for anew.
    """

    file: RestoreFile
    limits: Limits
    described: bool
    passed: Mapping[int, datetime]
    restored: Restored
    anew: bool = False
    part: DocumentBatch = field(default_factory=DocumentBatch)

    def session(self, name: str, partition: int, said: Said) -> Iterator[DocumentBatch]:
        """A session's documents, added to `part`; yields it whenever it is full: clear it then."""
        recorded = self.file.session(name, partition)
        session = session_before(recorded, self.limits, described=self.described)
        authors, corrected = dict[str, None](), False
        alike, answering = set[str](), set[str]()
        for window in self.file.windows(name):
            alike |= unmark_read_alike(window.members, {*recorded.authors})
            corrected |= window.corrected
            answering |= _answering(window)
            authors |= dict.fromkeys(_authors(window))
            self._recorded(window, session, said, tuple(authors))
            yield from self._full()
        if corrected and not self.described:
            users = dict.fromkeys((*authors, *recorded.authors))
            session.users = tuple(user for user in users if user in recorded.authors or user not in answering)
        for messages in (self.file.settled(name), self.file.unseen(name)):
            for message in messages:
                message.misread = message.misread and message.message_id not in alike
                self._message(replace(message, text=None) if message.formation_id else message)
                yield from self._full()
        for window in cut(session, recorded, self.passed.get(partition)):
            self._cut(window)
            yield from self._full()
        self._waiting(session)
        yield from self._full()

    def nowhere(self) -> Iterator[DocumentBatch]:
        """Messages of no known session."""
        for message in self.file.nowhere():
            self._message(message)
            yield from self._full()

    def _full(self) -> Iterator[DocumentBatch]:
        if self.part.full:
            yield self.part

    def _recorded(self, window: RecordedWindow, session: Session, said: Said, authors: Sequence[str]) -> None:
        made = recorded_window(window.asked, window.value, window.members, window.traceparent, window.before)
        told = self.restored
        told.windows += 1
        if not window.texts:
            self.part.erased.append(made)
            return
        if isinstance(said, SessionFacts):
            made.names = names_of(said, window.asked.participants)
            if self.anew and window.corrected:
                ask_anew(made, session, said, authors)
        self.part.windows.append(made)
        texts = [member for member in window.members if member.text is not None]
        exact = sum(text.message_id in window.exact for text in texts)
        told.exact, told.other = told.exact + exact, told.other + len(texts) - exact
        told.gone += len(window.members) - len(texts)
        self.part.characters += sum(len(text.text or "") for text in texts)

    def _cut(self, window: StoredWindow) -> None:
        self.restored.cut += 1
        self.part.windows.append(window)
        self.part.characters += sum(len(message.text or "") for message in window.messages)
        for message in window.messages:
            self._message(replace(message, text=None, formation_id=window.formation_id))

    def _waiting(self, session: Session) -> None:
        for message in session.held.values():
            self.restored.waiting += 1
            self._message(message)
        if session.needs_writing():
            self.part.sessions.append(session)
            self.restored.sessions += 1

    def _message(self, message: StoredMessage) -> None:
        self.restored.messages += 1
        self.part.messages.append(message)
        self.part.characters += len(message.text or "")


def _answering(window: RecordedWindow) -> set[str]:
    """Return the ids on answers that were read wrong: no users, unless they write."""
    misread = (member for member in window.members if member.misread)
    return {member.user_id for member in misread if member.user_id and member.participant is None}


def _authors(window: RecordedWindow) -> Sequence[str]:
    """Who took part; of a window that was read wrong, who wrote it as it is read now."""
    if not window.corrected:
        return window.asked.participants
    return [member.participant for member in window.members if member.participant is not None]
