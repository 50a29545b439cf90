"""The progress of a command: a bar on a terminal, else a line every few seconds."""

import time
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, ProgressColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

if TYPE_CHECKING:  # commands that show a progress need not load the stages
    from eden_memory.replay.rebuild.namespace_rebuild import FillProgress

LINE_SECONDS = 5.0


class BarOrLines(AbstractContextManager[Any]):
    """A progress bar with a text behind it on a terminal; elsewhere lines, `LINE_SECONDS` apart."""

    def __init__(self, console: Console, what: str, *behind: ProgressColumn, **fields: Any) -> None:
        """Create the bar; `fields` are the first values of the columns `behind` it."""
        self._console, self._fields = console, fields
        columns = TextColumn(what), BarColumn(), MofNCompleteColumn(), *behind
        self._bar = Bar(*columns, console=console, disable=not console.is_terminal)
        self._task: Any = None
        self._begun, self._said = time.monotonic(), 0.0
        self._first: int | None = None

    def __enter__(self) -> Self:
        """Return itself; the bar appears with the first figures."""
        return self

    def __exit__(self, *_: object) -> None:
        """Stop showing."""
        self.close()

    def close(self) -> None:
        """Stop a bar that is shown; measure time from now on."""
        self._begun = time.monotonic()
        if self._task is not None:
            self._bar.stop()

    def begin(self) -> None:
        """Measure from the next report on."""
        self._begun, self._first, self._said = time.monotonic(), None, 0.0

    def since(self, done: int) -> tuple[int, float]:
        """Return the work done at the first report, and the seconds since then; anew if a step starts over."""
        if self._first is not None and done < self._first:
            self.begin()
        self._first = done if self._first is None else self._first
        return self._first, time.monotonic() - self._begun

    def show(self, done: int, whole: int | None, **fields: Any) -> None:
        """Move the bar; `whole` None: not known."""
        if self._task is None:
            self._bar.start()
            self._task = self._bar.add_task("", total=None, **self._fields)
        self._bar.update(self._task, total=whole, completed=done, **fields)

    def say(self, text: str) -> None:
        """Print a line if there is no bar and the last line was long ago."""
        seconds = time.monotonic() - self._begun
        if not self._console.is_terminal and seconds - self._said >= LINE_SECONDS:
            self._said = seconds
            self._console.print(text, markup=False)


class RebuildProgress(BarOrLines):
    """Shows the progress of a rebuild; the rate counts the records of this process."""

    def __init__(self, console: Console) -> None:
        super().__init__(
            console, "rebuilding", TextColumn("{task.fields[rate]}/s"), TimeRemainingColumn(), rate="0"
        )

    def __call__(self, progress: "FillProgress") -> None:
        """Show the newest figures."""
        first, seconds = self.since(progress.done)
        rate = progress.records / seconds if seconds else 0.0
        self.show(progress.done, progress.whole, rate=f"{rate:,.0f}")
        lag, done = progress.whole - progress.done, progress.done - first
        left = f", {lag * seconds / done:,.0f} s left" if done > 0 else ""
        bad = f", {progress.unreadable:,} unreadable" if progress.unreadable else ""
        offsets = f"{progress.done:,} of {progress.whole:,} offsets"
        self.say(f"{offsets}, {rate:,.0f} records/s{left}{bad}, lag {lag:,}")


class TransferProgress(BarOrLines):
    """Shows the steps of an export or import, each with its rate and the time that is left."""

    def __init__(self, console: Console) -> None:
        columns = TextColumn("{task.fields[step]} {task.fields[rate]}/s"), TimeRemainingColumn()
        super().__init__(console, "", *columns, step="", rate="0")
        self._step = ""

    def __call__(self, step: str, done: int, whole: int) -> None:
        """Show the newest figures; `whole` 0: not known."""
        if step != self._step:
            self._step = step
            self.begin()
        first, seconds = self.since(done)
        rate = (done - first) / seconds if seconds else 0.0
        self.show(done, whole or None, step=step, rate=f"{rate:,.0f}")
        left = f" of {whole:,}, {(whole - done) / rate:,.0f} s left" if whole and rate else ""
        self.say(f"{step}: {done:,}{left}, {rate:,.0f}/s")
