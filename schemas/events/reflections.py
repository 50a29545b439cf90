"""`memory.reflections` and `memory.consolidations`: reflections, a session's last word, and blobs."""

from datetime import datetime
from typing import Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from eden_memory.schemas.events.base import Derived, Event
from eden_memory.schemas.fields import Count, KeyText, Moment, Ordinal, Part
from eden_memory.schemas.ids import EntityId
from eden_memory.schemas.provenance import Call, SourceMessage
from eden_memory.schemas.scopes import Scope, ScopeKind


def _formed_at(fields: dict[str, Any]) -> datetime:
    return fields["formed_at"]


def _consolidated_at(fields: dict[str, Any]) -> datetime:
    return fields["consolidated_at"]


class Propagated(Part):
    """The reflection of a narrower scope that this one was made from."""

    reflection_id: KeyText
    scope: Scope


class ReflectionFormed(Event, Derived):
    """One reflection; it never changes, and is in its scope's buffer until a blob lists it as absorbed.

    The buffer: reflections of a scope that no version of its blob (ScopeConsolidated) in the topic lists.
    """

    VERSION: ClassVar[int] = 3

    reflection_id: KeyText
    scope: Scope
    text: str
    position: Ordinal
    """Its place among the reflections of its formation and scope."""
    formation_id: KeyText | None = None
    """Null for what was propagated, added or imported."""
    session_id: EntityId | None = None
    origin: Literal["formed", "propagated", "added", "imported"]
    sources: tuple[SourceMessage, ...] = ()
    whole_window: bool = False
    """True where the model named no valid message, so all of the window count."""
    call: Call | None = None
    formed_at: Moment
    """The window's time: what forgetting reaches goes by it."""
    said_at: Moment = Field(default_factory=_formed_at)
    """When it was said: the newest `said_at` of its sources, which orders reflections. Equal to `formed_at` where an
    earlier version recorded none."""
    private: bool = False
    """Never propagated."""
    demoted_from: ScopeKind | None = None
    """The broader scope that it was taken out of, because it is not for all who see that."""
    propagated_from: Propagated | None = None
    asked_by: str | None = Field(None, max_length=256)
    """Who added or imported it."""

    @model_validator(mode="after")
    def _propagated_from_somewhere(self) -> Self:
        if (self.origin == "propagated") != (self.propagated_from is not None):
            raise ValueError("what was propagated names where from, and nothing else does")
        return self

    def key(self) -> str:
        """The reflection."""
        return self.reflection_id

    def ordering_key(self) -> str:
        """The scope."""
        return self.scope.key

    def subject(self) -> str:
        """The reflection."""
        return self.reflection_id


class SessionClosed(Event, Derived):
    """The last reflections of a session stand before this: consolidate its scope, whatever the buffer."""

    VERSION: ClassVar[int] = 2

    scope: Scope
    """The session's."""
    formation_id: KeyText
    """The final window's."""
    reflections: Count
    """How many the final window added to the session's scope."""
    closed_at: Moment

    def key(self) -> str:
        """`closed:<formation>`."""
        return f"closed:{self.formation_id}"

    def ordering_key(self) -> str:
        """The scope."""
        return self.scope.key

    def subject(self) -> str:
        """The scope."""
        return self.scope.key


class ScopeConsolidated(Event, Derived):
    """A scope's blob of one version.

    The highest version that is not erased is the one shown; it replaces all before it. What it lists as
    `absorbed` is no longer in the scope's buffer.
    """

    VERSION: ClassVar[int] = 3

    scope: Scope
    version: Ordinal
    based_on: Count
    """The version that it was made from; 0 for none."""
    text: str
    words: Count
    word_limit: Ordinal
    cut: bool = False
    """True where the answer was over the limit twice and was cut at a sentence's end."""
    absorbed: tuple[KeyText, ...]
    """The reflections that this version took in."""
    private: bool = False
    """True where any of them is private."""
    because: Literal["threshold", "closed", "asked", "forgotten", "imported"]
    call: Call | None = None
    consolidated_at: Moment
    """The newest `formed_at` of the reflections absorbed; no wall clock."""
    said_at: Moment = Field(default_factory=_consolidated_at)
    """The newest `said_at` that the text holds, of the version it was made from too. Equal to `consolidated_at` where
    an earlier version recorded none."""
    settings_version: str

    @model_validator(mode="after")
    def _goes_forward(self) -> Self:
        if self.based_on >= self.version:
            raise ValueError("a blob's version is above the one that it was made from")
        return self

    def key(self) -> str:
        """`<scope key>@<version>`."""
        return f"{self.scope.key}@{self.version}"

    def ordering_key(self) -> str:
        """The scope."""
        return self.scope.key

    def subject(self) -> str:
        """The scope."""
        return self.scope.key
