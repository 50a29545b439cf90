"""Store the tailer's position, moved under the lease's epoch; read how long a place in the oplog lasts."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from pymongo import AsyncMongoClient, ReturnDocument
from pymongo.asynchronous.collection import AsyncCollection
from pymongo.errors import DuplicateKeyError, OperationFailure, PyMongoError

from eden_memory.errors import EdenError, describe
from eden_memory.logs import LibraryLogger
from eden_memory.mongo.changes import SourceFailed
from eden_memory.mongo.leases import LeaseLost

log = LibraryLogger("eden.tailer")


FIELDS = ("token", "version", "phase", "page", "read")
FOLLOWED = ("inbox", "stream")
"""Phases in which the collection has been read whole."""
PUBLISHED = "published"
CONSEQUENCE = (
    "That ends the records of messages that are not in that collection; what was formed from them stays."
)
BESIDE = (
    "set EDEN_MONGODB_DATABASE, EDEN_KAFKA_TOPIC_PREFIX and EDEN_KAFKA_GROUP_PREFIX to names of its own (where both "
    "read from one database, EDEN_MONGODB_PREFIX too) and EDEN_SOURCE_DATABASE to {database}, then run "
    "`eden topics apply` and `eden setup`"
)
Rows = AsyncCollection[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class TailerPosition:
    """How far a tailer has come."""

    token: str
    """Where to follow the stream from, once everything older has been read in."""
    version: str
    phase: str = "stream"
    """`backfill` (reading the collection), `merge` (against what the topic knows), `inbox` (requests) or `stream`."""
    page: Any = None
    """The page that the reading has come to."""
    read: int = 0
    """Messages read in so far."""
    published: bool = False
    """Whether any message of this source was published: another source may no longer take its place unasked."""


@dataclass(frozen=True, slots=True)
class RereadOutcome:
    """The result of reading messages again with a corrected field mapping."""

    id: str
    """Of the request."""
    read: int
    changed: int
    accepted: int
    """Dead letters of an earlier mapping that could be read."""
    refused: int
    """Documents that this mapping cannot use either."""
    everything: bool
    """Nothing was left out: all that is recorded was read with this mapping."""

    def counts(self) -> dict[str, int]:
        """Return the figures by name."""
        return {
            "read": self.read,
            "changed": self.changed,
            "accepted": self.accepted,
            "refused": self.refused,
        }


async def other_sources(positions: Rows, source: str) -> Sequence[str]:
    """Return the names of other sources whose messages are published."""
    query = {"_id": {"$ne": source}, "token": {"$exists": True}, PUBLISHED: True}
    return [row["_id"] async for row in positions.find(query, {"_id": 1})]


async def lost_collection(positions: Rows, source: str, messages: Rows) -> bool:
    """Tell whether the messages collection is missing, or empty where no stream says what became of its documents."""
    if await messages.find_one({}, {"_id": 1}) is not None:
        return False
    position = await positions.find_one({"_id": source}) or {}
    followed = position.get("phase") in FOLLOWED
    return not followed or not await messages.database.list_collection_names(filter={"name": messages.name})


class MongoPositions:
    """The position of one source, in the document `source` of a collection.

    `leases`: those of all sources. With `new_source` the source takes the place of every other one.
    """

    def __init__(
        self,
        positions: Rows,
        source: str,
        leases: Rows,
        *,
        mapping: str | None = None,
        new_source: bool = False,
    ) -> None:
        self._mapping = mapping
        self._positions, self._source, self._leases = positions, source, leases
        self._new_source = new_source

    async def claim(self, epoch: int) -> TailerPosition | None:
        """Shut out holders of older epochs, then read; None before the first start.

        EdenError when messages of another source are published already, and this one is not to take its place.
        """
        try:
            await self._be_the_only_one()
        except PyMongoError as error:
            raise self._failed(error) from error
        stored = await self._set(epoch, {})
        await self._note_mapping(epoch, stored)
        if "token" not in stored:
            return None
        return TailerPosition(**{name: stored[name] for name in (*FIELDS, PUBLISHED)})

    async def save(self, epoch: int, position: TailerPosition) -> None:
        """Store a position; LeaseLost if a newer holder has claimed it."""
        await self._set(epoch, {name: getattr(position, name) for name in (*FIELDS, PUBLISHED)})

    async def note_reread(self, epoch: int, result: RereadOutcome) -> None:
        """Store the result of reading messages again; LeaseLost as above."""
        values: dict[str, Any] = {"reread": {"id": result.id, **result.counts()}}
        if result.everything:
            values["reread_due"] = False
        await self._set(epoch, values)

    async def _note_mapping(self, epoch: int, stored: Mapping[str, Any]) -> None:
        """Note which mapping reads now, and that messages of another mapping may be read again."""
        before = stored.get("mapping")
        if self._mapping is None or self._mapping == before:
            return
        await self._set(epoch, {"mapping": self._mapping, "reread_due": before is not None})

    async def _be_the_only_one(self) -> None:
        others = await other_sources(self._positions, self._source)
        if not others:
            return
        if not self._new_source:
            raise another_source(self._source, others)
        led = {"_id": {"$in": others}, "$expr": {"$gt": ["$until", "$$NOW"]}}
        if await self._leases.find_one(led) is not None:
            raise still_followed(self._source, others)
        # Its own position goes too: what was published since it was saved is known to a merge only.
        await self._positions.delete_many({"_id": {"$in": [*others, self._source]}})

    async def _set(self, epoch: int, values: dict[str, Any]) -> dict[str, Any]:
        not_newer = {"_id": self._source, "epoch": {"$not": {"$gt": epoch}}}
        change = {"$set": {**values, "epoch": epoch}, "$currentDate": {"saved_at": True}}
        try:
            stored = await self._positions.find_one_and_update(
                not_newer, change, upsert=True, return_document=ReturnDocument.AFTER
            )
        except DuplicateKeyError:
            raise LeaseLost(f"position of {self._source}: a newer tailer has claimed it") from None
        except PyMongoError as error:
            raise self._failed(error) from error
        assert stored is not None
        return stored

    def _failed(self, error: PyMongoError) -> SourceFailed:
        return SourceFailed(f"position of {self._source}: {describe(error)}")


def named(source: str) -> str:
    """Return `database.collection` of a source's name."""
    return source.partition("/")[2] or source


def another_source(source: str, known: Iterable[str]) -> EdenError:
    """Return the error for settings that name another collection than memory is formed from."""
    before = ", ".join(map(named, sorted(known)))
    beside = BESIDE.format(database=named(source).partition(".")[0])
    return EdenError(
        f"the settings name {named(source)}, but memory is formed from {before}",
        f"To go on with {before}, set EDEN_SOURCE_DATABASE and EDEN_MESSAGES_COLLECTION to it, or start in the "
        f"folder of its eden.toml. For a second memory of {named(source)} beside it, {beside}. "
        f"To change to {named(source)}, start once with `eden run --new-source`. {CONSEQUENCE}",
    )


def nothing_there(source: str, messages: int) -> EdenError:
    """Return the error for a collection that is missing or empty, though Kafka holds records of its messages."""
    return EdenError(
        f"the collection {named(source)} does not exist or is empty, but {messages:,} messages of it are recorded",
        "Check EDEN_SOURCE_DATABASE and EDEN_MESSAGES_COLLECTION, or restore the collection. If the messages are "
        f"meant to be gone, start once with `eden run --new-source`. {CONSEQUENCE}",
    )


def still_followed(source: str, known: Iterable[str]) -> EdenError:
    """Return the error for a former source that a tailer still follows."""
    before = ", ".join(map(named, sorted(known)))
    return EdenError(
        f"a tailer still follows {before}: {named(source)} cannot take its place",
        "Stop every `eden run` of the former source, wait until its lease ends "
        "(EDEN_TAILER_LEASE_SECONDS), and start again.",
    )


@dataclass(frozen=True, slots=True)
class OplogWindow:
    """The oplog's ends by its entries' times, and its size in bytes, as it is and at most."""

    first: datetime
    last: datetime
    used: float
    most: float

    @property
    def seconds(self) -> float:
        """Seconds between its ends."""
        return max(0.0, (self.last - self.first).total_seconds())

    def left(self, place: datetime) -> tuple[float, float] | None:
        """Return (seconds, bytes) until the entries after `place` go, at the window's pace; None: too young to judge.

        Nothing is removed before the oplog is full, so what is still free counts too.
        """
        if self.seconds < 1 or self.used <= 0:
            return None
        pace = self.used / self.seconds
        behind = min(max(0.0, (place - self.first).total_seconds()), self.seconds)
        room = behind * pace + max(0.0, self.most - self.used)
        return room / pace, room


class MongoOplog:
    """Reads `local.oplog.rs`; a server that refuses it (or a sharded cluster) is not asked again."""

    def __init__(self, client: AsyncMongoClient[dict[str, Any]]) -> None:
        self._local = client["local"]
        self._refused = False

    async def window(self) -> OplogWindow | None:
        """Return the window; None where it cannot be known."""
        if self._refused:
            return None
        try:
            return await self._read()
        except OperationFailure as error:
            self._refused = True
            log.info("the oplog's window is not known", reason=f"it cannot be read: code {error.code}")
        except PyMongoError as error:
            log.info("the oplog's window is not known for now", reason=type(error).__name__)
        return None

    async def _read(self) -> OplogWindow | None:
        oplog = self._local["oplog.rs"]
        first = await oplog.find_one(sort=[("$natural", 1)], projection={"ts": 1})
        last = await oplog.find_one(sort=[("$natural", -1)], projection={"ts": 1})
        if first is None or last is None:
            return None
        size = await self._local.command("collStats", "oplog.rs")
        return OplogWindow(
            _moment(first), _moment(last), float(size["size"]), float(size.get("maxSize", size["size"]))
        )


def _moment(entry: dict[str, Any]) -> datetime:
    return datetime.fromtimestamp(entry["ts"].time, UTC)
