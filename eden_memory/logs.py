"""The logger of every module; of errors it logs only what `describe` says of them. A server that is waited for."""

import asyncio
import logging
import sys
import time
from collections.abc import AsyncGenerator, MutableMapping
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, cast

from eden_memory.errors import describe, describe_with_trace
from eden_memory.names import span_id

LIBRARY = logging.getLogger("eden_memory")
LIBRARY.addHandler(logging.NullHandler())


class LibraryLogger:
    """Log to structlog where the process has configured it, else to logging's `eden_memory`.

    So nothing is printed in an application that asked for nothing; structlog would print it all to standard output.
    """

    def __init__(self, *name: str) -> None:
        self._name = name

    def __getattr__(self, level: str) -> Any:
        structured = self._structured()
        return partial(_plain, level) if structured is None else getattr(structured, level)

    def is_enabled_for(self, level: int) -> bool:
        """Tell whether lines of a level (`logging.DEBUG`) go anywhere."""
        structured = self._structured()
        return LIBRARY.isEnabledFor(level) if structured is None else structured.is_enabled_for(level)

    def _structured(self) -> Any:
        structlog: Any = sys.modules.get("structlog")  # who has not loaded it has not configured it
        if structlog is None or not structlog.is_configured():
            return None
        return structlog.get_logger(*self._name)


log = LibraryLogger()


def scope_in_logs(key: str) -> str:
    """Return a scope's kind and the hash of its key, which contains an id of a user, session or group."""
    return f"{key.partition(':')[0]}:{span_id(key)}"


def _plain(level: str, event: str, **fields: object) -> None:
    if level == "exception":
        level, fields = "error", {"exc_info": True, **fields}
    described = describe_errors(None, level, {"event": event, **fields})
    trace = described.pop("exception", None)
    del described["event"]
    said = "".join(f" {name}={value!r}" for name, value in described.items())
    LIBRARY.log(getattr(logging, level.upper()), "%s%s%s", event, said, f"\n{trace}" if trace else "")


def describe_errors(_: object, __: str, line: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Put stack traces and errors into a line as text that holds no content."""
    error = line.pop("exc_info", None)
    if error is True:
        error = sys.exception()
    elif isinstance(error, tuple):
        error = cast("tuple[Any, Any, Any]", error)[1]
    if isinstance(error, BaseException):
        line["exception"] = describe_with_trace(error)
    for name, value in line.items():
        if isinstance(value, BaseException):
            line[name] = describe(value)
    return line


SOON_SECONDS = 3.0
"""Seconds without an answer after which a server is reported for the first time: the first steps of a start, with
what they load and connect, take one or two on a busy machine."""
SAID_SECONDS = 60.0
"""Seconds between two reports of a refusal or of a server that is waited for, however many steps meet it."""


class Awaited:
    """Says in one sentence that a server does not answer: soon, when the reason changes, and once a minute."""

    def __init__(self, server: str, hint: str) -> None:
        self._server, self._hint = server, hint
        self._reason, self._said = "", False
        self._due = time.monotonic() + SOON_SECONDS

    @asynccontextmanager
    async def said(self) -> AsyncGenerator[None]:
        """Say it while the block waits, and when the server answers after all."""
        teller = asyncio.create_task(self._tell())
        try:
            yield
        finally:
            teller.cancel()
        if self._said:
            log.info(f"{self._server} answers")

    def away(self, reason: str) -> None:
        """An attempt has failed; the reason is known now."""
        if reason != self._reason:
            self._reason = reason
            self._say()

    async def _tell(self) -> None:
        while True:
            await asyncio.sleep(max(0.0, self._due - time.monotonic()))
            if time.monotonic() >= self._due:
                self._say()

    def _say(self) -> None:
        self._said, self._due = True, time.monotonic() + SAID_SECONDS
        because = f" ({self._reason})" if self._reason else ""
        log.warning(f"{self._server} does not answer{because}: {self._hint[:1].lower()}{self._hint[1:]}")
