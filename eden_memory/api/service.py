"""`MemoryService`, an agent's memory for its application: the calls of eden_memory/operations.

Needs MongoDB, and an embedder to search.
"""

from collections.abc import Callable, Sequence
from datetime import datetime
from types import TracebackType
from typing import Any, Self

from eden_memory.app.memory import Client, ProcessMemory, utc_now
from eden_memory.app.searching import Engine
from eden_memory.operations import webhook_calls
from eden_memory.operations.admitted_call import AgentCalls
from eden_memory.operations.webhook_calls import AddedWebhook, RemovedWebhook, WebhookView
from eden_memory.schemas.documents import WebhookSubject
from eden_memory.settings import Settings


class MemoryService(AgentCalls):
    """The memory of one agent, None: the default agent; ids as the application has them (ObjectId, str, int, UUID).

    Alone it makes a memory of its own by `client` and `settings`, and closes it; a process with several
    agents makes one `Memory` and takes each agent's service from it. `asked_by` is noted in what it asks for.
    """

    def __init__(
        self,
        agent_id: Any = None,
        *,
        client: Client | None = None,
        settings: Settings | None = None,
        engine: Engine | None = None,
        clock: Callable[[], datetime] = utc_now,
        memory: ProcessMemory | None = None,
        asked_by: str = "MemoryService",
        changes_shared: bool | None = None,
    ) -> None:
        self._owns_memory = memory is None
        made = memory or ProcessMemory(settings, client=client, engine=engine, clock=clock)
        super().__init__(made, agent_id, asked_by, changes_shared)

    async def __aenter__(self) -> Self:
        self.memory.watch()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def ready(self) -> None:
        """Wait until the change stream is open and contexts are cached."""
        await self.memory.ready()

    async def close(self) -> None:
        """Close the memory, if the service created it."""
        if self._owns_memory:
            await self.memory.close()


class Memory(ProcessMemory):
    """The memory of all agents, one for each process and event loop; `agent(id)` returns an agent's service.

    Without a `client` it opens one of its own, by `settings`; without an `engine` it searches with the embedder
    that the settings name. Nothing is connected, read or loaded before the first call. It reads the namespace that is
    live, and follows when another becomes live; settings that are `placed` elsewhere keep it there.
    """

    def agent(
        self,
        agent_id: Any = None,
        *,
        asked_by: str = "MemoryService",
        changes_shared: bool | None = None,
    ) -> MemoryService:
        """Return the memory of an agent, None: the default one. Cheap, nothing to close; requests record `asked_by`.

        `changes_shared` False: what is not one user's or session's is seen, and not edited, retired or forgotten;
        None: so for calls that name a user, unless it rests on that user alone; True: never so.
        """
        return MemoryService(agent_id, memory=self, asked_by=asked_by, changes_shared=changes_shared)

    async def add_webhook(
        self,
        url: str,
        on: Sequence[WebhookSubject],
        agents: Sequence[str] | None = None,
        *,
        allow_private: bool = False,
    ) -> AddedWebhook:
        """Have a program told of changes, and return its secret, which is shown this once. Invalid; Conflict.

        `on`: `facts`, `reflections`, `forgotten`. `agents`: ids as text, None: all. `allow_private`: also a private
        address, and http.
        """
        return await webhook_calls.add_webhook(self, url, on, agents, allow_private=allow_private)

    async def list_webhooks(self) -> list[WebhookView]:
        """Return the webhooks, oldest first, with how many notices wait for each."""
        return await webhook_calls.list_webhooks(self)

    async def remove_webhook(self, webhook_id: str) -> RemovedWebhook:
        """Remove a webhook with what waits for it. NotFound."""
        return await webhook_calls.remove_webhook(self, webhook_id)
