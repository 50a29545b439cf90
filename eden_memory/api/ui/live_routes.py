"""`/ui/events`: tells an open page that memory has changed; it then asks for itself anew. Events hold no memory."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Annotated

from fastapi import APIRouter, Query, Request
from fastapi.responses import StreamingResponse
from pydantic import Field

from eden_memory.api.http.doors import Doors, Where, doors_of
from eden_memory.api.http.events import EventStream, ServerSentEvent, memory_events, server_sent
from eden_memory.api.ui.inspector_route import AdmittedPage
from eden_memory.api.ui.visiting import ViewPlace, demand_to_read_all, visit
from eden_memory.operations.memory_changes import seen_by
from eden_memory.operations.parameters import IdText

router = APIRouter(prefix="/ui", route_class=AdmittedPage)
PAUSE_SECONDS = 2.0
"""A page that shows all memory is not refreshed more often."""


class LivePlace(Where):
    """Whose changes; without an agent, those of all memory."""

    agent: IdText | None = None
    after: Annotated[str | None, Field(max_length=65_536)] = None
    """Since when: changes from then on are told first."""


@router.get("/events", response_class=StreamingResponse)
async def events(request: Request, place: Annotated[LivePlace, Query()]) -> StreamingResponse:
    """Stream the event `memory` for what the page shows; it ends when the caller may no longer see it."""
    doors, caller = doors_of(request), request.state.caller
    if place.agent is None:
        demand_to_read_all(caller)
        return EventStream(doors, caller, _everything(doors, request))
    if place.after is not None:
        seen_by(place.after)  # refused here: in the stream it could only end it
    here = await visit(request, ViewPlace(agent=place.agent, session=place.session, user=place.user))
    return EventStream(doors, caller, memory_events(doors, request, here.call, place.after, _changed))


def _changed(change: object) -> ServerSentEvent:
    del change
    return ServerSentEvent("", "memory", "")


async def _everything(doors: Doors, request: Request) -> AsyncGenerator[bytes]:
    async def check_access() -> None:
        await doors.admission.still(request.scope["headers"])

    sent = server_sent(
        _changes(doors), _changed, doors.settings.heartbeat_seconds, doors.stopping, check_access
    )
    async with aclosing(sent):
        async for chunk in sent:
            yield chunk


async def _changes(doors: Doors) -> AsyncGenerator[None]:
    """Yield whenever any memory has changed, at most every two seconds."""
    changed = asyncio.Event()
    contexts = (await doors.memory.current()).contexts
    with contexts.told(lambda _: changed.set()):
        await contexts.ready()
        while True:
            await changed.wait()
            changed.clear()
            yield
            await asyncio.sleep(PAUSE_SECONDS)
