"""A refusal to say a group's offsets is an error, never "this group has no offsets"."""

from typing import Any

import pytest
from aiokafka.client import AIOKafkaClient
from aiokafka.errors import GroupLoadInProgressError, NotCoordinatorForGroupError
from aiokafka.protocol.commit import OffsetFetchRequest, OffsetFetchResponse_v3

from eden_memory.kafka.broken_clients import heeding_group_errors
from eden_memory.stages.membership import new_consumer

ASKED = OffsetFetchRequest("group", [("topic", [0])])


def answering(*responses: OffsetFetchResponse_v3) -> Any:
    left = list(responses)

    async def send(node_id: int, request: Any, **more: Any) -> OffsetFetchResponse_v3:
        return left.pop(0)

    return send


def refused(error: Any) -> OffsetFetchResponse_v3:
    return OffsetFetchResponse_v3(0, [], error.errno)


FOUND = OffsetFetchResponse_v3(0, [("topic", [(0, 42, "", 0)])], 0)


@pytest.mark.parametrize("error", [GroupLoadInProgressError, NotCoordinatorForGroupError])
async def test_a_refusal_for_the_whole_group_is_raised_and_may_be_tried_again(error: Any) -> None:
    with pytest.raises(error) as raised:
        await heeding_group_errors(answering(refused(error)))(1, ASKED)
    assert raised.value.retriable


async def test_an_answer_passes() -> None:
    assert await heeding_group_errors(answering(FOUND))(1, ASKED) is FOUND


async def test_the_consumers_of_stages_heed_them(monkeypatch: pytest.MonkeyPatch) -> None:
    async def send(self: AIOKafkaClient, node_id: int, request: Any, **more: Any) -> OffsetFetchResponse_v3:
        return refused(GroupLoadInProgressError)

    monkeypatch.setattr(AIOKafkaClient, "send", send)
    consumer: Any = new_consumer({"bootstrap_servers": "127.0.0.1:1"}, "group", ["topic"])
    consumer._closed = True  # it was never started
    with pytest.raises(GroupLoadInProgressError):
        await consumer._client.send(1, ASKED)
