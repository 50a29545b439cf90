"""Parts follow what is live, one placement after the other; what runs beside live never holds it up."""

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager

import pytest

from eden_memory.assembly.supervisor import LiveParts
from eden_memory.errors import ServerAway
from eden_memory.names import Placement
from eden_memory.replay.namespaces import standby_writers
from eden_memory.replay.namespaces.standby_writers import Made, StandbyWriters
from eden_memory.stages.process import State, Together

ORIGINAL, MAY = Placement(), Placement("may")


class Piece:
    """Notes when it runs."""

    def __init__(self, name: str, diary: list[str], *, fails: bool = False) -> None:
        self.name, self._diary, self._fails = name, diary, fails
        self._stopping = asyncio.Event()

    async def run(self) -> None:
        self._diary.append(f"{self.name} runs")
        if self._fails:
            raise ValueError(self.name)
        await self._stopping.wait()
        self._diary.append(f"{self.name} ended")

    def stop(self) -> None:
        self._stopping.set()

    def state(self) -> State:
        return State(True, self.name)


class World:
    """Something is live."""

    def __init__(self) -> None:
        self.diary: list[str] = []
        self.moves: asyncio.Queue[Placement] = asyncio.Queue()
        self.fails: set[str] = set()
        self.away = 0
        """So many times MongoDB or Kafka does not answer while parts are made."""

    @asynccontextmanager
    async def made(self, placement: Placement) -> AsyncGenerator[list[Piece]]:
        if f"making {placement.memory}" in self.fails:
            raise ValueError(placement.memory)
        if placement != ORIGINAL and self.away > 0:
            self.away -= 1
            raise ServerAway("Kafka does not answer")
        self.diary.append(f"{placement.memory} made")
        yield [Piece(placement.memory, self.diary, fails=placement.memory in self.fails)]
        self.diary.append(f"{placement.memory} closed")

    async def changes(self) -> AsyncGenerator[Placement]:
        yield ORIGINAL
        while True:
            yield await self.moves.get()

    async def until(self, said: str) -> None:
        async with asyncio.timeout(30):
            while said not in self.diary:  # noqa: ASYNC110 - a diary is no event
                await asyncio.sleep(0)


async def test_the_former_parts_end_and_close_before_the_next_are_made() -> None:
    world = World()
    placed = LiveParts(world.made, world.changes, 5)
    await placed.begin(ORIGINAL)
    running = asyncio.create_task(placed.run())
    await world.until("original runs")
    assert placed.state() == State(True, "original")
    await world.moves.put(MAY)
    await world.until("may runs")
    assert placed.state() == State(True, "may")
    assert [one.name for one in placed.parts] == ["may"]
    placed.stop()
    await running
    order = ["made", "runs", "ended", "closed"]
    assert world.diary == [f"{one} {what}" for one in ("original", "may") for what in order]


@pytest.mark.parametrize("what", ["may", "making may"])
async def test_what_goes_wrong_with_the_next_ends_the_process(what: str) -> None:
    world = World()
    world.fails.add(what)
    placed = LiveParts(world.made, world.changes, 5)
    await placed.begin(ORIGINAL)
    await world.moves.put(MAY)
    with pytest.raises(ValueError, match="may"):
        await placed.run()
    assert world.diary.count("original closed") == 1


async def test_servers_that_are_away_when_another_becomes_live_are_waited_for() -> None:
    world = World()
    world.away = 2
    placed = LiveParts(world.made, world.changes, 5)
    await placed.begin(ORIGINAL)
    await world.moves.put(MAY)
    running = asyncio.create_task(placed.run())
    await world.until("may runs")
    assert world.away == 0
    placed.stop()
    await running


async def test_several_moves_at_once_end_at_the_last() -> None:
    world = World()
    placed = LiveParts(world.made, world.changes, 5)
    await placed.begin(ORIGINAL)
    for to in (MAY, ORIGINAL, Placement("june", "june")):
        world.moves.put_nowait(to)
    running = asyncio.create_task(placed.run())
    await world.until("june runs")
    placed.stop()
    await running
    assert world.diary[-1] == "june closed"


async def test_parts_that_do_not_end_in_time_are_cancelled() -> None:
    diary: list[str] = []
    deaf = Piece("deaf", diary)
    deaf.stop = lambda: None  # pyright: ignore[reportAttributeAccessIssue]
    together = Together([deaf], 0.01)
    together.stop()
    await together.run()
    assert diary == ["deaf runs"]


async def test_standby_writers_come_and_go_and_one_that_fails_is_begun_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(standby_writers, "LOOK_SECONDS", 0.0)
    monkeypatch.setattr(standby_writers, "AGAIN_SECONDS", 0.0)
    world = World()
    wanted: dict[str, Made] = {"may": lambda: world.made(MAY)}

    async def asked() -> Mapping[str, Made]:
        return dict(wanted)

    part = StandbyWriters(asked, 5)
    running = asyncio.create_task(part.run())
    await world.until("may runs")
    world.fails.add("june")
    wanted["june"] = lambda: world.made(Placement("june", "june"))
    async with asyncio.timeout(30):
        while world.diary.count("june runs") < 3:  # noqa: ASYNC110 - a diary is no event
            await asyncio.sleep(0)
    assert "may ended" not in world.diary
    assert part.state() == State(True, "june, may")
    del wanted["may"]
    await world.until("may closed")
    part.stop()
    await running
    assert world.diary.count("june made") == world.diary.count("june runs")
