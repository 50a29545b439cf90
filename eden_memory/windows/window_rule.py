"""The window rule: when the messages of a session close a window. Decided by the records alone, never by a clock.

A window closes when it holds enough (messages, or weighted tokens), when the session went cold or stale before the
next record, or when somebody asks for it.
"""

from collections.abc import Iterable, Sequence
from copy import copy
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import NamedTuple

from eden_memory.limits import ASSISTANT_WEIGHT, CHARACTERS_PER_TOKEN, TOOL_WEIGHT, USER_WEIGHT
from eden_memory.schemas.events.formation import ClosedBecause
from eden_memory.settings import Settings, WindowsSettings

DEFAULTS = WindowsSettings()
WEIGHTS = {
    "user": USER_WEIGHT,
    "tool": TOOL_WEIGHT,
    "system": TOOL_WEIGHT,
    "other": TOOL_WEIGHT,
    "assistant": ASSISTANT_WEIGHT,
}


@dataclass(frozen=True, slots=True)
class Limits:
    """When a window closes."""

    messages: int = DEFAULTS.messages
    tokens: float = DEFAULTS.tokens
    least: int = DEFAULTS.least
    """Fewer messages close no window, unless the session is stale, has ended, or somebody asks."""
    cold: timedelta = timedelta(minutes=DEFAULTS.cold_minutes)
    stale: timedelta | None = timedelta(hours=DEFAULTS.stale_hours)
    """Idle time after which even one message closes a window; None: never."""
    forms_edited: bool = True
    """Whether a message whose text is edited after its formation forms again."""


def window_limits(settings: Settings) -> Limits:
    """When windows close."""
    windows = settings.windows
    return Limits(
        messages=windows.messages,
        tokens=windows.tokens,
        least=windows.least,
        cold=timedelta(minutes=windows.cold_minutes),
        stale=timedelta(hours=windows.stale_hours) or None,
        forms_edited=settings.messages.on_edit == "form",
    )


class Waiting(NamedTuple):
    """A message that waits for its window."""

    message_id: str
    version: str
    time: datetime
    tokens: float
    """Weighted."""
    place: int = 0
    """Its place in the partition, by which the waiting messages of a session are found again in order."""


class Control(NamedTuple):
    """A request to a session: to end it, or to close a window now."""

    because: ClosedBecause
    control_id: str
    version: str
    time: datetime
    by: str | None

    def follows(self, version: str, time: datetime) -> bool:
        """Tell whether a message of that version, recorded at `time`, was written before this request."""
        return version <= self.version or time < self.time


@dataclass(frozen=True, slots=True)
class Closed:
    """A window that a record closed; `messages` may be empty only when the session ended."""

    messages: tuple[Waiting, ...]
    because: ClosedBecause
    at: datetime
    control_id: str | None = None
    asked_by: str | None = None
    users: tuple[str, ...] = ()
    """Authors seen in the session before; the session fills it in."""
    more: bool = False
    """As stored, `users` names the first of them only."""


def weighted_tokens(text: str, role: str) -> float:
    """Return the weighted tokens that a message adds to its window."""
    return len(text) * WEIGHTS[role] / CHARACTERS_PER_TOKEN


class Pending:
    """The messages of one session that no window holds yet, in order.

    While the newest change may be followed by another change of its transaction, the counts close no window, because
    it would hold a state between the two. `version`: of the record that asks; "" proves no transaction complete.
    """

    def __init__(self, limits: Limits, waiting: Sequence[Waiting] = ()) -> None:
        self._limits = limits
        self._set(waiting)

    @property
    def waiting(self) -> Sequence[Waiting]:
        """Return the waiting messages, in order."""
        return self._waiting

    def add(self, message: Waiting) -> list[Closed]:
        """Add a message that does not wait yet; return the windows that this closes."""
        before = self.passed(message.time, message.version) if self._waiting else []
        self._append(message)
        full = self._full(message.time, message.version)
        return before + full if before else full

    def edit(self, message: Waiting, *, judge: bool = True) -> list[Closed]:
        """Give a waiting message its new version; it keeps its place. `judge`: whether a window may close."""
        self._set(
            message._replace(time=waiting.time, place=waiting.place)
            if waiting.message_id == message.message_id
            else waiting
            for waiting in self._waiting
        )
        return self._full(message.time, message.version) if judge else []

    def remove(self, message_id: str) -> None:
        """Remove a message that is not to be formed any more."""
        self._set(waiting for waiting in self._waiting if waiting.message_id != message_id)

    def passed(self, time: datetime, version: str = "") -> list[Closed]:
        """Close what has gone cold or stale once everything up to `time` is recorded, or waited for `version`."""
        because = self._idle(time)
        if because:
            return [self._close(because, time)]
        return self._full(time, version) if self._transaction else []

    def asked(self, control: Control) -> list[Closed]:
        """Close a window on request; the end of a session closes one even if nothing waits."""
        before = self.passed(control.time)
        if not self._waiting and control.because != "ended":
            return before
        return [*before, *self.late(control, control.time)]

    def judged(self, time: datetime, version: str) -> list[Closed]:
        """Close a window if one is due at `time`: by idleness or by the counts."""
        return self.passed(time, version) or self._full(time, version)

    def late(self, control: Control, time: datetime) -> list[Closed]:
        """Close one window over messages that were written before an earlier request."""
        window = self._close(control.because, time)
        return [replace(window, control_id=control.control_id, asked_by=control.by)]

    def stays_open(self, more: Iterable[Waiting]) -> bool:
        """Tell whether these messages would close no window; an edit counts as one more message."""
        trial = copy(self)
        trial._waiting = list(self._waiting)
        return not any(trial.add(message) for message in more)

    def due(self) -> datetime | None:
        """Return when the session goes cold or stale if no message comes before; if a window is due, now."""
        return self._last if self._transaction and self._enough() else self._idle_at()

    def _idle_at(self) -> datetime | None:
        if self._last is None:
            return None
        if len(self._waiting) >= self._limits.least:
            return self._last + self._limits.cold
        return self._last + self._limits.stale if self._limits.stale is not None else None

    def _set(self, waiting: Iterable[Waiting]) -> None:
        found = list(waiting)
        self._waiting: list[Waiting] = []
        self._last: datetime | None = None
        self._tokens = 0.0
        self._transaction = ""
        for message in found:
            self._append(message)

    def _append(self, waiting: Waiting) -> None:
        self._waiting.append(waiting)
        self._tokens += waiting.tokens
        if self._last is None or waiting.time > self._last:
            self._last = waiting.time
        if "." in waiting.version:
            self._transaction = max(self._transaction, _cluster_time(waiting.version))

    def _idle(self, time: datetime) -> ClosedBecause | None:
        due = self._idle_at()
        if due is None or time < due:
            return None
        return "cold" if len(self._waiting) >= self._limits.least else "stale"

    def _full(self, time: datetime, version: str) -> list[Closed]:
        if not self._enough() or (self._transaction and _cluster_time(version) <= self._transaction):
            return []
        return self._cut(time) if self._transaction else [self._close(self._because(), time)]

    def _cut(self, time: datetime) -> list[Closed]:
        """Close the windows that were due while a transaction went on, however much it brought."""
        waiting, closed = self._waiting, list[Closed]()
        self._set(())
        for message in waiting:
            self._append(message)
            if self._enough():
                closed.append(self._close(self._because(), time))
        return closed

    def _enough(self) -> bool:
        count, limits = len(self._waiting), self._limits
        return count >= limits.least and (count >= limits.messages or self._tokens >= limits.tokens)

    def _because(self) -> ClosedBecause:
        return "messages" if len(self._waiting) >= self._limits.messages else "tokens"

    def _close(self, because: ClosedBecause, time: datetime) -> Closed:
        taken = tuple(self._waiting)
        self._set(())
        return Closed(taken, because, time)


def _cluster_time(version: str) -> str:
    return version.partition(".")[0]
