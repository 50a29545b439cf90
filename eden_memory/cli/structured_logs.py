"""Structured logs of our own processes: lines for people on a terminal, JSON otherwise."""

import logging
import math
import shutil
import sys
import textwrap
import time
from collections import Counter
from collections.abc import Callable, Generator, MutableMapping
from contextlib import contextmanager
from copy import copy
from typing import Any

import structlog

from eden_memory.errors import describe
from eden_memory.logs import describe_errors

INDENT = " " * 9
"""Under the time of day."""
COLORS = {"warning": 33, "error": 31, "critical": 31}
LEVELS = frozenset({"debug", "info", "warning", "error", "critical"})
MOST_KINDS = 20
"""Kinds of lines that one library's logger may begin in a minute."""
PASSING = frozenset(
    {"GroupCoordinatorNotAvailableError", "GroupLoadInProgressError", "NotCoordinatorForGroupError"}
)
"""Errors that a consumer meets while its group's coordinator is being chosen, and cures by asking again."""
PASSING_SECONDS = 15.0
"""An outage that lasts longer is logged as an error all the same."""


class LibraryLines(logging.Handler):
    """Log lines of libraries, structured like ours: the first of each kind, and one line a minute for all repeats.

    A kind is a logger and its unformatted message. It counts as new again after a minute without it.
    """

    def __init__(self, seconds: float = 60.0, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._seconds, self._clock = seconds, clock
        self._seen: dict[tuple[str, str], float] = {}
        self._repeated: Counter[tuple[str, str]] = Counter()
        self._newest: dict[tuple[str, str], logging.LogRecord] = {}
        self._told = clock()
        self._passing_since = self._passing_at = -math.inf

    def emit(self, record: logging.LogRecord) -> None:
        """Write a line, or count the record for the next one."""
        now, kind = self._clock(), (record.name, str(record.msg))
        if self._passing(record, now):
            return
        self._seen = {line: at for line, at in self._seen.items() if now - at < self._seconds}
        if kind not in self._seen and sum(name == record.name for name, _ in self._seen) >= MOST_KINDS:
            kind = (record.name, "")  # messages that are formatted beforehand are all different
        if kind in self._seen:
            self._repeated[kind] += 1
            self._newest[kind] = record
        else:
            self._write(record)
        self._seen[kind] = now
        if now - self._told >= self._seconds:
            self._tell(now)

    def _passing(self, record: logging.LogRecord, now: float) -> bool:
        """Whether it is what a group meets when it is new or ends, and has not gone on for long."""
        if not any(type(argument).__name__ in PASSING for argument in _arguments(record)):
            return False
        if now - self._passing_at > self._seconds:
            self._passing_since = now
        self._passing_at = now
        return now - self._passing_since < PASSING_SECONDS

    def close(self) -> None:
        """Say at the end what no line has said yet."""
        self._tell(self._clock())
        super().close()

    def _tell(self, now: float) -> None:
        if self._repeated:
            (most, _), *_ = self._repeated.most_common(1)
            self._write(self._newest[most], left_out=self._repeated.total() - 1, kinds=len(self._repeated))
        self._told = now
        self._repeated.clear()
        self._newest.clear()

    @staticmethod
    def _write(record: logging.LogRecord, **more: int) -> None:
        level = record.levelname.lower()
        write = getattr(structlog.get_logger(), level if level in LEVELS else "info")
        write(_described(record), logger=record.name, exc_info=record.exc_info, **more)


def configure(*, debug: bool = False) -> None:
    """Once, when a command starts that runs for long."""
    people = sys.stderr.isatty()
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.StackInfoRenderer(),
            describe_errors,
            _for_people if people else structlog.processors.JSONRenderer(),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.DEBUG if debug else logging.INFO),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )
    logging.basicConfig(level=logging.INFO if debug else logging.ERROR, handlers=[LibraryLines()])


@contextmanager
def warnings_only() -> Generator[None]:
    """For a command that prints an answer: what is logged meanwhile goes to standard error, from warnings on."""
    before = structlog.get_config() if structlog.is_configured() else None
    structlog.configure(
        processors=[structlog.processors.add_log_level, describe_errors, _for_people],
        wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING),
        logger_factory=lambda *_: structlog.PrintLogger(sys.stderr),
        cache_logger_on_first_use=False,
    )
    try:
        yield
    finally:
        if before is None:
            structlog.reset_defaults()
        else:
            structlog.configure(**before)


def _for_people(_: object, __: str, line: MutableMapping[str, Any]) -> str:
    """Return a line as people read it: the time of day, what happened, its fields; wrapped to their terminal."""
    head = [str(line.pop("timestamp", ""))[11:19]]
    level, event, trace = line.pop("level", "info"), line.pop("event", ""), line.pop("exception", None)
    if level not in ("debug", "info"):
        head.append(level)
    fields = (f"{name}={_shown(value)}" for name, value in line.items())
    text = " ".join([*filter(None, head), _printable(str(event)), *fields])
    if sys.stderr.isatty():
        width = shutil.get_terminal_size().columns
        text = textwrap.fill(
            text, width, subsequent_indent=INDENT, break_long_words=False, break_on_hyphens=False
        )
        text = text.replace(level, f"\x1b[{COLORS[level]}m{level}\x1b[0m", 1) if level in COLORS else text
    return f"{text}\n{trace}" if trace else text


def _shown(value: object) -> str:
    text = _printable(str(value))
    return repr(text) if " " in text else text


def _printable(text: str) -> str:
    return "".join(
        character if character.isprintable() else " " if character.isspace() else "�" for character in text
    )


def _described(record: logging.LogRecord) -> str:
    """Return a library's message with the errors among its arguments described."""
    arguments = _arguments(record)
    if arguments:
        record = copy(record)
        record.args = tuple(
            describe(argument) if isinstance(argument, BaseException) else argument for argument in arguments
        )
    return record.getMessage()


def _arguments(record: logging.LogRecord) -> tuple[object, ...]:
    return record.args if isinstance(record.args, tuple) else ()
