"""Two figures of every stage that are settings: how long it waits at most, and how many dead letters it bears."""

from collections.abc import Sequence

from eden_memory.stages.stage import Delivery, Emitted, RetryPolicy, Stage
from eden_memory.stages.worker import Bounds


async def handler(deliveries: Sequence[Delivery]) -> Sequence[Emitted]:
    """Publishes nothing."""
    del deliveries
    return ()


ROW = Stage("one", handler, reads=(), retry=RetryPolicy(first=0.1, cap=7.0, attempts=3), dead_share=0.9)


def test_a_stage_is_as_its_row_says_where_nothing_is_set() -> None:
    assert Bounds().apply(ROW) == ROW


def test_what_is_set_holds_for_the_stage_and_nothing_else_of_it_changes() -> None:
    made = Bounds(dead_share=0.5, retry_cap=2.0).apply(ROW)
    assert made.dead_share == 0.5
    assert made.retry == RetryPolicy(first=0.1, cap=2.0, attempts=3)
    assert (made.name, made.handler, made.reads) == (ROW.name, ROW.handler, ROW.reads)
