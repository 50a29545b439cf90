"""How long a call may take, and how many run at once, at a provider whose speed and size are not known."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eden_memory.formation.prompt_material import (
    ConsolidationMaterial,
    DecisionMaterial,
    FactMaterial,
    NewFact,
    ReflectionMaterial,
    ScopeBrief,
    longest_answer,
)
from eden_memory.models.breaker import LONGEST, Pace
from eden_memory.models.guard import FIRST, Growth, Guard
from eden_memory.models.judging import most_tokens
from eden_memory.models.provider_calls import CallFailed, Completion, Tokens
from eden_memory.models.stored_answers import first_key
from eden_memory.schemas.answers import ConsolidatedText
from tests.unit.model_calls.model_fakes import PROMPT, FakeChat, MemoryAnswers, asking, model_over
from tests.unit.model_calls.test_provider_guard import Provider

FAST, SLOW = 100.0, 5.0
"""Tokens a second."""


def test_a_fast_model_keeps_the_least_deadline() -> None:
    pace = Pace(120.0)
    for _ in range(10):
        pace.answered(300 / FAST, 300)
    assert pace.deadline(4_000) == 120.0


def test_a_slow_model_has_time_for_the_longest_answer_allowed() -> None:
    pace = Pace(120.0, known=False)
    assert pace.deadline(2_000) >= 2_000 / SLOW, "before anything is measured"
    pace.answered(300 / SLOW, 300)
    assert pace.deadline(2_000) >= 2_000 / SLOW
    assert pace.deadline(100) >= 3 * 300 / SLOW, "three times the slowest call seen"


def test_a_call_that_was_late_leaves_the_next_one_twice_the_time_up_to_a_bound() -> None:
    pace = Pace(2.0)
    deadlines = [pace.deadline()]
    for _ in range(8):
        pace.late(deadlines[-1])
        deadlines.append(pace.deadline())
    assert deadlines[:3] == [2.0, 4.0, 8.0]
    assert deadlines[-1] == 2.0 * LONGEST
    pace.answered(0.1, 10)
    assert pace.deadline() == 2.0


@given(st.lists(st.tuples(st.floats(0, 1e4), st.integers(0, 10_000))), st.integers(0, 100_000))
def test_a_deadline_stays_within_its_bounds(answers: list[tuple[float, int]], tokens: int) -> None:
    pace = Pace(1.0, known=False)
    for seconds, written in answers:
        pace.answered(seconds, written)
    assert 1.0 <= pace.deadline(tokens) <= LONGEST


def grown(slots: int, answers: int, most: int = 64) -> list[int]:
    """Limits of an endpoint that makes so many answers at once, each of 100 tokens in a second."""
    growth = Growth(most)
    limits = [growth.limit]
    for _ in range(answers):
        growth.answered("facts", 100, max(1.0, growth.limit / slots))
        limits.append(growth.limit)
    return limits


def test_one_slot_is_not_given_more_for_long() -> None:
    limits = grown(1, 500)
    assert max(limits) <= 2 * FIRST
    assert limits.count(FIRST) > len(limits) / 2


def test_an_endpoint_with_room_is_given_all_of_it() -> None:
    assert grown(1_000, 500)[-1] == 64
    assert 8 <= grown(8, 2_000)[-1] <= 16


def test_short_answers_after_long_ones_do_not_make_an_endpoint_slow() -> None:
    growth = Growth(64)
    for _ in range(10):
        for kind, tokens in (("facts", 800), ("decisions", 20), ("reflections", 150)):
            for _ in range(growth.limit + 4):
                growth.answered(kind, tokens, 1.0)
    assert growth.limit == 64


def test_one_slot_is_not_given_more_for_long_whatever_it_is_asked() -> None:
    growth, limits = Growth(64), list[int]()
    for number in range(600):
        kind, tokens = (("facts", 800), ("decisions", 20), ("reflections", 150))[number % 3]
        growth.answered(kind, tokens, tokens / 100 * growth.limit)
        limits.append(growth.limit)
    assert max(limits) <= 2 * FIRST
    assert limits.count(FIRST) > len(limits) / 2


def test_a_try_ends_when_other_calls_come() -> None:
    growth = Growth(64)
    while growth.limit == FIRST:
        growth.answered("facts", 800, 8.0)
    limits = list[int]()
    for _ in range(500):
        growth.answered("decisions", 20, 0.2 * growth.limit)
        limits.append(growth.limit)
    assert limits.count(FIRST) > len(limits) / 2, "one slot: twice as many calls bring no more decisions"


def test_it_never_leaves_its_bounds() -> None:
    assert set(grown(1_000, 300, most=1)) == {1}
    growth = Growth(64)
    for _ in range(10):
        growth.halve()
    assert growth.limit == 1


async def test_a_ping_that_waits_behind_calls_that_run_does_not_make_the_provider_away(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("eden_memory.models.guard.PING_SECONDS", 0.02)
    guard, goes_on = Guard("test", 64, 5.0), asyncio.Event()

    async def hangs() -> None:
        await asyncio.Event().wait()

    async def slow() -> str:
        await goes_on.wait()
        return "said"

    async def fails() -> str:
        raise CallFailed("timed_out", "no answer")

    breaker = guard.breaker("m", hangs)
    task = asyncio.create_task(guard.run(breaker, "u1", slow))
    await asyncio.sleep(0)
    for _ in range(3):
        with pytest.raises(CallFailed):
            await guard.run(breaker, "u2", fails)
    assert breaker.away is None
    goes_on.set()
    assert await task == "said"
    for _ in range(3):
        with pytest.raises(CallFailed):
            await guard.run(breaker, "u2", fails)
    assert breaker.away is not None, "nothing runs that it could wait for"


async def test_waiting_for_a_turn_is_no_part_of_a_calls_deadline() -> None:
    guard, provider = Guard("test", 1, 0.1), Provider()
    breaker = guard.breaker("m", provider.ping)

    async def call() -> str:
        await asyncio.sleep(0.06)
        return "said"

    assert await asyncio.gather(*(guard.run(breaker, f"u{n}", call) for n in range(5))) == ["said"] * 5


def test_answers_are_bounded_by_the_limits_of_their_prompt() -> None:
    scope = ScopeBrief("user", most=4)
    facts = FactMaterial((), (scope,), 30, 30)
    assert 30 * 30 * 2 < longest_answer(facts) < 8_000
    assert longest_answer(ReflectionMaterial((), (scope, scope), (), 35)) > 8 * 35 * 2
    assert longest_answer(DecisionMaterial((), (NewFact("x", (), ()),) * 10, 30)) > 10 * 30 * 2
    assert longest_answer(ConsolidationMaterial("user", None, (), None, 1_200)) > 1_200 * 3
    longest = longest_answer(facts)
    assert most_tokens(longest, repair=1) == 2 * most_tokens(longest)


async def test_an_answer_cut_off_at_its_bound_is_asked_for_again_with_twice_the_room() -> None:
    good = Completion('{"text": "all of it"}', "complete", Tokens(100, 10))
    provider = FakeChat([Completion("{", "truncated", Tokens(100, 10)), good])
    model = model_over(provider, MemoryAnswers())
    assert (await model.ask(PROMPT, ConsolidatedText, asking())).value.text == "all of it"
    first, second = provider.bounds
    assert second == 2 * first == 2 * most_tokens(PROMPT.answer_tokens)


def test_the_bound_is_no_part_of_what_an_answer_is_kept_under() -> None:
    key = first_key("test-1", PROMPT, ConsolidatedText, parameters={"provider": "test"})
    assert key == "6f920f47c5b243037190dfa80380cb87de5f1df169bcd3260664eb1d5a9811a2"
