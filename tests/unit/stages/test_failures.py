"""What each exception means, and how long a failed attempt waits."""

import pytest
from aiokafka.errors import MessageSizeTooLargeError, NodeNotReadyError
from bson.errors import InvalidDocument
from hypothesis import given
from hypothesis import strategies as st
from pymongo.errors import BulkWriteError, DocumentTooLarge, NotPrimaryError, OperationFailure

from eden_memory.errors import PermanentError, ProviderError
from eden_memory.stages.failure_decisions import Failure, Kind, attempts_allowed, classify, delay
from eden_memory.stages.retry_waits import backoff
from eden_memory.stages.stage import RetryPolicy
from eden_memory.stages.stage_health import DeadRate, Outage

POLICY = RetryPolicy(first=0.5, cap=60, attempts=6)


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (ProviderError("429", retry_after=3), Kind.PROVIDER),
        (PermanentError("no"), Kind.PERMANENT),
        (DocumentTooLarge("16 MB"), Kind.PERMANENT),
        (InvalidDocument("surrogate"), Kind.PERMANENT),
        (MessageSizeTooLargeError(), Kind.PERMANENT),
        (OperationFailure("validation", code=121), Kind.PERMANENT),
        (BulkWriteError({"writeErrors": [{"code": 17_419}]}), Kind.PERMANENT),
        (BulkWriteError({"writeErrors": [{"code": 11_000}]}), Kind.TRANSIENT),
        (OperationFailure("write conflict", code=112), Kind.TRANSIENT),
        (OperationFailure("not authorized", code=13), Kind.AWAY),
        (NotPrimaryError("stepped down"), Kind.AWAY),
        (NodeNotReadyError(), Kind.AWAY),
        (TimeoutError(), Kind.TRANSIENT),
        (ConnectionResetError(), Kind.TRANSIENT),
        (KeyError("x"), Kind.BUG),
        (AssertionError(), Kind.BUG),
    ],
)
def test_each_exception_has_its_kind(error: Exception, kind: Kind) -> None:
    assert classify(error) is kind


@given(st.integers(1, 10_000))
def test_backoff_is_jittered_under_a_capped_exponential(attempts: int) -> None:
    assert 0 <= backoff(POLICY, attempts) <= min(60, 0.5 * 2 ** min(attempts - 1, 30))


def test_a_provider_is_not_asked_sooner_than_it_wants() -> None:
    failure = Failure.of(ProviderError("429", retry_after=30))
    assert delay(POLICY, failure, 1) >= 30


@pytest.mark.parametrize("counts", [True, False])
def test_a_provider_may_say_that_an_attempt_says_nothing_of_the_input(counts: bool) -> None:
    assert Failure.of(ProviderError("503", 2.0, counts=counts)).counts is counts


def test_attempts_depend_on_the_kind() -> None:
    allowed = {kind: attempts_allowed(POLICY, Failure(kind, "")) for kind in Kind}
    assert allowed.pop(Kind.AWAY) > 10**9
    assert allowed == {Kind.TRANSIENT: 6, Kind.PROVIDER: 6, Kind.PERMANENT: 1, Kind.BUG: 2}


def test_an_outage_is_several_units_failing_and_none_succeeding() -> None:
    outage = Outage(several=3)
    assert not outage.failed("a", "500")
    assert not outage.failed("a", "500")
    assert not outage.failed("b", "500")
    assert not outage.succeeded()
    assert not outage.failed("c", "500")
    assert not outage.failed("d", "500")
    assert outage.failed("e", "503")
    assert (outage.reason, outage.epoch) == ("503", 1)
    assert not outage.failed("f", "503")
    assert outage.succeeded()
    assert outage.reason is None
    assert (outage.was_one(0), outage.was_one(1), outage.was_one(outage.epoch)) == (False, True, False)


def test_dead_letters_are_too_many_by_share_and_by_number() -> None:
    rate = DeadRate(share=0.5, window=10, at_least=3)
    assert [rate.finished(dead=True) for _ in range(3)] == [False, False, True]
    rate.clear()
    assert not any(rate.finished(dead) for dead in (False, True) * 20)


def test_what_left_the_window_counts_no_more() -> None:
    rate = DeadRate(share=0.3, window=10, at_least=3)
    for dead in (True, True, *([False] * 10)):
        rate.finished(dead)
    assert not rate.finished(True)
    assert not rate.finished(True)
    assert not rate.finished(True)
    assert rate.finished(True)


def test_dead_letters_of_one_session_whose_answers_cannot_be_read_count_once() -> None:
    rate = DeadRate(share=0.2, window=20, at_least=3)
    assert not any(rate.finished(True, "s.1") for _ in range(30))
    assert [rate.finished(True, f"s.{number}") for number in (2, 3)] == [False, False]
    assert [rate.finished(True, f"s.{number}") for number in (4, 5)] == [False, True]
