"""`memory.candidates` and `memory.facts`: what is proposed and asked of facts, and what was decided."""

from typing import Literal, Self

from pydantic import Field, model_validator

from eden_memory.schemas.events.base import Derived, Event
from eden_memory.schemas.fields import KeyText, Moment, Ordinal, Part
from eden_memory.schemas.ids import EntityId, Version
from eden_memory.schemas.provenance import Call, Embedding, SourceMessage, Statement
from eden_memory.schemas.scopes import Scope

Action = Literal["add", "edit", "retire", "reembed", "unmerge", "mark"]
"""mark: say whether the fact is private.

unmerge: take the fact back to what its sources still support after some were forgotten; a fact that a forgotten
one had contradicted holds again.
"""

By = Literal[
    "person",
    "application",
    "mirror",
    "import",
    "audit",
    "expiry",
    "limit",
    "duplicate",
    "model_change",
    "forgetting",
]
"""Who wants a change: reform applies again what person, application, mirror and import asked.

audit: facts retired in bulk as junk. A reform forms memory anew, and is audited anew."""

Decision = Literal["ADD", "UPDATE", "DELETE", "NONE", "EDIT", "RETIRE", "REEMBED", "UNMERGE", "MARK"]
"""The first four answer a proposal (a fact retired for a contradiction says DELETE, and so does its
successor); the others carry out a command."""


class FactsProposed(Event, Derived):
    """The facts that one formation found for one scope."""

    formation_id: KeyText
    session_id: EntityId
    scope: Scope
    facts: tuple[Statement, ...] = Field(min_length=1)
    formed_at: Moment
    """The window's time."""
    settings_version: str

    def key(self) -> str:
        """`<formation>/<scope key>`."""
        return f"{self.formation_id}/{self.scope.key}"

    def ordering_key(self) -> str:
        """The scope."""
        return self.scope.key

    def subject(self) -> str:
        """The formation."""
        return self.formation_id


class FactCommanded(Event):
    """A change of one fact that no conversation led to: decided in its scope's order, by a model only if it asks."""

    command_id: KeyText
    scope: Scope
    action: Action
    fact_id: KeyText | None = None
    """Null when a fact is added."""
    expected_version: Ordinal | None = None
    """Carried out only if the fact still stands at this version; null: whatever it is."""
    text: str | None = None
    """The new text of add and edit."""
    sources: tuple[SourceMessage, ...] = ()
    """Messages that an added fact rests on, where it rests on any."""
    embedding_model: str | None = None
    """reembed: the model whose vector it is to have."""
    expires_at: Moment | None = None
    decide: bool = False
    """add: a model decides what it means for the facts near it; false: only exact repeats are recognised."""
    private: bool | None = None
    """mark, add: whether the fact is private (FactChanged); null: as it is."""
    by: By
    asked_by: str | None = Field(None, max_length=256)
    """Name of the person, key or program that asked, where known."""
    reason: str | None = None
    asked_at: Moment
    said_at: Moment | None = None
    """Since when the text is true, where that is not `asked_at`."""
    version: Version | None = None
    """Cluster time of the inbox document; null for commands that the program gives itself."""
    forgotten: tuple[KeyText, ...] = ()
    """unmerge: keys of the Forgotten records that led to it."""
    replaced_by: KeyText | None = None
    """retire: the fact that says the same, and takes over its sources. unmerge of a contradicted fact: the fact that
    contradicts it now; null: none does, and it holds again."""

    @model_validator(mode="after")
    def _says_all_it_needs(self) -> Self:
        if (self.action == "add") != (self.fact_id is None):
            raise ValueError("add names no fact, and every other action names one")
        if (self.action in ("add", "edit")) != bool(self.text and self.text.strip()):
            raise ValueError("add and edit have a text, and no other action has")
        if self.decide and self.action != "add":
            raise ValueError("only what is added can be decided by a model")
        if self.private is None and self.action == "mark":
            raise ValueError("mark says whether the fact is private")
        if self.private is not None and self.action not in ("mark", "add"):
            raise ValueError("only mark and add say whether the fact is private")
        if (self.action == "reembed") != (self.embedding_model is not None):
            raise ValueError("reembed names a model, and no other action does")
        return self

    def key(self) -> str:
        """The command."""
        return self.command_id

    def ordering_key(self) -> str:
        """The scope."""
        return self.scope.key

    def subject(self) -> str:
        """The fact, or the command that adds one."""
        return self.fact_id or self.command_id


class CommandRef(Part):
    """The command behind a change."""

    command_id: KeyText
    action: Action
    by: By
    asked_by: str | None = None
    asked_at: Moment


class Considered(Part):
    """A stored fact that the decision was shown."""

    fact_id: KeyText
    version: Ordinal
    similarity: float
    """(1 + cosine) / 2."""


class FactChanged(Event, Derived):
    """The whole state of one version of a fact; earlier texts are in the earlier versions' records.

    A fact is active while its highest version has `retired_at` null. Of active facts of one scope with the same
    `hash` only the one that was formed first counts (then the lowest `fact_id`): the others are retired as
    duplicates a moment later. What `expires_at` has passed is active until the version that retires it.

    `decision` says how a version came about, not whether the fact is active: DELETE stands in the fact that was
    contradicted and in the one that takes its place, NONE where only sources were added.
    """

    fact_id: KeyText
    version: Ordinal
    outcome: Ordinal
    """The number of the decision in its scope, from 1: ScopeChanged's `applied` counts these."""
    scope: Scope
    text: str
    hash: str = Field(pattern=r"^[0-9a-f]{64}$")
    """SHA-256 of the normalised text; equal for texts that say the same word by word."""
    embedding: Embedding | None = None
    """Null in a retired version."""
    decision: Decision
    reason: str | None = None
    statement: Statement | None = None
    """What was stated and led to this version; null for commands that state nothing."""
    command: CommandRef | None = None
    """The command that led to this version; null when a formation did."""
    call: Call | None = None
    """The decision's call; null when none was needed."""
    considered: tuple[Considered, ...] = ()
    sources: tuple[SourceMessage, ...] = ()
    """Every message that the fact rests on, over all versions."""
    replaces: KeyText | None = None
    """The fact that this one contradicted and replaced."""
    replaced_by: KeyText | None = None
    """The fact that replaced this one."""
    formed_at: Moment
    """Time of the window or command that first stated it; forgetting goes by it."""
    said_at: Moment
    """When what began the fact was said."""
    valid_from: Moment
    """Since when this version holds: the newest time at which something that its text rests on was said."""
    occurred_at: Moment | None = None
    """When what it tells of happened or begins, where its text says so."""
    expires_at: Moment | None = None
    private: bool = False
    """Nothing that rests on a message of it is propagated to a broader scope."""
    retired_at: Moment | None = None
    """Null: not retired."""
    retired_because: Literal["contradicted", "asked", "expired", "limit", "duplicate"] | None = None

    @model_validator(mode="after")
    def _retired_for_a_reason(self) -> Self:
        if (self.retired_at is None) != (self.retired_because is None):
            raise ValueError("a retired fact has a time and a reason, an active one neither")
        return self

    def key(self) -> str:
        """`<fact>@<version>`."""
        return f"{self.fact_id}@{self.version}"

    def ordering_key(self) -> str:
        """The scope."""
        return self.scope.key

    def subject(self) -> str:
        """The fact."""
        return self.fact_id
