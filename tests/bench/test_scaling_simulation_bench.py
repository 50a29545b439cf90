"""The simulation of scaling, where its results follow from arithmetic: its clock takes no time."""

import pytest

from tests.bench.scaling_simulation import Plant, burst, needed, simulated

BARE = Plant(1, 12, at_once=8, hop_seconds=0.0, busy_seconds=0.0)


def test_a_session_alone_waits_for_its_own_calls() -> None:
    outcome = simulated(BARE, burst(1, 3))
    assert outcome.calls == 10
    assert outcome.seconds == pytest.approx(4), "three windows' facts, then the last one's reflections"


def test_a_process_makes_no_more_calls_at_once_than_its_gate_allows() -> None:
    outcome = simulated(BARE, burst(96, 1))
    assert 3 * 96 / 8 <= outcome.seconds < 1.15 * 3 * 96 / 8, "the gate begins with half of its calls"


def test_processes_share_the_work_as_far_as_there_are_partitions() -> None:
    few, many = (simulated(Plant(4, partitions, 8), burst(96, 1)).seconds for partitions in (6, 48))
    assert simulated(Plant(1, 48, 8), burst(96, 1)).seconds > 2.5 * many
    assert few > 1.15 * many, "of six partitions, two processes hold two and two hold one"


def test_a_provider_s_limit_bounds_all_processes_together() -> None:
    outcome = simulated(Plant(4, 12, 64, calls_per_second=6), burst(96, 1))
    assert outcome.refused
    assert 3 * 96 / 6 * 0.95 < outcome.seconds < 3 * 96 / 6 * 1.3


def test_more_messages_need_more_processes() -> None:
    assert needed(50, Plant(1, at_once=8), 1.0).processes < needed(200, Plant(1, at_once=8), 1.0).processes
