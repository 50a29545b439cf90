"""Audit a store's facts: stream them scope by scope, compare the likely pairs, read the messages of the newest.

Texts of one scope are in memory at a time, vectors of 500 pairs. However many there are, 100,000 facts are read,
20,000 pairs compared by meaning, and the messages of 5,000 facts read.
"""

from collections import defaultdict
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from typing import Any

import numpy as np
from pymongo.asynchronous.database import AsyncDatabase

from eden_memory.context.written_message_store import WrittenMessages
from eden_memory.forgetting.mark_store import MongoBatchMarks
from eden_memory.forgotten import ids_of
from eden_memory.formation.audit_rules import (
    Alike,
    AuditedFact,
    Junk,
    JunkKind,
    Likeness,
    alike,
    by_itself,
    by_messages,
    repeats,
)
from eden_memory.memory.snapshot_store import MongoHidden
from eden_memory.mongo.client import server_time
from eden_memory.mongo.documents import document_of, packed_of
from eden_memory.replay.comparing.matching import same
from eden_memory.schemas.documents import Fact, Snapshot
from eden_memory.schemas.scopes import Scope
from eden_memory.settings import Settings
from eden_memory.tasks import in_thread

Row = dict[str, Any]
MOST_FACTS, MOST_PAIRS, MOST_READ = 100_000, 20_000, 5_000
TOGETHER = 500
FIELDS = dict.fromkeys(
    (
        "scope_key",
        "agent_id",
        "content",
        "version",
        "valid_from",
        "expires_at",
        "occurred_at",
        "message_ids",
        "command.action",
        "history.content",
        "history.command.action",
    ),
    1,
)
GIVEN = ("add", "edit")
"""Commands that give a fact its text; later ones (`private`, a new vector) leave it."""


@dataclass(slots=True)
class FoundJunk:
    """What an audit found; a fact is junk of one kind."""

    facts: int = 0
    with_messages: int = 0
    """Facts whose messages were all at hand: those of which `quote` and `unsupported` are known."""
    whole: bool = True
    """Whether no bound was reached."""
    junk: dict[str, Junk] = field(default_factory=dict[str, Junk])
    """By the fact's id."""

    def add(self, junk: Junk) -> None:
        """Add a fact, unless it or what makes it needless is junk already."""
        if junk.because is None or junk.because.fact_id not in self.junk:
            self.junk.setdefault(junk.fact.fact_id, junk)

    def of(self, kind: JunkKind) -> list[Junk]:
        """Return the facts of one kind."""
        return [junk for junk in self.junk.values() if junk.kind == kind]


class MemoryAudit:
    """Reads one namespace; `source` is the application's database."""

    def __init__(self, database: AsyncDatabase[Row], source: AsyncDatabase[Row], settings: Settings) -> None:
        self._names, self._settings = settings.names, settings
        self._facts = database[self._names[Fact.COLLECTION]]
        self._snapshots = database[self._names[Snapshot.COLLECTION]]
        self._hidden = MongoHidden(database, self._names)
        self._written = WrittenMessages(source, database, settings)
        self._forgotten = MongoBatchMarks(database, self._names)
        self._client = database.client

    async def of(self, wanted: Mapping[str, Any]) -> FoundJunk:
        """Audit the scopes that a query of snapshots finds: {} for all."""
        found, now = FoundJunk(), await server_time(self._client)
        gone = await self._hidden.deleted_just_now(forgets=self._settings.messages.forgets)
        pairs_left = MOST_PAIRS
        async for stored in self._scopes(wanted, found):
            hidden = await self._hidden.resting_on(gone, [stored[0].scope_key])
            facts = [fact for fact in stored if fact.fact_id not in hidden]
            found.facts += len(facts)
            for fact in facts:
                if (kind := by_itself(fact, now)) is not None:
                    found.add(Junk(kind, fact))
            pairs = await in_thread(partial(_pairs, facts, pairs_left))
            pairs_left -= len(pairs)
            found.whole &= pairs_left > 0
            await self._add_by_messages(facts, pairs, found)
            for start in range(0, len(pairs), TOGETHER):
                some = pairs[start : start + TOGETHER]
                for junk in repeats(some, await self._similar(some), self._settings.memory.similar):
                    found.add(junk)
        return found

    async def shown(self, facts: Iterable[AuditedFact]) -> frozenset[str]:
        """Return the ids of facts that are still as they were read, and that nobody has asked to forget since."""
        read = {fact.fact_id: fact.version for fact in facts}
        rows = self._facts.find({"_id": {"$in": list(read)}, "active": True})
        stored = [document_of(Fact, row) async for row in rows]
        gone = await self._hidden.deleted_just_now(forgets=self._settings.messages.forgets)
        hidden = await self._hidden.resting_on(gone, {fact.scope_key for fact in stored})
        scopes = {fact.id: Scope.of_key(fact.scope_key, fact.agent_id) for fact in stored}
        named = {("fact", fact.id) for fact in stored}.union(
            *(ids_of(scopes[fact.id], fact.sources) for fact in stored)
        )
        leaving = await self._written.being_forgotten()  # a request goes once its mark stands
        marks = await self._forgotten.among(named)
        return frozenset(
            fact.id
            for fact in stored
            if fact.version == read[fact.id]
            and fact.id not in hidden
            and not marks.entity_gone("fact", fact.id, fact.version)
            and not any(
                known.reaches(scopes[fact.id], fact.sources, fact.formed_at) for known in (marks, leaving)
            )
        )

    async def _scopes(self, wanted: Mapping[str, Any], found: FoundJunk) -> AsyncGenerator[list[AuditedFact]]:
        """Yield each scope's active facts, newest first."""
        named = self._snapshots.find({**wanted, "active_facts": {"$gt": 0}}, {"_id": 1}).sort("_id")
        left = MOST_FACTS
        async for scope in named:
            if left <= 0:
                found.whole = False
                return
            rows = self._facts.find({"scope_key": scope["_id"], "active": True}, FIELDS)
            facts = [_fact(row) async for row in rows.sort([("valid_from", -1), ("_id", 1)]).limit(left + 1)]
            found.whole &= len(facts) <= left
            if facts := facts[:left]:
                left -= len(facts)
                yield facts

    async def _similar(self, pairs: Sequence[Alike]) -> dict[tuple[str, str], Likeness]:
        """Return how near each pair is whose vectors one model made."""
        ids = {fact.fact_id for pair in pairs for fact in pair}
        rows = self._facts.find({"_id": {"$in": list(ids)}}, {"embedding": 1, "embedding_model": 1})
        vectors = {
            row["_id"]: (row.get("embedding_model"), packed_of(row.get("embedding"))) async for row in rows
        }
        similar: dict[tuple[str, str], Likeness] = {}
        for older, newer in pairs:
            of_older, of_newer = vectors.get(older.fact_id), vectors.get(newer.fact_id)
            if of_older and of_newer and of_older[1] and of_newer[1] and of_older[0] == of_newer[0]:
                one, two = (np.frombuffer(vector, "<f4") for vector in (of_older[1], of_newer[1]))
                lengths = float(np.linalg.norm(one) * np.linalg.norm(two)) or 1.0
                similarity = (1 + float(one @ two) / lengths) / 2
                similar[older.fact_id, newer.fact_id] = Likeness(similarity, same(str(of_older[0])))
        return similar

    async def _add_by_messages(
        self, facts: Sequence[AuditedFact], pairs: Sequence[Alike], found: FoundJunk
    ) -> None:
        """Add what the messages of the scope's newest facts say of them, where all of their texts are stored.

        Where memory is written in one language, words of messages in another prove nothing.
        """
        if self._settings.memory.language is not None:
            return
        older: dict[str, list[AuditedFact]] = defaultdict(list)
        for pair in pairs:
            older[pair.newer.fact_id].append(pair.older)
        resting = [fact for fact in facts if fact.message_ids and not fact.commanded]
        for start in range(0, len(resting), TOGETHER):
            some = resting[start : start + TOGETHER]
            if found.with_messages >= MOST_READ:
                found.whole = False
                return
            texts = await self._written.texts_of({name for fact in some for name in fact.message_ids})
            for fact in some:
                if any(name not in texts for name in fact.message_ids):
                    continue
                found.with_messages += 1
                messages = [texts[name] for name in fact.message_ids]
                if (junk := by_messages(fact, messages, older[fact.fact_id])) is not None:
                    found.add(junk)


def _pairs(facts: Sequence[AuditedFact], most: int) -> list[Alike]:
    return list(islice(alike(facts), most))


def _fact(row: Row) -> AuditedFact:
    versions: list[Row] = [row, *row.get("history", ())]
    return AuditedFact(
        row["_id"],
        row["version"],
        row["scope_key"],
        row["agent_id"],
        row["content"],
        row["valid_from"],
        row.get("expires_at"),
        row.get("occurred_at"),
        tuple(row.get("message_ids", ())),
        commanded=any(
            _action(version) in GIVEN for version in versions if version["content"] == row["content"]
        ),
    )


def _action(version: Row) -> str | None:
    command: Row = version.get("command") or {}
    return command.get("action")
