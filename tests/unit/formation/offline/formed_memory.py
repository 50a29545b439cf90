"""The demo's memory, formed in this process by the offline model: windows of 45 messages, in their order."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TypeVar

from eden_memory.demo.conversation import Conversation, PlayedMessage, plain_text, read_conversation
from eden_memory.demo.judgement import FormedMemory
from eden_memory.formation.offline import OfflineModel
from eden_memory.formation.prompt_material import (
    ConsolidationMaterial,
    DatedText,
    DecisionMaterial,
    FactMaterial,
    KnownLine,
    Material,
    NewFact,
    ReflectionMaterial,
    ScopeBrief,
    TranscriptLine,
)
from eden_memory.limits import DEFAULTS, STANDARD
from eden_memory.models.question import Asking, Embedder, Prompt
from eden_memory.schemas.answers import (
    ConsolidatedText,
    ExtractedFacts,
    FactDecisions,
    ModelAnswer,
    StatedReflections,
)
from eden_memory.schemas.fields import unpack_vector
from eden_memory.schemas.scopes import ScopeKind

A = TypeVar("A", bound=ModelAnswer)
MESSAGES = 45
LEAST = 0.7
ASKING = Asking(stage="test", role="facts", unit="test:1", agent_id="s.a", cause="c")
NOON = datetime(2026, 3, 4, 12, tzinfo=UTC)


async def answered(material: Material, answer: type[A]) -> A:
    """What the offline model makes of a material."""
    prompt = Prompt("test/1", "", "", material)
    return (await OfflineModel().ask(prompt, answer, ASKING)).value


def lines(*said: tuple[str, str], time: datetime = NOON) -> tuple[TranscriptLine, ...]:
    """Messages of users, by (speaker, text); who is called Juniper is the assistant."""
    return tuple(
        TranscriptLine(who, "assistant" if who == "Juniper" else "user", time, text) for who, text in said
    )


def dated(*texts: str) -> tuple[DatedText, ...]:
    """Reflections, each said a minute after the one before."""
    return tuple(DatedText(NOON + timedelta(minutes=number), text) for number, text in enumerate(texts))


def brief(label: str, buffer: Sequence[str] = ()) -> ScopeBrief:
    """A scope with the limits of the settings."""
    kind: ScopeKind = label  # pyright: ignore[reportAssignmentType]
    return ScopeBrief(label, most=DEFAULTS[kind].most, buffer=dated(*buffer))


async def facts_of(
    *said: tuple[str, str], scopes: Sequence[str] = ("agent", "user"), given: bool = False
) -> dict[str, str]:
    """Texts of the facts, with their scopes."""
    material = FactMaterial(lines(*said), tuple(map(ScopeBrief, scopes)), 30, 30, given=given)
    found = await answered(material, ExtractedFacts)
    return {one.text: one.scope for one in found.facts}


async def reflections_of(
    *said: tuple[str, str], scopes: Sequence[str] = ("agent", "user", "session")
) -> dict[str, str]:
    """Texts of the reflections, with their scopes."""
    material = ReflectionMaterial(lines(*said), tuple(map(brief, scopes)), (), STANDARD.reflection_words)
    return {one.text: one.scope for one in (await answered(material, StatedReflections)).reflections}


@dataclass(slots=True)
class Memory:
    """Facts (with vectors, where an embedder is given) and reflections by scope, as the demo names scopes."""

    embedder: Embedder | None = None
    facts: dict[str, list[tuple[str, Sequence[float]]]] = field(default_factory=lambda: defaultdict(list))
    reflections: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))

    async def form(self, told: Sequence[TranscriptLine], scopes: Mapping[str, str]) -> None:
        """One window; `scopes` are keys by label."""
        briefs = tuple(ScopeBrief(label) for label in scopes if label != "session")
        found = await answered(
            FactMaterial(tuple(told), briefs, STANDARD.facts, STANDARD.fact_words), ExtractedFacts
        )
        for label, key in scopes.items():
            await self._decide(key, [one.text for one in found.facts if one.scope == label])
        texts = tuple(one.text for one in found.facts)
        shown = tuple(brief(label, self.reflections[key]) for label, key in scopes.items())
        material = ReflectionMaterial(tuple(told), shown, texts, STANDARD.reflection_words)
        for one in (await answered(material, StatedReflections)).reflections:
            self.reflections[scopes[one.scope]].append(one.text)

    async def _decide(self, key: str, texts: Sequence[str]) -> None:
        """As fact-dedup does, one new fact after the other."""
        for text in texts:
            vector = unpack_vector((await self.embedder.embed([text]))[0].vector) if self.embedder else ()
            known = self.facts[key]
            near = [(number, _similar(vector, other)) for number, (_, other) in enumerate(known, 1)]
            near = sorted((one for one in near if one[1] >= LEAST), key=lambda one: -one[1])[:5]
            new = NewFact(text, tuple(at for at, _ in near), tuple(how for _, how in near))
            shown = tuple(KnownLine(other, LEAST) for other, _ in known)
            material = DecisionMaterial(shown, (new,), STANDARD.fact_words)
            decided = (await answered(material, FactDecisions)).decisions
            self._apply(
                key, text, vector, decided[0].existing if decided else None, decided and decided[0].decision
            )

    def _apply(
        self, key: str, text: str, vector: Sequence[float], existing: str | None, decision: object
    ) -> None:
        if existing is None:
            self.facts[key].append((text, vector))
        elif decision != "NONE":
            self.facts[key][int(existing.removeprefix("K")) - 1] = (text, vector)

    async def formed(self) -> list[FormedMemory]:
        """All of it, and the blobs that consolidation makes of the reflections."""
        facts = [FormedMemory("fact", key, text) for key, some in self.facts.items() for text, _ in some]
        stated = [
            FormedMemory("reflection", key, text) for key, some in self.reflections.items() for text in some
        ]
        return [*facts, *stated, *[await _blob(key, some) for key, some in self.reflections.items()]]


async def _blob(key: str, buffer: Sequence[str]) -> FormedMemory:
    kind: ScopeKind = key.split(":", maxsplit=1)[0]  # pyright: ignore[reportAssignmentType]
    material = ConsolidationMaterial(kind, None, dated(*buffer), None, DEFAULTS[kind].blob_words)
    return FormedMemory("blob", key, (await answered(material, ConsolidatedText)).text)


def _similar(first: Sequence[float], second: Sequence[float]) -> float:
    return (1 + sum(one * other for one, other in zip(first, second, strict=True))) / 2


async def demo_memory(embedder: Embedder | None = None) -> Memory:
    """Of the demo's conversation, after the changes that happen to it."""
    told, memory = read_conversation(), Memory(embedder)
    names = {str(user["_id"]): str(user["name"]) for user in told.people["users"]}
    messages = _after_changes(told)
    for session in told.people["sessions"]:
        of_session = [one for one in messages if one.session == session["_id"]]
        for start in range(0, len(of_session), MESSAGES):
            window = [_line(one, names) for one in of_session[start : start + MESSAGES]]
            await memory.form(window, _scopes(session))
    return memory


def _after_changes(told: Conversation) -> list[PlayedMessage]:
    changed = {one.id: one.content for one in told.changes}
    kept = [one for one in told.messages if changed.get(one.id, "") is not None]
    return [one.model_copy(update={"content": changed.get(one.id, one.content)}) for one in kept]


def _line(message: PlayedMessage, names: Mapping[str, str]) -> TranscriptLine:
    speaker = names[message.user] if message.user else "Juniper"
    return TranscriptLine(speaker, message.role, message.created_at, plain_text(message.content))


def _scopes(session: Mapping[str, object]) -> dict[str, str]:
    users: list[str] = session["users"]  # pyright: ignore[reportAssignmentType]
    group = {"group": f"group:{session['group_id']}"} if session.get("group_id") else {}
    user = {"user": f"user:{users[0]}"} if len(users) == 1 else {}
    return {"agent": "agent", **group, **user, "session": f"session:{session['_id']}"}
