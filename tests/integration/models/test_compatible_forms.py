"""What a compatible endpoint can be held to is found out once for each model."""

import time
from contextlib import suppress

import pytest

from eden_memory.errors import PermanentError
from eden_memory.models.openai import CompatibleChat
from eden_memory.models.provider_calls import CallFailed, PromptTurn
from eden_memory.schemas.answers import ConsolidatedText, ExtractedFacts
from eden_memory.schemas.events import ModelCalled
from eden_memory.stages.handler_run import HandlerRun
from tests.integration.models.conftest import chat_of
from tests.model_server.script import Asked, Fault, Said, Script, default_script
from tests.model_server.serving import Serving
from tests.unit.model_calls.model_fakes import PROMPT, MemoryAnswers, asking, model_over

TURNS = (PromptTurn("user", "[1] 10:00 Ann: MARK-1 it is"),)


@pytest.fixture
def kind() -> str:
    return "compatible"


async def ask(chat: CompatibleChat, model: str = "m-1") -> ExtractedFacts:
    found = await chat.complete(model, "- user: life", TURNS, ExtractedFacts)
    return ExtractedFacts.model_validate_json(found.text)


@pytest.mark.parametrize(("supports", "asked_first"), [("schema", 1), ("json", 2), ("text", 3)])
async def test_the_best_form_is_found_and_remembered(
    chat: CompatibleChat, models: Serving, supports: str, asked_first: int
) -> None:
    models.change(supports=supports)
    assert len((await ask(chat)).facts) == 1
    assert dict(chat.forms) == {"m-1": supports}
    assert models.tally.calls["facts"] == asked_first
    await ask(chat)
    assert models.tally.calls["facts"] == asked_first + 1


async def test_each_model_is_found_out_for_itself(chat: CompatibleChat, models: Serving) -> None:
    await ask(chat)
    models.change(supports="text")
    await ask(chat, "m-2")
    assert dict(chat.forms) == {"m-1": "schema", "m-2": "text"}


async def test_an_answer_in_fences_with_chatter_is_unwrapped(chat: CompatibleChat, models: Serving) -> None:
    models.change(supports="text", rates={"fenced": 1.0})
    assert len((await ask(chat)).facts) == 1


async def test_an_endpoint_that_ignores_the_schema_is_told_it_in_words(
    chat: CompatibleChat, models: Serving
) -> None:
    def script(asked: Asked) -> Said:
        return "Of course! What facts?" if asked.schema else default_script(asked)

    models.script = script
    found = await chat.complete("m-1", "- user: life", TURNS, ExtractedFacts)
    ExtractedFacts.model_validate_json(found.text)
    assert dict(chat.forms) == {"m-1": "json"}
    assert found.tokens.output == models.tally.output_tokens


MERGED: Said = {"text": "all of it"}


def says(what: Said) -> Script:
    """In every form."""

    def script(_asked: Asked) -> Said:
        return what

    return script


def chatty(otherwise: Said) -> Script:
    """Ignores a schema; in the other forms it says this."""

    def script(asked: Asked) -> Said:
        return "Of course!" if asked.schema else otherwise

    return script


async def asked_of(chat: CompatibleChat) -> list[ModelCalled]:
    """The calls of one question, in the order in which they began."""
    run = HandlerRun()
    with suppress(PermanentError, CallFailed):
        async with run:
            await model_over(chat, MemoryAnswers()).ask(PROMPT, ConsolidatedText, asking())
    return sorted(run.calls, key=lambda one: one.started_at)


async def test_every_request_of_finding_out_is_a_call(chat: CompatibleChat, models: Serving) -> None:
    models.change(supports="text")
    models.script = says(MERGED)
    begun = time.perf_counter()
    calls = await asked_of(chat)
    whole = time.perf_counter() - begun
    assert [(one.outcome, one.error) for one in calls] == [
        ("provider_error", "InvalidRequest"),
        ("provider_error", "InvalidRequest"),
        ("answered", None),
    ]
    assert len({one.call_id for one in calls}) == 3
    assert [one.input_tokens for one in calls] == [0, 0, models.tally.input_tokens]
    assert all(one.cost_usd is None for one in calls[:2])
    assert sum(one.seconds for one in calls) <= whole, "no time is told twice"
    assert [one.outcome for one in await asked_of(chat)] == ["answered"], "found out"


async def test_answers_that_were_paid_on_the_way_are_calls_with_their_cost(
    chat: CompatibleChat, models: Serving
) -> None:
    models.script = chatty(MERGED)
    first, second = await asked_of(chat)
    assert (first.outcome, second.outcome) == ("invalid", "answered")
    assert first.input_tokens > 0
    assert first.input_tokens + second.input_tokens == models.tally.input_tokens
    assert first.output_tokens + second.output_tokens == models.tally.output_tokens
    assert first.cost_usd
    assert second.cost_usd


async def test_calls_before_one_that_failed_are_told_too(chat: CompatibleChat, models: Serving) -> None:
    models.script = chatty(Fault("error"))
    calls = await asked_of(chat)
    assert calls[0].outcome == "invalid"
    assert calls[-1].outcome != "answered"
    assert len(calls) == models.tally.calls["consolidation"]


async def test_a_model_that_never_answers_in_shape_is_found_out_again_next_time(
    chat: CompatibleChat, models: Serving
) -> None:
    models.change(rates={"wrong_schema": 1.0})
    found = await chat.complete("m-1", "", TURNS, ExtractedFacts)
    assert found.text == '{"unexpected": [1, 2, 3]}'
    assert not chat.forms
    models.change(rates={})
    await ask(chat)
    assert dict(chat.forms) == {"m-1": "schema"}


async def test_a_refused_request_of_a_known_model_is_not_tried_in_other_forms(
    chat: CompatibleChat, models: Serving
) -> None:
    await ask(chat)
    models.change(supports="text")
    with pytest.raises(PermanentError):
        await ask(chat)
    assert models.tally.calls["facts"] == 2


async def test_a_truncated_answer_is_never_taken_for_whole(chat: CompatibleChat, models: Serving) -> None:
    models.change(supports="text", rates={"truncated": 1.0})
    found = await chat.complete("m-1", "", TURNS, ExtractedFacts)
    assert found.finish == "truncated"
    assert not chat.forms


async def test_an_endpoint_without_a_key_is_asked_without_ours(
    models: Serving, monkeypatch: pytest.MonkeyPatch
) -> None:
    from eden_memory.models.providers import Providers
    from eden_memory.settings import Settings

    monkeypatch.setenv("OPENAI_API_KEY", "sk-mine")
    providers = Providers(Settings(llm=models.openai_url))
    found = providers.chat(models.openai_url)
    assert isinstance(found, CompatibleChat)
    await ask(found)
    await providers.close()
    assert models.last_headers["authorization"] == "Bearer none"


def test_the_provider_is_named_by_its_host_alone() -> None:
    chat = chat_of("compatible", "http://someone:secret@models.example.org:8080")
    assert chat.name == "models.example.org:8080"


@pytest.mark.parametrize(
    ("refuses", "calls"), [((), 1), (("max_tokens",), 2), (("max_tokens", "max_completion_tokens"), 3)]
)
async def test_the_bound_that_an_endpoint_accepts_is_found_and_remembered(
    chat: CompatibleChat, models: Serving, refuses: tuple[str, ...], calls: int
) -> None:
    models.change(refuses=refuses)
    for expected in (calls, calls + 1):
        found = await chat.complete("m-1", "- user: life", TURNS, ExtractedFacts, 500)
        assert found.finish == "complete"
        assert models.tally.calls["facts"] == expected


async def test_a_prompt_that_fits_only_without_the_bound_of_its_answer_is_sent_without_it(
    chat: CompatibleChat, models: Serving
) -> None:
    models.change(context_tokens=1_000)
    found = await chat.complete("m-1", "- user: life", TURNS, ExtractedFacts, 500)
    assert found.finish == "complete"
    models.change(context_tokens=1)
    with pytest.raises(PermanentError):
        await chat.complete("m-1", "- user: life", TURNS, ExtractedFacts, 500)


async def test_an_endpoint_that_refuses_bounds_of_lists_is_given_the_schema_without_them(
    chat: CompatibleChat, models: Serving
) -> None:
    schemas: list[str] = []

    def script(asked: Asked) -> Said:
        schemas.append(str(asked.schema))
        return default_script(asked)

    models.script = script
    models.change(refuses=("maxItems",))
    for expected in (2, 3):
        assert len((await ask(chat)).facts) == 1
        assert dict(chat.forms) == {"m-1": "schema"}
        assert models.tally.calls["facts"] == expected
    assert ["maxItems" in schema for schema in schemas] == [True, False, False]
