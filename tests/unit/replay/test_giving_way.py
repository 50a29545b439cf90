"""A reform beside live formation: it holds back, goes on, and never stands still."""

from dataclasses import dataclass, field

import pytest

from eden_memory.replay.reform.reform_run import HANDLERS, STILL_SECONDS, Throttling
from eden_memory.stages.lanes import Slots
from tests.unit.replay.test_reform_planning import Servers, feeding, requests, window

WHOLE, BESIDE, SLOTS = 8, 1, 12


@dataclass
class Live:
    """Live formation as its groups show it, and the clock."""

    behind: int = 0
    passed: int = 0
    now: float = 0.0
    slots: Slots = field(default_factory=lambda: Slots(SLOTS))

    async def standing(self) -> tuple[int, int]:
        return self.behind, self.passed

    def giving_way(self) -> Throttling:
        return Throttling(self.standing, self.slots, WHOLE, BESIDE, lambda: self.now)


async def test_it_holds_back_while_live_works_and_goes_on_when_it_is_done() -> None:
    live = Live()
    way = live.giving_way()
    await way.look()
    assert (way.holds, way.windows, live.slots.limit) == (False, WHOLE, SLOTS)
    live.behind = 3
    for moment in range(0, int(3 * STILL_SECONDS), 10):
        live.now, live.passed = float(moment), moment + 1
        await way.look()
        assert (way.holds, way.windows, live.slots.limit) == (True, BESIDE, HANDLERS)
    live.behind = 0
    await way.look()
    assert (way.holds, way.windows, live.slots.limit) == (False, WHOLE, SLOTS)


async def test_live_formation_that_does_not_get_on_is_not_waited_for() -> None:
    live = Live(behind=3, passed=5)
    way = live.giving_way()
    await way.look()
    assert way.holds
    live.now = STILL_SECONDS
    await way.look()
    assert (way.holds, way.windows) == (False, WHOLE)
    live.passed = 6
    await way.look()
    assert way.holds


async def test_a_reform_of_few_windows_is_given_no_more_than_it_asked_for() -> None:
    live = Live(behind=1)
    way = Throttling(live.standing, live.slots, 1, 4, lambda: 0.0)
    await way.look()
    assert way.windows == 1


@pytest.mark.parametrize("room", [0, 1, 3])
async def test_beside_live_that_always_works_every_window_is_formed_all_the_same(
    room: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("eden_memory.replay.reform.feeding.LOOK_SECONDS", 0)
    servers = Servers(slow=2)
    work = feeding(servers, 5, None)
    work.room = lambda: room
    windows = [window(session, seq, seq) for session in range(3) for seq in (1, 2, 3)]
    await work.know(requests(windows), {})
    assert await work.run()
    assert (work.cap.formed, servers.most) == (9, max(1, room))


def test_slots_that_are_fewer_are_given_again_only_when_enough_are_back() -> None:
    slots, called = Slots(3), list[str]()
    assert all(slots.take(lambda: None) for _ in range(3))
    slots.resize(1)
    assert not slots.take(lambda: called.append("free"))
    slots.release()
    slots.release()
    assert called == []
    slots.release()
    assert called == ["free"]


def test_slots_that_are_more_again_go_to_who_waits() -> None:
    slots, called = Slots(1), list[str]()
    assert slots.take(lambda: None)
    assert not slots.take(lambda: called.append("free"))
    slots.resize(2)
    assert called == ["free"]
