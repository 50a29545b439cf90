"""Asking a group's coordinator, which is not to be asked yet while a broker has just started or the group moves."""

import time
from collections.abc import Callable
from typing import TypeVar

from confluent_kafka import KafkaError, KafkaException

T = TypeVar("T")
PAUSE_SECONDS = 0.2
LONGEST_SECONDS = 20.0
NOT_YET = (
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,  # pyright: ignore
    KafkaError.COORDINATOR_NOT_AVAILABLE,  # pyright: ignore
    KafkaError.NOT_COORDINATOR,  # pyright: ignore
)


def once_coordinated(ask: Callable[[], T], seconds: float = LONGEST_SECONDS) -> T:
    """What `ask` returns, repeated for so long while the coordinator cannot answer yet; KafkaException. Blocking."""
    until = time.monotonic() + seconds
    while True:
        try:
            return ask()
        except KafkaException as error:
            if error.args[0].code() not in NOT_YET or time.monotonic() > until:
                raise
        time.sleep(PAUSE_SECONDS)
