"""propagation without servers: stored reflections, sessions and a scripted model as plain values."""

from collections.abc import AsyncGenerator, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, cast

from eden_memory.directory.participants import NOBODY, Directory, Missing, Off, SessionFacts
from eden_memory.forgotten import Mark, Marks
from eden_memory.formation.offline import OfflineModel
from eden_memory.formation.prompt_material import PropagationMaterial
from eden_memory.formation.prompts import Fence
from eden_memory.formation.window_question import SharedKnowledge
from eden_memory.metrics import PROPAGATIONS
from eden_memory.models.question import A, Answered, Asking, Earlier, LanguageModel, Prompt
from eden_memory.processors.propagation import Propagation
from eden_memory.schemas.answers import About, ModelAnswer, ShownAlike
from eden_memory.schemas.documents import Reflection, Stream
from eden_memory.schemas.envelope import Envelope
from eden_memory.schemas.events import ReflectionFormed, ScopeConsolidated
from eden_memory.schemas.provenance import Call, SourceMessage
from eden_memory.schemas.scopes import Scope
from eden_memory.stages.stage import Decision, Delivery
from tests.counted import Grown

NOON = datetime(2026, 3, 2, 12, tzinfo=UTC)
AGENT, ANN, SESSION = "s.a", "i.1", "s.talk"
USER, GROUP, WIDE = Scope.of_user(AGENT, ANN), Scope.of_group(AGENT, "i.7"), Scope.of_agent(AGENT)
SOURCE = SourceMessage(
    message_id="s.m1", version="0" * 16, session_id=SESSION, user_id=ANN, time=NOON, participants=1
)
TALK = SessionFacts(AGENT, (ANN,), "i.7", names={ANN: "Ann Lind", AGENT: "Juniper"})


def reflection(text: str, number: int = 1, scope: Scope = USER, **fields: Any) -> Reflection:
    """A reflection that a blob has absorbed."""
    known: dict[str, Any] = {"user_id": scope.user_id, "group_id": scope.group_id}
    known |= {
        "said_at": NOON,
        "session_ids": (SESSION,),
        "sources": (SOURCE,),
        "message_ids": (SOURCE.message_id,),
    }
    return Reflection(
        _id=f"r{number}",
        scope=scope.kind,
        scope_key=scope.key,
        agent_id=AGENT,
        content=text,
        position=number,
        formed_at=NOON,
        absorbed=True,
        **{**known, **fields},
    )


Judge = Callable[[PropagationMaterial], list[tuple[int, str]]]


def everything(material: PropagationMaterial) -> list[tuple[int, str]]:
    """A model that was talked into it."""
    return list(enumerate(material.reflections, 1))


CALL = Call(call_id="c1", model="scripted", prompt="propagation/5")


class JudgingModel:
    """Answers by a function, and keeps its answers as the answer store does."""

    def __init__(
        self, judge: Judge = everything, about: About = "organisation", sensitive: bool = False
    ) -> None:
        self.judge = judge
        self.about: About = about
        self.sensitive = sensitive
        self.meanwhile: Callable[[], object] = lambda: None
        self.same: list[int] = []
        """Of each item: the numbers of others that say the same."""
        self.answers: dict[str, tuple[Asking, ModelAnswer]] = {}
        self.asked: list[Prompt] = []
        self.paid = 0

    async def earlier(self, unit: str) -> Earlier | None:
        found = self.answers.get(unit)
        return None if found is None else Earlier(found[0].shown, exhausted=False)

    async def ask(self, prompt: Prompt, answer: type[A], asking: Asking, check: object = None) -> Answered[A]:
        self.asked.append(prompt)
        if asking.unit not in self.answers:
            self.paid += 1
            stated = self.judge(cast(PropagationMaterial, prompt.material))
            judged = {"about": self.about, "sensitive": self.sensitive}
            fields = [{"reflection": number, "text": text, **judged} for number, text in stated]
            if answer is ShownAlike:
                fields = [{**item, "same": self.same} for item in fields]
            self.answers[asking.unit] = asking, answer.model_validate({"propagated": fields})
        earlier, value = self.answers[asking.unit]
        assert earlier.shown == asking.shown
        self.meanwhile()
        return Answered(cast(A, value), CALL)


@dataclass
class Judging:
    """All that the stage stands on."""

    stored: list[Reflection]
    model: LanguageModel = field(default_factory=JudgingModel)
    sessions: dict[str, SessionFacts | Missing] = field(default_factory=lambda: {SESSION: TALK})
    streams: dict[str, Stream] = field(default_factory=dict[str, Stream])
    marks: list[Mark] = field(default_factory=list[Mark])
    writes: set[str] = field(default_factory=set[str])
    counted: Grown = field(default_factory=lambda: Grown(PROPAGATIONS))
    on: bool = True
    tried: bool = True
    """Whether `eden models check` has passed the model."""
    private_users: set[str] = field(default_factory=set[str])
    """Known only where they are listed, or named as authors."""
    switched_off: Off = NOBODY
    decided: list[ReflectionFormed] = field(default_factory=list[ReflectionFormed])
    """Versions that the writer has not applied."""
    beside: list[Reflection] = field(default_factory=list[Reflection])
    """What other scopes show."""
    private_facts: list[set[str]] = field(default_factory=list[set[str]])
    """The messages of each."""

    async def reflections(self, reflection_ids: Iterable[str]) -> Sequence[Reflection]:
        by_id = {one.id: one for one in self.stored}
        return [by_id[name] for name in reflection_ids if name in by_id]

    async def decided_among(self, writes: Iterable[str]) -> set[str]:
        return self.writes & set(writes)

    async def reflections_beyond(self, reflection_id: str, version: int) -> Sequence[ReflectionFormed]:
        of_it = [later for later in self.decided if later.reflection_id == reflection_id]
        return [later for later in of_it if later.version > version]

    async def of_others(self, scope: Scope, page: int) -> AsyncGenerator[list[Reflection]]:
        others = [one for one in self.beside if one.scope_key != scope.key]
        for start in range(0, len(others), page):
            yield others[start : start + page]

    async def private_among(self, message_ids: Iterable[str]) -> set[str]:
        named = set(message_ids)
        return {message for fact in self.private_facts if fact & named for message in fact}

    async def look_up(
        self,
        session_ids: Iterable[str],
        authors: Mapping[str, Collection[str]] | None = None,
        branches_of: Collection[str] = (),
    ) -> dict[str, SessionFacts | Missing]:
        return {name: self._facts(name, (authors or {}).get(name, ())) for name in session_ids}

    def _facts(self, name: str, authors: Collection[str]) -> SessionFacts | Missing:
        found = self.sessions.get(name, Missing("no document"))
        if isinstance(found, Missing) or found.users is not None:
            return found
        return replace(found, private_users=tuple(self.private_users.intersection(authors)))

    async def off(self, authors: Mapping[str, Collection[str]], others: Collection[str]) -> Off:
        named = {*others, *(user for users in authors.values() for user in users)}
        return Off(self.switched_off.sessions & authors.keys(), self.switched_off.users & named)

    async def known(self, agent_id: str) -> SharedKnowledge:
        return SharedKnowledge()

    async def may_judge(self, provider: str | None, call: Call) -> bool:
        return self.tried

    async def of(self, agent_id: str) -> Mapping[str, Stream]:
        return self.streams

    async def among(self, named: Iterable[tuple[str, str]]) -> Marks:
        wanted = set(named)
        return Marks(one for one in self.marks if (one.kind, one.target) in wanted)

    async def tier_of(self, users: Sequence[str], session_id: str | None = None) -> int:
        return len(users)

    async def run(self, version: int = 1) -> list[ReflectionFormed]:
        """What goes up when a blob has absorbed all that is stored; what is decided stays."""
        stage = Propagation(
            self,
            cast(Directory, self),
            self,
            self.model,
            self,
            Fence(b"0" * 16),
            self,
            self.tier_of,
            on=self.on,
        )
        result = await stage([consolidated(self.stored, version)])
        if not isinstance(result, Decision):
            return []
        self.writes.update(result.writes)
        return [event for event in result.events if isinstance(event, ReflectionFormed)]

    def results(self) -> dict[str, int]:
        """How many reflections were counted for which result."""
        return {result: number for (_, result), number in self.counted().items() if number}


def consolidated(absorbed: Sequence[Reflection], version: int = 1) -> Delivery:
    """The blob version that absorbed these, all of one scope."""
    scope = Scope.of_key(absorbed[0].scope_key, AGENT)
    event = ScopeConsolidated(
        cause="c",
        scope=scope,
        version=version,
        based_on=0,
        text="A text.",
        words=2,
        word_limit=300,
        absorbed=tuple(one.id for one in absorbed),
        because="threshold",
        consolidated_at=NOON,
        said_at=NOON,
        settings_version="v1",
    )
    envelope = Envelope(f"d{version}", event.NAME, 4, "test", NOON, event.subject(), event.ordering_key())
    return Delivery(envelope, event, "memory.consolidations", event.key())


def offline(*texts: str) -> Judging:
    """With the offline rules for a model."""
    return Judging([reflection(text, number) for number, text in enumerate(texts, 1)], OfflineModel())
