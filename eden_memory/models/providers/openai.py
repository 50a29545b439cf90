"""OpenAI's own models: structured output by strict JSON Schema, and embeddings."""

from collections.abc import Sequence

import httpx2

from eden_memory.models.calls import Completion, PromptTurn, Tokens, Trial
from eden_memory.models.effort import THOUGHTS, openai_effort, thinks
from eden_memory.models.providers.answer_schema import schema_of
from eden_memory.models.providers.openai_wire import Body, OpenAIWire
from eden_memory.schemas.answers import Answer
from eden_memory.settings import Effort

NAME = "openai"
KEY = "OPENAI_API_KEY"


def response_format(answer: type[Answer]) -> Body:
    """Strict structured output."""
    schema: Body = {"name": answer.__name__, "strict": True, "schema": schema_of(answer)}
    return {"type": "json_schema", "json_schema": schema}


class OpenAIChat:
    """A ChatProvider."""

    def __init__(
        self,
        api_key: str,
        pool: httpx2.AsyncClient,
        seconds: float,
        base_url: str | None = None,
        effort: Effort | None = None,
    ) -> None:
        self._wire = OpenAIWire(
            NAME, api_key, f"the key in {KEY}", pool, seconds, base_url, ("max_completion_tokens",)
        )
        self._effort: Effort | None = effort

    @property
    def name(self) -> str:
        """`openai`."""
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
        """One request, held to the answer's schema."""
        effort = openai_effort(model, self._effort)
        if most is not None and thinks(model):
            most += THOUGHTS
        return await self._wire.chat(model, system, turns, response_format(answer), effort, most, trials)

    async def close(self) -> None:
        """Let go of the connections."""
        await self._wire.close()


class OpenAIEmbeddings:
    """An EmbeddingProvider; `dimensions` None: the model's own."""

    def __init__(
        self,
        api_key: str,
        pool: httpx2.AsyncClient,
        seconds: float,
        dimensions: int | None = None,
        base_url: str | None = None,
    ) -> None:
        self._wire = OpenAIWire(NAME, api_key, f"the key in {KEY}", pool, seconds, base_url)
        self._dimensions = dimensions

    @property
    def name(self) -> str:
        """`openai`."""
        return NAME

    async def embed(self, model: str, texts: Sequence[str]) -> tuple[list[list[float]], Tokens]:
        """One request."""
        return await self._wire.embed(model, texts, self._dimensions)

    async def close(self) -> None:
        """Let go of the connections."""
        await self._wire.close()
