"""Tools and resources that the protocol's conformance suite asks for, in the server that `eden serve` builds."""

import asyncio
import base64
import json
from typing import Any

from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp_types import (
    AudioContent,
    EmbeddedResource,
    ImageContent,
    SamplingMessage,
    TextContent,
    TextResourceContents,
)
from pydantic import BaseModel

from eden_memory.api.mcp.mcp_server import mcp_server

PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5ErkJggg=="
SILENCE = "UklGRiYAAABXQVZFZm10IBAAAAABAAEAQB8AAAB9AAACABAAZGF0YQIAAAAAAA=="
ADDRESS = {"type": "object", "properties": {"street": {"type": "string"}, "city": {"type": "string"}}}
SCHEMA = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "$defs": {"address": ADDRESS},
    "properties": {"name": {"type": "string"}, "address": {"$ref": "#/$defs/address"}},
    "additionalProperties": False,
}
Call = Context[Any, Any]


def with_fixtures(*arguments: Any) -> MCPServer[Any]:
    """The server as it is, and the suite's fixtures."""
    server = mcp_server(*arguments)
    for tool in (
        test_simple_text,
        test_image_content,
        test_audio_content,
        test_embedded_resource,
        test_multiple_content_types,
        test_tool_with_logging,
        test_tool_with_progress,
        test_error_handling,
        test_sampling,
        test_elicitation,
    ):
        server.add_tool(tool, description="A fixture.", structured_output=False)
    server.add_tool(test_simple_text, "json_schema_2020_12_tool", description="A fixture.")
    (tool,) = [
        one
        for one in server._tool_manager.list_tools()  # pyright: ignore[reportPrivateUsage]
        if one.name == "json_schema_2020_12_tool"
    ]
    tool.parameters = SCHEMA
    server.resource("test://static-text", mime_type="text/plain")(static_text)
    server.resource("test://static-binary", mime_type="image/png")(static_binary)
    server.resource("test://template/{id}/data", mime_type="application/json")(template)
    return server


def test_simple_text() -> str:
    return "This is a simple text response for testing."


def image() -> ImageContent:
    return ImageContent(type="image", data=PIXEL, mime_type="image/png")


def test_image_content() -> list[ImageContent]:
    return [image()]


def test_audio_content() -> list[AudioContent]:
    return [AudioContent(type="audio", data=SILENCE, mime_type="audio/wav")]


def resource(uri: str, mime_type: str, text: str) -> EmbeddedResource:
    held = TextResourceContents(uri=uri, mime_type=mime_type, text=text)
    return EmbeddedResource(type="resource", resource=held)


def test_embedded_resource() -> list[EmbeddedResource]:
    return [resource("test://embedded-resource", "text/plain", "This is an embedded resource content.")]


def test_multiple_content_types() -> list[Any]:
    data = json.dumps({"test": "data", "value": 123})
    return [
        TextContent(type="text", text="Multiple content types test:"),
        image(),
        resource("test://mixed-content-resource", "application/json", data),
    ]


async def test_tool_with_logging(ctx: Call) -> str:
    for said in ("Tool execution started", "Tool processing data", "Tool execution completed"):
        await ctx.info(said)  # pyright: ignore[reportDeprecated]
        await asyncio.sleep(0.05)
    return "done"


async def test_tool_with_progress(ctx: Call) -> str:
    for done in (0, 50, 100):
        await ctx.report_progress(done, 100)
        await asyncio.sleep(0.05)
    return "done"


def test_error_handling() -> str:
    raise ToolError("This tool intentionally returns an error for testing")


async def test_sampling(ctx: Call, prompt: str) -> str:
    asked = SamplingMessage(role="user", content=TextContent(type="text", text=prompt))
    return str(await ctx.session.create_message([asked], max_tokens=100))  # pyright: ignore[reportDeprecated]


async def test_elicitation(ctx: Call, message: str) -> str:
    return str(await ctx.elicit(message, Answer))


class Answer(BaseModel):
    username: str
    email: str


def static_text() -> str:
    return "This is the content of the static text resource."


def static_binary() -> bytes:
    return base64.b64decode(PIXEL)


def template(id: str) -> str:  # noqa: A002
    return json.dumps({"id": id, "templateTest": True, "data": f"Data for ID: {id}"})
