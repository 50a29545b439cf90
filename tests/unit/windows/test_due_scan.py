"""A watermark looks at the sessions that it may close, and at no others."""

from datetime import timedelta

from hypothesis import given
from hypothesis import strategies as st

from eden_memory.windows.session_state import Session
from eden_memory.windows.trigger_batch import DueScan
from eden_memory.windows.window_rule import Limits, Waiting
from tests.unit.windows.records import NOON, version

COLD = timedelta(minutes=10)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("message"), st.integers(0, 4), st.integers(1, 4)),
        st.tuples(st.just("watermark"), st.just(0), st.integers(1, 15)),
    ),
    max_size=60,
)


def sessions() -> dict[str, Session]:
    return {f"s.{number}": Session(f"s.{number}", 0, Limits(least=1, cold=COLD)) for number in range(5)}


@given(STEPS)
def test_what_watermarks_close_is_what_asking_every_session_closes(steps: list[tuple[str, int, int]]) -> None:
    asked, all_of_them, scan, minute = sessions(), sessions(), DueScan(), 0
    for number, (what, which, later) in enumerate(steps):
        minute += later
        time = NOON + timedelta(minutes=minute)
        if what == "message":
            name = f"s.{which}"
            scan.touched.add(name)
            for one in (asked[name], all_of_them[name]):
                one.pending.add(Waiting(f"s.m{number}", version(number), time, 1.0, number))
        else:
            closed = [(one.session_id, one.pending.passed(time)) for one in scan.passed(time, asked)]
            there = [(name, one.pending.passed(time)) for name, one in all_of_them.items()]
            assert sorted((name, some) for name, some in closed if some) == [
                (name, some) for name, some in there if some
            ]


def test_a_session_that_is_not_due_is_not_looked_at() -> None:
    mine, scan = sessions(), DueScan()
    mine["s.1"].pending.add(Waiting("s.m1", version(1), NOON, 1.0, 1))
    mine["s.2"].due_at = NOON + COLD
    scan.touched.update(mine)
    assert [one.session_id for one in scan.passed(NOON + COLD / 2, mine)] == []
    assert [one.session_id for one in scan.passed(NOON + COLD, mine)] == ["s.1", "s.2"]
