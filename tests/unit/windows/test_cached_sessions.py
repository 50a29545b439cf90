"""Sessions are cached up to a bound in bytes, and while messages come: what was quiet longest goes first."""

import tracemalloc
from datetime import timedelta

from eden_memory.windows.session_state import Session, StoredMessage
from eden_memory.windows.trigger_batch import QUIET, CachedSessions
from eden_memory.windows.window_rule import Limits
from tests.unit.windows.records import NOON, version

LIMITS = Limits(messages=1_000, tokens=1e9)


def session(name: str, messages: int = 0, text: str = "hello") -> Session:
    made = Session(name, 0, LIMITS)
    for number in range(messages):
        message = StoredMessage(
            f"{name}-{number}", name, version(number), NOON, "user", "s.u", f"{number} {text}", 9, False
        )
        made.hold(message, NOON + timedelta(microseconds=number), number + 1)
    return made


def test_beyond_the_bound_the_sessions_that_were_quiet_longest_are_dropped() -> None:
    cached = CachedSessions(0, most=18_000)
    cached.keep((session(f"s.{number}") for number in range(4)), NOON)
    cached.keep([session("s.0")], NOON)
    cached.keep([session("s.large", messages=10)], NOON)
    assert set(cached.find(["s.0", "s.1", "s.2", "s.3", "s.large"])) == {"s.0", "s.3", "s.large"}


def test_a_session_that_is_cached_anew_counts_once() -> None:
    cached = CachedSessions(0, most=20_000)
    for messages in (9, 9, 9):
        cached.keep([session("s.same", messages)])
    cached.keep([session("s.other", messages=9)])
    assert len(cached) == 2


def test_a_session_is_dropped_when_messages_have_come_without_it_for_long() -> None:
    cached = CachedSessions(0)
    cached.keep([session("s.early"), session("s.waits", messages=3)], NOON)
    cached.keep([session("s.later")], NOON + QUIET)
    assert len(cached) == 3
    cached.keep([session("s.last")], NOON + QUIET + timedelta(seconds=1))
    assert set(cached.find(["s.early", "s.waits", "s.later", "s.last"])) == {"s.later", "s.last"}


def test_batches_without_messages_let_no_time_pass() -> None:
    cached = CachedSessions(0)
    cached.keep([session("s.early")], NOON)
    cached.keep([session("s.looked at", messages=1)])
    assert len(cached) == 2


def test_a_session_that_a_watermark_emptied_is_cached_only_while_it_waits_for_a_document() -> None:
    cached, waiting = CachedSessions(0), session("s.waits for a document")
    waiting.waits_for = "session"
    cached.keep([session("s.emptied", messages=2), waiting], NOON)
    cached.keep([session("s.emptied"), waiting])
    assert set(cached.find(["s.emptied", "s.waits for a document"])) == {"s.waits for a document"}


def test_the_bound_is_near_the_memory_that_is_held() -> None:
    most = 2_000_000
    cached = CachedSessions(0, most)
    cached.keep([session("s.built before")], NOON)
    tracemalloc.start()
    cached.keep((session(f"s.{number}", number % 40, text="word " * 100) for number in range(400)), NOON)
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert 0.5 * most < held < 1.5 * most
