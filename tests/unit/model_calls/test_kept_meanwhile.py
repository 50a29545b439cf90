"""A handler goes on while its answers are written; nothing is marked, tried again or published before they are."""

import asyncio
from collections.abc import Iterator, Mapping

import pytest

from eden_memory.schemas.answers import ConsolidatedText
from eden_memory.schemas.documents import Answer
from eden_memory.schemas.events import ModelCalled
from eden_memory.stages.handler_run import RUN, HandlerRun, KeptElsewhere
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

    async def keep(self, answer: Answer) -> Answer:
        self.waiting.set()
        await self.let.wait()
        return await super().keep(answer)

    async def judged_invalid(self, answer_id: str, reason: str) -> None:
        self.marked.append((answer_id, answer_id in self.kept))
        await super().judged_invalid(answer_id, reason)


@pytest.fixture
def run() -> Iterator[HandlerRun]:
    """As a handler has it."""
    made = HandlerRun()
    token = RUN.set(made)
    yield made
    RUN.reset(token)


async def test_a_handler_goes_on_while_its_answer_is_written(run: HandlerRun) -> None:
    answers = SlowAnswers()
    answered = await model_over(FakeChat([GOOD]), answers).ask(PROMPT, ConsolidatedText, asking())
    assert answered.value.text == "all of it"
    assert answers.kept == {}
    waiting = asyncio.create_task(run.done())
    await asyncio.sleep(0)
    assert not waiting.done()
    answers.let.set()
    assert await waiting == []
    assert len(answers.kept) == 1


async def test_a_handler_goes_on_while_its_vectors_are_written(run: HandlerRun) -> None:
    answers = SlowAnswers()
    embedder = embedder_over(FakeVectors(), answers)
    found = await embedder.embed(["one", "three"], asking())
    assert len(found) == 2
    assert answers.kept == {}
    answers.let.set()
    assert await run.done() == []
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


async def test_an_answer_of_no_use_is_stored_before_it_is_marked_and_asked_anew(run: HandlerRun) -> None:
    answers, provider = SlowAnswers(), FakeChat(["no JSON", GOOD])
    asked = asyncio.create_task(model_over(provider, answers).ask(PROMPT, ConsolidatedText, asking()))
    await answers.waiting.wait()
    await asyncio.wait([asked], timeout=0.05)
    assert len(provider.asked) == 1
    answers.let.set()
    assert (await asked).value.text == "all of it"
    assert [stored for _, stored in answers.marked] == [True]
    assert await run.done() == []
    assert len(answers.kept) == 2


async def test_another_workers_good_answer_takes_the_place_of_a_bad_one_and_is_not_marked(
    run: HandlerRun, noted: list[ModelCalled]
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
    assert await run.done() == []


async def test_what_cannot_be_written_is_told_when_the_handler_has_ended(run: HandlerRun) -> None:
    answers = SlowAnswers()

    async def refused(answer: Answer) -> Answer:
        raise ValueError(answer.id)

    answers.keep = refused
    await model_over(FakeChat([GOOD]), answers).ask(PROMPT, ConsolidatedText, asking())
    (error,) = await run.done()
    assert isinstance(error, ValueError)


async def test_what_followed_from_an_answer_that_came_second_does_not_count(run: HandlerRun) -> None:
    answers, others = SlowAnswers(), MemoryAnswers()
    await model_over(FakeChat([GOOD]), others).ask(PROMPT, ConsolidatedText, asking())
    assert await run.done() == []
    await model_over(FakeChat([GOOD]), answers).ask(PROMPT, ConsolidatedText, asking())
    answers.kept |= others.kept
    answers.let.set()
    (problem,) = await run.done()
    assert isinstance(problem, KeptElsewhere)


class CountedAnswers(MemoryAnswers):
    """Counts look-ups."""

    def __init__(self) -> None:
        super().__init__()
        self.looked = 0

    async def of_unit(self, unit: str, answer_id: str | None = None) -> Mapping[str, Answer]:
        self.looked += 1
        return await super().of_unit(unit, answer_id)


async def test_what_a_handler_has_looked_up_is_not_looked_up_again(run: HandlerRun) -> None:
    answers = CountedAnswers()
    model = model_over(FakeChat([GOOD]), answers)
    assert await model.earlier(asking().unit) is None
    await model.ask(PROMPT, ConsolidatedText, asking())
    assert answers.looked == 1
    await run.done()
    assert await model.earlier(asking().unit) is not None
    await model.ask(PROMPT, ConsolidatedText, asking())
    assert answers.looked == 3, "what has arrived is read whole"


async def test_a_second_question_of_the_same_unit_is_looked_up(run: HandlerRun) -> None:
    answers, provider = CountedAnswers(), FakeChat([GOOD])
    model = model_over(provider, answers)
    await model.earlier(asking().unit)
    await model.ask(PROMPT, ConsolidatedText, asking())
    await run.done()
    await model.ask(PROMPT, ConsolidatedText, asking())
    assert (answers.looked, len(provider.asked)) == (2, 1)


async def test_another_namespace_looks_for_answers_of_others(run: HandlerRun) -> None:
    answers, provider = CountedAnswers(), FakeChat([GOOD])
    await model_over(provider, answers).ask(PROMPT, ConsolidatedText, asking())
    await run.done()
    model = model_over(provider, answers, namespace="trial")
    await model.earlier(asking().unit)
    await model.ask(PROMPT, ConsolidatedText, asking())
    assert len(provider.asked) == 1
