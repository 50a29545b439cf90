"""What is kept back under a cap: for windows before they are fed, for consolidations before they are asked."""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eden_memory.errors import CapReached
from eden_memory.replay.reform.feeding import ReformCap
from eden_memory.replay.reform.reform_calls import Capped
from eden_memory.replay.reform.reform_settings import PlannedWindow
from eden_memory.schemas.documents import Answer
from eden_memory.schemas.events import ModelCalled
from tests.calls import called
from tests.unit.replay.test_reform_planning import Servers, feeding, requests, window

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def unit(scope: str, attempt: int = 1) -> str:
    """Names the question of a consolidation."""
    return f"agent:s.{scope}@1:{attempt}"


def merged(scope: str, usd: str) -> ModelCalled:
    """The call of a consolidation, counted."""
    key = f"agent:s.{scope}"
    return called(f"{scope}{usd}", namespace="trial", stage="consolidation", scope=key, cost_usd=Decimal(usd))


class Wallet:
    """What was spent."""

    def __init__(self, cap: int | None) -> None:
        self.spent = Decimal(0)
        self.cap = ReformCap(
            Decimal(1), Decimal(1), lambda: self.spent, None if cap is None else Decimal(cap)
        )

    def pays(self, scope: str, usd: str) -> None:
        self.spent += Decimal(usd)
        self.cap.counted(merged(scope, usd))


def test_a_consolidation_waits_until_another_has_left_room() -> None:
    wallet = Wallet(2)
    assert wallet.cap.reserve_consolidation(unit("a"))
    assert wallet.cap.reserve_consolidation(unit("b"))
    assert not wallet.cap.reserve_consolidation(unit("c"))
    assert not wallet.cap.is_stuck(()), "one on its way may leave room"
    wallet.pays("a", "0.5")
    assert not wallet.cap.reserve_consolidation(unit("c"))
    wallet.pays("b", "0.5")
    assert not wallet.cap.is_stuck(()), "it asks again, and there is room"
    assert wallet.cap.reserve_consolidation(unit("c"))
    assert not wallet.cap.is_stuck(())


def test_where_nothing_is_on_its_way_and_one_is_refused_only_a_higher_cap_helps() -> None:
    wallet = Wallet(1)
    assert wallet.cap.reserve_consolidation(unit("a"))
    assert not wallet.cap.reserve_consolidation(unit("b"))
    wallet.pays("a", "1")
    assert wallet.cap.is_stuck(())
    assert not wallet.cap.is_stuck([window(1, 1)])


def test_asked_again_it_is_kept_back_once() -> None:
    wallet = Wallet(1)
    assert wallet.cap.reserve_consolidation(unit("a"))
    assert wallet.cap.reserve_consolidation(unit("a", 2))
    assert not Wallet(0).cap.reserve_consolidation(unit("a"))
    assert Wallet(None).cap.reserve_consolidation(unit("a"))


def test_windows_and_consolidations_leave_each_other_their_room() -> None:
    wallet = Wallet(9)
    one = window(1, 1)
    usd = wallet.cap.expected_usd(one)
    assert 0 < usd < 9
    wallet.cap.hold_for_windows([one])
    taken = [wallet.cap.reserve_consolidation(unit(str(number))) for number in range(9)]
    assert sum(taken) == 9 - usd
    assert not wallet.cap.has_room_for(one, [one])


@given(st.integers(0, 12), st.lists(st.tuples(st.integers(0, 5), st.decimals(0, 1, places=2)), max_size=60))
def test_no_order_of_consolidations_passes_the_cap(cap: int, steps: list[tuple[int, Decimal]]) -> None:
    """Where each costs what it was expected to cost, at most."""
    wallet = Wallet(cap)
    under_way: dict[int, Decimal] = {}
    for scope, usd in steps:
        if scope in under_way:
            wallet.pays(str(scope), str(under_way.pop(scope)))
        elif wallet.cap.reserve_consolidation(unit(str(scope))):
            under_way[scope] = usd
        assert wallet.spent + sum(under_way.values()) <= cap
    for scope, usd in under_way.items():
        wallet.pays(str(scope), str(usd))
    assert wallet.spent <= cap


class Kept:
    """A store with one answer."""

    def __init__(self, *units: str) -> None:
        self.units = units

    async def of_unit(self, unit: str, answer_id: str | None = None) -> Mapping[str, Any]:
        del answer_id
        return {"kept": object()} if unit in self.units else {}

    async def find(self, ids: Iterable[str]) -> Mapping[str, Answer]:
        del ids
        return {}

    async def of_call(self, call_id: str) -> Answer | None:
        del call_id
        return None

    async def keep(self, answer: Answer) -> Answer:
        return answer

    async def keep_all(self, answers: Sequence[Answer]) -> list[Answer]:
        return list(answers)

    async def judged_invalid(self, answer_id: str, reason: str) -> None:
        del answer_id, reason


async def test_only_what_would_be_paid_for_needs_room() -> None:
    asked = list[str]()

    def none_left(unit: str) -> bool:
        asked.append(unit)
        return False

    store = Capped(Kept("trial/consolidation:b@1:1"), "trial/consolidation:", none_left)
    await store.of_unit("trial/fact-extraction:w", "id")
    await store.of_unit("trial/consolidation:b@1:1", "id")
    await store.of_unit("trial/consolidation:a@1:1")
    assert asked == []
    with pytest.raises(CapReached, match="no room"):
        await store.of_unit("trial/consolidation:a@1:1", "id")
    assert asked == ["a@1:1"]


@pytest.mark.parametrize("at_once", [1, 3])
async def test_a_reform_ends_at_the_cap_though_what_is_left_never_gets_quiet(
    at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("eden_memory.replay.reform.feeding.LOOK_SECONDS", 0)
    servers, never = Servers(slow=1), asyncio.Event()
    work = feeding(servers, at_once, Decimal(1))
    windows: list[PlannedWindow] = [window(session, 1, session) for session in range(2)]

    async def quiet() -> None:
        if servers.published:
            work.cap.limit = Decimal(0)
            assert not work.cap.reserve_consolidation("a@1:1")
            await never.wait()

    work.settled = quiet
    await work.know(requests(windows), {})
    formed = await work.run()
    assert formed == (at_once > 1)
    assert not await work.quiet()
