"""docs/reference/operations.md: every operation, and its name at each door.

The names come from the doors themselves. `shared` says which of them are one operation; a name that it does not list
belongs to one door alone and gets a row of its own.
"""

import asyncio
import inspect
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any
from unittest.mock import MagicMock

from fastapi import FastAPI

from eden_memory.api import tool
from eden_memory.api.http import openapi
from eden_memory.api.http.routes import ROUTERS
from eden_memory.api.mcp.mcp_server import mcp_server
from eden_memory.api.service import Memory, MemoryService
from eden_memory.api.sync import SyncMemory, SyncMemoryService
from eden_memory.cli.main import COMMANDS
from eden_memory.settings import Settings
from tools.reference.reference_pages import HEAD

AGENT = "/v1/agents/{agent}"
INTRO = f"""\
# Operations

Each row is one operation: something that a person or a program asks of memory. Each column is a door, and shows the
operation's name there. An empty cell means that the door lacks the operation. Several names in one cell do the same
for different kinds of memory, or in variants. `…` stands for `{AGENT}`.

- Python: the methods of `Memory` and `MemoryService`; Blocking: those of `SyncMemory` and `SyncMemoryService`.
- Function calling: the tool that `eden_memory.api.tool` defines for a model without MCP.
- The inspector's forms call operations of this table. The gateway passes calls on to a provider, and adds a context.

"""
LIFECYCLE = frozenset(("agent", "close", "current", "ready", "watch"))
"""Public methods that open, await or close a memory."""


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation, and its names at each door. The fields after the first are the doors."""

    name: str
    python: tuple[str, ...] = ()
    blocking: tuple[str, ...] = ()
    http: tuple[str, ...] = ()
    mcp: tuple[str, ...] = ()
    command: tuple[str, ...] = ()
    """Without `eden`. With an option, it is a variant of a command that has a row elsewhere, or here."""
    function_calling: tuple[str, ...] = ()


DOORS = tuple(field.name for field in fields(Operation))[1:]


def _same(
    name: str,
    *python: str,
    http: Sequence[str] = (),
    mcp: Sequence[str] = (),
    command: Sequence[str] = (),
    function_calling: Sequence[str] = (),
) -> Operation:
    """An operation of several doors. `http`: paths behind `AGENT`, unless they begin with `/v1`."""
    routes = (route.split(" ", 1) for route in http)
    paths = (f"{method} {path if path.startswith('/v1') else AGENT + path}" for method, path in routes)
    blocking = tuple(method for method in python if method in _methods(SyncMemory, SyncMemoryService))
    return Operation(
        name, python, blocking, tuple(paths), tuple(mcp), tuple(command), tuple(function_calling)
    )


def shared() -> tuple[Operation, ...]:
    """The operations that several doors have, or that have several names at one."""
    return (
        _same(
            "context",
            "get_memory_context",
            http=["GET /context"],
            mcp=[
                "get_memory_context",
                "memory://context",
                "memory://context/{session}",
                "memory://context/{session}/{user}",
            ],
            command=["context"],
        ),
        _same(
            "search",
            "search_facts",
            "explain_search",
            http=["POST /search"],
            mcp=["search_facts"],
            command=["search"],
            function_calling=["search_facts"],
        ),
        _same(
            "list",
            "list_facts",
            "list_reflections",
            "list_blobs",
            http=["GET /facts", "GET /reflections", "GET /blobs"],
            mcp=["list_memories"],
            command=["facts", "reflections", "blobs"],
        ),
        _same("get", "reflection", http=["GET /facts/{fact_id}", "GET /reflections/{reflection_id}"]),
        _same("history", "history", http=["GET /facts/{fact_id}/history"], command=["history"]),
        _same("why", "why", http=["GET /why"], mcp=["why"], command=["why"]),
        _same("stats", "get_memory_stats", http=["GET /stats"], command=["stats"]),
        _same(
            "consolidation status",
            "get_consolidation_status",
            http=["GET /consolidation"],
            command=["status --agent"],
        ),
        _same("changes", "changes", http=["GET /events"]),
        _same("add", "add", http=["POST /memories"], mcp=["add_memory"], command=["add"]),
        _same(
            "edit",
            "edit",
            http=["PATCH /facts/{fact_id}", "PATCH /reflections/{reflection_id}", "PATCH /blobs/{scope_key}"],
            mcp=["edit_memory"],
            command=["edit"],
        ),
        _same(
            "retire",
            "retire",
            http=["POST /facts/{fact_id}/retire", "POST /reflections/{reflection_id}/retire"],
            mcp=["retire_memory"],
            command=["retire"],
        ),
        _same(
            "mark private",
            "mark_private",
            http=["POST /facts/{fact_id}/private", "POST /reflections/{reflection_id}/private"],
            mcp=["mark_private"],
            command=["edit --private"],
        ),
        _same("pin", "pin", http=["POST /blobs/{scope_key}/pin"], mcp=["pin_sentence"], command=["pin"]),
        _same(
            "unpin",
            "unpin",
            http=["POST /blobs/{scope_key}/unpin"],
            mcp=["unpin_sentence"],
            command=["unpin"],
        ),
        _same(
            "forget",
            "forget",
            http=["POST /forget", "DELETE /v1/users/{user}"],
            mcp=["forget"],
            command=["forget"],
        ),
        _same(
            "preview undo",
            "preview_undo",
            http=["POST /undo/preview"],
            mcp=["preview_undo"],
            command=["forget --caused-by"],
        ),
        _same("undo", "undo", http=["POST /undo"], mcp=["undo"], command=["forget --caused-by"]),
        _same(
            "receipt",
            http=["GET /v1/receipts/{request_id}"],
            mcp=["forget_receipt"],
            command=["forget --receipt"],
        ),
        _same(
            "verify receipt",
            http=["POST /v1/receipts/verify"],
            mcp=["verify_receipt"],
            command=["forget verify"],
        ),
        _same("export user", "export_user", "export_items", http=["GET /v1/users/{user}/export"]),
        _same("start session", "on_session_start", http=["POST /sessions/{session}/start"]),
        _same(
            "end session",
            "on_session_end",
            http=["POST /sessions/{session}/end"],
            command=["session end"],
        ),
        _same(
            "form session",
            "form_now",
            "maybe_form_memories",
            "process_cold_session",
            http=["POST /sessions/{session}/form"],
            command=["session form"],
        ),
        _same("list streams", "list_streams", http=["GET /streams"], command=["stream list"]),
        _same("get stream", "get_stream", http=["GET /streams/{scope}"], command=["stream show"]),
        _same(
            "set stream",
            "set_stream",
            http=["PATCH /streams/{scope}"],
            command=["stream set", "stream off"],
        ),
    )


def operations() -> tuple[Operation, ...]:
    """All operations: the shared ones, then those of one door, door by door."""
    known = shared()
    listed = {door: {name for row in known for name in getattr(row, door)} for door in DOORS}
    alone = (
        Operation(name, **{door: (name,)})
        for door, names in names_by_door().items()
        for name in names
        if name not in listed[door]
    )
    return (*known, *alone)


def names_by_door() -> Mapping[str, Sequence[str]]:
    """Every name that a door itself lists."""
    return {
        "python": _methods(Memory, MemoryService),
        "blocking": _methods(SyncMemory, SyncMemoryService),
        "http": _routes(),
        "mcp": asyncio.run(_tools_and_resources()),
        "command": [name for name, _ in commands()],
        "function_calling": [tool.NAME],
    }


def commands() -> Iterator[tuple[str, Any]]:
    """Each command without `eden`, as `budget set`, with what Typer made of it."""
    for name in sorted(COMMANDS):
        command = COMMANDS[name].load(name)
        for inner in sorted(getattr(command, "commands", ())):
            yield f"{name} {inner}", command.commands[inner]
        if not hasattr(command, "commands"):
            yield name, command


def operations_page() -> str:
    """The table as Markdown."""
    heads = ("operation", *(door.replace("_", " ") for door in DOORS))
    rows = (
        f"| {row.name} | {' | '.join(', '.join(map(_cell, getattr(row, door))) for door in DOORS)} |"
        for row in operations()
    )
    return HEAD + INTRO + "\n".join([f"| {' | '.join(heads)} |", f"|{' --- |' * len(heads)}", *rows, ""])


def _cell(name: str) -> str:
    return f"`{name.replace(AGENT, '…')}`"


def _methods(*classes: type) -> list[str]:
    """Public methods, without properties."""
    found = (
        name
        for one in classes
        for name, _ in inspect.getmembers(one, inspect.isfunction)
        if not name.startswith("_") and name not in LIFECYCLE
    )
    return list(dict.fromkeys(found))


def _routes() -> list[str]:
    app = FastAPI()
    for router in ROUTERS:
        app.include_router(router)
    paths: Mapping[str, Mapping[str, Any]] = openapi.document_of(app)["paths"]
    return [f"{method.upper()} {path}" for path, methods in paths.items() for method in methods]


async def _tools_and_resources() -> list[str]:
    unconnected: Any = MagicMock(settings=Settings())  # tools are listed without a memory
    server = mcp_server(unconnected, unconnected)
    tools = [found.name for found in await server.list_tools()]
    resources = [str(found.uri) for found in await server.list_resources()]
    return [*tools, *resources, *(found.uri_template for found in await server.list_resource_templates())]
