"""`/ui/shared`: what came from users into memory that others see, and a button that takes it back."""

from typing import Annotated

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import RedirectResponse
from pydantic import BaseModel, ConfigDict

from eden_memory.access.admission_store import Right
from eden_memory.api.http.doors import Where, doors_of
from eden_memory.api.ui.inspector_route import AdmittedPage, form_of
from eden_memory.api.ui.visiting import DOOR, ViewPlace, Visit, visit
from eden_memory.limits import MOST_LISTED
from eden_memory.operations.parameters import MemoryId

router = APIRouter(prefix="/ui", route_class=AdmittedPage)


class TakeBackForm(BaseModel):
    """The item, and whether its one user gets it; else it is retired."""

    model_config = ConfigDict(extra="forbid")

    id: MemoryId
    move: bool = False


@router.get("/shared")
async def shared(request: Request, place: Annotated[ViewPlace, Query()]) -> Response:
    """List what came from users, newest first."""
    here = await _visit(request, place, "read")
    found = await here.service.list_shared(limit=MOST_LISTED)
    return here.render("shared.html", items=found, full=len(found) == MOST_LISTED)


@router.post("/shared")
async def take_back(request: Request, place: Annotated[ViewPlace, Query()]) -> Response:
    """Request that an item is given to its user, or retired."""
    here = await _visit(request, place, "write")
    form = await form_of(request, TakeBackForm)
    asked = await here.service.take_back(form.id, move=form.move)
    return RedirectResponse(here.link("shared", asked=asked), 303)


async def _visit(request: Request, place: ViewPlace, right: Right) -> Visit:
    """Return the request about the agent; Refused for a key of some users, which no user is taken from here."""
    await doors_of(request).enter(request, right, place.agent, Where(), DOOR)
    return await visit(request, place.model_copy(update={"session": None, "user": None}), right)
