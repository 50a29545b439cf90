"""Tries a model of an endpoint at what formation asks of it, and says which settings fit it."""

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence, Set
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal

from eden_memory.errors import PermanentError
from eden_memory.formation import prompts
from eden_memory.formation.prompt_material import FactMaterial, ScopeBrief, TranscriptLine
from eden_memory.models.breaker import SHORT
from eden_memory.models.catalogue import is_url, used_for
from eden_memory.models.judging import most_tokens, parsed
from eden_memory.models.model_check import Checked
from eden_memory.models.model_servers import LocalModelServer, fitting, loaded_context, look
from eden_memory.models.openai import Body, CompatibleChat
from eden_memory.models.provider_calls import CallFailed, PromptTurn, count_of, object_of, objects_of, text_of
from eden_memory.models.providers import Providers
from eden_memory.schemas.answers import ExtractedFacts
from eden_memory.settings import Settings

Thinking = Literal["no", "can be switched off", "always"]
Variant = Literal["full", "short"]
SAID: Mapping[str, tuple[str, str]] = {
    "English": ("My sister Lea lives in Porto.", "Porto"),
    "German": ("Meine Katze heißt Mia und ist drei Jahre alt.", "Mia"),
    "Spanish": ("Trabajo en Sevilla desde 2024.", "Sevilla"),
    "Russian": ("Моя сестра Лена живёт в Перми.", "Перм"),
    "Chinese": ("我从一月开始住在成都。", "成都"),
    "Japanese": ("来月、京都に引っ越します。", "京都"),
    "Arabic": ("أعمل طبيبة في عمان.", "عمان"),
}
"""A message of a user in each language, and a word that its fact keeps."""
WHEN = datetime(2026, 3, 4, 9, tzinfo=UTC)
FENCE = "<<6f1d2a90b7c34e58a1d0>>"
MOST_FACTS, FACT_WORDS = 8, 30
REASONED = "What is 17 + 25? Answer with the number alone."
MOST_THOUGHTS = 512
TOOL: Body = {
    "name": "note_city",
    "description": "Note the city that somebody lives in.",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}


@dataclass(frozen=True, slots=True)
class TriedModel:
    """A model of an endpoint, as it answered."""

    provider: str
    model: str
    json_mode: bool
    tools: bool
    thinking: Thinking
    languages: tuple[str, ...]
    """Those in which it found the fact of the user that was stated."""
    untold: tuple[str, ...]
    """Those in which it did not."""
    tokens_a_second: float | None
    context: int | None
    """Tokens of a prompt and its answer; None: the server does not tell."""
    settings: Mapping[str, str]
    """Environment variables that fit it."""


@dataclass(frozen=True, slots=True)
class _Extraction:
    languages: tuple[str, ...] = ()
    tokens_a_second: float | None = None


async def tried_models(
    settings: Settings,
    works: Set[tuple[str, str | None]],
    on_progress: Callable[[str], None] = lambda _: None,
) -> AsyncGenerator[TriedModel]:
    """Try the configured models of endpoints, one after the other; `works`: providers and models to try."""
    providers = Providers(settings)
    try:
        for choice in used_for(settings):
            chat = providers.chat(choice.provider) if is_url(choice.provider) else None
            if isinstance(chat, CompatibleChat) and choice.model and (chat.name, choice.model) in works:
                yield await _tried(chat, choice.provider, choice.model, on_progress)
    finally:
        await providers.close()


async def _tried(
    chat: CompatibleChat, url: str, model: str, on_progress: Callable[[str], None]
) -> TriedModel:
    named = f"{chat.name} {model}"
    on_progress(f"{named}: finds facts in {len(SAID)} languages")
    full, short = await _extraction(chat, model, short=False), _Extraction()
    if len(full.languages) < len(SAID):
        on_progress(f"{named}: finds the same facts with short prompts")
        short = await _extraction(chat, model, short=True)
    variant: Variant = "short" if len(short.languages) > len(full.languages) else "full"
    best = short if variant == "short" else full
    on_progress(f"{named}: whether it thinks, and knows JSON mode and tools")
    thinking = await _thinking(chat, model)
    server = await asyncio.to_thread(look, url) or LocalModelServer("", url, ())
    context = await asyncio.to_thread(loaded_context, server, model)
    speed = best.tokens_a_second
    fits = {"EDEN_MODELS_PROMPTS": variant, **fitting(server, speed, context)}
    if thinking == "can be switched off":
        fits["EDEN_MODELS_EFFORT"] = "none"
    return TriedModel(
        provider=chat.name,
        model=model,
        json_mode=await _json_mode(chat, model),
        tools=await _tools(chat, model),
        thinking=thinking,
        languages=best.languages,
        untold=tuple(language for language in SAID if language not in best.languages),
        tokens_a_second=speed,
        context=context,
        settings=fits,
    )


async def _extraction(chat: CompatibleChat, model: str, *, short: bool) -> _Extraction:
    lines = tuple(TranscriptLine("Ana", "user", WHEN, text) for text, _ in SAID.values())
    scopes = (ScopeBrief("agent"), ScopeBrief("user"))
    asked = prompts.fact_extraction(FactMaterial(lines, scopes, MOST_FACTS, FACT_WORDS), FENCE, short=short)
    turns, began = (PromptTurn("user", asked.user),), time.perf_counter()
    try:
        answer = await chat.complete(
            model, asked.system, turns, ExtractedFacts, most_tokens(asked.answer_tokens)
        )
    except (CallFailed, PermanentError):
        return _Extraction()
    seconds, written = time.perf_counter() - began, answer.tokens.output
    speed = written / seconds if written >= SHORT else None
    value = parsed(answer.text, ExtractedFacts)
    return _Extraction((), speed) if isinstance(value, str) else _Extraction(_languages(value), speed)


def _languages(answer: ExtractedFacts) -> tuple[str, ...]:
    stated = [fact.text for fact in answer.facts if fact.scope == "user"]
    return tuple(name for name, (_, kept) in SAID.items() if any(kept in text for text in stated))


async def _json_mode(chat: CompatibleChat, model: str) -> bool:
    asked = 'Answer with the JSON object {"works": true}.'
    said = await _message(chat, model, asked, response_format={"type": "json_object"})
    return said is not None and isinstance(parsed(text_of(said.get("content")), Checked), Checked)


async def _tools(chat: CompatibleChat, model: str) -> bool:
    said = await _message(
        chat, model, "I live in Porto. Note it.", tools=[{"type": "function", "function": TOOL}]
    )
    calls: Sequence[Body] = objects_of(said.get("tool_calls")) if said else ()
    return any(object_of(call.get("function")).get("name") == TOOL["name"] for call in calls)


async def _thinking(chat: CompatibleChat, model: str) -> Thinking:
    if not _thought(await _message(chat, model, REASONED)):
        return "no"
    quiet = await _message(chat, model, REASONED, reasoning_effort="none")
    return "can be switched off" if quiet is not None and not _thought(quiet) else "always"


def _thought(said: Body | None) -> bool:
    """Whether a message shows thoughts: counted, in a field of their own, or between tags."""
    if said is None:
        return False
    apart = text_of(said.get("reasoning_content")) or text_of(said.get("reasoning"))
    return bool(count_of(said.get("thoughts")) or apart or "<think>" in text_of(said.get("content")))


async def _message(chat: CompatibleChat, model: str, asked: str, **fields: Any) -> Body | None:
    """Return the message that answers, `thoughts` with the tokens counted as such; None for a refusal or failure."""
    turns = [{"role": "user", "content": asked}]
    try:
        response = await chat.wire.send(model, messages=turns, max_tokens=MOST_THOUGHTS, **fields)
    except (CallFailed, PermanentError):
        return None
    message = object_of((objects_of(response.get("choices")) or [{}])[0].get("message"))
    details = object_of(object_of(response.get("usage")).get("completion_tokens_details"))
    return {**message, "thoughts": details.get("reasoning_tokens")}
