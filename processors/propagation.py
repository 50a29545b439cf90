"""memory.consolidations → memory.reflections: judges which absorbed reflections matter to a broader scope.

A user's go to the group of their sessions, a group's to the agent. Off, unless the settings or the agent's stream say
otherwise. A reflection is judged once, whichever blobs absorb it. Texts that are about a person are dropped.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import NamedTuple

from eden_memory.directory.participants import Directory, Streams
from eden_memory.forgotten import ForgottenMarks
from eden_memory.formation import prompts
from eden_memory.formation.consolidation_rules import TierOf, users_of
from eden_memory.formation.memory_commands import is_withdrawn
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
    needed_of,
    propagated,
    supporting,
)
from eden_memory.formation.transcript import REMOVED
from eden_memory.formation.window_question import SharingRules, shared_call
from eden_memory.limits import STANDARD, FormationLimits, fitted, limits_of
from eden_memory.metrics import count_judged
from eden_memory.models.question import Asking, LanguageModel, unit_of
from eden_memory.schemas.answers import JudgedReflection, JudgedReflections, ShownAlike
from eden_memory.schemas.documents import Reflection
from eden_memory.schemas.events import ReflectionFormed, ScopeConsolidated
from eden_memory.schemas.provenance import Call
from eden_memory.schemas.scopes import Scope
from eden_memory.stages.stage import Decision, Delivery, Result

STAGE = "propagation"
MOST_OTHERS = 60
"""Reflections of other scopes that are shown where several scopes must show the same, the newest."""


class Judgement(NamedTuple):
    """What a model says of reflections."""

    stated: Mapping[str, tuple[JudgedReflection, str]]
    """Its items, with their texts, by reflection."""
    others: Mapping[int, Candidate]
    """Those of other scopes, by the numbers under which they were shown."""
    provider: str | None
    call: Call | None


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
        streams = await self._streams.of(event.scope.agent_id)
        if not is_on(streams, self._on):
            return ()
        wanted = event.absorbed
        before = await self._absorbed.decided_among(map(judged, wanted))
        stored = await self._absorbed.reflections([name for name in wanted if judged(name) not in before])
        candidates, needed = await self._candidates(event, stored), needed_of(streams)
        formed: list[ReflectionFormed] = []
        for target in dict.fromkeys(candidate.target for candidate in candidates):
            of_target = [candidate for candidate in candidates if candidate.target == target]
            formed += await self._propagated(delivery, event, target, of_target, needed)
        given = [f"reflection:{reflection.reflection_id}@1" for reflection in formed]
        return Decision(
            formed, writes=(*given, *(judged(candidate.reflection.id) for candidate in candidates))
        )

    async def _candidates(
        self, event: ScopeConsolidated, stored: Sequence[Reflection], beside: Scope | None = None
    ) -> list[Candidate]:
        """Return those of the reflections that may be judged, and count the others.

        `beside`: those that may go to this scope and are shown beside what is judged; they are not counted.
        """
        authors = authors_of(stored)
        sessions = await self._directory.look_up(list(authors), authors)
        off = await self._directory.off(authors, ())
        found = [candidate_of(reflection, sessions, off) for reflection in stored]
        withheld = Counter(reason for reason in found if isinstance(reason, str))
        every = (candidate for candidate in found if isinstance(candidate, Candidate))
        candidates = [candidate for candidate in every if beside in (None, candidate.target)]
        private = await self._absorbed.private_among(_messages(candidates))
        withheld["private"] += sum(candidate.rests_on(private) for candidate in candidates)
        if beside is None:
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
        return any(map(is_withdrawn, decided))

    async def _propagated(
        self,
        delivery: Delivery,
        event: ScopeConsolidated,
        target: Scope,
        candidates: Sequence[Candidate],
        needed: int,
    ) -> list[ReflectionFormed]:
        """Return what goes to one broader scope: what `needed` of the narrower ones show, and may be said there."""
        judgement = await self._judgement(delivery, event, target, candidates, needed)
        if judgement is None:
            count_judged(BROADER[event.scope.kind], {"alone": len(candidates)})
            return []
        stated, others, provider, call = judgement
        seen = {name for other in others.values() for name in other.names}
        standing = {candidate.reflection.id: candidate for candidate in await self._standing(candidates)}
        left = {other.reflection.id for other in await self._standing([*others.values()])}
        others = {number: other for number, other in others.items() if other.reflection.id in left}
        names = seen | (await self._sharing.known(target.agent_id)).names if stated else seen
        tried = call is None or await self._sharing.may_judge(provider, call)
        formed: list[tuple[Candidate, str, Sequence[Candidate]]] = []
        counts = Counter({"propagated": 0, "personal": 0, "kept": len(standing)})
        for name, (item, text) in stated.items():
            if (candidate := standing.get(name)) is None:
                continue
            said = candidate.statement(item, text, names) if tried else None
            alike = supporting(item, candidate, others, needed)
            counts["kept"] -= 1
            counts["personal" if said is None else "alone" if alike is None else "propagated"] += 1
            if said is not None and alike is not None:
                formed.append((candidate, said, alike))
        count_judged(BROADER[event.scope.kind], counts)
        share = shared_call(call, len(formed))
        return [propagated(delivery, candidate, text, share, alike) for candidate, text, alike in formed]

    async def _judgement(
        self,
        delivery: Delivery,
        event: ScopeConsolidated,
        target: Scope,
        candidates: Sequence[Candidate],
        needed: int,
    ) -> Judgement | None:
        """Return what the model says; None, without a call, where too few others show anything.

        Numbers of an answer that arrived before count as shown then.
        """
        decision = f"{event.key()}/{target.key}"
        unit, fence = unit_of(STAGE, decision, delivery.sent_again), self._fence.around(f"{STAGE}/{decision}")
        earlier = await self._model.earlier(unit)
        others = await self._others(event, target) if needed > 1 else []
        if earlier is None and len({other.source.key for other in others}) < needed - 1:
            return None
        by_id = {candidate.reflection.id: candidate for candidate in (*candidates, *others)}
        shown, absorbed = earlier.shown if earlier else tuple(by_id), set(event.absorbed)
        own, beside = ([name for name in shown if (name in absorbed) is of_own] for of_own in (True, False))
        own_texts, texts = (
            tuple(by_id[name].reflection.content if name in by_id else REMOVED for name in names)
            for names in (own, beside)
        )
        limits, to = self._limits, BROADER[event.scope.kind]
        material = PropagationMaterial(to, own_texts, limits.reflection_words, limits.language, texts or None)
        prompt, asking = (
            prompts.propagation(material, fence),
            await self._asking(delivery, event, unit, shown),
        )
        answered = (
            await self._model.ask(prompt, ShownAlike, asking)
            if texts
            else await self._model.ask(prompt, JudgedReflections, asking)
        )
        stated = _texts(answered.value.propagated, own, fence, limits.reflection_words)
        numbered = {number: by_id[name] for number, name in enumerate(beside, len(own) + 1) if name in by_id}
        return Judgement(stated, numbered, answered.provider, answered.call)

    async def _others(self, event: ScopeConsolidated, target: Scope) -> list[Candidate]:
        """Return the newest that others of the same broader scope show."""
        found: list[Candidate] = []
        async with aclosing(self._absorbed.of_others(event.scope, MOST_OTHERS)) as pages:
            async for stored in pages:
                found += await self._candidates(event, stored, beside=target)
                if len(found) >= MOST_OTHERS:
                    break
        return found[:MOST_OTHERS]

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
    judgements: Sequence[JudgedReflection], shown: Sequence[str], fence: str, words: int
) -> dict[str, tuple[JudgedReflection, str]]:
    """Return the items of an answer, with texts, by the reflection that each names; of two of the same the first."""
    found: dict[str, tuple[JudgedReflection, str]] = {}
    for item in judgements:
        if 0 < item.reflection <= len(shown):
            text = fitted(prompts.plain(item.text, fence), words)
            found.setdefault(shown[item.reflection - 1], (item, text))
    return found
