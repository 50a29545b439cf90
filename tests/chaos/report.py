"""What a fault run shows: a table for people, and one JSON object as the last line."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median

import orjson
from rich.console import Console
from rich.table import Table

MOST_LINES = 20
Violations = dict[str, list[str]]
"""By what should not have happened; kinds of which nothing was found too."""


@dataclass(frozen=True)
class Outcome:
    """What a run found."""

    violations: Violations
    figures: dict[str, object]
    faults: dict[str, int] = field(default_factory=dict[str, int])

    @property
    def clean(self) -> bool:
        """Whether nothing was violated."""
        return not any(self.violations.values())


def takeover(seconds: Sequence[float]) -> dict[str, float]:
    """Median and maximum, in seconds; empty when nothing was measured."""
    return {"p50": round(median(seconds), 2), "max": round(max(seconds), 2)} if seconds else {}


def show(name: str, outcome: Outcome) -> None:
    """Print a run."""
    console = Console(width=120)
    table = Table(title=f"faults: {name}", title_justify="left")
    table.add_column("figure")
    table.add_column("value", justify="right")
    for label, value in outcome.figures.items():
        table.add_row(label, str(value))
    for label, count in sorted(outcome.faults.items()):
        table.add_row(f"fault: {label}", str(count))
    for label, lines in outcome.violations.items():
        table.add_row(label, f"[{'red' if lines else 'green'}]{len(lines)}")
    console.print(table)
    for label, lines in outcome.violations.items():
        for line in lines[:MOST_LINES]:
            console.print(f"{label}: {line}", markup=False, highlight=False, soft_wrap=True)
    summary = {
        "chaos": name,
        "figures": outcome.figures,
        "faults": outcome.faults,
        "violations": {label: len(lines) for label, lines in outcome.violations.items()},
    }
    console.print(orjson.dumps(summary).decode(), markup=False, highlight=False, soft_wrap=True)
