"""`/ui/fact`, `/ui/reflection`, `/ui/context`: a memory with its history and chain, and what an agent reads."""

from typing import Annotated

from fastapi import APIRouter, Query, Request, Response
from pydantic import Field

from eden_memory.api.ui.inspector_route import AdmittedPage
from eden_memory.api.ui.visiting import ViewPlace, Visit, visit
from eden_memory.observability.lineage_store import VisibleLineage
from eden_memory.operations.empty_because import empty_because
from eden_memory.operations.parameters import ContextText
from eden_memory.operations.table import BY_NAME

router = APIRouter(prefix="/ui", route_class=AdmittedPage)


class MemoryPlace(ViewPlace):
    """A fact or reflection."""

    id: Annotated[str, Field(min_length=1, max_length=4_096)]


class ContextPlace(ViewPlace):
    """A context, and the message to recall for."""

    message: Annotated[str, Field(max_length=20_000)] = ""


@router.get("/fact")
async def fact(request: Request, place: Annotated[MemoryPlace, Query()]) -> Response:
    """Show a fact: its versions and why, the messages that it rests on, and the contexts that show it."""
    here = await visit(request, place)
    history = await here.service.history(place.id, **here.where)
    lineage = _lineage(here)
    return here.render(
        "fact.html",
        history=history,
        fact=history.fact,
        windows=await lineage.windows(history.fact.sources),
        contexts=await lineage.contexts(history.fact, here.asker),
    )


@router.get("/reflection")
async def reflection(request: Request, place: Annotated[MemoryPlace, Query()]) -> Response:
    """Show a reflection, its earlier texts, and the messages that it rests on."""
    here = await visit(request, place)
    found = await here.service.reflection(place.id, **here.where)
    windows = await _lineage(here).windows(found.sources)
    return here.render("reflection.html", reflection=found, windows=windows)


@router.get("/context")
async def context(request: Request, place: Annotated[ContextPlace, Query()]) -> Response:
    """Show the context as the agent reads it, for the session and user of this page."""
    here = await visit(request, place)
    xml = await here.service.get_memory_context(here.call.session, here.call.user, place.message or None)
    because = await empty_because(here.call, BY_NAME["context"], ContextText(context=xml))
    return here.render("context.html", xml=xml, message=place.message, because=because)


def _lineage(here: Visit) -> VisibleLineage:
    return VisibleLineage(here.doors.memory.database, here.readers.settings.names, here.caller.users)
