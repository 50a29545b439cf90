"""Requests in OpenAI's format through the official SDK, and what its errors mean."""

import asyncio
import base64
from collections.abc import Sequence

import httpx2
import numpy as np
import openai
import orjson

from eden_memory.domain.failures import PermanentError
from eden_memory.models.calls import CallFailed, Completion, Finish, Tokens, Turn
from eden_memory.models.providers.loose import Body, count_of, numbers_of, object_of, objects_of, text_of
from eden_memory.models.retry_after import retry_after
from eden_memory.settings import Effort

TOO_LONG = ("context_length", "context length", "maximum context", "too long", "too many tokens")
NEVER_ACCEPTED = frozenset({400, 413, 422})
"""Status codes that speak of the request itself."""


class InvalidRequest(PermanentError):  # noqa: N818 - reads as what happened
    """The request as it is will never be accepted; `too_long` where it is its length."""

    def __init__(self, reason: str, *, too_long: bool) -> None:
        super().__init__(reason)
        self.too_long = too_long


class OpenAIWire:
    """One endpoint that speaks OpenAI's format; `refused_key` says which key to look at, never its value.

    What the SDK reads from the environment for OpenAI itself does not go to another endpoint.
    """

    def __init__(
        self,
        name: str,
        api_key: str,
        refused_key: str,
        pool: httpx2.AsyncClient,
        seconds: float,
        base_url: str | None = None,
    ) -> None:
        self.name = name
        self._refused_key, self._seconds = refused_key, seconds
        self._client = openai.AsyncOpenAI(
            api_key=api_key,
            base_url=base_url,
            timeout=seconds,
            max_retries=0,
            http_client=pool,
        )
        if base_url is not None:
            self._client.organization = self._client.project = None

    async def chat(
        self,
        model: str,
        system: str,
        turns: Sequence[Turn],
        response_format: Body | None,
        effort: Effort | None = None,
    ) -> Completion:
        """One chat completion; CallFailed, InvalidRequest."""
        messages = [{"role": "system", "content": system}]
        messages.extend({"role": turn.role, "content": turn.text} for turn in turns)
        body: Body = {"model": model, "messages": messages}
        if response_format is not None:
            body["response_format"] = response_format
        if effort is not None:
            body["reasoning_effort"] = effort
        return completion(await self._post("/chat/completions", body))

    async def embed(
        self, model: str, texts: Sequence[str], dimensions: int | None
    ) -> tuple[list[list[float]], Tokens]:
        """One embeddings request; CallFailed, InvalidRequest."""
        body: Body = {"model": model, "input": list(texts), "encoding_format": "base64"}
        if dimensions is not None:
            body["dimensions"] = dimensions
        return vectors(await self._post("/embeddings", body), len(texts))

    async def _post(self, path: str, body: Body) -> Body:
        """The SDK's request with its headers and errors; its response models would nearly double the CPU time."""
        try:
            async with asyncio.timeout(self._seconds):
                response = await self._client.post(path, cast_to=httpx2.Response, content=orjson.dumps(body))
            return object_of(orjson.loads(response.content))
        except (TimeoutError, openai.APITimeoutError):
            raise CallFailed("timed_out", f"no answer within {self._seconds:g} s") from None
        except openai.APIStatusError as error:
            raise self._failure(error, str(body["model"])) from None
        except openai.APIConnectionError as error:
            raise CallFailed("provider_error", f"connection failed: {_kind(error.__cause__)}") from None
        except (orjson.JSONDecodeError, openai.APIError) as error:
            raise CallFailed("provider_error", f"unreadable response: {_kind(error)}") from None

    def _failure(self, error: openai.APIStatusError, model: str) -> Exception:
        status, code = error.status_code, error.code or error.type or "no code"
        wait = retry_after(error.response.headers)
        if status == 429:
            used_up = (
                "the account's quota is used up" if code == "insufficient_quota" else "too many requests"
            )
            return CallFailed("rate_limited", f"429 {used_up}", wait)
        if status in (401, 403):
            return CallFailed("provider_error", f"{status}: {self._refused_key} is refused by {self.name}")
        if status == 404:
            return CallFailed("provider_error", f"404: {self.name} has no model {model} for this key")
        if status in NEVER_ACCEPTED:
            said = f"{code} {error.message}".lower()
            where = f" ({error.param})" if error.param else ""
            return InvalidRequest(f"{status} {code}{where}", too_long=any(word in said for word in TOO_LONG))
        return CallFailed("provider_error", f"{status} {code}", wait)

    async def close(self) -> None:
        """Close the connections."""
        await self._client.close()


def _kind(error: BaseException | None) -> str:
    return type(error).__name__


def completion(body: Body) -> Completion:
    """A chat completion; CallFailed where it holds no choice."""
    choices = objects_of(body.get("choices"))
    if not choices:
        raise CallFailed("provider_error", "a response without choices")
    message = object_of(choices[0].get("message"))
    refusal = text_of(message.get("refusal"))
    return Completion(
        text=refusal or _text(message.get("content")),
        finish="refused" if refusal else _finish(choices[0].get("finish_reason")),
        tokens=_tokens(object_of(body.get("usage"))),
        response_model=text_of(body.get("model")) or None,
    )


def _text(content: object) -> str:
    """A string, or the texts of a list of parts."""
    return text_of(content) or "".join(text_of(part.get("text")) for part in objects_of(content))


def _finish(reason: object) -> Finish:
    if reason == "length":
        return "truncated"
    return "refused" if reason == "content_filter" else "complete"


def _tokens(usage: Body) -> Tokens:
    prompt = object_of(usage.get("prompt_tokens_details"))
    completion = object_of(usage.get("completion_tokens_details"))
    return Tokens(
        input=count_of(usage.get("prompt_tokens")),
        cached=count_of(prompt.get("cached_tokens")),
        output=count_of(usage.get("completion_tokens")),
        reasoning=count_of(completion.get("reasoning_tokens")),
    )


def vectors(body: Body, wanted: int) -> tuple[list[list[float]], Tokens]:
    """An embeddings response; CallFailed where it holds not as many readable vectors as wanted."""
    data = objects_of(body.get("data"))
    if len(data) != wanted:
        raise CallFailed("provider_error", f"{len(data)} vectors for {wanted} texts")
    ordered = sorted(data, key=lambda one: count_of(one.get("index")))
    found = [_numbers(one.get("embedding")) for one in ordered]
    if not all(len(vector) == len(found[0]) > 0 for vector in found):
        raise CallFailed("provider_error", "unreadable vectors")
    return found, _tokens(object_of(body.get("usage")))


def _numbers(embedding: object) -> list[float]:
    """Base64 of little-endian float32, or numbers, where an endpoint does not know base64."""
    if isinstance(embedding, str):
        try:
            return np.frombuffer(base64.b64decode(embedding), dtype="<f4").tolist()
        except ValueError:
            return []
    return numbers_of(embedding)
