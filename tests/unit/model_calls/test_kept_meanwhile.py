"""A handler goes on while its answers are written; nothing is marked, tried again or published before they are."""

import asyncio
from collections.abc import Iterator, Mapping

import pytest

from eden_memory.schemas.answers import ConsolidatedText
from eden_memory.schemas.documents import Answer as KeptAnswer
from eden_memory.schemas.events import ModelCalled
from eden_memory.stages.pending_answers import KEEPING, Keeping, KeptElsewhere
from tests.unit.model_calls.model_fakes import (
    GOOD,
    PROMPT,
    FakeChat,
    FakeVectors,
    MemoryAnswers,
    asking,
    embedder_over,
    model_over,
)


class SlowAnswers(MemoryAnswers):
    """Writes only when it is let."""

    def __init__(self) -> None:
        super().__init__()
        self.let, self.waiting = asyncio.Event(), asyncio.Event()
        self.marked: list[tuple[str, bool]] = []

    async def keep(self, answer: KeptAnswer) -> KeptAnswer:
        self.waiting.set()
        await self.let.wait()
        return await super().keep(answer)

    async def judged_invalid(self, answer_id: str, reason: str) -> None:
        self.marked.append((answer_id, answer_id in self.kept))
        await super().judged_invalid(answer_id, reason)


@pytest.fixture
def keeping() -> Iterator[Keeping]:
    """As a handler has it."""
    made = Keeping()
    token = KEEPING.set(made)
    yield made
    KEEPING.reset(token)


async def test_a_handler_goes_on_while_its_answer_is_written(keeping: Keeping) -> None:
    answers = SlowAnswers()
    answered = await model_over(FakeChat([GOOD]), answers).ask(PROMPT, ConsolidatedText, asking())
    assert answered.value.text == "all of it"
    assert answers.kept == {}
    waiting = asyncio.create_task(keeping.done())
    await asyncio.sleep(0)
    assert not waiting.done()
    answers.let.set()
    assert await waiting == []
    assert len(answers.kept) == 1


async def test_a_handler_goes_on_while_its_vectors_are_written(keeping: Keeping) -> None:
    answers = SlowAnswers()
    embedder = embedder_over(FakeVectors(), answers)
    found = await embedder.embed(["one", "three"], asking())
    assert len(found) == 2
    assert answers.kept == {}
    answers.let.set()
    assert await keeping.done() == []
    assert len(answers.kept) == 2


async def test_outside_of_a_handler_an_answer_is_stored_before_it_is_given() -> None:
    answers = SlowAnswers()
    asked = asyncio.create_task(model_over(FakeChat([GOOD]), answers).ask(PROMPT, ConsolidatedText, asking()))
    await answers.waiting.wait()
    done, _ = await asyncio.wait([asked], timeout=0.05)
    assert not done
    answers.let.set()
    await asked
    assert len(answers.kept) == 1


async def test_an_answer_of_no_use_is_stored_before_it_is_marked_and_asked_anew(keeping: Keeping) -> None:
    answers, provider = SlowAnswers(), FakeChat(["no JSON", GOOD])
    asked = asyncio.create_task(model_over(provider, answers).ask(PROMPT, ConsolidatedText, asking()))
    await answers.waiting.wait()
    await asyncio.wait([asked], timeout=0.05)
    assert len(provider.asked) == 1
    answers.let.set()
    assert (await asked).value.text == "all of it"
    assert [stored for _, stored in answers.marked] == [True]
    assert await keeping.done() == []
    assert len(answers.kept) == 2


async def test_another_workers_good_answer_takes_the_place_of_a_bad_one_and_is_not_marked(
    keeping: Keeping, noted: list[ModelCalled]
) -> None:
    answers = SlowAnswers()
    others = MemoryAnswers()
    theirs = await model_over(FakeChat([GOOD]), others).ask(PROMPT, ConsolidatedText, asking())
    noted.clear()
    provider = FakeChat(["no JSON"])
    asked = asyncio.create_task(model_over(provider, answers).ask(PROMPT, ConsolidatedText, asking()))
    await answers.waiting.wait()
    answers.kept |= others.kept
    answers.let.set()
    assert (await asked).value == theirs.value
    assert answers.marked == []
    assert len(provider.asked) == 1
    assert len(noted) == 2, "the call that was paid here, and the one whose answer is used"
    assert await keeping.done() == []


async def test_what_cannot_be_written_is_told_when_the_handler_has_ended(keeping: Keeping) -> None:
    answers = SlowAnswers()

    async def refused(answer: KeptAnswer) -> KeptAnswer:
        raise ValueError(answer.id)

    answers.keep = refused
    await model_over(FakeChat([GOOD]), answers).ask(PROMPT, ConsolidatedText, asking())
    (error,) = await keeping.done()
    assert isinstance(error, ValueError)


async def test_what_followed_from_an_answer_that_came_second_does_not_count(keeping: Keeping) -> None:
    answers, others = SlowAnswers(), MemoryAnswers()
    await model_over(FakeChat([GOOD]), others).ask(PROMPT, ConsolidatedText, asking())
    assert await keeping.done() == []
    await model_over(FakeChat([GOOD]), answers).ask(PROMPT, ConsolidatedText, asking())
    answers.kept |= others.kept
    answers.let.set()
    (problem,) = await keeping.done()
    assert isinstance(problem, KeptElsewhere)


class CountedAnswers(MemoryAnswers):
    """Counts look-ups."""

    def __init__(self) -> None:
        super().__init__()
        self.looked = 0

    async def of_unit(self, unit: str, answer_id: str | None = None) -> Mapping[str, KeptAnswer]:
        self.looked += 1
        return await super().of_unit(unit, answer_id)


async def test_what_a_handler_has_looked_up_is_not_looked_up_again(keeping: Keeping) -> None:
    answers = CountedAnswers()
    model = model_over(FakeChat([GOOD]), answers)
    assert await model.earlier(asking().unit) is None
    await model.ask(PROMPT, ConsolidatedText, asking())
    assert answers.looked == 1
    await keeping.done()
    assert await model.earlier(asking().unit) is not None
    await model.ask(PROMPT, ConsolidatedText, asking())
    assert answers.looked == 3, "what has arrived is read whole"


async def test_a_second_question_of_the_same_unit_is_looked_up(keeping: Keeping) -> None:
    answers, provider = CountedAnswers(), FakeChat([GOOD])
    model = model_over(provider, answers)
    await model.earlier(asking().unit)
    await model.ask(PROMPT, ConsolidatedText, asking())
    await keeping.done()
    await model.ask(PROMPT, ConsolidatedText, asking())
    assert (answers.looked, len(provider.asked)) == (2, 1)


async def test_another_namespace_looks_for_answers_of_others(keeping: Keeping) -> None:
    answers, provider = CountedAnswers(), FakeChat([GOOD])
    await model_over(provider, answers).ask(PROMPT, ConsolidatedText, asking())
    await keeping.done()
    model = model_over(provider, answers, namespace="trial")
    await model.earlier(asking().unit)
    await model.ask(PROMPT, ConsolidatedText, asking())
    assert len(provider.asked) == 1
