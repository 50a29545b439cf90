"""The result of an import: what was taken, what was there already, what was skipped and why."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from decimal import Decimal

from eden_memory.imports.import_items import ImportedItem, Kind, SkippedItem

NAMED = 20
"""Places to name for each reason, at most; the others are only counted."""


@dataclass(slots=True)
class SkippedForReason:
    """The items skipped for one reason."""

    bad: bool
    count: int = 0
    places: list[str] = field(default_factory=list[str])


@dataclass(slots=True)
class ConversationCost:
    """The estimated cost of forming the imported conversations."""

    windows: int = 0
    usd: Decimal | None = Decimal(0)
    """None: a price is not known."""


@dataclass(slots=True)
class ImportReport:
    """Counts; ids and places only, no content."""

    taken: Counter[Kind] = field(default_factory=Counter[Kind])
    known: int = 0
    """Memory had taken them before."""
    forming: int = 0
    """Conversations whose messages wait to be formed."""
    skipped: dict[str, SkippedForReason] = field(default_factory=dict[str, SkippedForReason])
    cost: ConversationCost = field(default_factory=ConversationCost)

    @property
    def empty(self) -> bool:
        """Whether nothing is taken."""
        return not (self.taken or self.forming)

    def take(self, item: ImportedItem) -> None:
        """Count an item that is taken."""
        if item.kind is None:
            self.forming += 1
        else:
            self.taken[item.kind] += 1

    def skip(self, item: SkippedItem) -> None:
        """Count what is skipped."""
        group = self.skipped.setdefault(item.reason, SkippedForReason(item.bad))
        group.count += item.count
        if len(group.places) < NAMED:
            group.places.append(item.where)

    def lines(self, did: str) -> Iterator[str]:
        """Yield the report for people; `did`: `taken`, or what a dry run says."""
        counts = [_counted(number, kind) for kind, number in self.taken.items()]
        yield f"{did}: {', '.join(counts) or 'nothing'}"
        if self.known:
            yield f"already here: {self.known:,}"
        for reason, group in self.skipped.items():
            more = f" and {group.count - len(group.places):,} more" if group.count > len(group.places) else ""
            yield f"{'bad' if group.bad else 'skipped'}: {group.count:,}, {reason}: {'; '.join(group.places)}{more}"


def _counted(number: int, kind: Kind) -> str:
    return f"{number:,} {kind}{'s' * (number != 1)}"
