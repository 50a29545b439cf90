"""How far a command is: a bar on a terminal, else a line every few seconds; and what a rebuild shows there."""

import time
from contextlib import AbstractContextManager
from typing import Any, Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, ProgressColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

from eden_memory.replay.rebuild.rebuilding import Progress

LINE_SECONDS = 5.0


class BarOrLines(AbstractContextManager[Any]):
    """A bar that counts on a terminal, with a text of its own behind it; elsewhere lines, `LINE_SECONDS` apart."""

    def __init__(self, console: Console, what: str, *behind: ProgressColumn, **fields: Any) -> None:
        """`fields`: what the columns `behind` the bar show at first."""
        self._console, self._fields = console, fields
        columns = TextColumn(what), BarColumn(), MofNCompleteColumn(), *behind
        self._bar = Bar(*columns, console=console, disable=not console.is_terminal)
        self._task: Any = None
        self._begun, self._said = time.monotonic(), 0.0
        self._first: int | None = None

    def __enter__(self) -> Self:
        """Show."""
        self._bar.start()
        self._task = self._bar.add_task("", total=None, **self._fields)
        return self

    def __exit__(self, *_: object) -> None:
        """Show no more."""
        self._bar.stop()

    def since(self, done: int) -> tuple[int, float]:
        """How much was done when it was first told, and the seconds since it was made."""
        self._first = done if self._first is None else self._first
        return self._first, time.monotonic() - self._begun

    def show(self, done: int, whole: int, **fields: Any) -> None:
        """Move the bar."""
        self._bar.update(self._task, total=whole, completed=done, **fields)

    def say(self, text: str) -> None:
        """A line, where there is no bar and the last one was long ago."""
        seconds = time.monotonic() - self._begun
        if not self._console.is_terminal and seconds - self._said >= LINE_SECONDS:
            self._said = seconds
            self._console.print(text, markup=False)


class Shown(BarOrLines):
    """Told of progress; `rate` counts the records of this process."""

    def __init__(self, console: Console) -> None:
        super().__init__(
            console, "rebuilding", TextColumn("{task.fields[rate]}/s"), TimeRemainingColumn(), rate="0"
        )

    def __call__(self, one: Progress) -> None:
        """The newest figures."""
        first, seconds = self.since(one.done)
        rate = one.records / seconds if seconds else 0.0
        self.show(one.done, one.whole, rate=f"{rate:,.0f}")
        self.say(line(one, rate, _eta(one, first, seconds)))


def _eta(one: Progress, first: int, seconds: float) -> float | None:
    done = one.done - first
    return None if done <= 0 else (one.whole - one.done) * seconds / done


def line(one: Progress, rate: float, eta: float | None) -> str:
    """One line without colours."""
    left = "" if eta is None else f", {eta:,.0f} s left"
    bad = f", {one.unreadable:,} unreadable" if one.unreadable else ""
    return f"{one.done:,} of {one.whole:,} offsets, {rate:,.0f} records/s{left}{bad}, lag {one.behind:,}"
