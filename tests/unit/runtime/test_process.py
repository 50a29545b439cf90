"""A process ends within its deadlines, whatever its parts do."""

import asyncio

import pytest

from eden_memory.domain.errors import EdenError
from eden_memory.runtime.process import Process, State
from eden_memory.runtime.stages.patience import until_there


class Part:
    """Ends when told to, when cancelled, or never."""

    name = "part"

    def __init__(self, *, stops: bool = True, ends: bool = True) -> None:
        self._stops, self._ends = stops, ends
        self._stopping = asyncio.Event()
        self.released = asyncio.Event()

    async def run(self) -> None:
        try:
            await (self._stopping if self._stops else asyncio.Event()).wait()
        except asyncio.CancelledError:
            if self._ends:
                raise
            await self.released.wait()

    def stop(self) -> None:
        self._stopping.set()

    def state(self) -> State:
        return State(True, "runs")


async def drained(*parts: Part) -> list[int]:
    """With what the process was ended by force, once one of its parts has ended by itself."""
    ended: list[int] = []
    done = Part()
    done.stop()
    await Process([done, *parts], 0.01, cancel_seconds=0.01, end=ended.append).run()
    return ended


async def test_parts_that_stop_or_can_be_cancelled_end_the_process_in_order() -> None:
    assert await drained(Part(), Part(stops=False)) == []


async def test_a_part_that_survives_its_cancelling_is_left_behind() -> None:
    stuck = Part(stops=False, ends=False)
    assert await drained(stuck) == [1]
    stuck.released.set()


async def test_a_server_that_comes_late_is_waited_for() -> None:
    calls = 0

    async def step() -> str:
        nonlocal calls
        calls += 1
        if calls < 3:
            raise ConnectionError("refused")
        return "there"

    assert await until_there(step, "MongoDB", 60, "start it") == "there"


async def test_a_server_that_does_not_come_is_named_with_what_to_do() -> None:
    async def step() -> None:
        raise ConnectionError("refused")

    with pytest.raises(EdenError, match="MongoDB does not answer: ConnectionError: refused") as raised:
        await until_there(step, "MongoDB", 0.3, "start it")
    assert raised.value.hint == "start it"


async def test_what_no_waiting_can_cure_is_raised_at_once() -> None:
    async def step() -> None:
        raise EdenError("no topic", "make one")

    with pytest.raises(EdenError, match="no topic"):
        await until_there(step, "Kafka", 60, "start it")
