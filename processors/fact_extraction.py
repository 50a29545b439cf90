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
from eden_memory.formation.fact_proposals import proposals_of
from eden_memory.formation.fence import Fence
from eden_memory.formation.placing import ExtractionWatch, Placed, Placing, Rules
from eden_memory.formation.prompt_material import FactMaterial
from eden_memory.formation.scope_briefs import (
    Scopes,
    asking_about,
    fact_scopes,
    of_authors,
    participants_named,
)
from eden_memory.formation.transcript import Transcript, named_by, transcript
from eden_memory.models.model_protocols import LanguageModel
from eden_memory.models.question import Answered, Asking
from eden_memory.schemas.answers import ExtractedFacts
from eden_memory.schemas.events import FactsExtracted, FormationRequested
from eden_memory.schemas.events.formation import ExtractedFact, Window
from eden_memory.schemas.provenance import Call
from eden_memory.schemas.scopes import Scope
from eden_memory.scope_limits import STANDARD, FormationLimits
from eden_memory.stages.stage import Delivery, Outgoing
from eden_memory.windows.window_request import Windows

STAGE = "fact-extraction"
PAST_RETENTION = "every scope's facts of so long ago have expired"


@dataclass(frozen=True, slots=True)
class Case:
    """One window with all that its question is made from."""

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
        watch: ExtractionWatch,
        *,
        demote_names: bool = False,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
        limits: FormationLimits = STANDARD,
    ) -> None:
        """`clock` (the wall's) tells what is past its retention already: decided once, as all that is decided."""
        self._windows, self._streams, self._model = windows, streams, model
        self._forgetting, self._fence, self._watch = forgetting, fence, watch
        self._demote_names, self._clock, self._limits = demote_names, clock, limits

    async def __call__(self, deliveries: Sequence[Delivery]) -> Sequence[Outgoing]:
        """One window."""
        (delivery,) = deliveries
        if not isinstance(delivery.event, FormationRequested):
            return ()
        window = delivery.event.window()
        case = await self._case(delivery, window) if window.messages and fact_scopes(window) else None
        if case is None or not case.transcript.lines:
            return [_extracted(delivery, window, ())]
        if case.past >= set(case.scopes.all):
            self._watch.extracted(STAGE, 0, {"past_retention": 1})
            return [_extracted(delivery, window, (), reason=PAST_RETENTION)]
        fence = self._fence.around(f"{STAGE}/{window.formation_id}")
        return await self._formed(case, await self._ask(case, fence), fence)

    async def _case(self, delivery: Delivery, window: Window) -> Case:
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
        return Case(delivery, window, asking, scopes, told, names, scopes.past(window, self._clock()))

    async def _ask(self, case: Case, fence: str) -> Answered[ExtractedFacts]:
        limits = self._limits
        material = FactMaterial(
            case.transcript.lines, case.scopes.for_facts(), limits.facts, limits.fact_words
        )
        return await self._model.ask(prompts.fact_extraction(material, fence), ExtractedFacts, case.asking)

    async def _formed(self, case: Case, answered: Answered[ExtractedFacts], fence: str) -> Sequence[Outgoing]:
        """What stands of the answer, by what is forgotten now that it is here."""
        marks = await self._forgetting.among(named_by(case.window))
        words = case.scopes.words(self._limits.fact_words)
        rules = Rules(case.scopes.all, words, {}, self._limits.facts, case.names)
        placing = Placing(case.window, case.transcript, rules, fence)
        stated = placing.place(answered.value.facts, marks)
        placed = [one for one in stated if one.scope not in case.past]
        placing.counts["expired"] += len(stated) - len(placed)
        self._watch.extracted(STAGE, len(placed), placing.counts)
        call = answered.call and answered.call.model_copy(update={"items": max(len(placed), 1)})
        facts = tuple(_fact(one, number, case.window, call) for number, one in enumerate(placed, 1))
        extracted = _extracted(case.delivery, case.window, facts).model_copy(
            update={
                "cut": placing.counts["beyond"],
                "dropped": sum(placing.counts[how] for how in ("no_scope", "personal", "expired")),
                "call": call,
            }
        )
        return [extracted, *proposals_of(extracted)]


def _fact(placed: Placed, number: int, window: Window, call: Call | None) -> ExtractedFact:
    return ExtractedFact(
        number=number,
        text=placed.text,
        formation_id=window.formation_id,
        sources=placed.sources,
        whole_window=placed.whole_window,
        call=call,
        scope=placed.scope,
        demoted_from=placed.demoted_from,
    )


def _extracted(
    delivery: Delivery, window: Window, facts: tuple[ExtractedFact, ...], reason: str | None = None
) -> FactsExtracted:
    return FactsExtracted(
        cause=delivery.id,
        attempt=delivery.sent_again + 1,
        window=window,
        outcome="extracted" if facts else "empty",
        reason=reason,
        facts=facts,
    )
