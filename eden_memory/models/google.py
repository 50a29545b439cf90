"""Google's models through google-genai: structured output by JSON Schema, embeddings, responses and errors."""

import asyncio
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

import httpx2
import orjson
from google import genai
from google.genai import errors, types

from eden_memory.errors import PermanentError
from eden_memory.models.provider_calls import (
    THOUGHTS,
    Adapter,
    Body,
    CallFailed,
    ChatAdapter,
    Completion,
    Finish,
    PromptTurn,
    Tokens,
    Trial,
    bounded,
    count_of,
    google_thinking,
    numbers_of,
    object_of,
    objects_of,
    schema_of,
    text_of,
    word_of,
)
from eden_memory.schemas.answers import ModelAnswer
from eden_memory.settings import Effort

NOT_DONE = ("MAX_TOKENS", "CONTINUATION", "MALFORMED_RESPONSE", "OTHER")
"""Finish reasons of an answer that may be cut off."""

DONE = ("STOP", "FINISH_REASON_UNSPECIFIED")


class HasBody(Protocol):
    """The SDK's response as it came."""

    body: str | None


@contextmanager
def translated(model: str, seconds: float) -> Generator[None]:
    """Errors of the block become CallFailed or PermanentError."""
    try:
        yield
    except (TimeoutError, httpx2.TimeoutException):
        raise CallFailed("timed_out", f"no answer within {seconds:g} s") from None
    except errors.APIError as error:
        raise _failure(error, model) from None
    except httpx2.HTTPError as error:
        raise CallFailed("provider_error", f"connection failed: {type(error).__name__}") from None


def read(response: HasBody | None) -> Body:
    """The JSON object of a response."""
    try:
        value = orjson.loads((response.body if response else None) or "")
    except orjson.JSONDecodeError:
        value = None
    if not isinstance(value, dict):
        raise CallFailed("provider_error", "unreadable response")
    return object_of(value)  # pyright: ignore[reportUnknownArgumentType]


def completion(body: Body) -> Completion:
    """A generateContent response; CallFailed where it holds no candidate and says not why."""
    candidates = objects_of(body.get("candidates"))
    blocked = object_of(body.get("promptFeedback")).get("blockReason")
    if not candidates and not blocked:
        raise CallFailed("provider_error", "a response without candidates")
    first = candidates[0] if candidates else {}
    parts = objects_of(object_of(first.get("content")).get("parts"))
    return Completion(
        text="".join(text_of(part.get("text")) for part in parts if not part.get("thought")),
        finish=_finish(first.get("finishReason")) if candidates else "refused",
        tokens=_tokens(object_of(body.get("usageMetadata"))),
        response_model=text_of(body.get("modelVersion")) or None,
    )


def vectors(body: Body, wanted: int) -> tuple[list[list[float]], Tokens]:
    """A batchEmbedContents response."""
    found = objects_of(body.get("embeddings"))
    if len(found) != wanted:
        raise CallFailed("provider_error", f"{len(found)} vectors for {wanted} texts")
    numbers = [numbers_of(vector.get("values")) for vector in found]
    if not all(len(vector) == len(numbers[0]) > 0 for vector in numbers):
        raise CallFailed("provider_error", "unreadable vectors")
    return numbers, _tokens(object_of(body.get("usageMetadata")))


def _finish(reason: object) -> Finish:
    """Return how an answer ended; neither an end nor a cut is a refusal (SAFETY, RECITATION, SPII, BLOCKLIST, …)."""
    if reason in DONE:
        return "complete"
    return "truncated" if reason is None or reason in NOT_DONE else "refused"


def _tokens(usage: Body) -> Tokens:
    """Thoughts are billed as output, and counted apart from it here."""
    thoughts = count_of(usage.get("thoughtsTokenCount"))
    return Tokens(
        input=count_of(usage.get("promptTokenCount")),
        cached=count_of(usage.get("cachedContentTokenCount")),
        output=count_of(usage.get("candidatesTokenCount")) + thoughts,
        reasoning=thoughts,
    )


def _failure(error: errors.APIError, model: str) -> Exception:
    status, word, said = error.code, word_of(error.status) or "no status", str(error.message or "").lower()
    body = object_of(error.details)  # pyright: ignore[reportUnknownMemberType, reportUnknownArgumentType]
    retry_after = _retry_after(objects_of(object_of(body.get("error", body)).get("details")))
    if status == 429:
        return CallFailed("rate_limited", f"429 {word}", retry_after)
    if status in (401, 403) or "api key" in said:
        return CallFailed(
            "provider_error", f"{status}: the key in GEMINI_API_KEY or GOOGLE_API_KEY is refused by Google"
        )
    if status == 404:
        return CallFailed("provider_error", f"404: Google has no model {model} for this key")
    if status in (400, 413) and word != "FAILED_PRECONDITION":
        return PermanentError(f"{status} {word}{': input too long' if 'token count' in said else ''}")
    return CallFailed("provider_error", f"{status} {word}", retry_after)


def _retry_after(details: Sequence[Body]) -> float | None:
    """Seconds of google.rpc.RetryInfo, `"17s"`."""
    for detail in details:
        delay = str(detail.get("retryDelay", "")).removesuffix("s")
        try:
            return bounded(float(delay))
        except ValueError:
            continue
    return None


NAME = "google"

TEXTS_OF_A_REQUEST = 100

NO_TOOLS = types.AutomaticFunctionCallingConfig(disable=True)


class GoogleConnection:
    """A client of the Gemini API; the SDK makes no retries unless told to."""

    def __init__(
        self, api_key: str, pool: httpx2.AsyncClient, seconds: float, base_url: str | None = None
    ) -> None:
        options = types.HttpOptions(base_url=base_url, httpx_async_client=pool)
        self.client = genai.Client(api_key=api_key, vertexai=False, http_options=options)
        self.name, self.seconds = NAME, seconds
        self._pool = pool

    async def close(self) -> None:
        """Close the connections."""
        self.client.close()
        await self._pool.aclose()


class GoogleChat(ChatAdapter[GoogleConnection]):
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
        """One request, held to the answer's schema; it never takes a trial."""
        del trials
        config = types.GenerateContentConfig(
            system_instruction=system,
            response_mime_type="application/json",
            response_json_schema=schema_of(answer),
            thinking_config=_thinking(model, self._effort),
            max_output_tokens=None if most is None else most + THOUGHTS,
            automatic_function_calling=NO_TOOLS,
            should_return_http_response=True,
        )
        models: Any = self._connection.client.aio.models  # its types name PIL, which is not there
        seconds, contents = self._connection.seconds, [_content(turn) for turn in turns]
        with translated(model, seconds):
            async with asyncio.timeout(seconds):
                response = await models.generate_content(model=model, contents=contents, config=config)
            return completion(read(response.sdk_http_response))


class GoogleEmbeddings(Adapter[GoogleConnection]):
    """An EmbeddingProvider; `dimensions` None: the model's own."""

    def __init__(self, connection: GoogleConnection, dimensions: int | None = None) -> None:
        super().__init__(connection)
        self._dimensions = dimensions

    async def embed(self, model: str, texts: Sequence[str]) -> tuple[list[list[float]], Tokens]:
        """One request per 100 texts, side by side."""
        parts = [texts[at : at + TEXTS_OF_A_REQUEST] for at in range(0, len(texts), TEXTS_OF_A_REQUEST)]
        found = await asyncio.gather(*(self._embed(model, part) for part in parts))
        numbers = [vector for vectors_of_part, _ in found for vector in vectors_of_part]
        return numbers, Tokens(input=sum(tokens.input for _, tokens in found))

    async def _embed(self, model: str, texts: Sequence[str]) -> tuple[list[list[float]], Tokens]:
        """Past the SDK's response models, which take three quarters of the CPU time of such a call."""
        name = model if model.startswith("models/") else f"models/{model}"
        wanted: Body = {"outputDimensionality": self._dimensions} if self._dimensions else {}
        requests = [{"model": name, "content": {"parts": [{"text": text}]}, **wanted} for text in texts]
        api, seconds = self._connection.client._api_client, self._connection.seconds  # pyright: ignore[reportPrivateUsage]
        with translated(model, seconds):
            async with asyncio.timeout(seconds):
                response = await api.async_request(
                    "post", f"{name}:batchEmbedContents", {"requests": requests}
                )
            return vectors(read(response), len(texts))


def _thinking(model: str, effort: Effort | None) -> types.ThinkingConfig | None:
    asked = google_thinking(model, effort)
    if isinstance(asked, int):
        return types.ThinkingConfig(thinking_budget=asked)
    return None if asked is None else types.ThinkingConfig(thinking_level=types.ThinkingLevel(asked))


def _content(turn: PromptTurn) -> types.Content:
    role = "user" if turn.role == "user" else "model"
    return types.Content(role=role, parts=[types.Part(text=turn.text)])
