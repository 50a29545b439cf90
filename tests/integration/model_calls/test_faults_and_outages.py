"""A stage that asks a model over HTTP, with faults, bad units and outages: nothing lost, nothing paid twice."""

from collections import Counter
from collections.abc import Awaitable, Callable
from itertools import count

import pytest

from tests.integration.model_calls.asking_stage import Kit
from tests.integration.stages.harness import asked, running, until
from tests.model_server.wire import Embed

pytestmark = pytest.mark.servers
FAULTS = {"truncated": 0.1, "error": 0.1, "rate_limited": 0.1}
UNITS = 150


@pytest.mark.slow
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
        others = await _others_go_on(kit, lambda: _settled(kit, "bad-0"))
        await until(lambda: _all_settled(kit, len(names) + others), "all units settled", 60)
    assert await kit.dead() == ["bad-0"]
    if fault in SAY_NOTHING_ALONE:
        assert kit.calls["bad-0"] >= most, "what failed while no other succeeded was not counted"
    else:
        assert kit.calls["bad-0"] == most
    assert {kit.calls[f"s{number}-0"] for number in range(30)} == {1}


SAY_NOTHING_ALONE = ("error", "rate_limited")


async def _others_go_on(kit: Kit, over: Callable[[], Awaitable[bool]], name: str = "later") -> int:
    """Questions that are answered, one after the other, until something holds; how many."""
    for number in count():
        if await over():
            return number
        before = await kit.decided()
        await kit.runtime.put([asked(f"{name}{number}", 0)])
        await until(lambda before=before: _decided(kit, before + 1), "another is answered")
    raise AssertionError


async def _settled(kit: Kit, name: str) -> bool:
    return name in await kit.dead()


@pytest.mark.parametrize("fault", SAY_NOTHING_ALONE)
async def test_alone_it_is_not_given_up_for_what_may_be_the_providers_fault(kit: Kit, fault: str) -> None:
    kit.server.change(rules=[{"contains": "note bad", "fault": fault}])
    await kit.runtime.put([asked("bad", 0)])
    async with running(kit.worker()):
        await until(lambda: kit.calls["bad-0"] > 12, "asked more often than a question may cost")
        kit.server.change(rules=[])
        await until(lambda: _all_settled(kit, 1), "settled", 60)
    assert await kit.dead() == []


@pytest.mark.parametrize("fault", ["truncated", "wrong_schema", "refusal", "empty"])
async def test_alone_on_an_endpoint_not_known_yet_it_ends_within_six_calls(kit: Kit, fault: str) -> None:
    kit.server.change(rules=[{"contains": "note bad", "fault": fault}])
    await kit.runtime.put([asked("bad", 0)])
    async with running(kit.worker()):
        await until(lambda: _all_settled(kit, 1), "settled", 60)
    assert await kit.dead() == ["bad-0"]
    assert kit.calls["bad-0"] <= 6


@pytest.mark.parametrize("units", [1, 2, pytest.param(40, marks=pytest.mark.slow)])
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


async def test_a_dead_letter_sent_again_has_all_its_attempts_whatever_it_met_before(kit: Kit) -> None:
    kit.server.change(rules=[{"contains": "note bad", "fault": "error"}])
    async with running(kit.worker()):
        await kit.runtime.put([asked("bad", 0)])
        await _others_go_on(kit, lambda: _letters(kit, 1))
        kit.server.change(outage=True)
        await _send_again(kit)
        pings = kit.server.tally.outcomes["check"]
        await until(lambda: pings["overloaded"] >= 20, "the provider is away for longer than six attempts")
        kit.server.change(outage=False)
        asked_before = kit.calls["bad-0"]
        await _others_go_on(kit, lambda: _letters(kit, 2), "again")
        assert kit.calls["bad-0"] >= asked_before + 6, "what it met in the outage did not count"
        kit.server.change(rules=[{"contains": "note bad", "fault": "error", "times": 5}])
        await _send_again(kit)
        await _others_go_on(kit, lambda: _is_answered(kit, "bad-0"), "once more")
    assert not await _letters(kit, 3)


async def _letters(kit: Kit, count: int) -> bool:
    query = {"dead": {"$exists": True}, "members": {"$regex": "bad-0"}}
    return await kit.runtime.database["memory_outcomes"].count_documents(query) >= count


async def _is_answered(kit: Kit, name: str) -> bool:
    query = {"kinds": "Answered", "members": {"$regex": f"{name}#"}}
    return await kit.runtime.database["memory_outcomes"].count_documents(query) > 0


async def _send_again(kit: Kit) -> None:
    """`eden dead retry`."""
    (letter,) = await kit.runtime.dead(1)
    await until(lambda: kit.runtime.letters.ask(letter), "it is asked for")
    await kit.runtime.controls.tell()


async def _decided(kit: Kit, count: int) -> bool:
    return await kit.decided() >= count
