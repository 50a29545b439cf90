"""People's own changes in one memory, applied again in another: sent as commands to its own fact-dedup.

Edits and retirements go to the fact with the same text, else to the nearest fact that means the same; private marks
go to what rests on the same messages. Reflections, pinned sentences and private marks that people gave come along as
they are. No language model is asked, here or by the commands."""

from collections import defaultdict
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from hashlib import blake2b
from typing import Any

from pymongo.asynchronous.database import AsyncDatabase
from pymongo.read_concern import ReadConcern

from eden_memory.assembly.handlers import LIVE, Account, models_of
from eden_memory.directory.directory_store import MongoAudiences
from eden_memory.formation.fact_statements import KnownFact, Near
from eden_memory.formation.memory_commands import added_reflection_id
from eden_memory.formation.near_fact_store import MongoFactSearch
from eden_memory.kafka.topics import load_topics
from eden_memory.memory.memory_batch import fact_hash
from eden_memory.models.question import Embedder
from eden_memory.mongo.documents import document_of
from eden_memory.names import Names, Placement, traceparent
from eden_memory.replay.comparing.matching import related, same, same_figures
from eden_memory.replay.installation import Installation
from eden_memory.replay.reform.reform_settings import formed_by, overridden
from eden_memory.replay.user_edits.user_edits import (
    COMMAND,
    PEOPLE,
    AppliedAdditions,
    AppliedEdits,
    EditedFacts,
    EditOutcome,
    SettledEdit,
    UserEdit,
    change_of,
)
from eden_memory.schemas.documents import Consolidated, Fact, Reflection, Reform
from eden_memory.schemas.events import FactCommanded, MemoryCommanded
from eden_memory.schemas.scopes import Scope
from eden_memory.settings import Settings
from eden_memory.stages.codec import TopicOf, record_of
from eden_memory.stages.handler_run import HandlerRun, UsageLog
from eden_memory.stages.outcome import Publishing
from eden_memory.stages.partition_count_store import PartitionCounts
from eden_memory.stages.publishing import Publisher, new_producer

Row = dict[str, Any]
Marked = Fact | Reflection
ADDED: Row = {"origin": {"$in": ["added", "imported"]}, "retired_at": None}
PROPAGATED = ["user", "group"]
"""Kinds of scopes whose reflections may be propagated."""
BY_PEOPLE = {"$in": sorted(PEOPLE)}
REWORDED: Row = {"$or": [{"command.by": BY_PEOPLE}, {"history.command.by": BY_PEOPLE}]}
REWRITTEN: Row = {"$or": [{"command.action": "edit_blob"}, {"history.command.action": "edit_blob"}]}


@dataclass(frozen=True, slots=True)
class AddedMemory:
    """The command that gives a reflection, as it reads now, or a pinned sentence to another memory."""

    command: MemoryCommanded
    reflection_ids: tuple[str, ...] = ()
    """Of a reflection: its own, the one that the command leads to, and the one that it was made from itself."""

    @classmethod
    def of_reflection(cls, reflection: Reflection) -> "AddedMemory":
        """Return a reflection that people added."""
        command_id, asked = f"{COMMAND}{reflection.id}", reflection.command
        versions = (reflection, *reflection.history)
        first = next((version.command for version in versions if version.version == 1), None)
        given = first.command_id.removeprefix(COMMAND) if first is not None else ""
        command = MemoryCommanded(
            command_id=command_id,
            scope=Scope.of_key(reflection.scope_key, reflection.agent_id),
            action="add_reflection",
            text=reflection.content,
            private=reflection.private,
            sources=reflection.sources,
            by="application" if asked is None else asked.by,
            asked_by=None if asked is None else asked.asked_by,
            reason=None if asked is None else asked.reason,
            asked_at=reflection.formed_at,
            said_at=reflection.said_at,
        )
        return cls(command, (reflection.id, added_reflection_id(command_id), given))

    @classmethod
    def of_pin(cls, blob: Consolidated, sentence: str) -> "AddedMemory":
        """Return a sentence that a blob keeps."""
        name = blake2b(f"{blob.scope_key}\x00{sentence}".encode(), digest_size=16).hexdigest()
        asked = blob.command
        command = MemoryCommanded(
            command_id=f"{COMMAND}pin/{name}",
            scope=Scope.of_key(blob.scope_key, blob.agent_id),
            action="pin",
            text=sentence,
            by="application" if asked is None else asked.by,
            asked_by=None if asked is None else asked.asked_by,
            reason=None if asked is None else asked.reason,
            asked_at=blob.last_consolidated_at,
        )
        return cls(command)


class AddedMemoryStore:
    """The reflections and blobs of one namespace that people had a hand in, and its private memory."""

    def __init__(self, database: AsyncDatabase[Row], names: Names) -> None:
        majority = ReadConcern("majority")
        self._reflections, self._facts, self._blobs = (
            database.get_collection(names[kind.COLLECTION], read_concern=majority)
            for kind in (Reflection, Fact, Consolidated)
        )

    async def added(self) -> AsyncGenerator[AddedMemory]:
        """Yield added reflections that stand, and pinned sentences; none of sessions, as no audience is stored."""
        async for row in self._reflections.find(ADDED).sort("_id"):
            reflection = document_of(Reflection, row)
            if reflection.scope != "session":
                yield AddedMemory.of_reflection(reflection)
        async for row in self._blobs.find({"pins.0": {"$exists": True}}).sort("_id"):
            blob = document_of(Consolidated, row)
            for pin in blob.pins if blob.scope != "session" else ():
                yield AddedMemory.of_pin(blob, pin)

    async def held(self, added: Sequence[AddedMemory]) -> set[str]:
        """Return the ids of the commands whose reflection or sentence this memory has, or has had."""
        ids = [name for item in added for name in item.reflection_ids]
        rows = await self._reflections.find({"_id": {"$in": ids}}, {"_id": 1}).to_list()
        there = {row["_id"] for row in rows}
        keys = [item.command.scope.key for item in added]
        blobs = await self._blobs.find({"_id": {"$in": keys}}, {"pins": 1}).to_list()
        pins = {(row["_id"], pin) for row in blobs for pin in row.get("pins", ())}
        return {
            item.command.command_id
            for item in added
            if there & {*item.reflection_ids} or (item.command.scope.key, item.command.text) in pins
        }

    async def private(self) -> AsyncGenerator[Marked]:
        """Yield what people marked as private, retired or not; formation marks its own again."""
        async for row in self._facts.find({"private": True}).sort("_id"):
            yield document_of(Fact, row)
        async for row in self._reflections.find({"private": True, **REWORDED}).sort("_id"):
            yield document_of(Reflection, row)

    async def unmarked(self, marked: Marked) -> list[Marked]:
        """Return what rests on the messages of private memory, may be marked, and is not.

        Reflections of all scopes that are propagated; of a private fact also the facts of its scope.
        """
        standing: Row = {
            "message_ids": {"$in": list(marked.message_ids)},
            "private": {"$ne": True},
            "retired_at": None,
        }
        reflections = self._reflections.find({**standing, "scope": {"$in": PROPAGATED}}).sort("_id")
        found: list[Marked] = [document_of(Reflection, row) async for row in reflections]
        if isinstance(marked, Fact):
            facts = self._facts.find({**standing, "scope_key": marked.scope_key}).sort("_id")
            found += [document_of(Fact, row) async for row in facts]
        return found

    async def rests_on(self, marked: Marked) -> bool:
        """Tell whether anything rests on the messages of private memory."""
        query = {"message_ids": {"$in": list(marked.message_ids)}}
        collections = self._facts, self._reflections
        return any([await of.find_one(query, {"_id": 1}) is not None for of in collections])

    async def rewritten(self) -> AsyncGenerator[Scope]:
        """Yield the scope of each formed reflection that people reworded or retired, and of each blob."""
        async for row in self._reflections.find({**REWORDED, "origin": {"$nin": ["added", "imported"]}}):
            said = {version["content"] for version in (row, *row.get("history", ()))}
            if len(said) > 1 or row.get("retired_at") is not None:
                yield Scope.of_key(row["scope_key"], row["agent_id"])
        async for row in self._blobs.find(REWRITTEN):
            yield Scope.of_key(row["scope_key"], row["agent_id"])


def stands_by_itself(marked: Marked) -> bool:
    """Tell whether private memory is in force, and no addition of people: those are added with their mark."""
    if marked.retired_at is not None or not marked.message_ids:
        return False
    if isinstance(marked, Reflection):
        return marked.origin not in ("added", "imported")
    commands = (version.command for version in (marked, *marked.history))
    return not any(command is not None and command.action == "add" for command in commands)


def mark_commands(marked: Marked, unmarked: Iterable[Marked]) -> list[FactCommanded | MemoryCommanded]:
    """Return the commands that mark these, too: the same ones, however often they are made."""
    asked = marked.command
    common: Row = {
        "private": True,
        "by": asked.by if asked is not None and asked.by in PEOPLE else "application",
        "asked_by": None if asked is None else asked.asked_by,
        "asked_at": (None if asked is None else asked.asked_at) or marked.formed_at,
    }
    commands: list[FactCommanded | MemoryCommanded] = []
    for found in unmarked:
        name, scope = (
            f"{COMMAND}private/{marked.id}/{found.id}",
            Scope.of_key(found.scope_key, found.agent_id),
        )
        if isinstance(found, Fact):
            commands.append(
                FactCommanded(command_id=name, scope=scope, action="mark", fact_id=found.id, **common)
            )
        else:
            commands.append(
                MemoryCommanded(
                    command_id=name, scope=scope, action="edit_reflection", reflection_id=found.id, **common
                )
            )
    return commands


SOURCE = "reform"
BEFORE = timedelta(minutes=5)
"""A command that was given just before a switch may have been carried out after it."""
TOGETHER = 500
"""Changes of one scope that are settled at a time."""
MOST_NEAR, MOST_TEXTS = 5, 4
SAID_AGAIN = "said again since"
Wanted = Callable[[Scope], bool]


async def carry(
    at: Installation,
    of: Placement,
    to: Placement,
    since: datetime | None,
    wanted: Wanted = lambda _: True,
) -> AppliedEdits:
    """Give the namespace `to` the commands that people gave to `of` since then; repeating it does no harm.

    None: all of them, also those that were reapplied in `of` from elsewhere. `wanted` chooses scopes. `eden run`
    carries them out. EdenError if no texts can be embedded.
    """
    since = None if since is None else since - BEFORE
    counts = PartitionCounts(at.database, at.settings.names)
    publisher = Publisher(partial(new_producer, at.kafka), counts.used)
    try:
        await publisher.start()
        settings = at.settings.placed(to)
        source = of.names(settings.mongodb.prefix)
        return await reapply(at.database, source, settings, publisher, wanted=wanted, since=since)
    finally:
        await publisher.stop()


async def edits_to_apply(
    settings: Settings,
    database: AsyncDatabase[dict[str, Any]],
    live: Placement,
    to: Placement,
    reform: Reform,
) -> AppliedEdits:
    """Return what would become of people's edits of live memory in a reform; nothing is published."""
    source = live.names(settings.mongodb.prefix)
    heard = await MongoAudiences(database, source).heard_by(reform.asked.user_id)
    own = overridden(settings, reform.asked.overrides).placed(to)
    wanted = formed_by(reform.asked, heard)
    return await reapply(database, source, own, None, account=Account(reform.id), wanted=wanted)


async def reapply(
    database: AsyncDatabase[dict[str, Any]],
    source: Names,
    settings: Settings,
    publisher: Publishing | None,
    *,
    account: Account = LIVE,
    wanted: Wanted = lambda _: True,
    since: datetime | None = None,
) -> AppliedEdits:
    """Reapply people's edits of the memory `source` in that of `settings`, with reflections, pins and private marks.

    `since`: only what people asked there then or later, and was not reapplied from elsewhere. `publisher` None:
    only say what would be done.
    """
    models = await models_of(settings, database.client, account)
    topic_of = load_topics(settings.kafka, settings.placement).topic_of
    try:
        sides = [
            EditedMemory.of(database, names, models.embedder.model) for names in (source, settings.names)
        ]
        commands = Commands(publisher, topic_of)
        settled = await reapply_edits(
            sides[0], sides[1], models.embedder, commands, wanted=wanted, since=since
        )
        added = [AddedMemoryStore(database, names) for names in (source, settings.names)]
        additions = await _reapply_additions(added[0], added[1], commands, wanted, since)
        return AppliedEdits(tuple(settled), additions)
    finally:
        await models.close()


@dataclass(frozen=True, slots=True)
class EditedMemory:
    """One of two memories: what people did there, and its facts by text and meaning."""

    own: EditedFacts
    facts: MongoFactSearch

    @classmethod
    def of(cls, database: AsyncDatabase[dict[str, Any]], names: Names, model: str) -> "EditedMemory":
        """Return a memory; `model` is the embedder's of the one that the commands go to."""
        return cls(EditedFacts(database, names), MongoFactSearch(database, names, model))


@dataclass(frozen=True, slots=True)
class Commands:
    """Publishes commands to the topics of `topic_of`; without a publisher, nothing."""

    publisher: Publishing | None
    topic_of: TopicOf

    async def publish(self, commands: Iterable[FactCommanded | MemoryCommanded]) -> None:
        """Return once the brokers have confirmed them."""
        records = [
            record_of(
                command,
                self.topic_of,
                identity=command.command_id,
                source=SOURCE,
                time=command.asked_at,
                traceparent=traceparent(command.ordering_key(), command.command_id),
            )
            for command in commands
        ]
        if self.publisher is not None and records:
            await self.publisher.publish(records)

    async def embedded(self, embedder: Embedder, texts: Sequence[str]) -> Mapping[str, bytes]:
        """Embed texts; calls are counted where anything is published."""
        run, wanted = HandlerRun(), list(dict.fromkeys(texts))
        try:
            async with run:
                made = await embedder.embed(wanted) if wanted else ()
        finally:
            if self.publisher is not None and run.calls:
                usage = UsageLog(self.publisher, self.topic_of, SOURCE)
                usage.add(run.calls)
                await usage.flush()
        return {text: embedding.vector for text, embedding in zip(wanted, made, strict=True)}


async def reapply_edits(
    source: EditedMemory,
    shadow: EditedMemory,
    embedder: Embedder,
    commands: Commands,
    *,
    wanted: Wanted = lambda _: True,
    since: datetime | None = None,
) -> list[SettledEdit]:
    """Give the shadow's fact-dedup the commands that people gave in the source, each to what it matches.

    To be called when the shadow's stages have nothing left to do. Commands have ids that follow from the change and
    what it is applied to, so it may be stopped and called again at any time: what the shadow holds already is among
    `already`. Commands are confirmed by the brokers when it returns, not yet carried out: wait for the lag of the
    shadow's fact-dedup and atlas-writer.
    """
    settled: list[SettledEdit] = []
    for scope in [scope for scope in await source.own.scopes() if wanted(scope)]:
        changes = [
            change
            async for change in source.own.edits(scope)
            if since is None or (change.at >= since and change_of(change.command.command_id) is None)
        ]
        changes.sort(key=lambda change: (change.at, change.fact_id))
        work = _Scope(source, shadow, embedder, commands, scope.key, await _done(shadow, scope.key))
        for start in range(0, len(changes), TOGETHER):
            found = await work.settle(changes[start : start + TOGETHER])
            await commands.publish(edit.command for edit in found if edit.outcome == "applied")
            settled += found
    return settled


async def _done(shadow: EditedMemory, key: str) -> dict[str, KnownFact]:
    """Return what the shadow has had: by change where it was reapplied, by id where it is the very command."""
    named = await shadow.own.commanded(key)
    facts = await shadow.facts.facts(named.values())
    return {change_of(name) or name: facts[fact_id] for name, fact_id in named.items() if fact_id in facts}


@dataclass(slots=True)
class _Scope:
    """Settles the changes of one scope, in the order in which people asked for them."""

    source: EditedMemory
    shadow: EditedMemory
    embedder: Embedder
    commands: Commands
    key: str
    done: Mapping[str, KnownFact]
    taken: set[str] = field(default_factory=set[str])
    """Facts of the shadow that a change was settled by: each takes one change at most."""

    async def settle(self, changes: Sequence[UserEdit]) -> list[SettledEdit]:
        hashes = [fact_hash(text) for change in changes for text in change.texts]
        said = {fact.hash: fact for fact in await self.shadow.facts.with_hash(self.key, hashes)}
        still = await self._still(hashes)
        settled = [self._by_text(change, said, still) for change in changes]
        left = [change for change, found in zip(changes, settled, strict=True) if found is None]
        near = await self._near(left)
        still = await self._still([hit.fact.hash for hits in near.values() for hit in hits])
        by_meaning = {
            change.fact_id: self._by_meaning(change, near[change.fact_id], still) for change in left
        }
        return [
            by_meaning[change.fact_id] if found is None else found
            for change, found in zip(changes, settled, strict=True)
        ]

    def _by_text(
        self, change: UserEdit, said: Mapping[str, KnownFact], still: Mapping[str, set[str]]
    ) -> SettledEdit | None:
        """Settle a change by its texts alone; None: nothing yet.

        `said`: active facts of the shadow by hash; `still`: hash → active facts of the source.
        """
        if change.outdated is not None:
            return SettledEdit(change, "outdated", why=change.outdated)
        known = self.done.get(change.id) or self.done.get(change.command.command_id)
        if known is not None:
            return self._settled(change, "already", known)

        def elsewhere(text: str) -> bool:
            return bool(still.get(fact_hash(text), set[str]()) - {change.fact_id})

        if change.kind == "retire" and elsewhere(change.before[0]):
            return SettledEdit(change, "outdated", why=SAID_AGAIN)
        after = None if change.after is None else said.get(fact_hash(change.after))
        for text in change.before if change.kind != "add" or after is None else ():
            found = said.get(fact_hash(text))
            if found is not None and found.fact_id not in self.taken and not elsewhere(text):
                return self._settled(change, "applied", found)
        if after is None:
            return None
        expires = change.kind == "edit" and change.expires_at not in (None, after.expires_at)
        return self._settled(change, "applied" if expires else "already", after)

    def _by_meaning(
        self, change: UserEdit, near: Sequence[Near], still: Mapping[str, set[str]]
    ) -> SettledEdit:
        """Settle a change by the nearest fact that means the same, and that no fact of the source says."""
        least = same(self.embedder.model)
        for found in near:
            fact, text = found.fact, found.fact.text
            free = fact.fact_id not in self.taken and not still.get(fact.hash)
            figures = any(same_figures(text, said) for said in change.texts[:MOST_TEXTS])
            if free and figures and found.similarity >= least:
                return self._settled(
                    change, "already" if change.kind == "add" else "applied", fact, found.similarity
                )
        if change.kind == "add":
            return SettledEdit(change, "applied")
        if change.kind == "retire" and change.theirs:
            return SettledEdit(change, "already")  # nobody else says it
        if not near:
            return SettledEdit(change, "unmatched")
        nearest = near[0]
        return SettledEdit(change, "unmatched", nearest.fact.fact_id, nearest.fact.text, nearest.similarity)

    async def _near(self, changes: Sequence[UserEdit]) -> dict[str, list[Near]]:
        """Return the facts near any text of each change, by its fact id, the nearest first."""
        asked = [(change, text) for change in changes for text in change.texts[:MOST_TEXTS]]
        vectors = await self.commands.embedded(self.embedder, [text for _, text in asked])
        floor = related(self.embedder.model)
        wanted = [vectors[text] for _, text in asked]
        hits = await self.shadow.facts.nearest(self.key, wanted, MOST_NEAR, floor) if asked else ()
        near: dict[str, list[Near]] = {change.fact_id: [] for change in changes}
        for (change, _), found in zip(asked, hits, strict=True):
            near[change.fact_id] += found
        for found in near.values():
            found.sort(key=lambda hit: (-hit.similarity, hit.fact.fact_id))
        return near

    async def _still(self, hashes: Iterable[str]) -> dict[str, set[str]]:
        still: defaultdict[str, set[str]] = defaultdict(set)
        for fact in await self.source.facts.with_hash(self.key, hashes):
            still[fact.hash].add(fact.fact_id)
        return dict(still)

    def _settled(
        self, change: UserEdit, outcome: EditOutcome, fact: KnownFact, similarity: float | None = None
    ) -> SettledEdit:
        self.taken.add(fact.fact_id)
        return SettledEdit(change, outcome, fact.fact_id, fact.text, similarity)


async def _reapply_additions(
    source: AddedMemoryStore,
    shadow: AddedMemoryStore,
    commands: Commands,
    wanted: Wanted,
    since: datetime | None,
) -> AppliedAdditions:
    """Add what people added in the source, and mark what is private there; repeat as you like."""
    applied = already = unmatched = 0
    chosen = [
        added
        async for added in source.added()
        if wanted(added.command.scope) and (since is None or added.command.asked_at >= since)
    ]
    for start in range(0, len(chosen), TOGETHER):
        page = chosen[start : start + TOGETHER]
        held = await shadow.held(page)
        missing = [added.command for added in page if added.command.command_id not in held]
        applied, already = applied + len(missing), already + len(page) - len(missing)
        await commands.publish(missing)
    left = sum([wanted(scope) async for scope in source.rewritten()])
    marks: dict[str, FactCommanded | MemoryCommanded] = {}
    async for marked in source.private():
        if wanted(Scope.of_key(marked.scope_key, marked.agent_id)):
            found = mark_commands(marked, await shadow.unmarked(marked))
            marks |= {command.subject(): command for command in found}
            unmatched += not found and stands_by_itself(marked) and not await shadow.rests_on(marked)
    await commands.publish(marks.values())
    return AppliedAdditions(applied, already, left, len(marks), unmatched)
