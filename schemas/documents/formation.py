"""What formation-trigger keeps: each message's place, each session's state, the texts of closed windows."""

from typing import ClassVar

from pydantic import Field

from schemas.documents.base import Document
from schemas.events.chat import Role
from schemas.events.formation import FormationRequested
from schemas.fields import Count, KeyText, Moment, Ordinal, Part
from schemas.ids import EntityId, Version


class Message(Document):
    """Where a message belongs, for ever; its text only until it is formed."""

    COLLECTION: ClassVar[str] = "messages"

    id: EntityId = Field(alias="_id")
    session_id: EntityId
    version: Version
    """The newest seen; lower ones are ignored."""
    time: Moment
    formation_id: KeyText | None = None
    role: Role
    user_id: EntityId | None = None
    text: str | None = None
    """Null once formed, and for a message without content."""
    characters: Count
    truncated: bool = False
    deleted: bool = False
    changed_after_formation: bool = False
    """Edited or deleted after its window had closed: noted, not formed again."""


class Pending(Part):
    """A message that waits for its window."""

    message_id: EntityId
    version: Version
    time: Moment
    characters: Count
    weighted_tokens: float


class SessionState(Document):
    """A session as the trigger sees it: one conditional write consumes messages and closes windows."""

    COLLECTION: ClassVar[str] = "sessions"

    id: EntityId = Field(alias="_id")
    rev: Count
    """Every write is conditional on it and adds one."""
    partition: Count
    """Of `chat.messages`, so that an assignment finds its sessions."""
    agent_id: EntityId | None = None
    users: tuple[EntityId, ...] = ()
    generation: Ordinal = 1
    """Of the session's memory: one more whenever a user joined."""
    seq: Count = 0
    """Windows closed so far."""
    pending: tuple[Pending, ...] = ()
    first_at: Moment | None = None
    last_at: Moment | None = None
    outbox: tuple[FormationRequested, ...] = ()
    """Closed windows not yet known to be published."""
    waits_for: str | None = None
    """Why no window is closed: a missing document, a budget."""
    waits_since: Moment | None = None
    ended: bool = False


class WindowMessage(Part):
    """One message of a closed window, with its text."""

    message_id: EntityId
    version: Version
    role: Role
    user_id: EntityId | None = None
    text: str
    truncated: bool = False
    time: Moment


class WindowTexts(Document):
    """The texts of a closed window; erased seven days after its completion."""

    COLLECTION: ClassVar[str] = "windows"

    id: KeyText = Field(alias="_id")
    """The formation."""
    session_id: EntityId
    messages: tuple[WindowMessage, ...]
    names: dict[EntityId, str] = Field(default_factory=dict[EntityId, str])
    """What the participants and the agent are called."""
    closed_at: Moment
    completed_at: Moment | None = None
    erase_after: Moment | None = None
