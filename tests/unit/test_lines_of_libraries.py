"""What libraries log stands among our lines, in our form, and does not fill the log."""

import logging
from collections.abc import Generator, MutableMapping
from typing import Any

import pytest
from aiokafka.errors import GroupCoordinatorNotAvailableError
from structlog.testing import capture_logs

from eden_memory.cli.structured_logs import MOST_KINDS, LibraryLines

Lines = list[MutableMapping[str, Any]]


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def library(clock: Clock) -> Generator[logging.Logger]:
    logger = logging.getLogger("some.library")
    handler = LibraryLines(60.0, clock)
    logger.addHandler(handler)
    logger.propagate = False
    yield logger
    logger.removeHandler(handler)


@pytest.fixture
def lines() -> Generator[Lines]:
    with capture_logs() as found:
        yield found


def test_of_what_repeats_the_first_is_a_line_and_then_one_a_minute(
    library: logging.Logger, clock: Clock, lines: Lines
) -> None:
    for second in range(180):
        clock.now = float(second)
        for node in range(10):
            library.error("no connection to node %s", node)
            if node % 2:
                library.warning("no coordinator")
    assert [(one["event"], one["log_level"], one.get("left_out"), one.get("kinds")) for one in lines] == [
        ("no connection to node 0", "error", None, None),
        ("no coordinator", "warning", None, None),
        ("no connection to node 0", "error", 898, 2),
        ("no connection to node 0", "error", 899, 2),
    ]
    assert {one["logger"] for one in lines} == {"some.library"}
    library.handlers[0].close()
    assert sum(1 + one.get("left_out", 0) for one in lines) == 180 * 15, "each is counted once"


def test_what_comes_back_after_a_minute_is_new(library: logging.Logger, clock: Clock, lines: Lines) -> None:
    for clock.now in (0.0, 61.0, 62.0):
        library.error("no connection")
    assert len(lines) == 2


def test_messages_that_are_all_different_are_bounded_too(library: logging.Logger, lines: Lines) -> None:
    for number in range(1_000):
        library.error(f"task {number} failed")
    assert len(lines) == MOST_KINDS + 1


def test_a_stack_trace_goes_along(library: logging.Logger, lines: Lines) -> None:
    try:
        raise ValueError("why")
    except ValueError:
        library.exception("failed")
    (line,) = lines
    assert line["exc_info"][0] is ValueError


def test_a_coordinator_that_is_being_chosen_is_an_error_only_if_that_lasts(
    library: logging.Logger, clock: Clock, lines: Lines
) -> None:
    def refused(*seconds: float) -> None:
        for second in seconds:
            clock.now = second
            library.error("Group Coordinator Request failed: %s", GroupCoordinatorNotAvailableError())

    refused(0.0, 0.1, 5.0)
    refused(300.0)
    assert not lines
    refused(*(1_000.0 + second for second in range(20)))
    assert len(lines) == 1
    assert "GroupCoordinatorNotAvailableError" in lines[0]["event"]
