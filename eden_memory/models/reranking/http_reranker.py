"""A reranker behind HTTP, in the form that Cohere, Jina, Voyage and others share, or that of TEI; port Reranker.

`POST {"model", "query", "documents"}` answers `{"results": [{"index", "relevance_score"}]}`;
text-embeddings-inference takes `{"query", "texts"}` and answers `[{"index", "score"}]`. Scores are relevances,
0 to 1, as these give them.
"""

from collections.abc import Sequence
from math import isfinite
from typing import Annotated, Any

import httpx2
from pydantic import BaseModel, ConfigDict, Field, SecretStr, TypeAdapter, ValidationError

from eden_memory.failures import ProviderError

SECONDS = 5.0


class _Judged(BaseModel):
    model_config = ConfigDict(extra="ignore")

    index: Annotated[int, Field(ge=0)]
    relevance_score: float | None = None
    score: float | None = None

    @property
    def relevance(self) -> float:
        """0 to 1."""
        found = self.relevance_score if self.relevance_score is not None else self.score
        if found is None or not isfinite(found):
            raise ProviderError("the reranker gave no score")
        return min(1.0, max(0.0, found))


_LIST: TypeAdapter[list[_Judged]] = TypeAdapter(list[_Judged])


class HttpReranker:
    """`url` is the whole address (`https://api.cohere.com/v2/rerank`, `http://127.0.0.1:8080/rerank`).

    With a `model` it is asked as Cohere is, without one as text-embeddings-inference is.
    """

    def __init__(
        self,
        url: str,
        model: str | None = None,
        key: SecretStr | None = None,
        *,
        seconds: float = SECONDS,
        transport: httpx2.AsyncBaseTransport | None = None,
    ) -> None:
        headers = {"authorization": f"Bearer {key.get_secret_value()}"} if key else {}
        self._url, self._model = url, model
        self._client = httpx2.AsyncClient(timeout=seconds, headers=headers, transport=transport)

    async def relevances(self, query: str, texts: Sequence[str]) -> Sequence[float]:
        """0 to 1, in order; ProviderError for anything else than a relevance of every text."""
        try:
            answer = await self._client.post(self._url, json=self._asked(query, texts))
            answer.raise_for_status()
            said: Any = answer.json()
            judged = _LIST.validate_python(said["results"] if isinstance(said, dict) else said)
        except (httpx2.HTTPError, ValidationError, ValueError, KeyError, TypeError) as error:
            raise ProviderError(f"the reranker did not answer: {type(error).__name__}") from error
        found = {one.index: one.relevance for one in judged}
        if found.keys() != set(range(len(texts))):
            raise ProviderError(f"the reranker judged {len(found)} of {len(texts)} texts")
        return [found[number] for number in range(len(texts))]

    async def close(self) -> None:
        """Let go of the connections."""
        await self._client.aclose()

    def _asked(self, query: str, texts: Sequence[str]) -> dict[str, Any]:
        if self._model is None:
            return {"query": query, "texts": list(texts), "truncate": True}
        return {"model": self._model, "query": query, "documents": list(texts), "top_n": len(texts)}
