"""A scope's facts as one decision knows them, and the changes that it makes one after the other. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from eden_memory.forgotten import Marks
from eden_memory.formation.fact_statements import KnownFact
from eden_memory.formation.scope_assignment import still_said
from eden_memory.limits import MOST_SOURCES
from eden_memory.schemas.events import CommandRef, Considered, FactChanged
from eden_memory.schemas.events.facts import Decision
from eden_memory.schemas.provenance import Call, Embedding, SourceMessage, Statement
from eden_memory.schemas.scopes import Scope
from eden_memory.stages.stage import Delivery

NOT_KNOWN: Mapping[str, int] = {}
SAID_AGAINST = ("contradicted", "asked")
"""Reasons for retiring a fact that are themselves said at a time."""


@dataclass(frozen=True, slots=True)
class ChangeCause:
    """The cause of a change, recorded with it."""

    delivery: Delivery
    at: datetime
    """Time of the window or command."""
    said_at: datetime
    """When that was said which leads to the change: newer and older go by it."""
    statement: Statement | None = None
    command: CommandRef | None = None
    call: Call | None = None
    considered: tuple[Considered, ...] = ()
    reason: str | None = None


class ScopeFacts:
    """The newest known version of each fact, without those that are forgotten; `outcome` is the number given.

    Facts may be learned in any order, from the store and from decisions that are not applied yet. `given`: where
    versions above the newest known one were given once, the highest of them.
    """

    def __init__(
        self, scope: Scope, outcome: int, marks: Marks | None = None, given: Mapping[str, int] = NOT_KNOWN
    ) -> None:
        self.scope, self.outcome, self._given = scope, outcome, given
        self.changes: list[tuple[Delivery, FactChanged]] = []
        self._marks = marks or Marks()
        self._newest: dict[str, KnownFact] = {}
        self._by_hash: dict[str, set[str]] = {}

    def learn(self, facts: Iterable[KnownFact]) -> None:
        """Add known facts; of a fact the highest version counts."""
        for fact in facts:
            known = self._newest.get(fact.fact_id)
            if known is None or known.version < fact.version:
                self._put(fact)

    def recorded(self, fact_id: str) -> KnownFact | None:
        """Return a fact as it is recorded, whatever of it is forgotten."""
        return self._newest.get(fact_id)

    def newest(self, fact_id: str) -> KnownFact | None:
        """Return a fact, retired or not; None if it is unknown or forgotten, or rests on something forgotten."""
        fact = self._newest.get(fact_id)
        return None if fact is None or self._gone(fact) else fact

    def active(self, fact_id: str | None) -> KnownFact | None:
        """Return a fact if it holds now."""
        fact = None if fact_id is None else self.newest(fact_id)
        return None if fact is None or fact.retired else fact

    def with_hash(self, text_hash: str) -> KnownFact | None:
        """Return the active fact with this text; of several the oldest, which the writer shows."""
        named = [self.active(fact_id) for fact_id in self._by_hash.get(text_hash, ())]
        return min((fact for fact in named if fact is not None), key=_age, default=None)

    def join(
        self,
        cause: ChangeCause,
        fact: KnownFact,
        sources: Sequence[SourceMessage],
        expires_at: datetime | None = None,
        said_at: datetime | None = None,
        *,
        private: bool = False,
    ) -> bool:
        """Add new sources to a fact, and move its times of validity and expiry forward; `private`: mark it, too.

        False, and nothing happens, if nothing changes; a fact with plenty of sources takes no more, nor their
        statement: forgetting finds a text by the sources of its fact.
        `said_at`: when its text was said again, if not as the cause says.
        """
        new = () if len(fact.sources) >= MOST_SOURCES else without(sources, fact.sources)
        until, since = later(fact.expires_at, expires_at), max(fact.valid_from, said_at or cause.said_at)
        marked = fact.private or private
        if not new and (until, since, marked) == (fact.expires_at, fact.valid_from, fact.private):
            return False
        joined = (*fact.sources, *new)
        if without(sources, joined):
            cause = replace(cause, statement=None)
        happened = fact.occurred_at or still_said(fact.text, _occurred(cause))
        times: dict[str, object] = {"expires_at": until, "valid_from": since, "occurred_at": happened}
        self.change(cause, fact, "NONE", sources=joined, private=marked, **times)
        return True

    def reword(
        self,
        cause: ChangeCause,
        fact: KnownFact,
        decision: Decision,
        worded: "Worded",
        sources: Sequence[SourceMessage] = (),
        expires_at: datetime | None = None,
    ) -> None:
        """Change a fact's text, or its vector alone."""
        said = still_said(worded.text, _occurred(cause), fact.occurred_at)
        since = fact.valid_from if decision == "REEMBED" else max(fact.valid_from, cause.said_at)
        self.change(
            cause,
            fact,
            decision,
            text=worded.text,
            hash=worded.hash,
            occurred_at=(fact.occurred_at if worded.text == fact.text else None) or said,
            **worded.vector_fields,
            sources=(*fact.sources, *without(sources, fact.sources)),
            expires_at=expires_at or fact.expires_at,
            valid_from=since,
        )

    def retire(
        self,
        cause: ChangeCause,
        fact: KnownFact,
        decision: Decision,
        because: str,
        replaced_by: str | None = None,
    ) -> None:
        """Retire a fact: it holds no longer, and leaves search.

        What was said against it dates this version; expiry, limits and duplicates say nothing about its truth.
        """
        at = max(cause.said_at, fact.valid_from)
        self.change(
            cause,
            fact,
            decision,
            vector=None,
            embedding_model=None,
            embedding_call=None,
            retired=True,
            valid_from=at if because in SAID_AGAINST else fact.valid_from,
            retired_at=at,
            retired_because=because,
            replaced_by=replaced_by,
        )

    def change(self, cause: ChangeCause, fact: KnownFact, decision: Decision, **fields: object) -> None:
        """Record the next version of a fact, with these fields changed."""
        version = max(fact.version, self._given.get(fact.fact_id, 0)) + 1
        following = replace(fact, version=version, **fields)  # pyright: ignore[reportArgumentType]
        self.record(cause, following, decision)

    def record(self, cause: ChangeCause, fact: KnownFact, decision: Decision) -> None:
        """Record a version of a fact, and the event that says so; a new fact has version 1."""
        self._put(fact)
        self.changes.append((cause.delivery, self._event(cause, fact, decision)))

    def _put(self, fact: KnownFact) -> None:
        known = self._newest.get(fact.fact_id)
        if known is not None:
            self._by_hash[known.hash].discard(fact.fact_id)
        self._newest[fact.fact_id] = fact
        self._by_hash.setdefault(fact.hash, set()).add(fact.fact_id)

    def _gone(self, fact: KnownFact) -> bool:
        return bool(self._marks) and (
            self._marks.entity_gone("fact", fact.fact_id, fact.version)
            or self._marks.reaches(self.scope, fact.sources, fact.formed_at)
        )

    def _event(self, cause: ChangeCause, fact: KnownFact, decision: Decision) -> FactChanged:
        return FactChanged(
            cause=cause.delivery.id,
            attempt=cause.delivery.sent_again + 1,
            fact_id=fact.fact_id,
            version=fact.version,
            outcome=self.outcome,
            scope=self.scope,
            text=fact.text,
            hash=fact.hash,
            embedding=_embedding(fact),
            decision=decision,
            reason=cause.reason,
            statement=cause.statement,
            command=cause.command,
            call=cause.call,
            considered=cause.considered,
            sources=fact.sources,
            replaces=fact.replaces,
            replaced_by=fact.replaced_by,
            formed_at=fact.formed_at,
            said_at=fact.said_at,
            occurred_at=fact.occurred_at,
            valid_from=fact.valid_from,
            expires_at=fact.expires_at,
            private=fact.private,
            retired_at=fact.retired_at,
            retired_because=fact.retired_because,  # pyright: ignore[reportArgumentType]
        )


@dataclass(frozen=True, slots=True)
class Worded:
    """A text with its hash and vector."""

    text: str
    hash: str
    embedding: Embedding

    @property
    def vector_fields(self) -> dict[str, object]:
        """The vector as fields of a KnownFact."""
        made = self.embedding
        return {"vector": made.vector, "embedding_model": made.model, "embedding_call": made.call_id}


def later(known: datetime | None, restated: datetime | None) -> datetime | None:
    """Return when a restated fact expires: never earlier than before; None (never) stays."""
    return known if known is None or restated is None else max(known, restated)


def without(sources: Iterable[SourceMessage], known: Iterable[SourceMessage]) -> tuple[SourceMessage, ...]:
    """Return the sources whose message (in this version) is not among the known, each once."""
    seen = {(source_message.message_id, source_message.version) for source_message in known}
    new: dict[tuple[str, str], SourceMessage] = {}
    for source in sources:
        place = (source.message_id, source.version)
        if place not in seen:
            new.setdefault(place, source)
    return tuple(new.values())


def _occurred(cause: ChangeCause) -> datetime | None:
    return None if cause.statement is None else cause.statement.occurred_at


def _age(fact: KnownFact) -> tuple[datetime, str]:
    return fact.formed_at, fact.fact_id


def _embedding(fact: KnownFact) -> Embedding | None:
    if fact.vector is None or fact.embedding_model is None:
        return None
    return Embedding(model=fact.embedding_model, vector=fact.vector, call_id=fact.embedding_call)
