"""The tools, made from the table of operations. What goes wrong is told to the model, without internals."""

from collections.abc import Sequence
from inspect import Parameter as Argument
from inspect import Signature
from types import NoneType
from typing import Annotated, Any, get_args, get_origin

from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.shared.exceptions import MCPError
from mcp_types import ToolAnnotations
from pydantic import Field
from pymongo.errors import PyMongoError

from eden_memory.api.mcp.mcp_connection import Door
from eden_memory.api.mcp.tool_answers import answer_model, answer_of
from eden_memory.errors import EdenError
from eden_memory.logs import LibraryLogger
from eden_memory.operations.operation import Operation, Parameter, Tool, plain_type
from eden_memory.operations.parameters import UNSET
from eden_memory.operations.table import OPERATIONS

log = LibraryLogger("eden.mcp")
Call = Context[Any, Any]
# Optional texts are "" and not null: of those that may be null the SDK reads what looks like JSON as JSON.
Session = Annotated[
    str, Field(description="id of the conversation; leave it out unless you were told one", max_length=1_024)
]
User = Annotated[
    str, Field(description="id of the user; leave it out unless you were told one", max_length=1_024)
]
ABOUT = (Parameter("session", Session, ""), Parameter("user", User, ""))
EFFECTS = {
    "reads": ToolAnnotations(
        read_only_hint=True, destructive_hint=False, idempotent_hint=True, open_world_hint=False
    ),
    "adds": ToolAnnotations(
        read_only_hint=False, destructive_hint=False, idempotent_hint=False, open_world_hint=False
    ),
    "erases": ToolAnnotations(
        read_only_hint=False, destructive_hint=True, idempotent_hint=True, open_world_hint=False
    ),
}


def register(server: MCPServer[Any], door: Door) -> None:
    """Register a tool for each operation that has one."""
    for operation in OPERATIONS:
        if operation.tool is not None:
            function = _tool(door, operation, operation.tool)
            server.add_tool(
                function, title=operation.name.capitalize(), annotations=EFFECTS[operation.tool.effect]
            )


def _tool(door: Door, operation: Operation, tool: Tool) -> Any:
    model = answer_model(operation)
    parameters = [
        _of_tool(parameter, tool)
        for parameter in operation.parameters
        if parameter.name not in tool.leaves_out
    ]
    texts = {parameter.name for parameter in parameters if parameter.default == ""}

    async def call(ctx: Call, **given: Any) -> Any:
        about = given.pop("session", ""), given.pop("user", "")
        given = {name: None if name in texts and value == "" else value for name, value in given.items()}
        try:
            opened = await door.open(ctx.request_context, operation.right, *about, new=operation.new)
            return answer_of(model, await operation.asked(opened, given))
        except EdenError as error:
            raise ToolError(" ".join(_sentences(error))) from None
        except PyMongoError as error:
            log.warning("MongoDB does not answer", tool=tool.name, reason=type(error).__name__)
            raise ToolError("the memory cannot be reached at this moment, try again later") from None
        except (ToolError, MCPError):
            raise
        except Exception as error:  # the SDK would give the model the error's text, which may hold content
            log.error("a tool failed", tool=tool.name, reason=type(error).__name__, exc_info=error)
            raise ToolError("this call failed; the server's log says why") from None

    shown = [*parameters, *(() if operation.of_agent else ABOUT)]
    shown.sort(key=lambda parameter: parameter.default is not UNSET)
    annotated: Any = call
    annotated.__name__, annotated.__doc__ = tool.name, tool.words
    annotated.__signature__ = Signature(
        [
            Argument("ctx", Argument.POSITIONAL_OR_KEYWORD, annotation=Call),
            *(
                Argument(
                    parameter.name,
                    Argument.KEYWORD_ONLY,
                    annotation=parameter.type,
                    default=Argument.empty if parameter.default is UNSET else parameter.default,
                )
                for parameter in shown
            ),
        ],
        return_annotation=model,
    )
    annotated.__annotations__ = {
        "ctx": Call,
        **{parameter.name: parameter.type for parameter in shown},
        "return": model,
    }
    return call


def _of_tool(parameter: Parameter, tool: Tool) -> Parameter:
    """Return a parameter as a tool takes it: an optional text as a text that may be empty."""
    required = parameter.name in tool.requires
    found, rest = plain_type(parameter), getattr(parameter.type, "__metadata__", ())
    (first, *others) = get_args(found) if get_origin(found) is not None else (found,)
    if others != [NoneType] or plain_type(Parameter("", first)) is not str:
        return parameter
    text = Annotated[(first, *rest)] if rest else first
    return Parameter(parameter.name, text, UNSET if required else "")


def _sentences(error: EdenError) -> Sequence[str]:
    return [f"{error.what}.", *([error.hint] if error.hint else [])]
