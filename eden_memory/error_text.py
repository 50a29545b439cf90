"""Errors as text that holds no document, input or key: only this text goes to logs, records and callers."""

import os
import re
import traceback
from collections.abc import Callable, Iterator, Mapping
from typing import Any, cast

from pydantic import ValidationError

from eden_memory.schemas.reasons import reasons

OWN = "eden_memory"
"""Errors of our own modules say nothing but what we wrote into them."""
CHARACTERS = 500
REFUSAL = re.compile(r"not authorized on (\w+)(?: to execute command \{ (\w+):)?")
"""MongoDB names the database and the command; behind these stands what the command was given."""


def describe(error: BaseException) -> str:
    """Return the class of an error and, as far as it is safe, its cause: a code, field paths, our own words."""
    name = type(error).__name__
    detail = _detail(error) or _place(error)
    return f"{name}: {detail}" if detail else name


def describe_with_trace(error: BaseException) -> str:
    """Return the stack trace of an error and of the errors that led to it, each described."""
    return "".join(_traced(error, set()))


def _traced(error: BaseException, seen: set[int]) -> Iterator[str]:
    seen.add(id(error))
    cause = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    if cause is not None and id(cause) not in seen:
        yield from _traced(cause, seen)
        yield "\nwhich led to:\n\n"
    yield "Traceback (most recent call last):\n"
    yield from traceback.format_tb(error.__traceback__)
    yield describe(error) + "\n"
    if isinstance(error, BaseExceptionGroup):
        for part in cast("BaseExceptionGroup[BaseException]", error).exceptions:
            if id(part) not in seen:
                yield from _traced(part, seen)


def _detail(error: BaseException) -> str:
    library = type(error).__module__.partition(".")[0]
    if library == OWN:
        return str(error)
    if isinstance(error, ValidationError):
        return reasons(error)
    if isinstance(error, OSError) and library in ("builtins", "socket", "ssl"):
        return _of_system(error)
    return LIBRARIES.get(library, _of_any)(error)


def _of_system(error: OSError) -> str:
    """The system's words, without the file; of a lost connection those of the event loop."""
    if error.errno and error.errno > 0:
        return os.strerror(error.errno)
    return str(error)[:CHARACTERS] if isinstance(error, ConnectionError) else ""


def _of_any(error: Any) -> str:
    """The status that a provider answered, or the place in a file."""
    if isinstance(status := getattr(error, "status_code", None), int):
        return f"status {status}"
    if isinstance(line := getattr(error, "lineno", None), int):
        return f"line {line}, column {getattr(error, 'colno', 0)}"
    if (mark := getattr(error, "problem_mark", None)) is not None:
        return f"line {mark.line + 1}, column {mark.column + 1}"
    return ""


def _of_mongodb(error: Any) -> str:
    """Code and name; of a refusal the command, of a broken index or rule its fields. Never the server's text."""
    if refusal := REFUSAL.match(str(error)):
        database, command = refusal.groups()
        return f"not authorized on {database}" + (f" to execute {command}" if command else "")
    details: Any = getattr(error, "details", None)
    if isinstance(details, Mapping):
        return _of_server(cast("Mapping[str, Any]", details), getattr(error, "code", None))
    if any(kind.__name__ == "ConnectionFailure" for kind in type(error).__mro__):
        return str(error).partition(" (")[0].partition(", ")[0][:CHARACTERS]
    if type(error.__cause__).__module__.startswith("dns."):
        return str(error.__cause__)[:CHARACTERS]
    code = getattr(error, "code", None)
    return f"code {code}" if isinstance(code, int) else ""


def _of_server(details: Mapping[str, Any], code: object) -> str:
    failed: list[Mapping[str, Any]] = details.get("writeErrors") or []
    if failed:
        first = failed[0]
        more = f" and {len(failed) - 1} more" if len(failed) > 1 else ""
        return _of_server(first, first.get("code")) + more
    if isinstance(concern := (details.get("writeConcernErrors") or [None])[0], Mapping):
        details = cast("Mapping[str, Any]", concern)
    code = details.get("code", code)
    parts = [f"code {code}", details.get("codeName") if isinstance(details.get("codeName"), str) else ""]
    if isinstance(keys := details.get("keyPattern"), Mapping):
        parts.append("on " + ", ".join(map(str, cast("Mapping[str, Any]", keys))))
    if fields := list(_broken_rules(details.get("errInfo"))):
        parts.append("in " + ", ".join(dict.fromkeys(fields)))
    return " ".join(part for part in parts if part)


def _broken_rules(info: Any) -> Iterator[str]:
    """The fields that a collection's validator names; what it was given is left out."""
    if isinstance(info, Mapping):
        for name, value in cast("Mapping[str, Any]", info).items():
            if name == "propertyName":
                yield str(value)
            elif name == "missingProperties":
                yield from map(str, value)
            elif name != "consideredValue":
                yield from _broken_rules(value)
    elif isinstance(info, list):
        for detail in cast("list[Any]", info):
            yield from _broken_rules(detail)


def _of_aiokafka(error: Any) -> str:
    """Explain the protocol's code; name the address of a lost connection."""
    if type(error).__name__ == "KafkaConnectionError":
        return str(error).removeprefix("KafkaConnectionError: ")[:CHARACTERS]
    number, meaning = type(error).__dict__.get("errno"), type(error).__dict__.get("description")
    return f"code {number}, {meaning}" if number is not None and meaning else ""


def _of_librdkafka(error: BaseException) -> str:
    inner: Any = error.args[0] if error.args else None
    if not hasattr(inner, "code") or not hasattr(inner, "name"):
        return ""
    return f"{inner.name()}, {type(inner)(inner.code()).str()}"


def _place(error: BaseException) -> str:
    """Where an error was raised of which nothing else can be said."""
    frames = traceback.extract_tb(error.__traceback__)
    if not frames:
        return ""
    last = frames[-1]
    return f"at {'/'.join(last.filename.split(os.sep)[-3:])}:{last.lineno}"


LIBRARIES: Mapping[str, Callable[[Any], str]] = {
    "pymongo": _of_mongodb,
    "aiokafka": _of_aiokafka,
    "cimpl": _of_librdkafka,
}
"""By the package that an error is of."""
