"""memory.extractions → memory.reflections: one call forms a window's reflections, for all its scopes and shards.

It sees the conversation, the messages before it that explain it, what is known of each scope, and the facts just
extracted; it works beside fact-dedup.
Never skipped for want of facts: the session's reflections are always formed.
"""

from collections import Counter
from collections.abc import Sequence, Set
from functools import partial
from hashlib import blake2b

from eden_memory.directory.participants import Streams
from eden_memory.forgotten import ForgottenMarks, ids_of, ids_of_window
from eden_memory.formation import prompts
from eden_memory.formation.fact_statements import session_closed
from eden_memory.formation.prompt_material import ScopeBrief
from eden_memory.formation.prompts import Fence
from eden_memory.formation.scope_assignment import (
    SHARED_ROLES,
    AssignedItem,
    is_private,
    known_of,
    too_few,
)
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
from eden_memory.models.question import KeptAnswers, LanguageModel, Prompt
from eden_memory.schemas.answers import ExtractedMemory, StatedReflections
from eden_memory.schemas.events import FactsExtracted, ReflectionFormed
from eden_memory.schemas.provenance import Call, newest_said
from eden_memory.stages.stage import Decision, Delivery, Emitted
from eden_memory.windows.formation_requests import Windows

STAGE = "reflection-extraction"


class ReflectionExtraction:
    """`demote_names`: a reflection that names a participant leaves the group's scope, too. `shared_roles`: whose
    messages may form memory that others see, at once or by propagation."""

    def __init__(
        self,
        windows: Windows,
        streams: Streams,
        snapshots: Snapshots,
        model: LanguageModel,
        kept: KeptAnswers,
        forgetting: ForgottenMarks,
        fence: Fence,
        sharing: SharingRules,
        *,
        demote_names: bool = False,
        shared_roles: Set[str] = SHARED_ROLES,
        limits: FormationLimits = STANDARD,
    ) -> None:
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
        self._streams, self._snapshots, self._kept = streams, snapshots, kept
        self._forgetting, self._fence, self._limits = forgetting, fence, limits

    async def __call__(self, deliveries: Sequence[Delivery]) -> Sequence[Emitted] | Decision:
        """Form the reflections of one window, whether facts were found in it or not."""
        (delivery,) = deliveries
        extracted = delivery.event
        if not isinstance(extracted, FactsExtracted):
            return ()
        window = extracted.window
        if not window.messages or "reflections" not in window.forms:
            return session_closed(delivery, extracted, 0)
        known = await known_of_window(window, self._streams, self._snapshots)
        asking = asking_about(window, delivery, STAGE, "reflections")
        before = () if self._limits.short_prompts else window.before  # the short prompt shows none
        question = await self._questions.about(
            delivery, window, window.scopes, asking, known_of(known), before
        )
        if not question.transcript.own or not question.scopes.all:
            return session_closed(delivery, extracted, 0)
        fence = self._fence.around(f"{STAGE}/{window.agent_id}")  # the prompt's beginning is cached by it

        def asks_of(part: WindowQuestion) -> tuple[Prompt, Check[StatedReflections]]:
            gone = partial(part.marks.gone_in, part.window)
            facts = (fact.text for fact in extracted.facts if not any(map(gone, fact.sources)))
            material = reflection_material(part, facts, known, self._limits)
            own = part.scopes.own_prompt
            short = self._limits.short_prompts
            prompt = prompts.reflection_extraction(material, fence, short=short, own=own)
            return prompt, partial(_shortcoming, scopes=material.scopes)

        answers = await self._taken(question, extracted)
        if answers is not None:
            fence = self._fence.around(f"{TOGETHER}/{window.agent_id}")
        else:
            answers = await self._questions.ask(question, StatedReflections, asks_of)
        formed = await self._formed(question, answers, fence)
        of_session = sum(reflection.scope.kind == "session" for reflection in formed)
        closed = session_closed(delivery, extracted, of_session)
        return answers.decision([*formed, *closed], delivery)

    async def _taken(
        self, question: WindowQuestion, extracted: FactsExtracted
    ) -> WindowAnswers[StatedReflections] | None:
        """Return the reflections that the call for the window's facts brought, if it was asked for them."""
        call = extracted.call
        if call is None or call.prompt != prompts.MEMORY_EXTRACTION:
            return None
        kept = await self._kept.answered(call.call_id, ExtractedMemory)
        if kept is None or kept.shown != question.transcript.shown:
            return None  # a message that it showed was forgotten since
        reflections = StatedReflections(reflections=kept.answered.value.reflections)
        return taken_from(question, kept.answered, reflections)

    async def _formed(
        self, question: WindowQuestion, answers: WindowAnswers[StatedReflections], fence: str
    ) -> list[ReflectionFormed]:
        """Return the events of an answer, without what was forgotten while the model was asked."""
        named = ids_of_window(question.window) | ids_of(None, question.transcript.sources)
        marks = await self._forgetting.among(named)
        assignment = question.assignment(self._limits.reflection_words, fence)
        by_scope: Counter[str] = Counter()
        formed: list[ReflectionFormed] = []
        for answered in answers.answers:
            judge = await self._questions.may_judge(answered)
            assigned = assignment.assign(answered.value.reflections, marks, judge=judge)
            call = shared_call(answered.call, answers.stated or len(assigned))
            for item in assigned:
                position = answers.first + by_scope[item.scope.key]
                by_scope[item.scope.key] += 1
                formed.append(_reflection(question, item, position, call))
        missing = sum(limits.least > by_scope[scope.key] for scope, limits in question.scopes.limits.items())
        count_extracted(STAGE, len(formed), {**assignment.counts, "missing": missing})
        return formed


def _shortcoming(answer: StatedReflections, scopes: Sequence[ScopeBrief]) -> str | None:
    """Return the complaint with which the model is asked once more, and count it."""
    complaint = too_few(answer.reflections, scopes)
    if complaint is not None:
        count_extracted(STAGE, 0, {"asked_again": 1})
    return complaint


def _reflection(
    question: WindowQuestion, assigned: AssignedItem, position: int, call: Call | None
) -> ReflectionFormed:
    window = question.window
    name = f"{window.formation_id}\n{assigned.scope.key}\n{position}"
    return ReflectionFormed(
        cause=question.delivery.id,
        attempt=question.delivery.sent_again + 1,
        reflection_id=blake2b(name.encode(), digest_size=16).hexdigest(),
        scope=assigned.scope,
        text=assigned.text,
        position=position,
        formation_id=window.formation_id,
        session_id=window.session_id,
        origin="formed",
        sources=assigned.sources,
        whole_window=assigned.whole_window,
        call=call,
        formed_at=window.closed_at,
        said_at=newest_said(assigned.sources) or window.closed_at,
        private=not assigned.shared
        or is_private(assigned.scope, question.transcript.authors_of(assigned.sources), window),
        demoted_from=assigned.demoted_from,
        not_shared=assigned.not_shared,
        asked_by=None,
    )
