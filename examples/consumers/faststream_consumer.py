"""Reads memory events with FastStream, typed by this project's own models, in a consumer group of its own.

    BROKERS=127.0.0.1:9092 faststream run examples.consumers.faststream_consumer:app

Records of an older version arrive in the newest one: `decode` upcasts them. What cannot be read is told and passed
over, and so is what the handler fails at (`AckPolicy.ACK` commits it all the same): catch what must not be lost. A
crash repeats the records since the last commit: a handler has to bear repeats anyway.
"""

import os
from typing import Any

from faststream import AckPolicy, FastStream
from faststream.kafka import KafkaBroker, KafkaMessage

from eden_memory.schemas.envelope import Envelope, EnvelopeError
from eden_memory.schemas.events import (
    Event,
    FactChanged,
    ReflectionFormed,
    SchemaViolation,
    ScopeConsolidated,
    decode,
)

PREFIX = os.environ.get("TOPIC_PREFIX", "")
TOPICS = [PREFIX + topic for topic in ("memory.facts", "memory.reflections", "memory.consolidations")]

broker = KafkaBroker(os.environ.get("BROKERS", "127.0.0.1:9092"))
app = FastStream(broker)


async def as_it_is(message: KafkaMessage) -> KafkaMessage:
    """In place of FastStream's own decoder, which takes a tombstone for broken JSON."""
    return message


@broker.subscriber(
    *TOPICS,
    group_id=os.environ.get("GROUP", "mine.memory-events"),
    auto_offset_reset="earliest",
    ack_policy=AckPolicy.ACK,
    decoder=as_it_is,
)
async def on_memory(message: KafkaMessage) -> None:
    """Every record, in order within its scope."""
    record: Any = message.raw_message
    try:
        about = Envelope.of_headers(record.headers)
        if record.value is None:
            print(f"erased {about.subject}: {about.reason}", flush=True)
        else:
            told(decode(about.name, about.version, record.value))
    except (EnvelopeError, SchemaViolation) as error:
        print(f"left out {record.topic}/{record.partition}@{record.offset}: {error}", flush=True)


def told(event: Event) -> None:
    """What an event says."""
    match event:
        case FactChanged():
            print(f"fact {event.fact_id}@{event.version} {event.decision} {event.text!r}", flush=True)
        case ReflectionFormed():
            print(f"reflection {event.scope.key} {event.text!r}", flush=True)
        case ScopeConsolidated():
            print(f"blob {event.scope.key}@{event.version} {event.text!r}", flush=True)
        case _:
            print(f"{event.NAME} {event.key()}", flush=True)
