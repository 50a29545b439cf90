"""`memory.forgotten`: what is never to be remembered again, and how far that reaches. Ids only, no text.

API keys that are revoked are recorded here, too: a restored backup of MongoDB brings neither back.
"""

from typing import Annotated, Literal, Self

from pydantic import Field, StringConstraints, model_validator

from eden_memory.schemas.events.base import Event
from eden_memory.schemas.fields import EventId, Moment
from eden_memory.schemas.ids import EntityId, Version
from eden_memory.schemas.scopes import ScopeKey

Forgettable = Literal["message", "session", "user", "fact", "reflection", "blob"]
ForgottenKind = Forgettable | Literal["key"]
"""`key`: an API key that is revoked."""
Reach = Literal["up_to_version", "created_up_to", "for_ever"]

ForgottenId = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_.~%:/@-]+$", max_length=4_096)]
"""A message's, session's or user's id; `ID@5` for one version of a fact, `KEY@5` for one of a blob; the SHA-256 of an
API key."""


class Forgotten(Event):
    """An id is forgotten. Who meets a record that is it, or names it as its source, drops that record.

    What else a fact was merged from is stated anew. Of what is dropped, derived records follow here and tombstones
    in the topics of its records. A record's sources say what to compare: `message_id` with `version`,
    `session_id` and `user_id` with `time`.
    """

    kind: ForgottenKind
    id: ForgottenId
    reach: Reach
    """up_to_version: a message seen deleted or edited, in versions up to `version`; created_up_to: a session or user,
    what was created up to `until`; for_ever: what was asked for by hand, and derived records."""
    version: Version | None = None
    until: Moment | None = None
    because: Literal["deleted", "edited", "asked", "derived", "opted_out"]
    """derived: it rested on a forgotten source, or absorbed what did."""
    caused_by: EventId | None = None
    """`ce_id` of the Forgotten record that it follows from."""
    session_id: EntityId | None = None
    """The session of a message, where known."""
    scope: ScopeKey | None = None
    """The scope of a fact, reflection or blob."""
    inbox_id: EntityId | None = None
    asked_by: str | None = Field(None, max_length=256)
    forgotten_at: Moment
    after: ForgottenId | None = None
    """Where a session or user is forgotten in slices: this record is about what comes behind `<kind>/<id>`, in the
    order facts, reflections, messages, each by id; null: from the start."""

    @model_validator(mode="after")
    def _reach_has_its_bound(self) -> Self:
        if (self.reach == "up_to_version") != (self.version is not None):
            raise ValueError("up_to_version goes with a version, and only that")
        if (self.reach == "created_up_to") != (self.until is not None):
            raise ValueError("created_up_to goes with a time, and only that")
        return self

    def key(self) -> str:
        """`<kind>:<id>/<reach>`, `…/<after>`: a narrower reach never takes the place of a wider one in the log."""
        return f"{self.subject()}/{self.reach}" + (f"/{self.after}" if self.after is not None else "")

    def ordering_key(self) -> str:
        """The forgotten thing, whatever the reach."""
        return self.subject()

    def subject(self) -> str:
        """`<kind>:<id>`."""
        return f"{self.kind}:{self.id}"
