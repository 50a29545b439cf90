"""memory.formations → memory.extractions, memory.candidates: one call finds the facts of a closed window.

It sees the conversation alone, no memory: facts must stand alone. With EDEN_FORMATION_CALLS=one the same call forms
the reflections, which reflection-extraction takes from its answer; memory then stands in a part of its own. The
messages before the window are there to explain it. Every formation has exactly one FactsExtracted. Parts that are
asked for by themselves and fail become a dead letter beside it.
"""

from collections.abc import Callable, Mapping, Sequence, Set
from datetime import UTC, datetime

from eden_memory.directory.participants import Streams, given_to_all
from eden_memory.forgotten import ForgottenMarks, ids_of, ids_of_window
from eden_memory.formation import prompts
from eden_memory.formation.fact_statements import facts_extracted, proposals_of
from eden_memory.formation.prompt_material import FactMaterial, MemoryMaterial
from eden_memory.formation.prompts import Fence
from eden_memory.formation.scope_assignment import SHARED_ROLES, AssignedItem, fact_scopes, known_of, too_few
from eden_memory.formation.window_question import (
    TOGETHER,
    Check,
    SharingRules,
    WindowAnswers,
    WindowQuestion,
    WindowQuestions,
    asking_about,
    known_of_window,
    reflection_material,
    shared_call,
    taken_from,
)
from eden_memory.limits import STANDARD, FormationLimits
from eden_memory.memory.snapshot_projection import Snapshots
from eden_memory.metrics import count_extracted
from eden_memory.models.question import LanguageModel, Prompt
from eden_memory.schemas.answers import ExtractedFacts, ExtractedMemory
from eden_memory.schemas.documents import Snapshot
from eden_memory.schemas.events import FormationRequested
from eden_memory.schemas.events.formation import ExtractedFact, Window
from eden_memory.schemas.provenance import Call
from eden_memory.schemas.scopes import Scope
from eden_memory.stages.stage import Decision, Delivery, Emitted
from eden_memory.windows.formation_requests import Windows

STAGE = "fact-extraction"
SWITCHED_OFF = "facts are switched off for the agent"
PAST_RETENTION = "every scope's facts of so long ago have expired"


class FactExtraction:
    """`demote_names`: a fact that names a participant leaves the group's scope, too. `shared_roles`: whose messages
    may form memory that others see."""

    def __init__(
        self,
        windows: Windows,
        streams: Streams,
        snapshots: Snapshots,
        model: LanguageModel,
        forgetting: ForgottenMarks,
        fence: Fence,
        sharing: SharingRules,
        *,
        demote_names: bool = False,
        shared_roles: Set[str] = SHARED_ROLES,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
        limits: FormationLimits = STANDARD,
    ) -> None:
        """`clock` is the wall clock: it decides which scopes' retention has ended."""
        self._questions = WindowQuestions(
            windows,
            streams,
            model,
            forgetting,
            limits,
            sharing,
            demote_names=demote_names,
            shared_roles=shared_roles,
        )
        self._streams, self._snapshots, self._forgetting, self._fence = streams, snapshots, forgetting, fence
        self._clock, self._limits = clock, limits

    async def __call__(self, deliveries: Sequence[Delivery]) -> Sequence[Emitted] | Decision:
        """Extract the facts of one window."""
        (delivery,) = deliveries
        if not isinstance(delivery.event, FormationRequested):
            return ()
        window = delivery.event.window()
        if not window.messages or not (scopes := fact_scopes(window)):
            return [facts_extracted(delivery, window)]
        if "facts" not in window.forms:
            return [facts_extracted(delivery, window, reason=SWITCHED_OFF)]
        asking = asking_about(window, delivery, STAGE, "facts")
        before = () if self._limits.short_prompts else window.before  # the short prompt shows none
        # A dead letter that is sent again asks for its facts alone.
        together = self._limits.one_call and "reflections" in window.forms and not delivery.sent_again
        known: Mapping[str, Snapshot] = {}
        if together:
            known = await known_of_window(window, self._streams, self._snapshots)
        question = await self._questions.about(delivery, window, scopes, asking, known_of(known), before)
        if not question.transcript.own or not question.scopes.all:
            return [facts_extracted(delivery, window)]
        past = question.scopes.past(window, self._clock())
        if past >= set(question.scopes.all):
            count_extracted(STAGE, 0, {"past_retention": 1})
            return [facts_extracted(delivery, window, reason=PAST_RETENTION)]
        fence = self._fence.around(f"{STAGE}/{window.formation_id}")

        def asks_of(part: WindowQuestion) -> tuple[Prompt, Check[ExtractedFacts] | None]:
            material, own = self._material(part), part.scopes.own_prompt
            prompt = prompts.fact_extraction(material, fence, short=self._limits.short_prompts, own=own)
            wants = any(scope.least for scope in material.scopes)
            return prompt, (lambda answer: too_few(answer.facts, material.scopes)) if wants else None

        fence_of_both = self._fence.around(f"{TOGETHER}/{window.agent_id}")  # as for reflections alone
        both = await self._together(question, known, fence_of_both) if together else None
        answers = both or await self._questions.ask(question, ExtractedFacts, asks_of)
        return await self._formed(question, past, answers, fence_of_both if both else fence)

    async def _together(
        self, question: WindowQuestion, known: Mapping[str, Snapshot], fence: str
    ) -> WindowAnswers[ExtractedFacts] | None:
        """Return the facts of a call that forms the reflections, too; None where each kind needs its own."""
        reflecting = await self._questions.of_reflections(question)
        if reflecting is None:
            return None
        material = MemoryMaterial(
            self._material(question), reflection_material(reflecting, (), known, self._limits)
        )

        def shortcoming(answer: ExtractedMemory) -> str | None:
            return too_few(answer.facts, material.facts.scopes) or too_few(
                answer.reflections, material.reflections.scopes
            )

        prompt = prompts.memory_extraction(material, fence)
        answered = await self._questions.ask_together(question, prompt, shortcoming)
        if answered is None:
            return None
        return taken_from(question, answered, ExtractedFacts(facts=answered.value.facts))

    def _material(self, question: WindowQuestion) -> FactMaterial:
        limits = self._limits
        shown, scopes = question.transcript, question.scopes.for_facts()
        return FactMaterial(
            shown.own,
            scopes,
            limits.facts,
            limits.fact_words,
            limits.language,
            shown.before,
            question.taken_back,
            given_to_all(question.window.session_id),
        )

    async def _formed(
        self,
        question: WindowQuestion,
        past: frozenset[Scope],
        answers: WindowAnswers[ExtractedFacts],
        fence: str,
    ) -> Sequence[Emitted] | Decision:
        """Return the events of an answer, without what was forgotten while the model was asked."""
        named = ids_of_window(question.window) | ids_of(None, question.transcript.sources)
        marks = await self._forgetting.among(named)
        assignment = question.assignment(self._limits.fact_words, fence, self._limits.facts)
        facts: list[ExtractedFact] = []
        for answered in answers.answers:
            judge = await self._questions.may_judge(answered)
            stated = assignment.assign(answered.value.facts, marks, judge=judge)
            assigned = [item for item in stated if item.scope not in past]
            for item in stated:
                if item.scope in past:
                    assignment.leave_out("expired", item.sources)
            call = shared_call(answered.call, answers.stated or len(assigned))
            numbered = enumerate(assigned, answers.first + len(facts))
            facts += [_fact(item, number, question.window, call) for number, item in numbered]
        count_extracted(STAGE, len(facts), assignment.counts)
        extracted = facts_extracted(question.delivery, question.window, tuple(facts)).model_copy(
            update={
                "reason": answers.failed and answers.failed[:500],
                "cut": assignment.counts["beyond"],
                "not_shared": tuple(assignment.dropped),
                "left_out": tuple(assignment.left_out),
                "dropped": sum(assignment.counts[how] for how in ("no_scope", "personal", "expired")),
                "call": answers.call and shared_call(answers.call, answers.stated or len(facts)),
            }
        )
        return answers.decision([extracted, *proposals_of(extracted)], question.delivery)


def _fact(assigned: AssignedItem, number: int, window: Window, call: Call | None) -> ExtractedFact:
    return ExtractedFact(
        number=number,
        text=assigned.text,
        formation_id=window.formation_id,
        sources=assigned.sources,
        whole_window=assigned.whole_window,
        call=call,
        scope=assigned.scope,
        demoted_from=assigned.demoted_from,
        not_shared=assigned.not_shared,
        occurred_at=assigned.occurred_at,
    )
