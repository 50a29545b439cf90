"""`/v1/agents/{agent}/events`: changes of memory as they are committed, as server-sent events."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass
from typing import Annotated, TypeVar

from fastapi import APIRouter, Header, Query, Request
from fastapi.responses import StreamingResponse
from pydantic import TypeAdapter
from starlette.types import Receive, Scope, Send

from eden_memory.access.admission_store import Caller, TooMany
from eden_memory.api.http.doors import AdmittedRoute, AgentId, Doors, Where, doors_of
from eden_memory.api.http.problem import problem_of
from eden_memory.errors import EdenError
from eden_memory.memory.memory_views import MemoryChange
from eden_memory.operations.admitted_call import AdmittedCall
from eden_memory.operations.memory_changes import position, seen_by
from eden_memory.operations.table import BY_NAME
from eden_memory.tasks import end, first_of

T = TypeVar("T")
CHANGE = TypeAdapter(MemoryChange)
HEARTBEAT = b": nothing new\n\n"
ROW = BY_NAME["changes"]
OPENED = b"retry: 2000\n: listening\n\n"
router = APIRouter(prefix="/v1/agents/{agent}", route_class=AdmittedRoute)
LastEventId = Annotated[
    str | None,
    Header(
        alias="Last-Event-ID",
        max_length=4_096,
        description="The id of the last event seen: it goes on there.",
    ),
]


@dataclass(frozen=True, slots=True)
class ServerSentEvent:
    """One event; `data` of one line."""

    id: str
    name: str
    data: str

    def encoded(self) -> bytes:
        """Return the event as bytes."""
        return f"id: {self.id}\nevent: {self.name}\ndata: {self.data}\n\n".encode()


async def server_sent(
    changes: AsyncGenerator[T],
    event_of: Callable[[T], ServerSentEvent],
    heartbeat_seconds: float,
    stopping: asyncio.Event,
    check_access: Callable[[], Awaitable[None]],
) -> AsyncGenerator[bytes]:
    """Events, and a comment whenever none came for `heartbeat_seconds`.

    `check_access` is called before every event and comment; a refusal ends the stream, as `stopping` does. What was
    opened is closed however it ends.
    """
    coming = asyncio.ensure_future(anext(changes))
    try:
        yield OPENED
        while True:
            await first_of(coming, stopping, seconds=heartbeat_seconds)
            if stopping.is_set():
                return
            await check_access()
            if not coming.done():
                yield HEARTBEAT
                continue
            yield event_of(coming.result()).encoded()
            coming = asyncio.ensure_future(anext(changes))
    except (StopAsyncIteration, EdenError):
        return
    finally:
        await end([coming])
        await changes.aclose()


@router.get(
    "/events",
    tags=["events"],
    summary=ROW.summary,
    description=ROW.words,
    response_class=StreamingResponse,
)
async def events(
    request: Request,
    agent: AgentId,
    where: Annotated[Where, Query()],
    last_event_id: LastEventId = None,
) -> StreamingResponse:
    """Answer with a stream of events."""
    doors = doors_of(request)
    call = await doors.enter(request, "read", agent, where)
    if last_event_id:
        seen_by(last_event_id)  # refused here: in the stream it could only end it
    return EventStream(doors, call.caller, memory_events(doors, request, call, last_event_id or None))


class EventStream(StreamingResponse):
    """Counted while it is open; what it opened is closed whenever and however the client leaves."""

    def __init__(self, doors: Doors, caller: Caller, body: AsyncGenerator[bytes]) -> None:
        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        super().__init__(body, media_type="text/event-stream", headers=headers)
        self._doors, self._caller, self._body = doors, caller, body

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        try:
            async with self._doors.streaming(self._caller):
                await super().__call__(scope, receive, send)
        except TooMany as error:
            await problem_of(error)(scope, receive, send)
        finally:
            await self._body.aclose()


def _event(change: MemoryChange) -> ServerSentEvent:
    return ServerSentEvent(change.id, change.what, CHANGE.dump_json(change).decode())


async def memory_events(
    doors: Doors,
    request: Request,
    call: AdmittedCall,
    after: str | None,
    event_of: Callable[[MemoryChange], ServerSentEvent] = _event,
) -> AsyncGenerator[bytes]:
    """Yield the changes that an admitted request may see, as events, while it may see them.

    Without `after`, whatever changes once the stream says that it listens.
    """

    async def check_access() -> None:
        await doors.admission.still(request.scope["headers"])
        await call.demand("read")

    after = after or await position(doors.memory, call.asked)
    changes = call.service.changes(**call.named, after=after)
    sent = server_sent(changes, event_of, doors.settings.heartbeat_seconds, doors.stopping, check_access)
    async with aclosing(sent):
        async for chunk in sent:
            yield chunk
