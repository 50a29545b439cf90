"""`memory.formations` and `memory.extractions`: closed windows, and the facts found in them."""

from typing import Literal

from eden_memory.schemas.events.base import Derived, Event
from eden_memory.schemas.fields import Count, KeyText, Moment, Ordinal, Part
from eden_memory.schemas.ids import EntityId
from eden_memory.schemas.provenance import Call, MessageRef, Statement
from eden_memory.schemas.scopes import (
    FORMED_KINDS,
    AudienceChange,
    FormedKind,
    NotShared,
    Scope,
    ScopeKind,
    SharedSessions,
    Sharing,
)

LeftOutBecause = Literal[
    "no_scope", "personal", "expired", "beyond", "planted", "empty", "unnamed", "forgotten"
]
ClosedBecause = Literal["messages", "tokens", "cold", "stale", "ended", "asked", "edited"]
"""edited: over a message whose text was edited after its formation, alone; it takes the place of the earlier text."""


class Window(Part):
    """The messages of a session that one formation covers. No text."""

    formation_id: KeyText
    session_id: EntityId
    seq: Ordinal
    """Its place among the session's windows."""
    agent_id: EntityId
    group_id: EntityId | None = None
    users: tuple[EntityId, ...]
    """The session's users; of more than 100 the first 100."""
    participants: tuple[EntityId, ...]
    """The session's users and the authors of the window's messages; where they are more than 100, those authors, and
    so many of the others that there are 100."""
    private_users: tuple[EntityId, ...] = ()
    """Those of `participants` whose memory is never propagated."""
    tier: Count = 0
    """The highest tier among the session's users; 0 is free."""
    scopes: tuple[Scope, ...]
    """Where memory may go, from broad to narrow; shards after their agent."""
    sharing: Sharing
    """Whether memory of this window may reach beyond its users."""
    shared_sessions: SharedSessions = "session"
    """authors: of several participants, what one says of themselves goes to their own user scope."""
    messages: tuple[MessageRef, ...]
    """In the session's order; empty when a session ended with nothing pending."""
    characters: Count
    weighted_tokens: float
    first_at: Moment | None = None
    last_at: Moment | None = None
    """Times of the first and the last message; null in an empty window."""
    closed_because: ClosedBecause
    closed_at: Moment
    """Time of the record that closed it (`ce_time`), not of any wall clock."""
    control_id: EntityId | None = None
    """The inbox document that closed it, where one did."""
    asked_by: str | None = None
    settings_version: str
    """Hash of the settings and streams in force when it closed."""
    forms: tuple[FormedKind, ...] = FORMED_KINDS
    """What is formed from it; the others are switched off for its agent."""
    before: tuple[MessageRef, ...] = ()
    """Messages of the session right before the window, of the same audience: they explain it, and no memory comes
    from them alone."""


class FormationRequested(Event, Window):
    """A window is closed: form memory from it. The only record of which messages it holds, kept for ever."""

    audience_change: AudienceChange | None = None
    """Given by the first window of a generation of session memory whose audience is too large to be listed: who
    joined and left since the last generation before it whose users are known. Null there: only its hash is known."""

    def key(self) -> str:
        """The formation."""
        return self.formation_id

    def ordering_key(self) -> str:
        """The session."""
        return self.session_id

    def subject(self) -> str:
        """The formation."""
        return self.formation_id

    def window(self) -> Window:
        """The window alone, as later records carry it."""
        return Window(**{name: getattr(self, name) for name in Window.model_fields})


class ExtractedFact(Statement):
    """A fact that the extraction found, and where it belongs."""

    scope: Scope
    demoted_from: ScopeKind | None = None
    """The broader scope that it was taken out of."""
    not_shared: NotShared | None = None
    """The check because of which it is not in that scope."""


class LeftOutFact(Part):
    """A fact that the model stated and that is not kept: never its text."""

    because: LeftOutBecause
    """No scope of this name, or none that may hold it; beyond a limit or the retention of its scope; it rests on a
    message that looks planted; nothing is left of its text; it names somebody by no name; it is forgotten."""
    not_shared: NotShared | None = None
    """The check that it did not pass."""
    message_ids: tuple[EntityId, ...]
    """The messages that it rests on."""


class FactsExtracted(Event, Derived):
    """What a window's fact extraction gave: exactly one per formation, also when empty or failed."""

    window: Window
    outcome: Literal["extracted", "empty", "failed"]
    reason: str | None = None
    """Why it failed; never content."""
    facts: tuple[ExtractedFact, ...] = ()
    cut: Count = 0
    """Facts beyond the limit, left out."""
    dropped: Count = 0
    """Facts left out because no scope may hold them."""
    not_shared: tuple[NotShared, ...] = ()
    """Of those, the check that each of them did not pass."""
    left_out: tuple[LeftOutFact, ...] = ()
    """Each fact that was left out, for whatever reason."""
    call: Call | None = None

    def key(self) -> str:
        """The formation."""
        return self.window.formation_id

    def ordering_key(self) -> str:
        """The session."""
        return self.window.session_id

    def subject(self) -> str:
        """The formation."""
        return self.window.formation_id
