"""Views of memory: what operations return, one class for each thing, with the sources of the caller alone."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from decimal import Decimal
from typing import Annotated, Generic, Literal, TypeVar

from pydantic import ConfigDict, PlainSerializer, computed_field

from eden_memory.access.visible import Asker
from eden_memory.limits import words_of
from eden_memory.schemas.documents import Consolidated, Fact, FactVersion, Reflection
from eden_memory.schemas.events import MemoryCommandRef
from eden_memory.schemas.events.chat import Role
from eden_memory.schemas.events.facts import Action, By, Decision
from eden_memory.schemas.events.reflections import MemoryAction
from eden_memory.schemas.provenance import Call, SourceMessage
from eden_memory.schemas.scopes import Scope, ScopeKind

T = TypeVar("T")


class View:
    """The base of views: pydantic writes them as JSON, with their texts as descriptions."""

    __slots__ = ()
    __pydantic_config__ = ConfigDict(
        use_attribute_docstrings=True, json_schema_serialization_defaults_required=True
    )


@dataclass(frozen=True, slots=True)
class ScopeView(View):
    """Whom a memory is for; ids typed. Who may see a session's memory is not said."""

    kind: ScopeKind
    key: str
    agent_id: str
    group_id: str | None
    user_id: str | None
    session_id: str | None
    shard: str | None


@dataclass(frozen=True, slots=True)
class SourceView(View):
    """A message that a memory rests on; ids typed."""

    message_id: str
    session_id: str
    user_id: str | None
    time: datetime


def _scope(scope: Scope) -> ScopeView:
    ids = scope.group_id, scope.user_id, scope.session_id, scope.shard
    return ScopeView(scope.kind, scope.key, scope.agent_id, *ids)


def _source(source: SourceMessage) -> SourceView:
    return SourceView(source.message_id, source.session_id, source.user_id, source.time)


ShownScope = Annotated[Scope, PlainSerializer(_scope, return_type=ScopeView)]
ShownSource = Annotated[SourceMessage, PlainSerializer(_source, return_type=SourceView)]


@dataclass(frozen=True, slots=True)
class Page(View, Generic[T]):
    """Part of a list."""

    items: tuple[T, ...]
    cursor: str | None = None
    """Gives the next page, with the same filters; None behind the last one."""


JunkKind = Literal["duplicate", "near_duplicate", "contradicted", "expired", "quote", "unsupported", "nobody"]
"""duplicate: the same words as an older fact; near_duplicate: another one has all of its words, and means the same.
contradicted: a newer fact says it with other numbers, or the other way round. expired: its time is over. quote: only
our own context says it, or the agent alone repeats an older fact. unsupported: its messages have none of its words.
nobody: it does not say whom it is about."""
Speaker = Literal["user", "agent"]


@dataclass(frozen=True, slots=True)
class RecentMessage(View):
    """A message of the user's other sessions, or an answer there, of which no memory is formed yet; ids typed."""

    message_id: str
    session_id: str
    speaker: Speaker
    content: str
    said_at: datetime


ExplainedOutcome = Literal[
    "remembered",
    "retired",
    "not_recorded",
    "waiting",
    "waits_for_document",
    "over_budget",
    "being_formed",
    "dead",
    "kept_nowhere",
    "nothing_proposed",
    "rejected",
    "not_visible",
    "switched_off",
    "forgotten",
]


@dataclass(frozen=True, slots=True)
class ExplainedStep(View):
    """One step from a message to memory; ids typed where they are the application's."""

    what: Literal["message", "window", "call", "answer", "check", "decision", "memory"]
    id: str | None
    at: datetime | None
    told: str


@dataclass(frozen=True, slots=True)
class Explained(View):
    """Why a memory is as it is, or what became of a message."""

    what: Literal["fact", "reflection", "message"]
    id: str
    content: str | None
    """None for a message that is forgotten or switched off."""
    outcome: ExplainedOutcome
    because: str
    steps: tuple[ExplainedStep, ...]
    """In order: message, window, calls, answer, decisions, memories."""


@dataclass(frozen=True, slots=True)
class Added(View):
    """Receipt for added texts, which are formed in the background."""

    request_ids: tuple[str, ...]
    """Typed ids of the inbox's documents, one a text: each becomes a message of that id, or a verbatim memory."""
    session: str
    """Typed id of the session that they are formed in, or (verbatim texts) that they belong to."""


@dataclass(frozen=True, slots=True)
class WindowAsked(View):
    """Receipt for a request to form what waits in a session."""

    request_id: str
    """The typed id of the inbox's document; for a receipt."""
    formed: bool
    """Whether the request asks for a window: at this moment enough waits for one, or one is asked for whatever waits.
    It is formed in the background."""


@dataclass(frozen=True, slots=True)
class SharedView(View):
    """A fact or reflection of an agent, shard or group that rests on what users said; ids typed."""

    kind: Literal["fact", "reflection"]
    memory_id: str
    scope: ShownScope
    content: str
    said_at: datetime
    sessions: tuple[str, ...]
    users: tuple[str, ...]
    """Whose messages it rests on."""


@dataclass(frozen=True, slots=True)
class FactView(View):
    """A fact in its newest version."""

    fact_id: str
    scope: ShownScope
    content: str
    active: bool
    version: int
    decision: Decision
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
    sources: tuple[ShownSource, ...]
    """Messages that it rests on, as far as they are of the session or user who asks."""


@dataclass(frozen=True, slots=True)
class FactOrigin(View):
    """The newest message that a fact rests on."""

    role: Role | None
    """Of its author; None if the message is no longer stored."""
    said_at: datetime


@dataclass(frozen=True, slots=True)
class VersionView(View):
    """One version of a fact."""

    version: int
    content: str
    decision: Decision
    reason: str | None
    valid_from: datetime
    action: Action | None
    """The command that led to it, if one did."""
    by: By | None
    asked_by: str | None
    model: str | None
    """Of the call that decided; None where none was needed."""
    prompt: str | None
    cost_usd: Decimal | None
    """This version's share of its call; None where there was no call, or its price is unknown."""
    undone: bool = False
    """A later version holds since before it: this one never held (what had contradicted the fact was forgotten)."""


@dataclass(frozen=True, slots=True)
class FactHistory(View):
    """A fact and all its versions that are kept (the last 20 before this one)."""

    fact: FactView
    versions: tuple[VersionView, ...]
    """As they were decided, newest first: the first is the fact as it is. Those not undone stand in the order of
    `valid_from` too."""
    found: int = 0
    """How often searches found it."""
    last_found_at: datetime | None = None

    @computed_field
    @property
    def cost_usd(self) -> Decimal | None:
        """The cost of the versions where it is known; None if models were asked and no price is known."""
        known = [version.cost_usd for version in self.versions if version.cost_usd is not None]
        asked = any(version.model is not None for version in self.versions)
        return sum(known, Decimal(0)) if known or not asked else None


@dataclass(frozen=True, slots=True)
class CommandView(View):
    """A person's or program's command behind a version."""

    action: MemoryAction
    by: By
    asked_by: str | None
    reason: str | None
    asked_at: datetime


@dataclass(frozen=True, slots=True)
class ReflectionVersionView(View):
    """An earlier version of a reflection."""

    version: int
    content: str
    private: bool
    said_at: datetime
    command: CommandView | None


@dataclass(frozen=True, slots=True)
class ReflectionView(View):
    """A reflection."""

    reflection_id: str
    scope: ShownScope
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
    sources: tuple[ShownSource, ...]
    """As of :class:`FactView`."""
    version: int = 1
    retired_at: datetime | None = None
    command: CommandView | None = None
    """The command that led to this version; None where a formation did."""
    earlier: tuple[ReflectionVersionView, ...] = ()
    """Newest first, the last 20."""


@dataclass(frozen=True, slots=True)
class BlobVersionView(View):
    """An earlier version of a blob."""

    version: int
    content: str
    consolidated_at: datetime
    pins: tuple[str, ...] = ()
    command: CommandView | None = None


@dataclass(frozen=True, slots=True)
class BlobView(View):
    """The consolidated text of a scope."""

    scope: ShownScope
    content: str
    version: int
    words: int
    word_limit: int
    consolidated_at: datetime
    said_at: datetime
    """When the newest of what it holds was said."""
    earlier: tuple[BlobVersionView, ...]
    """Newest first, the last 20."""
    pins: tuple[str, ...] = ()
    """Sentences that every later version keeps."""
    command: CommandView | None = None
    """The command that led to this version; None where a consolidation did."""

    @property
    def versions(self) -> tuple[BlobVersionView, ...]:
        """This version and the earlier ones, newest first."""
        newest = BlobVersionView(self.version, self.content, self.consolidated_at, self.pins, self.command)
        return (newest, *self.earlier)


@dataclass(frozen=True, slots=True)
class MemoryChange(View):
    """A change of a visible scope's memory."""

    id: str
    """Position of this change: `changes(after=…)` continues from there."""
    what: Literal["changed", "gone"]
    """gone: forgotten, or no longer visible here."""
    scope: ShownScope
    revision: int
    """Grows with every commit; 0 for what is gone."""
    changed_at: datetime | None
    facts: int = 0
    """Active ones."""
    buffered: int = 0
    """Reflections that no blob has absorbed."""
    blob_version: int = 0


@dataclass(frozen=True, slots=True)
class ScopeStats(View):
    """One scope's memory in numbers."""

    scope_key: str
    words: int
    """Of the blob."""
    blob_version: int
    reflections: int
    """All that were formed."""
    buffered: int
    """Those that no blob has absorbed."""
    facts: int
    """Active ones."""
    consolidated_at: datetime | None
    changed_at: datetime


@dataclass(frozen=True, slots=True)
class ConsolidationStatus(View):
    """A scope's distance from its next consolidation."""

    scope_key: str
    buffered: int
    threshold: int
    due: bool
    consolidated_at: datetime | None


SMALLEST = Decimal("1e-12")


def fact_view(fact: Fact, scope: Scope, asked: Asker) -> FactView:
    """Return the view of a fact in its newest version."""
    return FactView(
        fact_id=fact.id,
        scope=scope,
        content=fact.content,
        active=fact.active,
        version=fact.version,
        decision=fact.decision,
        reason=fact.reason,
        formed_at=fact.formed_at,
        said_at=fact.said_at,
        occurred_at=fact.occurred_at,
        valid_from=fact.valid_from,
        expires_at=fact.expires_at,
        private=fact.private,
        retired_at=fact.retired_at,
        retired_because=fact.retired_because,
        replaces=fact.replaces,
        replaced_by=fact.replaced_by,
        sources=_own(fact.sources, asked),
    )


def versions_of(fact: Fact) -> tuple[VersionView, ...]:
    """Return all stored versions, newest first; a version that begins after a later one is marked as undone."""
    found, earliest = list[VersionView](), fact.valid_from
    for version in map(_version, (fact, *fact.history)):
        found.append(replace(version, undone=version.valid_from > earliest))
        earliest = min(earliest, version.valid_from)
    return tuple(found)


def reflection_view(reflection: Reflection, scope: Scope, asked: Asker) -> ReflectionView:
    """Return the view of a reflection."""
    return ReflectionView(
        reflection_id=reflection.id,
        scope=scope,
        content=reflection.content,
        formed_at=reflection.formed_at,
        said_at=reflection.said_at,
        absorbed=reflection.absorbed,
        absorbed_at=reflection.absorbed_at,
        absorbed_into=reflection.absorbed_into,
        propagated_from=reflection.propagated_from,
        private=reflection.private,
        sources=_own(reflection.sources, asked),
        version=reflection.version,
        retired_at=reflection.retired_at,
        command=_command(reflection.command),
        earlier=tuple(
            ReflectionVersionView(
                version.version, version.content, version.private, version.said_at, _command(version.command)
            )
            for version in reflection.history
        ),
    )


def blob_view(blob: Consolidated, scope: Scope) -> BlobView:
    """Return the view of a blob with its earlier versions."""
    return BlobView(
        scope=scope,
        content=blob.content,
        version=blob.version,
        words=words_of(blob.content),
        word_limit=blob.word_limit,
        consolidated_at=blob.last_consolidated_at,
        said_at=blob.said_at,
        earlier=tuple(
            BlobVersionView(
                version.version,
                version.content,
                version.consolidated_at,
                version.pins,
                _command(version.command),
            )
            for version in blob.history
        ),
        pins=blob.pins,
        command=_command(blob.command),
    )


def _command(command: MemoryCommandRef | None) -> CommandView | None:
    if command is None:
        return None
    return CommandView(command.action, command.by, command.asked_by, command.reason, command.asked_at)


def _version(version: Fact | FactVersion) -> VersionView:
    command, call = version.command, version.call
    return VersionView(
        version=version.version,
        content=version.content,
        decision=version.decision,
        reason=version.reason,
        valid_from=version.valid_from,
        action=command.action if command else None,
        by=command.by if command else None,
        asked_by=command.asked_by if command else None,
        model=call.model if call else None,
        prompt=call.prompt if call else None,
        cost_usd=_share(call),
    )


def _share(call: Call | None) -> Decimal | None:
    if call is None or call.cost_usd is None:
        return None
    share = (call.cost_usd / call.items).quantize(SMALLEST).normalize()
    return Decimal(format(share, "f"))


def _own(sources: Sequence[SourceMessage], asked: Asker) -> tuple[SourceMessage, ...]:
    """Return all sources if the application itself asks; else those of the session or the user."""
    if asked.session_id is None and asked.user_id is None:
        return tuple(sources)
    return tuple(
        source
        for source in sources
        if (asked.session_id is not None and source.session_id == asked.session_id)
        or (asked.user_id is not None and source.user_id == asked.user_id)
    )
