"""Memory itself: facts, reflections, blobs, streams, snapshots, ready contexts, access counts."""

from collections.abc import Mapping
from string import Formatter
from typing import Annotated, ClassVar, Literal

from pydantic import Field, ValidationInfo, field_validator, model_validator

from eden_memory.schemas.documents.base import Document
from eden_memory.schemas.events.facts import CommandRef, Decision
from eden_memory.schemas.events.reflections import MemoryCommandRef, Origin
from eden_memory.schemas.fields import Bytes, Count, KeyText, Moment, Ordinal, Part, Vector
from eden_memory.schemas.ids import EntityId
from eden_memory.schemas.provenance import Call, SourceMessage
from eden_memory.schemas.scopes import Audience, ScopeKey, ScopeKind, Sharing

HISTORY = 20
"""Versions that a fact or blob keeps."""
BUFFER = 2_000
RECENT_FACTS = 40
LASTING_FACTS = 40


class _Scoped(Document):
    """The scope, spread out so that indexes and search filters reach it."""

    id: str = Field(alias="_id")
    scope: ScopeKind
    scope_key: ScopeKey
    agent_id: EntityId
    group_id: EntityId | None = None
    user_id: EntityId | None = None


class FactVersion(Part):
    """An earlier version of a fact."""

    version: Ordinal
    content: str
    decision: Decision
    reason: str | None = None
    valid_from: Moment
    command: CommandRef | None = None
    call: Call | None = None


class FactStatement(Part):
    """A statement that a fact was merged from."""

    version: Ordinal
    """The version that it led to."""
    text: str
    sources: tuple[SourceMessage, ...] = ()
    said_at: Moment | None = None
    """When it was said, where no source tells (`eden add`)."""


class Fact(_Scoped):
    """A fact in its newest version."""

    COLLECTION: ClassVar[str] = "facts"

    id: KeyText = Field(alias="_id")
    content: str
    hash: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
    """SHA-256 of the normalised text; unique among the active facts of a scope."""
    embedding: Vector | None = None
    embedding_model: str | None = None
    active: bool
    """False once retired; a filter of the vector index."""
    version: Ordinal
    previous_content: str | None = None
    history: Annotated[tuple[FactVersion, ...], Field(max_length=HISTORY)] = ()
    """The last 20 versions before this one, newest first."""
    decision: Decision
    reason: str | None = None
    command: CommandRef | None = None
    call: Call | None = None
    session_ids: tuple[EntityId, ...] = ()
    message_ids: tuple[EntityId, ...] = ()
    sources: tuple[SourceMessage, ...] = ()
    formed_at: Moment
    statements: tuple[FactStatement, ...] = ()
    """What it was merged from, in order; empty at version 1, whose text and sources are its only statement."""
    said_at: Moment
    """When what began the fact was said."""
    occurred_at: Moment | None = None
    """When what it tells of happened or begins, where its text says so."""
    valid_from: Moment
    expires_at: Moment | None = None
    private: bool = False
    """Nothing that rests on a message of it is propagated."""
    retired_at: Moment | None = None
    retired_because: str | None = None
    replaces: KeyText | None = None
    replaced_by: KeyText | None = None
    revision: Count = 0
    """Of the scope's snapshot when this document was last written: what is newer is read by it."""


class ReflectionVersion(Part):
    """An earlier version of a reflection."""

    version: Ordinal
    content: str
    private: bool = False
    said_at: Moment
    command: MemoryCommandRef | None = None


class Reflection(_Scoped):
    """A reflection in its newest version; `absorbed` and its kind are derived from the blobs of its scope."""

    COLLECTION: ClassVar[str] = "reflections"

    id: KeyText = Field(alias="_id")
    content: str
    version: Ordinal = 1
    history: Annotated[tuple[ReflectionVersion, ...], Field(max_length=HISTORY)] = ()
    """The last 20 versions before this one, newest first."""
    command: MemoryCommandRef | None = None
    session_ids: tuple[EntityId, ...] = ()
    message_ids: tuple[EntityId, ...] = ()
    sources: tuple[SourceMessage, ...] = ()
    formation_id: KeyText | None = None
    position: Ordinal
    formed_at: Moment
    said_at: Moment
    """When it was said: the newest of its sources."""
    absorbed: bool = False
    absorbed_at: Moment | None = None
    absorbed_into: Ordinal | None = None
    """The version of the blob."""
    origin: Origin = "formed"
    propagated_from: KeyText | None = None
    propagated_scope: ScopeKey | None = None
    """The scope of `propagated_from`."""
    private: bool = False
    retired_at: Moment | None = None


class BlobVersion(Part):
    """An earlier version of a blob."""

    version: Ordinal
    content: str
    absorbed: tuple[KeyText, ...]
    consolidated_at: Moment
    said_at: Moment
    pins: tuple[str, ...] = ()
    command: MemoryCommandRef | None = None


class Consolidated(_Scoped):
    """A scope's blob in its newest version."""

    COLLECTION: ClassVar[str] = "consolidated"

    id: ScopeKey = Field(alias="_id")
    content: str
    version: Ordinal
    word_limit: Ordinal
    absorbed: tuple[KeyText, ...]
    """Reflections that this version took in."""
    pins: tuple[str, ...] = ()
    """Sentences of the text that every later version keeps."""
    command: MemoryCommandRef | None = None
    """The command that led to this version, if one did."""
    history: Annotated[tuple[BlobVersion, ...], Field(max_length=HISTORY)] = ()
    last_consolidated_at: Moment
    said_at: Moment
    """The newest `said_at` of the reflections that the text holds."""


class StoredBlob(Document):
    """One version of a scope's blob, kept for ever: what is absorbed, and what is shown, follows from these."""

    COLLECTION: ClassVar[str] = "blobs"

    id: str = Field(alias="_id")
    """`<scope key>@<version>`."""
    scope_key: ScopeKey
    version: Ordinal
    gone: bool = False
    """Forgotten: only its number is left, so that it is never given again."""
    content: str = ""
    absorbed: tuple[KeyText, ...] = ()
    word_limit: Ordinal = 1
    consolidated_at: Moment | None = None
    said_at: Moment | None = None
    """The newest `said_at` of the reflections that the text holds."""
    pins: tuple[str, ...] = ()
    command: MemoryCommandRef | None = None


PLACEHOLDERS: Mapping[str, tuple[str, ...]] = {
    "extraction_prompt": ("words", "kind", "scope", "least", "most", "language"),
    "consolidation_prompt": ("words", "scope", "language"),
}
"""What a stream's prompt may name, by its field; the first it must."""


def problem_of(prompt: str, field: str) -> str | None:
    """Return what is wrong with the placeholders of a stream's prompt; None: nothing."""
    allowed = PLACEHOLDERS[field]
    try:
        parts = list(Formatter().parse(prompt))
    except ValueError:
        return "a brace stands alone; write {{ or }} for one that is text"
    named = [part for part in parts if part[1] is not None]
    unknown = next((name for _, name, _, _ in named if name not in allowed), None)
    if unknown is not None:
        known = ", ".join(f"{{{name}}}" for name in allowed)
        return f"{{{unknown:.40}}} is no placeholder: {known} are; write {{{{ for a brace that is text"
    if any(form or conversion for _, _, form, conversion in named):
        return "a placeholder is a name alone, without a format"
    return None if any(name == allowed[0] for _, name, _, _ in named) else f"it lacks {{{allowed[0]}}}"


OwnPrompt = Annotated[str, Field(min_length=1)]
ExtractionFields = Literal["both", "facts", "reflections"]


class Stream(Document):
    """How one scope of an agent, or one shard, is formed. A shard is nothing but such a document."""

    COLLECTION: ClassVar[str] = "streams"

    id: KeyText = Field(alias="_id")
    """`<agent id>/<scope>` or `<agent id>/shard/<name>`."""
    agent_id: EntityId
    scope: ScopeKind
    shard: str | None = None
    active: bool = True
    sharing: Sharing | None = None
    """Of the agent's scope: for the whole agent, in place of the installation's; of a shard: `team` collects from
    sessions with users too. Null: as the installation (a shard: as its agent)."""
    propagation: bool | None = None
    """Of the agent's scope: whether reflections of its users and groups are propagated. Null: as the installation."""
    propagation_from: Ordinal | None = None
    """Of the agent's scope: how many users of a group, or groups of the agent, must show the same before it is
    propagated; null: one."""
    search_tool: bool | None = None
    """Of the agent's scope: whether the agent's model is offered the tool that searches memory. Null: it is."""
    extraction_guidance: str | None = None
    consolidation_guidance: str | None = None
    extraction_prompt: OwnPrompt | None = None
    """In place of our instructions on what to extract, for facts and reflections: the scope is asked for in a call of
    its own. It names `{words}`, and may name `{kind}` (facts or reflections), `{scope}`, `{least}`, `{most}` and
    `{language}`."""
    consolidation_prompt: OwnPrompt | None = None
    """In place of our instructions on how to write the blob. It names `{words}`, and may name `{scope}` and
    `{language}`."""
    extraction_fields: ExtractionFields | None = None
    """What is formed of the scope; null: both."""
    threshold: Ordinal | None = None
    """Reflections in the buffer at which the scope consolidates; null: the default of its kind."""
    version_line: bool | None = None
    """Whether the first line of the blob says its version: `[VERSION 3]`. Null: it does not."""
    word_limit: Ordinal | None = None
    item_word_limit: Ordinal | None = None
    """Of a fact or reflection."""
    fact_word_limit: Ordinal | None = None
    """Of a fact, in place of `item_word_limit`."""
    min_items: Count | None = None
    """Reflections of a window."""
    max_items: Count | None = None
    min_facts: Count | None = None
    """Facts of a window."""
    max_facts: Count | None = None
    extraction_model: str | None = None
    """For facts and reflections."""
    fact_model: str | None = None
    """For facts, in place of `extraction_model`."""
    consolidation_model: str | None = None
    fifo_limit: Ordinal | None = None
    """Active facts beyond it are retired, those said first before the others."""
    max_entries: Ordinal | None = None
    """The same for the facts that rest on one conversation alone."""
    retention_days: Ordinal | None = None
    """Facts expire so long after the newest message that states them; null: never."""

    @model_validator(mode="after")
    def _a_shard_has_a_name(self) -> "Stream":
        if (self.scope == "shard") != (self.shard is not None):
            raise ValueError("a shard has a name, and nothing else has")
        return self

    @field_validator("extraction_prompt", "consolidation_prompt")
    @classmethod
    def _names_what_it_may(cls, prompt: str | None, validation: ValidationInfo) -> str | None:
        if prompt is not None and (problem := problem_of(prompt, validation.field_name or "")) is not None:
            raise ValueError(problem)
        return prompt


class BufferedReflection(Part):
    """A reflection that no blob has absorbed."""

    reflection_id: KeyText
    content: str
    formed_at: Moment
    said_at: Moment
    """When it was said: by it buffers are ordered."""
    private: bool = False
    version: Ordinal = 1
    position: Ordinal = 1
    """Its place among the reflections of its formation and scope."""


class RecentFact(Part):
    """One of the newest active facts of a scope."""

    fact_id: KeyText
    version: Ordinal
    content: str
    formed_at: Moment
    valid_from: Moment
    """Since when it is true: what its age is counted from."""
    expires_at: Moment | None = None


class Snapshot(_Scoped):
    """All that a context needs of one scope, in one read."""

    COLLECTION: ClassVar[str] = "snapshots"

    id: ScopeKey = Field(alias="_id")
    session_id: EntityId | None = None
    audience: Audience = ()
    """Session scopes: the users who may see it; of more than 100 their number and hash."""
    revision: Count
    """Grows with every commit that changed something."""
    blob: str | None = None
    blob_version: Count = 0
    pins: tuple[str, ...] = ()
    """Sentences of the blob that every later version keeps."""
    consolidated_at: Moment | None = None
    blob_said_at: Moment | None = None
    """The newest `said_at` of the reflections that the blob holds; null without a blob."""
    buffer: Annotated[tuple[BufferedReflection, ...], Field(max_length=BUFFER)] = ()
    """What no blob has absorbed, by `said_at`, oldest first; of more than 2,000 the oldest."""
    recent_facts: Annotated[tuple[RecentFact, ...], Field(max_length=RECENT_FACTS)] = ()
    """The 40 active facts that were said last, newest first."""
    lasting_facts: Annotated[tuple[RecentFact, ...], Field(max_length=LASTING_FACTS)] = ()
    """User scopes: of the active facts about health, family, names, home and work 40, those about health first."""
    active_facts: Count = 0
    applied: Count = 0
    """The highest decision number that is in, with all before it (`KEY#n`)."""
    highest_blob_version: Count = 0
    """Ever given, forgotten ones included: versions are never used twice."""
    closed: bool = False
    """Its session has ended, and something formed before that is in the buffer."""
    closed_at: Moment | None = None
    """When its session ended last."""
    reset_revision: Count = 0
    """The revision at which documents of the scope were last removed: who keeps copies reads them all anew."""
    changed_at: Moment
    """The newest record that changed something; no wall clock."""


class Context(Document):
    """The ready context of one active session and user: an application reads it by one find."""

    COLLECTION: ClassVar[str] = "contexts"

    id: KeyText = Field(alias="_id")
    """`<session id>/<user id>`."""
    session_id: EntityId
    user_id: EntityId | None = None
    agent_id: EntityId
    xml: str
    scopes: dict[ScopeKey, Count]
    """Scope key → revision of the snapshot that went in."""
    scope_keys: tuple[ScopeKey, ...] = ()
    """The keys of `scopes`, for the index: what a change of a scope concerns."""
    users: tuple[EntityId, ...] = ()
    """Show it only where everybody in the session is one of these; none: to nobody."""
    built_at: Moment
    active_until: Moment
    """The session counts as active, and the context is kept fresh, until then."""
    stale_at: Moment | None = None
    """When it is built anew: the first of its facts expires, or messages that are not formed yet are shown."""
    recent_from: tuple[str, ...] = ()
    """`user:<id>`, `session:<id>` and `message:<id>` of the messages in it that are not formed yet."""


class ScopeVectors(Document):
    """The vectors of a large scope for a first search: they are copied from its facts into blocks now and then."""

    COLLECTION: ClassVar[str] = "vectors"

    id: ScopeKey = Field(alias="_id")
    agent_id: EntityId
    making: str | None = None
    """The blocks that are being written; each block counts in `written` in its own transaction."""
    written: Count = 0
    made: str | None = None
    """The blocks that searches read; null: none, or a fact was forgotten since."""
    blocks: Count = 0
    facts: Count = 0
    dimensions: Count = 0
    model: str | None = None
    """The embedder's model."""
    encoding: str | None = None
    """How the numbers are shortened."""
    revision: Count = 0
    """The scope's revision before they were read: later changes are read from the facts."""
    reset_revision: Count = 0
    """The revision at which facts were last forgotten, which deletes all blocks."""


class VectorBlock(Document):
    """Vectors of some facts of a scope, without their texts."""

    COLLECTION: ClassVar[str] = "vectors"

    id: KeyText = Field(alias="_id")
    """`<scope key>/<made>/<number>`."""
    fact_ids: tuple[KeyText, ...]
    numbers: tuple[Bytes, ...]
    """Of all its vectors: numbers of 8 bits, what these leave over, and what one step is worth."""
    of_users: tuple[KeyText, ...] = ()
    """Facts that rest on what users said: private sharing hides them."""
    expiring: tuple[KeyText, ...] = ()
    expires_at: tuple[Moment, ...] = ()
    """When each of `expiring` expires."""


class Access(Document):
    """How often a fact was found by a search."""

    COLLECTION: ClassVar[str] = "access"

    id: KeyText = Field(alias="_id")
    """The fact."""
    access_count: Count
    last_accessed_at: Moment
