"""Decide what every consumer has had behind it for long enough to be removed, by notes taken round by round.

Nothing goes by a record's age: a long pause, outage or deferral removes nothing.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

Partition = tuple[str, int]
"""Topic and number."""
Offsets = Mapping[Partition, int]


@dataclass(frozen=True, slots=True)
class ConsumptionMark:
    """How far each group had committed at one moment, and where each topic ended just after that."""

    at: datetime
    ends: Offsets
    committed: Mapping[str, Offsets]


@dataclass(frozen=True, slots=True)
class Consumption:
    """Who has to be past what: as topics.yaml declares it, for groups that are enabled."""

    readers: Mapping[str, Sequence[str]]
    """Topic kept "until consumed" → the groups that read it."""
    stages: Mapping[str, tuple[str, Sequence[str]]]
    """Stage with outcomes → its group and the topics that it reads."""
    writer: tuple[str, Sequence[str]]
    """The memory writer's group and the topics that it reads."""
    keep: timedelta = timedelta(days=7)


@dataclass(frozen=True, slots=True)
class Removable:
    """Everything below these offsets may be removed."""

    records: dict[Partition, int] = field(default_factory=dict[Partition, int])
    outcomes: dict[str, dict[Partition, int]] = field(default_factory=dict[str, dict[Partition, int]])


def removable(marks: Sequence[ConsumptionMark], declared: Consumption, now: datetime) -> Removable:
    """Return what has been consumed for `keep`, by the notes (oldest first).

    A topic's records: what all its groups had committed at a note at least `keep` old. A stage's outcomes:
    input that it had committed at an earlier note still, after which the writer got past all that was
    published by then: their events are applied.
    """
    old = [mark for mark in marks if mark.at <= now - declared.keep]
    if not old:
        return Removable()
    last = old[-1]
    found = Removable()
    for topic, groups in declared.readers.items():
        for tp in (tp for tp in last.ends if tp[0] == topic):
            reached = min((_at(last, group, tp) for group in groups), default=0)
            if reached > 0:
                found.records[tp] = reached
    applied = next((mark for mark in reversed(old) if _applied(mark, last, declared)), None)
    if applied is not None:
        for stage, (group, topics) in declared.stages.items():
            offsets = applied.committed.get(group, {})
            found.outcomes[stage] = {tp: offset for tp, offset in offsets.items() if tp[0] in topics}
    return found


def _at(mark: ConsumptionMark, group: str, tp: Partition) -> int:
    return mark.committed.get(group, {}).get(tp, 0)


def _applied(earlier: ConsumptionMark, later: ConsumptionMark, declared: Consumption) -> bool:
    """Tell whether at the later note the writer was past everything that there was at the earlier one."""
    group, topics = declared.writer
    ends = {tp: end for tp, end in earlier.ends.items() if tp[0] in topics}
    return all(_at(later, group, tp) >= end for tp, end in ends.items())
