"""docs/reference/operations.md: every operation, and its name at each door.

Its rows are those of eden_memory/operations/table.py, and one for each name that a door lists and no row has.
"""

import asyncio
import inspect
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cache
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
from eden_memory.operations.operation import Operation
from eden_memory.operations.table import OPERATIONS
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
class Named:
    """One operation, and its names at each door. The fields after the first are the doors."""

    name: str
    python: tuple[str, ...] = ()
    blocking: tuple[str, ...] = ()
    http: tuple[str, ...] = ()
    mcp: tuple[str, ...] = ()
    command: tuple[str, ...] = ()
    """Without `eden`. With an option, it is a variant of a command that has a row elsewhere, or here."""
    function_calling: tuple[str, ...] = ()


DOORS = tuple(field.name for field in fields(Named))[1:]


def _named(operation: Operation) -> Named:
    methods, blocking = _methods(Memory, MemoryService), _methods(SyncMemory, SyncMemoryService)
    python = tuple(operation.python) or (operation.call.__name__,)
    tools = () if operation.tool is None else (operation.tool.name,)
    return Named(
        operation.name,
        tuple(method for method in python if method in methods),
        tuple(method for method in python if method in blocking),
        tuple(map(_path, operation.routes)),
        (*tools, *operation.resources),
        tuple(operation.commands),
        tuple(name for name in tools if name == tool.NAME),
    )


def _path(route: str) -> str:
    method, path = route.split()
    return f"{method} {path if path.startswith('/v1') else AGENT + path}"


@cache
def operations() -> tuple[Named, ...]:
    """All operations: those of the table, then those of one door, door by door."""
    known = tuple(map(_named, OPERATIONS))
    listed = {door: {name for row in known for name in getattr(row, door)} for door in DOORS}
    alone = (
        Named(name, **{door: (name,)})
        for door, names in names_by_door().items()
        for name in names
        if name not in listed[door]
    )
    return (*known, *alone)


@cache
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


def http_document() -> dict[str, Any]:
    """Return the OpenAPI document of the HTTP API."""
    app = FastAPI()
    for router in ROUTERS:
        app.include_router(router)
    return openapi.document_of(app)


def _routes() -> list[str]:
    paths: Mapping[str, Mapping[str, Any]] = http_document()["paths"]
    return [f"{method.upper()} {path}" for path, methods in paths.items() for method in methods]


async def _tools_and_resources() -> list[str]:
    unconnected: Any = MagicMock(settings=Settings())  # tools are listed without a memory
    server = mcp_server(unconnected, unconnected)
    tools = [found.name for found in await server.list_tools()]
    resources = [str(found.uri) for found in await server.list_resources()]
    return [*tools, *resources, *(found.uri_template for found in await server.list_resource_templates())]
