"""`/v1/agents/{agent}`: what changes memory. All of it goes the way of a chat message, so the answer is 202."""

from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Request

from eden_memory.api.http.doors import AdmittedRoute, AgentId, Inside, doors_of, forget_target, undo_target
from eden_memory.api.http.http_answers import AddedAnswer, AskedAnswer, StartedAnswer
from eden_memory.api.http.http_requests import (
    Addition,
    Forgetting,
    Forming,
    Undoing,
    UndoPreviewing,
    UserQuery,
    Where,
)
from eden_memory.api.undo_answers import UndoPreviewAnswer

router = APIRouter(prefix="/v1/agents/{agent}", route_class=AdmittedRoute)
SessionId = Annotated[
    str,
    Path(
        min_length=1, max_length=1_024, description="The session's id, plain or typed.", examples=["chat-7"]
    ),
]


@router.post("/memories", tags=["writing"], summary="Remember a text or messages", status_code=202)
async def add(
    request: Request, agent: AgentId, where: Annotated[Where, Query()], body: Addition
) -> AddedAnswer:
    """It is formed as chat messages are, or kept verbatim. Without a session it stands in one of its own."""
    inside = await doors_of(request).enter(request, "write", agent, where, new=True)
    given: Any = body.text
    if body.messages is not None:
        given = [message.model_dump(exclude_none=True) for message in body.messages]
    wanted = body.model_dump(include={"scope", "at", "verbatim", "kind"})
    added = await inside.service.add(given, **inside.where, **wanted)
    return AddedAnswer.model_validate(added)


@router.post("/forget", tags=["writing"], summary="Forget something, for ever", status_code=202)
async def forget(
    request: Request, agent: AgentId, where: Annotated[Where, Query()], body: Forgetting
) -> AskedAnswer:
    """Memory derived from it is deleted. A key that is bound to agents or users names its session or user."""
    doors = doors_of(request)
    inside = await doors.enter(request, "write", agent, where)
    target = await forget_target(doors, inside, body.what, body.target)
    return AskedAnswer(request_id=await inside.service.forget(body.what, target, **inside.where))


@router.post("/undo/preview", tags=["writing"], summary="What undoing an attack would change")
async def preview_undo(
    request: Request, agent: AgentId, where: Annotated[Where, Query()], body: UndoPreviewing
) -> UndoPreviewAnswer:
    """All memory that it led to, alone or with others, and what that displaced; ids and versions, no texts."""
    inside, target = await _cause(request, agent, where, body)
    found = await inside.service.preview_undo(body.cause, target, **inside.where)
    return UndoPreviewAnswer.model_validate(found)


@router.post("/undo", tags=["writing"], summary="Undo an attack, for ever", status_code=202)
async def undo(
    request: Request, agent: AgentId, where: Annotated[Where, Query()], body: Undoing
) -> AskedAnswer:
    """Forgets all that it led to, and restores the rest. 409 if something else would change than was shown."""
    inside, target = await _cause(request, agent, where, body)
    asked = await inside.service.undo(body.cause, target, body.preview, **inside.where)
    return AskedAnswer(request_id=asked)


@router.post("/sessions/{session}/start", tags=["sessions"], summary="A session begins")
async def start(
    request: Request, agent: AgentId, session: SessionId, where: Annotated[UserQuery, Query()]
) -> StartedAnswer:
    """Has the context at hand before the first turn, and answers it."""
    inside = await doors_of(request).enter(request, "read", agent, Where(session=session, user=where.user))
    return StartedAnswer(context=await inside.service.on_session_start(inside.session, inside.user))


@router.post("/sessions/{session}/end", tags=["sessions"], summary="A session is over", status_code=202)
async def end(
    request: Request, agent: AgentId, session: SessionId, where: Annotated[UserQuery, Query()]
) -> AskedAnswer:
    """Its last window is formed, and its memory consolidated."""
    inside = await doors_of(request).enter(request, "write", agent, Where(session=session, user=where.user))
    return AskedAnswer(request_id=await inside.service.on_session_end(inside.session))


@router.post("/sessions/{session}/form", tags=["sessions"], summary="Form memories now", status_code=202)
async def form(
    request: Request, agent: AgentId, session: SessionId, where: Annotated[Forming, Query()]
) -> AskedAnswer:
    """Form the session's pending messages, however few; with `if_due` only if a window is due."""
    inside = await doors_of(request).enter(request, "write", agent, Where(session=session, user=where.user))
    ask = inside.service.maybe_form_memories if where.if_due else inside.service.form_now
    return AskedAnswer(request_id=await ask(inside.session))


async def _cause(request: Request, agent: str, where: Where, body: UndoPreviewing) -> tuple[Inside, Any]:
    doors = doors_of(request)
    inside = await doors.enter(request, "write", agent, where)
    return inside, await undo_target(doors, inside, body.cause, body.target)
