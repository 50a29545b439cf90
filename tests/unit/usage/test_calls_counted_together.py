"""Calls wait for others before they are counted, for a while."""

from collections.abc import Sequence

from eden_memory.processors.usage import Usage
from eden_memory.schemas.events import ModelCalled
from eden_memory.stages.gathering import Gathering
from eden_memory.stages.stage import Delivery, Gather
from tests.calls import called
from tests.unit.windows.records import at, delivery


class Counted:
    """Totals that remember the calls of each transaction."""

    def __init__(self) -> None:
        self.batches: list[list[str]] = []

    async def count(self, calls: Sequence[ModelCalled]) -> Sequence[ModelCalled]:
        self.batches.append([call.call_id for call in calls])
        return calls


def call(name: str) -> Delivery:
    return delivery(name, "s.a", at(0), called(name), name)


async def test_calls_are_counted_together_when_the_first_has_waited_long_enough() -> None:
    store, now = Counted(), 0.0
    usage = Usage(store, Gathering(2.0, 20, lambda: now))
    assert await usage([call("a")]) == Gather(2.0)
    now = 1.5
    assert await usage([call("a"), call("b")]) == Gather(0.5)
    now = 2.0
    assert await usage([call("a"), call("b")]) == ()
    assert [sorted(batch) for batch in store.batches] == [["a", "b"]]
    assert await usage([call("c")]) == Gather(2.0), "the next ones wait for as long"


async def test_many_calls_and_a_dead_letter_sent_again_wait_for_nothing() -> None:
    store = Counted()
    usage = Usage(store, Gathering(2.0, 3, lambda: 0.0))
    assert await usage([call("a"), call("b"), call("c")]) == ()
    assert await usage([call("d")._replace(sent_again=1)]) == ()
    assert [len(batch) for batch in store.batches] == [3, 1]
