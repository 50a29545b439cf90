"""An event loop in a thread of its own, for who has none: any thread may hand it work and wait."""

import asyncio
import threading
from collections.abc import AsyncGenerator, Coroutine, Generator
from typing import Any, TypeVar

from eden_memory.errors import EdenError

T = TypeVar("T")


class LoopThread:
    """Starts with the first call; ends with :meth:`stop`, or the program."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._stopped = False

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """The result, or the error, of a coroutine; EdenError inside of a running event loop, which it would stop."""
        if _in_a_loop():
            work.close()
            raise EdenError(
                "a call that waits was made inside of a running event loop",
                "Use MemoryService there, and await its calls.",
            )
        future = asyncio.run_coroutine_threadsafe(work, self._started(work))
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def iterate(self, items: AsyncGenerator[T]) -> Generator[T]:
        """What an asynchronous generator yields, one after the other."""
        try:
            while (one := self.run(_next(items))) is not None:
                yield one[0]
        finally:
            self.run(_close(items))

    def stop(self) -> None:
        """End what runs and the thread; nothing can be run any more."""
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
    async for one in items:
        return (one,)
    return None


async def _close(items: AsyncGenerator[Any]) -> None:
    await items.aclose()
