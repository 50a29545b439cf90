"""`Memory`: the memory of all agents in one process."""

from typing import Any

from eden_memory.api.service import MemoryService
from eden_memory.app.memory import SharedMemory


class Memory(SharedMemory):
    """One for each process and event loop; `agent(id)` gives each agent's service.

    Without a `client` it opens one of its own, by `settings`; without an `engine` it searches with the embedder
    that the settings name. Nothing is connected, read or loaded before the first call. It reads the namespace that is
    live, and follows when another becomes live; settings that are `placed` elsewhere keep it there.
    """

    def agent(
        self,
        agent_id: Any = "default",
        *,
        asked_by: str = "MemoryService",
        changes_shared: bool | None = None,
    ) -> MemoryService:
        """An agent's memory; cheap, nothing of its own to close. `asked_by` is noted in what it asks for.

        `changes_shared` False: what is not one user's or session's is seen, and not edited, retired or forgotten;
        None: so for calls that name a user, unless it rests on that user alone; True: never so.
        """
        service = MemoryService(agent_id, memory=self, asked_by=asked_by)
        service.changes_shared = changes_shared
        return service
