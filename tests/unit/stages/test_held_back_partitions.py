"""A consumer whose partitions are all held back asks for none of them: asking for nothing would mean all."""

from typing import Any

from aiokafka import TopicPartition

from eden_memory.stages.lanes import AssignedPartition
from eden_memory.stages.membership import NOWHERE, Membership


class Consumer:
    """Takes down what it is asked for."""

    def __init__(self) -> None:
        self.asked: list[tuple[TopicPartition, ...]] = []

    def __bool__(self) -> bool:
        return False  # not broken

    async def getmany(self, *partitions: TopicPartition, **_: Any) -> dict[TopicPartition, Any]:
        self.asked.append(partitions)
        return {}


async def test_what_is_held_back_is_not_asked_for(monkeypatch: Any) -> None:
    monkeypatch.setattr("eden_memory.stages.membership.consumer_broken", bool)
    notes: Any = None
    member: Any = Membership({}, "group", ["topic"], notes, lambda: None, lambda: None)
    member._consumer = Consumer()
    held = [TopicPartition("topic", number) for number in range(2)]
    member.homes = {tp: AssignedPartition(tp.topic, tp.partition) for tp in held}
    for back in (set[TopicPartition](), {held[0]}, set(held)):
        await member.fetch(0.0, 10, back)
    assert member._consumer.asked == [(), (held[1],), (NOWHERE,)]
