"""A question to a model: kept, judged, repaired, replayed, bounded, accounted for."""

import asyncio
import json
from dataclasses import replace
from typing import Any

import pytest

from eden_memory.errors import PermanentError, ProviderError, QuestionSpent, UnreadableAnswers
from eden_memory.models import judging
from eden_memory.models.asking_model import AskingModel
from eden_memory.models.judging import TRUNCATED, complete_items
from eden_memory.models.provider_calls import CallFailed, PromptTurn
from eden_memory.models.question import unit_of
from eden_memory.schemas.answers import ConsolidatedText, ExtractedFacts, StatedFact
from eden_memory.schemas.events import ModelCalled
from eden_memory.stages.handler_run import RUN
from tests.unit.model_calls.model_fakes import (
    GOOD,
    PROMPT,
    FakeChat,
    MemoryAnswers,
    asking,
    completion,
    model_over,
)

DOWN = CallFailed("provider_error", "503")
OTHER = PROMPT.__class__(PROMPT.name, PROMPT.system, "the blob, read later", PROMPT.material)


def no_shortcoming(_: ConsolidatedText) -> str | None:
    """With a check, an answer is stored before it is given, also to a handler."""
    return None


async def ask(model: AskingModel, **fields: Any) -> str:
    return (await model.ask(PROMPT, ConsolidatedText, asking(**fields), no_shortcoming)).value.text


async def test_an_answer_comes_with_the_call_that_was_paid(noted: list[ModelCalled]) -> None:
    answers = MemoryAnswers()
    answered = await model_over(FakeChat([GOOD]), answers).ask(PROMPT, ConsolidatedText, asking())
    assert answered.call is not None
    assert (answered.value.text, answered.call.prompt, str(answered.call.cost_usd)) == (
        "all of it",
        "consolidation/1",
        "0.000110000000",
    )
    (call,) = noted
    assert (call.call_id, call.outcome, call.input_tokens) == (answered.call.call_id, "answered", 100)
    assert (call.provider, call.model, call.response_model) == ("test", "test-1", "test-1-2026")


async def test_a_redelivery_after_a_crash_pays_for_nothing_though_its_prompt_reads_otherwise(
    noted: list[ModelCalled],
) -> None:
    answers = MemoryAnswers()
    first = model_over(FakeChat([GOOD]), answers)
    paid = await first.ask(PROMPT, ConsolidatedText, asking(shown=("f1",)), no_shortcoming)
    provider = FakeChat([DOWN])
    model = model_over(provider, answers)
    earlier = await model.earlier("consolidation:e1")
    assert earlier is not None
    assert (earlier.shown, earlier.exhausted) == (("f1",), False)
    again = await model.ask(OTHER, ConsolidatedText, asking(shown=("f1",)))
    assert (again.value, again.call) == (paid.value, paid.call)
    assert provider.asked == []
    assert noted[0] == noted[1]


async def test_what_was_shown_otherwise_is_not_mapped_onto_an_answer_that_arrived_meanwhile() -> None:
    answers = MemoryAnswers()
    await model_over(FakeChat([GOOD]), answers).ask(PROMPT, ConsolidatedText, asking(shown=("f1", "f2")))
    with pytest.raises(ProviderError, match="arrived meanwhile"):
        await model_over(FakeChat([GOOD]), answers).ask(OTHER, ConsolidatedText, asking(shown=("f2", "f1")))


async def test_the_same_prompt_of_another_unit_reuses_the_answer_and_is_not_paid_or_counted_again(
    noted: list[ModelCalled],
) -> None:
    answers, provider = MemoryAnswers(), FakeChat([GOOD])
    await ask(model_over(provider, answers))
    await ask(model_over(provider, answers, namespace="shadow"), unit="consolidation:e2")
    assert (len(provider.asked), len(noted)) == (1, 1)


async def test_a_shadow_namespace_does_not_take_what_arrived_for_the_same_unit_under_another_prompt() -> None:
    answers, provider = MemoryAnswers(), FakeChat([GOOD])
    await ask(model_over(provider, answers))
    shadow = model_over(provider, answers, namespace="shadow")
    assert await shadow.earlier("consolidation:e1") is None
    await shadow.ask(OTHER, ConsolidatedText, asking())
    assert len(provider.asked) == 2


async def test_a_dead_letter_sent_again_asks_anew() -> None:
    answers, provider = MemoryAnswers(), FakeChat([GOOD, '{"text": "anew"}'])
    await ask(model_over(provider, answers))
    unit = unit_of("consolidation", "e1", 1)
    assert await model_over(provider, answers).earlier(unit) is None
    assert await ask(model_over(provider, answers), unit=unit, anew=1) == "anew"


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ("no JSON at all", "not a valid answer"),
        ('{"texts": "x"}', "text: Field required"),
        ('{"text": 5}', "text: Input should be a valid string"),
        ("", "empty"),
        (completion("I cannot help with that.", "refused"), "no answer"),
        (completion('{"text": "half of', "truncated"), "cut off"),
    ],
)
async def test_an_invalid_answer_is_repaired_with_what_was_wrong_with_it(
    wrong: Any, told: str, noted: list[ModelCalled]
) -> None:
    provider = FakeChat([wrong, GOOD])
    assert await ask(model_over(provider, MemoryAnswers())) == "all of it"
    first, said, why = provider.asked[1]
    assert (first, said.role, why.role) == (PromptTurn("user", PROMPT.user), "assistant", "user")
    assert told in why.text
    assert said.text.strip()
    assert [(call.repair, call.outcome == "answered") for call in noted] == [(0, False), (1, True)]


async def test_a_truncated_answer_is_not_taken_though_it_happens_to_parse(noted: list[ModelCalled]) -> None:
    provider = FakeChat([completion(GOOD, "truncated"), '{"text": "whole"}'])
    assert await ask(model_over(provider, MemoryAnswers())) == "whole"
    assert [call.outcome for call in noted] == ["truncated", "answered"]


async def test_json_in_a_code_fence_is_an_answer() -> None:
    provider = FakeChat([f"Sure:\n```json\n{GOOD}\n```\nAnything else?"])
    assert await ask(model_over(provider, MemoryAnswers())) == "all of it"


async def test_what_is_always_invalid_ends_after_two_repairs_for_every_process() -> None:
    answers, provider = MemoryAnswers(), unreadable_for(PROMPT.user)
    model = model_over(provider, answers)
    provider.before = lambda: others_are_answered(model, provider)
    for _ in range(2):
        with pytest.raises(UnreadableAnswers, match="none of them valid") as raised:
            await ask(model, session_id="s.1")
        assert raised.value.session == "s.1"
    after_a_crash = model_over(provider, answers)
    with pytest.raises(PermanentError):
        await ask(after_a_crash)
    earlier = await after_a_crash.earlier("consolidation:e1")
    assert earlier is not None
    assert earlier.exhausted
    assert sum(turns[0].text == PROMPT.user for turns in provider.asked) == 3
    assert all(one.invalid for one in answers.kept.values() if one.unit == "consolidation:e1")


def unreadable_for(*users: str) -> FakeChat:
    """Answers these prompts with what nobody can read, and every other one well."""
    return FakeChat(lambda turns: "<html>Bad gateway</html>" if turns[0].text in users else GOOD)


async def others_are_answered(model: AskingModel, provider: FakeChat) -> None:
    """Once, beside the first question."""
    provider.before = None
    await another_is_answered(model, 1)


async def test_one_question_without_readable_answers_waits_unpaid_until_others_are_answered() -> None:
    provider = unreadable_for(PROMPT.user)
    model = model_over(provider, MemoryAnswers())
    for _ in range(8):
        with pytest.raises(ProviderError) as raised:
            await ask(model, session_id="s.1")
        assert (raised.value.counts, raised.value.alone, raised.value.session) == (True, True, "s.1")
    assert len(provider.asked) == 3, "waiting costs nothing"
    await another_is_answered(model, 1)
    provider.says = [GOOD]
    assert await ask(model, session_id="s.1") == "all of it"
    assert len(provider.asked) == 5
    assert len(provider.asked[-1]) == 1, "asked anew, without what could not be read"


async def test_a_question_set_aside_is_given_up_if_others_were_answered_and_it_still_cannot_be_read() -> None:
    provider = unreadable_for(PROMPT.user)
    model = model_over(provider, MemoryAnswers())
    with pytest.raises(ProviderError):
        await ask(model, session_id="s.1")
    await another_is_answered(model, 1)
    with pytest.raises(UnreadableAnswers):
        await ask(model, session_id="s.1")
    assert len(provider.asked) == 3 + 1 + 3


async def unanswered(model: AskingModel, number: int, **more: str) -> ProviderError:
    """Why a question of another session has no answer."""
    fields = {"cause": f"e{number}", "session_id": f"s.{number}", **more}
    with pytest.raises(ProviderError) as raised:
        await ask_of(model, number, **fields)
    return raised.value


async def ask_of(model: AskingModel, number: int, **fields: str) -> str:
    prompt = replace(PROMPT, user=f"blob {number}")
    asked = asking(f"consolidation:e{number}", **fields)
    return (await model.ask(prompt, ConsolidatedText, asked, no_shortcoming)).value.text


@pytest.mark.parametrize("said", ["<html>Bad gateway</html>", "", '{"memories": []}'])
async def test_several_sessions_in_a_row_without_readable_answers_are_an_outage(
    said: str, noted: list[ModelCalled], monkeypatch: pytest.MonkeyPatch
) -> None:
    answers, provider, now = MemoryAnswers(), FakeChat([said]), 0.0
    monkeypatch.setattr(judging, "monotonic", lambda: now)
    model = model_over(provider, answers)
    first = [await unanswered(model, number) for number in (1, 1, 2, 3)]
    assert [(one.counts, one.alone) for one in first] == [(True, True)] * 3 + [(False, False)]
    assert "several sessions in a row cannot be read" in str(first[-1])
    assert len(provider.asked) == 9
    for _ in range(20):
        assert not (await unanswered(model, 1)).counts
        assert not (await unanswered(model, 4)).counts
    assert len(provider.asked) == 10, "one probe, and no repair of it"
    stored = len(answers.kept)
    now += 40.0
    await unanswered(model, 5)
    assert (len(provider.asked), len(answers.kept)) == (11, stored)
    assert len({one.call_id for one in noted if one.outcome == "invalid"}) == 11, "each call is counted"
    now += 40.0
    provider.says = [GOOD]
    for number in (2, 1, 3, 4):
        assert await ask_of(model, number, session_id=f"s.{number}") == "all of it"


async def test_sessions_of_one_user_are_no_outage_while_the_answers_to_others_can_be_read() -> None:
    provider = FakeChat([GOOD])
    model = model_over(provider, MemoryAnswers())
    await ask_of(model, 9, user_id="u.ana", session_id="s.9")
    provider.says = ["I would rather answer in prose."]
    for _ in range(3):
        for number in range(5):
            error = await unanswered(model, number, user_id="u.ben")
            assert (error.counts, error.alone) == (True, True), "it is given up after all its attempts"
    assert len(provider.asked) == 1 + 5 * 3, "waiting costs nothing"


async def test_an_outage_is_found_by_the_sessions_of_the_only_user() -> None:
    provider = FakeChat([GOOD])
    model = model_over(provider, MemoryAnswers())
    await ask_of(model, 9, user_id="u.ana", session_id="s.9")
    provider.says = ["<html>Bad gateway</html>"]
    errors = [await unanswered(model, number, user_id="u.ana") for number in range(3)]
    assert [(error.counts, error.alone) for error in errors] == [(True, True)] * 2 + [(False, False)]


async def test_what_was_set_aside_is_asked_anew_after_a_restart_with_another_model() -> None:
    answers = MemoryAnswers()
    wrong = model_over(FakeChat(["nonsense"]), answers)
    for number in range(4):
        await unanswered(wrong, number)
    provider = FakeChat([GOOD])
    mended = model_over(provider, answers)
    earlier = await mended.earlier("consolidation:e0")
    assert earlier is not None
    assert not earlier.exhausted
    for number in range(4):
        assert await ask_of(mended, number, session_id=f"s.{number}") == "all of it"
    assert len(provider.asked) == 4


async def test_bad_answers_to_one_session_are_no_outage() -> None:
    provider = FakeChat(["nonsense"])
    model = model_over(provider, MemoryAnswers())
    for number in range(5):
        with pytest.raises(ProviderError) as raised:
            await ask_of(model, number, session_id="s.1")
        assert (raised.value.counts, raised.value.alone) == (True, True)


async def test_what_is_always_cut_off_ends_after_six_calls() -> None:
    answers, provider = MemoryAnswers(), FakeChat([completion('{"text": "', "truncated")])
    with pytest.raises(PermanentError):
        await ask(model_over(provider, answers))
    assert len(provider.asked) == 6
    earlier = await model_over(provider, answers).earlier("consolidation:e1")
    assert earlier is not None
    assert earlier.exhausted


async def test_a_crash_in_the_middle_of_repairs_repeats_no_call(noted: list[ModelCalled]) -> None:
    answers = MemoryAnswers()
    with pytest.raises(CallFailed):
        await ask(model_over(FakeChat(["nonsense", DOWN]), answers))
    provider = FakeChat([GOOD])
    model = model_over(provider, answers)
    assert (await model.ask(OTHER, ConsolidatedText, asking())).value.text == "all of it"
    assert len(provider.asked) == 1
    assert provider.asked[0][1].text == "nonsense"
    assert [call.outcome for call in noted] == ["invalid", "provider_error", "invalid", "answered"]
    assert noted[0].call_id == noted[2].call_id


async def test_a_shortcoming_is_named_once_and_the_next_answer_is_taken_as_it_is() -> None:
    answers, provider = MemoryAnswers(), FakeChat([GOOD, '{"text": "still long"}'])
    model = model_over(provider, answers)
    answered = await model.ask(PROMPT, ConsolidatedText, asking(), lambda _: "too long")
    assert answered.value.text == "still long"
    assert "too long" in provider.asked[1][2].text
    again = await model_over(provider, answers).ask(OTHER, ConsolidatedText, asking(), lambda _: "too long")
    assert (again, len(provider.asked)) == (answered, 2)


async def test_an_answer_with_a_shortcoming_is_better_than_an_invalid_one_after_it() -> None:
    provider = FakeChat([GOOD, "nonsense"])
    answered = await model_over(provider, MemoryAnswers()).ask(
        PROMPT, ConsolidatedText, asking(), lambda _: "too long"
    )
    assert (answered.value.text, len(provider.asked)) == ("all of it", 2)


async def test_the_answer_that_another_process_kept_first_is_used_and_both_calls_are_counted(
    noted: list[ModelCalled],
) -> None:
    answers = MemoryAnswers()

    async def other_process() -> None:
        token = RUN.set(None)
        await ask(model_over(FakeChat(['{"text": "first"}']), answers))
        RUN.reset(token)

    provider = FakeChat([GOOD], before=other_process)
    assert await ask(model_over(provider, answers)) == "first"
    assert len({call.call_id for call in noted}) == 2


def fails_for(error: CallFailed) -> FakeChat:
    """Fails for the prompt, and answers every other one."""
    return FakeChat(lambda turns: error if turns[0].text == PROMPT.user else GOOD)


async def another_is_answered(model: AskingModel, number: int) -> None:
    """A question of another unit of the stage."""
    prompt = replace(PROMPT, user=f"another blob, number {number}")
    await model.ask(prompt, ConsolidatedText, asking(f"consolidation:other{number}", cause="other"))


async def test_calls_that_bring_nothing_are_noted_and_charged(noted: list[ModelCalled]) -> None:
    provider = fails_for(DOWN)
    model = model_over(provider, MemoryAnswers())
    for n in range(6):
        await another_is_answered(model, n)
        with pytest.raises(CallFailed):
            await ask(model)
        await another_is_answered(model, 10 + n)
    with pytest.raises(CallFailed):
        await ask(model)
    with pytest.raises(QuestionSpent, match="6 calls"):
        await ask(model)
    assert sum(turns[0].text == PROMPT.user for turns in provider.asked) == 7, "the first says nothing"
    own = [call for call in noted if call.cause == "e1"][:6]
    assert len({call.call_id for call in own}) == 6
    assert {(call.outcome, call.agent_id) for call in own} == {("provider_error", "s.a")}


async def test_rate_limits_do_not_use_up_the_calls_of_a_question() -> None:
    busy = CallFailed("rate_limited", "429")
    provider = FakeChat([busy, "x", busy, busy, DOWN, busy, "x", GOOD])
    model = model_over(provider, MemoryAnswers())
    for _ in range(5):
        with pytest.raises(CallFailed):
            await ask(model)
    assert await ask(model) == "all of it"


async def test_what_is_always_refused_for_its_rate_ends_once_others_are_answered() -> None:
    provider = fails_for(CallFailed("rate_limited", "429"))
    model = model_over(provider, MemoryAnswers())
    for n in range(7):
        with pytest.raises(CallFailed) as raised:
            await ask(model)
        assert not raised.value.counts
        await another_is_answered(model, n)
    with pytest.raises(QuestionSpent):
        await ask(model)


@pytest.mark.parametrize("error", [DOWN, CallFailed("rate_limited", "429")])
async def test_what_fails_while_nothing_else_succeeds_is_never_given_up(error: CallFailed) -> None:
    provider = fails_for(error)
    model = model_over(provider, MemoryAnswers())
    for _ in range(20):
        with pytest.raises(CallFailed):
            await ask(model)
    provider.says = [GOOD]
    assert await ask(model) == "all of it"


async def test_what_the_provider_refuses_is_asked_once_in_a_process() -> None:
    provider = FakeChat([PermanentError("400: too long")])
    model = model_over(provider, MemoryAnswers())
    with pytest.raises(PermanentError, match="too long"):
        await ask(model)
    with pytest.raises(QuestionSpent, match="too long"):
        await ask(model)
    assert len(provider.asked) == 1


async def test_a_call_that_takes_too_long_is_cut_off_and_noted(noted: list[ModelCalled]) -> None:
    provider = FakeChat([GOOD], before=asyncio.Event().wait)  # pyright: ignore[reportArgumentType]
    with pytest.raises(CallFailed) as raised:
        await ask(model_over(provider, MemoryAnswers(), seconds=0.02))
    assert raised.value.outcome == "timed_out"
    assert [call.outcome for call in noted] == ["timed_out"]


async def test_a_cancelled_call_is_noted(noted: list[ModelCalled]) -> None:
    begun = asyncio.Event()

    async def never() -> None:
        begun.set()
        await asyncio.Event().wait()

    task = asyncio.create_task(ask(model_over(FakeChat([GOOD], before=never), MemoryAnswers())))
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert [call.outcome for call in noted] == ["cancelled"]


async def test_usage_records_quote_neither_prompt_nor_answer(noted: list[ModelCalled]) -> None:
    errors = CallFailed("provider_error", f"400: cannot read {PROMPT.user!r}")
    provider = FakeChat(["secret nonsense", errors])
    with pytest.raises(CallFailed):
        await ask(model_over(provider, MemoryAnswers()))
    text = "".join(call.model_dump_json() for call in noted)
    assert len(noted) == 2
    assert "secret" not in text
    assert PROMPT.user not in text


CUT = '{"facts": [' + '{"text": "a", "scope": "user", "messages": [1]}, ' * 3 + '{"text": "b'
FACT = StatedFact(text="a", scope="user", messages=[1], occurred_at=None, about="person", sensitive=True)


async def test_of_a_list_that_is_cut_off_twice_the_complete_items_are_taken(noted: list[ModelCalled]) -> None:
    answers, part = MemoryAnswers(), replace(PROMPT, takes_part=True)
    provider = FakeChat([completion(CUT, "truncated"), completion(CUT, "truncated")])
    answered = await model_over(provider, answers).ask(part, ExtractedFacts, asking(), lambda _: None)
    assert answered.value.facts == [FACT], "each once"
    assert [(call.outcome, call.items) for call in noted] == [("truncated", 0), ("truncated", 1)]
    again = await model_over(FakeChat([DOWN]), answers).ask(part, ExtractedFacts, asking())
    assert again == answered, "nothing is paid for after a crash"


async def test_an_item_whose_numbers_never_end_is_complete_but_for_these() -> None:
    numbers = ", ".join(map(str, range(1, 114)))
    cut = f'{CUT}", "scope": "user", "messages": [{numbers}'
    provider, part = FakeChat([completion(cut, "truncated")]), replace(PROMPT, takes_part=True)
    answered = await model_over(provider, MemoryAnswers()).ask(part, ExtractedFacts, asking())
    assert [fact.text for fact in answered.value.facts] == ["a", "b"]
    assert len(provider.asked) == 2


@pytest.mark.parametrize("opened", ["<think>", "\n<Thinking>The form is ", "<think>a</think>\n<think>"])
async def test_items_of_a_thought_that_was_cut_off_are_no_answer(opened: str) -> None:
    provider = FakeChat([completion(opened + CUT, "truncated")] * 2 + ['{"facts": []}'])
    part = replace(PROMPT, takes_part=True)
    answered = await model_over(provider, MemoryAnswers()).ask(part, ExtractedFacts, asking())
    assert answered.value.facts == []
    thought = completion(f"<think>{CUT}</think>{CUT}", "truncated")
    answered = await model_over(FakeChat([thought]), MemoryAnswers()).ask(part, ExtractedFacts, asking())
    assert answered.value.facts == [FACT]


async def test_of_a_cut_list_one_bad_item_is_left_out() -> None:
    cut = CUT.replace('"a"', "5", 1).replace('"text": "a"', '"text": "C:\\a\\q"', 1)
    found = complete_items(cut, ExtractedFacts)
    assert isinstance(found, tuple)
    assert ([fact.text for fact in found[0].facts], found[1]) == (["C:\\a\\q", "a"], 1)


async def test_an_answer_that_repeats_itself_holds_each_item_once_in_order() -> None:
    said = {"facts": [{**FACT.model_dump(), "text": text} for text in "abacba"]}
    answered = await model_over(FakeChat([json.dumps(said)]), MemoryAnswers()).ask(
        PROMPT, ExtractedFacts, asking()
    )
    assert [fact.text for fact in answered.value.facts] == ["a", "b", "c"]


async def test_no_part_is_taken_where_a_prompt_does_not_say_so() -> None:
    provider = FakeChat([completion(CUT, "truncated")] * 2 + ['{"facts": []}'])
    answered = await model_over(provider, MemoryAnswers()).ask(PROMPT, ExtractedFacts, asking())
    assert answered.value.facts == []


@pytest.mark.parametrize(
    "cut", ["", "no JSON", '{"facts": [{"text": "a', '{"facts": 3', "[1, 2", '{"facts": [{"text": 1}, {']
)
def test_an_answer_without_a_complete_item_stays_cut_off(cut: str) -> None:
    assert complete_items(cut, ExtractedFacts) == TRUNCATED
