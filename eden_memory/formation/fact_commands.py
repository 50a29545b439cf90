"""Commands on one fact, carried out without a model. Pure."""

from collections.abc import Mapping
from typing import Literal

from eden_memory.formation.fact_decisions import NoVector
from eden_memory.formation.fact_statements import KnownFact, command_ref
from eden_memory.formation.scope_facts import ChangeCause, ScopeFacts, Worded
from eden_memory.memory.memory_batch import fact_hash
from eden_memory.schemas.events import FactCommanded, MemoryCommanded
from eden_memory.schemas.events.facts import By
from eden_memory.schemas.provenance import Embedding, newest_said
from eden_memory.stages.stage import Delivery, Erase

Carried = Literal[
    "EDIT", "RETIRE", "REEMBED", "UNMERGE", "MARK", "unknown", "stale", "needless", "other_model"
]
BECAUSE: Mapping[By, str] = {"expiry": "expired", "limit": "limit"}
"""Why a fact was retired, by who wanted it; for all others: it was asked."""


REASON = "dropped"


def refused(delivery: Delivery) -> tuple[Erase, ...]:
    """Return the tombstone of a command that led to nothing and holds a text; none for other records.

    Forgetting finds commands by the memory that they led to, so nobody would end this one later.
    """
    command = delivery.event
    if not isinstance(command, FactCommanded | MemoryCommanded) or command.text is None:
        return ()
    name, scope = command.command_id, command.scope.key
    return (Erase(type(command), name, scope, name, REASON, scope=scope, cause=delivery),)


class CommandExecutor:
    """Carries out commands on `facts`; each call returns what became of its command.

    `unknown`: no such fact, or a retired one; `stale`: it no longer stands at the version that was expected;
    `needless`: nothing would change; `other_model`: the vector asked for is of a model that is not in use.
    """

    def __init__(self, facts: ScopeFacts, vectors: Mapping[str, Embedding], model: str) -> None:
        self._facts, self._vectors, self._model = facts, vectors, model

    def carry_out(self, delivery: Delivery, command: FactCommanded) -> Carried:
        """Carry out a command on a fact that is there: any but one that adds."""
        assert command.fact_id is not None
        fact = self._facts.newest(command.fact_id)
        if fact is None or (fact.retired and command.action != "unmerge"):
            return "unknown"
        said_at = min(command.said_at or command.asked_at, command.asked_at)
        cause = ChangeCause(
            delivery, command.asked_at, said_at, command=command_ref(command), reason=command.reason
        )
        match command.action:
            case _ if command.expected_version not in (None, fact.version):
                done: Carried = "stale"
            case "retire":
                done = self._retire(cause, fact, command)
            case "reembed":
                done = self._reembed(cause, fact, command)
            case "unmerge":
                done = self._unmerge(cause, fact, command)
            case "mark":
                done = self._mark(cause, fact, private=bool(command.private))
            case _:
                done = self._edit(cause, fact, command)
        return done

    def _retire(self, cause: ChangeCause, fact: KnownFact, command: FactCommanded) -> Carried:
        """Retire a fact. One that says the same takes over its sources: the one that a command names, or of a
        duplicate the older one; without it, nothing happens.
        """
        if command.by != "duplicate" and command.replaced_by is None:
            self._facts.retire(cause, fact, "RETIRE", BECAUSE.get(command.by, "asked"))
            return "RETIRE"
        named = command.replaced_by
        same = self._facts.with_hash(fact.hash) if named is None else self._facts.active(named)
        if same is None or same.fact_id == fact.fact_id:
            return "needless"
        self._facts.join(cause, same, fact.sources, fact.expires_at, fact.valid_from, private=fact.private)
        self._facts.retire(cause, fact, "RETIRE", "duplicate", same.fact_id)
        return "RETIRE"

    def _edit(self, cause: ChangeCause, fact: KnownFact, command: FactCommanded) -> Carried:
        assert command.text is not None
        text = " ".join(command.text.split())
        if text == fact.text and command.expires_at in (None, fact.expires_at):
            return "needless"
        text_hash = fact_hash(text)
        other = self._facts.with_hash(text_hash)
        if other is not None and other.fact_id != fact.fact_id:
            until = command.expires_at or fact.expires_at
            self._facts.join(cause, other, fact.sources, until, private=fact.private)
            self._facts.retire(cause, fact, "EDIT", "duplicate", other.fact_id)
        else:
            worded = Worded(text, text_hash, self._vector(text))
            self._facts.reword(cause, fact, "EDIT", worded, expires_at=command.expires_at)
        return "EDIT"

    def _mark(self, cause: ChangeCause, fact: KnownFact, *, private: bool) -> Carried:
        if fact.private == private:
            return "needless"
        self._facts.change(cause, fact, "MARK", private=private)
        return "MARK"

    def _reembed(self, cause: ChangeCause, fact: KnownFact, command: FactCommanded) -> Carried:
        if command.embedding_model != self._model:
            return "other_model"
        if fact.embedding_model == self._model:
            return "needless"
        self._facts.reword(cause, fact, "REEMBED", Worded(fact.text, fact.hash, self._vector(fact.text)))
        return "REEMBED"

    def _unmerge(self, cause: ChangeCause, fact: KnownFact, command: FactCommanded) -> Carried:
        """Undo a retirement for a forgotten fact: another one contradicts it now, or it holds again.

        One that somebody asked for is undone only where a person asks for that, or the undo of an audit.
        """
        expired = fact.expires_at is not None and fact.expires_at <= command.asked_at
        asked = fact.retired_because == "asked" and command.by in ("person", "audit")
        if expired or not (asked or fact.retired_because in ("contradicted", "duplicate")):
            return "needless"
        since = command.said_at or max(fact.said_at, newest_said(fact.sources) or fact.said_at)
        other = None if command.replaced_by is None else self._facts.newest(command.replaced_by)
        if other is not None:
            at = max(other.said_at, since)
            self._facts.change(
                cause, fact, "UNMERGE", valid_from=since, retired_at=at, replaced_by=other.fact_id
            )
            return "UNMERGE"
        same = self._facts.with_hash(fact.hash)
        if same is not None:
            self._facts.join(cause, same, fact.sources, fact.expires_at, since, private=fact.private)
            self._facts.change(
                cause,
                fact,
                "UNMERGE",
                valid_from=since,
                retired_at=max(since, same.said_at),
                retired_because="duplicate",
                replaced_by=same.fact_id,
            )
            return "UNMERGE"
        self._facts.change(
            cause,
            fact,
            "UNMERGE",
            **Worded(fact.text, fact.hash, self._vector(fact.text)).vector_fields,
            sources=fact.sources,
            valid_from=since,
            retired=False,
            retired_at=None,
            retired_because=None,
            replaced_by=None,
        )
        return "UNMERGE"

    def _vector(self, text: str) -> Embedding:
        if text not in self._vectors:
            raise NoVector(text)
        return self._vectors[text]
