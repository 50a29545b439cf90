"""What may be removed follows from the notes alone, and never before every group is past it."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from eden_memory.housekeeping.consumption_store import Consumption, ConsumptionMark, removable

START = datetime(2026, 1, 1, tzinfo=UTC)
WEEK = timedelta(days=7)
IN, OUT = ("in", 0), ("out", 0)
DECLARED = Consumption({"in": ["g.a", "g.b"]}, {"a": ("g.a", ["in"])}, ("g.writer", ["out"]))


def _mark(day: int, a: int, b: int, ends: int = 0, written: int = 0) -> ConsumptionMark:
    committed = {"g.a": {IN: a}, "g.b": {IN: b}, "g.writer": {OUT: written}}
    return ConsumptionMark(START + timedelta(days=day), {IN: max(a, b), OUT: ends}, committed)


def test_nothing_goes_before_it_was_consumed_for_a_week() -> None:
    marks = [_mark(3, 10, 10), _mark(9, 20, 20)]
    assert removable(marks, DECLARED, START + timedelta(days=9)).records == {}
    assert removable(marks, DECLARED, START + timedelta(days=11)).records == {IN: 10}


def test_the_slowest_group_counts_and_a_new_one_holds_everything() -> None:
    late = START + timedelta(days=20)
    assert removable([_mark(0, 10, 4)], DECLARED, late).records == {IN: 4}
    fresh = Consumption({"in": ["g.a", "g.new"]}, {}, ("g.writer", ["out"]))
    assert removable([_mark(0, 10, 4)], fresh, late).records == {}


def test_a_topic_that_nobody_reads_is_kept() -> None:
    nobody = Consumption({"in": []}, {}, ("g.writer", ["out"]))
    assert removable([_mark(0, 10, 4)], nobody, START + timedelta(days=20)).records == {}


def test_outcomes_wait_until_the_writer_has_applied_what_they_published() -> None:
    late = START + timedelta(days=20)
    lagging = [_mark(0, 10, 10, ends=50, written=20), _mark(1, 12, 12, ends=60, written=49)]
    assert removable(lagging, DECLARED, late).outcomes == {}
    applied = [*lagging, _mark(2, 15, 15, ends=70, written=50)]
    assert removable(applied, DECLARED, late).outcomes == {"a": {IN: 10}}


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), min_size=1, max_size=20), st.integers(0, 30))
def test_what_goes_was_behind_every_group_a_week_ago(steps: list[tuple[int, int]], day: int) -> None:
    marks: list[ConsumptionMark] = []
    a = b = 0
    for number, (more_a, more_b) in enumerate(steps):
        a, b = a + more_a, b + more_b
        marks.append(_mark(number, a, b))
    now = START + timedelta(days=day)
    reached = removable(marks, DECLARED, now).records.get(IN, 0)
    old = [mark for mark in marks if mark.at <= now - WEEK]
    assert reached == (min(old[-1].committed["g.a"][IN], old[-1].committed["g.b"][IN]) if old else 0)


def test_notes_of_a_topic_that_was_created_anew_do_not_count_for_the_new_one() -> None:
    late = START + timedelta(days=20)
    before = replace(_mark(0, 240, 240), ids={"in": "first"})
    assert removable([before, replace(_mark(20, 360, 360), ids={"in": "first"})], DECLARED, late).records == {
        IN: 240
    }
    anew = removable([before, replace(_mark(20, 360, 360), ids={"in": "second"})], DECLARED, late)
    assert anew.records == {}
    assert IN not in anew.outcomes.get("a", {})


def test_an_end_that_went_backwards_drops_the_notes_before() -> None:
    late = START + timedelta(days=20)
    shrunk = [_mark(0, 240, 240), _mark(1, 5, 5), _mark(20, 360, 360)]
    assert removable(shrunk, DECLARED, late).records == {IN: 5}
    assert removable(shrunk[:1] + shrunk[2:], DECLARED, late).records == {IN: 240}


def test_nothing_goes_that_a_group_has_not_committed_now() -> None:
    late = START + timedelta(days=20)
    restarted = [_mark(0, 240, 240), replace(_mark(20, 10, 240), ends={IN: 240, OUT: 0})]
    found = removable(restarted, DECLARED, late)
    assert found.records == {IN: 10}
    assert found.outcomes == {"a": {IN: 10}}


def test_outcomes_stay_while_the_notes_are_of_another_topic_of_the_writer() -> None:
    late = START + timedelta(days=20)
    before = replace(_mark(0, 10, 10, ends=50, written=50), ids={"out": "first"})
    anew = replace(_mark(20, 10, 10, ends=90, written=90), ids={"out": "second"})
    assert removable([before, anew], DECLARED, late).outcomes == {}
