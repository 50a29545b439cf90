"""Server-sent events (WHATWG HTML, 9.2) out of an asynchronous generator, never silent for long."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeVar

from eden_memory.errors import EdenError

T = TypeVar("T")
HEARTBEAT = b": nothing new\n\n"
OPENED = b"retry: 2000\n: listening\n\n"


@dataclass(frozen=True, slots=True)
class Event:
    """One event; `data` of one line."""

    id: str
    name: str
    data: str

    def encoded(self) -> bytes:
        """As it is sent."""
        return f"id: {self.id}\nevent: {self.name}\ndata: {self.data}\n\n".encode()


async def server_sent(
    changes: AsyncGenerator[T],
    event_of: Callable[[T], Event],
    heartbeat_seconds: float,
    stopping: asyncio.Event,
    still: Callable[[], Awaitable[None]],
) -> AsyncGenerator[bytes]:
    """Events, and a comment whenever none came for `heartbeat_seconds`.

    Before each of both `still` is asked: a refusal ends the stream, as `stopping` does. What was opened is
    closed however it ends.
    """
    stop = asyncio.create_task(stopping.wait())
    coming = asyncio.ensure_future(anext(changes))
    try:
        yield OPENED
        while True:
            await asyncio.wait({coming, stop}, timeout=heartbeat_seconds, return_when=asyncio.FIRST_COMPLETED)
            if stop.done():
                return
            await still()
            if not coming.done():
                yield HEARTBEAT
                continue
            yield event_of(coming.result()).encoded()
            coming = asyncio.ensure_future(anext(changes))
    except (StopAsyncIteration, EdenError):
        return
    finally:
        stop.cancel()
        coming.cancel()
        with suppress(Exception, asyncio.CancelledError):
            await coming
        await changes.aclose()
