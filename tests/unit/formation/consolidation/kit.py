"""consolidation without servers: snapshots, forgetting, the ledger's answer and a scripted model as plain values."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, cast

from eden_memory.errors import PermanentError, QuestionSpent
from eden_memory.forgotten import Mark, Marks
from eden_memory.formation.consolidation_rules import change_of
from eden_memory.formation.prompts import Fence
from eden_memory.metrics import CONSOLIDATIONS, MEMORY_COMMANDS
from eden_memory.models.question import A, Answered, Asking, Earlier, Prompt
from eden_memory.processors.consolidation import Consolidation
from eden_memory.schemas.answers import ConsolidatedText
from eden_memory.schemas.documents import BufferedReflection, Reflection, Snapshot, Stream
from eden_memory.schemas.envelope import Envelope
from eden_memory.schemas.events import Event, ReflectionFormed, ScopeChanged, ScopeConsolidated
from eden_memory.schemas.provenance import SourceMessage
from eden_memory.schemas.scopes import Scope
from eden_memory.stages.stage import Delivery
from tests.counted import Grown
from tests.unit.context.parts import stored_snapshot

NOON = datetime(2026, 3, 2, 12, tzinfo=UTC)
USER = Scope.of_user("s.a", "i.1")


def at(seconds: float) -> datetime:
    return NOON + timedelta(seconds=seconds)


def reflection(
    number: int, seconds: float | None = None, *, said: float | None = None, private: bool = False
) -> BufferedReflection:
    """Formed so many `seconds` after noon, a minute apart otherwise; `said` then, unless at another second."""
    formed = 60 * number if seconds is None else seconds
    return BufferedReflection(
        reflection_id=f"r{number}",
        content=f"reflection {number}",
        formed_at=at(formed),
        said_at=at(formed if said is None else said),
        private=private,
    )


def as_stored(name: str, *sources: SourceMessage) -> Reflection:
    """A reflection of the user's scope, as the writer stores it."""
    return Reflection(
        _id=name,
        scope="user",
        scope_key=USER.key,
        agent_id=USER.agent_id,
        user_id=USER.user_id,
        content="reflection 1",
        position=1,
        formed_at=at(60),
        said_at=at(60),
        sources=sources,
    )


def snapshot(*buffer: BufferedReflection, scope: Scope = USER, **fields: Any) -> Snapshot:
    return stored_snapshot(
        scope,
        buffer=buffer,
        changed_at=NOON,
        **fields,
    )


def delivery(change: ScopeChanged, identity: str = "d1", times: int = 0) -> Delivery:
    envelope = Envelope(identity, change.NAME, 1, "test", NOON, change.subject(), change.ordering_key())
    return Delivery(envelope, change, "memory.changes", change.key(), sent_again=times)


@dataclass
class Model:
    """Answers with `texts` in turn; None: every repair of the answer was invalid."""

    texts: list[str | None]
    asked: list[tuple[Prompt, Asking]] = field(default_factory=list[tuple[Prompt, Asking]])
    arrived: dict[str, tuple[Asking, str | None]] = field(
        default_factory=dict[str, tuple[Asking, "str | None"]]
    )
    paid: int = 0
    spent: set[str] = field(default_factory=set[str])
    """Units whose calls are used up."""
    meanwhile: Callable[[], None] = lambda: None

    async def earlier(self, unit: str) -> Earlier | None:
        if unit not in self.arrived:
            return None
        asking, text = self.arrived[unit]
        return Earlier(asking.shown, exhausted=text is None)

    async def ask(
        self, prompt: Prompt, answer: type[A], asking: Asking, check: Callable[[A], str | None] | None = None
    ) -> Answered[A]:
        self.asked.append((prompt, asking))
        if asking.unit in self.spent:
            raise QuestionSpent("6 calls brought no valid answer")
        if asking.unit not in self.arrived:
            self.arrived[asking.unit] = asking, self._text(check)
        text = self.arrived[asking.unit][1]
        self.meanwhile()
        if text is None:
            raise PermanentError("not valid, three times")
        return Answered(cast(A, ConsolidatedText(text=text)), None)

    def _text(self, check: Any) -> str | None:
        self.paid += 1
        text = self.texts.pop(0)
        if text is not None and check(ConsolidatedText(text=text)) and self.texts:
            self.paid += 1
            text = self.texts.pop(0)
        return text


@dataclass
class Around:
    """All that the stage stands on."""

    snapshot: Snapshot
    model: Model
    marks: list[Mark] = field(default_factory=list[Mark])
    writes: set[str] = field(default_factory=set[str])
    """Versions that are decided and not applied: `blob:KEY@N`, `reflection:ID@N`."""
    events_beyond: list[Event] = field(default_factory=list[Event])
    """Decided, and not in the snapshot yet."""
    stored: dict[str, Reflection] = field(default_factory=dict[str, Reflection])
    """Reflections."""
    supported: list[str] = field(default_factory=list[str])
    """What was propagated from other scopes, because a reflection here shows the same."""
    streams: dict[str, Stream] = field(default_factory=dict[str, Stream])
    consolidated: Grown = field(default_factory=lambda: Grown(CONSOLIDATIONS))
    commanded: Grown = field(default_factory=lambda: Grown(MEMORY_COMMANDS))
    tiers: dict[str, int] = field(default_factory=dict[str, int])

    async def snapshots(self, scope_keys: Iterable[str]) -> dict[str, Snapshot]:
        return {self.snapshot.id: self.snapshot} if self.snapshot.id in set(scope_keys) else {}

    async def without_users(self, scope_keys: Iterable[str], private: Collection[str]) -> dict[str, Snapshot]:
        del private  # nothing here rests on what users said
        return await self.snapshots(scope_keys)

    async def decided(self, writes: Iterable[str]) -> bool:
        return bool(self.writes & set(writes))

    async def blobs_beyond(self, scope_key: str, version: int) -> Sequence[ScopeConsolidated]:
        return [event for event in self.events_beyond if isinstance(event, ScopeConsolidated)]

    async def reflection(self, reflection_id: str) -> Reflection | None:
        return self.stored.get(reflection_id)

    async def reflections(self, reflection_ids: Iterable[str]) -> list[Reflection]:
        return [self.stored[name] for name in reflection_ids if name in self.stored]

    async def reflections_beyond(self, reflection_id: str, version: int) -> Sequence[ReflectionFormed]:
        return [event for event in self.events_beyond if isinstance(event, ReflectionFormed)]

    async def supported_by(self, reflection: ReflectionFormed) -> Sequence[str]:
        return self.supported

    async def of(self, agent_id: str) -> Mapping[str, Stream]:
        return self.streams

    async def among(self, named: Iterable[tuple[str, str]]) -> Marks:
        wanted = set(named)
        return Marks(one for one in self.marks if (one.kind, one.target) in wanted)

    async def tier_of(self, users: Sequence[str], session_id: str | None = None) -> int:
        users = users or (session_id or "",)  # a session stands for the users that its document lists
        return max((self.tiers.get(one, 0) for one in users), default=0)

    async def run(self, *deliveries: Delivery, is_live: bool = True) -> Any:
        fence = Fence(b"0" * 16)
        stage = Consolidation(self, self, self, self.model, self, fence, "v1", self.tier_of, is_live=is_live)
        return await stage(deliveries or [delivery(change_of(self.snapshot))])

    def change(self, **fields: Any) -> None:
        self.snapshot = self.snapshot.model_copy(update=fields)

    def again(self, times: int) -> Delivery:
        return delivery(change_of(self.snapshot))._replace(sent_again=times)
