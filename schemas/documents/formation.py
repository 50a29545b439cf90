"""The state of formation-trigger: each message's place, each session's state, the texts of closed windows."""

from typing import Annotated, ClassVar

from pydantic import Field, WithJsonSchema

from eden_memory.schemas.documents.base import Document
from eden_memory.schemas.events.chat import Role
from eden_memory.schemas.events.formation import ClosedBecause
from eden_memory.schemas.fields import Count, KeyText, Moment, Ordinal, Part, Usd
from eden_memory.schemas.ids import EntityId, Version
from eden_memory.schemas.provenance import MessageRef
from eden_memory.schemas.scopes import AudienceChange, LargeAudience

EventJson = Annotated[str, WithJsonSchema({"type": "string", "contentMediaType": "application/json"})]


class MessageEdit(Part):
    """An edit of a message's text that forgot what had been formed from it."""

    version: Version
    """Of the message, from the edit on."""
    up_to: Version
    """The version up to which it is forgotten."""
    formed_in: KeyText | None
    """The formation that had the earlier text; null where the message was deleted since."""


class Message(Document):
    """Where a message belongs, for ever; its text only until it is formed."""

    COLLECTION: ClassVar[str] = "messages"

    id: EntityId = Field(alias="_id")
    session_id: EntityId | None
    """Null where only its deletion was ever seen, and that named none."""
    version: Version
    """The newest seen; lower ones are ignored."""
    time: Moment
    role: Role
    user_id: EntityId | None = None
    text: str | None = None
    """Null once formed, and for a message without content."""
    characters: Count
    truncated: bool = False
    formation_id: KeyText | None = None
    deleted: bool = False
    changed_after_formation: bool = False
    """Changed or deleted after its window had closed."""
    opted_out: bool = False
    """Its session or author is switched off: nothing of it is kept."""
    forgotten: bool = False
    """Forgotten by hand: no version of it is formed, and none keeps its text."""
    place: Count | None = None
    """While it waits for its window, and after: its place in the partition. Those behind the session's
    `formed_to` wait."""
    since: Moment | None = None
    """When it began to wait, if that was not at `time`."""
    created_at: Moment | None = None
    """The application's own time, where it gave one."""
    edited_at: Moment | None = None
    """When its text was changed last, before its window closed."""
    missing: bool = False
    """A merge did not find its document any more; its memory stays until `eden forget --missing`."""
    mapping: str | None = None
    """The version of the field mapping that read it; null for an added text."""
    misread: bool = False
    """Formed as an earlier field mapping read it, and read again since; `eden reform` forms it anew."""
    same: str | None = None
    """Keyed hash of its session, role, author and text: it is known by it when it is written again."""
    alias_of: EntityId | None = None
    """The first id of a message that was deleted and at once written again with this one."""
    digest: str | None = None
    """Keyed, of the text that was formed or waits, to tell an edit of the text from other changes; erased with it."""
    edit: MessageEdit | None = None
    """The last edit of its text after it was formed, if there was one."""
    formed_again: tuple[Moment, ...] = ()
    """When windows closed over edits of it: the last five."""


class PendingDeletion(Part):
    """A deleted message whose memory is hidden, and whose erasure waits in case the message is written again.

    Or a message that was edited after it was formed: its memory is hidden until it is forgotten.
    """

    message_id: EntityId
    version: Version
    """Of the deletion, or before the edit: memory of up to this version is hidden."""
    same: str | None = None
    """As of the message."""
    due: Moment
    asked: bool = False
    """The time has passed, and the erasure is requested."""
    edited: bool = False
    """The message was edited, not deleted."""


class OutboxEntry(Part):
    """A closed window that is not known to be published."""

    formation_id: KeyText
    seq: Ordinal
    requested: bool
    """Its request is written; false while the session waits."""


class SessionControl(Part):
    """A control record that was carried out."""

    because: ClosedBecause
    control_id: EntityId
    version: Version
    time: Moment
    by: str | None = None


class KeptAudience(AudienceChange):
    """The audience of a generation of a session's memory: who joined and left since the last that is known."""

    large: LargeAudience | None = None
    """In place of both: its users are not known; memory goes on, and is shown, only among exactly these."""


class PartitionState(Document):
    """How far formation-trigger has come with a partition: every write of a batch is conditional on it."""

    COLLECTION: ClassVar[str] = "partitions"

    id: Count = Field(alias="_id")
    """Of `chat.messages`."""
    place: Ordinal
    """The last place given to a message; every write moves it on."""


class SessionState(Document):
    """A session as the trigger sees it, once it has more to say than which messages wait."""

    COLLECTION: ClassVar[str] = "sessions"

    id: EntityId = Field(alias="_id")
    partition: Count
    """Of `chat.messages`, so that an assignment finds its sessions."""
    seq: Count
    """Windows closed so far."""
    formed_to: Count
    """Its messages with a place behind this one wait for their window."""
    outbox: tuple[OutboxEntry, ...] = ()
    waits_for: str | None = None
    """Why no window is published: a missing document, a budget."""
    controls: tuple[EntityId, ...]
    """The last control records that were carried out."""
    last_control: SessionControl | None = None
    """The newest of them: what was written before it is formed, however late it comes."""
    late: bool | None = None
    """True where something waits that was written before `last_control`: the next Watermark closes it."""
    audience_changes: tuple[KeptAudience, ...] = ()
    """Of each generation of the session's memory, how its audience differs from the one before."""
    users: tuple[EntityId, ...]
    """Authors seen."""
    due_at: Moment | None = None
    """It goes cold or stale then or later; missing where nothing waits."""
    unpublished: bool | None = None
    """True where there is something in the outbox, or an erasure is requested; missing where not."""
    deletions: tuple[PendingDeletion, ...] | None = None
    """Missing where nothing was deleted or edited just now."""


class WindowMessage(Part):
    """One message of a closed window, with its text."""

    message_id: EntityId
    version: Version
    role: Role
    user_id: EntityId | None = None
    text: str | None = None
    characters: Count
    truncated: bool = False
    time: Moment
    created_at: Moment | None = None
    """The application's own time, where it gave one."""
    edited_at: Moment | None = None
    """When its text was changed last, if it was."""


class WindowClosing(Part):
    """The record that closed a window."""

    because: ClosedBecause
    at: Moment
    control_id: EntityId | None = None
    asked_by: str | None = None
    users: tuple[EntityId, ...] = ()
    """Authors seen in the session before it closed."""


class InFlight(Part):
    """What a window's formation is expected to cost, and on whose account."""

    agent_id: EntityId
    user_id: EntityId | None = None
    """Its only participant; null where there are several or none."""
    usd: Usd
    """Of the calls whose price is known."""


class WindowTexts(Document):
    """The texts of a closed window; erased seven days after its completion."""

    COLLECTION: ClassVar[str] = "windows"

    id: KeyText = Field(alias="_id")
    """The formation."""
    session_id: EntityId
    seq: Ordinal
    messages: tuple[WindowMessage, ...]
    before: tuple[WindowMessage, ...] = ()
    """Messages right before the window, which explain it; those that its FormationRequested names."""
    closed: WindowClosing
    traceparent: str | None = None
    names: dict[EntityId, str] = Field(default_factory=dict[EntityId, str])
    """What the participants and the agent are called."""
    requested: EventJson | None = None
    """The value of its FormationRequested, byte for byte; null while the session waits, and for ever if all of it
    was left out."""
    left_out: tuple[MessageRef, ...] = ()
    """Messages of those who are switched off: their texts are gone."""
    in_flight: InFlight | None = None
    """Missing where no budget concerned it when it was asked for, and once all its calls are counted."""
    completed_at: Moment | None = None
    """When it was noticed that facts and reflections have been found in it, or given up for good."""
    erase_after: Moment | None = None
    erased_at: Moment | None = None
    """Since then its messages have no text here."""
