"""Namespaces: their names, what belongs to each, and `<prefix>live`, the pointer that is moved atomically."""

import asyncio
import re
from collections.abc import AsyncGenerator, Collection, Iterable, Mapping
from contextlib import aclosing, suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from pymongo import ReadPreference
from pymongo.asynchronous.client_session import AsyncClientSession
from pymongo.asynchronous.database import AsyncDatabase
from pymongo.errors import CollectionInvalid, DuplicateKeyError, OperationFailure, PyMongoError
from pymongo.read_concern import ReadConcern
from pymongo.write_concern import WriteConcern

from eden_memory.errors import EdenError, MemoryRestored, NotFound
from eden_memory.logs import LibraryLogger
from eden_memory.memory.memory_index_store import MEMORY_INDEXES
from eden_memory.mongo.client import server_time
from eden_memory.mongo.validators import validator_of
from eden_memory.names import ORIGINAL, Placement, collections_of
from eden_memory.schemas.documents import (
    Consolidated,
    Document,
    Fact,
    Live,
    Namespace,
    Reflection,
    Snapshot,
    StoredBlob,
)
from eden_memory.settings import Settings

KINDS: tuple[type[Document], ...] = (Fact, Reflection, Consolidated, StoredBlob, Snapshot)
"""The documents that the writer writes, and that are compared."""
WRITER = "atlas-writer"
_NAME = re.compile(r"[a-z][a-z0-9-]{0,31}")
RESERVED = ("live", ORIGINAL)
READY = ("caught_up", "verified")
"""States in which a namespace may become live, and is kept true."""


Row = dict[str, Any]
NOT_FOUND = 26
log = LibraryLogger()
KEY = "live"
AWAIT_MS = 5_000
SILENT_SECONDS = 12.0
"""Seconds after which a server that does not even say that nothing happened counts as gone: what a start loads may
hold the event loop for some of them."""
AGAIN_SECONDS = 0.5


def checked(name: str) -> str:
    """The name itself; an EdenError where it could be mistaken for something else."""
    if name in RESERVED or not _NAME.fullmatch(name):
        raise EdenError(
            f"{name!r} cannot name a namespace",
            f"Lower-case letters, digits and hyphens, a letter first, at most 32; neither of {RESERVED}.",
        )
    return name


def unknown(name: str) -> EdenError:
    """There is none of this name, or none any more."""
    return NotFound(f"there is no namespace {name}", "eden namespace list")


def prefix_of(live: str, name: str) -> str:
    """The prefix of a namespace's collections: never that of another's, as no name has an underscore."""
    return live + collections_of(checked(name))


def stage_of(name: str) -> str:
    """The name of the writer that fills a namespace; its group is this behind the groups' prefix."""
    return f"{WRITER}.{checked(name)}"


def sweeping_of(writer: str) -> str:
    """The stage, or the group, that takes what is forgotten out of a rebuild that somebody has stopped."""
    return f"{writer}.forgetting"


@dataclass(frozen=True, slots=True)
class Beside:
    """The namespaces that are kept up to date while another is live."""

    silent: tuple[Placement, ...]
    """A writer writes it; what it would announce, another says."""
    forgetting: tuple[Placement, ...]
    """Of other pipelines than live's, one each: its forgetting and its writer."""
    sweeping: tuple[Placement, ...] = ()
    """Rebuilds that are not filled to their end: only what is forgotten leaves them."""


def beside(live: Placement, namespaces: Iterable[Namespace]) -> Beside:
    """Every namespace that is not dropped, also the original, which has a document only once another was live.

    A reform's memory holds all that its topics do, whether or not it is formed to its end.
    """
    known = list(namespaces)
    there = [
        placement_of(namespace) for namespace in known if namespace.state in READY or half_formed(namespace)
    ]
    if all(namespace.id != ORIGINAL for namespace in known):
        there.append(Placement())
    others = sorted(
        (placement for placement in there if placement != live),
        key=lambda placement: (placement.memory != placement.pipeline, placement.memory),
    )
    first = {other.pipeline: other for other in reversed(others) if other.pipeline != live.pipeline}
    return Beside(
        silent=tuple(other for other in others if other not in first.values()),
        forgetting=tuple(other for other in others if other in first.values()),
        sweeping=tuple(
            placement_of(namespace)
            for namespace in known
            if namespace.kind == "rebuild" and namespace.state == "filling"
        ),
    )


def half_formed(namespace: Namespace) -> bool:
    """A reform that is being formed, or was left."""
    return namespace.kind == "reform" and namespace.state == "filling"


def neglected(
    live: Placement, namespaces: Iterable[Namespace], unrestored: Collection[str]
) -> list[Namespace]:
    """Those in which what is forgotten stays until they go on, or go; `unrestored` are names of reforms.

    Rebuilds of a pipeline that nobody forgets in: of a memory that is not whole it is not known what rests on what.
    """
    known = list(namespaces)
    tended = {live.pipeline, *(placement.pipeline for placement in beside(live, known).forgetting)}
    return [
        namespace
        for namespace in known
        if namespace.state == "filling" and (namespace.id in unrestored or namespace.pipeline not in tended)
    ]


def placement_of(namespace: Namespace) -> Placement:
    """Where a namespace's memory and pipeline are."""
    return Placement(namespace.id, namespace.pipeline)


def goes_on(namespace: Namespace) -> str:
    """Return, for people, the commands that complete or remove a namespace that is not complete."""
    return f"`eden {namespace.kind} {namespace.id}` goes on, `eden namespace drop {namespace.id}` removes it"


class MongoNamespaces:
    """The namespaces of one installation; `prefix` is the live one's."""

    def __init__(self, database: AsyncDatabase[Row], prefix: str) -> None:
        self._database, self._live = database, prefix
        self._namespaces = database[prefix + Namespace.COLLECTION]

    async def all(self) -> list[Namespace]:
        """By age."""
        return [_read(row) async for row in self._namespaces.find().sort("created_at", 1)]

    async def get(self, name: str) -> Namespace | None:
        """The namespace, or None."""
        row = await self._namespaces.find_one({"_id": name})
        return None if row is None else _read(row)

    async def made(self, new: Namespace) -> Namespace:
        """The namespace of this name: `new`, or what was there before. Its collections are made too."""
        if new.prefix != self._live + collections_of(new.id):
            raise ValueError(f"{new.prefix} is not the prefix of {new.id}")
        try:
            await self._namespaces.insert_one(new.stored())
        except DuplicateKeyError:
            found = await self.get(new.id)
            assert found is not None
            new = found
        if new.state != "dropped":
            await self._collections(new.prefix)
        return new

    async def unreadable(self, name: str, more: int) -> None:
        """Note that so many more records could not be read."""
        await self._namespaces.update_one({"_id": name}, {"$inc": {"unreadable": more}})

    async def caught_up(self, name: str, at: datetime) -> Mapping[str, int]:
        """Note that everything there was is in it; what it holds."""
        namespace = await self.get(name)
        assert namespace is not None
        counts = await self.counts(namespace.prefix)
        await self._namespaces.update_one(
            {"_id": name, "state": {"$ne": "dropped"}},
            {"$set": {"state": "caught_up", "caught_up_at": at, "counts": counts}},
        )
        return counts

    async def verified(self, name: str, at: datetime) -> None:
        """Note that it was found equal to live."""
        await self._namespaces.update_one(
            {"_id": name, "state": "caught_up"}, {"$set": {"state": "verified", "verified_at": at}}
        )

    async def counts(self, prefix: str) -> dict[str, int]:
        """Documents by collection."""
        kinds = [kind.COLLECTION for kind in KINDS]
        return {name: await self._database[prefix + name].count_documents({}) for name in kinds}

    async def sizes(self, prefix: str) -> dict[str, tuple[int, int]]:
        """By collection: documents, and bytes on the disk with indexes (collStats)."""
        found: dict[str, tuple[int, int]] = {}
        for kind in KINDS:
            try:
                stats = await self._database.command("collStats", prefix + kind.COLLECTION)
            except OperationFailure as error:
                if error.code != NOT_FOUND:
                    raise
                stats = {}
            size = int(stats.get("storageSize", 0)) + int(stats.get("totalIndexSize", 0))
            found[kind.COLLECTION] = int(stats.get("count", 0)), size
        return found

    async def remove(self, name: str) -> None:
        """The document of a namespace of which nothing is left."""
        await self._namespaces.delete_one({"_id": name, "state": "dropped"})

    async def _collections(self, prefix: str) -> None:
        for kind in KINDS:
            name = prefix + kind.COLLECTION
            with suppress(CollectionInvalid):  # made before
                await self._database.create_collection(name, validator=validator_of(kind))
            await self._database[name].create_indexes(list(MEMORY_INDEXES[kind.COLLECTION]))


def _read(row: Row) -> Namespace:
    return Namespace.model_validate(row, strict=False, extra="ignore")


class MongoLive:
    """The pointer of one installation; `prefix` is the installation's."""

    def __init__(self, database: AsyncDatabase[Row], prefix: str) -> None:
        self._client = database.client
        durable: dict[str, Any] = {
            "read_preference": ReadPreference.PRIMARY,
            "read_concern": ReadConcern("majority"),
            "write_concern": WriteConcern("majority", j=True),
        }
        self._live = database.get_collection(prefix + Live.COLLECTION, **durable)
        self._namespaces = database.get_collection(prefix + Namespace.COLLECTION, **durable)

    async def read(self) -> Live | None:
        """The document; None: nothing but the original was ever live."""
        row = await self._live.find_one({"_id": KEY})
        return None if row is None else Live.model_validate(row, strict=False, extra="ignore")

    async def placement(self) -> Placement:
        """Return the placement that is live."""
        return placed(await self.read())

    async def switch(self, to: Placement, expected: Placement, handover: str | None = None) -> None:
        """Make `to` live if `expected` still is: of several at once, one wins.

        `handover`: the group of schemas.documents.Live. EdenError for the others, and where `to` is no namespace
        that has caught up.
        """
        async with self._client.start_session() as session:
            await session.with_transaction(lambda inner: self._switch(to, expected, handover, inner))

    async def shut(self) -> None:
        """Have readers show nothing from now on: a backup was restored, and may hold what was forgotten since."""
        now = await server_time(self._client)
        first = {
            "memory": ORIGINAL,
            "pipeline": ORIGINAL,
            "previous": None,
            "revision": 0,
            "switched_at": now,
        }
        change = {"$set": {"restored_at": now}, "$setOnInsert": first}
        await self._live.update_one({"_id": KEY}, change, upsert=True)

    async def reopen(self) -> None:
        """Have readers show memory again."""
        await self._live.update_one({"_id": KEY}, {"$set": {"restored_at": None}})

    async def handed_over(self, handover: str) -> None:
        """All is announced that came with the switch."""
        await self._live.update_one({"_id": KEY, "handover": handover}, {"$set": {"handover": None}})

    async def give_up(self, placement: Placement) -> None:
        """Note that a namespace is dropped from now on; an EdenError where it is live, or becomes so just now."""
        async with self._client.start_session() as session:
            await session.with_transaction(lambda inner: self._give_up(placement, inner))

    async def _give_up(self, placement: Placement, session: AsyncClientSession) -> None:
        """Its document is written by a switch, too: the two exclude each other."""
        dropped = {"$set": {"state": "dropped"}}
        await self._namespaces.update_one({"_id": placement.memory}, dropped, session=session)
        row = await self._live.find_one({"_id": KEY}, session=session)
        if (ORIGINAL if row is None else row["memory"]) == placement.memory:
            raise EdenError(f"{placement.memory} is live and stays", "Switch to another namespace first.")

    async def _switch(
        self, to: Placement, expected: Placement, handover: str | None, session: AsyncClientSession
    ) -> None:
        now = await server_time(self._client)
        await self._claim(to, now, session)
        moved = {
            "$set": {
                "memory": to.memory,
                "pipeline": to.pipeline,
                "previous": {"memory": expected.memory, "pipeline": expected.pipeline},
                "switched_at": now,
                "handover": handover,
            },
            "$inc": {"revision": 1},
        }
        query = {"_id": KEY, "memory": expected.memory, "pipeline": expected.pipeline}
        try:
            found = await self._live.update_one(query, moved, upsert=expected == Placement(), session=session)
        except DuplicateKeyError:  # something else is live
            found = None
        if found is None or not (found.matched_count or found.upserted_id):
            raise EdenError(
                f"{expected.memory} is no longer live: nothing was switched",
                "Look with `eden namespace list`, and switch again if it is still what you want.",
            )

    async def _claim(self, to: Placement, now: datetime, session: AsyncClientSession) -> None:
        """Write to its document, so that dropping it at the same time and this exclude each other."""
        query = {"_id": to.memory, "pipeline": to.pipeline, "state": {"$in": READY}}
        found = await self._namespaces.update_one(query, {"$set": {"switched_at": now}}, session=session)
        if found.matched_count or (to == Placement() and not await self._known(session)):
            return
        raise EdenError(
            f"{to.memory} cannot be made live: it is filling, dropped, or not there",
            f"eden namespace show {to.memory}",
        )

    async def _known(self, session: AsyncClientSession) -> bool:
        return await self._namespaces.find_one({"_id": ORIGINAL}, session=session) is not None

    async def changes(self) -> AsyncGenerator[Placement]:
        """Yield the live placement, and each that becomes live; never the same twice in a row."""
        last: Placement | None = None
        while True:
            try:
                async with aclosing(self._watched()) as watched:
                    async for now in watched:
                        if now != last:
                            yield now
                        last = now
            except (PyMongoError, TimeoutError) as error:
                log.warning("what is live is asked for again: the stream broke", reason=type(error).__name__)
            await asyncio.sleep(AGAIN_SECONDS)

    async def _watched(self) -> AsyncGenerator[Placement]:
        async with asyncio.timeout(SILENT_SECONDS * 2):
            stream = await self._live.watch(max_await_time_ms=AWAIT_MS)
        async with stream:
            yield await self.placement()
            while stream.alive:
                async with asyncio.timeout(SILENT_SECONDS):
                    event = await stream.try_next()
                if event is not None:
                    yield await self.placement()


def placed(live: Live | None) -> Placement:
    """Return the placement in the document."""
    return Placement() if live is None else Placement(live.memory, live.pipeline)


def is_restored(live: Live | None) -> bool:
    """Whether memory may hold what was forgotten since the backup that was restored: readers show nothing."""
    return live is not None and live.restored_at is not None


async def live_settings(
    settings: Settings, database: AsyncDatabase[Row], *, restored_too: bool = False
) -> Settings:
    """Return the settings of the live namespace; MemoryRestored where it shows nothing now, unless `restored_too`."""
    live = await MongoLive(database, settings.mongodb.prefix).read()
    if is_restored(live) and not restored_too:
        raise MemoryRestored
    return settings.placed(placed(live))
