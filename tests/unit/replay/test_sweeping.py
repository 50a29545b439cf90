"""What is swept of a namespace that was left: the writer is given what ends, and the rest is done with."""

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from eden_memory.replay.rebuild.namespace_rebuild import tombstones_only
from eden_memory.stages.stage import Decision, Delivery
from tests.unit.memory.memory_histories import delivered, fact, tombstone


@given(st.lists(st.booleans(), min_size=1, max_size=12), st.data())
async def test_every_tombstone_is_written_once_and_no_value_whatever_the_writer_manages_at_a_time(
    ends: list[bool], data: st.DataObject
) -> None:
    events = [fact(f"fact-{number}") for number in range(len(ends))]
    waiting = [tombstone(event) if end else delivered(event) for event, end in zip(events, ends, strict=True)]
    wanted = [one for one in waiting if one.event is None]
    written: list[Delivery] = []

    async def writer(deliveries: Sequence[Delivery]) -> Decision:
        covers = data.draw(st.integers(1, len(deliveries)))
        written.extend(deliveries[:covers])
        return Decision(("said",), covers=covers)  # pyright: ignore[reportArgumentType]

    sweeper = tombstones_only(writer)
    while waiting:
        decision = await sweeper(waiting)
        assert isinstance(decision, Decision)
        assert not decision.events, "what is to be said, the live writer has said"
        covers = len(waiting) if decision.covers is None else decision.covers
        assert 0 < covers <= len(waiting)
        waiting = waiting[covers:]
    assert written == wanted
