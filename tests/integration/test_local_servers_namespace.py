"""The fixtures themselves: what a test makes in its namespace works, and nothing else is reachable."""

import socket
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from confluent_kafka.admin import AdminClient  # pyright: ignore[reportUnknownVariableType]
from confluent_kafka.cimpl import NewTopic
from pytest_socket import SocketConnectBlockedError

from eden_memory.kafka.connection import admin_config, client_kwargs
from eden_memory.mongo.client import connect
from eden_memory.settings import Settings


async def test_a_record_goes_through_kafka(settings: Settings) -> None:
    bootstrap = settings.kafka.bootstrap or ""
    topic = f"{settings.kafka.topic_prefix}greetings"
    admin: Any = AdminClient(admin_config(settings.kafka, bootstrap))
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(10)
    producer: Any = AIOKafkaProducer(**client_kwargs(settings.kafka, bootstrap))
    async with producer:
        await producer.send_and_wait(topic, b"hello", key=b"k")
    group = f"{settings.kafka.group_prefix}readers"
    options = client_kwargs(settings.kafka, bootstrap)
    consumer: Any = AIOKafkaConsumer(topic, group_id=group, auto_offset_reset="earliest", **options)
    async with consumer:
        record = await consumer.getone()
        await consumer.commit()
    assert (record.key, record.value) == (b"k", b"hello")


async def test_mongodb_is_a_replica_set_that_takes_transactions(settings: Settings) -> None:
    assert settings.mongodb.uri is not None
    async with connect(settings.mongodb.uri.get_secret_value()) as client:
        things = client[settings.mongodb.database]["things"]
        await things.insert_one({"_id": 0})
        async with client.start_session() as session, await session.start_transaction():
            await things.insert_one({"_id": 1}, session=session)
        assert await things.count_documents({}) == 2


@pytest.mark.filterwarnings("ignore:A test tried to use socket")
def test_no_test_reaches_the_network() -> None:
    with socket.socket() as outside, pytest.raises(SocketConnectBlockedError):
        outside.connect(("192.0.2.1", 80))
