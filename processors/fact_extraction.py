"""memory.formations → memory.extractions, memory.candidates: one call finds the facts of a closed window.

It sees the conversation alone, no memory: facts must stand alone. Every formation has exactly one FactsExtracted.
"""

from asyncio import gather
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from eden_memory.directory.participants import Streams
from eden_memory.failures import PermanentError
from eden_memory.forgotten import Forgetting
from eden_memory.formation import prompts
from eden_memory.formation.extraction_results import facts_extracted, proposals_of
from eden_memory.formation.prompt_material import FactMaterial
from eden_memory.formation.prompts import Fence
from eden_memory.formation.scope_assignment import AssignedItem, ScopeAssignment
from eden_memory.formation.scope_briefs import (
    Scopes,
    asking_about,
    fact_scopes,
    of_authors,
    participants_named,
)
from eden_memory.formation.transcript import Transcript, named_by, transcript
from eden_memory.metrics import ExtractionMetrics
from eden_memory.models.question import Answered, Asking, LanguageModel
from eden_memory.schemas.answers import ExtractedFacts
from eden_memory.schemas.events import FormationRequested
from eden_memory.schemas.events.formation import ExtractedFact, Window
from eden_memory.schemas.provenance import Call
from eden_memory.schemas.scopes import Scope
from eden_memory.scope_limits import STANDARD, FormationLimits
from eden_memory.stages.stage import Delivery, Outgoing
from eden_memory.windows.window_request import Windows

STAGE = "fact-extraction"
PAST_RETENTION = "every scope's facts of so long ago have expired"


@dataclass(frozen=True, slots=True)
class FactQuestion:
    """A window with everything its question is made from."""

    delivery: Delivery
    window: Window
    asking: Asking
    scopes: Scopes
    transcript: Transcript
    names: tuple[str, ...]
    past: frozenset[Scope]
    """Scopes whose facts are not kept for so long."""


class FactExtraction:
    """`demote_names`: what names a participant leaves group scope too."""

    def __init__(
        self,
        windows: Windows,
        streams: Streams,
        model: LanguageModel,
        forgetting: Forgetting,
        fence: Fence,
        metrics: ExtractionMetrics,
        *,
        demote_names: bool = False,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
        limits: FormationLimits = STANDARD,
    ) -> None:
        """`clock` is the wall's: it tells which scopes' retention has already ended."""
        self._windows, self._streams, self._model = windows, streams, model
        self._forgetting, self._fence, self._metrics = forgetting, fence, metrics
        self._demote_names, self._clock, self._limits = demote_names, clock, limits

    async def __call__(self, deliveries: Sequence[Delivery]) -> Sequence[Outgoing]:
        """Extract the facts of one window."""
        (delivery,) = deliveries
        if not isinstance(delivery.event, FormationRequested):
            return ()
        window = delivery.event.window()
        question = await self._question(delivery, window) if window.messages and fact_scopes(window) else None
        if question is None or not question.transcript.lines:
            return [facts_extracted(delivery, window)]
        if question.past >= set(question.scopes.all):
            self._metrics.extracted(STAGE, 0, {"past_retention": 1})
            return [facts_extracted(delivery, window, reason=PAST_RETENTION)]
        fence = self._fence.around(f"{STAGE}/{window.formation_id}")
        prompt = prompts.fact_extraction(self._material(question), fence)
        answered = await self._model.ask(prompt, ExtractedFacts, question.asking)
        return await self._formed(question, answered, fence)

    async def _question(self, delivery: Delivery, window: Window) -> FactQuestion:
        asking = asking_about(window, delivery, STAGE, "facts")
        windows, streams, marks, earlier = await gather(
            self._windows.windows([window.formation_id]),
            self._streams.of(window.agent_id),
            self._forgetting.among(named_by(window)),
            self._model.earlier(asking.unit),
        )
        stored = windows.get(window.formation_id)
        if stored is None:
            raise PermanentError("the texts of the window are kept no longer")
        told = transcript(stored, window, marks, earlier.shown if earlier else ())
        scopes = Scopes.of(fact_scopes(window), streams, self._limits, of_authors=of_authors(window))
        asking = replace(asking, shown=told.shown, model=scopes.model)
        names = participants_named(stored, window) if self._demote_names else ()
        return FactQuestion(delivery, window, asking, scopes, told, names, scopes.past(window, self._clock()))

    def _material(self, question: FactQuestion) -> FactMaterial:
        limits = self._limits
        lines, scopes = question.transcript.lines, question.scopes.for_facts()
        return FactMaterial(lines, scopes, limits.facts, limits.fact_words)

    async def _formed(
        self, question: FactQuestion, answered: Answered[ExtractedFacts], fence: str
    ) -> Sequence[Outgoing]:
        """Return the events of an answer, without what was forgotten while the model was asked."""
        marks = await self._forgetting.among(named_by(question.window))
        words = question.scopes.words(self._limits.fact_words)
        assignment = ScopeAssignment(
            question.window,
            question.transcript,
            question.scopes.all,
            words,
            fence,
            most_together=self._limits.facts,
            names=question.names,
        )
        stated = assignment.assign(answered.value.facts, marks)
        assigned = [item for item in stated if item.scope not in question.past]
        assignment.counts["expired"] += len(stated) - len(assigned)
        self._metrics.extracted(STAGE, len(assigned), assignment.counts)
        call = answered.call and answered.call.model_copy(update={"items": max(len(assigned), 1)})
        facts = tuple(_fact(item, number, question.window, call) for number, item in enumerate(assigned, 1))
        extracted = facts_extracted(question.delivery, question.window, facts).model_copy(
            update={
                "cut": assignment.counts["beyond"],
                "dropped": sum(assignment.counts[how] for how in ("no_scope", "personal", "expired")),
                "call": call,
            }
        )
        return [extracted, *proposals_of(extracted)]


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
    )
