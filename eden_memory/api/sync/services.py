"""`SyncMemory` and `SyncMemoryService`: what is async in Memory and MemoryService, made to wait."""

from collections.abc import Callable, Generator
from threading import Lock
from types import TracebackType
from typing import Any, Self

from eden_memory.api.memory import Memory
from eden_memory.api.service import MemoryService
from eden_memory.api.sync.calls import SyncCalls
from eden_memory.api.sync.loop import LoopThread
from eden_memory.settings import Settings


class SyncMemory:
    """One for each process; its services may be used by several threads, and by none that runs an event loop.

    A client of MongoDB belongs to the event loop that uses it: so it opens one of its own, by `settings`.
    """

    def __init__(
        self, settings: Settings | None = None, *, make: Callable[[Settings | None], Memory] = Memory
    ) -> None:
        self._settings, self._make = settings, make
        self._guard = Lock()
        self._memory: Memory | None = None
        self.thread = LoopThread()

    @property
    def memory(self) -> Memory:
        """Made with the first use, in the thread."""
        with self._guard:
            if self._memory is None:
                self._memory = self.thread.run(self._made())
            return self._memory

    def agent(self, agent_id: Any = "default", *, asked_by: str = "SyncMemoryService") -> "SyncMemoryService":
        """An agent's memory; cheap, nothing of its own to close."""
        return SyncMemoryService(agent_id, memory=self, asked_by=asked_by)

    def ready(self) -> None:
        """Wait until contexts are kept, because whatever changes them is heard of."""
        self.thread.run(self.memory.ready())

    def export_items(self, user: Any) -> Generator[tuple[str, dict[str, Any]]]:
        """Everything held about a user, one (collection, document) after the other."""
        return self.thread.iterate(self.memory.export_items(user))

    def close(self) -> None:
        """Close the memory and end its thread; again changes nothing."""
        with self._guard:
            memory, self._memory = self._memory, None
        if memory is not None:
            self.thread.run(memory.close())
        self.thread.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    async def _made(self) -> Memory:
        return self._make(self._settings)


class SyncMemoryService(SyncCalls):
    """The memory of one agent; alone it makes its own :class:`SyncMemory` by `settings`, and closes it."""

    def __init__(
        self,
        agent_id: Any = "default",
        *,
        settings: Settings | None = None,
        memory: SyncMemory | None = None,
        asked_by: str = "SyncMemoryService",
    ) -> None:
        self._owns_memory = memory is None
        self.memory = memory or SyncMemory(settings)
        self._agent_id, self._asked_by = agent_id, asked_by
        self._guard = Lock()
        self._made: MemoryService | None = None

    @property
    def thread(self) -> LoopThread:
        """Where its calls are made."""
        return self.memory.thread

    @property
    def service(self) -> MemoryService:
        """What it stands for."""
        memory = self.memory.memory
        with self._guard:
            if self._made is None:
                self._made = memory.agent(self._agent_id, asked_by=self._asked_by)
            return self._made

    def ready(self) -> None:
        """Wait until contexts are kept, because whatever changes them is heard of."""
        self.memory.ready()

    def close(self) -> None:
        """Close the memory, if it is our own."""
        if self._owns_memory:
            self.memory.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
