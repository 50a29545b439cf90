"""`memory_streams`: how an agent's scopes and shards are formed, cached in the process for a while."""

import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from pydantic import ValidationError
from pymongo.asynchronous.database import AsyncDatabase

from eden_memory.logs import LibraryLogger
from eden_memory.names import Names
from eden_memory.schemas.documents import Stream
from eden_memory.schemas.scopes import Scope
from eden_memory.scope_limits import label_of

log = LibraryLogger()

Row = Mapping[str, Any]
Streams = Mapping[str, Stream]
MOST_AGENTS = 10_000
FIELDS = frozenset(field.alias or name for name, field in Stream.model_fields.items())
"""As a document has them."""


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
