"""Where a question goes: the provider, the model, and the guard and breaker that stand before it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from eden_memory.models.calls import ChatProvider
from eden_memory.models.guard.breaker import Breaker, Ping
from eden_memory.models.guard.guard import Guard
from eden_memory.models.question import Asking


@dataclass(frozen=True, slots=True)
class Route:
    """Where one question goes."""

    provider: ChatProvider
    model: str
    guard: Guard
    breaker: Breaker
    parameters: Mapping[str, str]
    """The endpoint and the effort that an answer depends on besides model and prompt."""


class Router:
    """Any provider's chat models; `choose` names provider and model of a question, or raises EdenError."""

    def __init__(
        self,
        choose: Callable[[Asking], tuple[ChatProvider, str]],
        guard: Callable[[ChatProvider], Guard],
        ping: Callable[[ChatProvider, str], Ping],
        effort: str | None = None,
    ) -> None:
        self._choose, self._guard, self._ping = choose, guard, ping
        self._set = {"effort": effort} if effort else {}

    def route(self, asking: Asking) -> Route:
        """The route of a question."""
        provider, model = self._choose(asking)
        guard = self._guard(provider)
        breaker = guard.breaker(model, self._ping(provider, model))
        return Route(provider, model, guard, breaker, {"provider": provider.name, **self._set})
