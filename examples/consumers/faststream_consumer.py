"""Reads memory events with FastStream, typed by this project's own models, in a consumer group of its own.

    BROKERS=127.0.0.1:9092 faststream run examples.consumers.faststream_consumer:app

Records of older versions arrive in the newest one. A handler that fails is called again with growing pauses; then the
record goes to the topic `mine.memory-events.dead`, and so does what cannot be read. A crash repeats the records
since the last commit: a handler has to tolerate repeats.
"""

import os

from faststream import FastStream
from faststream.kafka import KafkaBroker

from eden_memory.schemas.events import FactChanged, ReflectionFormed, ScopeConsolidated
from eden_memory.subscribe import MemoryRouter, Tombstone

memory = MemoryRouter(os.environ.get("GROUP", "mine.memory-events"))


@memory.on(FactChanged)
async def on_fact(fact: FactChanged) -> None:
    """A version of a fact."""
    print(f"fact {fact.fact_id}@{fact.version} {fact.decision} {fact.text!r}", flush=True)


@memory.on(ReflectionFormed)
async def on_reflection(reflection: ReflectionFormed) -> None:
    """A version of a reflection."""
    print(f"reflection {reflection.scope.key} {reflection.text!r}", flush=True)


@memory.on(ScopeConsolidated)
async def on_blob(blob: ScopeConsolidated) -> None:
    """A version of a scope's blob."""
    print(f"blob {blob.scope.key}@{blob.version} {blob.text!r}", flush=True)


@memory.on_tombstone(FactChanged)
@memory.on_tombstone(ReflectionFormed)
@memory.on_tombstone(ScopeConsolidated)
async def on_erased(erased: Tombstone) -> None:
    """A version that was forgotten."""
    print(f"erased {erased.entity}: {erased.reason}", flush=True)


broker = KafkaBroker(os.environ.get("BROKERS", "127.0.0.1:9092"))
broker.include_router(memory)
app = FastStream(broker)
