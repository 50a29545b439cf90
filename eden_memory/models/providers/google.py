"""Google's models through google-genai: structured output by JSON Schema, and embeddings."""

import asyncio
from collections.abc import Sequence
from typing import Any

import httpx2
from google import genai
from google.genai import types

from eden_memory.models.calls import Completion, PromptTurn, Tokens, Trial
from eden_memory.models.effort import THOUGHTS, google_thinking
from eden_memory.models.providers.answer_schema import schema_of
from eden_memory.models.providers.google_wire import completion, read, translated, vectors
from eden_memory.models.providers.loose import Body
from eden_memory.schemas.answers import Answer
from eden_memory.settings import Effort

NAME = "google"
KEYS = ("GEMINI_API_KEY", "GOOGLE_API_KEY")
TEXTS_OF_A_REQUEST = 100
NO_TOOLS = types.AutomaticFunctionCallingConfig(disable=True)


class GoogleConnection:
    """A client of the Gemini API; the SDK makes no retries unless told to."""

    def __init__(
        self, api_key: str, pool: httpx2.AsyncClient, seconds: float, base_url: str | None = None
    ) -> None:
        options = types.HttpOptions(base_url=base_url, httpx_async_client=pool)
        self.client = genai.Client(api_key=api_key, vertexai=False, http_options=options)
        self.seconds = seconds
        self._pool = pool

    async def close(self) -> None:
        """Close the connections."""
        self.client.close()
        await self._pool.aclose()


class GoogleChat:
    """A ChatProvider."""

    def __init__(self, connection: GoogleConnection, effort: Effort | None = None) -> None:
        self._connection = connection
        self._effort: Effort | None = effort

    @property
    def name(self) -> str:
        """`google`."""
        return NAME

    async def complete(
        self,
        model: str,
        system: str,
        turns: Sequence[PromptTurn],
        answer: type[Answer],
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

    async def close(self) -> None:
        """Let go of the connections."""
        await self._connection.close()


class GoogleEmbeddings:
    """An EmbeddingProvider; `dimensions` None: the model's own."""

    def __init__(self, connection: GoogleConnection, dimensions: int | None = None) -> None:
        self._connection, self._dimensions = connection, dimensions

    @property
    def name(self) -> str:
        """`google`."""
        return NAME

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

    async def close(self) -> None:
        """Let go of the connections."""
        await self._connection.close()


def _thinking(model: str, effort: Effort | None) -> types.ThinkingConfig | None:
    asked = google_thinking(model, effort)
    if isinstance(asked, int):
        return types.ThinkingConfig(thinking_budget=asked)
    return None if asked is None else types.ThinkingConfig(thinking_level=types.ThinkingLevel(asked))


def _content(turn: PromptTurn) -> types.Content:
    role = "user" if turn.role == "user" else "model"
    return types.Content(role=role, parts=[types.Part(text=turn.text)])
