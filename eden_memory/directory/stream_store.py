"""`memory_streams`: how an agent's scopes and shards are formed, cached in the process for a while."""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from pydantic import ValidationError
from pymongo.asynchronous.database import AsyncDatabase

from eden_memory.directory.stream_edits import FIELDS, StreamName, changed_stream
from eden_memory.errors import Invalid, NotFound
from eden_memory.limits import label_of
from eden_memory.logs import LibraryLogger
from eden_memory.names import Names
from eden_memory.schemas.documents import Stream
from eden_memory.schemas.scopes import Scope
from eden_memory.settings import Settings

log = LibraryLogger()

Row = Mapping[str, Any]
Streams = Mapping[str, Stream]
MOST_AGENTS = 10_000


class MongoStreams:
    """Reads an agent's streams at most every `keep_seconds`."""

    def __init__(
        self,
        database: AsyncDatabase[dict[str, Any]],
        names: Names,
        *,
        keep_seconds: float = 30.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._streams = database[names[Stream.COLLECTION]]
        self._keep_seconds, self._clock = keep_seconds, clock
        self._known: dict[str, tuple[float, Streams]] = {}

    async def of(self, agent_id: str) -> Streams:
        """Return the streams of an agent by label, inactive ones too; log and leave out broken documents."""
        known = self._known.get(agent_id)
        if known is not None and self._clock() - known[0] < self._keep_seconds:
            return known[1]
        asked_at, cached = self._clock(), self._known
        rows = await self._streams.find({"agent_id": agent_id}).to_list()
        streams = streams_in(rows)
        if len(cached) >= MOST_AGENTS:
            cached.clear()
        cached[agent_id] = asked_at, streams
        return streams

    def forget(self) -> None:
        """Read everything again when it is next asked for; a reading that goes on now is not cached."""
        self._known = {}


class StreamStore:
    """Lists, finds and changes streams; `settings` of the namespace that is live."""

    def __init__(self, database: AsyncDatabase[dict[str, Any]], settings: Settings) -> None:
        self._streams, self._settings = database[settings.names[Stream.COLLECTION]], settings

    async def list(self, agent_id: str | None = None) -> Sequence[Stream]:
        """Return the streams of an agent, or of all; documents that are none are logged and left out."""
        query = {} if agent_id is None else {"agent_id": agent_id}
        rows = await self._streams.find(query, sort=[("agent_id", 1), ("_id", 1)]).to_list()
        return [stream for row in rows for stream in streams_in([row]).values()]

    async def get(self, name: StreamName) -> Stream:
        """Return a stream; NotFound if there is none, Invalid if its document is none."""
        row = await self._streams.find_one(name.fields)
        if row is None:
            raise NotFound(f"there is no stream {name.id}", "`eden stream list` shows what there is.")
        for stream in streams_in([row]).values():
            return stream
        raise Invalid(f"the document {name.id} is no stream", "Set the fields that the log names.")

    async def set(self, name: StreamName, fields: Row) -> Stream:
        """Set these fields, None unsets one, and make the stream if there is none; Invalid."""
        before = await self._streams.find_one(name.fields) or {**name.fields, "_id": name.id}
        stream = changed_stream(before, fields, self._settings)
        stored = stream.stored()
        update = {
            "$set": {field: stored[field] for field, value in fields.items() if value is not None},
            "$unset": {field: "" for field, value in fields.items() if value is None},
            "$setOnInsert": {field: value for field, value in name.fields.items() if value is not None},
        }
        await self._streams.update_one(
            {"_id": before["_id"]}, {operator: part for operator, part in update.items() if part}, upsert=True
        )
        return stream


def streams_in(rows: Iterable[Row]) -> Streams:
    """Return streams by label; documents that are none are logged and left out."""
    read = filter(None, map(_read, rows))
    return dict(read)


def _read(row: Row) -> tuple[str, Stream] | None:
    try:
        stream = Stream.model_validate(row, strict=False, extra="ignore")
        if unknown := sorted(row.keys() - FIELDS):
            log.warning("a stream has unknown fields, which are ignored", stream=stream.id, fields=unknown)
        return label(stream), stream
    except ValidationError as error:
        reasons = "; ".join(
            f"{'.'.join(map(str, detail['loc']))}: {detail['type']}" for detail in error.errors()[:5]
        )
        log.warning("a stream is broken and ignored", stream=str(row.get("_id")), reasons=reasons)
        return None


def label(stream: Stream) -> str:
    """Return `user`, `shard:pricing`, …; ValidationError for a shard whose name makes no scope."""
    if stream.shard is not None:
        return label_of(Scope.of_shard(stream.agent_id, stream.shard))
    return stream.scope
