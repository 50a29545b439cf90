"""What a restoration writes, and what it says of itself. Pure."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from eden_memory.windows.session_state import Session, StoredMessage
from eden_memory.windows.window_request import StoredWindow

TOGETHER = 1_000
"""Documents that are written together, or fewer of CHARACTERS."""
CHARACTERS = 4_000_000
ENDS = ("chat_ends", "formation_ends")


@dataclass(slots=True)
class Restored:
    """What was restored."""

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
        return asdict(self) | {name: [list(one) for one in getattr(self, name).items()] for name in ENDS}

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> "Restored":
        """Back from a document."""
        told = cls()
        for one in fields(cls):
            value = row.get(one.name, 0)
            setattr(told, one.name, dict(value) if one.name in ENDS else value)
        return told


@dataclass(slots=True)
class Part:
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
