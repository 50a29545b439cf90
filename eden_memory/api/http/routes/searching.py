"""`/v1/agents/{agent}/search`: facts by meaning and words."""

from typing import Annotated

from fastapi import APIRouter, Query, Request

from eden_memory.api.http.answers import SearchAnswer
from eden_memory.api.http.asks import Search, Where
from eden_memory.api.http.doors import AdmittedRoute, AgentId, doors_of

router = APIRouter(prefix="/v1/agents/{agent}", route_class=AdmittedRoute)


@router.post("/search", tags=["facts"], summary="Search facts", response_model_exclude_none=False)
async def search(
    request: Request, agent: AgentId, where: Annotated[Where, Query()], body: Search
) -> SearchAnswer:
    """The facts nearest to any of up to three queries, best first. Reads only, so the right `read` is enough."""
    inside = await doors_of(request).enter(request, "read", agent, where)
    wanted = body.model_dump(exclude={"debug", "queries"})
    report = await inside.service.explain_search(body.queries, **inside.where, **wanted)
    found = SearchAnswer.model_validate(report)
    return found if body.debug else found.model_copy(update={"stages": None})
