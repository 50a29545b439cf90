"""`/ui/windows`: closed windows with their state and what they cost, and the messages that wait for one."""

from datetime import UTC, datetime
from typing import Annotated, Literal

from fastapi import APIRouter, Query, Request, Response
from pymongo.errors import ExecutionTimeout

from eden_memory.access.admission_store import Caller
from eden_memory.api.http.doors import Doors, Where, doors_of
from eden_memory.api.ui.inspector_route import AdmittedPage
from eden_memory.api.ui.pages import render
from eden_memory.api.ui.visiting import ViewPlace, Visit, demand_to_read_all, visit
from eden_memory.app.readers import Readers
from eden_memory.assembly.handlers import window_limits
from eden_memory.operations.parameters import IdText
from eden_memory.schemas.documents import Message
from eden_memory.usage.usage_store import MongoTotals
from eden_memory.windows.window_list_store import (
    NOT_COUNTED,
    ListedWindow,
    WindowLists,
    describe_pending,
    pending_messages,
    sessions_without_documents,
)

router = APIRouter(prefix="/ui", route_class=AdmittedPage)
LISTED = 50
SHOWN = ("newest", "waiting", "failed")


class WindowsPlace(Where):
    """Which windows: of an agent's session, or the newest, waiting or failed ones of all."""

    agent: IdText | None = None
    asked: str | None = None
    show: Literal["newest", "waiting", "failed"] = "newest"


@router.get("/windows")
async def windows(request: Request, place: Annotated[WindowsPlace, Query()]) -> Response:
    """Show windows; of all sessions only to callers that are bound to no agent and no user."""
    doors = doors_of(request)
    readers = await doors.memory.current()
    here = await _visit(request, place)
    lists = WindowLists(doors.memory.database, readers.settings.names)
    found = await _found(lists, place, here)
    totals = MongoTotals(doors.memory.database, readers.settings.names)
    return render(
        request,
        "windows.html",
        visit=here,
        windows=found,
        paid=await totals.of_formations([window.formation_id for window in found]),
        place=place,
        shown=SHOWN,
        pending=[] if here is not None else await pending_lines(doors, readers),
    )


async def _visit(request: Request, place: WindowsPlace) -> Visit | None:
    """Return the session's visit; None for windows of all, Refused where the caller is bound."""
    caller: Caller = request.state.caller
    if place.session is not None and place.agent is not None:
        return await visit(request, ViewPlace(agent=place.agent, session=place.session, user=place.user))
    demand_to_read_all(caller)
    return None


async def _found(lists: WindowLists, place: WindowsPlace, here: Visit | None) -> list[ListedWindow]:
    if here is not None or place.show == "newest":
        return await lists.newest(LISTED, None if here is None else here.session)
    return await (lists.waiting(LISTED) if place.show == "waiting" else lists.failed(LISTED))


async def pending_lines(doors: Doors, readers: Readers) -> list[str]:
    """Return lines about messages that wait to be formed."""
    database, names = doors.memory.database, readers.settings.names
    limits = window_limits(readers.settings)
    try:
        found = await pending_messages(database[names[Message.COLLECTION]], limits.least)
    except ExecutionTimeout:
        return [NOT_COUNTED]
    held = await sessions_without_documents(database[names["sessions"]])
    return list(describe_pending(found, held, limits, datetime.now(UTC)))
