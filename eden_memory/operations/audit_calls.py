"""Audit a store, for operators: the share of facts that memory would be better without, and their retirement."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args

from bson import ObjectId
from pydantic import Field

from eden_memory.errors import Conflict, Invalid
from eden_memory.memory.memory_views import JunkKind, View
from eden_memory.mongo.ids import typed_or_none
from eden_memory.operations import parameters as p
from eden_memory.operations.operator_calls import LongRead, OperatorCalls
from eden_memory.schemas.documents import InboxFactCommand
from eden_memory.schemas.scopes import Scope
from eden_memory.source.inbox_store import ask_all

if TYPE_CHECKING:
    from eden_memory.formation.audit_rules import Junk
    from eden_memory.observability.audit_store import FoundJunk

KINDS: tuple[JunkKind, ...] = get_args(JunkKind)
BY_MESSAGES = ("quote", "unsupported")
EXAMPLES = 5
TOGETHER = 500
AUDITING = LongRead("audit", "eden audit --user", seconds=600)
AllAgents = Annotated[bool, Field(description="of all agents, not of this one alone")]
Retirable = Literal["duplicate", "near_duplicate", "expired", "quote", "unsupported", "nobody"]
"""Kinds that can be retired at once; what contradicts a newer fact may be true beside it."""
RetireKind = Annotated[
    Retirable | None,
    Field(description="request that all facts of this kind that an audit has shown are retired"),
]
AuditPreview = Annotated[
    str | None, Field(description="the kind's `preview` of that audit: nothing else is retired")
]


@dataclass(frozen=True, slots=True)
class JunkExample(View):
    """A fact that an audit found."""

    fact_id: str
    scope_key: str
    content: str
    because: str | None = None
    """The text of the fact that makes it needless, if one does."""


@dataclass(frozen=True, slots=True)
class JunkShare(View):
    """The facts of one kind."""

    kind: JunkKind
    count: int
    share: float
    """Of the facts that could be checked for it."""
    preview: str | None
    """Names exactly these facts, to retire them; None for none, and for a kind that is not retired in bulk."""
    examples: tuple[JunkExample, ...] = ()


@dataclass(frozen=True, slots=True)
class Audited(View):
    """An audit; a fact counts under the first kind that it is found to be."""

    facts: int
    """Active facts that were read."""
    with_messages: int
    """Those of which the messages are still stored: `quote` and `unsupported` are judged of these alone."""
    whole: bool
    """False: a bound was reached, and there are more facts than were read or compared."""
    kinds: tuple[JunkShare, ...]
    retired: int = 0
    """Retirements that were requested."""
    undo: str | None = None
    """Undo them by this name: `eden forget --caused-by import NAME`."""


class AuditCalls(OperatorCalls):
    """Refused where the caller may not change what others see."""

    async def audit(
        self,
        *,
        user: p.User = None,
        all_agents: AllAgents = False,
        retire: RetireKind = None,
        preview: AuditPreview = None,
    ) -> Audited:
        """Return the share of facts that are junk, by kind, with five examples each: of the agent, one user, or all.

        `retire` requests that all facts of a kind are retired, each only at the version that was read; the fact that
        stays takes over the sources of its duplicate. It takes the kind's `preview` of an audit before: Conflict if
        other facts are found now, or not all were read. Conflict while the process runs another audit, and for one
        that takes more than ten minutes.
        """
        from eden_memory.observability.audit_store import MemoryAudit  # noqa: PLC0415 - the extra `search`

        settings, owner = await self._changing_shared(), typed_or_none(user, "user")
        if retire is not None and preview is None:
            raise Invalid("retire needs the preview of an audit", "Audit first, and read the examples.")
        wanted: dict[str, Any] = {} if all_agents else {"agent_id": self._agent_id}
        if owner is not None:
            wanted["user_id"] = owner
        reader = MemoryAudit(self.memory.database, self.memory.source, settings)
        async with AUDITING.turn():
            found = await reader.of(wanted)
        junk = [] if retire is None else found.of(retire)
        if retire is not None and not found.whole:
            raise Conflict("there are more facts than an audit reads", "Name one agent, or one user.")
        if retire is not None and preview != _preview(retire, junk):
            raise Conflict("other facts would be retired than were shown", "Audit again.")
        name = f"audit:{ObjectId()}"
        inbox = self.memory.source[settings.names[InboxFactCommand.COLLECTION]]
        for start in range(0, len(junk), TOGETHER):
            some = junk[start : start + TOGETHER]
            await ask_all(inbox, [_retirement(one, name, self._asked_by[:256]) for one in some])
        examples: dict[JunkKind, list[Junk]] = {kind: found.of(kind)[:EXAMPLES] for kind in KINDS}
        shown = await reader.shown(
            fact for some in examples.values() for one in some for fact in (one.fact, one.because) if fact
        )
        return _audited(found, examples, shown, len(junk), name if junk else None)


def _preview(kind: JunkKind, junk: "Sequence[Junk]") -> str | None:
    """Return a name for exactly these facts, in these versions, and those that make them needless."""
    if not junk or kind not in get_args(Retirable):
        return None
    facts = sorted(
        " ".join(f"{fact.fact_id}@{fact.version}" for fact in (one.fact, one.because) if fact) for one in junk
    )
    return sha256("\n".join([kind, *facts]).encode()).hexdigest()[:32]


def _retirement(junk: "Junk", name: str, asked_by: str) -> dict[str, Any]:
    """Return the request to retire a fact; its id begins with a name by which all of them are undone."""
    fact = junk.fact
    same = junk.because if junk.kind in ("duplicate", "near_duplicate") else None
    return InboxFactCommand(
        _id=f"import:{name}:{fact.fact_id}",
        kind="fact_command",
        scope=Scope.of_key(fact.scope_key, fact.agent_id),
        action="retire",
        fact_id=fact.fact_id,
        expected_version=fact.version,
        by="audit",
        asked_by=asked_by,
        reason=f"audit: {junk.kind.replace('_', ' ')}",
        replaced_by=same and same.fact_id,
    ).model_dump(exclude_none=True)


def _audited(
    found: "FoundJunk",
    examples: "Mapping[JunkKind, Sequence[Junk]]",
    shown: Collection[str],
    retired: int,
    undo: str | None,
) -> Audited:
    """Return what was found; of the examples those that may be `shown`: some may have been forgotten meanwhile."""
    kinds: list[JunkShare] = []
    for kind in KINDS:
        junk = found.of(kind)
        checked = found.with_messages if kind in BY_MESSAGES else found.facts
        texts = tuple(
            JunkExample(one.fact.fact_id, one.fact.scope_key, one.fact.text, one.because and one.because.text)
            for one in examples[kind]
            if one.fact.fact_id in shown and (one.because is None or one.because.fact_id in shown)
        )
        share = len(junk) / max(checked, 1)
        kinds.append(JunkShare(kind, len(junk), share, _preview(kind, junk), texts))
    return Audited(found.facts, found.with_messages, found.whole, tuple(kinds), retired, undo)
