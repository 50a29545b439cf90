"""`/v1/agents/{agent}`: commands that correct facts, reflections and blobs. The answer is 202: accepted."""

from enum import Enum
from typing import Annotated

from fastapi import APIRouter, Query, Request

from eden_memory.api.http.doors import AdmittedRoute, AgentId, doors_of
from eden_memory.api.http.http_answers import AskedAnswer
from eden_memory.api.http.http_requests import (
    BlobChange,
    BlobKey,
    Edit,
    FactId,
    Marking,
    Pin,
    ReflectionEdit,
    ReflectionId,
    Retirement,
    Where,
)

router = APIRouter(prefix="/v1/agents/{agent}", route_class=AdmittedRoute)
TAGS: list[str | Enum] = ["reflections and blobs"]


@router.patch("/facts/{fact_id:path}", tags=["facts"], summary="Give a fact another text", status_code=202)
async def edit(
    request: Request, agent: AgentId, fact_id: FactId, where: Annotated[Where, Query()], body: Edit
) -> AskedAnswer:
    """Its earlier text stays in its history. 409 if it stands at another version than expected."""
    inside = await doors_of(request).enter(request, "write", agent, where)
    wanted = body.model_dump(exclude={"text"})
    return AskedAnswer(request_id=await inside.service.edit(fact_id, body.text, **inside.where, **wanted))


@router.post(
    "/facts/{fact_id:path}/retire", tags=["facts"], summary="Take a fact out of search", status_code=202
)
async def retire(
    request: Request,
    agent: AgentId,
    fact_id: FactId,
    where: Annotated[Where, Query()],
    body: Retirement,
) -> AskedAnswer:
    """Its history stays; `forget` leaves nothing of it."""
    inside = await doors_of(request).enter(request, "write", agent, where)
    return AskedAnswer(request_id=await inside.service.retire(fact_id, **inside.where, **body.model_dump()))


@router.post(
    "/facts/{fact_id:path}/private",
    tags=["facts"],
    summary="Mark a fact as private",
    status_code=202,
)
async def mark_fact_private(
    request: Request, agent: AgentId, fact_id: FactId, where: Annotated[Where, Query()], body: Marking
) -> AskedAnswer:
    """Nothing that rests on its messages is propagated; the reflections that rest on them now are marked, too."""
    inside = await doors_of(request).enter(request, "write", agent, where)
    return AskedAnswer(
        request_id=await inside.service.mark_private(fact_id, **inside.where, **body.model_dump())
    )


@router.patch(
    "/reflections/{reflection_id:path}", tags=TAGS, summary="Give a reflection another text", status_code=202
)
async def edit_reflection(
    request: Request,
    agent: AgentId,
    reflection_id: ReflectionId,
    where: Annotated[Where, Query()],
    body: ReflectionEdit,
) -> AskedAnswer:
    """409 if it stands at another version than expected, is retired, or a blob has absorbed it."""
    inside = await doors_of(request).enter(request, "write", agent, where)
    wanted = body.model_dump(exclude={"text"})
    return AskedAnswer(
        request_id=await inside.service.edit(reflection_id, body.text, **inside.where, **wanted)
    )


@router.post(
    "/reflections/{reflection_id:path}/retire",
    tags=TAGS,
    summary="Take a reflection out of context",
    status_code=202,
)
async def retire_reflection(
    request: Request,
    agent: AgentId,
    reflection_id: ReflectionId,
    where: Annotated[Where, Query()],
    body: Retirement,
) -> AskedAnswer:
    """No blob absorbs it any more; its history stays."""
    inside = await doors_of(request).enter(request, "write", agent, where)
    return AskedAnswer(
        request_id=await inside.service.retire(reflection_id, **inside.where, **body.model_dump())
    )


@router.post(
    "/reflections/{reflection_id:path}/private",
    tags=TAGS,
    summary="Mark a reflection as private",
    status_code=202,
)
async def mark_private(
    request: Request,
    agent: AgentId,
    reflection_id: ReflectionId,
    where: Annotated[Where, Query()],
    body: Marking,
) -> AskedAnswer:
    """Nothing of it is propagated to a broader scope; `private: false` takes the mark away."""
    inside = await doors_of(request).enter(request, "write", agent, where)
    return AskedAnswer(
        request_id=await inside.service.mark_private(reflection_id, **inside.where, **body.model_dump())
    )


@router.patch("/blobs/{scope_key:path}", tags=TAGS, summary="Give a blob another text", status_code=202)
async def edit_blob(
    request: Request, agent: AgentId, scope_key: BlobKey, where: Annotated[Where, Query()], body: BlobChange
) -> AskedAnswer:
    """409 if it stands at another version than expected, or the text lacks a pinned sentence."""
    inside = await doors_of(request).enter(request, "write", agent, where)
    wanted = body.model_dump(exclude={"text"})
    return AskedAnswer(request_id=await inside.service.edit(scope_key, body.text, **inside.where, **wanted))


@router.post("/blobs/{scope_key:path}/pin", tags=TAGS, summary="Pin a sentence", status_code=202)
async def pin(
    request: Request, agent: AgentId, scope_key: BlobKey, where: Annotated[Where, Query()], body: Pin
) -> AskedAnswer:
    """The blob holds it, and every later version keeps it word for word."""
    inside = await doors_of(request).enter(request, "write", agent, where)
    return AskedAnswer(request_id=await inside.service.pin(scope_key, **inside.where, **body.model_dump()))


@router.post("/blobs/{scope_key:path}/unpin", tags=TAGS, summary="Unpin a sentence", status_code=202)
async def unpin(
    request: Request, agent: AgentId, scope_key: BlobKey, where: Annotated[Where, Query()], body: Pin
) -> AskedAnswer:
    """The next consolidation may reword it. 409 if it is not pinned."""
    inside = await doors_of(request).enter(request, "write", agent, where)
    return AskedAnswer(request_id=await inside.service.unpin(scope_key, **inside.where, **body.model_dump()))
