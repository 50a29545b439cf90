"""Which version of a fact was known at a time."""

from dataclasses import replace
from datetime import datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eden_memory.search.fact_candidates import FactCandidate, When
from eden_memory.search.unindexed_list_store import as_it_was, as_known, stated_earlier
from tests.unit.formation.dedup.dedup_kit import at

NEWEST = FactCandidate("f", "user:s.a:s.u", "v4", at(0), at(40), 4, at(0), vector=b"v4")


def test_nothing_is_known_before_it_was_said_and_history_read_in_is_known_since_then() -> None:
    fact = replace(NEWEST, formed_at=at(900), valid_from=at(40), said_at=at(10))
    history = [version(1, 10, "ADD")]
    assert as_known(fact, True, history, When(as_of=at(9))) is None
    for moment, text in ((10, "v1"), (39, "v1"), (40, "v4")):
        then = as_known(fact, True, history, When(as_of=at(moment)))
        assert then is not None
        assert then.text == text


def version(number: int, minute: int, decision: str = "UPDATE") -> dict[str, Any]:
    return {"version": number, "content": f"v{number}", "valid_from": at(minute), "decision": decision}


ROW: dict[str, Any] = {"content": "v1", "version": 2, "said_at": at(40), "history": [version(1, 40, "ADD")]}


def told(session: str, minute: int) -> dict[str, Any]:
    return {"session_id": session, "said_at": at(minute)}


@pytest.mark.parametrize(
    ("as_of", "since", "fields"),
    [
        (9, None, {}),
        (10, 10, {}),
        (39, 10, {}),
        (40, None, {}),
        (12, None, {"sources": [told("new", 40), told("old", 5), told("old", 15)]}),
        (20, 15, {"sources": [told("new", 40), told("old", 5), told("old", 15)]}),
        (20, None, {"content": "v2"}),
        (20, None, {"version": 30}),
    ],
)
def test_a_fact_with_one_text_was_said_since_its_oldest_statement(
    as_of: int, since: int | None, fields: dict[str, Any]
) -> None:
    row = {**ROW, "sources": [told("new", 40), told("old", 10)], **fields}
    assert stated_earlier(row, at(as_of)) == (None if since is None else at(since))
    assert stated_earlier(row, None) is None


def test_a_retired_version_is_gone_from_the_time_of_its_retirement_on() -> None:
    fact = replace(NEWEST, said_at=at(0), valid_from=at(10), retired_at=at(30), replaced_by="g", vector=None)
    held = as_known(fact, False, [], When(as_of=at(29)))
    assert held is not None
    assert (held.retired_at, held.replaced_by) == (None, None)
    assert as_known(fact, False, [], When(as_of=at(30))) is None


def test_a_fact_that_holds_again_was_never_gone() -> None:
    fact = replace(NEWEST, said_at=at(0), valid_from=at(0))
    history = [version(2, 20, "DELETE"), version(1, 0, "ADD")]
    for moment in (0, 20, 50):
        then = as_known(fact, True, history, When(as_of=at(moment)))
        assert then is not None
        assert then.retired_at is None


def test_a_version_that_tells_of_no_time_is_not_found_by_when_something_happened() -> None:
    fact, history = replace(NEWEST, occurred_at=at(5)), [version(1, 0, "ADD")]
    for minute, found in ((40, True), (39, False)):
        then = When(as_of=at(minute), occurred_after=at(0))
        assert (as_known(fact, True, history, then) is not None) == found
        assert as_known(fact, True, history, When(as_of=at(minute))) is not None


HISTORY = [version(3, 30), version(2, 20), version(1, 0, "ADD")]


def known(
    as_of: datetime | None, fact: FactCandidate = NEWEST, *, retired: bool = False
) -> FactCandidate | None:
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


@pytest.mark.parametrize(
    ("as_of", "shown", "retired"),
    [
        (9, None, None),
        (10, "v1", "v1"),
        (39, "v1", "v1"),
        (40, "v2", "v2"),
        (70, None, "v2"),
        (None, None, "v2"),
    ],
)
def test_a_reflection_is_searched_as_it_was(
    as_of: int | None, shown: str | None, retired: str | None
) -> None:
    earlier = {"content": "v1", "version": 1, "said_at": at(10)}
    newest = {"content": "v2", "version": 2, "said_at": at(40), "formed_at": at(50), "retired_at": at(60)}
    row = {"_id": "r", "scope_key": "user:s.a:s.u", "history": [earlier], **newest}
    moment = None if as_of is None else at(as_of)
    for include_retired, wanted in ((False, shown), (True, retired)):
        found = as_it_was(row, When(as_of=moment, include_retired=include_retired))
        assert (found and found.text) == wanted
