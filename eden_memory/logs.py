"""Structured logs: lines for people on a terminal, JSON otherwise; secrets and contents are never given to it."""

import logging
import sys

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
            structlog.dev.ConsoleRenderer() if people else structlog.processors.JSONRenderer(),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.DEBUG if debug else logging.INFO),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )
    logging.basicConfig(level=logging.INFO if debug else logging.ERROR, stream=sys.stderr)
