"""`/v1/agents/{agent}`: the context, lists of what is remembered, and numbers."""

from hashlib import sha256
from typing import Annotated

from fastapi import APIRouter, Query, Request, Response

from eden_memory.api.http.doors import AdmittedRoute, AgentId, doors_of
from eden_memory.api.http.http_answers import (
    BlobAnswer,
    ConsolidationAnswer,
    ExplainedAnswer,
    FactAnswer,
    HistoryAnswer,
    PageAnswer,
    ReflectionAnswer,
    SearchAnswer,
    StatsAnswer,
    page_of,
)
from eden_memory.api.http.http_requests import (
    BlobListing,
    ContextWhere,
    FactId,
    FactListing,
    ReflectionId,
    ReflectionListing,
    Search,
    Where,
    WhyWhere,
)

router = APIRouter(prefix="/v1/agents/{agent}", route_class=AdmittedRoute)
ACTIVE = {"true": True, "false": False, "all": None}


@router.get("/context", tags=["context"], summary="The XML for the agent's prompt", response_class=Response)
async def get_context(request: Request, agent: AgentId, where: Annotated[ContextWhere, Query()]) -> Response:
    """Return the user's context in the session, 204 if it is empty; its ETag changes with its text."""
    inside = await doors_of(request).enter(request, "read", agent, where)
    xml = await inside.service.get_memory_context(inside.session, inside.user, where.message)
    tag = f'"{sha256(xml.encode()).hexdigest()[:32]}"'
    headers = {"ETag": tag, "Cache-Control": "private, no-cache", "Vary": "Authorization, X-Eden-Key"}
    if tag_is_known(tag, request.headers.get("if-none-match")):
        return Response(status_code=304, headers=headers)
    if not xml:
        return Response(status_code=204, headers=headers)
    return Response(xml, media_type="application/xml", headers=headers)


@router.get("/why", tags=["facts"], summary="Why something is remembered so, or is not")
async def get_why(
    request: Request, agent: AgentId, where: Annotated[WhyWhere, Query()]
) -> list[ExplainedAnswer]:
    """Explain the facts, reflections and own messages that have these words, as far as they may be seen here."""
    inside = await doors_of(request).enter(request, "read", agent, where)
    found = await inside.service.why(where.text, **inside.where)
    return [ExplainedAnswer.model_validate(explained) for explained in found]


@router.get("/facts", tags=["facts"], summary="Visible facts, newest first")
async def list_facts(
    request: Request, agent: AgentId, where: Annotated[FactListing, Query()]
) -> PageAnswer[FactAnswer]:
    """Facts that form between two pages neither repeat nor hide others."""
    inside = await doors_of(request).enter(request, "read", agent, where)
    page = await inside.service.list_facts(
        **inside.where,
        scopes=where.scope,
        active=ACTIVE[where.active],
        occurred_after=where.occurred_after,
        occurred_before=where.occurred_before,
        sort=where.sort,
        since=where.since,
        until=where.until,
        limit=where.limit,
        cursor=where.cursor,
    )
    return page_of(FactAnswer, page)


@router.get("/facts/{fact_id:path}/history", tags=["facts"], summary="A fact's earlier versions, and why")
async def get_history(
    request: Request, agent: AgentId, fact_id: FactId, where: Annotated[Where, Query()]
) -> HistoryAnswer:
    """Its versions with the decision, model and cost of each."""
    inside = await doors_of(request).enter(request, "read", agent, where)
    return HistoryAnswer.model_validate(await inside.service.history(fact_id, **inside.where))


@router.get("/facts/{fact_id:path}", tags=["facts"], summary="One fact")
async def get_fact(
    request: Request, agent: AgentId, fact_id: FactId, where: Annotated[Where, Query()]
) -> FactAnswer:
    """404 where there is none of this id, or none that may be seen here."""
    inside = await doors_of(request).enter(request, "read", agent, where)
    return FactAnswer.model_validate((await inside.service.history(fact_id, **inside.where)).fact)


@router.get("/reflections", tags=["reflections and blobs"], summary="Visible reflections, newest first")
async def list_reflections(
    request: Request, agent: AgentId, where: Annotated[ReflectionListing, Query()]
) -> PageAnswer[ReflectionAnswer]:
    """Those that a blob has absorbed, too, unless said otherwise."""
    inside = await doors_of(request).enter(request, "read", agent, where)
    page = await inside.service.list_reflections(
        **inside.where,
        scopes=where.scope,
        absorbed=where.absorbed,
        since=where.since,
        until=where.until,
        limit=where.limit,
        cursor=where.cursor,
    )
    return page_of(ReflectionAnswer, page)


@router.get("/reflections/{reflection_id:path}", tags=["reflections and blobs"], summary="One reflection")
async def get_reflection(
    request: Request, agent: AgentId, reflection_id: ReflectionId, where: Annotated[Where, Query()]
) -> ReflectionAnswer:
    """Return it with its earlier versions; 404 where there is none of this id, or none that may be seen here."""
    inside = await doors_of(request).enter(request, "read", agent, where)
    return ReflectionAnswer.model_validate(await inside.service.reflection(reflection_id, **inside.where))


@router.get("/blobs", tags=["reflections and blobs"], summary="Consolidated texts of the visible scopes")
async def list_blobs(
    request: Request, agent: AgentId, where: Annotated[BlobListing, Query()]
) -> list[BlobAnswer]:
    """From broad to narrow."""
    inside = await doors_of(request).enter(request, "read", agent, where)
    blobs = await inside.service.list_blobs(**inside.where, scopes=where.scope)
    return [BlobAnswer.model_validate(blob) for blob in blobs]


@router.get("/stats", tags=["numbers"], summary="The visible scopes in numbers")
async def get_stats(
    request: Request, agent: AgentId, where: Annotated[Where, Query()]
) -> dict[str, StatsAnswer]:
    """By label: `agent`, `user`, `shard:<name>`, …"""
    inside = await doors_of(request).enter(request, "read", agent, where)
    stats = await inside.service.get_memory_stats(**inside.where)
    return {label: StatsAnswer.model_validate(numbers) for label, numbers in stats.items()}


@router.get("/consolidation", tags=["numbers"], summary="Buffers and thresholds of the visible scopes")
async def get_consolidation(
    request: Request, agent: AgentId, where: Annotated[Where, Query()]
) -> dict[str, ConsolidationAnswer]:
    """By label."""
    inside = await doors_of(request).enter(request, "read", agent, where)
    status = await inside.service.get_consolidation_status(**inside.where)
    return {label: ConsolidationAnswer.model_validate(scope) for label, scope in status.items()}


def tag_is_known(tag: str, asked: str | None) -> bool:
    """Whether If-None-Match names it (RFC 9110, 13.1.2: compared weakly)."""
    if asked is None:
        return False
    named = [name.strip().removeprefix("W/") for name in asked.split(",")]
    return tag in named or named == ["*"]


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
