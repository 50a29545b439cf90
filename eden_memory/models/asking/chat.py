"""Where a question goes: the provider, the model, and the guard and breaker that stand before it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import reduce

from eden_memory.failures import PermanentError
from eden_memory.logs import LibraryLogger
from eden_memory.models.asking.judging import cut_short, most_tokens
from eden_memory.models.call_accounts import (
    Accounts,
    Cost,
    Ended,
    call_id,
    error_kind,
    price,
    unanswered_id,
)
from eden_memory.models.calls import (
    SHORTEST_CALL,
    CallFailed,
    ChatProvider,
    Completion,
    PromptTurn,
    Stopwatch,
    Tokens,
    Trial,
)
from eden_memory.models.guard.breaker import Breaker, Ping
from eden_memory.models.guard.budget import CallBudget
from eden_memory.models.guard.guard import Guard
from eden_memory.models.question import Asking, Prompt
from eden_memory.schemas.answers import ModelAnswer
from eden_memory.schemas.documents import Answer


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


log = LibraryLogger()


@dataclass(frozen=True, slots=True)
class Request:
    """A question, whom it is asked for, and the key of its answer."""

    key: str
    unit: str
    prompt: Prompt
    turns: Sequence[PromptTurn]
    answer: type[ModelAnswer]
    asking: Asking
    repair: int = 0
    kept: int = 0
    """How many answers to its question are kept already."""


class Chat:
    """Makes requests; the answer that comes back is unjudged, not yet kept and not yet noted."""

    def __init__(
        self, accounts: Accounts, cost: Cost, budget: CallBudget, *, log_prompts: bool = False
    ) -> None:
        self._accounts, self._cost, self._budget = accounts, cost, budget
        self._log_prompts = log_prompts

    async def call(self, route: Route, request: Request) -> Answer:
        """The answer as it is to be kept; CallFailed, PermanentError."""
        self._budget.check(request.unit, request.kept)
        most = most_tokens(request.prompt.answer_tokens, request.repair)
        trials, watch = list[Trial](), Stopwatch()
        try:
            completion = await route.guard.run(
                route.breaker,
                request.unit,
                lambda: route.provider.complete(
                    route.model, request.prompt.system, request.turns, request.answer, most, trials
                ),
                stage=request.asking.stage,
                tokens=most,
                watch=watch,
            )
        except BaseException as error:
            if watch.left:
                self._failed(route, request, _without(trials, watch), error)
            raise
        finally:
            for trial in trials:
                self._tried(route, request, trial)
        self._budget.charge(request.unit, "answered")
        if self._log_prompts:
            _log(request, completion)
        own = replace(
            completion, tokens=reduce(Tokens.less, (trial.tokens for trial in trials), completion.tokens)
        )
        return self._kept(route, request, _without(trials, watch), own)

    def _tried(self, route: Route, request: Request, trial: Trial) -> None:
        """Note a request that was made before the one that counts."""
        paid = trial.outcome == "invalid"
        ended = Ended(
            call_id=unanswered_id(request.key),
            operation="chat",
            provider=route.provider.name,
            model=route.model,
            outcome=trial.outcome,
            started_at=trial.started_at,
            seconds=trial.seconds,
            tokens=trial.tokens,
            cost=price(self._cost, route.provider.name, route.model, trial.tokens) if paid else None,
            response_model=trial.response_model,
            prompt=request.prompt.name,
            repair=request.repair,
            error=trial.error,
        )
        self._accounts.note(ended, request.asking)

    def _failed(self, route: Route, request: Request, watch: Stopwatch, error: BaseException) -> None:
        outcome, kind = error_kind(error)
        if isinstance(error, PermanentError):
            self._budget.refused(request.unit, str(error))
        elif outcome != "cancelled" and (not isinstance(error, CallFailed) or error.charged):
            self._budget.charge(request.unit, outcome)
        ended = Ended(
            call_id=unanswered_id(request.key),
            operation="chat",
            provider=route.provider.name,
            model=route.model,
            outcome=outcome,
            started_at=watch.started_at,
            seconds=watch.seconds,
            prompt=request.prompt.name,
            repair=request.repair,
            error=kind,
        )
        self._accounts.note(ended, request.asking)

    def _kept(self, route: Route, request: Request, watch: Stopwatch, completion: Completion) -> Answer:
        tokens = completion.tokens
        return Answer(
            id=request.key,
            call_id=call_id(request.key),
            operation="chat",
            provider=route.provider.name,
            model=route.model,
            response_model=completion.response_model,
            prompt=request.prompt.name,
            unit=request.unit,
            shown=request.asking.shown,
            text=completion.text,
            input_tokens=tokens.input,
            cached_tokens=tokens.cached,
            output_tokens=tokens.output,
            reasoning_tokens=tokens.reasoning,
            cost_usd=price(self._cost, route.provider.name, route.model, tokens),
            invalid=cut_short(completion),
            seconds=watch.seconds,
            answered_at=watch.ended_at,
        )


def _without(trials: Sequence[Trial], watch: Stopwatch) -> Stopwatch:
    """The time of the request that counts alone: it came last."""
    before = sum(trial.seconds for trial in trials)
    if not before:
        return watch
    seconds = max(SHORTEST_CALL, watch.seconds - before)
    return Stopwatch(watch.ended_at - timedelta(seconds=seconds), seconds, left=True)


def _log(request: Request, completion: Completion) -> None:
    log.debug(
        "model asked",
        unit=request.unit,
        prompt=request.prompt.name,
        system=request.prompt.system,
        turns=[turn.text for turn in request.turns],
        answer=completion.text,
    )
