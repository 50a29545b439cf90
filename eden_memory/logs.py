"""Structured logs: lines for people on a terminal, JSON otherwise; secrets and contents are never given to it."""

import logging
import sys
from collections.abc import Generator
from contextlib import contextmanager

import structlog


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
