"""The smallest call of a model: asks whether it is there at all, and is accounted for like any other."""

from collections.abc import Awaitable, Callable
from dataclasses import replace

from eden_memory.models.call_accounts import Accounts, Cost, Ended, error_kind, price, unanswered_id
from eden_memory.models.calls import ChatProvider, EmbeddingProvider, PromptTurn, Stopwatch, Tokens
from eden_memory.models.guard.breaker import Ping
from eden_memory.models.question import Asking
from eden_memory.schemas.answers import ModelAnswer

NAME = "ping/1"
STAGE = "ping"
SYSTEM = 'Answer with the JSON object {"works": true} and nothing else.'
MOST = 64
"""Tokens of its answer."""
QUESTION = PromptTurn("user", "Do you work?")
ON_NOBODYS_BEHALF = Asking(STAGE, "facts", STAGE, "", "")


class Works(ModelAnswer):
    """Answer to the smallest question there is."""

    works: bool


class Pings:
    """Makes the pings of chat and embedding models."""

    def __init__(self, accounts: Accounts, cost: Cost) -> None:
        self._accounts, self._cost = accounts, cost

    def chat(self, provider: ChatProvider, model: str) -> Ping:
        """Of a chat model."""

        async def ask() -> Tokens:
            return (await provider.complete(model, SYSTEM, [QUESTION], Works, MOST)).tokens

        return lambda: self._ping(Ended.of("chat", provider.name, model, NAME), ask)

    def embeddings(self, provider: EmbeddingProvider, model: str) -> Ping:
        """Of an embedding model."""

        async def ask() -> Tokens:
            return (await provider.embed(model, ["ping"]))[1]

        return lambda: self._ping(Ended.of("embeddings", provider.name, model), ask)

    async def _ping(self, ended: Ended, ask: Callable[[], Awaitable[Tokens]]) -> None:
        watch = Stopwatch()
        try:
            with watch.timing():
                tokens = await ask()
        except BaseException as error:
            outcome, kind = error_kind(error)
            self._note(replace(ended, outcome=outcome, error=kind), watch)
            raise
        cost = price(self._cost, ended.provider, ended.model, tokens)
        self._note(replace(ended, tokens=tokens, cost=cost), watch)

    def _note(self, ended: Ended, watch: Stopwatch) -> None:
        took = replace(ended, started_at=watch.started_at, seconds=watch.seconds)
        self._accounts.note(replace(took, call_id=unanswered_id(STAGE)), ON_NOBODYS_BEHALF)
