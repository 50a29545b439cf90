"""Which facts have expired, whatever order they are put, prolonged, removed and asked for in."""

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from eden_memory.search.cached_scope import ExpiringFacts

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
MINUTES = st.integers(0, 9).map(lambda minutes: BEGIN + timedelta(minutes=minutes))
PUT = st.tuples(st.sampled_from("abc"), st.none() | MINUTES)


@given(st.lists(PUT | MINUTES, max_size=30))
def test_those_have_expired_whose_time_has_come(steps: list[tuple[str, datetime | None] | datetime]) -> None:
    expiring, times = ExpiringFacts(), dict[str, datetime | None]()
    for step in steps:
        if isinstance(step, datetime):
            wanted = {fact_id for fact_id, time in times.items() if time is not None and time <= step}
            assert expiring.past(step) == wanted
        else:
            expiring.put(*step)
            times[step[0]] = step[1]
