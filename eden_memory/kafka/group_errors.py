"""Answers about a group's offsets that are refusals: aiokafka takes them for "this group has no offsets".

From version 2 on, OffsetFetch says in one place for the whole group that its coordinator is loading, or is another
broker; aiokafka (0.14) looks only at the partitions, of which such an answer holds none. A broker that was
frozen, or has just started, answers so.
"""

from collections.abc import Awaitable, Callable
from typing import Any

from aiokafka.errors import for_code
from aiokafka.protocol.commit import OffsetFetchRequest

Send = Callable[..., Awaitable[Any]]


def heeding_group_errors(send: Send) -> Send:
    """The `send` of a client, raising the KafkaError that an answer about offsets holds for the whole group."""

    async def checked(node_id: int, request: Any, **more: Any) -> Any:
        response = await send(node_id, request, **more)
        code = getattr(response, "error_code", 0) if isinstance(request, OffsetFetchRequest) else 0
        if code:
            raise for_code(code)(f"{type(request).__name__} was refused for the whole group")
        return response

    return checked
