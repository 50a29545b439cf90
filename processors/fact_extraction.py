"""memory.formations → memory.extractions, memory.candidates: one call finds the facts of a closed window.

It sees the conversation alone, no memory: facts must stand alone. Every formation has exactly one FactsExtracted.
"""

from asyncio import gather
from collections.abc import Sequence
from dataclasses import dataclass, replace

from eden_memory import prompts
from eden_memory.domain.asking import Answered, Asking
from eden_memory.domain.extraction.briefs import Scopes, asking_about, fact_scopes, participants_named
from eden_memory.domain.extraction.placing import Placed, Placing, Rules
from eden_memory.domain.extraction.transcript import Transcript, named_by, transcript
from eden_memory.domain.failures import PermanentError
from eden_memory.domain.fence import Fence
from eden_memory.domain.limits import FACT_WORDS, FACTS_OF_A_WINDOW
from eden_memory.domain.material import FactMaterial
from eden_memory.domain.stage import Delivery, Outgoing
from eden_memory.ports import ExtractionWatch, Forgetting, LanguageModel, Streams, Windows
from schemas.answers import ExtractedFacts
from schemas.events import FactsExtracted, FactsProposed, FormationRequested
from schemas.events.formation import ExtractedFact, Window
from schemas.provenance import Call, Statement

STAGE = "fact-extraction"


@dataclass(frozen=True, slots=True)
class Case:
    """One window with all that its question is made from."""

    delivery: Delivery
    window: Window
    asking: Asking
    scopes: Scopes
    transcript: Transcript
    names: tuple[str, ...]


class FactExtraction:
    """`demote_names`: also what names a participant leaves agent and group scope."""

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
    ) -> None:
        self._windows, self._streams, self._model = windows, streams, model
        self._forgetting, self._fence, self._watch = forgetting, fence, watch
        self._demote_names = demote_names

    async def __call__(self, deliveries: Sequence[Delivery]) -> Sequence[Outgoing]:
        """One window."""
        (delivery,) = deliveries
        if not isinstance(delivery.event, FormationRequested):
            return ()
        window = delivery.event.window()
        case = await self._case(delivery, window) if window.messages and fact_scopes(window) else None
        if case is None or not case.transcript.lines:
            return [_extracted(delivery, window, ())]
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
        scopes = Scopes.of(fact_scopes(window), streams)
        asking = replace(asking, shown=told.shown, model=scopes.model)
        names = participants_named(stored, window) if self._demote_names else ()
        return Case(delivery, window, asking, scopes, told, names)

    async def _ask(self, case: Case, fence: str) -> Answered[ExtractedFacts]:
        material = FactMaterial(case.transcript.lines, case.scopes.for_facts(), FACTS_OF_A_WINDOW, FACT_WORDS)
        return await self._model.ask(prompts.fact_extraction(material, fence), ExtractedFacts, case.asking)

    async def _formed(self, case: Case, answered: Answered[ExtractedFacts], fence: str) -> Sequence[Outgoing]:
        """What stands of the answer, by what is forgotten now that it is here."""
        marks = await self._forgetting.among(named_by(case.window))
        rules = Rules(case.scopes.all, case.scopes.words(FACT_WORDS), {}, FACTS_OF_A_WINDOW, case.names)
        placing = Placing(case.window, case.transcript, rules, fence)
        placed = placing.place(answered.value.facts, marks)
        self._watch.extracted(STAGE, len(placed), placing.counts)
        call = answered.call and answered.call.model_copy(update={"items": max(len(placed), 1)})
        facts = tuple(_fact(one, number, case.window, call) for number, one in enumerate(placed, 1))
        extracted = _extracted(case.delivery, case.window, facts).model_copy(
            update={
                "cut": placing.counts["beyond"],
                "dropped": placing.counts["no_scope"] + placing.counts["personal"],
                "call": call,
            }
        )
        return [extracted, *_proposed(case, facts)]


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


def _extracted(delivery: Delivery, window: Window, facts: tuple[ExtractedFact, ...]) -> FactsExtracted:
    return FactsExtracted(
        cause=delivery.id,
        attempt=delivery.sent_again + 1,
        window=window,
        outcome="extracted" if facts else "empty",
        facts=facts,
    )


def _proposed(case: Case, facts: Sequence[ExtractedFact]) -> list[FactsProposed]:
    """One for each scope that has facts, from broad to narrow."""
    by_scope = {scope: tuple(one for one in facts if one.scope == scope) for scope in case.scopes.all}
    return [
        FactsProposed(
            cause=case.delivery.id,
            attempt=case.delivery.sent_again + 1,
            formation_id=case.window.formation_id,
            session_id=case.window.session_id,
            scope=scope,
            facts=tuple(map(_statement, stated)),
            formed_at=case.window.closed_at,
            settings_version=case.window.settings_version,
        )
        for scope, stated in by_scope.items()
        if stated
    ]


def _statement(fact: ExtractedFact) -> Statement:
    return Statement(**{name: getattr(fact, name) for name in Statement.model_fields})
