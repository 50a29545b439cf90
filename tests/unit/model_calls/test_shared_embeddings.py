"""Embedding calls: shared by requests of the same moment, kept by text, paid for once."""

import asyncio
from collections.abc import Sequence
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eden_memory.errors import PermanentError
from eden_memory.models.cached_embedders import KeptEmbedder
from eden_memory.models.call_accounts import CENTS, shared, shared_cost
from eden_memory.models.provider_calls import CallFailed, Tokens
from eden_memory.schemas.events import ModelCalled
from eden_memory.schemas.fields import unpack_vector
from eden_memory.schemas.provenance import Embedding
from eden_memory.stages.handler_run import HandlerRun
from tests.unit.model_calls.model_fakes import FakeVectors, MemoryAnswers, asking, embedder_over


async def handled(
    embedder: KeptEmbedder, unit: str, texts: Sequence[str]
) -> tuple[Sequence[Embedding] | BaseException, list[ModelCalled]]:
    """What one handler gets, and the calls noted for it."""
    run = HandlerRun()
    try:
        async with run:
            return await embedder.embed(texts, asking(unit, agent_id=f"s.{unit}")), run.calls
    except (CallFailed, PermanentError) as error:
        return error, run.calls


async def test_requests_of_one_moment_share_a_call_and_its_bill() -> None:
    provider = FakeVectors()
    embedder = embedder_over(provider, MemoryAnswers())
    ends = await asyncio.gather(
        *(handled(embedder, f"u{n}", ["x" * (n + 1), "y" * (n + 3)]) for n in range(5))
    )
    assert len(provider.calls) == 1
    noted = [call for _, calls in ends for call in calls]
    assert [call.agent_id for call in noted] == [f"s.u{n}" for n in range(5)]
    assert sum(call.input_tokens for call in noted) == sum(len(text) for text in provider.calls[0])
    assert sum(call.cost_usd or 0 for call in noted) == Decimal(40) / 1_000_000
    assert sum(call.items for call in noted) == 10


async def test_vectors_come_in_order_and_have_length_one() -> None:
    embedder = embedder_over(FakeVectors(), MemoryAnswers())
    found = await embedder.embed(["xxx", "x", "xxx"])
    numbers = [list(unpack_vector(one.vector)) for one in found]
    assert numbers[0] == numbers[2]
    assert numbers[0] == pytest.approx([3 / 10**0.5, 1 / 10**0.5])
    assert numbers[1] == pytest.approx([0.5**0.5, 0.5**0.5])


async def test_a_text_embedded_before_is_found_and_a_crash_notes_the_same_share_again() -> None:
    answers, provider = MemoryAnswers(), FakeVectors()
    first, paid = await handled(embedder_over(provider, answers), "u1", ["one", "three"])
    again, noted = await handled(embedder_over(provider, answers), "u1", ["one", "three"])
    other, nothing = await handled(embedder_over(provider, answers), "u2", ["three"])
    assert len(provider.calls) == 1
    assert (again, noted) == (first, paid)
    assert isinstance(first, Sequence)
    assert isinstance(other, Sequence)
    assert (other[0], nothing) == (first[1], [])
    assert first[0].call_id == paid[0].call_id


async def test_the_same_text_of_two_requests_is_paid_for_once() -> None:
    provider = FakeVectors()
    embedder = embedder_over(provider, MemoryAnswers())
    ends = await asyncio.gather(*(handled(embedder, f"u{n}", ["same"]) for n in range(3)))
    assert provider.calls == [("same",)]
    assert [len(calls) for _, calls in ends] == [1, 0, 0]
    assert len({repr(found) for found, _ in ends}) == 1


async def test_many_texts_go_in_calls_of_bounded_size() -> None:
    provider = FakeVectors()
    found = await embedder_over(provider, MemoryAnswers()).embed([f"text {n}" for n in range(600)])
    assert [len(call) for call in provider.calls] == [256, 256, 88]
    assert len(found) == 600


async def test_a_text_that_is_refused_takes_no_other_request_down() -> None:
    def wrong(texts: Sequence[str]) -> BaseException | None:
        return PermanentError("400") if "bad" in texts else None

    embedder = embedder_over(FakeVectors(wrong), MemoryAnswers())
    ends = await asyncio.gather(*(handled(embedder, text, [text]) for text in ("good", "bad", "fine")))
    assert [isinstance(found, PermanentError) for found, _ in ends] == [False, True, False]


async def test_a_text_that_always_fails_ends_alone_after_six_calls_beside_successes_and_others_go_on() -> (
    None
):
    def wrong(texts: Sequence[str]) -> BaseException | None:
        return CallFailed("provider_error", "500") if "bad" in texts else None

    provider = FakeVectors(wrong)
    embedder = embedder_over(provider, MemoryAnswers())
    waiting = {"bad", *(f"good{n}" for n in range(5))}
    dead: list[str] = []
    for number in range(10):
        units = sorted(waiting)
        if number > 1:  # others come and are answered
            await handled(embedder, f"later{number}", [f"later{number}"])
        ends = await asyncio.gather(*(handled(embedder, unit, [unit]) for unit in units))
        for unit, (found, _) in zip(units, ends, strict=True):
            if not isinstance(found, CallFailed):
                waiting.discard(unit)
            if isinstance(found, PermanentError):
                dead.append(unit)
    assert (waiting, dead) == (set(), ["bad"])
    assert sum("bad" in call for call in provider.calls) <= 6 + 2, (
        "no other had succeeded before the first two"
    )


async def test_a_failed_call_is_noted_once_among_those_who_share_it() -> None:
    embedder = embedder_over(FakeVectors(lambda _: CallFailed("provider_error", "500")), MemoryAnswers())
    ends = await asyncio.gather(*(handled(embedder, f"u{n}", [f"t{n}"]) for n in range(2)))
    assert [len(calls) for _, calls in ends] == [1, 0]
    assert ends[0][1][0].outcome == "provider_error"


async def test_a_request_that_is_cancelled_leaves_the_others_their_answer() -> None:
    begun, go = asyncio.Event(), asyncio.Event()

    async def before() -> None:
        begun.set()
        await go.wait()

    embedder = embedder_over(FakeVectors(before=before), MemoryAnswers())
    first = asyncio.create_task(handled(embedder, "u1", ["one"]))
    second = asyncio.create_task(handled(embedder, "u2", ["two"]))
    await begun.wait()
    first.cancel()
    go.set()
    found, calls = await second
    assert isinstance(found, Sequence)
    assert len(calls) == 1


class Nothing(FakeVectors):
    """Vectors without length for texts that begin with `bad`."""

    async def embed(self, model: str, texts: Sequence[str]) -> tuple[list[list[float]], Tokens]:
        vectors, tokens = await super().embed(model, texts)
        found = zip(texts, vectors, strict=True)
        return [[0.0, 0.0] if text.startswith("bad") else one for text, one in found], tokens


async def test_a_vector_of_no_length_is_no_answer_and_paid_for_all_the_same() -> None:
    found, calls = await handled(embedder_over(Nothing(), MemoryAnswers()), "u1", ["bad"])
    assert isinstance(found, CallFailed)
    assert [(one.outcome, one.input_tokens, one.cost_usd) for one in calls] == [
        ("invalid", 3, Decimal(3) / 1_000_000)
    ]


async def test_a_text_whose_vector_is_of_no_use_ends_alone_after_six_calls() -> None:
    provider = Nothing()
    embedder = embedder_over(provider, MemoryAnswers())
    first = await asyncio.gather(*(handled(embedder, unit, [unit]) for unit in ("bad", "good")))
    assert all(isinstance(found, CallFailed) for found, _ in first), "they shared a call"
    again = await asyncio.gather(*(handled(embedder, unit, [unit]) for unit in ("bad", "good")))
    assert [isinstance(found, CallFailed) for found, _ in again] == [True, False]
    ends = [(await handled(embedder, "bad", ["bad"]))[0] for _ in range(6)]
    assert isinstance(ends[-1], PermanentError)
    assert sum("bad" in call for call in provider.calls) <= 6 + 2, (
        "no other had succeeded before the first two"
    )


@given(st.integers(0, 10_000), st.lists(st.integers(0, 500), min_size=1, max_size=40))
def test_shares_add_up_to_the_bill(total: int, weights: list[int]) -> None:
    shares = shared(total, weights)
    assert sum(shares) == total
    assert min(shares) >= 0
    cost = Decimal(total) * CENTS * 7
    assert sum(one or 0 for one in shared_cost(cost, weights)) == cost
