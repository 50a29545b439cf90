"""`/v1/agents/{agent}`: the routes of the HTTP API, made from the table of operations.

Special to this door: the context's ETag here, event streams (events.py), what concerns one user with all agents
(users.py), receipts (receipts.py), and webhooks (webhooks.py).
"""

from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from inspect import Parameter as Argument
from inspect import Signature
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Request, Response
from fastapi.responses import JSONResponse
from pydantic import BaseModel

from eden_memory.api.http import events, receipts, users, webhooks
from eden_memory.api.http.doors import AdmittedRoute, AgentId, Where, doors_of
from eden_memory.operations.operation import (
    Operation,
    Parameter,
    description_of,
    model_of,
    plain_type,
)
from eden_memory.operations.parameters import ContextText, IdText, Session, User
from eden_memory.operations.table import OPERATIONS

Answer = Callable[[Operation, Request, Any], Response]
"""Makes a response of what an operation answers."""


def _as_json(operation: Operation, request: Request, found: Any) -> Response:
    del request
    return Response(operation.json.dump_json(found), operation.status, media_type="application/json")


def _context(operation: Operation, request: Request, found: ContextText) -> Response:
    """Answer the text itself, with a tag that changes with it."""
    del operation
    xml = found.context
    tag = f'"{sha256(xml.encode()).hexdigest()[:32]}"'
    headers = {"ETag": tag, "Cache-Control": "private, no-cache", "Vary": "Authorization, X-Eden-Key"}
    if tag_is_known(tag, request.headers.get("if-none-match")):
        return Response(status_code=304, headers=headers)
    if not xml:
        return Response(status_code=204, headers=headers)
    return Response(xml, media_type="application/xml", headers=headers)


ANSWERS: Mapping[str, Answer] = {"context": _context}
"""By operation: what is answered otherwise than as JSON."""
EMPTY_BECAUSE = "Eden-Empty-Because"
"""Header of an empty answer to a caller that is bound to nothing: why it is empty."""
ELSEWHERE = frozenset(("changes",))
"""Operations whose route is not made here."""


def tag_is_known(tag: str, asked: str | None) -> bool:
    """Whether If-None-Match names it (RFC 9110, 13.1.2: compared weakly)."""
    if asked is None:
        return False
    named = [name.strip().removeprefix("W/") for name in asked.split(",")]
    return tag in named or named == ["*"]


def agent_router() -> APIRouter:
    """Return the routes of all operations on an agent's memory."""
    router = APIRouter(prefix="/v1/agents/{agent}", route_class=AdmittedRoute)
    bodies: dict[str, type[BaseModel]] = {}
    for operation in OPERATIONS:
        for route in operation.routes:
            method, path = route.split()
            if operation.name not in ELSEWHERE and not path.startswith("/v1"):
                _add(router, operation, (method, path), bodies)
    return router


def _add(
    router: APIRouter, operation: Operation, route: tuple[str, str], bodies: dict[str, type[BaseModel]]
) -> None:
    method, path = route
    kind = path.split("/")[1].removesuffix("s") if "{kind}" in operation.summary else ""
    summary = operation.summary.format(kind=kind)
    in_path = {name for name in ("session", *_names(operation.parameters)) if f"{{{name}}}" in path}
    rest = [parameter for parameter in operation.parameters if parameter.name not in in_path]
    body = next((parameter for parameter in rest if _is_model(parameter)), None)
    in_query = method == "GET" or operation.in_query
    asked = [*_about(operation, in_path), *(rest if in_query else ())]
    name = operation.model_name
    arguments = {
        "request": Request,
        "agent": AgentId,
        **{name: _in_path(operation, name) for name in in_path},
    }
    if asked:
        arguments["where"] = Annotated[model_of(f"{name}Query", asked, summary), Query()]
    if rest and not in_query:
        if body is None and name not in bodies:
            bodies[name] = model_of(
                name, rest, operation.summary.format(kind="memory"), strict=True, examples=operation.examples
            )
        arguments["body"] = bodies[name] if body is None else plain_type(body)

    async def answer(request: Request, agent: str, **given: Any) -> Response:
        where: BaseModel | None = given.pop("where", None)
        sent: BaseModel | None = given.pop("body", None)
        asked = {} if where is None else _given(where)
        about = {name: (given | asked).get(name) for name in ("session", "user")}
        call = await doors_of(request).enter(
            request, operation.right, agent, Where(**about), new=operation.new
        )
        if operation.offered:
            await call.demand_offered()
        if body is not None:
            asked[body.name] = sent
        elif sent is not None:
            asked |= _given(sent)
        rest = {name: value for name, value in (given | asked).items() if name not in about}
        found = operation.shown(await operation.asked(call, rest))
        response = ANSWERS.get(operation.name, _as_json)(operation, request, found)
        because = await doors_of(request).reasons.find(call, operation, found)
        if because is not None:
            response.headers[EMPTY_BECAUSE] = because.header
        return response

    keyword = Argument.KEYWORD_ONLY
    answer.__signature__ = Signature(  # type: ignore[attr-defined]
        [Argument(name, keyword, annotation=found) for name, found in arguments.items()]
    )
    answer.__name__, answer.__doc__ = "_".join(f"{operation.name} {kind}".split()), operation.words
    router.add_api_route(
        path.replace("}", ":path}").replace("{session:path}", "{session}"),
        answer,
        methods=[method],
        tags=["facts" if kind == "fact" else operation.tag],
        summary=summary,
        status_code=operation.status,
        response_model=None if operation.name in ANSWERS else operation.result,
        response_class=Response if operation.name in ANSWERS else JSONResponse,
    )


def _names(parameters: Sequence[Parameter]) -> Sequence[str]:
    return [parameter.name for parameter in parameters]


def _is_model(parameter: Parameter) -> bool:
    found = plain_type(parameter)
    return isinstance(found, type) and issubclass(found, BaseModel)


def _about(operation: Operation, in_path: set[str]) -> Sequence[Parameter]:
    """Return the parameters that say whose memory it is about."""
    if operation.of_agent:
        return ()
    words = {"session": Session, "user": User}
    return [
        Parameter(name, Annotated[IdText | None, description_of(Parameter(name, found))], None)
        for name, found in words.items()
        if name not in in_path
    ]


def _in_path(operation: Operation, name: str) -> Any:
    if name == "session":
        return Annotated[IdText, Path(description="The session's id, plain or typed.", examples=["chat-7"])]
    parameter = next(parameter for parameter in operation.parameters if parameter.name == name)
    described = description_of(parameter)
    return Annotated[
        parameter.type,
        Path(
            description=f"{described.description}; percent-encoded in the path", examples=described.examples
        ),
    ]


def _given(model: BaseModel) -> dict[str, Any]:
    """Return what a request has set, one level deep."""
    return {name: getattr(model, name) for name in model.model_fields_set}


ROUTERS = (agent_router(), events.router, users.router, receipts.router, webhooks.router)
