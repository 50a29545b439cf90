"""Where a question goes: the provider, the model, and the guard and breaker that stand before it."""

from collections.abc import Callable
from dataclasses import dataclass

from eden_memory.domain.asking import Asking
from eden_memory.models.breaker import Breaker, Ping
from eden_memory.models.calls import ChatProvider
from eden_memory.models.guard import Guard


@dataclass(frozen=True, slots=True)
class Route:
    """Where one question goes."""

    provider: ChatProvider
    model: str
    guard: Guard
    breaker: Breaker


class Router:
    """One provider's chat models; `choose` names the model of a question, or raises EdenError."""

    def __init__(
        self,
        provider: ChatProvider,
        guard: Guard,
        ping: Callable[[ChatProvider, str], Ping],
        choose: Callable[[Asking], str],
    ) -> None:
        self._provider, self._guard, self._ping, self._choose = provider, guard, ping, choose

    def route(self, asking: Asking) -> Route:
        """The route of a question."""
        model = self._choose(asking)
        breaker = self._guard.breaker(model, self._ping(self._provider, model))
        return Route(self._provider, model, self._guard, breaker)
