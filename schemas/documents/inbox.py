"""`memory_inbox`: what applications and the API ask for, each at its place among the chat writes.

Ids stand as the application has them (ObjectId, string, int or UUID), not in their typed text. The tailer
carries a document to its topic and erases it.
"""

from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, WithJsonSchema

from eden_memory.schemas.documents.base import Document
from eden_memory.schemas.events.chat import Role
from eden_memory.schemas.events.facts import Action, By
from eden_memory.schemas.events.forgetting import ForgottenKind
from eden_memory.schemas.events.reflections import MemoryAction
from eden_memory.schemas.fields import Count, KeyText, Moment, Ordinal
from eden_memory.schemas.provenance import SourceMessage
from eden_memory.schemas.scopes import Scope

RawId = Annotated[
    Any,
    WithJsonSchema({"description": "An id as the application has it: ObjectId, string, int or UUID."}),
]
AskedBy = Annotated[str | None, Field(max_length=256)]


class _Asked(Document):
    COLLECTION: ClassVar[str] = "inbox"

    id: RawId = Field(alias="_id")
    asked_by: AskedBy = None
    """Who asks, where known."""


class InboxSessionEnded(_Asked):
    """The session is over. Becomes SessionEnded."""

    kind: Literal["session_ended"]
    session_id: RawId


class InboxFormNow(_Asked):
    """Form what is pending in the session. Becomes FormationAsked."""

    kind: Literal["form_now"]
    session_id: RawId
    if_due: bool = False
    """true: only if it is due; false: now, however little."""


class InboxAddedText(_Asked):
    """A text to remember, without a chat. Becomes MessageRecorded with the origin `added`."""

    kind: Literal["added_text"]
    session_id: RawId
    text: str
    role: Role = "user"
    user_id: RawId = None
    created_at: Moment | None = None


class InboxFactCommand(_Asked):
    """A change of one fact. Becomes FactCommanded."""

    kind: Literal["fact_command"]
    scope: Scope
    action: Action
    fact_id: KeyText | None = None
    expected_version: Ordinal | None = None
    text: str | None = None
    embedding_model: str | None = None
    """reembed: the model whose vector the fact is to have."""
    by: By
    reason: str | None = None
    expires_at: Moment | None = None
    said_at: Moment | None = None
    """add: since when it is true, if not since it is asked; not in the future."""
    decide: bool = False
    """add: a model decides what it means for the facts near it; false: only exact repeats are recognised."""
    replaced_by: KeyText | None = None
    """retire: the fact that says the same, and takes over its sources."""
    private: bool | None = None
    """mark, add: whether nothing that rests on its messages may be propagated; null: as it is."""
    session_id: RawId = None
    """add: the session that it belongs to; forgetting that session reaches it."""
    sources: tuple[SourceMessage, ...] = ()
    """add, with `session_id`: the messages that it rests on; forgetting any of them reaches it."""


class InboxMemoryCommand(_Asked):
    """A change of a reflection or of a scope's blob. Becomes MemoryCommanded."""

    kind: Literal["memory_command"]
    scope: Scope
    action: MemoryAction
    reflection_id: KeyText | None = None
    expected_version: Count | None = None
    text: str | None = None
    private: bool | None = None
    by: By
    reason: str | None = None
    said_at: Moment | None = None
    """Since when it is true, if not since it is asked; not in the future."""
    session_id: RawId = None
    """add_reflection: the session that it belongs to; forgetting that session reaches it."""
    sources: tuple[SourceMessage, ...] = ()
    """add_reflection, with `session_id`: the messages that it rests on; forgetting any of them reaches it."""


class InboxReread(_Asked):
    """Read messages again with the field mapping as it is now. Changed ones become MessageRecorded (`reread`)."""

    kind: Literal["reread"]
    session_id: RawId = None
    """Only this session's, by the mapping as it is now; null: of all sessions."""
    since: Moment | None = None
    """Only what was created then or later, and what names no time; null: whatever its time."""
    documents: tuple[RawId, ...] | None = None
    """Only the messages with these `_id`s; null: all."""


class InboxForget(_Asked):
    """Something to forget, by hand: for ever; or an API key that is revoked. Becomes Forgotten."""

    kind: Literal["forget"]
    what: ForgottenKind
    target: RawId
    """The id of a message, session or user, the text id of a fact, reflection or blob version, or a key's SHA-256."""
