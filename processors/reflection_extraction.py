"""memory.extractions → memory.reflections: one call forms a window's reflections, for all its scopes and shards.

It sees the conversation, what is known of each scope, and the facts just extracted; it works beside fact-dedup.
Never skipped for want of facts: the session's reflections are always formed.
"""

from asyncio import gather
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b

from eden_memory.access.sharing import private_keys
from eden_memory.directory.participants import Streams
from eden_memory.failures import PermanentError
from eden_memory.forgotten import Forgetting, Marks
from eden_memory.formation import prompts
from eden_memory.formation.extraction_results import session_closed
from eden_memory.formation.prompt_material import ReflectionMaterial
from eden_memory.formation.prompts import Fence
from eden_memory.formation.scope_assignment import AssignedItem, ScopeAssignment
from eden_memory.formation.scope_briefs import (
    Scopes,
    asking_about,
    is_private,
    known_of,
    of_authors,
    participants_named,
)
from eden_memory.formation.transcript import Transcript, named_by, transcript
from eden_memory.memory.snapshot_projection import Snapshots
from eden_memory.metrics import ExtractionMetrics
from eden_memory.models.question import Answered, Asking, LanguageModel
from eden_memory.schemas.answers import StatedReflections
from eden_memory.schemas.documents import Snapshot
from eden_memory.schemas.events import FactsExtracted, ReflectionFormed
from eden_memory.schemas.events.formation import Window
from eden_memory.schemas.provenance import Call, newest_said
from eden_memory.scope_limits import STANDARD, FormationLimits
from eden_memory.stages.stage import Delivery, Outgoing
from eden_memory.windows.window_request import Windows

STAGE = "reflection-extraction"


@dataclass(frozen=True, slots=True)
class ReflectionQuestion:
    """A window with everything its question is made from."""

    delivery: Delivery
    extracted: FactsExtracted
    asking: Asking
    scopes: Scopes
    known: dict[str, Snapshot]
    marks: Marks
    transcript: Transcript
    names: tuple[str, ...]

    @property
    def window(self) -> Window:
        """The window that reflections are formed from."""
        return self.extracted.window


class ReflectionExtraction:
    """`demote_names`: what names a participant leaves group scope too."""

    def __init__(
        self,
        windows: Windows,
        streams: Streams,
        snapshots: Snapshots,
        model: LanguageModel,
        forgetting: Forgetting,
        fence: Fence,
        metrics: ExtractionMetrics,
        *,
        demote_names: bool = False,
        limits: FormationLimits = STANDARD,
    ) -> None:
        self._windows, self._streams, self._snapshots = windows, streams, snapshots
        self._model, self._forgetting, self._fence = model, forgetting, fence
        self._metrics, self._demote_names, self._limits = metrics, demote_names, limits

    async def __call__(self, deliveries: Sequence[Delivery]) -> Sequence[Outgoing]:
        """Form the reflections of one window, whether facts were found in it or not."""
        (delivery,) = deliveries
        extracted = delivery.event
        if not isinstance(extracted, FactsExtracted):
            return ()
        question = await self._question(delivery, extracted) if extracted.window.messages else None
        if question is None or not question.transcript.lines:
            return session_closed(delivery, extracted, 0)
        fence = self._fence.around(f"{STAGE}/{question.window.formation_id}")
        formed = await self._formed(question, await self._ask(question, fence), fence)
        of_session = sum(reflection.scope.kind == "session" for reflection in formed)
        return [*formed, *session_closed(delivery, extracted, of_session)]

    async def _question(self, delivery: Delivery, extracted: FactsExtracted) -> ReflectionQuestion:
        window = extracted.window
        asking = asking_about(window, delivery, STAGE, "reflections")
        windows, streams, known, earlier = await gather(
            self._windows.windows([window.formation_id]),
            self._streams.of(window.agent_id),
            self._known(window),
            self._model.earlier(asking.unit),
        )
        stored = windows.get(window.formation_id)
        if stored is None:
            raise PermanentError("the texts of the window are kept no longer")
        marks = await self._forgetting.among(named_by(window) | known_of(known))
        told = transcript(stored, window, marks, earlier.shown if earlier else ())
        scopes = Scopes.of(window.scopes, streams, self._limits, of_authors=of_authors(window))
        asking = replace(asking, shown=told.shown, model=scopes.model)
        names = participants_named(stored, window) if self._demote_names else ()
        return ReflectionQuestion(delivery, extracted, asking, scopes, known, marks, told, names)

    async def _known(self, window: Window) -> dict[str, Snapshot]:
        """Return the snapshots of the window's scopes, as far as all who take part may hear of them."""
        streams = await self._streams.of(window.agent_id)
        shards = {name: stream for name, stream in streams.items() if stream.shard is not None}
        private = private_keys(window.scopes, shards, window.sharing)
        told = (scope for scope in window.scopes if scope.kind != "user" or not of_authors(window))
        return await self._snapshots.without_users([scope.key for scope in told], private)

    async def _ask(self, question: ReflectionQuestion, fence: str) -> Answered[StatedReflections]:
        facts = (fact for fact in question.extracted.facts if not question.marks.all_gone(fact.sources))
        material = ReflectionMaterial(
            lines=question.transcript.lines,
            scopes=question.scopes.for_reflections(question.known, question.marks),
            facts=tuple(fact.text for fact in facts),
            words=self._limits.reflection_words,
        )
        prompt = prompts.reflection_extraction(material, fence)
        return await self._model.ask(prompt, StatedReflections, question.asking)

    async def _formed(
        self, question: ReflectionQuestion, answered: Answered[StatedReflections], fence: str
    ) -> list[ReflectionFormed]:
        """Return the events of an answer, without what was forgotten while the model was asked."""
        marks = await self._forgetting.among(named_by(question.window))
        most = {scope.key: limits.most for scope, limits in question.scopes.limits.items()}
        words = question.scopes.words(self._limits.reflection_words)
        assignment = ScopeAssignment(
            question.window,
            question.transcript,
            question.scopes.all,
            words,
            fence,
            most,
            names=question.names,
        )
        assigned = assignment.assign(answered.value.reflections, marks)
        by_scope = Counter(item.scope.key for item in assigned)
        missing = sum(limits.least > by_scope[scope.key] for scope, limits in question.scopes.limits.items())
        self._metrics.extracted(STAGE, len(assigned), {**assignment.counts, "missing": missing})
        call = answered.call and answered.call.model_copy(update={"items": max(len(assigned), 1)})
        position: Counter[str] = Counter()
        formed: list[ReflectionFormed] = []
        for item in assigned:
            position[item.scope.key] += 1
            formed.append(_reflection(question, item, position[item.scope.key], call))
        return formed


def _reflection(
    question: ReflectionQuestion, assigned: AssignedItem, position: int, call: Call | None
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
        private=is_private(assigned.scope, question.transcript.authors_of(assigned.sources), window),
        demoted_from=assigned.demoted_from,
        asked_by=None,
    )
