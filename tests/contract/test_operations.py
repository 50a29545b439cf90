"""The table of operations, at every door; docs/reference/operations.md lists every operation of every door once."""

import asyncio
import re
from collections import Counter
from collections.abc import Iterator
from typing import Any, cast
from unittest.mock import MagicMock

import pytest
from pydantic import BaseModel

from eden_memory.api.mcp.mcp_server import mcp_server
from eden_memory.api.service import Memory, MemoryService
from eden_memory.api.sync import SyncMemory, SyncMemoryService
from eden_memory.cli.main import COMMANDS
from eden_memory.cli.memory import commands as made
from eden_memory.operations.operation import Operation, plain_type
from eden_memory.operations.table import OPERATIONS
from eden_memory.settings import Settings
from tools.reference.export import ROOT
from tools.reference.reference_pages import (
    AGENT,
    DOORS,
    commands,
    http_document,
    names_by_door,
    operations,
    operations_page,
)

DOCUMENT = http_document()
UNCONNECTED: Any = MagicMock(settings=Settings())
TOOLS = {tool.name: tool for tool in asyncio.run(mcp_server(UNCONNECTED, UNCONNECTED).list_tools())}


@pytest.mark.parametrize("door", DOORS)
def test_every_name_at_a_door_is_in_exactly_one_row(door: str) -> None:
    variants = {"command": (" --", "forget verify")}.get(door, ())
    listed = Counter(
        name
        for row in operations()
        for name in getattr(row, door)
        if not any(variant in name for variant in variants)
    )
    assert listed == Counter(names_by_door()[door])


def test_a_variant_of_a_command_names_an_option_that_the_command_has() -> None:
    options = {name: {opt for param in command.params for opt in param.opts} for name, command in commands()}
    variants = [name for row in operations() for name in row.command if " --" in name]
    assert variants
    for variant in variants:
        name, option = variant.split(" --")
        assert f"--{option}" in options[name], variant


def test_the_page_is_current() -> None:
    path = ROOT / "docs/reference/operations.md"
    assert path.read_text() == operations_page(), "run `make schemas`"


def test_every_name_of_an_operation_is_used_once() -> None:
    names = [operation.name for operation in OPERATIONS]
    assert len(names) == len(set(names))


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.name)
def test_every_route_takes_what_the_operation_takes(operation: Operation) -> None:
    routes = [route.split() for route in operation.routes if not route.split()[1].startswith("/v1")]
    for method, path in routes:
        taken = _of_route(DOCUMENT["paths"][AGENT + path][method.lower()])
        about: set[str] = set() if operation.of_agent else {"session", "user"}
        assert taken - {"agent"} == _names(operation) | about, path


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.name)
def test_every_tool_takes_what_the_operation_takes(operation: Operation) -> None:
    if (tool := operation.tool) is None:
        assert not operation.resources
        return
    about: set[str] = set() if operation.of_agent else {"session", "user"}
    assert set(TOOLS[tool.name].input_schema["properties"]) == _names(operation) - {*tool.leaves_out} | about
    shown = TOOLS[tool.name]
    assert shown.description
    assert shown.output_schema
    assert shown.annotations is not None
    reads = operation.right == "read" or operation.name in ("preview undo", "receipt", "verify receipt")
    assert shown.annotations.read_only_hint == reads
    assert shown.annotations.destructive_hint == (operation.name in ("forget", "undo"))


def parts(schema: Any) -> Iterator[dict[str, Any]]:
    """Yield a schema and all schemas in it."""
    if isinstance(schema, dict):
        found = cast("dict[str, Any]", schema)
        yield found
        schema = list(found.values())
    if isinstance(schema, list):
        for part in cast("list[Any]", schema):
            yield from parts(part)


@pytest.mark.parametrize("tool", TOOLS.values(), ids=lambda tool: tool.name)
def test_every_tool_has_a_schema_that_hosts_accept(tool: Any) -> None:
    """OpenAI, Anthropic and Gemini refuse, or their models misread, what is not plain."""
    name, schema = re.compile(r"[a-zA-Z0-9_-]{1,64}"), tool.input_schema
    assert name.fullmatch(tool.name)
    assert schema["type"] == "object"
    for key, value in schema["properties"].items():
        assert name.fullmatch(key)
        assert value["description"], key
        assert isinstance(value["type"], str), key
        assert value.get("default", "") is not None, key
    for part in parts(schema):
        assert not part.keys() & {"anyOf", "oneOf", "allOf", "not", "$ref", "$defs", "definitions"}
        assert part.get("type") != "null"


MADE = {name: vars(made)[name] for name in COMMANDS if hasattr(made, name)}
"""Commands that are made from the table."""


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.name)
def test_every_command_made_from_the_table_takes_what_the_operation_takes(operation: Operation) -> None:
    for name in (name for name in operation.commands if name in MADE):
        taken = {param.name for param in COMMANDS[name].load(name).params}
        wanted = _names(operation) | {"agent", "session", "user", "as_json", "debug"}
        assert taken == wanted, name


def test_the_service_has_what_the_table_calls_and_its_blocking_twin_waits_for_each() -> None:
    for operation in OPERATIONS:
        for name in operation.python or (operation.call.__name__,):
            method = getattr(MemoryService, name, None) or getattr(Memory, name, None)
            if method is not None:
                assert hasattr(SyncMemoryService, name) or hasattr(SyncMemory, name), name
    assert len(MADE) >= 11


def _names(operation: Operation) -> set[str]:
    """What an operation takes; the fields of a body that is one parameter stand for it."""
    names: set[str] = set()
    for parameter in operation.parameters:
        kind: type[BaseModel] = plain_type(parameter)
        fields: dict[str, Any] | None = getattr(kind, "model_fields", None)
        names |= {parameter.name} if fields is None else set(fields)
    return names


def _of_route(found: dict[str, Any]) -> set[str]:
    names: set[str] = {one["name"] for one in found["parameters"]}
    names = names - {"Last-Event-ID"} | {"after"} if "Last-Event-ID" in names else names
    body = found.get("requestBody")
    if body is None:
        return names
    named = body["content"]["application/json"]["schema"]["$ref"].rpartition("/")[2]
    return names | set(DOCUMENT["components"]["schemas"][named]["properties"])
