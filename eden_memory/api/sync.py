"""`SyncMemory` and `SyncMemoryService`: the calls of Memory and MemoryService for callers without an event loop."""

import asyncio
import threading
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator, Sequence
from functools import wraps
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

from eden_memory.api.service import Memory, MemoryService
from eden_memory.errors import EdenError
from eden_memory.memory.memory_views import MemoryChange
from eden_memory.operations.parameters import Session, User
from eden_memory.operations.webhook_calls import AddedWebhook, RemovedWebhook, WebhookView
from eden_memory.schemas.documents import WebhookSubject
from eden_memory.settings import Settings

T = TypeVar("T")
P = ParamSpec("P")


class LoopThread:
    """An event loop in its own thread; any thread may submit work and wait for it.

    It starts with the first call and ends with :meth:`stop`, or the program.
    """

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._stopped = False

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Return the result of a coroutine, or raise its error; EdenError inside of a running event loop."""
        if _in_a_loop():
            work.close()
            raise EdenError(
                "a blocking call was made inside a running event loop",
                "Use MemoryService there, and await its calls.",
            )
        future = asyncio.run_coroutine_threadsafe(work, self._started(work))
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def iterate(self, items: AsyncGenerator[T]) -> Generator[T]:
        """Yield the items of an asynchronous generator, and close it in the end."""
        try:
            while (found := self.run(_next(items))) is not None:
                yield found[0]
        finally:
            self.run(_close(items))

    def stop(self) -> None:
        """Cancel running work and end the thread; later calls fail."""
        with self._guard:
            self._stopped = True
            loop, thread, self._thread = self._loop, self._thread, None
        if loop is not None and thread is not None:
            loop.call_soon_threadsafe(loop.stop)
            thread.join()

    def _started(self, work: Coroutine[Any, Any, Any]) -> asyncio.AbstractEventLoop:
        with self._guard:
            if self._stopped:
                work.close()
                raise EdenError("the memory is closed", "Make another one.")
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(
                    target=_serve, args=(self._loop,), name="eden-memory", daemon=True
                )
                self._thread.start()
            return self._loop


def _serve(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    try:
        loop.run_forever()
    finally:
        left = asyncio.all_tasks(loop)
        for task in left:
            task.cancel()
        loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()


def _in_a_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


async def _next(items: AsyncGenerator[T]) -> tuple[T] | None:
    async for item in items:
        return (item,)
    return None


async def _close(items: AsyncGenerator[Any]) -> None:
    await items.aclose()


class SyncMemory:
    """One for each process; its services may be used by several threads, and by none that runs an event loop.

    A client of MongoDB belongs to the event loop that uses it: so it opens one of its own, by `settings`.
    """

    def __init__(
        self, settings: Settings | None = None, *, make: Callable[[Settings | None], Memory] = Memory
    ) -> None:
        self._settings, self._make = settings, make
        self._guard = threading.Lock()
        self._memory: Memory | None = None
        self.thread = LoopThread()

    @property
    def memory(self) -> Memory:
        """Create the memory with the first use, in the thread."""
        with self._guard:
            if self._memory is None:
                self._memory = self.thread.run(self._made())
            return self._memory

    def agent(self, agent_id: Any = None, *, asked_by: str = "SyncMemoryService") -> "SyncMemoryService":
        """Return an agent's memory: cheap, nothing to close."""
        return SyncMemoryService(agent_id, memory=self, asked_by=asked_by)

    def ready(self) -> None:
        """Wait until the change stream is open and contexts are cached."""
        self.thread.run(self.memory.ready())

    def export_items(self, user: Any) -> Generator[tuple[str, dict[str, Any]]]:
        """Yield everything stored about a user, as (collection, document)."""
        return self.thread.iterate(self.memory.export_items(user))

    def add_webhook(
        self,
        url: str,
        on: Sequence[WebhookSubject],
        agents: Sequence[str] | None = None,
        *,
        allow_private: bool = False,
    ) -> AddedWebhook:
        """Have a program told of changes, as :meth:`Memory.add_webhook`."""
        return self.thread.run(self.memory.add_webhook(url, on, agents, allow_private=allow_private))

    def list_webhooks(self) -> list[WebhookView]:
        """Return the webhooks, as :meth:`Memory.list_webhooks`."""
        return self.thread.run(self.memory.list_webhooks())

    def remove_webhook(self, webhook_id: str) -> RemovedWebhook:
        """Remove a webhook, as :meth:`Memory.remove_webhook`."""
        return self.thread.run(self.memory.remove_webhook(webhook_id))

    def close(self) -> None:
        """Close the memory and end its thread; safe to repeat."""
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


def _waiting(
    call: Callable[Concatenate[MemoryService, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate["SyncMemoryService", P], T]:
    """Return the method that waits for this one; it has the same name, parameters and text."""

    @wraps(call)
    def waiting(self: "SyncMemoryService", *args: P.args, **kwargs: P.kwargs) -> T:
        return self.thread.run(call(self.service, *args, **kwargs))

    return waiting


class SyncMemoryService:
    """The memory of one agent; alone it makes its own :class:`SyncMemory` by `settings`, and closes it."""

    def __init__(
        self,
        agent_id: Any = None,
        *,
        settings: Settings | None = None,
        memory: SyncMemory | None = None,
        asked_by: str = "SyncMemoryService",
    ) -> None:
        self._owns_memory = memory is None
        self.memory = memory or SyncMemory(settings)
        self._agent_id, self._asked_by = agent_id, asked_by

    @property
    def thread(self) -> LoopThread:
        """The thread that makes the calls."""
        return self.memory.thread

    @property
    def service(self) -> MemoryService:
        """The asynchronous service whose calls are made."""
        return self.memory.memory.agent(self._agent_id, asked_by=self._asked_by)

    get_memory_context = _waiting(MemoryService.get_memory_context)
    on_session_start = _waiting(MemoryService.on_session_start)
    search_facts = _waiting(MemoryService.search_facts)
    offers_search_tool = _waiting(MemoryService.offers_search_tool)
    explain_search = _waiting(MemoryService.explain_search)
    history = _waiting(MemoryService.history)
    fact = _waiting(MemoryService.fact)
    reflection = _waiting(MemoryService.reflection)
    list_facts = _waiting(MemoryService.list_facts)
    list_reflections = _waiting(MemoryService.list_reflections)
    list_blobs = _waiting(MemoryService.list_blobs)
    get_memory_stats = _waiting(MemoryService.get_memory_stats)
    get_consolidation_status = _waiting(MemoryService.get_consolidation_status)
    export_user = _waiting(MemoryService.export_user)
    on_session_end = _waiting(MemoryService.on_session_end)
    maybe_form_memories = _waiting(MemoryService.maybe_form_memories)
    process_cold_session = _waiting(MemoryService.process_cold_session)
    form_now = _waiting(MemoryService.form_now)
    add = _waiting(MemoryService.add)
    edit = _waiting(MemoryService.edit)
    retire = _waiting(MemoryService.retire)
    merge = _waiting(MemoryService.merge)
    pin = _waiting(MemoryService.pin)
    unpin = _waiting(MemoryService.unpin)
    mark_private = _waiting(MemoryService.mark_private)
    forget = _waiting(MemoryService.forget)
    preview_undo = _waiting(MemoryService.preview_undo)
    undo = _waiting(MemoryService.undo)
    why = _waiting(MemoryService.why)
    list_shared = _waiting(MemoryService.list_shared)
    take_back = _waiting(MemoryService.take_back)
    audit = _waiting(MemoryService.audit)
    list_streams = _waiting(MemoryService.list_streams)
    get_stream = _waiting(MemoryService.get_stream)
    set_stream = _waiting(MemoryService.set_stream)

    @property
    def agent_id(self) -> str:
        """The agent's typed id."""
        return self.service.agent_id

    def changes(
        self, *, session: Session = None, user: User = None, after: str | None = None
    ) -> Generator[MemoryChange]:
        """Yield changes of the visible scopes as they are committed, or from `after` (a change's id) on.

        Several changes of a scope may come as one, the newest: a slow reader delays nothing and misses nothing.
        """
        return self.thread.iterate(self.service.changes(session=session, user=user, after=after))

    def ready(self) -> None:
        """Wait until the change stream is open and contexts are cached."""
        self.memory.ready()

    def close(self) -> None:
        """Close the memory, if the service created it."""
        if self._owns_memory:
            self.memory.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
