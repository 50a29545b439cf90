"""A window's messages as prompts show them, and the sources behind their numbers. Pure."""

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from eden_memory.forgotten import Marks
from eden_memory.formation.prompt_material import TranscriptLine
from eden_memory.schemas.events.chat import participant_of
from eden_memory.schemas.events.formation import Window
from eden_memory.schemas.provenance import MessageRef, SourceMessage
from eden_memory.schemas.scopes import LargeAudience
from eden_memory.windows.formation_requests import StoredWindow, hears_users
from eden_memory.windows.session_state import StoredMessage

REMOVED = "(removed)"
"""In place of a text forgotten after it was shown: the numbers of an answer that had arrived stay true."""
ENDING = 600
"""Characters of a message before a window that are shown, its last."""
NAMELESS: Mapping[str, str] = {
    "user": "User",
    "assistant": "Assistant",
    "tool": "Tool",
    "system": "System",
    "other": "Other",
}


FROM_MEMORY = re.compile(r"<MemoryContext>.*?</MemoryContext>", re.DOTALL)
SEARCHED = re.compile(r"<facts>.*?</facts>", re.DOTALL)
"""Memory that an application put into a message, and that a tool found: nobody has said it anew."""
NUMBERED = re.compile(f"\\b{NAMELESS['user']} \\d+\\b", re.IGNORECASE)
"""The name of a user without one, beside others, however a model writes it."""


@dataclass(frozen=True, slots=True)
class Transcript:
    """Numbered messages: the first of both tuples is number 1; those before the window go on behind its own."""

    lines: tuple[TranscriptLine, ...]
    sources: tuple[SourceMessage, ...]
    numbered: Mapping[str, str] = field(default_factory=dict[str, str])
    """The names of users that several of them bear, by the name with a number that the prompt shows."""
    explaining: int = 0
    """How many of the last lines stand before the window."""

    @property
    def own(self) -> tuple[TranscriptLine, ...]:
        """The messages of the window."""
        return self.lines[: len(self.lines) - self.explaining]

    @property
    def before(self) -> tuple[TranscriptLine, ...]:
        """The messages before the window, which explain it."""
        return self.lines[len(self.lines) - self.explaining :]

    @property
    def shown(self) -> tuple[str, ...]:
        """The ids behind the numbers."""
        return tuple(source.message_id for source in self.sources)

    def resting_on(self, numbers: Iterable[int]) -> tuple[tuple[SourceMessage, ...], bool]:
        """Return the messages of these numbers, and False; all messages and True where no number is valid."""
        valid = sorted({number for number in numbers if 1 <= number <= len(self.sources)})
        if not valid:
            return self.sources, True
        return tuple(self.sources[number - 1] for number in valid), False

    def only_before(self, numbers: Iterable[int]) -> bool:
        """Return whether these are numbers of messages before the window alone: what they say is remembered."""
        valid = {number for number in numbers if 1 <= number <= len(self.lines)}
        return bool(valid) and min(valid) > len(self.own)

    def speakers_but(self, users: Collection[str | None]) -> set[str]:
        """Return the names of the users who speak here, except these."""
        return {
            line.speaker
            for line, source in zip(self.lines, self.sources, strict=True)
            if line.role == "user" and source.user_id not in users and line.speaker.split()[:1] != ["User"]
        }

    def unnamed(self, text: str, sources: Iterable[SourceMessage]) -> str | None:
        """Return a text that names its only author without a number of ours; None if it still calls a user `User 2`.

        Such a number means somebody in this window alone.
        """
        for speaker in self.names_of(self.authors_of(sources)) & self.numbered.keys():
            text = renamed(text, speaker, self.numbered[speaker])
        numbers = any(NUMBERED.fullmatch(line.speaker) for line in self.lines)
        return None if numbers and NUMBERED.search(text) else text

    def names_of(self, authors: Collection[str | None]) -> set[str]:
        """Return what the only author is called here; nothing for several."""
        return {
            line.speaker
            for line, source in zip(self.lines, self.sources, strict=True)
            if line.role == "user" and authors == {source.user_id}
        }

    def authors_of(self, sources: Iterable[SourceMessage]) -> set[str | None]:
        """Return who takes part by these messages; None stands for the agent's side and for a user without a name."""
        wanted = {source_message.message_id for source_message in sources}
        return {
            participant_of(line.role, source.user_id)
            for line, source in zip(self.lines, self.sources, strict=True)
            if source.message_id in wanted
        }

    def roles_of(self, sources: Iterable[SourceMessage]) -> set[str]:
        """Return the roles that speak in these messages."""
        wanted = {source_message.message_id for source_message in sources}
        return {
            line.role
            for line, source in zip(self.lines, self.sources, strict=True)
            if source.message_id in wanted
        }

    def texts_of(self, sources: Iterable[SourceMessage]) -> list[str]:
        """Return the texts of these messages, without those of tools."""
        wanted = {source_message.message_id for source_message in sources}
        return [
            line.text
            for line, source in zip(self.lines, self.sources, strict=True)
            if source.message_id in wanted and line.role != "tool"
        ]


def renamed(text: str, name: str, other: str) -> str:
    """Return a text with every mention of a name replaced."""
    return re.sub(rf"\b{re.escape(name)}\b", lambda _: other, text, flags=re.IGNORECASE)


def transcript(
    stored: StoredWindow,
    window: Window,
    marks: Marks,
    shown: Sequence[str] = (),
    before: Collection[MessageRef] = (),
) -> Transcript:
    """Return the messages of a window that have a text and are not forgotten, behind them those of `before`.

    `shown`: the ids that an earlier attempt has shown, where its answer had arrived: exactly those, in their
    places, whatever was forgotten since.
    """
    present, named = _present(stored, window), {(ref.message_id, ref.version) for ref in before}
    explaining = [
        _ending(message) for message in stored.before if (message.message_id, message.version) in named
    ]
    by_id = {message.message_id: message for message in (*explaining, *stored.messages)}
    sources = {name: _source(message, stored.session_id, present) for name, message in by_id.items()}
    gone = {name for name, source in sources.items() if marks.gone_in(window, source)}
    answered = [name for name in shown if name in by_id]
    left = [name for name, message in by_id.items() if _said(message) and name not in gone]
    later = {message.message_id for message in explaining}
    chosen = sorted(answered or left, key=later.__contains__)
    speakers = _speakers(stored, window)
    lines = (_line(by_id[name], speakers, gone=name in gone) for name in chosen)
    called = {speaker: stored.names.get(user) or NAMELESS["user"] for user, speaker in speakers.items()}
    numbered = {
        speaker: name for speaker, name in called.items() if speaker == f"{name} {speaker.split()[-1]}"
    }
    told = tuple(sources[name] for name in chosen)
    return Transcript(tuple(lines), told, numbered, len(later.intersection(chosen)))


def _ending(message: StoredMessage) -> StoredMessage:
    """Return a message with the end of its text alone: there stands what the next message answers."""
    text = _said(message)
    short = text if len(text) <= ENDING else f"…{text[-ENDING:]}"
    return replace(message, text=short or None)


def _present(stored: StoredWindow, window: Window) -> int:
    """Return how many users took part; unnamed ones count as one, except in texts that the operator added."""
    large = (scope.audience.users for scope in window.scopes if isinstance(scope.audience, LargeAudience))
    return max(len(window.participants), *large, int(hears_users(stored)))


def _source(message: StoredMessage, session_id: str, participants: int) -> SourceMessage:
    return SourceMessage(
        message_id=message.message_id,
        version=message.version,
        session_id=session_id,
        user_id=message.user_id,
        time=message.time,
        said_at=message.said_at,
        participants=participants,
    )


def _line(message: StoredMessage, speakers: Mapping[str, str], *, gone: bool) -> TranscriptLine:
    by_user = message.role == "user"
    speaker = speakers.get(message.user_id or "" if by_user else message.role) or NAMELESS[message.role]
    text = "" if gone else _said(message)
    return TranscriptLine(speaker, message.role, message.written_at, text or REMOVED)


def _said(message: StoredMessage) -> str:
    return without_memory(message.text or "", message.role)


def without_memory(text: str, role: str) -> str:
    """Return a message's text without what came from memory."""
    own = FROM_MEMORY.sub("", text)
    return (SEARCHED.sub("", own) if role == "tool" else own).strip()


def _speakers(stored: StoredWindow, window: Window) -> dict[str, str]:
    """Return the names of users, by id, and of the agent, under `assistant`; no two users share one.

    Whoever speaks here only in other roles, as staff who answer under ids of their own, is no user to tell apart.
    """
    messages = (*stored.messages, *stored.before)
    speaking = [message.participant for message in messages if message.participant]
    staff = {message.user_id for message in messages} - {*speaking}
    users = dict.fromkeys(user for user in (*window.participants, *speaking) if user not in staff)
    called = {user: stored.names.get(user) or NAMELESS["user"] for user in users}
    often = Counter(called.values())
    seen: Counter[str] = Counter()
    for user, name in called.items():
        if often[name] > 1:
            seen[name] += 1
            called[user] = f"{name} {seen[name]}"
    return {**called, "assistant": stored.names.get(window.agent_id) or NAMELESS["assistant"]}
