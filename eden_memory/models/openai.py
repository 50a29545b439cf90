"""OpenAI's models, and any endpoint that speaks their format, through the official SDK."""

import asyncio
import base64
import time
from collections.abc import AsyncGenerator, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import reduce
from typing import Any, Literal

import httpx2
import numpy as np
import openai
import orjson

from eden_memory.errors import PermanentError
from eden_memory.models.catalogue import provider_name
from eden_memory.models.judging import parsed, read
from eden_memory.models.provider_calls import (
    NEVER_ACCEPTED,
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
    count_of,
    described,
    found_json,
    numbers_of,
    object_of,
    objects_of,
    openai_effort,
    retry_after,
    schema_of,
    text_of,
    thinks,
    word_of,
)
from eden_memory.mongo.document_fields import part_text
from eden_memory.schemas.answers import ModelAnswer
from eden_memory.settings import Effort

Bound = Literal["max_tokens", "max_completion_tokens"]

BOUNDS: tuple[Bound, ...] = ("max_tokens", "max_completion_tokens")

TOO_LONG = ("context_length", "context length", "maximum context", "too long", "too many tokens")

CHAT = "/chat/completions"

Raw = httpx2.Response
"""Responses are used raw: the SDK's response models would nearly double the CPU time."""


class InvalidRequest(PermanentError):  # noqa: N818 - reads as what happened
    """The request as it is will never be accepted; `too_long` where it is its length, `about_bound` where it is
    how the length of its answer is bounded, `about_items` where it is how many items a list may have."""

    def __init__(
        self, reason: str, *, too_long: bool, about_bound: bool = False, about_items: bool = False
    ) -> None:
        super().__init__(reason)
        self.too_long, self.about_bound, self.about_items = too_long, about_bound, about_items


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
        bounded_by: Sequence[Bound] = BOUNDS,
    ) -> None:
        """`bounded_by`: how the length of an answer is bounded, tried in turn until a model accepts it."""
        self.name = name
        self._bounded_by: tuple[Bound | None, ...] = (*bounded_by, None)
        self._accepted: dict[str, int] = {}
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
        turns: Sequence[PromptTurn],
        response_format: Body | None,
        effort: Effort | None = None,
        most: int | None = None,
        trials: list[Trial] | None = None,
    ) -> Completion:
        """One chat completion of at most so many tokens; CallFailed, InvalidRequest.

        A model may refuse the bound: that is added to `trials`, and the request is sent again without what was
        refused. The bound that a model accepts is found out once.
        """
        messages = [{"role": "system", "content": system}]
        messages.extend({"role": turn.role, "content": turn.text} for turn in turns)
        body: Body = {"model": model, "messages": messages}
        if response_format is not None:
            body["response_format"] = response_format
        if effort is not None:
            body["reasoning_effort"] = effort
        while (bound := self._bound(model)) is not None and most is not None:
            began, begun = datetime.now(UTC), time.perf_counter()
            try:
                async with self._answering(model):
                    response = await self._client.post(
                        CHAT, cast_to=Raw, content=_json({**body, bound: most})
                    )
                    return completion(_object(response))
            except InvalidRequest as refused:
                if not (refused.about_bound or refused.too_long):
                    raise
                _add_refused(trials, began, time.perf_counter() - begun)
                if not refused.about_bound:
                    break  # prompt and answer together may be too long where the prompt alone is not
                self._accepted[model] = self._accepted.get(model, 0) + 1
        async with self._answering(model):
            return completion(_object(await self._client.post(CHAT, cast_to=Raw, content=_json(body))))

    async def send(self, model: str, **fields: Any) -> Body:
        """Send a chat request with these fields, and return the response as it is; CallFailed, InvalidRequest."""
        async with self._answering(model):
            return _object(
                await self._client.post(CHAT, cast_to=Raw, content=_json({"model": model, **fields}))
            )

    def _bound(self, model: str) -> Bound | None:
        return self._bounded_by[self._accepted.get(model, 0)]

    async def embed(
        self, model: str, texts: Sequence[str], dimensions: int | None
    ) -> tuple[list[list[float]], Tokens]:
        """One embeddings request; CallFailed, InvalidRequest."""
        body: Body = {"model": model, "input": list(texts), "encoding_format": "base64"}
        if dimensions is not None:
            body["dimensions"] = dimensions
        async with self._answering(model):
            response = await self._client.post("/embeddings", cast_to=Raw, content=_json(body))
            return vectors(_object(response), len(texts))

    @asynccontextmanager
    async def _answering(self, model: str) -> AsyncGenerator[None]:
        """Limit the time of a request; the SDK's errors become CallFailed and InvalidRequest."""
        try:
            async with asyncio.timeout(self._seconds):
                yield
        except (TimeoutError, openai.APITimeoutError):
            raise CallFailed("timed_out", f"no answer within {self._seconds:g} s") from None
        except openai.APIStatusError as error:
            raise self._failure(error, model) from None
        except openai.APIConnectionError as error:
            raise CallFailed("provider_error", f"connection failed: {_kind(error.__cause__)}") from None
        except (orjson.JSONDecodeError, openai.APIError) as error:
            raise CallFailed("provider_error", f"unreadable response: {_kind(error)}") from None

    def _failure(self, error: openai.APIStatusError, model: str) -> Exception:
        status, code = error.status_code, word_of(error.code) or word_of(error.type) or "no code"
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
            where = f" ({param})" if (param := word_of(error.param)) else ""
            too_long = any(word in said for word in TOO_LONG)
            about_bound = not too_long and any(bound in f"{error.param} {said}" for bound in BOUNDS)
            return InvalidRequest(
                f"{status} {code}{where}",
                too_long=too_long,
                about_bound=about_bound,
                about_items="maxitems" in said,
            )
        return CallFailed("provider_error", f"{status} {code}", wait)

    async def close(self) -> None:
        """Close the connections."""
        await self._client.close()


def _json(body: Body) -> bytes:
    return orjson.dumps(body)


def _object(response: httpx2.Response) -> Body:
    return object_of(orjson.loads(response.content))


def _add_refused(trials: list[Trial] | None, began: datetime, seconds: float) -> None:
    if trials is not None:
        trials.append(Trial("provider_error", Tokens(), began, seconds, error=InvalidRequest.__name__))


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
    """A string, or the texts of a list of parts without the model's thoughts."""
    return text_of(content) or "".join(map(part_text, objects_of(content)))


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
    ordered = sorted(data, key=lambda entry: count_of(entry.get("index")))
    found = [_numbers(entry.get("embedding")) for entry in ordered]
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


NAME = "openai"

KEY = "OPENAI_API_KEY"


def response_format(answer: type[ModelAnswer], *, bounded: bool = False) -> Body:
    """Strict structured output."""
    schema: Body = {"name": answer.__name__, "strict": True, "schema": schema_of(answer, bounded=bounded)}
    return {"type": "json_schema", "json_schema": schema}


def wire_to_openai(
    api_key: str, pool: httpx2.AsyncClient, seconds: float, base_url: str | None = None
) -> OpenAIWire:
    """Requests to OpenAI itself."""
    return OpenAIWire(NAME, api_key, f"the key in {KEY}", pool, seconds, base_url, ("max_completion_tokens",))


class OpenAIChat(ChatAdapter[OpenAIWire]):
    """OpenAI's own models: a ChatProvider."""

    async def complete(
        self,
        model: str,
        system: str,
        turns: Sequence[PromptTurn],
        answer: type[ModelAnswer],
        most: int | None = None,
        trials: list[Trial] | None = None,
    ) -> Completion:
        """One request, held to the answer's schema."""
        effort = openai_effort(model, self._effort)
        if most is not None and thinks(model):
            most += THOUGHTS
        return await self._connection.chat(
            model, system, turns, response_format(answer), effort, most, trials
        )


class OpenAIEmbeddings(Adapter[OpenAIWire]):
    """Vectors of any endpoint that speaks OpenAI's format: an EmbeddingProvider.

    `dimensions` None: the model's own, and the endpoint is not asked for a number.
    """

    def __init__(self, wire: OpenAIWire, dimensions: int | None = None) -> None:
        super().__init__(wire)
        self._dimensions = dimensions

    async def embed(self, model: str, texts: Sequence[str]) -> tuple[list[list[float]], Tokens]:
        """One request."""
        return await self._connection.embed(model, texts, self._dimensions)


Form = Literal["schema", "json", "text"]

FORMS: tuple[Form, ...] = ("schema", "json", "text")

THOUGHT_TOKENS = 2_048
"""Tokens beyond its answer for a model that thinks in it; what cuts it off all the same has more the next time."""

NO_KEY = "none"
"""Sent where no key is given: local servers want none, and the SDK wants some."""


def wire_to(
    url: str, api_key: str | None, key_variable: str, pool: httpx2.AsyncClient, seconds: float
) -> OpenAIWire:
    """Requests to an endpoint given by its base URL."""
    key = f"the key in {key_variable}" if api_key else f"a call without a key (none in {key_variable})"
    return OpenAIWire(provider_name(url), api_key or NO_KEY, key, pool, seconds, url)


@dataclass(frozen=True, slots=True)
class _Question:
    """A request without the form of its answer; `most`: the answer's tokens, thoughts included."""

    model: str
    system: str
    turns: Sequence[PromptTurn]
    answer: type[ModelAnswer]
    most: int | None
    trials: list[Trial]
    """Requests made on the way to the one that counts."""


@dataclass(frozen=True, slots=True)
class _Try:
    """One request in one form: an answer, or the refusal of the form."""

    started_at: datetime
    seconds: float
    found: Completion | None
    refused: InvalidRequest | None

    def completed(self, tries: Sequence["_Try"]) -> Completion:
        """Its answer, with the tokens of all; the refusal if that is what it brought."""
        if self.found is None:
            raise self.refused or InvalidRequest("no form of answer is accepted", too_long=False)
        spent = reduce(
            Tokens.plus, (attempt.found.tokens for attempt in tries if attempt.found is not None), Tokens()
        )
        return replace(self.found, tokens=spent)

    def trial(self) -> Trial:
        """As a call that did not count."""
        if self.found is None:
            error = type(self.refused).__name__
            return Trial("provider_error", Tokens(), self.started_at, self.seconds, error=error)
        model = self.found.response_model
        return Trial("invalid", self.found.tokens, self.started_at, self.seconds, model)


class CompatibleChat(ChatAdapter[OpenAIWire]):
    """A ChatProvider; tries a JSON Schema, then JSON mode, then plain text, and keeps to what worked of a model.

    A form is known to work once an answer in it was of the shape asked for: some endpoints accept a schema and
    ignore it. `effort` goes to every model as it is: what a compatible endpoint takes is not known.
    """

    def __init__(self, wire: OpenAIWire, effort: Effort | None = None) -> None:
        super().__init__(wire, effort)
        self._known: dict[str, Form] = {}
        self._accepted: dict[str, Form] = {}
        self._unbounded = set[str]()
        """Models that refused a schema because of the most items of its lists."""

    @property
    def wire(self) -> OpenAIWire:
        """Return the connection, to try a model with."""
        return self._connection

    @property
    def forms(self) -> Mapping[str, Form]:
        """Return what has been found out, by model."""
        return self._known

    async def complete(
        self,
        model: str,
        system: str,
        turns: Sequence[PromptTurn],
        answer: type[ModelAnswer],
        most: int | None = None,
        trials: list[Trial] | None = None,
    ) -> Completion:
        """One request; until the model's form is known up to three, their tokens added up, and added to `trials`.

        A repair is one request all the same: a question that no form helps has a bounded number of calls.
        """
        form = self._known.get(model) or (self._accepted.get(model) if len(turns) > 1 else None)
        most = None if most is None else most + THOUGHT_TOKENS
        question = _Question(model, system, turns, answer, most, trials if trials is not None else [])
        if form is None:
            return await self._find_out(question)
        return _json_of(await self._asked(form, question))

    async def _find_out(self, question: "_Question") -> Completion:
        model, answer = question.model, question.answer
        tries: list[_Try] = []
        try:
            for form in FORMS:
                tries.append(await self._tried(form, question))
                found = tries[-1].found
                if found is None:
                    continue
                self._accepted[model] = form
                if found.finish != "complete":
                    break
                if not isinstance(parsed(found.text, answer), str):
                    self._known[model] = form
                    break
                if not isinstance(await read(found.text, answer), str):
                    break  # usable: nothing more is paid to find the form out
        except BaseException:
            question.trials.extend(found.trial() for found in tries)
            raise
        counts = next((attempt for attempt in reversed(tries) if attempt.found is not None), tries[-1])
        question.trials.extend(found.trial() for found in tries if found is not counts)
        return counts.completed(tries)

    async def _tried(self, form: Form, question: "_Question") -> "_Try":
        """One request; a refusal of its form is noted, other failures are raised."""
        began, begun = datetime.now(UTC), time.perf_counter()
        found, refused = None, None
        try:
            found = _json_of(await self._asked(form, question))
        except InvalidRequest as error:
            if error.too_long:
                raise
            if error.about_items and question.model not in self._unbounded:
                self._unbounded.add(question.model)
                _add_refused(question.trials, began, time.perf_counter() - begun)
                return await self._tried(form, question)
            refused = error
        return _Try(began, time.perf_counter() - begun, found, refused)

    def _asked(self, form: Form, question: "_Question") -> Coroutine[Any, Any, Completion]:
        answer, system = question.answer, question.system
        return self._connection.chat(
            question.model,
            system if form == "schema" else f"{system}\n\n{described(answer)}",
            question.turns,
            _format(form, answer, bounded=question.model not in self._unbounded),
            self._effort,
            question.most,
            question.trials,
        )


def _json_of(found: Completion) -> Completion:
    """The JSON in a complete answer, without what stands around it."""
    if found.finish != "complete":
        return found
    return Completion(found_json(found.text), found.finish, found.tokens, found.response_model)


def _format(form: Form, answer: type[ModelAnswer], *, bounded: bool) -> Body | None:
    if form == "schema":
        return response_format(answer, bounded=bounded)
    return {"type": "json_object"} if form == "json" else None
