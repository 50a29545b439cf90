"""What may be committed of a partition, whatever order its records finish in."""

from hypothesis import given
from hypothesis import strategies as st

from eden_memory.stages.lanes import AssignedPartition


@st.composite
def _gappy_offsets(draw: st.DrawFn) -> list[int]:
    start = draw(st.integers(0, 100))
    gaps = draw(st.lists(st.integers(1, 4), min_size=1, max_size=40))
    return [start + sum(gaps[: index + 1]) for index in range(len(gaps))]


@given(_gappy_offsets(), st.data())
def test_only_what_is_finished_without_a_gap_is_committed(offsets: list[int], data: st.DataObject) -> None:
    home = AssignedPartition("t", 0)
    for offset in offsets:
        assert home.take(offset, 10)
    unfinished = list(offsets)
    for offset in data.draw(st.permutations(offsets)):
        assert home.committable() == unfinished[0]
        assert (home.count, home.bytes) == (len(unfinished), 10 * len(unfinished))
        home.finish(offset, 10)
        unfinished.remove(offset)
    assert home.committable() == offsets[-1] + 1
    assert (home.count, home.bytes) == (0, 0)


def test_markers_behind_the_last_record_are_committed_too() -> None:
    home = AssignedPartition("t", 0)
    home.take(5, 1)
    assert home.committable(position=8) == 5
    home.finish(5, 1)
    assert home.committable(position=8) == 8
    assert home.committable(position=3) == 6


def test_nothing_seen_is_nothing_to_commit() -> None:
    assert AssignedPartition("t", 0).committable() is None


def test_a_record_fetched_again_is_not_taken_twice() -> None:
    home = AssignedPartition("t", 0)
    assert home.take(7, 1)
    assert not home.take(7, 1)
    assert home.count == 1
