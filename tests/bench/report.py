"""What every benchmark prints: a table for people, and as its last line one JSON object for programs."""

import asyncio
import json
import re
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from rich.console import Console
from rich.table import Table


class Row(NamedTuple):
    """A line of the table; `bound` is what nothing could beat in the same run, or a target."""

    what: str
    value: float
    unit: str
    bound: float | None = None
    bound_is: str = ""


@dataclass
class Report:
    """One benchmark's figures; ratios are what tests look at."""

    bench: str
    title: str
    results: dict[str, float] = field(default_factory=dict[str, float])
    bounds: dict[str, float] = field(default_factory=dict[str, float])
    ratios: dict[str, float] = field(default_factory=dict[str, float])
    rows: list[Row] = field(default_factory=list[Row])

    def show(self) -> None:
        """Print the table, then the line for programs."""
        table = Table("what", "median", "unit", "bound", "ratio", "the bound is", title=self.title)
        for row in self.rows:
            bound = "" if row.bound is None else figure(row.bound)
            ratio = "" if not row.bound else f"{row.value / row.bound:.2f}"
            table.add_row(row.what, figure(row.value), row.unit, bound, ratio, row.bound_is)
        Console(width=110).print(table)
        print(self.line())  # noqa: T201 - the last line is for programs

    def line(self) -> str:
        """`{"bench": …, "results": …, "bounds": …, "ratios": …}`."""
        parts = {"results": self.results, "bounds": self.bounds, "ratios": self.ratios}
        rounded = {name: {key: _rounded(value) for key, value in of.items()} for name, of in parts.items()}
        return json.dumps({"bench": self.bench, **rounded})


def median(values: Sequence[float]) -> float:
    """Of repeated runs."""
    return statistics.median(values)


def percentile(values: Sequence[float], share: float) -> float:
    """The value below which `share` of all lie (nearest rank)."""
    return sorted(values)[min(int(len(values) * share), len(values) - 1)]


def figure(value: float) -> str:
    """As people read it: no decimals where they say nothing."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:,.2f}"


PARTS = 5


def by_time(values: Sequence[float]) -> list[float]:
    """Return the medians of the fifths of what was sampled over time."""
    size = max(len(values) // PARTS, 1)
    return [median(values[part * size : (part + 1) * size] or values) for part in range(PARTS)]


def memory_rows(parts: Sequence[float]) -> list[Row]:
    """Return the memory in each fifth of the time beside the first, MB."""
    return [
        Row(f"memory in part {number} of {PARTS} of the time", memory, "MB", parts[0], "the first part")
        for number, memory in enumerate(parts, 1)
    ]


def _rounded(value: float) -> float:
    return float(f"{value:.6g}")


async def most_memory(pid: int) -> float:
    """Return the most memory of a process in MB, once it has ended.

    `rusage` cannot say it: what it tells of a child begins with what its parent had.
    """
    most = 0.0
    while now := _peak(pid):
        most = now
        await asyncio.sleep(0.02)
    return most


def _peak(pid: int) -> float:
    """MB so far; 0 once it has ended."""
    try:
        found = re.search(r"VmHWM:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())
    except (FileNotFoundError, ProcessLookupError):
        return 0.0
    return int(found[1]) / 1_000 if found else 0.0
