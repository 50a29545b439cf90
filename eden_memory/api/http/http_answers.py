"""Response bodies of the HTTP API: a contract of its own, apart from the values of `MemoryService`."""

from collections.abc import Iterable
from datetime import datetime
from decimal import Decimal
from typing import Any, Generic, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, field_validator

from eden_memory.memory.results import ExplainedOutcome
from eden_memory.models.catalogue import shown_model
from eden_memory.schemas.scopes import ScopeKind, Sharing

T = TypeVar("T")


class _Answer(BaseModel):
    model_config = ConfigDict(from_attributes=True, use_attribute_docstrings=True)


class ScopeAnswer(_Answer):
    """Whom a memory is for; ids typed."""

    kind: ScopeKind
    key: str
    agent_id: str
    group_id: str | None = None
    user_id: str | None = None
    session_id: str | None = None
    shard: str | None = None


class SourceAnswer(_Answer):
    """A message that a memory rests on."""

    message_id: str
    session_id: str
    user_id: str | None = None
    time: datetime


class FactAnswer(_Answer):
    """A fact in its newest version."""

    fact_id: str
    scope: ScopeAnswer
    content: str
    active: bool
    version: int
    decision: str
    reason: str | None
    formed_at: datetime
    """When it was formed: of history read in, long after it was said."""
    said_at: datetime
    """When what began it was said."""
    occurred_at: datetime | None
    """When what it tells of happened or begins, where its text says so."""
    valid_from: datetime
    """Since when this version holds."""
    expires_at: datetime | None
    private: bool
    """Whether nothing that rests on its messages may be propagated to a broader scope."""
    retired_at: datetime | None
    retired_because: str | None
    replaces: str | None
    replaced_by: str | None
    sources: list[SourceAnswer]
    """As far as they are of the session or user who asks."""


class VersionAnswer(_Answer):
    """One version of a fact."""

    version: int
    content: str
    decision: str
    reason: str | None
    valid_from: datetime
    action: str | None
    """The command that led to it, if one did."""
    by: str | None
    asked_by: str | None
    model: str | None
    prompt: str | None
    cost_usd: Decimal | None
    """This version's share of its call."""
    undone: bool
    """A later version holds since before it: this one never held."""


class HistoryAnswer(_Answer):
    """A fact and all its versions that are kept."""

    fact: FactAnswer
    versions: list[VersionAnswer]
    """Newest first."""
    found: int
    """How often searches found it."""
    last_found_at: datetime | None
    cost_usd: Decimal | None
    """Of the versions whose cost is known; null where models were asked and no price is known."""


class CommandAnswer(_Answer):
    """A person's or program's command behind a version."""

    action: str
    by: str
    asked_by: str | None
    reason: str | None
    asked_at: datetime


class ReflectionVersionAnswer(_Answer):
    """An earlier version of a reflection."""

    version: int
    content: str
    private: bool
    said_at: datetime
    command: CommandAnswer | None


class ReflectionAnswer(_Answer):
    """A reflection."""

    reflection_id: str
    scope: ScopeAnswer
    content: str
    formed_at: datetime
    """The end of the window that it was formed from: lists are in its order."""
    said_at: datetime
    """When it was said: the newest of its messages, which decides what is newer."""
    absorbed: bool
    absorbed_at: datetime | None
    absorbed_into: int | None
    """The version of the blob."""
    propagated_from: str | None
    private: bool
    """Never propagated to a broader scope."""
    sources: list[SourceAnswer]
    version: int
    retired_at: datetime | None
    command: CommandAnswer | None
    """The command that led to this version, if one did."""
    earlier: list[ReflectionVersionAnswer]
    """Newest first."""


class BlobVersionAnswer(_Answer):
    """An earlier version of a blob."""

    version: int
    content: str
    consolidated_at: datetime
    pins: list[str]
    command: CommandAnswer | None


class BlobAnswer(_Answer):
    """The consolidated text of a scope."""

    scope: ScopeAnswer
    content: str
    version: int
    words: int
    word_limit: int
    consolidated_at: datetime
    said_at: datetime
    """When the newest of what it holds was said."""
    earlier: list[BlobVersionAnswer]
    """Newest first."""
    pins: list[str]
    """Sentences that every later version keeps."""
    command: CommandAnswer | None
    """The command that led to this version, if one did."""


class PageAnswer(_Answer, Generic[T]):
    """Part of a list."""

    items: list[T]
    cursor: str | None
    """Gives the next page, with the same filters; null behind the last one."""


class FoundAnswer(_Answer):
    """A fact that a search found, or a reflection, whose id is then `fact_id`."""

    fact_id: str
    kind: Literal["fact", "reflection"]
    content: str
    scope: ScopeAnswer
    score: float
    formed_at: datetime
    """When it was formed: of history read in, long after it was said."""
    said_at: datetime
    """When what began it was said."""
    occurred_at: datetime | None
    """When what it tells of happened or begins, where its text says so."""
    version: int
    valid_from: datetime
    """Since when this version holds."""
    retired_at: datetime | None
    scores: dict[str, float]
    """What each stage gave it."""


class UnformedAnswer(_Answer):
    """A message of the user's other sessions that no memory is formed from yet."""

    message_id: str
    session_id: str
    speaker: Literal["user", "agent"]
    content: str
    said_at: datetime
    score: float
    """The share of the query's words that it has; not comparable with a fact's."""


class StageAnswer(_Answer):
    """One stage of a search."""

    name: str
    milliseconds: float
    candidates: int
    scores: Any = None


class SearchAnswer(_Answer):
    """The result of a search, best first."""

    facts: list[FoundAnswer]
    unformed: list[UnformedAnswer] = []
    """Messages of the user's other sessions that are not formed yet, found by their words."""
    text_only: Literal["over_budget", "unavailable"] | None = None
    """Why facts were found by words alone: no room in a budget, or the embedder is away; null: as asked for."""
    stages: list[StageAnswer] | None = None
    """Asked for by `debug`."""


class ExplainedStepAnswer(_Answer):
    """One step from a message to memory."""

    what: Literal["message", "window", "call", "answer", "decision", "memory"]
    id: str | None
    at: datetime | None
    told: str


class ExplainedAnswer(_Answer):
    """Why a memory is as it is, or what became of a message."""

    what: Literal["fact", "reflection", "message"]
    id: str
    content: str | None
    """Null for a message that is forgotten or switched off."""
    outcome: ExplainedOutcome
    because: str
    steps: list[ExplainedStepAnswer]


class AskedAnswer(_Answer):
    """Asked for: it is carried out in its place among the chat's messages, by a system that runs."""

    request_id: str


class AddedAnswer(_Answer):
    """Texts that are on their way into memory."""

    request_ids: list[str]
    """One a text."""
    session: str
    """That they are formed in, or (verbatim texts) belong to."""


class StartedAnswer(_Answer):
    """A session's context before its first turn."""

    context: str
    """XML; empty where nothing is remembered."""


class StatsAnswer(_Answer):
    """One scope's memory in numbers."""

    scope_key: str
    words: int
    blob_version: int
    reflections: int
    buffered: int
    facts: int
    consolidated_at: datetime | None
    changed_at: datetime


class ConsolidationAnswer(_Answer):
    """How near a scope is to its next consolidation."""

    scope_key: str
    buffered: int
    threshold: int
    due: bool
    consolidated_at: datetime | None


class StreamAnswer(_Answer):
    """How a scope or shard of an agent is formed; null: by the settings."""

    agent_id: str
    scope: ScopeKind
    shard: str | None
    active: bool
    """false: nothing of it is formed, consolidated or shown; what is stored stays."""
    sharing: Sharing | None
    """`team`: it also learns from sessions with users, and all of the agent's users see that."""
    propagation: bool | None
    extraction_guidance: str | None
    consolidation_guidance: str | None
    threshold: int | None
    word_limit: int | None
    item_word_limit: int | None
    min_items: int | None
    max_items: int | None
    extraction_model: str | None
    """Of an endpoint only its host and the model are shown."""
    consolidation_model: str | None
    """Of an endpoint only its host and the model are shown."""
    fifo_limit: int | None
    max_entries: int | None
    retention_days: int | None

    @field_validator("extraction_model", "consolidation_model")
    @classmethod
    def _shown(cls, named: str | None) -> str | None:
        return None if named is None else shown_model(named)


class ChangeAnswer(_Answer):
    """A visible scope's memory is not what it was; the data of an event."""

    what: Literal["changed", "gone"]
    scope: ScopeAnswer
    revision: int
    changed_at: datetime | None
    facts: int
    buffered: int
    blob_version: int


def page_of(kind: type[T], page: Any) -> PageAnswer[T]:
    """Return a page of values as answers."""
    return PageAnswer[kind].model_validate({"items": _all(page.items), "cursor": page.cursor})


def _all(items: Iterable[Any]) -> list[Any]:
    return list(items)
