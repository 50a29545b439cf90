"""memory.consolidations → memory.reflections: judges which absorbed reflections matter to a broader scope.

A user's go to the group of their sessions, a group's to the agent. Off, unless the settings or the agent's stream say
otherwise. A reflection is judged once, whichever blobs absorb it. Texts that are about a person are dropped.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from eden_memory.directory.participants import Directory, Streams
from eden_memory.forgotten import ForgottenMarks
from eden_memory.formation import prompts
from eden_memory.formation.consolidation_rules import TierOf, users_of
from eden_memory.formation.prompt_material import PropagationMaterial
from eden_memory.formation.prompts import Fence
from eden_memory.formation.propagation_rules import (
    BROADER,
    AbsorbedReflections,
    Candidate,
    authors_of,
    candidate_of,
    is_on,
    judged,
    propagated,
)
from eden_memory.formation.transcript import REMOVED
from eden_memory.formation.window_question import SharingRules, shared_call
from eden_memory.limits import STANDARD, FormationLimits, fitted, limits_of
from eden_memory.metrics import count_judged
from eden_memory.models.question import Asking, LanguageModel, unit_of
from eden_memory.schemas.answers import JudgedReflection, JudgedReflections
from eden_memory.schemas.documents import Reflection
from eden_memory.schemas.events import ReflectionFormed, ScopeConsolidated
from eden_memory.schemas.provenance import Call
from eden_memory.schemas.scopes import Scope
from eden_memory.stages.stage import Decision, Delivery, Result

STAGE = "propagation"


class Propagation:
    """Propagates what a blob version has absorbed; `on`: for agents whose stream does not say."""

    def __init__(
        self,
        absorbed: AbsorbedReflections,
        directory: Directory,
        streams: Streams,
        model: LanguageModel,
        forgetting: ForgottenMarks,
        fence: Fence,
        sharing: SharingRules,
        tier_of: TierOf,
        *,
        on: bool = False,
        limits: FormationLimits = STANDARD,
    ) -> None:
        self._absorbed, self._directory, self._streams = absorbed, directory, streams
        self._model, self._forgetting, self._fence = model, forgetting, fence
        self._sharing, self._tier_of, self._on, self._limits = sharing, tier_of, on, limits

    async def __call__(self, deliveries: Sequence[Delivery]) -> Result:
        """Judge the reflections that one blob version absorbed."""
        (delivery,) = deliveries
        event = delivery.event
        if not isinstance(event, ScopeConsolidated) or event.scope.kind not in BROADER or not event.absorbed:
            return ()
        if not is_on(await self._streams.of(event.scope.agent_id), self._on):
            return ()
        candidates = await self._candidates(event)
        formed: list[ReflectionFormed] = []
        for target in dict.fromkeys(candidate.target for candidate in candidates):
            of_target = [candidate for candidate in candidates if candidate.target == target]
            formed += await self._propagated(delivery, event, target, of_target)
        given = [f"reflection:{reflection.reflection_id}@1" for reflection in formed]
        return Decision(
            formed, writes=(*given, *(judged(candidate.reflection.id) for candidate in candidates))
        )

    async def _candidates(self, event: ScopeConsolidated) -> list[Candidate]:
        """Return the reflections that may be judged, and were not before."""
        before = await self._absorbed.decided_among(map(judged, event.absorbed))
        wanted = [name for name in event.absorbed if judged(name) not in before]
        stored = await self._absorbed.reflections(wanted)
        authors = authors_of(stored)
        sessions = await self._directory.look_up(list(authors), authors)
        off = await self._directory.off(authors, ())
        found = [candidate_of(reflection, sessions, off) for reflection in stored]
        withheld = Counter(reason for reason in found if isinstance(reason, str))
        candidates = [candidate for candidate in found if isinstance(candidate, Candidate)]
        private = await self._absorbed.private_among(_messages(candidates))
        withheld["private"] += sum(candidate.rests_on(private) for candidate in candidates)
        count_judged(BROADER[event.scope.kind], withheld)
        return await self._standing(candidates)

    async def _standing(self, candidates: Sequence[Candidate]) -> list[Candidate]:
        """Return those that are neither forgotten, nor made private or retired by now."""
        marks = await self._forgetting.among({pair for candidate in candidates for pair in candidate.named})
        private = await self._absorbed.private_among(_messages(candidates))
        kept = [
            candidate
            for candidate in candidates
            if not candidate.is_forgotten(marks) and not candidate.rests_on(private)
        ]
        return [candidate for candidate in kept if not await self._is_withdrawn(candidate.reflection)]

    async def _is_withdrawn(self, stored: Reflection) -> bool:
        """Return whether a version that the writer has not applied yet is private or retired."""
        decided = await self._absorbed.reflections_beyond(stored.id, stored.version)
        return any(version.private or version.retired_at is not None for version in decided)

    async def _propagated(
        self, delivery: Delivery, event: ScopeConsolidated, target: Scope, candidates: Sequence[Candidate]
    ) -> list[ReflectionFormed]:
        """Return what goes to one broader scope."""
        stated, provider, call = await self._stated(delivery, event, target, candidates)
        standing = {candidate.reflection.id: candidate for candidate in await self._standing(candidates)}
        names = (await self._sharing.known(target.agent_id)).names if stated else frozenset[str]()
        tried = call is None or await self._sharing.may_judge(provider, call)
        said = {
            name: standing[name].statement(item, text, names) if tried else None
            for name, (item, text) in stated.items()
            if name in standing
        }
        texts = {name: text for name, text in said.items() if text is not None}
        count_judged(
            BROADER[event.scope.kind],
            {"propagated": len(texts), "personal": len(said) - len(texts), "kept": len(standing) - len(said)},
        )
        share = shared_call(call, len(texts))
        return [propagated(delivery, standing[name], text, share) for name, text in texts.items()]

    async def _stated(
        self, delivery: Delivery, event: ScopeConsolidated, target: Scope, candidates: Sequence[Candidate]
    ) -> tuple[dict[str, tuple[JudgedReflection, str]], str | None, Call | None]:
        """Return the judgements by reflection; numbers of an answer that arrived before count as shown then."""
        decision = f"{event.key()}/{target.key}"
        unit, fence = unit_of(STAGE, decision, delivery.sent_again), self._fence.around(f"{STAGE}/{decision}")
        earlier = await self._model.earlier(unit)
        shown = earlier.shown if earlier else tuple(candidate.reflection.id for candidate in candidates)
        by_id = {candidate.reflection.id: candidate for candidate in candidates}
        prompt = prompts.propagation(self._material(event, shown, by_id), fence)
        asking = await self._asking(delivery, event, unit, shown)
        answered = await self._model.ask(prompt, JudgedReflections, asking)
        texts = _texts(answered.value, shown, fence, self._limits.reflection_words)
        return texts, answered.provider, answered.call

    def _material(
        self, event: ScopeConsolidated, shown: Sequence[str], by_id: dict[str, Candidate]
    ) -> PropagationMaterial:
        texts = (by_id[name].reflection.content if name in by_id else REMOVED for name in shown)
        limits = self._limits
        return PropagationMaterial(
            BROADER[event.scope.kind], tuple(texts), limits.reflection_words, limits.language
        )

    async def _asking(
        self, delivery: Delivery, event: ScopeConsolidated, unit: str, shown: tuple[str, ...]
    ) -> Asking:
        scope, streams = event.scope, await self._streams.of(event.scope.agent_id)
        return replace(
            Asking.about(delivery, STAGE, "propagation", scope.agent_id),
            unit=unit,
            user_id=scope.user_id,
            scope=scope.key,
            tier=await self._tier_of(users_of(scope), None),
            shown=shown,
            model=limits_of(scope, streams, self._limits).consolidation_model,
        )


def _messages(candidates: Sequence[Candidate]) -> set[str]:
    return {message for candidate in candidates for message in candidate.reflection.message_ids}


def _texts(
    answer: JudgedReflections, shown: Sequence[str], fence: str, words: int
) -> dict[str, tuple[JudgedReflection, str]]:
    """Return the items of an answer, with texts, by the reflection that each names; of two of the same the first."""
    found: dict[str, tuple[JudgedReflection, str]] = {}
    for item in answer.propagated:
        if 0 < item.reflection <= len(shown):
            text = fitted(prompts.plain(item.text, fence), words)
            found.setdefault(shown[item.reflection - 1], (item, text))
    return found
