"""Brokers that take only small batches for a topic."""
# pyright: reportPrivateImportUsage=false

from typing import Any

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from eden_memory.kafka.connection import admin_config
from eden_memory.settings import Settings
from tests.servers import wait_until


def limit(settings: Settings, topic: str, size: int) -> None:
    """Have the broker take no larger batches for a topic."""
    assert settings.kafka.bootstrap is not None
    admin: Any = AdminClient(admin_config(settings.kafka, settings.kafka.bootstrap))
    entry = ConfigEntry("max.message.bytes", str(size), incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    for done in admin.incremental_alter_configs([resource]).values():
        done.result()
    wait_until(lambda: _limit(admin, topic) == str(size), f"{topic} takes {size} bytes")


def _limit(admin: Any, topic: str) -> str | None:
    """None: the broker does not know yet of the topic that its controller has made."""
    (asked,) = admin.describe_configs([ConfigResource(ResourceType.TOPIC, topic)]).values()
    try:
        return asked.result()["max.message.bytes"].value
    except KafkaException:
        return None
