"""Embeds texts of many requests in as few calls as possible; each vector is stored under its text's hash."""

import asyncio
import math
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from hashlib import sha256

from eden_memory.errors import PermanentError
from eden_memory.models.breaker import Breaker, ProviderAway
from eden_memory.models.call_accounts import (
    Cost,
    Ended,
    call_id,
    error_kind,
    price,
    shared,
    shared_cost,
    unanswered_id,
)
from eden_memory.models.guard import Guard
from eden_memory.models.judging import CallBudget
from eden_memory.models.provider_calls import CallFailed, EmbeddingProvider, Stopwatch, Tokens
from eden_memory.models.question import Asking
from eden_memory.models.stored_answers import AnswerStore
from eden_memory.schemas.documents import Answer
from eden_memory.schemas.fields import pack_vector
from eden_memory.stages.handler_run import HandlerRun

TEXTS_OF_A_CALL = 256

CHARACTERS_OF_A_CALL = 200_000

SUSPECTS = 10_000


@dataclass(slots=True, eq=False)
class Wish:
    """One request: its texts by key, and their results."""

    texts: Mapping[str, str]
    asking: Asking | None
    unit: str | None
    done: "asyncio.Future[None]"
    run: HandlerRun | None = None
    """Of the handler that asks: its vectors are written while it goes on."""
    kept: dict[str, Answer] = field(default_factory=dict[str, Answer])
    paid: set[str] = field(default_factory=set[str])
    """Keys of the texts that were paid for now, for this request."""
    failed: list[Ended] = field(default_factory=list[Ended])
    """Unanswered calls that this request has to record."""

    def end(self, error: BaseException | None) -> None:
        """Let the request continue."""
        if self.done.done():
            return
        if error is None:
            self.done.set_result(None)
        else:
            self.done.set_exception(error)


@dataclass(frozen=True, slots=True)
class Line:
    """One text of a call, and the request that pays for it."""

    key: str
    text: str
    wish: Wish


class EmbeddingCalls:
    """Fulfils requests together; a request whose call failed beside others is sent alone the next time."""

    def __init__(
        self,
        provider: EmbeddingProvider,
        model: str,
        guard: Guard,
        breaker: Breaker,
        answers: AnswerStore,
        cost: Cost,
        budget: CallBudget,
        dimensions: int | None = None,
    ) -> None:
        self._provider, self._model, self._dimensions = provider, model, dimensions
        self._guard, self._breaker, self._answers = guard, breaker, answers
        self._cost, self._budget = cost, budget
        self._suspects: OrderedDict[str, None] = OrderedDict()

    async def fulfil(self, wishes: Sequence[Wish]) -> None:
        """Look up stored vectors, request the others, and let every request continue."""
        wrong: dict[str, BaseException] = {}
        try:
            kept = dict(await self._answers.find({key for wish in wishes for key in wish.texts}))
            calls = self._calls(list(self._missing(wishes, kept, wrong)))
            await asyncio.gather(*(self._call(lines, kept, wrong) for lines in calls))
        except Exception as error:  # noqa: BLE001 - handed to all who wait
            for wish in wishes:
                wish.end(error)
            return
        for wish in wishes:
            self._end(wish, kept, wrong)

    def _missing(
        self, wishes: Iterable[Wish], kept: Mapping[str, Answer], wrong: dict[str, BaseException]
    ) -> Iterator[Line]:
        """Return each text that is not stored, once; without those of requests that have cost enough."""
        asked: set[str] = set()
        for wish in wishes:
            missing = [key for key in wish.texts if key not in kept and key not in asked]
            try:
                if missing and wish.unit:
                    self._budget.check(wish.unit)
            except PermanentError as error:
                wrong.update(dict.fromkeys(missing, error))
                continue
            asked.update(missing)
            yield from (Line(key, wish.texts[key], wish) for key in missing)

    def _calls(self, lines: Sequence[Line]) -> Iterator[list[Line]]:
        """Divide the texts into calls: all together, but one for each suspect."""
        alone: dict[str, list[Line]] = {}
        for line in lines:
            suspect = line.wish.unit in self._suspects
            alone.setdefault(line.wish.unit or "" if suspect else "", []).append(line)
        for group in alone.values():
            yield from _cut(group)

    async def _call(
        self, lines: Sequence[Line], kept: dict[str, Answer], wrong: dict[str, BaseException]
    ) -> None:
        """Request these texts; store the vectors that arrive, and record failures by key."""
        name, asking = lines[0].wish.unit or lines[0].key, lines[0].wish.asking
        stage = asking.stage if asking else ""
        watch = Stopwatch()
        try:
            vectors, tokens = await self._asked(name, stage, lines, watch)
            answers = self._documents(lines, self._useful(lines, vectors, tokens, watch), tokens, watch)
        except Exception as error:  # noqa: BLE001 - handed to those who wait
            parts = _by_wish(lines)
            if isinstance(error, PermanentError) and len(parts) > 1:
                await asyncio.gather(*(self._call(part, kept, wrong) for part in parts))
            else:
                wrong.update(dict.fromkeys((line.key for line in lines), error))
            return
        for line, answer in zip(lines, answers, strict=True):
            kept[line.key] = answer
            line.wish.paid.add(line.key)
        await self._keep(lines, answers, kept)

    async def _asked(
        self, name: str, stage: str, lines: Sequence[Line], watch: Stopwatch
    ) -> tuple[list[list[float]], Tokens]:
        texts = [line.text for line in lines]
        try:
            return await self._guard.run(
                self._breaker,
                name,
                lambda: self._provider.embed(self._model, texts),
                stage=stage,
                watch=watch,
            )
        except BaseException as error:
            if watch.left:
                self._failed(lines, watch, error)
            raise

    async def _keep(self, lines: Sequence[Line], answers: Sequence[Answer], kept: dict[str, Answer]) -> None:
        """Store vectors: for a handler while it goes on; for others first, and what is stored is what they get."""
        by_key = {line.key: answer for line, answer in zip(lines, answers, strict=True)}
        first: list[Answer] = []
        for part in _by_wish(lines):
            run, own = part[0].wish.run, [by_key[line.key] for line in part]
            if run is None:
                first += own
            else:
                run.begin(self._answers.keep_all(own), own)
        kept.update((answer.id, answer) for answer in await self._answers.keep_all(first))

    def _useful(
        self, lines: Sequence[Line], vectors: Sequence[Sequence[float]], tokens: Tokens, watch: Stopwatch
    ) -> list[bytes]:
        """Return packed vectors; if one is useless, the call has failed, but is paid for all the same."""
        try:
            return self._checked(vectors)
        except CallFailed as error:
            self._failed(lines, watch, error, tokens)
            raise

    def _failed(
        self, lines: Sequence[Line], watch: Stopwatch, error: BaseException, paid: Tokens | None = None
    ) -> None:
        """Charge the requests, and let the first of them record the call."""
        outcome, kind = error_kind(error)
        units = {line.wish.unit for line in lines} - {None}
        if outcome != "cancelled" and not isinstance(error, ProviderAway):
            for unit in filter(None, units):
                if not isinstance(error, CallFailed) or error.charged:
                    self._budget.charge(unit, outcome)
                self._suspect(unit, len(units))
        ended = Ended(
            call_id=unanswered_id(lines[0].key),
            operation="embeddings",
            provider=self._provider.name,
            model=self._model,
            outcome=outcome,
            started_at=watch.started_at,
            seconds=watch.seconds,
            items=len(lines),
            error=kind,
        )
        if paid is not None:
            cost = price(self._cost, self._provider.name, self._model, paid)
            ended = replace(ended, tokens=paid, cost=cost)
        lines[0].wish.failed.append(ended)

    def _suspect(self, unit: str, beside: int) -> None:
        if beside > 1:
            self._suspects[unit] = None
            while len(self._suspects) > SUSPECTS:
                self._suspects.popitem(last=False)

    def _checked(self, vectors: Sequence[Sequence[float]]) -> list[bytes]:
        """Return packed vectors of length 1; CallFailed if one of them is useless."""
        if self._dimensions is None and vectors:
            self._dimensions = len(vectors[0])
        return [packed(vector, self._dimensions) for vector in vectors]

    def _documents(
        self, lines: Sequence[Line], vectors: Sequence[bytes], tokens: Tokens, watch: Stopwatch
    ) -> list[Answer]:
        weights = [len(line.text) for line in lines]
        total = price(self._cost, self._provider.name, self._model, tokens)
        shares = zip(shared(tokens.input, weights), shared_cost(total, weights), strict=True)
        calls = {id(part[0].wish): share_id(part) for part in _by_wish(lines)}
        documents = [
            self._document(line, vector, calls[id(line.wish)], share, watch)
            for line, vector, share in zip(lines, vectors, shares, strict=True)
        ]
        return [_counted_by(documents[0].call_id, document) for document in documents]

    def _document(
        self, line: Line, vector: bytes, call: str, share: tuple[int, Decimal | None], watch: Stopwatch
    ) -> Answer:
        return Answer(
            id=line.key,
            call_id=call,
            operation="embeddings",
            provider=self._provider.name,
            model=self._model,
            unit=line.wish.unit,
            vectors=(vector,),
            input_tokens=share[0],
            cost_usd=share[1],
            seconds=watch.seconds,
            answered_at=watch.ended_at,
        )

    def _end(self, wish: Wish, kept: Mapping[str, Answer], wrong: Mapping[str, BaseException]) -> None:
        wish.kept = {key: kept[key] for key in wish.texts if key in kept}
        error = next((wrong[key] for key in wish.texts if key in wrong), None)
        if error is None and wish.unit:
            self._budget.settled(wish.unit)
            self._suspects.pop(wish.unit, None)
        wish.end(error)


def packed(vector: Sequence[float], dimensions: int | None) -> bytes:
    """As float32, scaled to length 1; CallFailed if it has no length or not so many numbers."""
    length = math.sqrt(math.fsum(number * number for number in vector))
    if not length or not math.isfinite(length):
        raise CallFailed("invalid", "a vector without length")
    if dimensions is not None and len(vector) != dimensions:
        raise CallFailed("invalid", f"a vector of {len(vector)} numbers, {dimensions} are expected")
    return pack_vector(number / length for number in vector)


def share_id(lines: Sequence[Line]) -> str:
    """The call id of one request's share of a call: the same whenever its texts are found again."""
    return call_id(sha256("".join(sorted(line.key for line in lines)).encode()).hexdigest())


def _counted_by(call: str, answer: Answer) -> Answer:
    """The provider received one request for all of these texts: the records of this call count it."""
    return answer if answer.call_id == call else answer.model_copy(update={"requests": 0})


def _by_wish(lines: Sequence[Line]) -> list[list[Line]]:
    parts: dict[int, list[Line]] = {}
    for line in lines:
        parts.setdefault(id(line.wish), []).append(line)
    return list(parts.values())


def _cut(lines: Sequence[Line]) -> Iterator[list[Line]]:
    """Divide texts into calls of at most so many texts and characters."""
    part: list[Line] = []
    size = 0
    for line in lines:
        size += len(line.text)
        if part and (len(part) >= TEXTS_OF_A_CALL or size > CHARACTERS_OF_A_CALL):
            yield part
            part, size = [], len(line.text)
        part.append(line)
    if part:
        yield part
