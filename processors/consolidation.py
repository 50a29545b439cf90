"""memory.changes, memory.commands → memory.consolidations, memory.reflections: a scope's buffer merged into its blob.

One call a version. Several changes of a scope that wait are taken together: the last one says it all, and the
snapshot, read once, is the judge. A version is decided once; until the writer has applied it, there is nothing to
do. Commands on reflections and blobs are decided one by one in the same order, without a model: this stage alone
numbers blobs.
"""

from asyncio import gather
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import count

from eden_memory.directory.participants import Streams
from eden_memory.errors import QuestionSpent
from eden_memory.forgotten import ForgottenMarks, Marks, ids_of
from eden_memory.formation import prompts
from eden_memory.formation.consolidation_rules import (
    Merge,
    TierOf,
    as_shown,
    asked_of_forgetting,
    material_of,
    may_be_due,
    merge_of,
    shortcoming,
    users_of,
    versioned,
    within_limit,
)
from eden_memory.formation.fact_commands import refused
from eden_memory.formation.memory_commands import (
    DecidedMemory,
    carry_out,
    current_memory,
    is_withdrawn,
    taken_back,
)
from eden_memory.formation.prompts import Fence
from eden_memory.limits import STANDARD, FormationLimits, ScopeLimits, limits_of, words_of
from eden_memory.memory.memory_batch import is_forgotten, named_by
from eden_memory.memory.snapshot_projection import Snapshots
from eden_memory.metrics import CONSOLIDATIONS, MEMORY_COMMANDS
from eden_memory.models.question import Answered, Asking, LanguageModel, unit_of
from eden_memory.schemas.answers import ConsolidatedText
from eden_memory.schemas.documents import Snapshot
from eden_memory.schemas.events import (
    Forgotten,
    MemoryCommanded,
    ReflectionFormed,
    ScopeChanged,
    ScopeConsolidated,
)
from eden_memory.schemas.scopes import Scope
from eden_memory.stages.stage import Dead, Decision, Delivery, Emit, Gather, Result, Retry

STAGE = "consolidation"
LOOK_AGAIN = 0.2
"""Seconds between two looks at a blob that the writer has to take back."""


@dataclass(frozen=True, slots=True)
class DueScope:
    """A scope that is due, with everything its question is made from."""

    delivery: Delivery
    limits: ScopeLimits
    snapshot: Snapshot
    marks: Marks
    merge: Merge

    def unit(self, attempt: int) -> str:
        """Return the question's name: the version, and the number of the attempt."""
        name = f"{self.merge.scope.key}@{self.merge.version}:{attempt}"
        return unit_of(STAGE, name, self.delivery.sent_again)


@dataclass(frozen=True, slots=True)
class Question:
    """One attempt to ask for a version; `arrived`: an attempt before a crash has the answer."""

    merge: Merge
    attempt: int
    arrived: bool


class Consolidation:
    """`settings_version` goes into every blob's event."""

    def __init__(
        self,
        snapshots: Snapshots,
        decided: DecidedMemory,
        streams: Streams,
        model: LanguageModel,
        forgetting: ForgottenMarks,
        fence: Fence,
        settings_version: str,
        tier_of: TierOf,
        *,
        limits: FormationLimits = STANDARD,
        is_live: bool = True,
    ) -> None:
        self._snapshots, self._decided, self._streams = snapshots, decided, streams
        self._model, self._forgetting, self._fence = model, forgetting, fence
        self._settings_version, self._tier_of = settings_version, tier_of
        self._limits, self._is_live = limits, is_live

    async def __call__(self, deliveries: Sequence[Delivery]) -> Result:
        """Decide what the waiting changes of one scope, or one command, lead to."""
        first = deliveries[0]
        if isinstance(first.event, MemoryCommanded):
            return await self._command(first, first.event)
        changes = [delivery.event for delivery in deliveries if isinstance(delivery.event, ScopeChanged)]
        if not changes:
            return ()
        scope = changes[-1].scope
        limits = limits_of(scope, await self._streams.of(scope.agent_id), self._limits)
        if not may_be_due(changes, limits):
            return ()
        due = await self._due_scope(deliveries[-1], scope, limits)
        if due is None or await self._decided.decided(due.merge.writes):
            return ()
        return await self._decide(due)

    async def _command(self, delivery: Delivery, command: MemoryCommanded) -> Result:
        """Carry out one command, if what it names still stands and is not forgotten."""
        scope = command.scope
        snapshot, streams = await gather(
            self._snapshots.snapshots([scope.key]), self._streams.of(scope.agent_id)
        )
        current = await current_memory(command, snapshot.get(scope.key), self._decided)
        limits = limits_of(scope, streams, self._limits)
        result = carry_out(delivery, command, current, limits, self._settings_version)
        of_blob = command.reflection_id is None and not isinstance(result, ReflectionFormed)
        if of_blob and await self._is_forgotten_blob(scope, current.blob.version):
            return Gather(LOOK_AGAIN)  # until the writer has taken it back
        if not isinstance(result, str):
            marks = await self._forgetting.among(named_by([result]))
            result = "forgotten" if is_forgotten(result, marks) else result
        MEMORY_COMMANDS.labels(command.action, result if isinstance(result, str) else "done").inc()
        if isinstance(result, str):
            return refused(delivery)
        of, name = (
            ("reflection", f"{result.reflection_id}@{result.version}")
            if isinstance(result, ReflectionFormed)
            else ("blob", result.key())
        )
        withdrawn: Sequence[Forgotten] = ()
        # A reform propagates nothing, and its reflections have the ids of the live ones.
        if self._is_live and isinstance(result, ReflectionFormed) and is_withdrawn(result):
            supported = await self._decided.supported_by(result)
            withdrawn = taken_back(result, absorbed=current.absorbed, supported=supported)
        events = [Emit(event, delivery, time=command.asked_at) for event in (result, *withdrawn)]
        return Decision(events, writes=(f"{of}:{name}",))

    async def _is_forgotten_blob(self, scope: Scope, version: int) -> bool:
        marks = await self._forgetting.among({("blob", f"{scope.key}@{version}")})
        return marks.entity_gone("blob", scope.key, version)

    async def _due_scope(self, delivery: Delivery, scope: Scope, limits: ScopeLimits) -> DueScope | None:
        snapshot = (await self._snapshots.snapshots([scope.key])).get(scope.key)
        if snapshot is None:
            return None
        marks = await self._forgetting.among(asked_of_forgetting(scope, snapshot))
        if merge_of(scope, snapshot, marks, limits) is None:
            return None
        snapshot = await self._without_forgotten(snapshot)
        merge = merge_of(scope, snapshot, marks, limits)
        return None if merge is None else DueScope(delivery, limits, snapshot, marks, merge)

    async def _without_forgotten(self, snapshot: Snapshot) -> Snapshot:
        """Return the snapshot without reflections that rest on something forgotten, and are to be erased next."""
        stored = await self._decided.reflections([item.reflection_id for item in snapshot.buffer])
        sources = (source for reflection in stored for source in reflection.sources)
        if not (marks := await self._forgetting.among(ids_of(None, sources))):
            return snapshot
        gone = {reflection.id for reflection in stored if marks.any_gone(reflection.sources)}
        left = tuple(item for item in snapshot.buffer if item.reflection_id not in gone)
        return snapshot.model_copy(update={"buffer": left})

    async def _decide(self, due: DueScope) -> Result:
        first = 1
        while (question := await self._question(due, first)) is not None:
            try:
                answered = await self._ask(due, question)
            except QuestionSpent:
                if due.delivery.attempt > 1:
                    raise
                first = question.attempt + 1  # an earlier change has left its dead letter
                continue
            text, cut = within_limit(answered.value, due.limits.blob_words, due.merge.pins)
            if text:
                return await self._consolidated(due, question.merge, answered, text, cut=cut)
            if not question.arrived:
                return Dead("the model returned an empty text, twice")
            first = question.attempt + 1
        return ()

    async def _question(self, due: DueScope, first: int) -> Question | None:
        """Return the first attempt that is not used up; None where another one must wait for a fuller buffer."""
        failed = first - 1
        for attempt in count(first):
            earlier = await self._model.earlier(due.unit(attempt))
            if earlier is None:
                waits = due.merge.because == "threshold" and not due.delivery.asks_anew
                enough = len(due.snapshot.buffer) >= due.limits.threshold * (failed + 1)
                return Question(due.merge, attempt, arrived=False) if enough or not waits else None
            failed += earlier.exhausted
            merge = as_shown(earlier.shown, due.merge, due.snapshot, due.marks)
            if merge is not None and not earlier.exhausted:
                return Question(merge, attempt, arrived=True)
        return None

    async def _ask(self, due: DueScope, question: Question) -> Answered[ConsolidatedText]:
        merge, limits = question.merge, due.limits
        fence = self._fence.around(f"{STAGE}/{merge.scope.key}@{merge.version}")
        material = material_of(merge, limits, self._limits.language)
        prompt = prompts.consolidation(material, fence, limits.consolidation_prompt)
        tier = await self._tier_of(users_of(merge.scope), merge.scope.session_id)
        return await self._model.ask(
            prompt,
            ConsolidatedText,
            _asking(due, question, tier),
            lambda answer: shortcoming(answer, limits.blob_words, merge.pins),
        )

    async def _consolidated(
        self, due: DueScope, merge: Merge, answered: Answered[ConsolidatedText], text: str, *, cut: bool
    ) -> Result:
        """Return the version's event; Retry if something that went into it was forgotten meanwhile."""
        marks = await self._forgetting.among(asked_of_forgetting(merge.scope, due.snapshot))
        if as_shown(merge.shown, merge, due.snapshot, marks) is None:
            return Retry("something to be absorbed was forgotten meanwhile", after=0.1)
        scope, version = merge.scope, merge.version
        CONSOLIDATIONS.labels(scope.kind, merge.because, str(cut).lower()).inc()
        event = ScopeConsolidated(
            cause=due.delivery.id,
            attempt=due.delivery.sent_again + 1,
            scope=scope,
            version=version,
            based_on=merge.based_on,
            text=versioned(text, version, due.limits),
            words=words_of(text),
            word_limit=due.limits.blob_words,
            cut=cut,
            absorbed=tuple(reflection.reflection_id for reflection in merge.reflections),
            private=any(reflection.private for reflection in merge.reflections),
            because=merge.because,
            pins=merge.pins,
            call=answered.call,
            consolidated_at=merge.consolidated_at,
            said_at=merge.said_at,
            settings_version=self._settings_version,
        )
        name = f"{scope.key}@{version}"
        return Decision((event,), writes=(f"blob:{name}",), key=name)


def _asking(due: DueScope, question: Question, tier: int) -> Asking:
    delivery, scope = due.delivery, due.merge.scope
    return replace(
        Asking.about(delivery, STAGE, "consolidation", scope.agent_id),
        unit=due.unit(question.attempt),
        user_id=scope.user_id,
        session_id=scope.session_id,
        scope=scope.key,
        tier=tier,
        anew=question.attempt - 1 + delivery.sent_again,
        shown=question.merge.shown,
        model=due.limits.consolidation_model,
    )
