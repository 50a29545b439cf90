"""Messages that nobody waits for wait for more of their partition; everything else is processed at once."""

from collections.abc import Sequence

import pytest
from hypothesis import given

from eden_memory.directory.participants import Missing
from eden_memory.processors.formation_trigger import FormationTrigger
from eden_memory.schemas.events import MessageRecorded
from eden_memory.stages.gathering import Gathering
from eden_memory.stages.stage import Decision, Delivery, Emit, Gather
from eden_memory.windows.window_rule import Limits
from tests.unit.windows.memory_store import MemoryStore
from tests.unit.windows.records import (
    KnownMarks,
    Sessions,
    asked,
    delivery,
    ended,
    gone,
    message,
    publish,
    run,
    trigger,
    watermark,
)
from tests.unit.windows.test_window_properties import LIMITS, by_id, plainly, steps, written

S, SECONDS, MOST = "s.s", 2.0, 20


class Stage:
    """The stage in one process, and the clock by which it gathers."""

    def __init__(self, store: MemoryStore, sessions: Sessions | None = None) -> None:
        self.store, self.now = store, 0.0
        gathering = Gathering(SECONDS, MOST, lambda: self.now)
        directory = sessions or Sessions()
        self.handler = FormationTrigger(
            store, directory, "v1", KnownMarks(), gathering=gathering, most_before=2
        )

    async def gathers(self, *batch: Delivery) -> bool:
        """Whether a batch is left until more comes; else it is processed."""
        return isinstance(await self.handler(batch), Gather)

    async def knows(self, *batch: Delivery) -> None:
        """Process messages at once, so that their sessions are in memory."""
        await run(self.handler, batch)


def next_message(number: int = 2, minutes: float = 0.1, text: str = "more", user: str = "i.1") -> Delivery:
    return message(f"s.m{number}", S, number, minutes, text, user=user)


async def test_messages_that_only_join_others_are_stored_together() -> None:
    stage = Stage(MemoryStore(Limits()))
    await stage.knows(message("s.m1", S, 1, 0))
    batch = [next_message(2)]
    assert await stage.gathers(*batch)
    stage.now = 1.5
    batch.append(next_message(3))
    assert await stage.gathers(*batch)
    assert set(stage.store.stored_messages) == {"s.m1"}
    stage.now = SECONDS
    assert not await stage.gathers(*batch)
    assert set(stage.store.stored_messages) == {"s.m1", "s.m2", "s.m3"}
    assert await stage.gathers(next_message(4)), "the next ones wait for as long"


async def test_many_messages_wait_for_no_more() -> None:
    stage = Stage(MemoryStore(Limits()))
    await stage.knows(message("s.m1", S, 1, 0))
    many = [next_message(number) for number in range(2, MOST + 2)]
    assert await stage.gathers(*many[:-1])
    assert not await stage.gathers(*many)


def read_in() -> Delivery:
    """A message that the tailer reads from the collection."""
    found = next_message()
    assert isinstance(found.event, MessageRecorded)
    event = found.event.model_copy(update={"origin": "backfill"})
    return delivery(found.key, S, found.envelope.time, event, found.id)


AT_ONCE = {
    "the first of its session": message("s.m2", "s.other", 2, 0.1),
    "of a new author": next_message(user="i.2"),
    "closes a window by its tokens": next_message(text="x" * 2_000),
    "finds the session cold": next_message(minutes=11),
    "the end of the session": ended(S, 2, 0.1),
    "somebody asks": asked(S, 2, 0.1),
    "a deletion": gone("s.m1", S, 2, 0.1),
    "a watermark": watermark(2, 0.1),
    "read from the collection": read_in(),
    "a dead letter sent again": next_message()._replace(sent_again=1),
}


@pytest.mark.parametrize("record", AT_ONCE.values(), ids=AT_ONCE.keys())
async def test_what_changes_more_is_processed_at_once_with_all_that_waits(record: Delivery) -> None:
    stage = Stage(MemoryStore(Limits(least=1, tokens=400)))
    await stage.knows(message("s.m0", S, 0, 0), message("s.m1", S, 1, 0))
    waiting = next_message(3, minutes=0.05)
    assert await stage.gathers(waiting)
    assert not await stage.gathers(waiting, record)
    assert "s.m3" in stage.store.stored_messages


async def test_a_message_that_fills_a_window_is_processed_at_once() -> None:
    stage = Stage(MemoryStore(Limits(messages=4, least=2)))
    await stage.knows(message("s.m1", S, 1, 0))
    assert await stage.gathers(next_message(2), next_message(3))
    decision = await stage.handler([next_message(2), next_message(3), next_message(4)])
    assert isinstance(decision, Decision)
    assert len(decision.events) == 1


async def test_a_session_that_waits_for_a_document_is_looked_up_at_once() -> None:
    stage = Stage(MemoryStore(Limits()), Sessions(said={S: Missing("no document")}))
    await stage.knows(message("s.m1", S, 1, 0))
    assert await stage.gathers(next_message(2))
    await stage.knows(next_message(2), asked(S, 3, 0.1))
    assert not await stage.gathers(next_message(4))


async def test_a_process_that_knows_no_session_waits_for_nothing() -> None:
    store = MemoryStore(Limits())
    await run(trigger(store), [message("s.m1", S, 1, 0)])
    assert not await Stage(store).gathers(next_message(2))


async def gathered(log: Sequence[Delivery]) -> list[Emit]:
    """What is published of records that come one by one, as the lanes give them to the stage."""
    stage, published, waiting = Stage(MemoryStore(LIMITS)), list[Emit](), list[Delivery]()
    for record in log:
        waiting.append(record)
        decision = await stage.handler(waiting)
        if not isinstance(decision, Gather):
            published += publish(decision)
            waiting.clear()
    stage.now += SECONDS
    return published + (await run(stage.handler, waiting) if waiting else [])


@given(told=steps)
async def test_gathering_changes_no_window(told: list[tuple[str, int, int, float]]) -> None:
    log = written(told)
    assert by_id(await gathered(log)) == by_id(await plainly(log))
