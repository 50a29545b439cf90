"""How far a rebuild is: a bar on a terminal, else a line every few seconds."""

import time
from contextlib import AbstractContextManager
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

from eden_memory.runtime.replay.rebuilding import Progress

LINE_SECONDS = 5.0


class Shown(AbstractContextManager["Shown"]):
    """Told of progress; `rate` counts the records of this process."""

    def __init__(self, console: Console) -> None:
        self._console = console
        columns = (
            TextColumn("rebuilding"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[rate]}/s"),
            TimeRemainingColumn(),
        )
        self._bar = Bar(*columns, console=console, disable=not console.is_terminal)
        self._task: Any = None
        self._begun, self._said = time.monotonic(), 0.0
        self._first: int | None = None

    def __enter__(self) -> "Shown":
        """Show."""
        self._bar.start()
        self._task = self._bar.add_task("", total=None, rate="0")
        return self

    def __exit__(self, *_: object) -> None:
        """Show no more."""
        self._bar.stop()

    def __call__(self, one: Progress) -> None:
        """The newest figures."""
        first = self._first = one.done if self._first is None else self._first
        seconds = time.monotonic() - self._begun
        rate = one.records / seconds if seconds else 0.0
        self._bar.update(self._task, total=one.whole, completed=one.done, rate=f"{rate:,.0f}")
        if not self._console.is_terminal and seconds - self._said >= LINE_SECONDS:
            self._said = seconds
            self._console.print(line(one, rate, _eta(one, first, seconds)))


def _eta(one: Progress, first: int, seconds: float) -> float | None:
    done = one.done - first
    return None if done <= 0 else (one.whole - one.done) * seconds / done


def line(one: Progress, rate: float, eta: float | None) -> str:
    """One line without colours."""
    left = "" if eta is None else f", {eta:,.0f} s left"
    bad = f", {one.unreadable:,} unreadable" if one.unreadable else ""
    return f"{one.done:,} of {one.whole:,} offsets, {rate:,.0f} records/s{left}{bad}, lag {one.behind:,}"
