"""Windows, what stages find of them, and a model that answers by a script."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from eden_memory.forgotten import Mark, Marks
from eden_memory.formation.prompts import Fence
from eden_memory.formation.window_question import SharedKnowledge
from eden_memory.limits import STANDARD, FormationLimits
from eden_memory.metrics import EXTRACTION_ITEMS
from eden_memory.models.question import A, Answered, Asking, Earlier, Prompt
from eden_memory.models.question import Kept as KeptAnswer
from eden_memory.processors.fact_extraction import FactExtraction
from eden_memory.processors.reflection_extraction import ReflectionExtraction
from eden_memory.schemas.answers import (
    About,
    ExtractedFacts,
    ModelAnswer,
    StatedFact,
    StatedReflection,
    StatedReflections,
)
from eden_memory.schemas.documents import Snapshot, Stream
from eden_memory.schemas.envelope import Envelope
from eden_memory.schemas.events import (
    FactsExtracted,
    FactsProposed,
    FormationRequested,
    ReflectionFormed,
    SessionClosed,
)
from eden_memory.schemas.events.base import Event
from eden_memory.schemas.events.formation import ClosedBecause
from eden_memory.schemas.provenance import Call
from eden_memory.schemas.scopes import Scope, SharedSessions, Sharing
from eden_memory.stages.stage import Decision, Delivery, Emitted
from eden_memory.windows.formation_requests import StoredWindow, refs
from eden_memory.windows.session_state import StoredMessage
from eden_memory.windows.window_rule import Closed
from tests.counted import Grown

NOON = datetime(2026, 3, 2, 12, tzinfo=UTC)
AGENT, SESSION, MARA, TOM = "s.juniper", "s.talk", "s.mara", "s.tom"
FORMATION = "s.talk/1-aa"
FENCE = Fence(b"a secret of this test alone")
AGENT_SCOPE = Scope.of_agent(AGENT)
GROUP_SCOPE = Scope.of_group(AGENT, "s.yard")
SHARD_SCOPE = Scope.of_shard(AGENT, "known outages")
USER_SCOPE = Scope.of_user(AGENT, MARA)
SESSION_SCOPE = Scope.of_session(AGENT, SESSION, (MARA,))
ALL_SCOPES = (AGENT_SCOPE, SHARD_SCOPE, GROUP_SCOPE, USER_SCOPE, SESSION_SCOPE)
CALL = Call(call_id="c1", model="scripted", prompt="fact-extraction/1")


def said(number: int, text: str | None, user: str | None = MARA, role: str = "user") -> StoredMessage:
    """The message `s.m<number>`, a minute after the one before."""
    return StoredMessage(
        message_id=f"s.m{number}",
        session_id=SESSION,
        version=f"{number:016x}",
        time=NOON + timedelta(minutes=number),
        role=role,
        user_id=user if role == "user" else None,
        text=text,
        characters=len(text or ""),
        truncated=False,
        formation_id=FORMATION,
    )


@dataclass(frozen=True)
class Talk:
    """A closed window: what is requested, and what is stored of it."""

    messages: tuple[StoredMessage, ...]
    scopes: tuple[Scope, ...] = ALL_SCOPES
    participants: tuple[str, ...] = (MARA,)
    because: ClosedBecause = "messages"
    names: Mapping[str, str] = field(default_factory=lambda: {MARA: "Mara Lind", AGENT: "Juniper"})
    private: tuple[str, ...] = ()
    sharing: Sharing = "team"
    shared_sessions: SharedSessions = "session"
    session: str = SESSION
    before: tuple[StoredMessage, ...] = ()

    @property
    def requested(self) -> FormationRequested:
        return FormationRequested(
            formation_id=FORMATION,
            session_id=self.session,
            seq=1,
            agent_id=AGENT,
            users=self.participants,
            participants=self.participants,
            private_users=self.private,
            tier=1,
            scopes=self.scopes,
            messages=refs(self.messages),
            before=refs(self.before),
            characters=sum(one.characters for one in self.messages),
            weighted_tokens=1.0,
            closed_because=self.because,
            closed_at=NOON + timedelta(hours=1),
            settings_version="v1",
            sharing=self.sharing,
            shared_sessions=self.shared_sessions,
        )

    @property
    def stored(self) -> StoredWindow:
        window = self.requested
        closed = Closed((), self.because, window.closed_at)
        stored = StoredWindow(
            FORMATION, self.session, 1, self.messages, closed, None, dict(self.names), window
        )
        stored.before = self.before
        return stored


def talk(*texts: str, **fields: object) -> Talk:
    """Mara says these, one after the other."""
    return Talk(tuple(said(number, text) for number, text in enumerate(texts, 1)), **fields)  # pyright: ignore[reportArgumentType]


def delivered(event: Event, identity: str = "e1", *, sent_again: int = 0) -> Delivery:
    """The event as a stage is given it."""
    envelope = Envelope(
        id=identity,
        name=event.NAME,
        version=1,
        source="test",
        time=NOON,
        subject=event.subject(),
        ordering_key=event.ordering_key(),
    )
    return Delivery(envelope, event, "in", event.key(), sent_again=sent_again)


def fact(text: str, scope: str = "user", *messages: int) -> StatedFact:
    """As a model states it."""
    return StatedFact(
        text=text,
        scope=scope,
        messages=list(messages),
        occurred_at=None,
        about=_about(scope),
        sensitive=False,
    )


def reflection(text: str, scope: str = "user", *messages: int) -> StatedReflection:
    """As a model states it."""
    return StatedReflection(
        text=text, scope=scope, messages=list(messages), about=_about(scope), sensitive=False
    )


def _about(scope: str) -> About:
    """The judgement of a model that believes in the scope that it chose."""
    return "person" if scope in ("user", "session") else "organisation"


Script = Callable[[Prompt], ModelAnswer]


@dataclass
class ScriptedModel:
    """Answers by a script; an answer, once given, is kept under its unit, as the real one's is."""

    script: Script
    call: Call | None = CALL
    prompts: list[Prompt] = field(default_factory=list[Prompt])
    askings: list[Asking] = field(default_factory=list[Asking])
    complaints: list[str] = field(default_factory=list[str])
    """What the first answers fell short of, as the model would be told."""
    kept: dict[str, tuple[ModelAnswer, tuple[str, ...]]] = field(
        default_factory=dict[str, tuple[ModelAnswer, tuple[str, ...]]]
    )
    while_asked: Callable[[], None] | None = None

    async def earlier(self, unit: str) -> Earlier | None:
        return Earlier(self.kept[unit][1], exhausted=False) if unit in self.kept else None

    async def ask(
        self,
        prompt: Prompt,
        answer: type[A],
        asking: Asking,
        check: Callable[[A], str | None] | None = None,
    ) -> Answered[A]:
        if asking.unit not in self.kept:
            self.prompts.append(prompt)
            self.askings.append(asking)
            self.kept[asking.unit] = (self.script(prompt), asking.shown)
            if self.while_asked is not None:
                self.while_asked()
        value = self.kept[asking.unit][0]
        assert isinstance(value, answer)
        if check and (complaint := check(value)):
            self.complaints.append(complaint)
        return Answered(value, self.call)


class NothingKept:
    """No call has asked for facts and reflections at once."""

    async def answered(self, call_id: str, answer: type[A]) -> KeptAnswer[A] | None:
        return None


NOTHING_KEPT = NothingKept()


@dataclass
class Kept:
    """What the stages read: windows, streams, snapshots, forgotten ids."""

    stored: dict[str, StoredWindow] = field(default_factory=dict[str, StoredWindow])
    streams: dict[str, Stream] = field(default_factory=dict[str, Stream])
    shots: dict[str, Snapshot] = field(default_factory=dict[str, Snapshot])
    marks: list[Mark] = field(default_factory=list[Mark])
    shared: SharedKnowledge = field(default_factory=SharedKnowledge)
    tried: bool = True
    """Whether `eden models check` has passed the model."""

    async def known(self, agent_id: str) -> SharedKnowledge:
        return self.shared

    async def may_judge(self, provider: str | None, call: Call) -> bool:
        return self.tried

    async def windows(self, formation_ids: Iterable[str]) -> dict[str, StoredWindow]:
        return {one: self.stored[one] for one in formation_ids if one in self.stored}

    async def of(self, agent_id: str) -> Mapping[str, Stream]:
        return self.streams

    async def snapshots(self, scope_keys: Iterable[str]) -> dict[str, Snapshot]:
        return {one: self.shots[one] for one in scope_keys if one in self.shots}

    async def without_users(self, scope_keys: Iterable[str], private: Collection[str]) -> dict[str, Snapshot]:
        del private  # nothing here rests on what users said
        return await self.snapshots(scope_keys)

    async def among(self, named: Iterable[tuple[str, str]]) -> Marks:
        wanted = set(named)
        return Marks(one for one in self.marks if (one.kind, one.target) in wanted)


@dataclass
class Bench:
    """A stage with everything around it."""

    window: Talk
    model: ScriptedModel
    kept: Kept = field(default_factory=Kept)
    counted: Grown = field(default_factory=lambda: Grown(EXTRACTION_ITEMS))
    demote_names: bool = False
    limits: FormationLimits = STANDARD

    @property
    def left(self) -> dict[str, int]:
        """Items that were left out or changed, by how."""
        return {how: number for (_, how), number in self.counted().items() if how != "formed"}

    def __post_init__(self) -> None:
        self.kept.stored[FORMATION] = self.window.stored

    async def facts(self, *, sent_again: int = 0) -> tuple[FactsExtracted, list[FactsProposed]]:
        """What fact-extraction publishes: one FactsExtracted, and the rest."""
        kept = self.kept
        stage = FactExtraction(
            kept,
            kept,
            kept,
            self.model,
            kept,
            FENCE,
            kept,
            demote_names=self.demote_names,
            limits=self.limits,
        )
        first, *rest = whole(await stage([delivered(self.window.requested, sent_again=sent_again)]))
        assert isinstance(first, FactsExtracted)
        proposed = [one for one in rest if isinstance(one, FactsProposed)]
        assert len(proposed) == len(rest)
        return first, proposed

    async def reflections(
        self, extracted: FactsExtracted | None = None
    ) -> tuple[list[ReflectionFormed], list[SessionClosed]]:
        """What reflection-extraction publishes."""
        kept = self.kept
        stage = ReflectionExtraction(
            kept,
            kept,
            kept,
            self.model,
            NOTHING_KEPT,
            kept,
            FENCE,
            kept,
            demote_names=self.demote_names,
            limits=self.limits,
        )
        cause = extracted or FactsExtracted(
            cause="e0", window=self.window.requested.window(), outcome="empty"
        )
        events = whole(await stage([delivered(cause)]))
        formed = [one for one in events if isinstance(one, ReflectionFormed)]
        closed = [one for one in events if isinstance(one, SessionClosed)]
        assert list(events) == [*formed, *closed], "the session's last word comes last"
        return formed, closed


def whole(result: Sequence[Emitted] | Decision) -> Sequence[Emitted]:
    """The events of an extraction that gave up no part of a window."""
    assert not isinstance(result, Decision)
    return result


def stating(*facts: StatedFact) -> ScriptedModel:
    """A model that always states these facts."""
    return ScriptedModel(lambda prompt: ExtractedFacts(facts=list(facts)))


def reflecting(*reflections: StatedReflection) -> ScriptedModel:
    """A model that always states these reflections."""
    return ScriptedModel(lambda prompt: StatedReflections(reflections=list(reflections)))


def texts(items: Sequence[FactsProposed]) -> dict[str, list[str]]:
    """Proposed texts by scope key."""
    return {one.scope.key: [fact.text for fact in one.facts] for one in items}
