"""Count what a watched system forms: messages, memories, calls and cost, lag, with the newest items. Pure."""

from collections import Counter, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from eden_memory.call_costs import unpriced
from eden_memory.schemas.events import ModelCalled

NEWEST = 8


@dataclass(frozen=True, slots=True)
class WatchedChange:
    """A change of one document of a memory collection, by name without prefix (`facts`)."""

    collection: str
    document: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class NewMemory:
    """One new memory, as it is shown."""

    what: str
    """fact, reflection or blob."""
    scope: str
    """The scope key."""
    text: str
    why: str = ""
    """A fact's decision and its reason; a blob's version and words."""


@dataclass(slots=True)
class CallTotals:
    """Calls of one stage; money where the price is known."""

    calls: int = 0
    failed: int = 0
    tokens_in: int = 0
    tokens_out: int = 0
    cost: Decimal = Decimal(0)
    unpriced: int = 0


@dataclass(slots=True)
class FormationProgress:
    """Fed by whoever reads MongoDB and Kafka; shown by whoever likes."""

    messages: int = 0
    windows: int = 0
    windowed: int = 0
    """Messages in windows."""
    decisions: Counter[str] = field(default_factory=Counter[str])
    reflections: Counter[str] = field(default_factory=Counter[str])
    """By kind of scope."""
    blobs: dict[str, tuple[int, int]] = field(default_factory=dict[str, tuple[int, int]])
    """Scope key → version, words; the newest last."""
    newest: deque[NewMemory] = field(default_factory=lambda: deque[NewMemory](maxlen=NEWEST))
    spent: dict[str, CallTotals] = field(default_factory=dict[str, CallTotals])
    lag: dict[str, int] = field(default_factory=dict[str, int])
    """Group → records that it has before it."""
    tell: Callable[[NewMemory], None] | None = None
    """Told of every new item."""
    _seen: set[tuple[str, str, int]] = field(default_factory=set[tuple[str, str, int]])

    def notice(self, change: WatchedChange) -> None:
        """A document was written; the same version of it counts once."""
        row = change.document
        version = int(row.get("version") or 1) if change.collection != "windows" else 1
        seen = (change.collection, str(row["_id"]), version)
        if seen in self._seen:
            return
        self._seen.add(seen)
        match change.collection:
            case "windows":
                self.windows += 1
                self.windowed += len(row.get("messages", ()))
            case "facts":
                self._fact(row)
            case "reflections":
                self._reflection(row)
            case "consolidated":
                self._blob(row)
            case _:
                pass

    def called(self, call: ModelCalled) -> None:
        """A model was called; each call is to be given once."""
        spent = self.spent.setdefault(call.stage, CallTotals())
        spent.calls += call.requests
        spent.failed += call.requests if call.outcome != "answered" else 0
        spent.tokens_in += call.input_tokens
        spent.tokens_out += call.output_tokens
        spent.cost += call.cost_usd or 0
        spent.unpriced += call.requests if unpriced(call) else 0

    @property
    def total(self) -> CallTotals:
        """Of all stages."""
        total = CallTotals()
        for spent in self.spent.values():
            total.calls += spent.calls
            total.failed += spent.failed
            total.tokens_in += spent.tokens_in
            total.tokens_out += spent.tokens_out
            total.cost += spent.cost
            total.unpriced += spent.unpriced
        return total

    def _fact(self, row: Mapping[str, Any]) -> None:
        decision = str(row.get("decision", "ADD"))
        self.decisions[decision] += 1
        why = f"{decision.lower()}: {row['reason']}" if row.get("reason") else decision.lower()
        if row.get("retired_at") is not None:
            why = f"retired, {row.get('retired_because')}"
        self._show(NewMemory("fact", row["scope_key"], row["content"], why))

    def _reflection(self, row: Mapping[str, Any]) -> None:
        if row.get("content"):
            self.reflections[str(row["scope"])] += 1
            self._show(NewMemory("reflection", row["scope_key"], row["content"]))

    def _blob(self, row: Mapping[str, Any]) -> None:
        words = len(str(row["content"]).split())
        self.blobs.pop(row["_id"], None)
        self.blobs[row["_id"]] = int(row["version"]), words
        why = f"version {row['version']}, {words} words"
        self._show(NewMemory("blob", row["_id"], row["content"], why))

    def _show(self, item: NewMemory) -> None:
        self.newest.append(item)
        if self.tell is not None:
            self.tell(item)
