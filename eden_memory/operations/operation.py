"""An operation as a row: what is asked, which right it needs, and how each door names it."""

import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

from pydantic import BaseModel, ConfigDict, TypeAdapter, create_model

from eden_memory.access.admission_store import Right
from eden_memory.memory.memory_views import Added, WindowAsked
from eden_memory.operations.admitted_call import AdmittedCall
from eden_memory.operations.parameters import UNSET, AtDoors, Requested

ABOUT = ("session", "user")
"""Parameters that say whose memory a call is about; each door has its own way to name them."""


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool that asks a model's host for the operation."""

    name: str
    words: str
    """What models read."""
    effect: Literal["reads", "adds", "erases"] = "adds"
    leaves_out: Sequence[str] = ()
    requires: Sequence[str] = ()
    status: str | None = None
    """What becomes of a request, for the model."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter as doors take it."""

    name: str
    type: Any
    """With its limits and words (pydantic)."""
    default: Any = UNSET
    read: Callable[[Any], Any] | None = None
    """Makes of it what the service takes."""


@dataclass(frozen=True, kw_only=True)
class Operation:
    """One thing that can be asked of memory; `call`: a call of the service, or a coroutine that is given the call."""

    name: str
    call: Callable[..., Any]
    right: Right
    python: Sequence[str] = ()
    """The methods of `Memory` and `MemoryService`; without: that of `call`."""
    tag: str = ""
    """The heading of its routes in the OpenAPI document."""
    summary: str
    """One line for people; `{kind}`: fact, reflection or blob, as the route says."""
    words: str
    """More for people."""
    routes: Sequence[str] = ()
    """Methods and paths of the HTTP API: behind `/v1/agents/{agent}`, unless a path begins with `/v1`."""
    in_query: bool = False
    """Whether the parameters stand in the query, as those of GET do; not in a body."""
    tool: Tool | None = None
    commands: Sequence[str] = ()
    """Without `eden`; with an option, a variant of a command."""
    resources: Sequence[str] = ()
    answer: type[BaseModel] = Requested
    """The model of an answer whose Python value is one text, its only field."""
    new: bool = False
    """Whether the session may be one that the application does not have yet."""
    of_agent: bool = False
    """Whether it concerns the agent as a whole: no session or user is named."""
    offered: bool = False
    """Whether it is the search tool of models, which an agent's stream may switch off."""
    examples: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Of a request, by parameter."""

    @cached_property
    def parameters(self) -> Sequence[Parameter]:
        """The parameters at doors, but those that say whose memory it is about."""
        hints = get_type_hints(self.call, include_extras=True)
        found = (
            _parameter(name, hints[name], parameter.default)
            for name, parameter in self._signature.items()
            if name in hints and name not in ABOUT and hints[name] is not AdmittedCall
        )
        return tuple(parameter for parameter in found if parameter is not None)

    @property
    def model_name(self) -> str:
        """Return how the names of its pydantic models begin: `GetFact` of `get fact`."""
        return "".join(part.capitalize() for part in self.name.split())

    @cached_property
    def result(self) -> Any:
        """The type of the answer at doors."""
        returned = get_type_hints(self.call, include_extras=True)["return"]
        return self.answer if returned is str else returned

    @property
    def status(self) -> int:
        """The HTTP status of an answer: 202 for a request that is written down, and carried out later."""
        return 202 if self.result in (Requested, Added, WindowAsked) else 200

    @cached_property
    def json(self) -> TypeAdapter[Any]:
        """Writes answers as JSON."""
        return TypeAdapter(self.result)

    @cached_property
    def _signature(self) -> Mapping[str, inspect.Parameter]:
        return inspect.signature(self.call).parameters

    def asked(self, call: AdmittedCall, given: Mapping[str, Any]) -> Awaitable[Any]:
        """Return its coroutine, called with parameters as a door takes them; `shown` makes an answer of the result.

        Parameters that are not given have the defaults of doors, which may differ from those in Python.
        """
        arguments: dict[str, Any] = {
            parameter.name: parameter.default
            for parameter in self.parameters
            if parameter.default is not UNSET
        }
        arguments |= given
        for parameter in self.parameters:
            if parameter.read is not None and parameter.name in arguments:
                arguments[parameter.name] = parameter.read(arguments[parameter.name])
        if "call" in self._signature:
            return self.call(call, **arguments)
        named = {name: value for name, value in call.named.items() if name in self._signature}
        return self.call(call.service, **named, **arguments)

    def shown(self, found: Any) -> Any:
        """Return the answer at doors: a text is the only field of its model."""
        if not isinstance(found, str):
            return found
        return self.answer(**{next(iter(self.answer.model_fields)): found})


def _parameter(name: str, hint: Any, default: Any) -> Parameter | None:
    """Return the parameter as doors take it; None if only Python has it."""
    metadata = hint.__metadata__ if get_origin(hint) is Annotated else ()
    shown = UNSET if default is inspect.Parameter.empty else default
    at_doors = next((found for found in metadata if isinstance(found, AtDoors)), None)
    if at_doors is None:
        return Parameter(name, hint, shown)
    if at_doors.type is None:
        return None
    rest = tuple(found for found in metadata if found is not at_doors)
    taken = Annotated[(at_doors.type, *rest)] if rest else at_doors.type
    return Parameter(name, taken, shown if at_doors.default is UNSET else at_doors.default, at_doors.read)


def model_of(
    name: str, parameters: Sequence[Parameter], words: str, *, strict: bool = False, examples: Any = None
) -> type[BaseModel]:
    """Return a closed model of parameters: no unknown field or query operator gets in."""
    extra: Any = {"examples": [examples]} if examples else None
    config = ConfigDict(extra="forbid", strict=strict, json_schema_extra=extra)
    fields: dict[str, Any] = {
        parameter.name: (parameter.type, ... if parameter.default is UNSET else parameter.default)
        for parameter in parameters
    }
    return create_model(name, __config__=config, __doc__=words, **fields)


def description_of(parameter: Parameter) -> Any:
    """Return the pydantic field that describes a parameter, if one does."""
    metadata = parameter.type.__metadata__ if get_origin(parameter.type) is Annotated else ()
    return next((found for found in metadata if hasattr(found, "description")), None)


def plain_type(parameter: Parameter) -> Any:
    """Return a parameter's type without limits and words."""
    found = parameter.type
    while get_origin(found) is Annotated:
        found = get_args(found)[0]
    return found
