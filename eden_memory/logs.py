"""Structured logs: lines for people on a terminal, JSON otherwise; secrets and contents are never given to it."""

import logging
import sys
from collections.abc import Generator
from contextlib import contextmanager
from functools import partial
from typing import Any

import structlog

LIBRARY = logging.getLogger("eden_memory")
LIBRARY.addHandler(logging.NullHandler())


class LibraryLogger:
    """Of a module that applications import, too: structlog's where that is configured, else logging's `eden_memory`.

    So nothing is printed in an application that asked for nothing; structlog would print it all to standard output.
    """

    def __init__(self, *name: str) -> None:
        self._name = name

    def __getattr__(self, level: str) -> Any:
        if structlog.is_configured():
            return getattr(structlog.get_logger(*self._name), level)
        return partial(_plain, level)


def _plain(level: str, event: str, **fields: object) -> None:
    said = "".join(f" {name}={value!r}" for name, value in fields.items())
    if level == "exception":
        LIBRARY.exception("%s%s", event, said)
    else:
        LIBRARY.log(getattr(logging, level.upper()), "%s%s", event, said)


def configure(*, debug: bool = False) -> None:
    """Once, when a command starts that runs for long."""
    people = sys.stderr.isatty()
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.StackInfoRenderer(),
            *([] if people else [structlog.processors.format_exc_info]),
            _for_people() if people else structlog.processors.JSONRenderer(),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.DEBUG if debug else logging.INFO),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )
    logging.basicConfig(level=logging.INFO if debug else logging.ERROR, stream=sys.stderr)


@contextmanager
def warnings_only() -> Generator[None]:
    """For a command that prints an answer: what is logged meanwhile goes to standard error, from warnings on."""
    before = structlog.get_config()
    structlog.configure(
        processors=[structlog.processors.add_log_level, _for_people(colors=False)],
        wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING),
        logger_factory=lambda *_: structlog.PrintLogger(sys.stderr),
        cache_logger_on_first_use=False,
    )
    try:
        yield
    finally:
        structlog.configure(**before)


def _for_people(*, colors: bool = True) -> structlog.dev.ConsoleRenderer:
    """Stack traces without the values of variables: keys and contents stand in these."""
    return structlog.dev.ConsoleRenderer(colors=colors, exception_formatter=structlog.dev.plain_traceback)
