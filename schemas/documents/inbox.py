"""`memory_inbox`: what applications and the API ask for, each at its place among the chat writes.

Ids stand as the application has them (ObjectId, string, int or UUID), not in their typed text. The tailer
carries a document to its topic and erases it.
"""

from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, WithJsonSchema

from schemas.documents.base import Document
from schemas.events.chat import Role
from schemas.events.facts import Action, By
from schemas.events.forgetting import Forgettable
from schemas.fields import KeyText, Moment, Ordinal
from schemas.scopes import Scope

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


class InboxForget(_Asked):
    """Something to forget, by hand: for ever. Becomes Forgotten."""

    kind: Literal["forget"]
    what: Forgettable
    target: RawId
    """The id of a message, session or user, or the text id of a fact, reflection or blob version."""
