"""Pushes what may change a context: snapshots, streams, and who is in a session, by MongoDB change streams."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from pymongo import AsyncMongoClient
from pymongo.asynchronous.change_stream import AsyncDatabaseChangeStream
from pymongo.errors import PyMongoError

from eden_memory.logs import LibraryLogger
from eden_memory.mongo.ids import encode_id
from eden_memory.settings import Settings
from schemas.documents import Live, SessionState, Snapshot, Stream

log = LibraryLogger()

What = Literal["scope", "session", "user", "everything"]
Client = AsyncMongoClient[dict[str, Any]]
AWAIT_MS = 500
SILENT_SECONDS = 3.0
"""A server that does not even say that nothing happened for so long is taken for gone."""
AGAIN_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Changed:
    """Something that contexts depend on has changed; `id` typed, "" for everything."""

    what: What
    id: str = ""


@dataclass(frozen=True, slots=True)
class _Watched:
    """A collection, what its changes mean, and the fields that matter (none: all)."""

    collection: str
    what: What
    fields: tuple[str, ...] = ()
    typed: bool = True
    """Its ids are typed text; else they are the application's."""


class ContextWatch:
    """`on_change` for each change; `on_live(False)` while something may be missed, `on_live(True)` from then on.

    One stream, or two where the application's database is not the one that memory is kept in.
    """

    def __init__(
        self,
        client: Client,
        settings: Settings,
        on_change: Callable[[Changed], None],
        on_live: Callable[[bool], None],
    ) -> None:
        self._client, self._databases = client, _watched(settings)
        self._on_change, self._on_live = on_change, on_live
        self._open: set[str] = set()
        self._stopping = False

    async def run(self) -> None:
        """Until cancelled.

        The driver may lose a cancellation that arrives together with an answer: so the streams are told, too.
        """
        self._stopping = False
        following = [asyncio.create_task(self._follow(*one)) for one in self._databases.items()]
        try:
            ended, _ = await asyncio.wait(following, return_when=asyncio.FIRST_COMPLETED)
            for one in ended:
                one.result()
        finally:
            self._stopping = True
            for one in following:
                one.cancel()
            await asyncio.wait(following)
            self._on_live(False)

    async def _follow(self, database: str, watched: Sequence[_Watched]) -> None:
        while not self._stopping:
            try:
                async with asyncio.timeout(SILENT_SECONDS * 4):
                    stream = await self._client[database].watch(
                        _pipeline(watched), max_await_time_ms=AWAIT_MS
                    )
                async with stream:
                    self._opened(database)
                    await self._read(stream, {one.collection: one for one in watched})
            except (PyMongoError, TimeoutError) as error:
                log.warning("contexts are not cached: the change stream broke", reason=type(error).__name__)
            finally:
                self._open.discard(database)
                self._on_live(False)
            if not self._stopping:
                await asyncio.sleep(AGAIN_SECONDS)

    def _opened(self, database: str) -> None:
        """What was changed before is read from now on; what changes after it is told."""
        self._open.add(database)
        if len(self._open) == len(self._databases):
            self._on_change(Changed("everything"))
            self._on_live(True)

    async def _read(
        self, stream: AsyncDatabaseChangeStream[dict[str, Any]], watched: Mapping[str, _Watched]
    ) -> None:
        while stream.alive and not self._stopping:
            async with asyncio.timeout(SILENT_SECONDS):
                event = await stream.try_next()
            if event is not None:
                self._on_change(_changed(event, watched))


def _changed(event: Mapping[str, Any], watched: Mapping[str, _Watched]) -> Changed:
    one = watched.get(event.get("ns", {}).get("coll", ""))
    key = event.get("documentKey", {}).get("_id")
    if one is None or key is None or one.what == "everything":
        return Changed("everything")
    try:
        return Changed(one.what, key if one.typed else encode_id(key))
    except TypeError:
        return Changed("everything")


def _watched(settings: Settings) -> dict[str, list[_Watched]]:
    """By database."""
    names, sessions, agents = settings.names, settings.sessions, settings.agents
    own = [
        _Watched(names[Snapshot.COLLECTION], "scope"),
        _Watched(names[Stream.COLLECTION], "everything"),
        _Watched(names[Live.COLLECTION], "everything"),
        _Watched(names[SessionState.COLLECTION], "session", ("users",)),
    ]
    theirs: list[_Watched] = []
    if sessions.collection is not None:
        fields = (sessions.users, sessions.group_id, sessions.agent_id, sessions.memory, sessions.incognito)
        theirs.append(_Watched(sessions.collection, "session", fields, typed=False))
    if agents.collection is not None:
        fields = (agents.user_memory_enabled, agents.agent_memory_enabled)
        theirs.append(_Watched(agents.collection, "everything", fields))
    if settings.users.collection is not None:
        theirs.append(_Watched(settings.users.collection, "user", (settings.users.memory,), typed=False))
    databases = {settings.mongodb.database: own}
    if theirs:
        databases.setdefault(settings.source_database, []).extend(theirs)
    return databases


def _pipeline(watched: Sequence[_Watched]) -> list[dict[str, Any]]:
    conditions = [{"$and": [{"$eq": ["$ns.coll", one.collection]}, _matters(one)]} for one in watched]
    return [
        {"$match": {"$expr": {"$or": [{"$eq": ["$operationType", "dropDatabase"]}, *conditions]}}},
        {"$project": {"documentKey": 1, "ns": 1, "operationType": 1}},
    ]


def _matters(one: _Watched) -> dict[str, Any]:
    """Whether a change is to be told: an update only if it touches one of the fields, or what they stand in."""
    if not one.fields:
        return {"$literal": True}
    roots = sorted({field.partition(".")[0] for field in one.fields})
    root = {"$arrayElemAt": [{"$split": ["$$path", "."]}, 0]}
    paths = {
        "$concatArrays": [
            {"$map": {"input": {"$objectToArray": _or_empty("updatedFields", {})}, "in": "$$this.k"}},
            _or_empty("removedFields", []),
            {"$map": {"input": _or_empty("truncatedArrays", []), "in": "$$this.field"}},
        ]
    }
    touched = {
        "$anyElementTrue": [
            {"$map": {"input": paths, "as": "path", "in": {"$in": [root, {"$literal": roots}]}}}
        ]
    }
    return {"$or": [{"$ne": ["$operationType", "update"]}, touched]}


def _or_empty(field: str, empty: Any) -> dict[str, Any]:
    return {"$ifNull": [f"$updateDescription.{field}", {"$literal": empty}]}
