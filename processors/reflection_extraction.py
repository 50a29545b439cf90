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
from eden_memory.formation.fence import Fence
from eden_memory.formation.placing import ExtractionWatch, Placed, Placing, Rules
from eden_memory.formation.prompt_material import ReflectionMaterial
from eden_memory.formation.replacement_results import session_closed
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
from eden_memory.models.model_protocols import LanguageModel
from eden_memory.models.question import Answered, Asking
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
class Case:
    """One window with all that its question is made from."""

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
        """The window."""
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
        watch: ExtractionWatch,
        *,
        demote_names: bool = False,
        limits: FormationLimits = STANDARD,
    ) -> None:
        self._windows, self._streams, self._snapshots = windows, streams, snapshots
        self._model, self._forgetting, self._fence = model, forgetting, fence
        self._watch, self._demote_names, self._limits = watch, demote_names, limits

    async def __call__(self, deliveries: Sequence[Delivery]) -> Sequence[Outgoing]:
        """One window, whether facts were found in it or not."""
        (delivery,) = deliveries
        extracted = delivery.event
        if not isinstance(extracted, FactsExtracted):
            return ()
        case = await self._case(delivery, extracted) if extracted.window.messages else None
        if case is None or not case.transcript.lines:
            return session_closed(delivery, extracted, 0)
        fence = self._fence.around(f"{STAGE}/{case.window.formation_id}")
        formed = await self._formed(case, await self._ask(case, fence), fence)
        of_session = sum(one.scope.kind == "session" for one in formed)
        return [*formed, *session_closed(delivery, extracted, of_session)]

    async def _case(self, delivery: Delivery, extracted: FactsExtracted) -> Case:
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
        return Case(delivery, extracted, asking, scopes, known, marks, told, names)

    async def _known(self, window: Window) -> dict[str, Snapshot]:
        """What is remembered, as far as all who take part may hear of it."""
        streams = await self._streams.of(window.agent_id)
        shards = {name: one for name, one in streams.items() if one.shard is not None}
        private = private_keys(window.scopes, shards, window.sharing)
        told = (one for one in window.scopes if one.kind != "user" or not of_authors(window))
        return await self._snapshots.without_users([one.key for one in told], private)

    async def _ask(self, case: Case, fence: str) -> Answered[StatedReflections]:
        facts = (one for one in case.extracted.facts if not case.marks.all_gone(one.sources))
        material = ReflectionMaterial(
            lines=case.transcript.lines,
            scopes=case.scopes.for_reflections(case.known, case.marks),
            facts=tuple(one.text for one in facts),
            words=self._limits.reflection_words,
        )
        prompt = prompts.reflection_extraction(material, fence)
        return await self._model.ask(prompt, StatedReflections, case.asking)

    async def _formed(
        self, case: Case, answered: Answered[StatedReflections], fence: str
    ) -> list[ReflectionFormed]:
        """What stands of the answer, by what is forgotten now that it is here."""
        marks = await self._forgetting.among(named_by(case.window))
        most = {scope.key: limits.most for scope, limits in case.scopes.limits.items()}
        words = case.scopes.words(self._limits.reflection_words)
        rules = Rules(case.scopes.all, words, most, names=case.names)
        placing = Placing(case.window, case.transcript, rules, fence)
        placed = placing.place(answered.value.reflections, marks)
        by_scope = Counter(one.scope.key for one in placed)
        missing = sum(limits.least > by_scope[scope.key] for scope, limits in case.scopes.limits.items())
        self._watch.extracted(STAGE, len(placed), {**placing.counts, "missing": missing})
        call = answered.call and answered.call.model_copy(update={"items": max(len(placed), 1)})
        position: Counter[str] = Counter()
        formed: list[ReflectionFormed] = []
        for one in placed:
            position[one.scope.key] += 1
            formed.append(_reflection(case, one, position[one.scope.key], call))
        return formed


def _reflection(case: Case, placed: Placed, position: int, call: Call | None) -> ReflectionFormed:
    window = case.window
    name = f"{window.formation_id}\n{placed.scope.key}\n{position}"
    return ReflectionFormed(
        cause=case.delivery.id,
        attempt=case.delivery.sent_again + 1,
        reflection_id=blake2b(name.encode(), digest_size=16).hexdigest(),
        scope=placed.scope,
        text=placed.text,
        position=position,
        formation_id=window.formation_id,
        session_id=window.session_id,
        origin="formed",
        sources=placed.sources,
        whole_window=placed.whole_window,
        call=call,
        formed_at=window.closed_at,
        said_at=newest_said(placed.sources) or window.closed_at,
        private=is_private(placed.scope, placed.sources, window),
        demoted_from=placed.demoted_from,
        asked_by=None,
    )
