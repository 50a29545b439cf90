"""Reads Google's responses and errors."""

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import Protocol

import httpx2
import orjson
from google.genai import errors

from eden_memory.failures import PermanentError
from eden_memory.models.calls import CallFailed, Completion, Finish, Tokens
from eden_memory.models.providers.loose import (
    Body,
    count_of,
    numbers_of,
    object_of,
    objects_of,
    text_of,
    word_of,
)
from eden_memory.models.retry_after import bounded

NOT_DONE = frozenset({"MAX_TOKENS", "CONTINUATION", "MALFORMED_RESPONSE", "OTHER"})
"""Finish reasons of an answer that may be cut off."""
DONE = frozenset({"STOP", "FINISH_REASON_UNSPECIFIED"})


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
    """Whatever is neither an end nor a cut is a refusal (SAFETY, RECITATION, SPII, BLOCKLIST, …)."""
    if reason in DONE:
        return "complete"
    return "truncated" if reason is None or reason in NOT_DONE else "refused"


def _tokens(usage: Body) -> Tokens:
    """Thoughts are billed as output and counted apart from it here."""
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
