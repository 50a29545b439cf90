"""memory.candidates → memory.facts: what new facts, and commands, mean for the facts of their scope.

Proposals that wait together are decided together: exact repeats by their hash, the others by what is near them, with
one question to a model at most. So are additions that wait together, which ask a model only if their commands say so.
Other commands are carried out one by one, without a model.
"""

from asyncio import gather
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate, takewhile

from eden_memory.directory.participants import Streams
from eden_memory.forgotten import ForgottenMarks, Marks, ids_of
from eden_memory.formation.decision_plan import DecisionPlan, merged_near, plan
from eden_memory.formation.fact_commands import CommandExecutor, refused
from eden_memory.formation.fact_decisions import Comparison, DecisionResolver, NoVector, compared
from eden_memory.formation.fact_statements import (
    Decided,
    FactSearch,
    KnownFact,
    Stated,
    adds_together,
    remembered,
    repeatable,
    stated_by_commands,
    stated_in,
    unsettled,
)
from eden_memory.formation.prompts import Fence, fact_decisions
from eden_memory.formation.scope_facts import ScopeFacts
from eden_memory.limits import STANDARD, FormationLimits, limits_of
from eden_memory.memory.memory_batch import fact_hash
from eden_memory.metrics import DEDUP
from eden_memory.models.question import Asking, Earlier, Embedder, LanguageModel
from eden_memory.schemas.answers import FactDecisions
from eden_memory.schemas.events import Event, FactChanged, FactCommanded, FactsProposed
from eden_memory.schemas.provenance import Embedding
from eden_memory.schemas.scopes import Scope
from eden_memory.stages.stage import Decision, Delivery, Emit

STAGE = "fact-dedup"
MOST_BYTES = 3_000_000
"""Of the events of one decision, about; the proposals beyond it wait for the next one."""


@dataclass(frozen=True, slots=True)
class Stores:
    """The stores that dedup reads: known facts, decisions, forgotten ids and streams."""

    search: FactSearch
    decided: Decided
    forgetting: ForgottenMarks
    streams: Streams


@dataclass(slots=True)
class DedupWork:
    """A decision under way: its deliveries, and everything read of the scope for it."""

    deliveries: Sequence[Delivery]
    scope: Scope
    stated: Sequence[Stated] = ()
    outcome: int = 1
    """The number that the decision takes."""
    stored: list[KnownFact] = field(default_factory=list[KnownFact])
    decided: dict[str, KnownFact] = field(default_factory=dict[str, KnownFact])
    """The newest versions among the decisions that may not be in the store yet."""
    hashes: set[str] = field(default_factory=set[str])
    """Of the texts that were looked up."""
    given: Mapping[str, int] = field(default_factory=dict[str, int])
    """The highest version ever given to a fact, where that is not the newest one known."""
    vectors: dict[str, Embedding] = field(default_factory=dict[str, Embedding])
    """By text."""
    compared: Comparison = field(default_factory=Comparison)
    covers: int | None = None

    def facts(self, marks: Marks) -> ScopeFacts:
        """Return the scope's facts as known so far, to be changed."""
        facts = ScopeFacts(self.scope, self.outcome, marks, self.given)
        facts.learn([*self.stored, *self.decided.values()])
        return facts

    def touched(self) -> list[KnownFact]:
        """Return the facts that may change: same text, compared with, or named by a command."""
        first = self.deliveries[0].event
        named = (first.fact_id, first.replaced_by) if isinstance(first, FactCommanded) else ()
        names = {*self.compared.as_shown, *named}
        known = [*self.stored, *self.decided.values()]
        return [fact for fact in known if fact.hash in self.hashes or fact.fact_id in names]


class FactDedup:
    """`similar`: (1 + cosine) / 2 from which facts are compared; `unrelated`: of facts that have nothing in common.

    `dedup` off: only exact repeats are found.
    """

    def __init__(
        self,
        stores: Stores,
        model: LanguageModel,
        embedder: Embedder,
        fence: Fence,
        *,
        similar: float,
        unrelated: float = 0.5,
        dedup: bool = True,
        limits: FormationLimits = STANDARD,
    ) -> None:
        self._stores, self._model, self._embedder = stores, model, embedder
        self._fence = fence
        self._similar, self._unrelated, self._dedup, self._limits = similar, unrelated, dedup, limits

    async def __call__(self, deliveries: Sequence[Delivery]) -> Decision:
        """Decide waiting proposals or additions of one scope, or one command."""
        first = deliveries[0]
        match first.event:
            case FactCommanded(action="add") as command:
                run = deliveries[: adds_together(deliveries)]
                return await self._propose(DedupWork(run, command.scope, stated_by_commands(run)))
            case FactCommanded() as command:
                return await self._command(DedupWork([first], command.scope), command)
            case FactsProposed() as proposed:
                run = list(takewhile(lambda delivery: isinstance(delivery.event, FactsProposed), deliveries))
                return await self._propose(DedupWork(run, proposed.scope, stated_in(run)))
            case _:
                return Decision((), covers=1)

    async def _propose(self, work: DedupWork) -> Decision:
        """Decide what statements mean for the scope's facts."""
        hashes, names = [stated.hash for stated in work.stated], [stated.fact_id for stated in work.stated]
        marks, _ = await gather(self._marks(work), self._read(work, hashes, names))
        if work.touched():
            marks = await self._marks(work)
        facts = work.facts(marks)
        asked = remembered(work.stated, work.scope, marks)
        new = repeatable(asked, {stated.hash for stated in asked if facts.with_hash(stated.hash) is not None})
        compares = bool(new) and self._dedup and _is_compared(work.deliveries[0].event)
        texts = [stated.text for stated in new]
        if compares:
            asking = self._asking(work)
            earlier, _ = await gather(self._model.earlier(asking.unit), self._embed(work, texts))
            await self._compare(work, new, marks, asking, earlier)
        else:
            await self._embed(work, texts)
        return await self._resolve(work)

    async def _compare(
        self, work: DedupWork, new: Sequence[Stated], marks: Marks, asking: Asking, earlier: Earlier | None
    ) -> None:
        """Ask what the new facts mean for those near them; nobody is asked where nothing is near.

        An answer that had arrived before a crash is used for what it was asked about, as long as that still stands.
        """
        asked = await self._revived(work, earlier, marks)
        if asked is not None:
            members = set(asked.members)
            work.covers = sum(1 for _ in takewhile(lambda delivery: delivery.id in members, work.deliveries))
        else:
            asked = await self._planned(work, new, marks)
        if not asked.new:
            return
        if earlier is not None and earlier.shown != asked.shown():
            asking = replace(asking, unit=f"{asking.unit}/{asked.digest()}")
        await self._ask(work, asked, {stated.fact_id: stated for stated in new}, asking)

    async def _planned(self, work: DedupWork, new: Sequence[Stated], marks: Marks) -> DecisionPlan:
        """Return the plan for new facts and what is near them now, without facts that say the same."""
        vectors, model = [work.vectors[stated.text].vector for stated in new], self._embedder.model
        most = self._limits.similar_facts
        stored = await self._stores.search.nearest(work.scope.key, vectors, most, self._similar)
        work.stored += [hit.fact for found in stored for hit in found]
        facts = work.facts(marks)
        decided = {name: facts.active(name) for name in work.decided}
        usable = {
            name: None if fact is None or fact.embedding_model != model else fact
            for name, fact in decided.items()
        }
        active = [[hit for hit in found if facts.active(hit.fact.fact_id) is not None] for found in stored]
        merged = merged_near(active, usable, vectors, self._similar, most)
        near = [
            [other for other in found if other.fact.hash != stated.hash]
            for stated, found in zip(new, merged, strict=True)
        ]
        known = {stated.hash for stated in new if facts.with_hash(stated.hash) is not None}
        left = unsettled(new, vectors, near, known, self._similar)
        return plan(
            [delivery.id for delivery in work.deliveries],
            [new[index] for index in left],
            [vectors[index] for index in left],
            [near[index] for index in left],
            self._similar,
            most,
        )

    async def _revived(self, work: DedupWork, earlier: Earlier | None, marks: Marks) -> DecisionPlan | None:
        """Return the plan of an answer that arrived before; None if there is none, or it no longer stands."""
        old = None if earlier is None or earlier.exhausted else DecisionPlan.of(earlier.shown)
        if old is None or work.deliveries[0].id not in old.members:
            return None
        work.stored += (await self._stores.search.facts([name for name, _ in old.known])).values()
        facts = work.facts(marks)
        current = [facts.active(name) for name, _ in old.known]
        versions = [None if fact is None else fact.version for fact in current]
        return old if versions == [version for _, version in old.known] else None

    async def _ask(
        self, work: DedupWork, asked: DecisionPlan, stated: Mapping[str, Stated], asking: Asking
    ) -> None:
        facts = work.facts(Marks())
        known = {name: fact for name, _ in asked.known if (fact := facts.active(name)) is not None}
        new = {numbered_fact.fact_id: stated.get(numbered_fact.fact_id) for numbered_fact in asked.new}
        shown = {name: known_fact.text for name, known_fact in known.items()}
        shown |= {name: statement.text if statement else "" for name, statement in new.items()}
        times = {name: known_fact.valid_from for name, known_fact in known.items()}
        times |= {name: statement.said_at for name, statement in new.items() if statement}
        prompt = fact_decisions(
            asked.material(shown, self._limits.fact_words, times, self._limits.language),
            self._fence.around(f"{STAGE}/{work.deliveries[0].id}"),
            short=self._limits.short_prompts,
        )
        answer = await self._model.ask(prompt, FactDecisions, replace(asking, shown=asked.shown()))
        decisions, words = answer.value.decisions, self._limits.fact_words
        work.compared = compared(asked, decisions, shown, words, answer.call, self._unrelated, times)
        merged = work.compared.merged_texts()
        hashes = [fact_hash(text) for text in merged]
        work.hashes.update(hashes)
        work.stored += await self._stores.search.with_hash(work.scope.key, hashes)
        await self._embed(work, merged)

    async def _resolve(self, work: DedupWork) -> Decision:
        """Carry out what was decided, without what has been forgotten meanwhile."""
        streams = self._stores.streams
        marks, work.given, of_agent = await gather(
            self._marks(work), self._given(work), streams.of(work.scope.agent_id)
        )
        limits = limits_of(work.scope, of_agent, self._limits)
        while True:
            covered = {delivery.id for delivery in work.deliveries[: work.covers]}
            stated = [statement for statement in work.stated if statement.delivery.id in covered]
            left = remembered(stated, work.scope, marks)
            facts = work.facts(marks)
            resolving = DecisionResolver(facts, work.compared, work.vectors, limits)
            try:
                for statement in left:
                    resolving.resolve(statement)
            except NoVector as missing:
                await self._embed(work, [missing.text])
                continue
            if (fitting := _fitting(work, facts)) is not None:
                work.covers = fitting
                continue
            resolving.counts.update({"void": work.compared.void, "forgotten": len(stated) - len(left)})
            for what, number in (+resolving.counts).items():
                DEDUP.labels(what).inc(number)
            return _decision(work, facts)

    async def _command(self, work: DedupWork, command: FactCommanded) -> Decision:
        assert command.fact_id is not None
        hashes = [fact_hash(command.text)] if command.text is not None else []
        await self._read(
            work, hashes, [fact_id for fact_id in (command.fact_id, command.replaced_by) if fact_id]
        )
        if command.by == "duplicate" or command.action == "unmerge":
            said = {fact.hash for fact in work.touched() if fact.fact_id == command.fact_id}
            await self._read(work, sorted(said), [])
        marks, work.given = await gather(self._marks(work), self._given(work))
        while True:
            facts = work.facts(marks)
            try:
                done = CommandExecutor(facts, work.vectors, self._embedder.model).carry_out(
                    work.deliveries[0], command
                )
            except NoVector as missing:
                await self._embed(work, [missing.text])
                continue
            DEDUP.labels(done).inc()
            return _decision(work, facts)

    async def _read(self, work: DedupWork, hashes: Sequence[str], fact_ids: Sequence[str]) -> None:
        """Read the scope: first the mark, so that whatever is applied later is among the decisions beyond it."""
        key, stores = work.scope.key, self._stores
        work.hashes.update(hashes)
        applied = await stores.decided.applied(key)
        beyond, same, named = await gather(
            stores.decided.beyond(key, applied),
            stores.search.with_hash(key, hashes),
            stores.search.facts(fact_ids),
        )
        for event in beyond:
            fact = KnownFact.of(event)
            if (known := work.decided.get(fact.fact_id)) is None or known.version < fact.version:
                work.decided[fact.fact_id] = fact
        work.stored += [*same, *(known_fact for known_fact in named.values() if known_fact.scope_key == key)]
        work.outcome = max([applied, *(event.outcome for event in beyond)]) + 1

    async def _marks(self, work: DedupWork) -> Marks:
        """Return the marks on the statements and on the facts that they may touch."""
        named = ids_of(work.scope, (source for stated in work.stated for source in stated.sources))
        for fact in work.touched():
            named |= ids_of(None, fact.sources)
            named |= {("fact", fact.fact_id), ("fact", f"{fact.fact_id}@{fact.version}")}
        return await self._stores.forgetting.among(named)

    async def _given(self, work: DedupWork) -> Mapping[str, int]:
        """Return, for facts that may change, versions above the known one that were given once (and forgotten)."""
        known: dict[str, int] = {}
        for fact in work.touched():
            known[fact.fact_id] = max(fact.version, known.get(fact.fact_id, 0))
        return await self._stores.decided.given(known)

    async def _embed(self, work: DedupWork, texts: Iterable[str]) -> None:
        """Embed the texts that have no vector yet, in one call."""
        missing = list(dict.fromkeys(text for text in texts if text not in work.vectors))
        if missing:
            asking = self._asking(work)
            made = await self._embedder.embed(missing, replace(asking, unit=f"{asking.unit}/vectors"))
            work.vectors.update(zip(missing, made, strict=True))

    def _asking(self, work: DedupWork) -> Asking:
        first, scope = work.deliveries[0], work.scope
        alone = first.event if len(work.deliveries) == 1 and isinstance(first.event, FactsProposed) else None
        return replace(
            Asking.about(first, STAGE, "decisions", scope.agent_id),
            user_id=scope.user_id,
            scope=scope.key,
            session_id=alone.session_id if alone else None,
            formation_id=alone.formation_id if alone else None,
        )


def _is_compared(event: Event | None) -> bool:
    """Return whether a model decides: for what formations propose, and for additions that ask for it."""
    return isinstance(event, FactsProposed) or (isinstance(event, FactCommanded) and event.decide)


def _decision(work: DedupWork, facts: ScopeFacts) -> Decision:
    """Return the changes as events; each takes a version of its fact, all together one number of the scope.

    Commands that changed nothing end with it.
    """
    writes = [f"fact:{event.fact_id}@{event.version}" for _, event in facts.changes]
    number = (f"{facts.scope.key}#{facts.outcome}",) if writes else ()
    changing = {delivery.id for delivery, _ in facts.changes}
    needless = [delivery for delivery in work.deliveries[: work.covers] if delivery.id not in changing]
    return Decision(
        [
            *(Emit(event, cause=delivery) for delivery, event in facts.changes),
            *(ended for delivery in needless for ended in refused(delivery)),
        ],
        writes=(*writes, *number),
        covers=work.covers,
    )


def _fitting(work: DedupWork, facts: ScopeFacts) -> int | None:
    """Return how many of the first deliveries fit into one decision; None if all of them do."""
    covered = work.deliveries[: work.covers]
    sizes = Counter[str]()
    for delivery, event in facts.changes:
        sizes[delivery.id] += _size(event)
    if len(covered) == 1 or sizes.total() <= MOST_BYTES:
        return None
    up_to = accumulate(sizes[unit.id] for unit in covered)
    return min(max(1, sum(1 for _ in takewhile(lambda size: size <= MOST_BYTES, up_to))), len(covered) - 1)


def _size(event: FactChanged) -> int:
    vector = len(event.embedding.vector) * 4 // 3 if event.embedding else 0
    return 1_500 + 4 * len(event.text) + vector + 250 * (len(event.sources) + _stated(event))


def _stated(event: FactChanged) -> int:
    return len(event.statement.sources) if event.statement else 0
