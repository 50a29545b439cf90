"""Every fault against every chat adapter, through the real SDKs."""

import asyncio
import json
import logging
from collections.abc import Sequence

import pytest

from eden_memory.errors import PermanentError
from eden_memory.models.call_accounts import Prices
from eden_memory.models.provider_calls import CallFailed, ChatProvider, Completion, PromptTurn
from eden_memory.schemas.answers import ConsolidatedText, ExtractedFacts, FactDecisions, StatedReflections
from tests.integration.models.conftest import KEY, chat_of
from tests.model_server import wire_anthropic
from tests.model_server.config import FaultName
from tests.model_server.script import Asked, Said, default_script
from tests.model_server.serving import Serving, until
from tests.model_server.wire import Problem

CACHES = [
    ("openai", "m-1", 1_024, 128),
    ("compatible", "m-1", 1_024, 128),
    ("anthropic", "claude-haiku-4-5", 4_096, 1),
    ("anthropic", "claude-sonnet-5-5", 1_024, 1),
    ("google", "gemini-2.5-flash", 2_048, 1),
    ("google", "gemini-3.5-flash", 4_096, 1),
]
"""Adapter, model, tokens of the shortest prefix that is cached, and steps (tests/model_server/wire_*.py)."""
SYSTEM = "Scopes:\n- agent: work\n- user: life\n"
CONVERSATION = (PromptTurn("user", "[1] 10:00 Ann: I moved, MARK-7 it is\n[2] 10:01 bot: noted"),)


async def ask(
    chat: ChatProvider, turns: Sequence[PromptTurn] = CONVERSATION, model: str = "m-1"
) -> Completion:
    return await chat.complete(model, SYSTEM, turns, ExtractedFacts)


async def test_an_answer_is_valid_and_its_tokens_are_those_counted(
    chat: ChatProvider, models: Serving
) -> None:
    models.change(reasoning_tokens=5)
    found = await ask(chat)
    facts = ExtractedFacts.model_validate_json(found.text).facts
    assert [(fact.scope, fact.messages) for fact in facts] == [("user", [1])]
    assert "MARK-7" in facts[0].text
    assert found.finish == "complete"
    assert found.response_model == "m-1-test"
    assert (found.tokens.input, found.tokens.output) == (
        models.tally.input_tokens,
        models.tally.output_tokens,
    )
    assert found.tokens.reasoning == 5


@pytest.mark.parametrize("answer", [ExtractedFacts, FactDecisions, StatedReflections, ConsolidatedText])
async def test_every_answer_type_is_understood_as_a_schema(
    chat: ChatProvider, models: Serving, answer: type[ExtractedFacts]
) -> None:
    found = await chat.complete("m-1", SYSTEM, CONVERSATION, answer)
    answer.model_validate_json(found.text)
    assert "unknown" not in models.tally.calls


@pytest.mark.parametrize(("kind", "model", "least", "step"), CACHES)
async def test_the_beginning_of_a_prompt_seen_before_counts_as_cached_from_the_provider_s_minimum_on(
    chat: ChatProvider, model: str, least: int, step: int
) -> None:
    short, long = "w " * (2 * least - 1_000), "w " * (2 * least + 400)
    for system in (short, long):
        first = await chat.complete(model, system, CONVERSATION, ExtractedFacts)
        other = await chat.complete(model, system, (PromptTurn("user", "[1] 9:00 Tom: no"),), ExtractedFacts)
        assert first.tokens.cached == 0
        assert first.tokens.written <= first.tokens.input
        if system == short:
            assert other.tokens.cached == 0
        else:
            assert least <= other.tokens.cached < other.tokens.input
            assert other.tokens.cached % step == 0


async def test_a_repair_sends_the_earlier_answer_and_the_error(chat: ChatProvider, models: Serving) -> None:
    seen: list[Asked] = []

    def script(asked: Asked) -> Said:
        seen.append(asked)
        return default_script(asked)

    models.script = script
    await ask(chat, (*CONVERSATION, PromptTurn("assistant", "{"), PromptTurn("user", "that was not JSON")))
    assert [role for role, _ in seen[0].turns] == ["user", "assistant", "user"]
    assert seen[0].turns[-1][1] == "that was not JSON"
    assert seen[0].system.startswith(SYSTEM.strip())


@pytest.mark.parametrize(
    ("fault", "outcome", "says"),
    [
        ("rate_limited", "rate_limited", "429"),
        ("quota", "rate_limited", "429"),
        ("error", "provider_error", "500"),
        ("overloaded", "provider_error", "503|529 overloaded_error"),
        ("drop", "provider_error", "connection failed"),
        ("malformed", "provider_error", "unreadable"),
        ("unauthorized", "provider_error", "key"),
        ("forbidden", "provider_error", "403"),
        ("no_model", "provider_error", "m-1"),
        ("no_choices", "provider_error", "without"),
    ],
)
async def test_a_failure_is_named_and_not_tried_again(
    chat: ChatProvider, models: Serving, fault: FaultName, outcome: str, says: str
) -> None:
    models.change(rates={fault: 1.0})
    with pytest.raises(CallFailed, match=says) as raised:
        await ask(chat)
    assert raised.value.outcome == outcome
    assert "sk-" not in str(raised.value)
    assert models.tally.calls["facts"] == 1


async def test_a_rate_limit_says_when_to_come_back(chat: ChatProvider, models: Serving) -> None:
    models.change(rates={"rate_limited": 1.0}, retry_after=7.5)
    with pytest.raises(CallFailed) as raised:
        await ask(chat)
    assert raised.value.retry_after == 7.5
    models.change(rates={"quota": 1.0})
    with pytest.raises(CallFailed) as raised:
        await ask(chat)
    assert raised.value.retry_after is None


async def test_a_call_that_hangs_ends_at_its_timeout(kind: str, models: Serving) -> None:
    models.change(rates={"hang": 1.0})
    chat = chat_of(kind, models.url, seconds=0.2)
    with pytest.raises(CallFailed) as raised:
        await ask(chat)
    assert raised.value.outcome == "timed_out"
    await chat.close()


async def test_a_server_that_is_gone_is_a_provider_error(kind: str) -> None:
    chat = chat_of(kind, "http://127.0.0.1:9")
    with pytest.raises(CallFailed, match="connection failed") as raised:
        await ask(chat)
    assert raised.value.outcome == "provider_error"
    await chat.close()


async def test_too_long_an_input_is_given_up(chat: ChatProvider, models: Serving) -> None:
    models.change(context_tokens=10)
    with pytest.raises(PermanentError):
        await ask(chat)
    assert models.tally.calls["facts"] == 1


@pytest.mark.parametrize(
    ("fault", "finish"),
    [("truncated", "truncated"), ("refusal", "refused"), ("blocked", "refused"), ("unshown_ids", "complete")],
)
async def test_how_an_answer_ended_is_told(
    chat: ChatProvider, models: Serving, fault: FaultName, finish: str
) -> None:
    models.change(rates={fault: 1.0})
    found = await ask(chat)
    assert found.finish == finish
    assert found.tokens.input > 0
    assert models.tally.calls["facts"] == 1


@pytest.mark.parametrize("fault", ["wrong_schema", "empty"])
async def test_a_useless_answer_is_handed_on_unjudged(
    chat: ChatProvider, models: Serving, fault: FaultName
) -> None:
    await ask(chat)
    models.change(rates={fault: 1.0})
    found = await ask(chat)
    assert found.finish == "complete"
    assert found.text == ('{"unexpected": [1, 2, 3]}' if fault == "wrong_schema" else "")


async def test_a_cancelled_call_leaves_the_connections_usable(chat: ChatProvider, models: Serving) -> None:
    models.change(rates={"hang": 1.0})
    running = [asyncio.create_task(ask(chat)) for _ in range(64)]
    await until(lambda: models.tally.running == 64)
    for task in running:
        task.cancel()
    assert all(
        isinstance(one, asyncio.CancelledError)
        for one in await asyncio.gather(*running, return_exceptions=True)
    )
    models.change(rates={})
    assert (await ask(chat)).finish == "complete"


async def test_as_many_calls_run_at_once_as_were_asked_for(chat: ChatProvider, models: Serving) -> None:
    await ask(chat)
    models.change(held=True)
    running = [asyncio.create_task(ask(chat)) for _ in range(64)]
    await until(lambda: models.tally.running == 64)
    models.change(held=False)
    assert len(await asyncio.gather(*running)) == 64


async def test_no_prompt_answer_or_key_is_logged_even_at_debug_level(
    chat: ChatProvider, models: Serving, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG):
        await ask(chat)
    assert "MARK-7" not in caplog.text
    assert KEY not in caplog.text


async def test_what_the_environment_says_of_openai_does_not_go_to_another_endpoint(
    models: Serving, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_ORG_ID", "org-mine")
    monkeypatch.setenv("OPENAI_PROJECT_ID", "project-mine")
    monkeypatch.setenv("OPENAI_API_KEY", "sk-mine")
    chat = chat_of("compatible", models.url)
    await ask(chat)
    await chat.close()
    assert models.last_headers["authorization"] == f"Bearer {KEY}"
    assert not any("mine" in value for value in models.last_headers.values())


THOUGHTS = {"openai": 0, "anthropic": 24_576, "google": 24_576, "compatible": 2_048}
"""What a model may think beyond its answer; `m-1` at OpenAI is none that thinks."""


async def test_an_answer_is_bounded_with_room_for_thoughts(
    chat: ChatProvider, models: Serving, kind: str
) -> None:
    models.change(reasoning_tokens=THOUGHTS[kind])
    found = await chat.complete("m-1", SYSTEM, CONVERSATION, ExtractedFacts, 500)
    assert found.finish == "complete"
    assert models.longest_allowed["facts"] == 500 + THOUGHTS[kind]
    cut = await chat.complete("m-1", SYSTEM, CONVERSATION, ExtractedFacts, 2)
    assert cut.finish == "truncated"
    assert len(cut.text) < len(found.text)


async def test_anthropic_s_cache_is_asked_for_and_what_is_stored_there_is_priced(models: Serving) -> None:
    chat = chat_of("anthropic", models.url)
    found = await chat.complete("claude-haiku-5-5", "w " * 4_000, CONVERSATION, ExtractedFacts)
    (block,) = json.loads(models.last_body)["system"]
    assert block["cache_control"] == {"type": "ephemeral"}
    assert found.tokens.written > 2_000
    price = Prices().cost
    plain, dearer = (
        price("anthropic", "claude-haiku-5-5", tokens)
        for tokens in (found.tokens._replace(written=0), found.tokens)
    )
    assert plain is not None
    assert dearer is not None
    assert 0 < plain < dearer < 2 * plain
    await chat.close()


@pytest.mark.parametrize(
    ("status", "kind", "says"),
    [
        (400, "invalid_request_error", "Your credit balance is too low to access the API."),
        (400, "invalid_request_error", "You have reached your specified workspace API usage limits."),
        (402, "billing_error", "There is an issue with your billing."),
    ],
)
async def test_an_account_without_money_says_nothing_about_the_question(
    models: Serving, monkeypatch: pytest.MonkeyPatch, status: int, kind: str, says: str
) -> None:
    monkeypatch.setitem(wire_anthropic.PROBLEMS, "bad_request", (status, kind, None))

    def refused(*_: object) -> Problem:
        return Problem("bad_request", says=says)

    monkeypatch.setattr(models, "_problem", refused)
    chat = chat_of("anthropic", models.url)
    with pytest.raises(CallFailed, match="used up") as raised:
        await ask(chat)
    assert raised.value.outcome == "rate_limited"
    await chat.close()
