"""The question of both extractions about a window: its transcript, its scopes, and on whose behalf it asks.

One call asks about all scopes. After two invalid answers there is one call for each scope; of a single scope, one
for each half of the window.
"""

from asyncio import gather
from collections.abc import Callable, Iterator, Sequence, Set
from dataclasses import dataclass, replace
from typing import Any, Generic, Protocol

from eden_memory.access.visible import WIDE
from eden_memory.directory.participants import Streams
from eden_memory.errors import PermanentError, ProviderError, Splits
from eden_memory.forgotten import ForgottenMarks, Marks, ids_of_window
from eden_memory.formation.scope_assignment import (
    SHARED_ROLES,
    ScopeAssignment,
    Scopes,
    SharingChecks,
    of_authors,
)
from eden_memory.formation.transcript import Transcript, transcript
from eden_memory.limits import FormationLimits, label_of
from eden_memory.metrics import EXTRACTION_SPLITS
from eden_memory.models.question import A, Answered, Asking, LanguageModel, Prompt, Role, unit_of
from eden_memory.names import hashed
from eden_memory.schemas.events.formation import Window
from eden_memory.schemas.ids import split
from eden_memory.schemas.provenance import Call, MessageRef
from eden_memory.schemas.scopes import Scope
from eden_memory.stages.stage import Decision, Delivery, Emitted, Result
from eden_memory.windows.formation_requests import StoredWindow, Windows


@dataclass(frozen=True, slots=True)
class TakenBack:
    """A statement that a person took out of shared memory, and whose words it rests on."""

    text: str
    users: frozenset[str]


@dataclass(frozen=True, slots=True)
class SharedKnowledge:
    """What an agent's shared memory is checked by."""

    names: frozenset[str] = frozenset()
    """What the agent's users are called."""
    given: tuple[str, ...] = ()
    """What the operator added for all users, or pinned."""
    taken_back: tuple[TakenBack, ...] = ()
    """The newest first."""


class SharingRules(Protocol):
    """What the extractions ask before they share what users said."""

    async def known(self, agent_id: str) -> SharedKnowledge:
        """Return what an agent's shared memory is checked by."""
        ...

    async def may_judge(self, provider: str | None, call: Call) -> bool:
        """Return whether the model of a call passed `eden models check` with the prompt of the call."""
        ...


@dataclass(frozen=True, slots=True)
class WindowQuestion:
    """A window with everything that a question about it needs."""

    delivery: Delivery
    window: Window
    asking: Asking
    scopes: Scopes
    transcript: Transcript
    names: tuple[str, ...]
    """People whose names leave what others see; empty unless the stricter setting is on."""
    marks: Marks
    called: frozenset[str]
    """The names and ids of those who take part."""
    known: SharedKnowledge
    shared_roles: Set[str] = SHARED_ROLES

    @property
    def taken_back(self) -> tuple[str, ...]:
        """Return what a person took out of shared memory, of those who take part here and nobody else."""
        users = frozenset(self.window.participants)
        return tuple(old.text for old in self.known.taken_back if old.users and old.users == users)

    def assignment(
        self,
        item_words: int,
        fence: str,
        judge: bool,
        most_together: int | None = None,
        *,
        limited: bool = False,
    ) -> ScopeAssignment:
        """Return the assignment of an answer's items; `limited`: to each scope's own number of items."""
        most = {scope.key: limits.most for scope, limits in self.scopes.limits.items()} if limited else {}
        return ScopeAssignment(
            self.window,
            self.transcript,
            self.scopes.all,
            self.scopes.words(item_words),
            fence,
            most,
            most_together,
            self.names,
            self.shared_roles,
            SharingChecks(
                self.called | self.known.names,
                judge,
                self.known.given,
                tuple(old.text for old in self.known.taken_back),
            ),
        )

    def parts(self) -> list["QuestionPart"]:
        """Return what is asked when nothing can be read of the answers to the whole; one part cannot be divided."""
        labels = dict.fromkeys(label_of(scope) for scope in self.scopes.all)
        own, every = len(self.transcript.own), range(len(self.transcript.lines))
        if len(labels) > 1 or own < 2:
            return [self._part(label, label, every) for label in labels]
        half, (label,) = (own + 1) // 2, labels
        return [
            self._part("first half", label, [*every[:half], *every[own:]]),
            self._part("second half", label, every[half:]),
        ]

    def _part(self, name: str, label: str, places: Sequence[int]) -> "QuestionPart":
        """Return the part about one label that shows the messages at these places."""
        whole, own = self.transcript, len(self.transcript.own)
        shown = replace(
            whole,
            lines=tuple(whole.lines[place] for place in places),
            sources=tuple(whole.sources[place] for place in places),
            explaining=sum(place >= own for place in places),
        )
        limits = {scope: limits for scope, limits in self.scopes.limits.items() if label_of(scope) == label}
        question = replace(self, transcript=shown, scopes=replace(self.scopes, limits=limits))
        return QuestionPart(name, question, tuple(place + 1 for place in places))


Check = Callable[[A], str | None]
AsksOf = Callable[[WindowQuestion], tuple[Prompt, Check[A] | None]]
"""The prompt of a question, or of a part of it, and the check of the answer."""
NUMBERS_OF_A_TRY = 1_000
"""Items of the parts that a dead letter is asked for again are numbered beyond those of the parts before."""


@dataclass(frozen=True, slots=True)
class QuestionPart:
    """One scope of a window, or half of its messages."""

    name: str
    question: WindowQuestion
    numbers: tuple[int, ...]
    """The numbers that its messages have in the whole window, in order."""

    def unit(self, sent_again: int) -> str:
        """Return the part's question, as it is called when its dead letter is sent again for the n-th time."""
        asking, shown = self.question.asking, self.question.transcript.shown
        whole = unit_of(asking.stage, self.question.delivery.id, sent_again)
        return f"{whole}/{self.name}/{hashed(*shown)[:12]}"  # a message forgotten since makes it another question

    @property
    def asking(self) -> Asking:
        """On whose behalf it is asked."""
        whole, question = self.question.asking, self.question
        unit = self.unit(question.delivery.sent_again)
        return replace(whole, unit=unit, part_of=whole.unit, shown=question.transcript.shown)

    def of_window(self, answered: Answered[A]) -> Answered[A]:
        """Return an answer with the window's own numbers of messages."""
        ((name, items),) = vars(answered.value).items()
        renumbered = [item.model_copy(update={"messages": [*self._numbers(item)]}) for item in items]
        return replace(answered, value=answered.value.model_copy(update={name: renumbered}))

    def _numbers(self, item: Any) -> Iterator[int]:
        return (self.numbers[number - 1] for number in item.messages if 1 <= number <= len(self.numbers))


@dataclass(frozen=True, slots=True)
class WindowAnswers(Generic[A]):
    """The answer about a window, or those about its parts."""

    answers: Sequence[Answered[A]]
    first: int = 1
    """The number of the first item."""
    failed: str | None = None
    """Why parts of it have no answer."""

    @property
    def call(self) -> Call | None:
        """The first of the calls."""
        return self.answers[0].call

    def decision(self, events: Sequence[Emitted], delivery: Delivery) -> Result:
        """Return the events; what failed becomes a dead letter beside them."""
        return events if self.failed is None else Decision(events, refused={delivery.id: self.failed})


class WindowQuestions:
    """Reads windows and prepares the questions about them; `demote_names` as WindowQuestion's `names`."""

    def __init__(
        self,
        windows: Windows,
        streams: Streams,
        model: LanguageModel,
        forgetting: ForgottenMarks,
        limits: FormationLimits,
        sharing: SharingRules,
        *,
        demote_names: bool,
        shared_roles: Set[str],
    ) -> None:
        self._windows, self._streams, self._model = windows, streams, model
        self._forgetting, self._limits, self._demote_names = forgetting, limits, demote_names
        self._sharing, self._shared_roles = sharing, shared_roles

    async def about(
        self,
        delivery: Delivery,
        window: Window,
        scopes: tuple[Scope, ...],
        asking: Asking,
        known: Set[tuple[str, str]] = frozenset(),
        before: Sequence[MessageRef] = (),
    ) -> WindowQuestion:
        """Return the question; `known`: (kind, target) of other memories that it shows, `before`: messages."""
        windows, streams, earlier, shared = await gather(
            self._windows.windows([window.formation_id]),
            self._streams.of(window.agent_id),
            self._model.earlier(asking.unit),
            self._known(window, scopes),
        )
        stored = windows.get(window.formation_id)
        if stored is None:
            raise PermanentError("the texts of the window are kept no longer")
        authors = {("user", message.user_id) for message in stored.before if message.user_id is not None}
        marks = await self._forgetting.among(ids_of_window(window) | authors | known)
        shown = transcript(stored, window, marks, earlier.shown if earlier else (), before)
        limited = Scopes.of(scopes, streams, self._limits, of_authors=of_authors(window))
        asking = replace(asking, shown=shown.shown, model=limited.model)
        names = _participants(stored, window) if self._demote_names else ()
        called = {*stored.names.values(), *shown.speakers_but(())} - {stored.names.get(window.agent_id)}
        called |= {split(user)[1] for user in window.participants}
        return WindowQuestion(
            delivery,
            window,
            asking,
            limited,
            shown,
            names,
            marks,
            frozenset(filter(None, called)),
            shared,
            self._shared_roles,
        )

    async def _known(self, window: Window, scopes: Sequence[Scope]) -> SharedKnowledge:
        """Return what shared memory is checked by; nothing is read where no scope is offered that others see."""
        if not any(scope.kind in WIDE for scope in scopes):
            return SharedKnowledge()
        return await self._sharing.known(window.agent_id)

    async def ask(self, question: WindowQuestion, answer: type[A], asks_of: AsksOf[A]) -> WindowAnswers[A]:
        """Return the answer about a window, or about those of its parts that have one; PermanentError if none has.

        A dead letter that is sent again asks only for the parts that had no answer.
        """
        parts, times = question.parts(), question.delivery.sent_again
        missing = [part for part in parts if not await self._has_answer(part, times)] if times else parts
        if len(missing) in (0, len(parts)):
            prompt, check = asks_of(question)
            asking = replace(question.asking, splits=len(parts) > 1)
            try:
                return WindowAnswers([await self._model.ask(prompt, answer, asking, check)])
            except Splits:
                EXTRACTION_SPLITS.labels(asking.stage).inc()
                return await self._ask_parts(parts, answer, asks_of)
        found = await self._ask_parts(missing, answer, asks_of)
        return replace(found, first=times * NUMBERS_OF_A_TRY + 1)

    async def _has_answer(self, part: QuestionPart, times: int) -> bool:
        earlier = [await self._model.earlier(part.unit(number)) for number in range(times)]
        return any(kept is not None and kept.answered for kept in earlier)

    async def _ask_parts(
        self, parts: Sequence[QuestionPart], answer: type[A], asks_of: AsksOf[A]
    ) -> WindowAnswers[A]:
        """Ask for each part; once one has an answer, one without is at fault itself, and not its model."""
        answers, failed = dict[str, Answered[A]](), dict[str, PermanentError | ProviderError]()
        for part in parts:
            prompt, check = asks_of(part.question)
            try:
                answered = await self._model.ask(prompt, answer, part.asking, check)
                answers[part.name] = part.of_window(answered)
            except (PermanentError, ProviderError) as error:
                if isinstance(error, ProviderError) and not error.alone:
                    raise
                failed[part.name] = error
        if not answers:
            raise min(
                failed.values(), key=lambda error: isinstance(error, PermanentError)
            )  # retried, if any is
        reasons = "; ".join(f"{name}: {error}" for name, error in failed.items())
        in_order = [answers[part.name] for part in parts if part.name in answers]
        return WindowAnswers(in_order, failed=f"parts of the window failed: {reasons}" if failed else None)

    async def may_judge(self, found: WindowAnswers[A]) -> bool:
        """Return whether the answers' judgement may share what users said; the offline rules' may."""
        (answered, *_) = found.answers  # all of one model and prompt
        return answered.call is None or await self._sharing.may_judge(answered.provider, answered.call)


def asking_about(window: Window, delivery: Delivery, stage: str, role: Role) -> Asking:
    """Return a question about a window, without `shown` and `model`."""
    return replace(
        Asking.about(delivery, stage, role, window.agent_id),
        user_id=window.participants[0] if len(window.participants) == 1 else None,
        session_id=window.session_id,
        formation_id=window.formation_id,
        tier=window.tier,
    )


def shared_call(call: Call | None, items: int) -> Call | None:
    """Return the call behind an answer, whose cost so many items share."""
    return call and call.model_copy(update={"items": max(items, 1)})


def _participants(stored: StoredWindow, window: Window) -> tuple[str, ...]:
    return tuple(
        stored.names[participant] for participant in window.participants if participant in stored.names
    )
