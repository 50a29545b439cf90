"""Anthropic's models through the official SDK: structured output by JSON Schema, responses and errors."""

import asyncio
from collections.abc import Generator, Sequence
from contextlib import contextmanager

import anthropic
import httpx2
import orjson

from eden_memory.errors import PermanentError
from eden_memory.models.provider_calls import (
    NEVER_ACCEPTED,
    THOUGHTS,
    Body,
    CallFailed,
    ChatAdapter,
    Completion,
    Finish,
    PromptTurn,
    Tokens,
    Trial,
    anthropic_effort,
    count_of,
    object_of,
    objects_of,
    retry_after,
    schema_of,
    text_of,
    word_of,
)
from eden_memory.schemas.answers import ModelAnswer

NAME = "anthropic"

KEY = "ANTHROPIC_API_KEY"

ANSWER_TOKENS = 8_192
"""Of an answer that nobody bounds: the API demands a bound."""

SPENT = ("credit balance", "usage limit", "spend limit")
"""In the message of a 400 that says nothing about the request: the account has no money left."""

TOO_LONG = ("too long", "exceed", "context window")

FINISHES: dict[object, Finish] = {
    "max_tokens": "truncated",
    "model_context_window_exceeded": "truncated",
    "pause_turn": "truncated",
    "refusal": "refused",
}


def completion(body: Body) -> Completion:
    """A message; CallFailed where it has no content. Thoughts are no part of its text."""
    if not isinstance(body.get("content"), list):
        raise CallFailed("provider_error", "a response without content")
    return Completion(
        text="".join(
            text_of(block.get("text")) for block in objects_of(body["content"]) if block.get("type") == "text"
        ),
        finish=FINISHES.get(body.get("stop_reason"), "complete"),
        tokens=_tokens(object_of(body.get("usage"))),
        response_model=text_of(body.get("model")) or None,
    )


def _tokens(usage: Body) -> Tokens:
    """What was read from the cache, and what was stored there, are counted beside the other input."""
    read, written = (count_of(usage.get(f"cache_{how}_input_tokens")) for how in ("read", "creation"))
    return Tokens(
        input=count_of(usage.get("input_tokens")) + read + written,
        cached=read,
        output=count_of(usage.get("output_tokens")),
        reasoning=count_of(object_of(usage.get("output_tokens_details")).get("thinking_tokens")),
        written=written,
    )


@contextmanager
def translated(model: str, seconds: float) -> Generator[None]:
    """Errors of the block become CallFailed or PermanentError."""
    try:
        yield
    except (TimeoutError, anthropic.APITimeoutError):
        raise CallFailed("timed_out", f"no answer within {seconds:g} s") from None
    except anthropic.APIStatusError as error:
        raise _failure(error, model) from None
    except anthropic.APIConnectionError as error:
        kind = type(error.__cause__).__name__
        raise CallFailed("provider_error", f"connection failed: {kind}") from None
    except (orjson.JSONDecodeError, anthropic.APIError) as error:
        raise CallFailed("provider_error", f"unreadable response: {type(error).__name__}") from None


def _failure(error: anthropic.APIStatusError, model: str) -> Exception:
    status, code = error.status_code, word_of(error.error_code) or word_of(error.type) or "no code"
    wait = retry_after(error.response.headers)
    said = f"{code} {error.api_message or ''}".lower().replace("_", " ")
    if status == 402 or (status in (400, 429) and any(word in said for word in SPENT)):
        return CallFailed("rate_limited", f"{status} the account's credit or spend limit is used up", wait)
    if status == 429:
        return CallFailed("rate_limited", "429 too many requests", wait)
    if status in (401, 403):
        return CallFailed("provider_error", f"{status}: the key in {KEY} is refused by Anthropic")
    if status == 404:
        return CallFailed("provider_error", f"404: Anthropic has no model {model} for this key")
    if status in NEVER_ACCEPTED:
        too_long = status == 413 or any(word in said for word in TOO_LONG)
        return PermanentError(f"{status} {code}{': input too long' if too_long else ''}")
    return CallFailed("provider_error", f"{status} {code}", wait)


class AnthropicConnection:
    """A client of the Messages API without retries of its own."""

    def __init__(
        self, api_key: str, pool: httpx2.AsyncClient, seconds: float, base_url: str | None = None
    ) -> None:
        self.name, self.seconds = NAME, seconds
        self.client = anthropic.AsyncAnthropic(
            api_key=api_key, base_url=base_url, timeout=seconds, max_retries=0, http_client=pool
        )

    async def close(self) -> None:
        """Close the connections."""
        await self.client.close()


class AnthropicChat(ChatAdapter[AnthropicConnection]):
    """A ChatProvider."""

    async def complete(
        self,
        model: str,
        system: str,
        turns: Sequence[PromptTurn],
        answer: type[ModelAnswer],
        most: int | None = None,
        trials: list[Trial] | None = None,
    ) -> Completion:
        """One request, held to the answer's schema; it never takes a trial.

        The instructions are marked for the provider's cache: calls of one role share them. The response is used raw,
        as the SDK's response models would cost more CPU time than all else.
        """
        del trials
        effort = anthropic_effort(model, self._effort)
        body: Body = {
            "model": model,
            "max_tokens": (ANSWER_TOKENS if most is None else most) + THOUGHTS,
            "system": [{"type": "text", "text": system, "cache_control": {"type": "ephemeral"}}],
            "messages": [{"role": turn.role, "content": turn.text} for turn in turns],
            "output_config": {
                "format": {"type": "json_schema", "schema": schema_of(answer)},
                **({"effort": effort} if effort else {}),
            },
        }
        client, seconds = self._connection.client, self._connection.seconds
        with translated(model, seconds):
            async with asyncio.timeout(seconds):
                response = await client.post(
                    "/v1/messages", cast_to=httpx2.Response, content=orjson.dumps(body)
                )
            return completion(object_of(orjson.loads(response.content)))
