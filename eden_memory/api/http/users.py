"""`/v1/users/{user}`: everything that is held about one user, over all agents: shown, or forgotten."""

import json
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Annotated, Any

from fastapi import APIRouter, Path, Request
from fastapi.responses import StreamingResponse

from eden_memory.api.http.doors import AdmittedRoute, demand_everywhere, doors_of
from eden_memory.mongo.ids import typed
from eden_memory.operations.parameters import Requested
from eden_memory.operations.table import BY_NAME

router = APIRouter(prefix="/v1/users/{user}", route_class=AdmittedRoute, tags=["users"])
UserId = Annotated[
    str,
    Path(min_length=1, max_length=1_024, description="The user's id, plain or typed.", examples=["s.ada"]),
]
EXPORT = BY_NAME["export user"]
Item = tuple[str, dict[str, Any]]


@router.get("/export", summary=EXPORT.summary, description=EXPORT.words, response_class=StreamingResponse)
async def export(request: Request, user: UserId) -> StreamingResponse:
    """Answer with a stream of items."""
    doors = doors_of(request)
    user_id = await doors.memory.ids.read("user", user)
    demand_everywhere(request.state.caller, name := typed(user_id, "user"))
    items = doors.memory.export_items(user_id)
    first = await anext(items, None)  # what cannot begin fails before the answer does
    disposition = {"Content-Disposition": 'attachment; filename="export.json"'}
    return StreamingResponse(_json(name, first, items), media_type="application/json", headers=disposition)


@router.delete("", summary="Forget a user, for ever", status_code=202)
async def delete(request: Request, user: UserId) -> Requested:
    """With all agents: what rests on the user's messages alone leaves memory, and blobs are made anew."""
    caller, memory = request.state.caller, doors_of(request).memory
    user_id = await memory.ids.read("user", user, certain=True)
    demand_everywhere(caller, typed(user_id, "user"))
    service = memory.agent(asked_by=f"http:{caller.name}"[:256])
    return Requested(request_id=await service.forget("user", user_id))


async def _json(user: str, first: Item | None, rest: AsyncIterator[Item]) -> AsyncGenerator[bytes]:
    yield b'{"user": ' + json.dumps(user).encode() + b', "items": ['
    if first is not None:
        yield _item(first)
        async for item in rest:
            yield b",\n" + _item(item)
    yield b"]}\n"


def _item(item: Item) -> bytes:
    collection, document = item
    return json.dumps({"collection": collection, "document": document}, ensure_ascii=False).encode()
