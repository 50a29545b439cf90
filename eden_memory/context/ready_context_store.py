"""`memory_contexts`: ready contexts, found by the scopes that went into them, and what they are made of.

An index with a time to live removes those whose session is no longer active (memory_indexes).
"""

import asyncio
from collections import OrderedDict, defaultdict
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Iterable, Mapping, Sequence, Set
from datetime import datetime, timedelta
from functools import partial
from itertools import islice
from typing import Any, TypeVar

from pymongo import DeleteOne, InsertOne, ReadPreference, ReplaceOne, UpdateOne
from pymongo.asynchronous.collection import AsyncCollection
from pymongo.asynchronous.database import AsyncDatabase
from pymongo.errors import BulkWriteError
from pymongo.read_concern import ReadConcern

from eden_memory.access.presence_store import MongoPresence
from eden_memory.access.visible import (
    UNNAMED,
    WIDE,
    Asker,
    Present,
    VisibleMemory,
    broad_scopes,
    private_keys,
    view_of,
    with_unlisted,
)
from eden_memory.context.context_feed import HeardReads
from eden_memory.context.ready_contexts import Built, Concerned, Ready
from eden_memory.directory.directory_store import MongoAudiences
from eden_memory.directory.participants import Streams
from eden_memory.memory.memory_index_store import BEGINNING
from eden_memory.memory.snapshot_projection import recent_fact
from eden_memory.memory.snapshot_store import MongoHidden
from eden_memory.mongo.documents import document_of, row_of
from eden_memory.mongo.lenient_decoding import readable
from eden_memory.mongo.refusals import only_duplicates
from eden_memory.names import Names
from eden_memory.schemas.documents import RECENT_FACTS, Context, Fact, Snapshot, Stream
from eden_memory.schemas.scopes import Scope, SharingMode
from eden_memory.settings import Settings

PAGE, CLAUSES = 500, 200

SESSION_TAG = "session:"

Row = dict[str, Any]

OF_PEOPLE = ("user:", "group:")

FIELDS = {
    "session_id": 1,
    "user_id": 1,
    "agent_id": 1,
    "built_at": 1,
    "active_until": 1,
    "users": 1,
    "scope_keys": 1,
}


class MongoContexts:
    """Reads and writes the collections of one namespace."""

    def __init__(self, database: AsyncDatabase[Row], names: Names) -> None:
        self._contexts: AsyncCollection[Row] = database[names[Context.COLLECTION]]

    async def known(self, asked: Iterable[Asker]) -> dict[Asker, Ready]:
        """Those of these that there are."""
        wanted = {Ready(asker, datetime.min).name: asker for asker in asked}
        rows = await self._contexts.find({"_id": {"$in": list(wanted)}}, FIELDS).to_list() if wanted else []
        return {wanted[row["_id"]]: _ready(row) for row in rows}

    async def concerned(
        self, scope_keys: Iterable[str], now: datetime, most: int
    ) -> dict[str, Sequence[Ready]]:
        """By scope key, up to `most` active contexts that it went into: one query where they are few."""
        wanted = list(dict.fromkeys(scope_keys))
        rows = await self._find({"scope_keys": {"$in": wanted}}, now).limit(most).to_list()
        if len(rows) == most and len(wanted) > 1:
            return {key: (await self.concerned([key], now, most))[key] for key in wanted}
        found: dict[str, list[Ready]] = {key: [] for key in wanted}
        for row in rows:
            ready = _ready(row)
            for key in found.keys() & set(row["scope_keys"]):
                found[key].append(ready)
        return dict(found)

    async def active(
        self, scope_keys: Iterable[str] | None, now: datetime
    ) -> AsyncGenerator[Sequence[Ready]]:
        """All active contexts that any of the scopes went into (None: all there are), page by page."""
        of: Row = {} if scope_keys is None else {"scope_keys": {"$in": list(scope_keys)}}
        async for page in self._pages(of, now):
            yield page

    async def stale(self, now: datetime) -> AsyncGenerator[Sequence[Ready]]:
        """The active contexts that show a fact which has expired, page by page."""
        async for page in self._pages({"stale_at": {"$gt": BEGINNING, "$lte": now}}, now):
            yield page

    async def _pages(self, of: Row, now: datetime) -> AsyncGenerator[Sequence[Ready]]:
        last = ""
        while True:
            found = self._find({**of, "_id": {"$gt": last}}, now).sort("_id").limit(PAGE)
            rows = await found.to_list()
            if rows:
                yield [_ready(row) for row in rows]
            if len(rows) < PAGE:
                return
            last = rows[-1]["_id"]

    async def of_sessions(self, session_ids: Iterable[str], now: datetime) -> AsyncGenerator[Sequence[Ready]]:
        """The active contexts of sessions, page by page."""
        async for page in self._pages({"session_id": {"$in": list(session_ids)}}, now):
            yield page

    async def with_new_messages(
        self, tags: Iterable[str], now: datetime, written: Iterable[tuple[str, str]] = ()
    ) -> AsyncGenerator[Sequence[Ready]]:
        """Yield the active contexts that new messages concern, in one query.

        Those that show messages with one of these tags (Context.recent_from), and those of users who wrote
        (session, user) in their other sessions.
        """
        shown = list(tags)
        clauses: list[Row] = [{"recent_from": {"$in": shown}}] if shown else []
        clauses += ({"user_id": user, "session_id": {"$ne": session}} for session, user in written)
        left = iter(clauses)
        while some := list(islice(left, CLAUSES)):
            async for page in self._pages({"$or": some}, now):
                yield page

    async def open(self, ready: Iterable[Ready], now: datetime) -> None:
        """Make an empty context of each that there is none of, to be built with the next refresh."""
        left = iter(ready)
        while some := list(islice(left, PAGE)):
            rows = [_row(Built(opened, "", {}, (), (), now, opened.active_until)) for opened in some]
            writes = [UpdateOne({"_id": row.pop("_id")}, {"$setOnInsert": row}, upsert=True) for row in rows]
            await self._contexts.bulk_write(writes, ordered=False)

    async def concerning(self, written: Iterable[tuple[str, str]], now: datetime) -> Concerned:
        """The active contexts that authors concern: (session, author). One query for both kinds."""
        authors: dict[str, set[str]] = defaultdict(set)
        for session, author in written:
            authors[session].add(author)
        lacking: dict[str, Ready] = {}
        overhearing: dict[str, Ready] = {}
        left = iter(authors)
        while some := list(islice(left, CLAUSES)):
            clauses = [
                clause
                for session in some
                for author in authors[session]
                for clause in (
                    {"session_id": session, **_without(author)},
                    {"recent_from": SESSION_TAG + session, "user_id": {"$ne": author}},
                )
            ]
            async for row in self._find({"$or": clauses}, now, {**FIELDS, "recent_from": 1}):
                if _lacks(row, authors):
                    lacking[row["_id"]] = _ready(row)
                if _overhears(row, authors):
                    overhearing[row["_id"]] = _ready(row)
        return Concerned(list(lacking.values()), list(overhearing.values()))

    async def withdraw(self, ready: Sequence[Ready]) -> None:
        """Empty contexts at once; whoever was building one of them finds another building, and builds again."""
        empty: Row = {
            "xml": "",
            "users": [],
            "scopes": {"$literal": {}},
            "recent_from": [],
            "built_at": {"$add": ["$built_at", 1]},
        }
        names = {"_id": {"$in": [context.name for context in ready]}}
        if ready:
            await self._contexts.update_many(names, [{"$unset": "scopes"}, {"$set": empty}])

    async def put(self, built: Sequence[Built]) -> Sequence[Ready]:
        """Store each where nobody else has built it meanwhile; those that somebody has are returned."""
        if not built:
            return []
        rows = [_row(context) for context in built]
        writes = [_write(context, row) for context, row in zip(built, rows, strict=True)]
        try:
            result = await self._contexts.bulk_write(writes, ordered=False)
            if result.matched_count + result.inserted_count == len(built):
                return []
        except BulkWriteError as error:
            only_duplicates(error)
        return await self._overtaken(built, rows)

    async def _overtaken(self, built: Sequence[Built], rows: Sequence[Row]) -> list[Ready]:
        """Those of which something else is stored; from the same revisions comes the same context."""
        names = {"_id": {"$in": [row["_id"] for row in rows]}}
        found = self._contexts.find(names, {"built_at": 1, "scopes": 1, "users": 1})
        stored = {row["_id"]: _made(row) async for row in found}
        ours = {row["_id"]: _made(row) for row in rows}
        return [
            context.before
            for context in built
            if stored.get(context.before.name) != ours[context.before.name]
        ]

    async def remove(self, gone: Sequence[Ready]) -> None:
        """Their users are no longer in the session."""
        if gone:
            await self._contexts.bulk_write([DeleteOne({"_id": ready.name}) for ready in gone], ordered=False)

    def _find(self, of: Row, now: datetime, fields: Mapping[str, int] = FIELDS) -> Any:
        return self._contexts.find({**of, "active_until": {"$gt": now}}, fields)


def _without(author: str) -> Row:
    """Return which contexts do not hold for an author: those that show a user's or group's memory, if unnamed."""
    return (
        {"scope_keys": {"$regex": f"^({'|'.join(OF_PEOPLE)})"}}
        if author == UNNAMED
        else {"users": {"$ne": author}}
    )


def _is_of_user(row: Row) -> bool:
    return any(key.startswith(OF_PEOPLE) for key in row.get("scope_keys", ()))


def _lacks(row: Row, authors: Mapping[str, Set[str]]) -> bool:
    writing = authors.get(row["session_id"], frozenset[str]())
    return (UNNAMED in writing and _is_of_user(row)) or not writing - {UNNAMED} <= set(row.get("users", ()))


def _overhears(row: Row, authors: Mapping[str, Set[str]]) -> bool:
    shown = (
        tag.removeprefix(SESSION_TAG) for tag in row.get("recent_from", ()) if tag.startswith(SESSION_TAG)
    )
    return any(authors.get(session, frozenset()) - {row.get("user_id")} for session in shown)


def _ready(row: Row) -> Ready:
    asked = Asker(row["agent_id"], row["session_id"], row.get("user_id"))
    return Ready(asked, row["active_until"], row["built_at"], tuple(row.get("users", ())), _is_of_user(row))


def _made(row: Row) -> tuple[Any, ...]:
    """When a context was built, from what, and for whom."""
    return row["built_at"], row["scopes"], list(row.get("users", ()))


def _row(built: Built) -> Row:
    """Later than the building that it replaces, so that the two can be told apart."""
    before, asked = built.before.built_at, built.before.asked
    later = before + timedelta(milliseconds=1) if before is not None else built.built_at
    return row_of(
        Context(
            _id=built.before.name,
            session_id=asked.session_id or "",
            user_id=asked.user_id,
            agent_id=asked.agent_id,
            xml=built.xml,
            scopes=built.revisions,
            scope_keys=built.scope_keys,
            users=built.users,
            built_at=max(built.built_at, later),
            active_until=built.active_until,
            stale_at=built.stale_at,
            recent_from=built.recent_from,
        )
    )


def _write(built: Built, row: Row) -> InsertOne[Row] | ReplaceOne[Row]:
    if built.before.built_at is None:
        return InsertOne(row)
    return ReplaceOne({"_id": row["_id"], "built_at": built.before.built_at}, row)


Database = AsyncDatabase[dict[str, Any]]

GROUPS_KNOWN = 10_000
T = TypeVar("T")


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
        self._forgets = settings.messages.forgets
        self._audiences = MongoAudiences(memory, settings.names)
        self._groups: OrderedDict[tuple[str, str | None], str] = OrderedDict()
        """Of a user's last session that had one: guessed, so that its memory is read beside who is present."""

    async def look_up(
        self,
        asked: Sequence[Asker],
        heard: HeardReads | None = None,
        on_keys: Callable[[Collection[str]], None] = lambda _: None,
    ) -> dict[Asker, VisibleMemory]:
        """Return the view of each asker; an unknown user sees the agent's memory.

        `heard` keeps the answers that concern all askers. `on_keys` is told the scopes as soon as they are known.
        """
        if not asked:
            return {}
        streams = {
            agent_id: await self._streams.of(agent_id) for agent_id in {asker.agent_id for asker in asked}
        }
        guesses = {
            key for asker in asked for key in _keys(asker, self._guess(asker), streams[asker.agent_id])
        }
        sessions = {asker.session_id for asker in asked if asker.session_id is not None}
        present, stored, sharing, deleted = await asyncio.gather(
            self._presence.look_up(asked),
            self._read(guesses, sessions),
            _kept(heard, "sharing", self._hidden.sharing),
            _kept(heard, "deletions", partial(self._hidden.deleted_just_now, forgets=self._forgets)),
        )
        self._learn(present)
        visible = {key for asker in asked for key in _keys(asker, present[asker], streams[asker.agent_id])}
        on_keys(visible)
        if unread := visible - guesses:
            stored |= await self._read(unread, ())
        if self._most_facts > RECENT_FACTS:
            stored = {key: await self._with_more_facts(stored[key]) for key in stored}
        hidden = await self._hidden.resting_on(deleted, stored)
        private = _private(stored.values(), streams, sharing, _learning(present))
        stored = await self._hidden.taken_out(stored, private | hidden)
        audiences = await self._audiences.of(with_unlisted(asked, present, stored.values()))
        return {
            asker: view_of(
                asker,
                present[asker],
                streams[asker.agent_id],
                stored,
                self._limits,
                sharing,
                audiences,
                hidden,
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

    async def scopes_of_session(self, session_id: str) -> set[str]:
        """Return the scopes of memory that rests on a session's messages."""
        return await self._hidden.scopes_of_session(session_id)

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


async def _kept(heard: HeardReads | None, name: str, read: Callable[[], Awaitable[T]]) -> T:
    return await (read() if heard is None else heard.get(name, read))


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
