"""memory.changes → memory.consolidations: merges a scope's buffer into its blob, one call a version.

Several changes of a scope that wait are taken together: the last one says it all, and the snapshot, read once,
is the judge. A version is decided once; until the writer has applied it, there is nothing to do.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count

from eden_memory.directory.participants import Streams
from eden_memory.failures import QuestionSpent
from eden_memory.forgotten import Forgetting, Marks
from eden_memory.formation import prompts
from eden_memory.formation.consolidation_rules import (
    BlobsDecided,
    ConsolidationWatch,
    Merge,
    TierOf,
    as_shown,
    asked_of_forgetting,
    material_of,
    may_be_due,
    merge_of,
    shortcoming,
    users_of,
    within_limit,
)
from eden_memory.formation.fence import Fence
from eden_memory.memory.snapshot_projection import Snapshots
from eden_memory.models.model_protocols import LanguageModel
from eden_memory.models.question import Answered, Asking, unit_of
from eden_memory.schemas.answers import ConsolidatedText
from eden_memory.schemas.documents import Snapshot
from eden_memory.schemas.events import ScopeChanged, ScopeConsolidated
from eden_memory.schemas.scopes import Scope
from eden_memory.scope_limits import STANDARD, FormationLimits, ScopeLimits, limits_of
from eden_memory.stages.stage import Dead, Decision, Delivery, Result, Retry
from eden_memory.word_limits import words_of

STAGE = "consolidation"


@dataclass(frozen=True, slots=True)
class Case:
    """One scope that is due, and all that its question is made from."""

    delivery: Delivery
    limits: ScopeLimits
    snapshot: Snapshot
    marks: Marks
    merge: Merge

    def unit(self, attempt: int) -> str:
        """Names the question: the version, and how often it was asked for before in vain."""
        name = f"{self.merge.scope.key}@{self.merge.version}:{attempt}"
        return unit_of(STAGE, name, self.delivery.sent_again)


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked for a case; `arrived`: an attempt before a crash has the answer."""

    merge: Merge
    attempt: int
    arrived: bool


class Consolidation:
    """`settings_version` goes into every blob's event."""

    def __init__(
        self,
        snapshots: Snapshots,
        decided: BlobsDecided,
        streams: Streams,
        model: LanguageModel,
        forgetting: Forgetting,
        fence: Fence,
        settings_version: str,
        watch: ConsolidationWatch,
        tier_of: TierOf,
        *,
        limits: FormationLimits = STANDARD,
    ) -> None:
        self._snapshots, self._decided, self._streams = snapshots, decided, streams
        self._model, self._forgetting, self._fence = model, forgetting, fence
        self._settings_version, self._watch, self._tier_of = settings_version, watch, tier_of
        self._limits = limits

    async def __call__(self, deliveries: Sequence[Delivery]) -> Result:
        """The changes of one scope that wait together."""
        changes = [one.event for one in deliveries if isinstance(one.event, ScopeChanged)]
        if not changes:
            return ()
        scope = changes[-1].scope
        limits = limits_of(scope, await self._streams.of(scope.agent_id), self._limits)
        if not may_be_due(changes, limits):
            return ()
        case = await self._case(deliveries[-1], scope, limits)
        if case is None or await self._decided.blob_decided(scope.key, case.merge.version):
            return ()
        return await self._decide(case)

    async def _case(self, delivery: Delivery, scope: Scope, limits: ScopeLimits) -> Case | None:
        snapshot = (await self._snapshots.snapshots([scope.key])).get(scope.key)
        if snapshot is None:
            return None
        marks = await self._forgetting.among(asked_of_forgetting(scope, snapshot))
        merge = merge_of(scope, snapshot, marks, limits)
        return None if merge is None else Case(delivery, limits, snapshot, marks, merge)

    async def _decide(self, case: Case) -> Result:
        first = 1
        while (question := await self._question(case, first)) is not None:
            try:
                answered = await self._ask(case, question)
            except QuestionSpent:
                if case.delivery.attempt > 1:
                    raise
                first = question.attempt + 1  # an earlier change has left its dead letter
                continue
            text, cut = within_limit(answered.value, case.limits.blob_words)
            if text:
                return await self._consolidated(case, question.merge, answered, text, cut=cut)
            if not question.arrived:
                return Dead("the model returned an empty text, twice")
            first = question.attempt + 1
        return ()

    async def _question(self, case: Case, first: int) -> Question | None:
        """The first attempt that is not used up; None where each one more waits for a fuller buffer."""
        failed = first - 1
        for attempt in count(first):
            earlier = await self._model.earlier(case.unit(attempt))
            if earlier is None:
                waits = case.merge.because == "threshold" and not case.delivery.asks_anew
                enough = len(case.snapshot.buffer) >= case.limits.threshold * (failed + 1)
                return Question(case.merge, attempt, arrived=False) if enough or not waits else None
            failed += earlier.exhausted
            merge = as_shown(earlier.shown, case.merge, case.snapshot, case.marks)
            if merge is not None and not earlier.exhausted:
                return Question(merge, attempt, arrived=True)
        return None

    async def _ask(self, case: Case, question: Question) -> Answered[ConsolidatedText]:
        merge, limits = question.merge, case.limits
        fence = self._fence.around(f"{STAGE}/{merge.scope.key}@{merge.version}")
        prompt = prompts.consolidation(material_of(merge, limits), fence)
        tier = await self._tier_of(users_of(merge.scope), merge.scope.session_id)
        return await self._model.ask(
            prompt,
            ConsolidatedText,
            _asking(case, question, tier),
            lambda answer: shortcoming(answer, limits.blob_words),
        )

    async def _consolidated(
        self, case: Case, merge: Merge, answered: Answered[ConsolidatedText], text: str, *, cut: bool
    ) -> Result:
        """The version's event, unless something that went in was forgotten meanwhile."""
        marks = await self._forgetting.among(asked_of_forgetting(merge.scope, case.snapshot))
        if as_shown(merge.shown, merge, case.snapshot, marks) is None:
            return Retry("something to be absorbed was forgotten meanwhile", after=0.1)
        scope, version = merge.scope, merge.version
        self._watch.consolidated(scope.kind, merge.because, cut=cut)
        event = ScopeConsolidated(
            cause=case.delivery.id,
            attempt=case.delivery.sent_again + 1,
            scope=scope,
            version=version,
            based_on=merge.based_on,
            text=text,
            words=words_of(text),
            word_limit=case.limits.blob_words,
            cut=cut,
            absorbed=tuple(one.reflection_id for one in merge.reflections),
            private=any(one.private for one in merge.reflections),
            because=merge.because,
            call=answered.call,
            consolidated_at=merge.consolidated_at,
            said_at=merge.said_at,
            settings_version=self._settings_version,
        )
        name = f"{scope.key}@{version}"
        return Decision((event,), writes=(f"blob:{name}",), key=name)


def _asking(case: Case, question: Question, tier: int) -> Asking:
    delivery, scope = case.delivery, case.merge.scope
    return Asking(
        stage=STAGE,
        role="consolidation",
        unit=case.unit(question.attempt),
        agent_id=scope.agent_id,
        cause=delivery.id,
        user_id=scope.user_id,
        session_id=scope.session_id,
        scope=scope.key,
        tier=tier,
        attempt=delivery.attempt,
        anew=question.attempt - 1 + delivery.sent_again,
        shown=question.merge.shown,
        model=case.limits.consolidation_model,
    )
