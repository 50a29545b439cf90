"""People's own changes in one memory, applied again in another: as commands to its fact-dedup."""

from collections import defaultdict
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from typing import Any, get_args

from pymongo.asynchronous.database import AsyncDatabase

from eden_memory.assembly.handlers import LIVE, Account, models_of
from eden_memory.formation.known_facts import KnownFact, Near
from eden_memory.kafka.topics import load_topics
from eden_memory.memory.fact_hash import fact_hash
from eden_memory.models.question import Embedder
from eden_memory.names import Names
from eden_memory.placement import Placement
from eden_memory.replay.comparing.matching import related, same, same_figures
from eden_memory.replay.installation import Installation
from eden_memory.replay.user_edits.added_memory_store import MongoAddedMemory
from eden_memory.replay.user_edits.edited_fact_store import EditedMemory, edited_memory
from eden_memory.replay.user_edits.user_edits import (
    AppliedAdditions,
    AppliedEdits,
    EditOutcome,
    Likely,
    SettledEdit,
    Settling,
    UserEdit,
    change_of,
    command_of,
    in_order,
    texts_of,
    wanted_texts,
)
from eden_memory.schemas.events import FactCommanded, MemoryCommanded
from eden_memory.schemas.scopes import Scope
from eden_memory.settings import Settings
from eden_memory.stages.codec import TopicOf, record_of
from eden_memory.stages.handler_run import HandlerRun, UsageLog
from eden_memory.stages.outcome import Publishing, StoredRecord
from eden_memory.stages.partition_count_store import PartitionCounts
from eden_memory.stages.publishing import Publisher, new_producer
from eden_memory.tracing import traceparent

SOURCE = "reform"
BEFORE = timedelta(minutes=5)
"""A command that was given just before a switch may have been carried out after it."""
TOGETHER = 500
"""Changes of one scope that are settled at a time."""
MOST_NEAR, MOST_TEXTS = 5, 4


async def carry(
    at: Installation,
    of: Placement,
    to: Placement,
    since: datetime | None,
    wanted: Callable[[Scope], bool] = lambda _: True,
) -> AppliedEdits:
    """Give the namespace `to` the commands that people gave to `of` since then; repeating it does no harm.

    None: all of them, also those that were reapplied in `of` from elsewhere. `wanted` chooses scopes. `eden run`
    carries them out. EdenError if no texts can be embedded.
    """

    def given_there(change: UserEdit) -> bool:
        """Tell whether people gave it there, and it was not reapplied from elsewhere."""
        return since is None or (change.at >= since and change_of(change.command.command_id) is None)

    since = None if since is None else since - BEFORE
    publisher = Publisher(
        partial(new_producer, at.kafka), PartitionCounts(at.database, at.settings.names).used
    )
    try:
        await publisher.start()
        settings = at.settings.placed(to)
        source = of.names(settings.mongodb.prefix)
        return await reapply(
            at.database, source, settings, publisher, wanted=wanted, theirs=given_there, since=since
        )
    finally:
        await publisher.stop()


async def reapply(
    database: AsyncDatabase[dict[str, Any]],
    source: Names,
    settings: Settings,
    publisher: Publishing | None,
    *,
    account: Account = LIVE,
    wanted: Callable[[Scope], bool] = lambda _: True,
    theirs: Callable[[UserEdit], bool] = lambda _: True,
    since: datetime | None = None,
) -> AppliedEdits:
    """Reapply people's edits of the memory `source` in that of `settings`, as :func:`apply_user_edits` says.

    Reflections that they added and sentences that they pinned, too (`since`: then or later).
    """
    models = await models_of(settings, database.client, account)
    try:
        embedder, topics = models.embedder, load_topics(settings.kafka, settings.placement)
        sides = [edited_memory(database, names, embedder.model) for names in (source, settings.names)]
        edits = await apply_user_edits(
            sides[0], sides[1], embedder, publisher, topics.topic_of, wanted=wanted, theirs=theirs
        )
        added = [MongoAddedMemory(database, names) for names in (source, settings.names)]
        additions = await apply_additions(
            added[0], added[1], publisher, topics.topic_of, wanted=wanted, since=since
        )
        return replace(edits, additions=additions)
    finally:
        await models.close()


async def apply_user_edits(
    source: EditedMemory,
    shadow: EditedMemory,
    embedder: Embedder,
    publisher: Publishing | None,
    topic_of: TopicOf,
    *,
    wanted: Callable[[Scope], bool] = lambda _: True,
    theirs: Callable[[UserEdit], bool] = lambda _: True,
    least: float | None = None,
) -> AppliedEdits:
    """Give the shadow's fact-dedup the commands that people gave in the source, each to what it matches.

    `publisher` None: only say what would be done. `topic_of` is the shadow's. `embedder` is that of the shadow (texts
    that it embedded before are kept, and cost nothing). `wanted` chooses scopes, `theirs` changes. `least`:
    (1 + cosine) / 2 from which two texts mean the same; None: by the embedding model.

    To be called when the shadow's stages have nothing left to do. Commands have ids that follow from the change and
    what it is applied to, so it may be stopped and called again at any time: what the shadow holds already is among
    `already`. Commands are confirmed by the brokers when it returns, not yet carried out: wait for the lag of the
    shadow's fact-dedup and atlas-writer. No language model is asked, here or by the commands.
    """
    least = same(embedder.model) if least is None else least
    work = _Work(source, shadow, embedder, publisher, topic_of, least)
    found: dict[str, list[SettledEdit]] = defaultdict(list)
    for scope in await source.own.scopes():
        if not wanted(scope):
            continue
        async for settled in work.settled(scope, theirs):
            found[settled.outcome].append(settled)
    applied, already, unmatched, outdated = (tuple(found[outcome]) for outcome in get_args(EditOutcome))
    return AppliedEdits(applied, already, unmatched, outdated)


async def apply_additions(
    source: MongoAddedMemory,
    shadow: MongoAddedMemory,
    publisher: Publishing | None,
    topic_of: TopicOf,
    *,
    wanted: Callable[[Scope], bool] = lambda _: True,
    since: datetime | None = None,
) -> AppliedAdditions:
    """Give the shadow the commands that add what people added in the source, and mark what is private there.

    Repeat as you like.
    """
    applied = already = 0
    chosen = [
        added
        async for added in source.added()
        if wanted(added.scope) and (since is None or added.at >= since)
    ]
    for start in range(0, len(chosen), TOGETHER):
        page = chosen[start : start + TOGETHER]
        held = await shadow.held(page)
        commands = [added.commanded() for added in page if added.command_id not in held]
        applied, already = applied + len(commands), already + len(page) - len(commands)
        if publisher is not None and commands:
            await publisher.publish([_record(command, topic_of) for command in commands])
    left = sum([wanted(scope) async for scope in source.rewritten()])
    marks = {
        command.subject(): command
        async for mark in source.private()
        if wanted(mark.scope)
        for command in mark.commands(await shadow.unmarked(mark))
    }
    if publisher is not None and marks:
        await publisher.publish([_record(command, topic_of) for command in marks.values()])
    return AppliedAdditions(applied, already, left, len(marks))


@dataclass(frozen=True, slots=True)
class _Work:
    source: EditedMemory
    shadow: EditedMemory
    embedder: Embedder
    publisher: Publishing | None
    topic_of: TopicOf
    least: float

    async def settled(self, scope: Scope, theirs: Callable[[UserEdit], bool]) -> AsyncGenerator[SettledEdit]:
        """All changes of a scope, their commands given."""
        done, taken = await self._done(scope.key), set[str]()
        waiting: list[UserEdit] = []
        async for change in self.source.own.of(scope):
            if theirs(change):
                waiting.append(change)
            if len(waiting) == TOGETHER:
                for settled in await self._settle(scope.key, waiting, done, taken):
                    yield settled
                waiting = []
        for settled in await self._settle(scope.key, waiting, done, taken):
            yield settled

    async def _settle(
        self, key: str, changes: Sequence[UserEdit], done: Mapping[str, KnownFact], taken: set[str]
    ) -> list[SettledEdit]:
        if not changes:
            return []
        changes = sorted(changes, key=lambda change: (change.at, change.fact_id))
        hashes = [fact_hash(text) for text in texts_of(changes)]
        said = {fact.hash: fact for fact in await self.shadow.facts.with_hash(key, hashes)}
        settling = Settling(said, await self._still(key, hashes), done, taken)
        by_text = {change.fact_id: settling.by_text(change) for change in changes}
        settled = [found for found in by_text.values() if found is not None]
        settled += await self._by_meaning(
            key, settling, [change for change in changes if by_text[change.fact_id] is None]
        )
        settled = in_order(settled)
        await self._command([command_of(found) for found in settled if found.outcome == "applied"])
        return settled

    async def _by_meaning(
        self, key: str, settling: Settling, changes: Sequence[UserEdit]
    ) -> list[SettledEdit]:
        near = await self._near(key, changes)
        nearest = {match.change.fact_id: match for match in sorted(near, key=lambda match: match.similarity)}
        likely = [
            match
            for match in near
            if match.similarity >= self.least and same_figures(match.text, match.fact.text)
        ]
        settling.still = {**settling.still, **await self._still(key, {match.fact.hash for match in likely})}
        likely = await self._not_another(key, [match for match in likely if settling.free(match.fact)])
        settled = settling.best_first(likely)
        met = {found.change.fact_id for found in settled}
        left = [change for change in changes if change.fact_id not in met]
        return [
            *settled,
            *(settling.left(change, nearest.get(change.fact_id)) for change in left),
        ]

    async def _near(self, key: str, changes: Sequence[UserEdit]) -> list[Likely]:
        """Return the facts near any text of a change: each fact of the shadow once, by the text it is nearest to."""
        asked = [(change, text) for change in changes for text in wanted_texts(change, MOST_TEXTS)]
        vectors = await self._vectors(asked)
        floor = min(related(self.embedder.model), self.least)
        hits = await self.shadow.facts.nearest(key, vectors, MOST_NEAR, floor) if vectors else ()
        best: dict[tuple[str, str], Likely] = {}
        for (change, text), found in zip(asked, hits, strict=True):
            for near in found:
                likely = Likely(change, near.fact, near.similarity, text)
                place = change.fact_id, near.fact.fact_id
                if place not in best or best[place].similarity < likely.similarity:
                    best[place] = likely
        return list(best.values())

    async def _vectors(self, asked: Sequence[tuple[UserEdit, str]]) -> list[bytes]:
        """Of each text: the stored one where it is of the same model, else the embedder's."""
        known = {
            change.after: change.vector
            for change, _ in asked
            if change.after is not None
            and change.vector is not None
            and change.embedding_model == self.embedder.model
        }
        missing = list(dict.fromkeys(text for _, text in asked if text not in known))
        vectors = {**known, **await self._embedded(missing)}
        return [vectors[text] for _, text in asked]

    async def _embedded(self, texts: Sequence[str]) -> dict[str, bytes]:
        run = HandlerRun()
        try:
            async with run:
                made = await self.embedder.embed(texts) if texts else ()
        finally:
            if self.publisher is not None and run.calls:
                usage = UsageLog(self.publisher, self.topic_of, SOURCE)
                usage.add(run.calls)
                await usage.flush()
        return {text: embedding.vector for text, embedding in zip(texts, made, strict=True)}

    async def _not_another(self, key: str, likely: Sequence[Likely]) -> list[Likely]:
        """Without the facts that say rather what another active fact of the source says."""
        vectors = {match.fact.fact_id: match.fact.vector for match in likely if match.fact.vector is not None}
        hits = await self.source.facts.nearest(key, list(vectors.values()), 2, self.least)
        others: dict[str, Sequence[Near]] = dict(zip(vectors, hits, strict=True))
        return [
            match
            for match in likely
            if not any(
                other.fact.fact_id != match.change.fact_id and other.similarity > match.similarity
                for other in others.get(match.fact.fact_id, ())
            )
        ]

    async def _still(self, key: str, hashes: Iterable[str]) -> dict[str, set[str]]:
        still: dict[str, set[str]] = defaultdict(set)
        for fact in await self.source.facts.with_hash(key, hashes):
            still[fact.hash].add(fact.fact_id)
        return dict(still)

    async def _done(self, key: str) -> dict[str, KnownFact]:
        """Return what the shadow has had: by change where it was reapplied, by id where it is the very command."""
        named = await self.shadow.own.commanded(key)
        facts = await self.shadow.facts.facts(named.values())
        return {
            change_of(name) or name: facts[fact_id] for name, fact_id in named.items() if fact_id in facts
        }

    async def _command(self, commands: Sequence[FactCommanded]) -> None:
        if self.publisher is not None and commands:
            await self.publisher.publish([_record(command, self.topic_of) for command in commands])


def _record(command: FactCommanded | MemoryCommanded, topic_of: TopicOf) -> StoredRecord:
    return record_of(
        command,
        topic_of,
        identity=command.command_id,
        source=SOURCE,
        time=command.asked_at,
        traceparent=traceparent(command.ordering_key(), command.command_id),
    )
