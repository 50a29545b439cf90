"""Connections that close under a request: uvloop says so by a RuntimeError, and the stage goes on all the same."""

import asyncio
import inspect
from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

import pytest
import uvloop
from aiokafka import AIOKafkaConsumer
from aiokafka.client import AIOKafkaClient
from aiokafka.conn import AIOKafkaConnection
from aiokafka.errors import KafkaConnectionError
from aiokafka.protocol.metadata import MetadataRequest

from eden_memory.kafka import broken_clients as broken
from eden_memory.kafka.connection import start
from eden_memory.kafka.fencing import fence
from eden_memory.kafka.groups import GroupAdmin
from eden_memory.stages.failure_decisions import Kind, classify, connection_lost
from eden_memory.stages.publishing import Publisher, new_producer
from eden_memory.stages.stage import Delivery, Emitted
from eden_memory.stages.worker import Worker
from eden_memory.tasks import end
from tests.integration.stages.harness import (
    Answered,
    Bench,
    answered,
    in_order,
    questions,
    running,
    stage,
    until,
)

pytestmark = pytest.mark.servers
CLOSED = "unable to perform operation on <TCPTransport closed=True reading=False 0x1>; the handler is closed"


class Breaking:
    """Lets the next requests of a kind find their connection closed."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
        self.left, self.broken = 0, 0
        send: Any = getattr(AIOKafkaConnection, "send")  # noqa: B009 - the library has no annotations

        def sending(connection: Any, request: Any, *more: Any, **options: Any) -> Any:
            if self.left and type(request).__name__.startswith(kind):
                self.left, self.broken = self.left - 1, self.broken + 1
                raise RuntimeError(CLOSED)
            return send(connection, request, *more, **options)

        monkeypatch.setattr(AIOKafkaConnection, "send", sending)


@pytest.mark.parametrize(
    "kind",
    ["FetchRequest", "HeartbeatRequest", "OffsetCommitRequest", "OffsetFetchRequest", "ProduceRequest"],
)
async def test_a_stage_goes_on_after_its_connection_closed_under_a_request(
    kit: Bench, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    calls: Counter[str] = Counter()

    async def counted(deliveries: Sequence[Delivery]) -> list[Emitted]:
        calls.update(one.id for one in deliveries)
        if kind == "ProduceRequest" and not breaking.broken:
            breaking.left = 1
        return [answered(one) for one in deliveries]

    breaking = Breaking(monkeypatch, kind)
    await kit.put(questions(6, 3))
    async with running(Worker(stage(counted), kit.around())):
        if kind != "ProduceRequest":
            await kit.answers(18)
            breaking.left = 1
        if kind in ("FetchRequest", "HeartbeatRequest"):
            await until(lambda: breaking.broken, "a request that broke")
        if kind == "OffsetFetchRequest":
            async with running(Worker(stage(counted), kit.around())):  # a rebalance asks for the offsets
                await until(lambda: breaking.broken, "a request that broke")
        await kit.put(questions(6, 6)[18:])
        assert in_order(await kit.answers(36, seconds=60))

        async def all_committed() -> bool:
            return await kit.committed() == 36

        await until(all_committed, "all committed", seconds=60)
    assert breaking.broken == 1
    assert set(calls) == {one.key.decode() for one in questions(6, 6) if one.key}
    assert set(calls.values()) == {1}


async def _consumer(kit: Bench) -> None:
    await start(AIOKafkaConsumer(**kit.client))


async def _dead_members(kit: Bench) -> None:
    await broken.remove_dead_members(kit.client, kit.group)


async def _fence(kit: Bench) -> None:
    await fence(kit.client, "fenced", [kit.topic(Answered)])


async def _groups(kit: Bench) -> None:
    await GroupAdmin(kit.client).connect()


async def _member(kit: Bench) -> None:
    await Worker(stage(), kit.around()).membership._join()  # pyright: ignore[reportPrivateUsage]


async def _publisher(kit: Bench) -> None:
    await Publisher(lambda: new_producer(kit.client)).start()


@pytest.mark.parametrize("starting", [_consumer, _dead_members, _fence, _groups, _member, _publisher])
async def test_a_start_that_is_interrupted_at_its_first_question_leaves_no_connection(
    kit: Bench, monkeypatch: pytest.MonkeyPatch, starting: Callable[[Bench], Coroutine[Any, Any, None]]
) -> None:
    """A stage that stops while it connects: the frames of the error kept the connection until they were collected."""
    asking = list[Any]()
    send: Any = getattr(AIOKafkaConnection, "send")  # noqa: B009 - the library has no annotations

    def sending(connection: Any, request: Any, *more: Any) -> Any:
        if isinstance(request, MetadataRequest):
            asking.append(connection)
            return asyncio.Event().wait()
        return send(connection, request, *more)

    monkeypatch.setattr(AIOKafkaConnection, "send", sending)
    task = asyncio.create_task(starting(kit))
    await until(lambda: asking, "the brokers are asked for")
    transport = asking[0]._writer.transport
    task.cancel()
    with pytest.raises(asyncio.CancelledError) as interrupted:
        await task
    assert transport.is_closing(), interrupted


async def test_a_stage_starts_while_the_cluster_names_no_broker(
    kit: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As for a moment after a freeze that was longer than the controller's patience: the stage ended for good."""
    named: Any = getattr(AIOKafkaClient, "get_random_node")  # noqa: B009 - the library has no annotations
    asked = list[None]()

    def none_at_first(client: Any) -> Any:
        asked.append(None)
        return None if len(asked) < 4 else named(client)

    monkeypatch.setattr(AIOKafkaClient, "get_random_node", none_at_first)
    with pytest.raises(KafkaConnectionError):
        await _fence(kit)
    asked.clear()
    await kit.put(questions(2, 2))
    async with running(Worker(stage(), kit.around())):
        await kit.answers(4)
    assert len(asked) > 3


def test_uvloop_says_of_a_closed_transport_what_is_looked_for() -> None:
    async def write_after_close() -> RuntimeError:
        server = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0)
        host, port = server.sockets[0].getsockname()
        transport, _ = await asyncio.get_running_loop().create_connection(asyncio.Protocol, host, port)
        transport.abort()
        await asyncio.sleep(0)
        with pytest.raises(RuntimeError) as raised:
            transport.write(b"anything")
        server.close()
        await server.wait_closed()
        return raised.value

    error = uvloop.run(write_after_close())
    assert connection_lost(error)
    assert classify(error) is Kind.AWAY
    assert classify(RuntimeError("anything else")) is Kind.BUG


async def test_the_clients_have_the_tasks_that_are_watched(kit: Bench) -> None:
    worker = Worker(stage(), kit.around())
    async with running(worker):
        await until(lambda: worker.membership.homes, "partitions")
        consumer: Any = worker.membership._consumer  # pyright: ignore[reportPrivateUsage]
        assert isinstance(consumer._fetcher.error_future, asyncio.Task)
        assert isinstance(consumer._coordinator._coordination_task, asyncio.Task)
        assert not broken.consumer_broken(consumer)
        assert consumer._closed is False
        for part in (consumer._coordinator, consumer._fetcher, consumer._client):
            assert inspect.iscoroutinefunction(part.close)
        assert inspect.iscoroutinefunction(consumer._client.send)
    assert consumer._closed is True
    producer = await kit.publisher.producer()
    assert isinstance(broken.sending(producer), asyncio.Task)
    assert inspect.iscoroutinefunction(producer.client.close)


@pytest.mark.slow
async def test_a_consumer_whose_closing_is_interrupted_leaves_no_connection(kit: Bench) -> None:
    """Told to stop while it joins again, and told once more while it leaves."""
    for broken_before in (True, False):
        worker = Worker(stage(), kit.around())
        at_work = asyncio.create_task(worker.run())
        await until(lambda worker=worker: worker.membership.homes, "partitions")
        consumer: Any = worker.membership._consumer  # pyright: ignore[reportPrivateUsage]
        closing = hanging(consumer._coordinator, "close")
        if broken_before:
            consumer._fetcher.error_future.cancel()
            await asyncio.wait_for(closing.wait(), 60)
        worker.stop()
        await asyncio.wait_for(closing.wait(), 60)
        await end([at_work])
        await until(lambda consumer=consumer: not connected(consumer._client), "all connections closed")
        assert consumer._fetcher.error_future.done()


async def test_a_producer_whose_closing_is_interrupted_leaves_no_connection(kit: Bench) -> None:
    producer = await kit.publisher.producer()
    closing = hanging(producer._sender, "close")
    kit.publisher.discard(producer)
    await asyncio.wait_for(closing.wait(), 60)
    await kit.publisher.stop(0.1)
    assert not connected(producer.client)
    assert broken.sending(producer).done()


def hanging(of: Any, name: str) -> asyncio.Event:
    """Let a method never return; set once it is called."""
    called = asyncio.Event()

    async def hang() -> None:
        called.set()
        await asyncio.Event().wait()

    setattr(of, name, hang)
    return called


def connected(client: Any) -> list[Any]:
    return [one for one in client._conns.values() if one.connected()]
