"""The recorded calls and costs of formation, by window and on an agent's average. Pure; US dollars."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal

from eden_memory.replay.reform.selection import PlannedWindow


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
