"""Reads the visible scopes' snapshots in one query, and who is present beside it."""

import asyncio
from collections import OrderedDict
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from pymongo import ReadPreference
from pymongo.asynchronous.database import AsyncDatabase
from pymongo.read_concern import ReadConcern

from eden_memory.access.presence_store import MongoPresence
from eden_memory.access.sharing import WIDE, private_keys
from eden_memory.access.visible import Asker, Present, VisibleMemory, broad_scopes, view_of, with_unlisted
from eden_memory.directory.audience_store import MongoAudiences
from eden_memory.directory.participants import Streams
from eden_memory.memory.snapshot_projection import recent_fact
from eden_memory.memory.snapshot_store import MongoHidden
from eden_memory.mongo.documents import document_of
from eden_memory.mongo.readable import readable
from eden_memory.schemas.documents import RECENT_FACTS, Fact, Snapshot, Stream
from eden_memory.schemas.scopes import Scope, SharingMode
from eden_memory.settings import Settings

Database = AsyncDatabase[dict[str, Any]]
GROUPS_KNOWN = 10_000


class MongoContextSource:
    """`source` is the application's database, `memory` our own."""

    def __init__(self, source: Database, memory: Database, settings: Settings, streams: Streams) -> None:
        self._presence, self._streams = MongoPresence(source, memory, settings), streams
        self._limits, self._most_facts = settings.limits.formation(), settings.memory.context_facts
        self._facts = memory.get_collection(
            settings.names[Fact.COLLECTION],
            read_preference=ReadPreference.PRIMARY,
            read_concern=ReadConcern("majority"),
        )
        self._snapshots = memory.get_collection(
            settings.names[Snapshot.COLLECTION],
            read_preference=ReadPreference.PRIMARY,
            read_concern=ReadConcern("majority"),
        )
        self._hidden = MongoHidden(memory, settings.names, settings.memory.sharing)
        self._audiences = MongoAudiences(memory, settings.names)
        self._groups: OrderedDict[tuple[str, str | None], str] = OrderedDict()
        """Of a user's last session that had one: guessed, so that its memory is read beside who is present."""

    async def look_up(self, asked: Sequence[Asker]) -> dict[Asker, VisibleMemory]:
        """Return the view of each asker; an unknown user sees the agent's memory."""
        if not asked:
            return {}
        streams = {
            agent_id: await self._streams.of(agent_id) for agent_id in {asker.agent_id for asker in asked}
        }
        guesses = {
            key for asker in asked for key in _keys(asker, self._guess(asker), streams[asker.agent_id])
        }
        sessions = {asker.session_id for asker in asked if asker.session_id is not None}
        present, stored, sharing = await asyncio.gather(
            self._presence.look_up(asked), self._read(guesses, sessions), self._hidden.sharing()
        )
        self._learn(present)
        visible = {key for asker in asked for key in _keys(asker, present[asker], streams[asker.agent_id])}
        if unread := visible - guesses:
            stored |= await self._read(unread, ())
        if self._most_facts > RECENT_FACTS:
            stored = {key: await self._with_more_facts(stored[key]) for key in stored}
        stored = await self._hidden.taken_out(
            stored, _private(stored.values(), streams, sharing, _learning(present))
        )
        audiences = await self._audiences.of(with_unlisted(asked, present, stored.values()))
        return {
            asker: view_of(
                asker, present[asker], streams[asker.agent_id], stored, self._limits, sharing, audiences
            )
            for asker in asked
        }

    async def _with_more_facts(self, snapshot: Snapshot) -> Snapshot:
        """Add as many of the newest facts as a context may show: a snapshot itself holds the newest 40."""
        if snapshot.active_facts <= len(snapshot.recent_facts):
            return snapshot
        found = self._facts.find(
            {"scope_key": snapshot.scope_key, "active": True},
            {"embedding": 0, "history": 0},
            sort=[("valid_from", -1), ("_id", 1)],
            limit=self._most_facts,
        )
        rows = readable("fact", await found.to_list(), partial(document_of, Fact))
        facts = [recent_fact(fact) for fact in rows]
        return snapshot.model_copy(update={"recent_facts": tuple(facts)})

    async def users(self, asked: Sequence[Asker]) -> dict[Asker, frozenset[str] | None]:
        """Return who is in each session now, UNNAMED among them; None: unknown."""
        return await self._presence.users(asked) if asked else {}

    def _guess(self, asked: Asker) -> Present:
        """Guess the usual session: one user, and the group of the last time."""
        users = frozenset((asked.user_id,) if asked.user_id is not None else ())
        return Present(users, self._groups.get(_who(asked)))

    def _learn(self, present: Mapping[Asker, Present]) -> None:
        for asked, now in present.items():
            if now.group_id is not None:
                self._groups[_who(asked)] = now.group_id
                self._groups.move_to_end(_who(asked))
        while len(self._groups) > GROUPS_KNOWN:
            self._groups.popitem(last=False)

    async def _read(self, keys: Iterable[str], sessions: Iterable[str]) -> dict[str, Snapshot]:
        by_key, by_session = {"_id": {"$in": list(keys)}}, {"session_id": {"$in": list(sessions)}}
        query: dict[str, Any] = {"$or": [by_key, by_session]} if sessions else by_key
        rows = await self._snapshots.find(query).to_list()
        found = readable("snapshot", rows, partial(document_of, Snapshot))
        return {snapshot.scope_key: snapshot for snapshot in found}


def _who(asked: Asker) -> tuple[str, str | None]:
    return asked.agent_id, asked.user_id if asked.user_id is not None else asked.session_id


def _keys(asked: Asker, present: Present, streams: Mapping[str, Stream]) -> list[str]:
    return [scope.key for scope in broad_scopes(asked, present, streams)]


def _learning(present: Mapping[Asker, Present]) -> set[str]:
    return {asker.agent_id for asker, now in present.items() if now.learns}


def _private(
    stored: Iterable[Snapshot],
    streams: Mapping[str, Mapping[str, Stream]],
    sharing: SharingMode,
    learning: Collection[str],
) -> frozenset[str]:
    """Return the keys of scopes in which memory with users' sources is hidden."""
    keys = (
        private_keys(
            [Scope.of_key(snapshot.scope_key, snapshot.agent_id)],
            streams[snapshot.agent_id],
            sharing,
            learns=snapshot.agent_id in learning,
        )
        for snapshot in stored
        if snapshot.scope in WIDE and snapshot.agent_id in streams
    )
    return frozenset[str]().union(*keys)
