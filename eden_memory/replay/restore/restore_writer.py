"""What was gathered, given as documents of formation-trigger, session by session."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from eden_memory.directory.participants import Missing, SessionFacts
from eden_memory.replay.restore.restore_file import Gathered, GatheredWindow
from eden_memory.replay.restore.restore_rules import ask_anew, cut, recorded_window, session_before
from eden_memory.replay.restore.restored import Part, Restored
from eden_memory.windows.session_state import Session, StoredMessage
from eden_memory.windows.window_request import StoredWindow, names_of
from eden_memory.windows.window_rule import Limits

Said = SessionFacts | Missing | None
"""What the application says of a session; None: it was not asked."""


@dataclass(slots=True)
class Giving:
    """`passed`: by partition, up to when everything is recorded; `described`: sessions have documents.

    `anew`: windows with messages that were read wrong when they were asked for are asked for anew.
    """

    gathered: Gathered
    limits: Limits
    described: bool
    passed: Mapping[int, datetime]
    restored: Restored
    anew: bool = False
    part: Part = field(default_factory=Part)

    def session(self, name: str, partition: int, said: Said) -> Iterator[Part]:
        """A session's documents, added to `part`; yields it whenever it is full: clear it then."""
        recorded = self.gathered.session(name, partition)
        session = session_before(recorded, self.limits, described=self.described)
        authors, corrected = dict[str, None](), False
        for window in self.gathered.windows(name):
            corrected |= window.corrected
            authors |= dict.fromkeys(_authors(window))
            self._recorded(window, session, said, tuple(authors))
            yield from self._full()
        if corrected and not self.described:
            session.users = tuple(dict.fromkeys((*authors, *recorded.authors)))
        for messages in (self.gathered.settled(name), self.gathered.unseen(name)):
            for one in messages:
                self._message(replace(one, text=None) if one.formation_id else one)
                yield from self._full()
        for window in cut(session, recorded, self.passed.get(partition)):
            self._cut(window)
            yield from self._full()
        self._waiting(session)
        yield from self._full()

    def nowhere(self) -> Iterator[Part]:
        """Messages of no known session."""
        for one in self.gathered.nowhere():
            self._message(one)
            yield from self._full()

    def _full(self) -> Iterator[Part]:
        if self.part.full:
            yield self.part

    def _recorded(self, window: GatheredWindow, session: Session, said: Said, authors: Sequence[str]) -> None:
        made = recorded_window(window.asked, window.value, window.members, window.traceparent)
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
        texts = [one for one in window.members if one.text is not None]
        exact = sum(one.message_id in window.exact for one in texts)
        told.exact, told.other = told.exact + exact, told.other + len(texts) - exact
        told.gone += len(window.members) - len(texts)
        self.part.characters += sum(len(one.text or "") for one in texts)

    def _cut(self, window: StoredWindow) -> None:
        self.restored.cut += 1
        self.part.windows.append(window)
        self.part.characters += sum(len(one.text or "") for one in window.messages)
        for one in window.messages:
            self._message(replace(one, text=None, formation_id=window.formation_id))

    def _waiting(self, session: Session) -> None:
        for one in session.held.values():
            self.restored.waiting += 1
            self._message(one)
        if session.needs_writing():
            self.part.sessions.append(session)
            self.restored.sessions += 1

    def _message(self, one: StoredMessage) -> None:
        self.restored.messages += 1
        self.part.messages.append(one)
        self.part.characters += len(one.text or "")


def _authors(window: GatheredWindow) -> Sequence[str]:
    """Who took part; of a window that was read wrong, who wrote it as it is read now."""
    if not window.corrected:
        return window.asked.participants
    return [one.user_id for one in window.members if one.user_id is not None]
