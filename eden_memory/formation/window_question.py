"""The question of both extractions about a window: its transcript, its scopes, and on whose behalf it asks.

One call asks about all scopes but those with a prompt of their own, which have a call each. After two invalid answers
there is one call for each scope; of a single scope, one for each half of the window. With EDEN_FORMATION_CALLS=one
the first extraction asks for reflections, too, and the second takes them from its answer.
"""

from asyncio import gather
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from functools import partial
from typing import Generic, Protocol, cast

from eden_memory.access.visible import WIDE, private_keys
from eden_memory.directory.participants import Streams, given_to_all
from eden_memory.errors import PermanentError, ProviderError, Splits
from eden_memory.forgotten import ForgottenMarks, Marks, ids_of_window
from eden_memory.formation.prompt_material import ReflectionMaterial
from eden_memory.formation.prompts import one_line
from eden_memory.formation.scope_assignment import (
    SHARED_ROLES,
    ScopeAssignment,
    Scopes,
    SharingChecks,
    of_authors,
)
from eden_memory.formation.transcript import Transcript, transcript
from eden_memory.limits import FormationLimits, label_of
from eden_memory.memory.snapshot_projection import Snapshots
from eden_memory.metrics import EXTRACTION_SPLITS
from eden_memory.models.question import A, Answered, Asking, Earlier, LanguageModel, Prompt, Role, unit_of
from eden_memory.names import hashed
from eden_memory.schemas.answers import ExtractedMemory, StatedFact, StatedReflection
from eden_memory.schemas.documents import Snapshot
from eden_memory.schemas.events.formation import Window
from eden_memory.schemas.ids import split
from eden_memory.schemas.provenance import Call, MessageRef
from eden_memory.schemas.scopes import Scope
from eden_memory.stages.stage import Decision, Delivery, Emitted
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
        most_together: int | None = None,
    ) -> ScopeAssignment:
        """Return the assignment of an answer's items, limited to each scope's own number of them."""
        most = {scope.key: limits.most for scope, limits in self.scopes.limits.items()}
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
                given=self.known.given,
                taken_back=tuple(old.text for old in self.known.taken_back),
            ),
        )

    def groups(self) -> list["QuestionPart"]:
        """Return what is asked together: all scopes but those with a prompt of their own, and each of these."""
        own = [scope for scope, limits in self.scopes.limits.items() if limits.extraction_prompt is not None]
        together, every = [scope for scope in self.scopes.all if scope not in own], self.every
        rest = [self.part("", together, every)] if together else []
        return [*rest, *(self.part(label, scopes, every) for label, scopes in _by_label(own).items())]

    @property
    def every(self) -> range:
        """The places of all messages that it shows."""
        return range(len(self.transcript.lines))

    def part(self, name: str, scopes: Sequence[Scope], places: Sequence[int]) -> "QuestionPart":
        """Return the part about these scopes that shows the messages at these places."""
        whole, own = self.transcript, len(self.transcript.own)
        shown = replace(
            whole,
            lines=tuple(whole.lines[place] for place in places),
            sources=tuple(whole.sources[place] for place in places),
            explaining=sum(place >= own for place in places),
        )
        limited = replace(self.scopes, limits={scope: self.scopes.limits[scope] for scope in scopes})
        question = replace(self, transcript=shown, scopes=limited)
        return QuestionPart(name, question, tuple(place + 1 for place in places))


TOGETHER = "together"
"""The name of the part that is asked for facts and reflections at once."""
Check = Callable[[A], str | None]
AsksOf = Callable[[WindowQuestion], tuple[Prompt, Check[A] | None]]
"""The prompt of a question, or of a part of it, and the check of the answer."""
NUMBERS_OF_A_TRY = 1_000
"""Items of a dead letter that is sent again are numbered beyond those of the times before."""


@dataclass(frozen=True, slots=True)
class QuestionPart:
    """Scopes of a window that are asked for together, one of them, or half of its messages."""

    name: str
    """Empty: what is asked under the window's own question."""
    question: WindowQuestion
    numbers: tuple[int, ...]
    """The numbers that its messages have in the whole window, in order."""

    def parts(self) -> list["QuestionPart"]:
        """Return what is asked when nothing can be read of the answers to it; one part cannot be divided."""
        question, of_label = self.question, _by_label(self.question.scopes.all)
        own, every = len(question.transcript.own), question.every
        if len(of_label) > 1:
            return [question.part(label, scopes, every) for label, scopes in of_label.items()]
        if own < 2:
            return [self]
        half, ((label, scopes),) = (own + 1) // 2, of_label.items()
        return [
            question.part(f"{label}, first half", scopes, [*every[:half], *every[own:]]),
            question.part(f"{label}, second half", scopes, every[half:]),
        ]

    def unit(self, sent_again: int) -> str:
        """Return the part's question, as it is called when its dead letter is sent again for the n-th time."""
        asking, shown = self.question.asking, self.question.transcript.shown
        whole = unit_of(asking.stage, self.question.delivery.id, sent_again)
        # A message that was forgotten since makes it another question.
        return f"{whole}/{self.name}/{hashed(*shown)[:12]}" if self.name else whole

    @property
    def asking(self) -> Asking:
        """On whose behalf it is asked."""
        whole, question = self.question.asking, self.question
        unit, of = self.unit(question.delivery.sent_again), whole.unit if self.name else None
        shown, model = question.transcript.shown, question.scopes.model
        return replace(whole, unit=unit, part_of=of, shown=shown, model=model)

    def of_window(self, answered: Answered[A]) -> Answered[A]:
        """Return an answer with the window's own numbers of messages, and without scopes that it did not show."""
        ((name, listed),) = vars(answered.value).items()
        items = cast("list[StatedFact | StatedReflection]", listed)
        shown = {one_line(label) for label in _by_label(self.question.scopes.all)}
        named = [item.scope if one_line(item.scope) in shown else "" for item in items]
        renumbered = [
            item.model_copy(update={"messages": [*self._numbers(item)], "scope": label})
            for item, label in zip(items, named, strict=True)
        ]
        return replace(answered, value=answered.value.model_copy(update={name: renumbered}))

    def _numbers(self, item: StatedFact | StatedReflection) -> Iterator[int]:
        return (self.numbers[number - 1] for number in item.messages if 1 <= number <= len(self.numbers))


def _by_label(scopes: Iterable[Scope]) -> dict[str, list[Scope]]:
    """Return the scopes by the label under which a model is asked for them, in order."""
    found: dict[str, list[Scope]] = {}
    for scope in scopes:
        found.setdefault(label_of(scope), []).append(scope)
    return found


@dataclass(frozen=True, slots=True)
class WindowAnswers(Generic[A]):
    """The answer about a window, or those about its parts."""

    answers: Sequence[Answered[A]]
    first: int = 1
    """The number of the first item."""
    failed: str | None = None
    """Why parts of it have no answer."""
    stated: int | None = None
    """Facts and reflections of the one call that brought both: all of them share its cost."""

    @property
    def call(self) -> Call | None:
        """The first of the calls."""
        return self.answers[0].call

    def decision(self, events: Sequence[Emitted], delivery: Delivery) -> Sequence[Emitted] | Decision:
        """Return the events; what failed becomes a dead letter beside them."""
        if self.failed is None:
            return events
        return Decision(events, refused={delivery.id: f"parts of the window failed: {self.failed}"})


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
        kind = "facts" if asking.role == "facts" else "reflections"
        limited = Scopes.of(scopes, streams, self._limits, kind=kind, of_authors=of_authors(window))
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

        A dead letter that is sent again asks only for the parts that had no answer, and for all of it where that is
        not known: an answer is erased with a message that it showed. Its items never take the number of earlier ones.
        """
        groups, times = question.groups(), question.delivery.sent_again
        missing = [part for group in groups if times for part in await self._missing(group, times)]
        ask, wanted = partial(self._ask_part, answer=answer, asks_of=asks_of), missing or groups
        found = await (self._collected(wanted, ask) if len(wanted) > 1 else ask(wanted[0]))
        return replace(found, first=times * NUMBERS_OF_A_TRY + 1)

    async def ask_together(
        self, question: WindowQuestion, prompt: Prompt, check: Check[ExtractedMemory]
    ) -> Answered[ExtractedMemory] | None:
        """Return the facts and reflections of a window from one call; None after two invalid answers.

        None, too, where a call for the facts alone was answered before a crash: it is paid for.
        """
        part = question.part(TOGETHER, question.scopes.all, question.every)
        if _is_valid(await self._model.earlier(question.asking.unit)):
            return None
        try:
            return await self._model.ask(prompt, ExtractedMemory, replace(part.asking, splits=True), check)
        except Splits:
            EXTRACTION_SPLITS.labels(question.asking.stage).inc()
            return None

    async def of_reflections(self, question: WindowQuestion) -> WindowQuestion | None:
        """Return the question about reflections with the same messages; None where it needs a call of its own."""
        window = question.window
        streams = await self._streams.of(window.agent_id)
        limited = Scopes.of(
            window.scopes, streams, self._limits, kind="reflections", of_authors=of_authors(window)
        )
        together = limited.asks_together and question.scopes.asks_together
        if not together or limited.model != question.scopes.model:
            return None
        return replace(question, scopes=limited)

    async def _missing(self, group: QuestionPart, times: int) -> list[QuestionPart]:
        """Return the parts of a group without an answer so far: all of it where none has one."""
        parts, whole = group.parts(), await self._earlier(group, times)
        of_parts = [await self._earlier(part, times) for part in parts]
        missing = [part for part, kept in zip(parts, of_parts, strict=True) if not any(map(_is_valid, kept))]
        answered = [number for number, kept in enumerate(whole) if _is_valid(kept)]
        if answered:
            # A scope that had its own prompt until then was asked for beside the others.
            beside = {
                part.name
                for part, kept in zip(parts, of_parts, strict=True)
                if any(kept[number] is not None for number in answered)
            }
            return [part for part in missing if part.name in beside]
        return [group] if len(missing) == len(parts) else missing

    async def _earlier(self, part: QuestionPart, times: int) -> list[Earlier | None]:
        """Return what arrived for a part, by the times that its dead letter had been sent again."""
        return [await self._model.earlier(part.unit(number)) for number in range(times)]

    async def _ask_part(
        self, part: QuestionPart, answer: type[A], asks_of: AsksOf[A], *, splits: bool = True
    ) -> WindowAnswers[A]:
        """Ask for all of a part; after two invalid answers for each of its own parts, if it `splits`."""
        parts, (prompt, check) = part.parts() if splits else (), asks_of(part.question)
        asking = replace(part.asking, splits=len(parts) > 1)
        try:
            answered = await self._model.ask(prompt, answer, asking, check)
        except Splits:
            EXTRACTION_SPLITS.labels(asking.stage).inc()
            ask = partial(self._ask_part, answer=answer, asks_of=asks_of, splits=False)
            return await self._collected(parts, ask)
        return WindowAnswers([part.of_window(answered)])

    async def _collected(
        self, parts: Sequence[QuestionPart], ask: Callable[[QuestionPart], Awaitable[WindowAnswers[A]]]
    ) -> WindowAnswers[A]:
        """Ask for each part; once one has an answer, one without is at fault itself, and not its model."""
        answers, failed = list[Answered[A]](), list[str]()
        errors: list[PermanentError | ProviderError] = []
        for part in parts:
            try:
                found = await ask(part)
            except (PermanentError, ProviderError) as error:
                if isinstance(error, ProviderError) and not (error.alone and error.session):
                    raise  # away or busy: only an answer that cannot be read is the part's own fault
                errors.append(error)
                failed.append(f"{part.name or 'the others'}: {error}")
                continue
            answers += found.answers
            failed += [found.failed] if found.failed else []
        if not answers:
            raise min(errors, key=lambda error: isinstance(error, PermanentError))  # retried, if any is
        return WindowAnswers(answers, failed="; ".join(failed) or None)

    async def may_judge(self, answered: Answered[A]) -> bool:
        """Return whether an answer's judgement may share what users said; the offline rules' may."""
        return answered.call is None or await self._sharing.may_judge(answered.provider, answered.call)


def taken_from(question: WindowQuestion, both: Answered[ExtractedMemory], value: A) -> WindowAnswers[A]:
    """Return the items of one kind, `value`, from an answer that holds both."""
    part = question.part(TOGETHER, question.scopes.all, question.every)
    first = question.delivery.sent_again * NUMBERS_OF_A_TRY + 1
    stated = len(both.value.facts) + len(both.value.reflections)
    return WindowAnswers([part.of_window(Answered(value, both.call, both.provider))], first, stated=stated)


async def known_of_window(window: Window, streams: Streams, snapshots: Snapshots) -> dict[str, Snapshot]:
    """Return the snapshots of a window's scopes, as far as all who take part may hear of them."""
    of_agent = await streams.of(window.agent_id)
    shards = {name: stream for name, stream in of_agent.items() if stream.shard is not None}
    private = private_keys(window.scopes, shards, window.sharing)
    told = (scope for scope in window.scopes if scope.kind != "user" or not of_authors(window))
    return await snapshots.without_users([scope.key for scope in told], private)


def reflection_material(
    question: WindowQuestion, facts: Iterable[str], known: Mapping[str, Snapshot], limits: FormationLimits
) -> ReflectionMaterial:
    """Return what the prompt for reflections shows: the messages, what is known of each scope, and new facts."""
    return ReflectionMaterial(
        lines=question.transcript.own,
        scopes=question.scopes.for_reflections(known, question.marks),
        facts=tuple(facts),
        words=limits.reflection_words,
        language=limits.language,
        before=question.transcript.before,
        taken_back=question.taken_back,
        given=given_to_all(question.window.session_id),
    )


def _is_valid(earlier: Earlier | None) -> bool:
    return earlier is not None and earlier.answered


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
