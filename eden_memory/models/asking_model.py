"""Asks a chat model; an answer that is stored is never paid for again."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import reduce
from typing import Generic, cast

from eden_memory.errors import PermanentError, ProviderError, Splits, UnreadableAnswers
from eden_memory.logs import LibraryLogger
from eden_memory.metrics import LLM_UNREADABLE
from eden_memory.models import judging
from eden_memory.models.breaker import Breaker, Ping
from eden_memory.models.call_accounts import (
    Accounts,
    Cost,
    Ended,
    call_id,
    error_kind,
    of_kept,
    price,
    unanswered_id,
    with_id,
)
from eden_memory.models.guard import Guard
from eden_memory.models.judging import (
    REFUSED,
    SET_ASIDE,
    TRUNCATED,
    CallBudget,
    Readings,
    complete_items,
    cut_short,
    most_tokens,
    read,
)
from eden_memory.models.provider_calls import (
    SHORTEST_CALL,
    CallFailed,
    ChatProvider,
    Completion,
    PromptTurn,
    Stopwatch,
    Tokens,
    Trial,
)
from eden_memory.models.question import A, Answered, Asking, Earlier, Kept, LanguageModel, Prompt
from eden_memory.models.stored_answers import AnswerStore, chain_of, exhausted, first_key, next_key
from eden_memory.schemas.answers import ModelAnswer
from eden_memory.schemas.documents import Answer
from eden_memory.schemas.events.usage import CallOutcome
from eden_memory.schemas.provenance import Call
from eden_memory.stages.handler_run import RUN

log = LibraryLogger()


@dataclass(frozen=True, slots=True)
class Route:
    """The provider and model to which one question goes."""

    provider: ChatProvider
    model: str
    guard: Guard
    breaker: Breaker
    parameters: Mapping[str, str]
    """The endpoint and effort on which an answer depends, besides model and prompt."""


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


@dataclass(frozen=True, slots=True)
class Request:
    """A question, for whom it is asked, and the key of its answer."""

    key: str
    unit: str
    prompt: Prompt
    turns: Sequence[PromptTurn]
    answer: type[ModelAnswer]
    asking: Asking
    repair: int = 0
    kept: int = 0
    """The number of answers to this question that are stored already."""


class Chat:
    """Makes requests; an answer comes back not yet judged, stored or recorded."""

    def __init__(
        self, accounts: Accounts, cost: Cost, budget: CallBudget, *, log_prompts: bool = False
    ) -> None:
        self._accounts, self._cost, self._budget = accounts, cost, budget
        self._log_prompts = log_prompts

    async def call(self, route: Route, request: Request) -> Answer:
        """Return the answer in the form in which it is stored; CallFailed, PermanentError."""
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
        """Record a request that preceded the one that counts."""
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
    """Return the time of the request that counts, which came last."""
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


Check = Callable[[A], str | None]

OUTCOMES: Mapping[str, CallOutcome] = {TRUNCATED: "truncated", REFUSED: "refused"}


@dataclass(slots=True)
class _Question(Generic[A]):
    """The course of one question through its answers."""

    prompt: Prompt
    answer: type[A]
    asking: Asking
    check: Check[A] | None
    unit: str
    key: str
    known: dict[str, Answer]
    turns: Sequence[PromptTurn]
    of: str
    """The stage and model whose answers are read."""
    read_before: int
    """How many of those could be read when it was asked."""
    answers: int = 0
    invalid: int = 0
    best: Answered[A] | None = None
    """A valid answer with a shortcoming, used if nothing better comes."""
    writing: "asyncio.Task[Answer] | None" = None
    """The newest answer, while it is being stored."""

    def request(self) -> Request:
        """The request for the next answer."""
        return Request(
            key=self.key,
            unit=self.unit,
            prompt=self.prompt,
            turns=self.turns,
            answer=self.answer,
            asking=self.asking,
            repair=self.answers,
            kept=self.answers,
        )

    async def value_of(self, kept: Answer) -> tuple[A, int] | str:
        """Return the value of an answer and how many of its items cannot be read, or what is wrong with it."""
        text = kept.text or ""
        if kept.invalid == TRUNCATED and self.answers and self.prompt.takes_part:
            return await asyncio.to_thread(complete_items, text, self.answer)
        if kept.invalid is not None and kept.invalid in OUTCOMES:
            return kept.invalid
        return await read(text, self.answer)

    @property
    def session(self) -> str:
        """Whose question it is."""
        return self.asking.session_id or self.asking.scope or self.unit

    @property
    def user(self) -> str:
        """Who brought it about; its session, if that is of several users."""
        return self.asking.user_id or self.session

    def ask_anew(self, kept: Answer) -> None:
        """Continue behind answers that could not be read as if there were none."""
        self.key = next_key(kept.id, kept.text or "")
        self.turns = judging.turns_of(self.prompt)
        self.answers = self.invalid = 0

    def ask_again(self, kept: Answer, problem: str, note: str) -> None:
        """Continue after an unsatisfactory answer."""
        text = kept.text or ""
        self.key = next_key(kept.id, text)
        self.turns = judging.turns_of(self.prompt, judging.shown_again(text, problem), note)


class AskingModel:
    """Asks, stores, judges, and asks again: a LanguageModel."""

    def __init__(
        self,
        router: Router,
        chat: Chat,
        answers: AnswerStore,
        budget: CallBudget,
        accounts: Accounts,
        namespace: str = "live",
        offline: Callable[[Asking], LanguageModel | None] = lambda _: None,
    ) -> None:
        """`offline`: the model that answers a question for which no provider is chosen."""
        self._offline = offline
        self._router, self._chat, self._answers = router, chat, answers
        self._budget, self._accounts = budget, accounts
        self._readings = Readings()
        self._prefix = "" if namespace == "live" else f"{namespace}/"

    async def earlier(self, unit: str) -> Earlier | None:
        """Return the answer that arrived for a unit before a crash."""
        chain = chain_of(await self._answers.of_unit(self._prefix + unit))
        if not chain:
            if (run := RUN.get()) is not None:
                run.unanswered.add(unit)
            return None
        answered = any(kept.invalid is None for kept in chain)
        return Earlier(chain[0].shown, exhausted=exhausted(chain), answered=answered)

    async def answered(self, call_id: str, answer: type[A]) -> Kept[A] | None:
        """Return what a call brought; None if its answer is kept no longer, or is another one's."""
        kept = await self._answers.of_call(call_id)
        found = None if kept is None else await read(kept.text or "", answer)
        if kept is None or isinstance(found, str | None):
            return None
        return Kept(Answered(found[0], _call(kept), kept.provider), kept.shown)

    async def ask(
        self,
        prompt: Prompt,
        answer: type[A],
        asking: Asking,
        check: Check[A] | None = None,
    ) -> Answered[A]:
        """The answer; ProviderError, PermanentError, EdenError where no model is named."""
        if (offline := self._offline(asking)) is not None:
            return await offline.ask(prompt, answer, asking, check)
        question = await self._question(prompt, answer, asking, check)
        while True:
            try:
                if (kept := await self._kept(question)) is not None:
                    found = True
                else:
                    self._readings.admit(question.of, question.session)
                    arrived = await self._chat.call(self._router.route(asking), question.request())
                    await self._check_readable(question, arrived)
                    kept, found = await self._keep(question, arrived)
                answered = await self._judge(question, kept, again=found)
            except PermanentError:
                if question.best is None:
                    raise
                answered = question.best
            if answered is not None:
                self._budget.settled(question.unit)
                return answered

    async def _question(
        self, prompt: Prompt, answer: type[A], asking: Asking, check: Check[A] | None
    ) -> _Question[A]:
        """Where to begin: with the answer that the unit has got, else with what the prompt is kept under."""
        unit = self._prefix + asking.unit
        first = self._first_key(prompt, answer, asking)
        known = {} if self._just_looked_up(unit) else dict(await self._answers.of_unit(unit, first))
        chain = chain_of({key: kept for key, kept in known.items() if kept.unit == unit})
        if chain and chain[0].shown != asking.shown:
            raise ProviderError("an answer to this question has arrived meanwhile: decided on what that saw")
        key = chain[0].id if chain else first
        of = f"{asking.stage}, {self._router.route(asking).breaker.name}"
        turns, read_before = judging.turns_of(prompt), self._readings.count(of)
        if asking.part_of is not None:
            read_before = self._readings.read_before(self._prefix + asking.part_of, read_before)
        return _Question(prompt, answer, asking, check, unit, key, known, turns, of, read_before)

    def _just_looked_up(self, unit: str) -> bool:
        """Whether the handler has seen that nothing has arrived.

        Never in another namespace than live: another's answer may do there, and the look-up keeps a reform's cap.
        """
        run = RUN.get()
        if run is None or self._prefix or unit not in run.unanswered:
            return False
        run.unanswered.discard(unit)
        return True

    def _first_key(self, prompt: Prompt, answer: type[A], asking: Asking) -> str:
        route = self._router.route(asking)
        return first_key(route.model, prompt, answer, asking.anew, route.parameters)

    async def _kept(self, question: _Question[A]) -> Answer | None:
        """Return the next answer of a question if it is stored already."""
        kept = question.known.get(question.key)
        if kept is None and question.answers:
            kept = (await self._answers.find([question.key])).get(question.key)
        return kept

    async def _check_readable(self, question: _Question[A], arrived: Answer) -> None:
        """While answers cannot be read, leave one more of them unstored, and make no repair; ProviderError."""
        if not self._readings.fails(question.of):
            return
        found = await question.value_of(arrived)
        if isinstance(found, str) and found not in OUTCOMES:
            ended = of_kept(arrived, "invalid", question.answers, 0)
            self._accounts.note(with_id(ended, arrived.id), question.asking)
            raise self._set_aside(question)

    def _set_aside(self, question: _Question[A]) -> ProviderError:
        self._budget.settled(question.unit)
        return self._readings.unreadable(question.of, question.unit, question.session, question.user)

    async def _keep(self, question: _Question[A], arrived: Answer) -> tuple[Answer, bool]:
        """Store an answer; return what is stored, and whether that is another worker's.

        A handler goes on with what it was given while that is written (eden_memory.stages.handler_run).
        """
        run = RUN.get()
        if run is not None and question.check is None:
            question.writing = run.begin(self._answers.keep(arrived), arrived)
            return arrived, False
        try:
            kept = await self._answers.keep(arrived)
        except BaseException:
            self._note(question, arrived, "answered", items=0, again=False)
            raise
        return self._instead(question, arrived, kept)

    def _instead(self, question: _Question[A], arrived: Answer, kept: Answer) -> tuple[Answer, bool]:
        """Return the stored answer, and whether another one was stored first; ours is noted then."""
        if kept == arrived:
            return kept, False
        own = with_id(of_kept(arrived, "answered", question.answers, 0), arrived.id)
        self._accounts.note(own, question.asking)
        return kept, True

    async def _stored(self, question: _Question[A], kept: Answer) -> tuple[Answer, bool]:
        """Return what is stored in place of a useless answer, and whether it is another answer."""
        writing, question.writing = question.writing, None
        run = RUN.get()
        if writing is None or run is None:
            return kept, False
        return self._instead(question, kept, await run.stored(writing))

    async def _judge(self, question: _Question[A], kept: Answer, *, again: bool) -> Answered[A] | None:
        """Return the answer if it is satisfactory; otherwise the question continues after it."""
        if kept.invalid == SET_ASIDE:
            if self._readings.waits(question.of, question.unit):
                raise self._set_aside(question)
            question.read_before = self._readings.read_before(question.unit, question.read_before)
            question.ask_anew(kept)
            return None
        found = await question.value_of(kept)
        if isinstance(found, str):
            stored, others = await self._stored(question, kept)
            if others:
                return await self._judge(question, stored, again=True)
            await self._invalid(question, kept, found, again=again)
            return None
        value, unreadable = found
        if not again:
            self._readings.readable(question.of, question.user)
        LLM_UNREADABLE.labels(question.asking.stage, kept.model).inc(0 if again else unreadable)
        ended: CallOutcome = "truncated" if kept.invalid == TRUNCATED else "answered"
        self._note(question, kept, ended, items=_items(value), again=again)
        answered = Answered(value, _call(kept), kept.provider)
        shortcoming = question.check(value) if question.check and question.best is None else None
        question.answers += 1
        if shortcoming is None:
            return answered
        question.best = answered
        question.ask_again(kept, shortcoming, judging.shortcoming_note(shortcoming))
        return None

    async def _invalid(self, question: _Question[A], kept: Answer, problem: str, *, again: bool) -> None:
        """Mark the answer and continue with a repair; PermanentError after too many, Splits of one that splits.

        ProviderError, if nothing can be read and nobody else had a readable answer meanwhile: it may be the model.
        """
        self._note(question, kept, OUTCOMES.get(problem, "invalid"), items=0, again=again)
        question.answers += 1
        question.invalid += problem != TRUNCATED or question.asking.splits
        splits = question.asking.splits and problem != REFUSED and question.best is None
        if splits and question.invalid >= judging.MOST_INVALID_OF_ALL:
            if kept.invalid is None:
                await self._answers.judged_invalid(kept.id, problem)
            self._readings.hold(question.unit, question.read_before)
            raise Splits(f"{question.answers} answers, none of them valid; the last: {problem}")
        spent = question.invalid >= judging.MOST_INVALID and question.best is None
        readable = self._readings.count(question.of) > question.read_before
        aside = spent and problem not in OUTCOMES and kept.invalid is None and not readable
        if kept.invalid is None:
            await self._answers.judged_invalid(kept.id, SET_ASIDE if aside else problem)
        if aside:
            raise self._set_aside(question)
        reason = f"{question.answers} answers, none of them valid; the last: {problem}"
        if spent and problem not in OUTCOMES:
            raise UnreadableAnswers(reason, question.session)
        if spent or question.best is not None:
            raise PermanentError(reason)
        question.ask_again(kept, problem, judging.invalid_note(problem))

    def _note(
        self, question: _Question[A], kept: Answer, outcome: CallOutcome, *, items: int, again: bool
    ) -> None:
        """Record the call that brought an answer, unless it was paid for another question."""
        if kept.unit == question.unit:
            ended = of_kept(kept, outcome, question.answers, items)
            self._accounts.note(ended, question.asking, again=again)


def _call(kept: Answer) -> Call:
    return Call(call_id=kept.call_id, model=kept.model, prompt=kept.prompt or "", cost_usd=kept.cost_usd)


def _items(value: ModelAnswer) -> int:
    """The number of facts, reflections or decisions in an answer."""
    lists = [cast("list[object]", field) for field in vars(value).values() if isinstance(field, list)]
    return sum(map(len, lists)) if lists else 1
