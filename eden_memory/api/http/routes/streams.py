"""`/v1/agents/{agent}/streams`: how the agent's scopes and shards are formed."""

from typing import Annotated

from fastapi import APIRouter, Path, Request

from eden_memory.api.http.doors import AdmittedRoute, AgentId, doors_of
from eden_memory.api.http.http_answers import StreamAnswer
from eden_memory.api.http.http_requests import StreamChange, Where

router = APIRouter(prefix="/v1/agents/{agent}/streams", route_class=AdmittedRoute, tags=["streams"])
ScopeLabel = Annotated[
    str,
    Path(
        min_length=1,
        max_length=200,
        description="`agent`, `group`, `user`, `session`, or `shard:NAME`; percent-encoded in the path.",
        examples=["shard:pricing"],
    ),
]
NOBODY = Where()


@router.get("", summary="The agent's streams")
async def list_streams(request: Request, agent: AgentId) -> list[StreamAnswer]:
    """Scopes without a stream are formed by the settings. Takes a key that is bound to no user."""
    inside = await doors_of(request).enter(request, "read", agent, NOBODY)
    return [StreamAnswer.model_validate(stream) for stream in await inside.service.list_streams()]


@router.get("/{scope:path}", summary="A scope's stream")
async def get_stream(request: Request, agent: AgentId, scope: ScopeLabel) -> StreamAnswer:
    """404 if the scope has none."""
    inside = await doors_of(request).enter(request, "read", agent, NOBODY)
    return StreamAnswer.model_validate(await inside.service.get_stream(scope))


@router.patch("/{scope:path}", summary="Set fields of a scope's stream, or make it")
async def set_stream(request: Request, agent: AgentId, scope: ScopeLabel, body: StreamChange) -> StreamAnswer:
    """Makes a shard, if there is none of this name. Takes a key with the right `admin`, bound to no user."""
    inside = await doors_of(request).enter(request, "admin", agent, NOBODY)
    stream = await inside.service.set_stream(scope, **body.model_dump(exclude_unset=True))
    return StreamAnswer.model_validate(stream)
