"""The expected calls and cost of a reform: from what was recorded, else from start values. Pure; US dollars.

The calls of a window that are recorded count as they were. A window without any takes the average of its agent's,
with more or less input as it is longer or shorter; where nothing was recorded of the agent, the start values of
budgets stand in. Calls that name no window (decisions over several, consolidations) are shared among the agent's.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from decimal import Decimal

from eden_memory.models.question import Role
from eden_memory.replay.reform.selection import PlannedWindow
from eden_memory.schemas.documents import ReformCalls
from eden_memory.usage.estimates import CONSOLIDATING, FORMING, Expected, tokens_of

VECTORS = "vectors"
STAGES: Mapping[str, Role | None] = {
    "fact-extraction": "facts",
    "fact-dedup": "decisions",
    VECTORS: None,
    "reflection-extraction": "reflections",
    "consolidation": "consolidation",
}
"""Stage, as it is shown, and what its calls are for; vectors are fact-dedup's other calls."""
SHOW_THE_WINDOW = ("fact-extraction", "reflection-extraction")
FACTS, DEDUP, REFLECTIONS, CONSOLIDATION = (
    "fact-extraction",
    "fact-dedup",
    "reflection-extraction",
    "consolidation",
)
ALL = frozenset({FACTS, DEDUP, VECTORS, REFLECTIONS, CONSOLIDATION})
CHARACTERS_PER_TOKEN = 4
PLACES = Decimal("0.000000000001")
START: Mapping[Role, Expected] = {**FORMING, "consolidation": CONSOLIDATING}  # pyright: ignore[reportAssignmentType]


@dataclass(slots=True)
class StageCalls:
    """Calls of one stage, added up; fractions where they are shared."""

    calls: float = 0.0
    input: float = 0.0
    cached: float = 0.0
    """A part of `input`."""
    output: float = 0.0
    usd: Decimal | None = Decimal(0)
    """None: unknown, at least of one."""

    def add(self, other: "StageCalls", times: float = 1.0) -> None:
        """Some more."""
        self.calls += other.calls * times
        self.input += other.input * times
        self.cached += other.cached * times
        self.output += other.output * times
        known = self.usd is not None and other.usd is not None
        self.usd = self.usd + other.usd * Decimal(times) if known else None  # pyright: ignore[reportOperatorIssue, reportOptionalOperand]


ByStage = dict[str, StageCalls]


@dataclass(frozen=True, slots=True)
class RecordedRow:
    """Calls of one stage: of one window, or (None) of an agent's windows together."""

    agent_id: str
    formation_id: str | None
    stage: str
    calls: StageCalls


@dataclass(slots=True)
class OfAgent:
    """One agent's windows, of which something is recorded."""

    windows: int = 0
    characters: int = 0
    each: ByStage = field(default_factory=dict[str, StageCalls])
    """Of all of them together: the calls that name their window."""
    shared: ByStage = field(default_factory=dict[str, StageCalls])
    """The calls that name none."""


@dataclass(slots=True)
class RecordedCalls:
    """All that is recorded."""

    of_window: dict[str, ByStage] = field(default_factory=dict[str, ByStage])
    of_agent: dict[str, OfAgent] = field(default_factory=dict[str, OfAgent])


def recorded(rows: Iterable[RecordedRow], windows: Mapping[str, PlannedWindow]) -> RecordedCalls:
    """`windows`: all that were ever asked for, by id; calls for others are left out."""
    found = RecordedCalls()
    for row in rows:
        agent = found.of_agent.setdefault(row.agent_id, OfAgent())
        if row.formation_id is None:
            agent.shared.setdefault(row.stage, StageCalls()).add(row.calls)
        elif (window := windows.get(row.formation_id)) is not None:
            if row.formation_id not in found.of_window:
                agent.windows, agent.characters = agent.windows + 1, agent.characters + window.characters
            found.of_window.setdefault(row.formation_id, {}).setdefault(row.stage, StageCalls()).add(
                row.calls
            )
            agent.each.setdefault(row.stage, StageCalls()).add(row.calls)
    return found


Price = Callable[[str, int, StageCalls], Decimal | None]
"""(stage, tier, calls) → US dollars by the tables; None where the price is unknown."""


@dataclass(frozen=True, slots=True)
class Pricing:
    """How calls are priced: as they were where the stage's model stays, else by tables."""

    of: Price
    changed: frozenset[str] = frozenset()
    """Stages whose model is another one."""

    def usd(self, stage: str, tier: int, calls: StageCalls) -> Decimal | None:
        """Return the cost of these calls."""
        if stage in self.changed or not calls.usd:
            return self.of(stage, tier, calls)
        return calls.usd


@dataclass(frozen=True, slots=True)
class Reuse:
    """Stages whose answers are kept already, and those of which some may be."""

    fully: frozenset[str] = frozenset()
    partly: frozenset[str] = frozenset()


NOTHING_KEPT = Reuse()


def nothing_kept(window: PlannedWindow) -> Reuse:
    """All answers are paid for."""
    del window
    return NOTHING_KEPT


@dataclass(slots=True)
class Expecting:
    """Adds windows up."""

    recorded: RecordedCalls
    pricing: Pricing
    reuse: Callable[[PlannedWindow], Reuse] = nothing_kept
    windows: int = 0
    messages: int = 0
    tier: int = 0
    """The highest of the windows added."""
    _paid: dict[tuple[str, int], StageCalls] = field(default_factory=dict[tuple[str, int], StageCalls])
    _kept: dict[str, StageCalls] = field(default_factory=dict[str, StageCalls])
    _some: set[str] = field(default_factory=set[str])
    """Stages of which some more answers may be kept."""

    def add(self, window: PlannedWindow) -> None:
        """One more window."""
        self.windows, self.messages = self.windows + 1, self.messages + window.messages
        self.tier = max(self.tier, window.tier)
        reuse = self.reuse(window)
        self._some |= reuse.partly
        for stage, calls in self.of(window).items():
            if stage in reuse.fully:
                self._kept.setdefault(stage, StageCalls()).add(calls)
            else:
                self._paid.setdefault((stage, window.tier), StageCalls()).add(calls)

    def of(self, window: PlannedWindow) -> ByStage:
        """Return the expected calls of one window, by stage."""
        agent, own = (
            self.recorded.of_agent.get(window.agent_id),
            self.recorded.of_window.get(window.formation_id),
        )
        if agent is None or not agent.windows:
            return _start(window)
        found = own if own is not None else _average(agent, window)
        shared: ByStage = {}
        for part, times in ((found, 1.0), (agent.shared, 1 / agent.windows)):
            for stage, calls in part.items():
                shared.setdefault(stage, StageCalls()).add(calls, times)
        return shared

    def usd(self, window: PlannedWindow) -> Decimal:
        """Return the expected cost of one window, as far as prices are known."""
        reused = self.reuse(window).fully
        parts = (
            self.pricing.usd(stage, window.tier, calls)
            for stage, calls in self.of(window).items()
            if stage not in reused
        )
        return sum((part for part in parts if part is not None), Decimal(0)).quantize(PLACES)

    def consolidation_usd(self) -> Decimal:
        """Return the expected cost of one consolidation at the highest tier, as far as its price is known."""
        together = StageCalls()
        for agent in self.recorded.of_agent.values():
            for part in (agent.each, agent.shared):
                together.add(part.get(CONSOLIDATION, StageCalls()))
        if not together.calls:
            input_tokens, output_tokens = tokens_of(START["consolidation"], 0)
            together = StageCalls(1, input_tokens, 0, output_tokens)
        usd = self.pricing.usd(CONSOLIDATION, self.tier, together)
        return Decimal(0) if usd is None else (usd / Decimal(together.calls)).quantize(PLACES)

    def rows(self) -> tuple[ReformCalls, ...]:
        """The table, in flow order."""
        found = (self._row(stage) for stage in STAGES)
        return tuple(row for row in found if row.calls)

    def _row(self, stage: str) -> ReformCalls:
        kept = self._kept.get(stage, StageCalls())
        paid = [(tier, calls) for (name, tier), calls in self._paid.items() if name == stage and calls.calls]
        together = StageCalls()
        for calls in (kept, *(calls for _, calls in paid)):
            together.add(calls)
        return ReformCalls(
            stage=stage,
            calls=round(together.calls),
            input_tokens=round(together.input),
            output_tokens=round(together.output),
            usd=summed(self.pricing.usd(stage, tier, calls) for tier, calls in paid),
            reused=None if paid and stage in self._some else round(kept.calls),
        )


def summed(amounts: Iterable[Decimal | None]) -> Decimal | None:
    """Together; None where one is unknown."""
    found = list(amounts)
    known = [amount for amount in found if amount is not None]
    return None if len(known) < len(found) else sum(known, Decimal(0)).quantize(PLACES)


def total(rows: Sequence[ReformCalls]) -> Decimal | None:
    """US dollars of all rows; None where a price is unknown."""
    return summed(row.usd for row in rows)


def _average(agent: OfAgent, window: PlannedWindow) -> ByStage:
    """Of the agent's windows, priced by tables: it is as long as no other."""
    more = (window.characters - agent.characters / agent.windows) / CHARACTERS_PER_TOKEN
    found: ByStage = {}
    for stage, calls in agent.each.items():
        average = found.setdefault(stage, StageCalls())
        average.add(calls, 1 / agent.windows)
        average.usd = Decimal(0)
        if stage in SHOW_THE_WINDOW:
            average.input = max(0.0, average.input + more * average.calls)
    return found


def _start(window: PlannedWindow) -> ByStage:
    """Before anything was recorded."""
    found: ByStage = {}
    for stage, role in STAGES.items():
        if role is not None:
            input_tokens, output_tokens = tokens_of(START[role], window.characters)
            found[stage] = StageCalls(1, input_tokens, 0, output_tokens)
    return found


def reuse(changed: Set[str], *, one_at_a_time: bool, same_windows: bool) -> Reuse:
    """Return of which stages a reform finds every answer, or some; `changed`: stages that ask differently.

    An answer is used again where model, parameters and prompt are the same. A stage's prompt holds what others made:
    decisions and reflections the facts extracted, reflections the blobs, blobs the reflections.

    Only one window at a time meets the same memory as before; several at once may find other candidates, blobs and
    buffers.
    """
    if not same_windows:
        return Reuse()
    if FACTS in changed:  # where no other facts are found, the rest is the same
        return Reuse(partly=frozenset(ALL - changed))
    same = set(ALL - changed)
    if changed & {REFLECTIONS, CONSOLIDATION}:
        same -= {REFLECTIONS, CONSOLIDATION}
    if one_at_a_time:
        return Reuse(frozenset(same))
    return Reuse(frozenset(same & {FACTS}), frozenset(same - {FACTS}))
