"""What a fault run shows: a table for people, and one JSON object as the last line."""

from collections.abc import Mapping, Sequence
from statistics import median

import orjson
from rich.console import Console
from rich.table import Table

MOST_LINES = 20


def takeover(seconds: Sequence[float]) -> dict[str, float]:
    """Median and maximum, in seconds; empty when nothing was measured."""
    return {"p50": round(median(seconds), 2), "max": round(max(seconds), 2)} if seconds else {}


def show(
    name: str,
    figures: Mapping[str, object],
    faults: Mapping[str, int],
    violations: Mapping[str, Sequence[str]],
) -> None:
    """Print a run; `violations` by kind, empty ones too."""
    console = Console(width=120)
    table = Table(title=f"faults: {name}", title_justify="left")
    table.add_column("figure")
    table.add_column("value", justify="right")
    for label, value in figures.items():
        table.add_row(label, str(value))
    for label, count in sorted(faults.items()):
        table.add_row(f"fault: {label}", str(count))
    for label, lines in violations.items():
        table.add_row(label, f"[{'red' if lines else 'green'}]{len(lines)}")
    console.print(table)
    for label, lines in violations.items():
        for line in lines[:MOST_LINES]:
            console.print(f"{label}: {line}", markup=False, highlight=False, soft_wrap=True)
    summary = {
        "chaos": name,
        "figures": figures,
        "faults": faults,
        "violations": {label: len(lines) for label, lines in violations.items()},
    }
    console.print(orjson.dumps(summary).decode(), markup=False, highlight=False, soft_wrap=True)
