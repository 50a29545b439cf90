"""Assemble the inspector: all pages under /ui, those for operators only where the process serves them."""

from collections.abc import Sequence

from fastapi import APIRouter

from eden_memory.api.ui import (
    action_routes,
    browsing_routes,
    cost_routes,
    entry_routes,
    memory_routes,
    story_routes,
)
from eden_memory.errors import needs

ROUTERS = (
    entry_routes.router,
    cost_routes.router,
    browsing_routes.router,
    memory_routes.router,
    story_routes.router,
    action_routes.router,
)


def inspector_router(*, operator: bool = False) -> APIRouter:
    """Return the routes, with operators' pages on request; they stand in no OpenAPI document."""
    router = APIRouter(include_in_schema=False)
    of_operators = _of_operators() if operator else ()
    for part in (*ROUTERS, *of_operators, entry_routes.unknown_page()):
        router.include_router(part)
    return router


def _of_operators() -> Sequence[APIRouter]:
    """Return operators' pages, which read Kafka; MissingExtra where its clients are not installed."""
    needs("run", "`eden serve --operator`")
    from eden_memory.api.ui import operator_routes  # noqa: PLC0415 - `serve` brings no Kafka client

    return (operator_routes.router,)
