"""Rules of propagation: which reflections may be judged, where each may go, and what may be said there. Pure."""

from collections import defaultdict
from collections.abc import AsyncGenerator, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from eden_memory.directory.participants import Missing, Off, SessionFacts
from eden_memory.forgotten import Marks, ids_of
from eden_memory.formation.shareable import adds_little, is_personal, names_one_of
from eden_memory.schemas.answers import AlikeReflection, JudgedReflection
from eden_memory.schemas.documents import Reflection, Stream
from eden_memory.schemas.events import Propagated, ReflectionFormed
from eden_memory.schemas.ids import split
from eden_memory.schemas.provenance import Call
from eden_memory.schemas.scopes import Scope, ScopeKind
from eden_memory.stages.stage import Delivery

BROADER: Mapping[ScopeKind, Literal["group", "agent"]] = {"user": "group", "group": "agent"}
"""Scopes whose reflections are propagated, and where to."""
Sessions = Mapping[str, SessionFacts | Missing]
Withheld = Literal["private", "nowhere"]
"""private: it, a fact on its messages or its user is marked so, or its session or an author is switched off; nowhere:
no broader scope is known for it, or that one is switched off."""


class AbsorbedReflections(Protocol):
    """Look-up of the reflections that a blob has absorbed, and of what was judged before."""

    async def reflections(self, reflection_ids: Iterable[str]) -> Sequence[Reflection]:
        """Return those that are stored, in the order of the ids."""
        ...

    async def decided_among(self, writes: Iterable[str]) -> set[str]:
        """Return those of the writes that a stored decision has made."""
        ...

    async def reflections_beyond(self, reflection_id: str, version: int) -> Sequence[ReflectionFormed]:
        """Return the versions of a reflection decided above this one, in order."""
        ...

    def of_others(self, scope: Scope, page: int) -> AsyncGenerator[list[Reflection]]:
        """Yield pages of the reflections of the agent's other scopes of this kind, newest first, up to a limit."""
        ...

    async def private_among(self, message_ids: Iterable[str]) -> set[str]:
        """Return the messages of each private fact that rests on any of these."""
        ...


@dataclass(frozen=True, slots=True)
class Candidate:
    """A reflection that may be judged for a broader scope."""

    reflection: Reflection
    target: Scope
    names: frozenset[str]
    """What those who take part in its sessions are called."""

    @property
    def source(self) -> Scope:
        """The scope that it is of."""
        return Scope.of_key(self.reflection.scope_key, self.reflection.agent_id)

    @property
    def named(self) -> set[tuple[str, str]]:
        """(kind, target) of everything whose forgetting concerns it, or what is made from it."""
        own, made = self.reflection.id, Propagated.id_of(self.reflection.id)
        return ids_of(self.source, self.reflection.sources) | {("reflection", own), ("reflection", made)}

    def is_forgotten(self, marks: Marks) -> bool:
        """Return whether it is forgotten, or what would be made from it."""
        own, made = self.reflection, Propagated.id_of(self.reflection.id)
        return (
            marks.entity_gone("reflection", own.id, own.version)
            or marks.entity_gone("reflection", made, 1)
            or marks.reaches(self.source, own.sources, own.formed_at)
        )

    def rests_on(self, message_ids: Collection[str]) -> bool:
        """Return whether it rests on any of these messages."""
        return not set(self.reflection.message_ids).isdisjoint(message_ids)

    def statement(self, judged: JudgedReflection, text: str, names: Collection[str]) -> str | None:
        """Return the text if the broader scope may hold it: of no person, and nothing that the reflection lacks.

        `names`: of the agent's users, and of those whose reflections the model saw beside it.
        """
        kept_back = judged.sensitive or judged.about == "person" or is_personal(text)
        named = names_one_of(text, self.names) or names_one_of(text, names)
        return None if kept_back or named or not adds_little(text, self.reflection.content) else text


def is_on(streams: Mapping[str, Stream], otherwise: bool) -> bool:
    """Return whether an agent's reflections are propagated; `otherwise`: as the settings say."""
    stream = streams.get("agent")
    return otherwise if stream is None or stream.propagation is None else stream.propagation


def needed_of(streams: Mapping[str, Stream]) -> int:
    """Return how many scopes must show the same before it is propagated."""
    stream = streams.get("agent")
    return 1 if stream is None else stream.propagation_from or 1


def supporting(
    item: JudgedReflection, own: Candidate, others: Mapping[int, Candidate], needed: int
) -> list[Candidate] | None:
    """Return those that show the same in other scopes, one of each and as many as needed; None: too few do.

    `others`: by the numbers under which the model was shown them.
    """
    named = item.same if isinstance(item, AlikeReflection) else []
    found = {own.source.key: own}
    for other in (others[number] for number in named if number in others):
        if len(found) < needed:
            found.setdefault(other.source.key, other)
    return [other for key, other in found.items() if key != own.source.key] if len(found) >= needed else None


def judged(reflection_id: str) -> str:
    """Return the write that says that a reflection was judged: it never is again."""
    return f"propagation:{reflection_id}"


def authors_of(reflections: Iterable[Reflection]) -> Mapping[str, Collection[str]]:
    """Return the sessions that reflections are of, each with those whose messages they rest on."""
    found = defaultdict[str, set[str]](set)
    for reflection in reflections:
        said = {(source.session_id, source.user_id) for source in reflection.sources}
        for session_id, user_id in said | {(name, reflection.user_id) for name in reflection.session_ids}:
            found[session_id].update(() if user_id is None else (user_id,))
    return found


def candidate_of(reflection: Reflection, sessions: Sessions, off: Off) -> Candidate | Withheld:
    """Return the reflection with its target; a user's goes to the group that its sessions name."""
    known = [sessions.get(session_id) for session_id in reflection.session_ids]
    facts = [session for session in known if isinstance(session, SessionFacts)]
    users = {reflection.user_id, *(source.user_id for source in reflection.sources)}
    if reflection.private or any(users.intersection(session.private_users) for session in facts):
        return "private"
    if users & off.users or off.sessions & authors_of([reflection]).keys():
        return "private"
    target = _target(reflection, facts) if facts and len(facts) == len(known) else None
    if target is None or reflection.retired_at is not None:
        return "nowhere"
    return Candidate(reflection, target, _names(users, facts))


def _target(reflection: Reflection, sessions: Sequence[SessionFacts]) -> Scope | None:
    agent, to = reflection.agent_id, BROADER[reflection.scope]
    if any(
        not session.agent_memory or to in session.off or session.agent_id != agent for session in sessions
    ):
        return None
    if to == "agent":
        return Scope.of_agent(agent)
    (group, *others) = {session.group_id for session in sessions}
    members = (
        session.group_members is None or reflection.user_id in session.group_members for session in sessions
    )
    return Scope.of_group(agent, group) if group is not None and not others and all(members) else None


def _names(users: Iterable[str | None], sessions: Iterable[SessionFacts]) -> frozenset[str]:
    listed = {user for session in sessions for user in session.users or ()}
    called = (name for session in sessions for name in session.names.values())
    return frozenset((*called, *(split(user)[1] for user in {*users, *listed} if user is not None)))


def propagated(
    delivery: Delivery, candidate: Candidate, text: str, call: Call | None, alike: Sequence[Candidate] = ()
) -> ReflectionFormed:
    """Return the reflection of the broader scope; it rests on the messages of the one that it came from, and of those
    alike: it ends when too few are left.
    """
    source = candidate.reflection
    sources = (*source.sources, *(rest for other in alike for rest in other.reflection.sources))
    return ReflectionFormed(
        cause=delivery.id,
        attempt=delivery.sent_again + 1,
        reflection_id=Propagated.id_of(source.id),
        scope=candidate.target,
        text=text,
        position=source.position,
        origin="propagated",
        sources=tuple({rest.message_id: rest for rest in sources}.values()),
        call=call,
        formed_at=source.formed_at,
        said_at=source.said_at,
        propagated_from=Propagated(reflection_id=source.id, scope=candidate.source),
        asked_by=None,
    )
