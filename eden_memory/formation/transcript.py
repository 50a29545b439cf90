"""A window's messages as prompts show them, and what their numbers stand for. Pure."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from eden_memory.directory.own_sessions import whose
from eden_memory.forgotten import Marks
from eden_memory.formation.prompt_material import Line
from eden_memory.schemas.events.formation import Window
from eden_memory.schemas.provenance import SourceMessage
from eden_memory.schemas.scopes import LargeAudience
from eden_memory.windows.session_state import StoredMessage
from eden_memory.windows.window_request import StoredWindow

REMOVED = "(removed)"
"""In place of a text forgotten after it was shown: the numbers of an answer that had arrived stay true."""
NAMELESS: Mapping[str, str] = {
    "user": "User",
    "assistant": "Assistant",
    "tool": "Tool",
    "system": "System",
    "other": "Other",
}


@dataclass(frozen=True, slots=True)
class Transcript:
    """Messages by their numbers: the first of both tuples is number 1."""

    lines: tuple[Line, ...]
    sources: tuple[SourceMessage, ...]

    @property
    def shown(self) -> tuple[str, ...]:
        """The ids behind the numbers."""
        return tuple(source.message_id for source in self.sources)

    def resting_on(self, numbers: Iterable[int]) -> tuple[tuple[SourceMessage, ...], bool]:
        """The messages of these numbers, in order, and False; all messages and True where no number is valid."""
        valid = sorted({number for number in numbers if 1 <= number <= len(self.sources)})
        if not valid:
            return self.sources, True
        return tuple(self.sources[number - 1] for number in valid), False

    def speakers_but(self, users: Collection[str | None]) -> set[str]:
        """What the users are called who speak here, but for these."""
        return {
            line.speaker
            for line, source in zip(self.lines, self.sources, strict=True)
            if line.role == "user" and source.user_id not in users and line.speaker.split()[:1] != ["User"]
        }

    def roles_of(self, sources: Iterable[SourceMessage]) -> set[str]:
        """Who speaks in these messages."""
        wanted = {one.message_id for one in sources}
        return {
            line.role
            for line, source in zip(self.lines, self.sources, strict=True)
            if source.message_id in wanted
        }

    def texts_of(self, sources: Iterable[SourceMessage]) -> list[str]:
        """What these messages say, tools' apart."""
        wanted = {one.message_id for one in sources}
        return [
            line.text
            for line, source in zip(self.lines, self.sources, strict=True)
            if source.message_id in wanted and line.role != "tool"
        ]


def transcript(stored: StoredWindow, window: Window, marks: Marks, shown: Sequence[str] = ()) -> Transcript:
    """The messages of a window that have a text and are not forgotten.

    `shown`: the ids that an earlier attempt has shown, where its answer had arrived: exactly those, in their
    places, whatever was forgotten since.
    """
    present = _present(stored, window)
    sources = {one.message_id: _source(one, stored.session_id, present) for one in stored.messages}
    by_id = {one.message_id: one for one in stored.messages}
    gone = {name for name, source in sources.items() if marks.source_gone(source)}
    left = [name for name, one in by_id.items() if (one.text or "").strip() and name not in gone]
    chosen = [name for name in shown if name in by_id] or left
    speakers = _speakers(stored, window)
    lines = (_line(by_id[name], speakers, gone=name in gone) for name in chosen)
    return Transcript(tuple(lines), tuple(sources[name] for name in chosen))


def named_by(window: Window) -> set[tuple[str, str]]:
    """(kind, target) of everything whose forgetting would concern a window."""
    messages = {("message", one.message_id) for one in window.messages}
    return messages | {("user", one) for one in window.participants} | {("session", window.session_id)}


def _present(stored: StoredWindow, window: Window) -> int:
    """How many users took part; those whom nobody names count as one, but in texts that the operator added."""
    heard = whose(stored.session_id) is None and any(one.role == "user" for one in stored.messages)
    large = (scope.audience.users for scope in window.scopes if isinstance(scope.audience, LargeAudience))
    return max(len(window.participants), *large, int(heard))


def _source(one: StoredMessage, session_id: str, participants: int) -> SourceMessage:
    return SourceMessage(
        message_id=one.message_id,
        version=one.version,
        session_id=session_id,
        user_id=one.user_id,
        time=one.time,
        said_at=one.said_at,
        participants=participants,
    )


def _line(one: StoredMessage, speakers: Mapping[str, str], *, gone: bool) -> Line:
    by_user = one.role == "user"
    speaker = speakers.get(one.user_id or "" if by_user else one.role) or NAMELESS[one.role]
    text = "" if gone else (one.text or "").strip()
    return Line(speaker, one.role, one.said_at, text or REMOVED)


def _speakers(stored: StoredWindow, window: Window) -> dict[str, str]:
    """What each user, by id, and the agent, under `assistant`, is called; no two users the same."""
    users = dict.fromkeys([*window.participants, *(one.user_id for one in stored.messages if one.user_id)])
    called = {user: stored.names.get(user) or NAMELESS["user"] for user in users}
    often = Counter(called.values())
    seen: Counter[str] = Counter()
    for user, name in called.items():
        if often[name] > 1:
            seen[name] += 1
            called[user] = f"{name} {seen[name]}"
    return {**called, "assistant": stored.names.get(window.agent_id) or NAMELESS["assistant"]}
