"""The interfaces of language models, embedders and rerankers."""

from collections.abc import Callable, Sequence
from typing import Protocol

from eden_memory.models.question import A, Answered, Asking, Earlier, Prompt
from eden_memory.schemas.provenance import Embedding


class Reranker(Protocol):
    """Judges texts against a query, both read together."""

    async def relevances(self, query: str, texts: Sequence[str]) -> Sequence[float]:
        """Of each text, in order, 0 to 1; what fails raises (the search goes on without)."""
        ...


class Embedder(Protocol):
    """Turns texts into vectors."""

    @property
    def model(self) -> str:
        """Its name, as it stands beside every vector."""
        ...

    @property
    def dimensions(self) -> int:
        """Numbers of a vector."""
        ...

    async def embed(self, texts: Sequence[str], asking: Asking | None = None) -> Sequence[Embedding]:
        """One vector for each text, in order, each of length 1; ProviderError, PermanentError."""
        ...


class LanguageModel(Protocol):
    """Asks a model and returns a valid answer, however it is reached."""

    async def earlier(self, unit: str) -> Earlier | None:
        """Return what arrived for a unit before a crash; the unit's next `ask` returns its answer."""
        ...

    async def ask(
        self,
        prompt: Prompt,
        answer: type[A],
        asking: Asking,
        check: Callable[[A], str | None] | None = None,
    ) -> Answered[A]:
        """The answer, kept before anything is decided from it; ProviderError, PermanentError.

        An answer that is not an `answer` is asked for again with the error (at most twice). `check` may name a
        shortcoming (None: fine): the model is shown it once, and the answer after that is taken as it is.
        """
        ...
