"""How an agent's scopes and shards are formed, as who forms them reads it."""

from collections.abc import Mapping
from typing import Protocol

from eden_memory.schemas.documents import Stream


class Streams(Protocol):
    """How an agent's scopes and shards are formed (`memory_streams`)."""

    async def of(self, agent_id: str) -> Mapping[str, Stream]:
        """The streams of an agent by label (eden_memory.scope_limits.label_of), those switched off included."""
        ...
