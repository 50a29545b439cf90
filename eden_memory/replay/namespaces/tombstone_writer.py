"""The tombstones of memory topics → a namespace that is not filled to its end: what is forgotten leaves it.

Nothing else of the topics is written: a rebuild that somebody has stopped does not go on by itself. What its command
writes later from before a tombstone is not to stand either: the mark is older than the tombstone, and the writer
looks for marks before each write and after it.
"""

from collections.abc import Sequence
from typing import Any

from aiokafka import TopicPartition

from eden_memory.errors import EdenError
from eden_memory.kafka import offsets
from eden_memory.replay.rebuild.memory_topics import Places
from eden_memory.schemas.events import Event, FactChanged
from eden_memory.schemas.registry import Registry
from eden_memory.stages.stage import Decision, Delivery, Handler

PASSED_OVER: Event = FactChanged.model_construct(said_at=None)
"""Stands for any value."""


class Undecoded(Registry):
    """The types of another registry; a value is not looked into, as nobody asks what it says: vectors are long."""

    def __init__(self, of: Registry) -> None:
        self.events = of.events

    def decode(self, name: str, version: int, value: bytes) -> Event:
        """That there is one."""
        del name, version, value
        return PASSED_OVER


def tombstones_alone(writer: Handler) -> Handler:
    """The writer, given only records that end something; the others are done with."""

    async def run(deliveries: Sequence[Delivery]) -> Decision:
        ends = [index for index, one in enumerate(deliveries) if one.event is None]
        if not ends:
            return Decision(())
        decision = await writer([deliveries[index] for index in ends])
        assert isinstance(decision, Decision)
        if decision.covers is None or decision.covers >= len(ends):
            return Decision(())
        return Decision((), covers=ends[decision.covers])

    return run


async def begin_where(
    client: dict[str, Any], admin: dict[str, Any], topics: Sequence[str], group: str, other: str
) -> None:
    """Let a group begin at the offsets of the `other` one, which has done all before them; where that has none, at
    the beginning. Where it has begun already it stays. `client` is aiokafka's configuration, `admin` librdkafka's."""
    reached = await offsets.committed(admin, other)
    async with Places(client, topics, group) as places:
        begun = {TopicPartition(one.topic, one.partition): one.begin for one in await places.all()}
    try:
        await offsets.commit(admin, group, {tp: reached.get(tp, begin) for tp, begin in begun.items()})
    except EdenError:  # another process was first, and is in it
        if begun.keys() - (await offsets.committed(admin, group)).keys():
            raise
