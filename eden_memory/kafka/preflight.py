"""What has to be there before a process begins: Kafka answers, and its topics exist."""

import asyncio
from collections.abc import Iterable, Mapping
from typing import Any

import structlog
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient  # pyright: ignore[reportUnknownVariableType]

from eden_memory.errors import EdenError

log = structlog.get_logger("eden.process")

ANSWER_SECONDS = 5.0


async def topics_exist(config: Mapping[str, Any], wanted: Iterable[str], patience: float = 60.0) -> None:
    """Return when the broker has all topics; an EdenError that names the missing ones.

    A broker that does not answer is asked again for `patience` seconds: at the start of a deployment everything
    comes up at once.
    """
    loop = asyncio.get_running_loop()
    until = loop.time() + patience
    admin: Any = AdminClient(dict(config))
    while True:
        try:
            metadata = await asyncio.to_thread(admin.list_topics, timeout=ANSWER_SECONDS)
            break
        except KafkaException as error:
            if loop.time() >= until:
                raise EdenError(
                    f"Kafka at {config['bootstrap.servers']} does not answer: {error.args[0].str()}",
                    "Check EDEN_KAFKA_BOOTSTRAP, or start the local servers: eden up",
                ) from None
            log.warning("waits for Kafka", bootstrap=config["bootstrap.servers"])
            await asyncio.sleep(1)
    missing = sorted(set(wanted) - set(metadata.topics))
    if missing:
        raise EdenError(
            f"Kafka has no topic {', '.join(missing)}", "Create what is missing: eden topics apply"
        )
