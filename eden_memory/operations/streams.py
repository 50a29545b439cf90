"""The calls of MemoryService that configure how an agent's scopes and shards are formed (`memory_streams`)."""

from collections.abc import Sequence
from typing import Any

from eden_memory.directory.stream_store import StreamName, StreamStore
from eden_memory.operations.correcting import seen_by_others
from eden_memory.operations.reading import ReadCalls
from eden_memory.schemas.documents import Stream


class StreamCalls(ReadCalls):
    """A scope is named by its label: `agent`, `group`, `user`, `session`, or `shard:NAME`.

    Stages follow within 30 seconds, for windows that are requested from then on. Guidance becomes instructions of the
    prompts and a model may be an endpoint, so these calls are for operators: Refused where the caller may not change
    what others see.
    """

    async def list_streams(self) -> Sequence[Stream]:
        """Return the agent's streams."""
        return await (await self._stream_store()).list(self._agent_id)

    async def get_stream(self, scope: str) -> Stream:
        """Return a scope's stream. NotFound."""
        return await (await self._stream_store()).get(StreamName.parse(self._agent_id, scope))

    async def set_stream(self, scope: str, **fields: Any) -> Stream:
        """Set fields of a scope's stream, None unsets one; without a stream it is made, and a shard with it.

        `active=False` switches the scope or shard off: nothing of it is formed, consolidated or shown, and what is
        stored stays. Invalid, with the name of the field.
        """
        return await (await self._stream_store()).set(StreamName.parse(self._agent_id, scope), fields)

    async def _stream_store(self) -> StreamStore:
        if self.changes_shared is False:
            raise seen_by_others("agent")
        readers = await self.memory.current()
        return StreamStore(self.memory.database, readers.settings)
