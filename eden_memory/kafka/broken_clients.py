"""Clients of aiokafka whose own tasks have ended, and group members whose process was killed: noticed and closed.

An error that aiokafka does not expect ends the task that met it; the client then stands still without a word, and
its `stop` raises the error before it has closed the connections.

A member's client id names its process. Only that of a process of this kernel and pid namespace can be proved dead;
every other member is left to its timeout.
"""

import asyncio
from collections.abc import Awaitable, Callable, Generator
from contextlib import AsyncExitStack, contextmanager, suppress
from traceback import walk_tb
from typing import Any

from aiokafka.client import AIOKafkaClient, CoordinationType
from aiokafka.errors import (
    GroupCoordinatorNotAvailableError,
    KafkaConnectionError,
    KafkaError,
    for_code,
)
from aiokafka.protocol.admin import DescribeGroupsRequest
from aiokafka.protocol.commit import OffsetFetchRequest
from aiokafka.protocol.group import LeaveGroupRequest

from eden_memory.errors import describe
from eden_memory.kafka import KafkaArguments
from eden_memory.logs import LibraryLogger
from eden_memory.tasks import Deadline, end, proved_dead

CLOSE_SECONDS = 5.0
NO_BROKER = "Did we not perform bootstrap?"
Send = Callable[..., Awaitable[Any]]
FAILURES = (KafkaError, OSError, RuntimeError, TimeoutError)
log = LibraryLogger()


@contextmanager
def starting() -> Generator[None]:
    """Start a client: KafkaConnectionError while the cluster names no broker, no connection left if interrupted.

    A broker that was frozen or has just started names none, itself included, until the controller knows it again.
    aiokafka asserts that there is one where it looks for a coordinator.

    Its `bootstrap` forgets the connection over which it waits for the brokers. Only the error's frames hold it then,
    and where the garbage collector takes them, Python reports an unclosed StreamWriter.
    """
    try:
        yield
    except AssertionError as error:
        if error.args != (NO_BROKER,):
            raise
        raise KafkaConnectionError("the cluster names no broker yet") from error
    except BaseException as error:
        _close_lost(error)
        raise


def _close_lost(error: BaseException | None) -> None:
    while error is not None:
        for frame, _ in walk_tb(error.__traceback__):
            if (lost := frame.f_locals.get("bootstrap_conn")) is not None:
                lost.close()
        error = error.__context__


def consumer_broken(consumer: Any) -> bool:
    """Whether the consumer no longer fetches, or no longer belongs to its group."""
    return consumer._fetcher.error_future.done() or consumer._coordinator._coordination_task.done()


async def closed(close: Callable[[], Awaitable[object]], seconds: float = CLOSE_SECONDS) -> bool:
    """Whether closing came to its end; in time, and without an error.

    aiokafka's fetcher awaits the requests that it has cancelled: of one that waited for its next attempt the
    cancellation comes out of `stop`, and would pass for our own.
    """
    task = asyncio.current_task()
    before = task.cancelling() if task else 0
    try:
        async with Deadline(seconds):
            await close()
    except FAILURES:
        return False
    except asyncio.CancelledError:
        if task is None or task.cancelling() > before:
            raise
        return False
    return True


async def close_consumer(consumer: Any, seconds: float = CLOSE_SECONDS) -> None:
    """Leave the group if possible, and close the connections in any case, also when cancelled."""
    consumer._closed = True
    async with AsyncExitStack() as stack:  # the last one first
        stack.push_async_callback(closed, consumer._client.close, seconds)
        if (fetcher := consumer._fetcher) is not None:  # it had come so far
            stack.push_async_callback(closed, fetcher.close, seconds)
        if (coordinator := consumer._coordinator) is not None:
            stack.push_async_callback(_end_tasks, coordinator)
            stack.push_async_callback(closed, coordinator.close, seconds)


async def _end_tasks(coordinator: Any) -> None:
    """Stop the tasks that an interrupted `close` leaves, because they would connect again."""
    names = "_coordination_task", "_heartbeat_task", "_commit_refresh_task"
    tasks = [getattr(coordinator, name, None) for name in names]
    await end([task for task in tasks if task is not None])


def sending(producer: Any) -> "asyncio.Task[None]":
    """Return the task without which no further batch is confirmed."""
    return producer._sender.sender_task


async def close_producer(producer: Any, seconds: float = CLOSE_SECONDS) -> None:
    """Stop a producer that may have failed, and close its connections and end its task whatever happens: also when
    cancelled."""
    async with AsyncExitStack() as stack:  # the last one first
        stack.push_async_callback(end, filter(None, [sending(producer)]))  # none before the start
        for close in (producer.client.close, producer.stop):
            stack.push_async_callback(closed, close, seconds)


def heeding_group_errors(send: Send) -> Send:
    """Return a client's `send` that raises the KafkaError which an answer about offsets holds for the whole group.

    From version 2 on, OffsetFetch says in one place for the whole group that its coordinator is loading, or is
    another broker, as after a broker was frozen or has just started. aiokafka (0.14) looks at the partitions alone,
    of which such an answer holds none, and takes it for "this group has no offsets".
    """

    async def checked(node_id: int, request: Any, **more: Any) -> Any:
        response = await send(node_id, request, **more)
        code = getattr(response, "error_code", 0) if isinstance(request, OffsetFetchRequest) else 0
        if code:
            raise for_code(code)(f"{type(request).__name__} was refused for the whole group")
        return response

    return checked


async def remove_dead_members(kafka: KafkaArguments, group: str) -> list[str]:
    """Remove the members whose process is proved dead from a group; return their client ids.

    What the broker refuses is left.
    """
    client: Any = AIOKafkaClient(**kafka)
    removed: list[str] = []
    try:
        with starting():
            await client.bootstrap()
            node = await client.coordinator_lookup(CoordinationType.GROUP, group)
        described = await client.send(node, DescribeGroupsRequest([group]))
        for member_id, client_id, *_ in described.groups[0][5]:
            if proved_dead(client_id):
                await client.send(node, LeaveGroupRequest(group, member_id))
                removed.append(client_id)
    except GroupCoordinatorNotAvailableError:  # a new broker has no groups yet
        return []
    except KafkaError as error:
        log.info("dead members were not looked for", group=group, error=describe(error))
    finally:
        with suppress(KafkaError):
            await client.close()
    if removed:
        log.info("dead members left their group", group=group, members=len(removed))
    return removed
