"""What all calls of an agent's service share: its memory, its id, and what an asker may see."""

from typing import Any

from eden_memory.access.visible import Asked, View
from eden_memory.app.memory import SharedMemory
from eden_memory.app.readers import Readers
from eden_memory.mongo.application_ids import typed, typed_or_none


class Calls:
    """Ids are given as the application has them; NotAnId for anything else."""

    def __init__(self, memory: SharedMemory, agent_id: Any, asked_by: str) -> None:
        self.memory = memory
        self._agent_id, self._asked_by = typed(agent_id, "agent"), asked_by
        self.changes_shared: bool | None = None
        """Whether what others see, too, may be edited, retired and forgotten."""

    def _asked(self, session: Any, user: Any) -> Asked:
        return Asked(self._agent_id, typed_or_none(session, "session"), typed_or_none(user, "user"))

    async def _seen(self, session: Any, user: Any) -> tuple[Asked, View, Readers]:
        """Who asks, what they may see now, and what reads it: one namespace from the call's begin to its end."""
        asked, readers = self._asked(session, user), await self.memory.current()
        return asked, await readers.contexts.view(asked), readers
