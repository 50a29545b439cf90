"""How the demo looks: a live table on a terminal, plain lines elsewhere."""

from collections import Counter, deque
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from eden_memory.demo.journey import Arrival, Kind, Summary, Written

LAST = 12
NAMES: dict[Kind, str] = {"message": "messages", "edit": "edits", "delete": "deletions"}
WHAT = {"message": ("", ""), "edit": ("edited", "yellow"), "delete": ("deleted", "red")}


class LineView:
    """One line a record: for logs and pipes."""

    def __init__(self, console: Console) -> None:
        self._console = console

    def __enter__(self) -> "LineView":
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing to put away."""

    def note(self, text: str) -> None:
        """A step of the preparation."""
        self._console.print(f"· {text}")

    def arrived(self, arrival: Arrival, write: Written | None) -> None:
        """A record was read; repeats (a tombstone can go to every partition) are left out."""
        if write is not None:
            place = f"{arrival.partition}/{arrival.offset}"
            said = arrival.text if arrival.text is not None else ""
            what = f"{WHAT[write.kind][0]} " if WHAT[write.kind][0] else ""
            line = f"{place:>8} {_delay(write):>9}  {write.session:<15} {arrival.author:<9} {what}{said}"
            self._console.print(line.rstrip()[:160], soft_wrap=True)


class LiveView:
    """The newest records, and what has come of each session."""

    def __init__(self, console: Console) -> None:
        self._newest: deque[tuple[Arrival, Written]] = deque(maxlen=LAST)
        self._sessions: dict[str, Counter[Kind]] = {}
        self._live = Live(console=console, refresh_per_second=8, get_renderable=self._render)

    def __enter__(self) -> "LiveView":
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def note(self, text: str) -> None:
        """A step of the preparation."""
        self._live.console.print(f"[dim]·[/dim] {text}")

    def arrived(self, arrival: Arrival, write: Written | None) -> None:
        """A record was read."""
        if write is not None:
            self._newest.append((arrival, write))
            self._sessions.setdefault(write.session, Counter())[write.kind] += 1

    def _render(self) -> Any:
        if not self._newest:
            return Text("")
        return Group(Text(), self._records(), Text(), self._counts())

    def _records(self) -> Table:
        table = Table(box=None, pad_edge=False, expand=True)
        for name, options in (
            ("session", {"no_wrap": True, "width": 15}),
            ("author", {"no_wrap": True, "width": 9}),
            ("text", {"no_wrap": True, "ratio": 1, "overflow": "ellipsis"}),
            ("partition", {"justify": "right", "width": 9}),
            ("offset", {"justify": "right", "width": 6}),
            ("delay", {"justify": "right", "width": 9}),
        ):
            table.add_column(name, header_style="dim", **options)  # pyright: ignore[reportArgumentType]
        for arrival, write in self._newest:
            place = str(arrival.partition), str(arrival.offset)
            table.add_row(write.session, arrival.author, _said(arrival, write), *place, _delay(write))
        return table

    def _counts(self) -> Table:
        table = Table(box=None, pad_edge=False)
        table.add_column("session", header_style="dim", width=15)
        for name in NAMES.values():
            table.add_column(name, header_style="dim", justify="right")
        for session, counts in self._sessions.items():
            table.add_row(session, *(str(counts[kind] or "") for kind in NAMES))
        return table


def print_summary(console: Console, summary: Summary, kept: bool) -> None:
    """The outcome, and what to try next."""
    written, seen = summary.written, summary.seen
    console.print("\nwritten to MongoDB, seen on Kafka:")
    for kind, name in NAMES.items():
        console.print(f"  {name:<10} {written[kind]:>5} {seen[kind]:>5}")
    console.print(f"  missing    {len(summary.missing):>5}   {' '.join(summary.missing[:10])}".rstrip())
    order = "as written in every session"
    if summary.out_of_order:
        order = f"not as written in {', '.join(summary.out_of_order)}"
    console.print(f"  order      {order}")
    console.print(
        f"  delay      p50 {summary.p50 * 1000:.1f} ms, p99 {summary.p99 * 1000:.1f} ms, write included"
    )
    console.print(_next_steps(kept), soft_wrap=True)


def _next_steps(kept: bool) -> str:
    where = (
        "Look at the database `eden_demo` and the topics `eden-demo.*`; `make down` stops the servers."
        if kept
        else "Everything the demo made is gone again; `eden demo --keep` leaves it to look at."
    )
    return f"""
{where}
Try next:
  make up                start MongoDB and Kafka, and leave them running
  .venv/bin/eden topics apply && .venv/bin/eden run tailer
                         carry a chat collection of your own (EDEN_MONGODB_URI, EDEN_MESSAGES_COLLECTION, …)
  make doctor            what is not yet as it should be"""


def _said(arrival: Arrival, write: Written) -> Text:
    word, colour = WHAT[write.kind]
    text = Text(f"{word} " if word else "", style=colour)
    return text.append((arrival.text or "").replace("\n", " "), style="default")


def _delay(write: Written) -> str:
    return f"{(write.delay or 0.0) * 1000:.1f} ms"
