"""What an extraction hands on, and a fact as fact-dedup knows it: stored, or of a decision not applied yet. Pure."""

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from eden_memory.forgotten import Marks
from eden_memory.memory.memory_batch import fact_hash, fact_id
from eden_memory.memory.projection import undone_fact
from eden_memory.memory.scope_matrix import nearest_before
from eden_memory.schemas.events import (
    CommandRef,
    FactChanged,
    FactCommanded,
    FactsExtracted,
    FactsProposed,
    FormationRequested,
    SessionClosed,
)
from eden_memory.schemas.events.formation import ExtractedFact, Window
from eden_memory.schemas.provenance import SourceMessage, Statement, newest_said
from eden_memory.schemas.scopes import Scope
from eden_memory.stages.stage import Delivery, Emitted


@dataclass(frozen=True, slots=True)
class KnownFact:
    """One fact in its newest version; `vector` packed float32 (schemas.fields.pack_vector)."""

    fact_id: str
    version: int
    scope_key: str
    text: str
    hash: str
    vector: bytes | None
    embedding_model: str | None
    sources: tuple[SourceMessage, ...]
    formed_at: datetime
    valid_from: datetime
    said_at: datetime
    """When what began it was said."""
    occurred_at: datetime | None = None
    """When what it tells of happened, where its text says so."""
    expires_at: datetime | None = None
    private: bool = False
    retired: bool = False
    replaces: str | None = None
    replaced_by: str | None = None
    retired_at: datetime | None = None
    retired_because: str | None = None
    embedding_call: str | None = None
    """The call that made the vector, where known."""

    @classmethod
    def of(cls, event: FactChanged) -> "KnownFact":
        """Return the fact as a decision left it."""
        embedding = event.embedding
        return cls(
            fact_id=event.fact_id,
            version=event.version,
            scope_key=event.scope.key,
            text=event.text,
            hash=event.hash,
            vector=embedding.vector if embedding else None,
            embedding_model=embedding.model if embedding else None,
            sources=event.sources,
            formed_at=event.formed_at,
            valid_from=event.valid_from,
            said_at=event.said_at,
            occurred_at=event.occurred_at,
            expires_at=event.expires_at,
            private=event.private,
            retired=event.retired_at is not None,
            replaces=event.replaces,
            replaced_by=event.replaced_by,
            retired_at=event.retired_at,
            retired_because=event.retired_because,
            embedding_call=embedding.call_id if embedding else None,
        )


@dataclass(frozen=True, slots=True)
class Near:
    """A fact found by similarity."""

    fact: KnownFact
    similarity: float
    """(1 + cosine) / 2."""


class FactSearch(Protocol):
    """Search in the stored facts of a scope, by meaning or text; active facts only unless said otherwise."""

    async def nearest(
        self, scope_key: str, vectors: Sequence[bytes], most: int, least: float
    ) -> Sequence[Sequence[Near]]:
        """Return for each vector the nearest facts of the scope, similar by at least `least`, best first."""
        ...

    async def with_hash(self, scope_key: str, hashes: Iterable[str]) -> Sequence[KnownFact]:
        """Return the facts of the scope whose text has one of these hashes."""
        ...

    async def facts(self, fact_ids: Iterable[str]) -> Mapping[str, KnownFact]:
        """Return facts by id, retired ones included."""
        ...


class Decided(Protocol):
    """Reader of fact-dedup's decisions that the writer may not have applied yet."""

    async def applied(self, scope_key: str) -> int:
        """Return the writer's mark: every decision of the scope up to this number is in the store."""
        ...

    async def beyond(self, scope_key: str, applied: int) -> Sequence[FactChanged]:
        """Return the facts of the scope's decisions numbered above `applied`, in order."""
        ...

    async def given(self, known: Mapping[str, int]) -> Mapping[str, int]:
        """Return the highest version ever given to facts where it is not the newest known (it was dropped)."""
        ...


@dataclass(frozen=True, slots=True)
class Stated:
    """A statement to decide; `fact_id` is the id of the fact that it may become."""

    delivery: Delivery
    statement: Statement
    fact_id: str
    hash: str
    at: datetime
    command: CommandRef | None = None
    expires_at: datetime | None = None
    private: bool = False
    instead_of: str | None = None
    """The fact with the same text that is about to be forgotten, and whose words are to outlive it."""

    @property
    def text(self) -> str:
        """The statement's text."""
        return self.statement.text

    @property
    def sources(self) -> tuple[SourceMessage, ...]:
        """The messages that it rests on."""
        return self.statement.sources

    @property
    def said_at(self) -> datetime:
        """The time at which it was said: for imported history, long before its window closed."""
        return min(self.statement.said_at or self.at, self.at)


def stated_in(deliveries: Iterable[Delivery]) -> list[Stated]:
    """Return the statements of proposals in the order in which they were said, then as delivered."""
    stated = [
        Stated(
            delivery=delivery,
            statement=statement,
            fact_id=fact_id(proposed.formation_id, proposed.scope.key, statement.number),
            hash=fact_hash(statement.text),
            at=proposed.formed_at,
        )
        for delivery in deliveries
        if isinstance(proposed := delivery.event, FactsProposed)
        for statement in proposed.facts
    ]
    return sorted(stated, key=lambda statement: statement.said_at)


def adds_together(deliveries: Iterable[Delivery]) -> int:
    """Return how many of the first records add facts and are decided alike: by a model, or without one."""
    adds: list[FactCommanded] = []
    for delivery in deliveries:
        event = delivery.event
        if not isinstance(event, FactCommanded) or event.action != "add":
            break
        if adds and event.decide != adds[0].decide:
            break
        adds.append(event)
    return len(adds)


def stated_by_commands(deliveries: Iterable[Delivery]) -> list[Stated]:
    """Return the statements of commands that add facts, in the order in which they were said."""
    stated = [
        _stated_by(delivery, command)
        for delivery in deliveries
        if isinstance(command := delivery.event, FactCommanded)
    ]
    return sorted(stated, key=lambda statement: statement.said_at)


def _stated_by(delivery: Delivery, command: FactCommanded) -> Stated:
    assert command.text is not None
    return Stated(
        delivery=delivery,
        statement=Statement(
            number=1,
            text=command.text,
            sources=command.sources,
            said_at=command.said_at or newest_said(command.sources),
        ),
        fact_id=fact_id(command.command_id, command.scope.key, 1),
        hash=fact_hash(command.text),
        at=command.asked_at,
        command=command_ref(command),
        expires_at=command.expires_at,
        private=bool(command.private),
        instead_of=undone_fact(command.command_id),
    )


def command_ref(command: FactCommanded) -> CommandRef:
    """Return a reference to the command, as a change names it."""
    return CommandRef(
        command_id=command.command_id,
        action=command.action,
        by=command.by,
        asked_by=command.asked_by,
        asked_at=command.asked_at,
    )


def repeatable(stated: Iterable[Stated], known: Container[str]) -> list[Stated]:
    """Return the statements to compare: those whose text (hash) is not known, and all said after one of them."""
    found: list[Stated] = []
    for statement in stated:
        if statement.hash not in known or any(other.hash != statement.hash for other in found):
            found.append(statement)
    return found


def unsettled(
    stated: Sequence[Stated],
    vectors: Sequence[bytes],
    near: Sequence[Sequence[Near]],
    known: Iterable[str],
    least: float,
) -> list[int]:
    """Return the places of the statements without repeats: a repeat shares the fate of the first.

    A repeat stays where something near it was said in between, which may contradict the first and not the repeat.
    `near`: the known facts near each; `known`: texts (hashes) that are known facts' own.
    """
    alike = nearest_before([statement.fact_id for statement in stated], vectors, len(stated), least)
    place = {statement.fact_id: index for index, statement in enumerate(stated)}
    last, found = dict.fromkeys(known, -1), list[int]()
    for index, (statement, hits, facts) in enumerate(zip(stated, alike, near, strict=True)):
        since = last.get(statement.hash)
        if since is not None:
            later = (stated[place[name]] for name, _ in hits if place[name] > since)
            from_then = stated[since].said_at if since >= 0 else statement.said_at
            between = (other for other in facts if from_then < other.fact.valid_from <= statement.said_at)
            if all(other.hash == statement.hash for other in later) and not any(between):
                continue
        found.append(index)
        last[statement.hash] = index
    return found


def remembered(stated: Sequence[Stated], scope: Scope, marks: Marks) -> list[Stated]:
    """Return the statements that rest on nothing forgotten."""
    return [
        statement
        for statement in stated
        if not marks or not marks.reaches(scope, statement.sources, statement.at)
    ]


def facts_extracted(
    delivery: Delivery, window: Window, facts: tuple[ExtractedFact, ...] = (), reason: str | None = None
) -> FactsExtracted:
    """Return the one result of a window's extraction."""
    return FactsExtracted(
        cause=delivery.id,
        attempt=delivery.sent_again + 1,
        window=window,
        outcome="extracted" if facts else "empty",
        reason=reason,
        facts=facts,
    )


def proposals_of(extracted: FactsExtracted) -> list[FactsProposed]:
    """Return the proposals to each scope that has facts, from broad to narrow."""
    window = extracted.window
    return [
        FactsProposed(
            cause=extracted.cause,
            attempt=extracted.attempt,
            formation_id=window.formation_id,
            session_id=window.session_id,
            scope=scope,
            facts=tuple(
                Statement(**{name: getattr(extracted_fact, name) for name in Statement.model_fields})
                for extracted_fact in stated
            ),
            formed_at=window.closed_at,
            settings_version=window.settings_version,
        )
        for scope in window.scopes
        if (stated := [fact for fact in extracted.facts if fact.scope == scope])
    ]


def failed_extraction(delivery: Delivery, reason: str) -> Sequence[Emitted]:
    """Replace the result of a dead extraction: reflections are formed without its facts."""
    if not isinstance(delivery.event, FormationRequested):
        return ()
    extracted = facts_extracted(delivery, delivery.event.window(), reason=reason[:500])
    return (extracted.model_copy(update={"outcome": "failed"}),)


def closed_all_the_same(delivery: Delivery, reason: str) -> Sequence[Emitted]:
    """Close an ended session though its last reflections could not be formed."""
    del reason
    if not isinstance(delivery.event, FactsExtracted):
        return ()
    return session_closed(delivery, delivery.event, 0)


def session_closed(
    delivery: Delivery, extracted: FactsExtracted, reflections: int
) -> Sequence[SessionClosed]:
    """Close the session if its window was the final one; `reflections` counts those formed in its scope."""
    window = extracted.window
    if window.closed_because != "ended":
        return ()
    scope = next(scope for scope in window.scopes if scope.kind == "session")
    return (
        SessionClosed(
            cause=delivery.id,
            attempt=delivery.sent_again + 1,
            scope=scope,
            formation_id=window.formation_id,
            reflections=reflections,
            closed_at=window.closed_at,
        ),
    )
