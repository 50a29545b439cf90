"""PyMongo's waiting for an answer without the tasks and timers that it makes of each command.

Its own (4.20) starts three tasks for a command, and one of them looks twice a second whether the command is to be
given up: for a change stream that waits, too. Here who waits for an answer reads it, and giving up ends the reading.
"""

import asyncio
import time
from typing import Any

from pymongo import _csot, pool_shared
from pymongo.asynchronous import pool
from pymongo.errors import _OperationCancelled  # pyright: ignore[reportPrivateUsage]
from pymongo.message import _UNPACK_REPLY  # pyright: ignore[reportPrivateUsage]

LONGEST = 48_000_000
"""MongoDB's longest message, bytes; the driver says the server's own once it knows it."""


class EndsReading(pool_shared._CancellationContext):  # pyright: ignore[reportPrivateUsage]
    """What the pool and the monitors give up by: it closes the connection that is read from."""

    reading: Any = None

    def cancel(self) -> None:
        """Give up."""
        super().cancel()
        if self.reading is not None:
            self.reading.close(_given_up())


def let_answers_be_read_directly() -> None:
    """Replace how PyMongo sends and receives; its connections from now on."""
    for module, name, ours in (
        (pool_shared, "_CancellationContext", EndsReading),
        (pool, "async_receive_message", _receive),
        (pool, "async_sendall", _send),
    ):
        if hasattr(module, name):
            setattr(module, name, ours)


async def _receive(conn: Any, request_id: int | None, max_message_size: int = LONGEST) -> Any:
    """One message; an OSError where the connection breaks, TimeoutError when the time is over."""
    context, protocol = conn.cancel_context, conn.conn.get_conn
    if context.cancelled:
        raise _given_up()
    context.reading = protocol
    try:
        async with asyncio.timeout(_seconds_left(conn)):
            data, kind = await protocol.read(request_id, max_message_size)
    except TimeoutError:
        raise TimeoutError("timed out") from None
    finally:
        context.reading = None
    return _UNPACK_REPLY[kind](data)


async def _send(protocol: Any, message: bytes) -> None:
    """It only fills the transport's buffer: there is nothing that a time limit could end."""
    await protocol.write(message)


def _seconds_left(conn: Any) -> float | None:
    if _csot.get_timeout():
        return max(_csot.get_deadline() - time.monotonic(), 0)
    seconds: float | None = conn.conn.gettimeout
    return seconds


def _given_up() -> _OperationCancelled:
    return _OperationCancelled("operation cancelled")
