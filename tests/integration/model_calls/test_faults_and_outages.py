"""A stage that asks a model over HTTP, with faults, bad units and outages: nothing lost, nothing paid twice."""

from collections import Counter

import pytest

from tests.integration.model_calls.asking_stage import Kit
from tests.integration.runtime.harness import asked, running, until
from tests.model_server.wire import Embed

pytestmark = pytest.mark.servers
FAULTS = {"truncated": 0.1, "error": 0.1, "rate_limited": 0.1}
UNITS = 150


async def test_with_a_tenth_of_each_fault_nothing_is_lost_and_no_answer_is_paid_twice(kit: Kit) -> None:
    kit.server.change(rates=FAULTS, embedding_rates={"error": 0.1, "rate_limited": 0.1})
    kit.fails_after = frozenset(f"s{number}-0" for number in range(0, UNITS, 3))
    await kit.runtime.put([asked(f"s{number}", 0) for number in range(UNITS)])
    async with running(kit.worker()):
        await until(lambda: _all_settled(kit, UNITS), "all units decided", 90)
    assert await kit.dead() == []
    outcomes = sum(kit.server.tally.outcomes.values(), Counter[str]())
    assert min(outcomes["truncated"], outcomes["error"], outcomes["rate_limited"]) >= UNITS // 20
    assert set(kit.server.tally.counts()["repeated"]) <= _pings(kit)
    assert max(kit.calls.values()) <= 6 + 6  # those refused for their rate are counted by themselves


async def _all_settled(kit: Kit, count: int) -> bool:
    return await kit.decided() + len(await kit.dead()) == count


def _pings(kit: Kit) -> set[str]:
    """Hashes of the smallest questions, the only ones that may be answered twice."""
    chats = {name for name, one in kit.server.tally.prompts.items() if one.kind == "check"}
    return {*chats, Embed("test-vectors", ("ping",), None, "base64").hash()}


@pytest.mark.parametrize(
    ("fault", "most"),
    [("error", 6), ("rate_limited", 6), ("truncated", 6), ("wrong_schema", 3), ("refusal", 3), ("empty", 3)],
)
async def test_a_unit_that_cannot_succeed_ends_as_one_dead_letter_while_others_go_on(
    kit: Kit, fault: str, most: int
) -> None:
    kit.server.change(rules=[{"contains": "note bad", "fault": fault}])
    names = [*(f"s{number}" for number in range(30)), "bad"]
    async with running(kit.worker()):
        await kit.runtime.put([asked(names[0], 0)])
        await until(lambda: _decided(kit, 1), "the form of answers is found out")
        await kit.runtime.put([asked(name, 0) for name in names[1:]])
        await until(lambda: _all_settled(kit, len(names)), "all units settled", 60)
    assert await kit.dead() == ["bad-0"]
    assert kit.calls["bad-0"] == most
    assert {kit.calls[f"s{number}-0"] for number in range(30)} == {1}


@pytest.mark.parametrize("fault", ["error", "truncated", "wrong_schema", "refusal", "empty"])
async def test_alone_on_an_endpoint_not_known_yet_it_ends_within_six_calls(kit: Kit, fault: str) -> None:
    kit.server.change(rules=[{"contains": "note bad", "fault": fault}])
    await kit.runtime.put([asked("bad", 0)])
    async with running(kit.worker()):
        await until(lambda: _all_settled(kit, 1), "settled", 60)
    assert await kit.dead() == ["bad-0"]
    assert kit.calls["bad-0"] <= 6


@pytest.mark.parametrize("units", [1, 2, 40])
async def test_an_outage_dead_letters_nothing_and_ends_by_itself(kit: Kit, units: int) -> None:
    kit.server.change(outage=True)
    others = frozenset(f"idle{number}-0" for number in range(40))
    kit.without_a_model = others  # the stage as a whole succeeds now and then, which hides the outage from it
    await kit.runtime.put([asked(f"s{number}", 0) for number in range(units)])
    async with running(kit.worker()):
        await until(
            lambda: kit.server.tally.outcomes["check"]["overloaded"] >= 1, "asked whether it is there"
        )
        for number in range(40):
            await kit.runtime.put([asked(f"idle{number}", 0)])
            await until(lambda number=number: _decided(kit, number + 1), "others are decided")
        await until(lambda: kit.server.tally.outcomes["check"]["overloaded"] >= 40, "asked again")
        kit.server.change(outage=False)
        await until(lambda: _decided(kit, units + 40), "all decided after the outage", 60)
    assert await kit.dead() == []
    assert max(kit.calls[f"s{number}-0"] for number in range(units)) <= 6


async def _decided(kit: Kit, count: int) -> bool:
    return await kit.decided() >= count
