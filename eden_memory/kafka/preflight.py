"""Waits before a process begins until Kafka answers and its topics exist."""

import asyncio
from collections.abc import Iterable, Mapping
from typing import Any

from confluent_kafka import KafkaError as LibraryError
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient  # pyright: ignore[reportUnknownVariableType]

from eden_memory.awaited import Awaited
from eden_memory.errors import EdenError

ANSWER_SECONDS = 0.8
"""For one attempt: connecting goes on meanwhile, however slow the broker is."""
HINT = "Check EDEN_KAFKA_BOOTSTRAP, or start the local servers with `eden up`."
SASL_HINT = "Check EDEN_KAFKA_SECURITY_PROTOCOL and EDEN_KAFKA_SASL_MECHANISM, _USERNAME and _PASSWORD."


async def topics_exist(config: Mapping[str, Any], wanted: Iterable[str], patience: float = 60.0) -> None:
    """Return when the broker has all topics; an EdenError that names the missing ones.

    A broker that does not answer is asked again for `patience` seconds: at the start of a deployment everything
    comes up at once. One that does not accept the user is asked once.
    """
    missing = sorted(set(wanted) - set(await _topics(config, patience)))
    if missing:
        raise EdenError(
            f"Kafka has no topic {', '.join(missing)}", "Create what is missing: eden topics apply"
        )


async def _topics(config: Mapping[str, Any], patience: float) -> Iterable[str]:
    server, loop = f"Kafka at {config['bootstrap.servers']}", asyncio.get_running_loop()
    until, reasons, awaited = loop.time() + patience, list[LibraryError](), Awaited(server, HINT)
    # What goes wrong is said here: librdkafka's own log lines would repeat it at every attempt to connect.
    options: dict[str, Any] = {**config, "log_level": 0, "error_cb": reasons.append}
    admin: Any = AdminClient(options)
    async with awaited.said():
        while True:
            try:
                return (await asyncio.to_thread(admin.list_topics, timeout=ANSWER_SECONDS)).topics
            except KafkaException as error:
                admin.poll(0)
                reason = _reason(reasons) or error.args[0].str()
                if any(kafka_error.code() == LibraryError._AUTHENTICATION for kafka_error in reasons):
                    raise EdenError(f"{server} refuses: {reason}", SASL_HINT) from None
                if loop.time() >= until:
                    raise EdenError(f"{server} does not answer: {reason}", HINT) from None
                awaited.away(reason)
                reasons.clear()
                await asyncio.sleep(ANSWER_SECONDS)


def _reason(reasons: Iterable[LibraryError]) -> str:
    """Return why the last attempt to connect failed: without the address, and how long it took."""
    said = [reason.str() for reason in reasons if reason.code() != LibraryError._ALL_BROKERS_DOWN]
    return said[-1].partition(": ")[2].partition(" (after")[0] if said else ""
