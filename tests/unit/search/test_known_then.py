"""Which version of a fact was known at a time."""

from dataclasses import replace
from datetime import datetime
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from eden_memory.domain.search.candidates import Candidate, When
from eden_memory.domain.search.known_then import as_known
from tests.unit.dedup.dedup_kit import at

NEWEST = Candidate("f", "user:s.a:s.u", "v4", at(0), at(40), 4, vector=b"v4")


def version(number: int, minute: int, decision: str = "UPDATE") -> dict[str, Any]:
    return {"version": number, "content": f"v{number}", "valid_from": at(minute), "decision": decision}


HISTORY = [version(3, 30), version(2, 20), version(1, 0, "ADD")]


def known(as_of: datetime | None, fact: Candidate = NEWEST, *, retired: bool = False) -> Candidate | None:
    when = When(as_of=as_of, include_retired=retired)
    return as_known(fact, fact.retired_at is None, HISTORY, when)


@given(st.integers(0, 60))
def test_it_is_the_latest_that_had_begun(minute: int) -> None:
    then = known(at(minute))
    assert then is not None
    assert then.text == f"v{1 + (minute >= 20) + (minute >= 30) + (minute >= 40)}"
    assert then.valid_from <= at(minute)
    assert (then.vector is not None) == (then.text == NEWEST.text)


def test_nothing_was_known_before_it_was_stated() -> None:
    assert known(at(-1)) is None


def test_a_retired_fact_was_known_until_then() -> None:
    gone = replace(NEWEST, retired_at=at(40), replaced_by="g", vector=None)
    before = known(at(39), gone)
    assert before is not None
    assert (before.retired_at, before.replaced_by) == (None, None)
    assert known(at(40), gone) is known(None, gone) is None
    assert known(at(40), gone, retired=True) == known(None, gone, retired=True) == gone


def test_a_version_that_retired_it_for_a_time_did() -> None:
    history = [version(3, 30, "RETIRE"), version(2, 20), version(1, 0, "ADD")]
    then = When(as_of=at(35))
    assert as_known(NEWEST, True, history, then) is None
    shown = as_known(NEWEST, True, history, replace(then, include_retired=True))
    assert shown is not None
    assert shown.retired_at == at(30)


def test_what_repeats_an_older_fact_is_never_shown() -> None:
    assert as_known(NEWEST, False, HISTORY, When(include_retired=True)) is None


def test_where_history_is_cut_off_its_oldest_stands() -> None:
    then = as_known(NEWEST, True, [version(3, 30)], When(as_of=at(10)))
    assert then is not None
    assert then.text == "v3"
