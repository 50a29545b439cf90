"""`memory.commands`, `memory.reflections`, `memory.consolidations`: reflections, blobs, and commands on both."""

from hashlib import blake2b
from typing import Literal, Self

from pydantic import Field, model_validator

from eden_memory.schemas.events.base import Derived, Event
from eden_memory.schemas.events.facts import By
from eden_memory.schemas.fields import Count, KeyText, Moment, Ordinal, Part
from eden_memory.schemas.ids import EntityId, Version
from eden_memory.schemas.provenance import Call, SourceMessage
from eden_memory.schemas.scopes import NotShared, Scope, ScopeKind

Origin = Literal["formed", "propagated", "added", "imported"]
MemoryAction = Literal["add_reflection", "edit_reflection", "retire_reflection", "edit_blob", "pin", "unpin"]
"""pin: a sentence that the blob holds and every later version keeps; unpin: it need not any more."""


class MemoryCommanded(Event):
    """A change of a reflection or of a scope's blob that no conversation led to: decided in its scope's order."""

    command_id: KeyText
    scope: Scope
    action: MemoryAction
    reflection_id: KeyText | None = None
    """The reflection that is edited or retired; null for all other actions."""
    expected_version: Count | None = None
    """Carried out only if the reflection or blob stands at this version (0: no blob yet); null: whatever it is."""
    text: str | None = None
    """The reflection's, the blob's, or the pinned sentence; null: retired, or the text stays."""
    private: bool | None = None
    """Reflections: never propagated; null: as it is."""
    sources: tuple[SourceMessage, ...] = ()
    """Messages that an added reflection rests on, where it rests on any."""
    by: By
    asked_by: str | None = Field(None, max_length=256)
    """Name of the person, key or program that asked, where known."""
    reason: str | None = None
    asked_at: Moment
    said_at: Moment | None = None
    """Since when the text is true, where that is not `asked_at`."""
    version: Version | None = None
    """Cluster time of the inbox document; null for commands that the program gives itself."""

    @model_validator(mode="after")
    def _says_all_it_needs(self) -> Self:
        names_one = self.action in ("edit_reflection", "retire_reflection")
        if names_one != (self.reflection_id is not None):
            raise ValueError(
                "edit_reflection and retire_reflection name a reflection, and no other action does"
            )
        if self.action == "edit_blob" and self.expected_version is None:
            raise ValueError("edit_blob names the version that it was written for")
        has_text = bool(self.text and self.text.strip())
        if self.action == "edit_reflection":
            if self.text is None and self.private is None:
                raise ValueError("edit_reflection gives a text, or says whether the reflection is private")
            has_text = self.text is None or has_text
        if has_text == (self.action == "retire_reflection"):
            raise ValueError("retire_reflection has no text, and every other action has one")
        return self

    def key(self) -> str:
        """The command."""
        return self.command_id

    def ordering_key(self) -> str:
        """The scope."""
        return self.scope.key

    def subject(self) -> str:
        """The reflection, or the scope."""
        return self.reflection_id or self.scope.key


class MemoryCommandRef(Part):
    """The command behind a version of a reflection or blob."""

    command_id: KeyText
    action: MemoryAction
    by: By
    asked_by: str | None = None
    reason: str | None = None
    asked_at: Moment


class Propagated(Part):
    """The reflection of a narrower scope that this one was made from."""

    reflection_id: KeyText
    scope: Scope

    @staticmethod
    def id_of(reflection_id: str) -> str:
        """Return the id of the reflection that is made from this one: there is one at most."""
        return blake2b(f"propagated\n{reflection_id}".encode(), digest_size=16).hexdigest()


class ReflectionFormed(Event, Derived):
    """The whole state of one version of a reflection: it is in its scope's buffer until a blob absorbs it.

    The buffer: reflections of a scope, each in its highest version, that are not retired and that no version of its
    blob (ScopeConsolidated) in the topic lists. Only commands make versions above the first.
    """

    reflection_id: KeyText
    version: Ordinal = 1
    scope: Scope
    text: str
    position: Ordinal
    """Its place among the reflections of its formation and scope."""
    formation_id: KeyText | None = None
    """Null for what was propagated, added or imported."""
    session_id: EntityId | None = None
    origin: Origin
    sources: tuple[SourceMessage, ...] = ()
    whole_window: bool = False
    """True where the model named no valid message, so all of the window count."""
    call: Call | None = None
    formed_at: Moment
    """The window's time: what forgetting reaches goes by it."""
    said_at: Moment
    """When it was said: the newest `said_at` of its sources, which orders reflections."""
    private: bool = False
    """Never propagated."""
    demoted_from: ScopeKind | None = None
    """The broader scope that it was taken out of."""
    not_shared: NotShared | None = None
    """The check because of which it is not in that scope."""
    propagated_from: Propagated | None = None
    asked_by: str | None = Field(None, max_length=256)
    """Who added or imported it."""
    command: MemoryCommandRef | None = None
    """The command that led to this version; null where a formation or propagation did."""
    retired_at: Moment | None = None
    """Null: not retired."""

    @model_validator(mode="after")
    def _propagated_from_somewhere(self) -> Self:
        if (self.origin == "propagated") != (self.propagated_from is not None):
            raise ValueError("what was propagated names where from, and nothing else does")
        return self

    def key(self) -> str:
        """The reflection, from its second version on with `@<version>`."""
        return self.reflection_id if self.version == 1 else f"{self.reflection_id}@{self.version}"

    def ordering_key(self) -> str:
        """The scope."""
        return self.scope.key

    def subject(self) -> str:
        """The reflection."""
        return self.reflection_id


class SessionClosed(Event, Derived):
    """The last reflections of a session stand before this: consolidate its scope, whatever the buffer."""

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
    because: Literal["threshold", "closed", "asked", "forgotten", "imported", "edited"]
    pins: tuple[str, ...] = ()
    """Sentences of the text that every later version keeps until they are unpinned."""
    command: MemoryCommandRef | None = None
    """The command that led to this version; null where a consolidation did."""
    call: Call | None = None
    consolidated_at: Moment
    """The newest `formed_at` of the reflections absorbed; no wall clock."""
    said_at: Moment
    """The newest `said_at` that the text holds, of the version it was made from too."""
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
