"""Decide what every consumer has had behind it for long enough to be removed, by notes taken round by round.

Nothing goes by a record's age: a long pause, outage or deferral removes nothing. Offsets of a topic that was deleted
and created anew say nothing about the new one: notes from before that do not count for it.
"""

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

from pymongo.asynchronous.database import AsyncDatabase

from eden_memory.names import Names

Partition = tuple[str, int]
"""Topic and number."""
Offsets = Mapping[Partition, int]


Document = dict[str, Any]


@dataclass(frozen=True, slots=True)
class ConsumptionMark:
    """How far each group had committed at one moment, and where each topic ended right after it."""

    at: datetime
    ends: Offsets
    committed: Mapping[str, Offsets]
    ids: Mapping[str, str] = field(default_factory=dict[str, str])
    """Topic → Kafka's id of it, which differs once the topic is created again; missing if it is not known."""


@dataclass(frozen=True, slots=True)
class Consumption:
    """Which groups have to have passed what: as topics.yaml declares it, for enabled groups."""

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
    """Return what has been consumed for `keep`, by the notes (oldest first); the newest says how things stand now.

    A topic's records: what all its groups had committed at a note at least `keep` old. A stage's outcomes:
    input that it had committed at an earlier note still, after which the writer got past all that was
    published by then: their events are applied. Nothing goes that is not committed now.
    """
    found, marks = Removable(), of_current_topics(marks)
    old = [mark for mark in marks if mark.at <= now - declared.keep]
    if not old:
        return found
    last, current = old[-1], marks[-1]
    for topic, groups in declared.readers.items():
        for tp in (tp for tp in last.ends if tp[0] == topic):
            committed = [_at(mark, group, tp) for mark in (last, current) for group in groups]
            reached = min((*committed, current.ends.get(tp, 0)) if groups else (0,))
            if reached > 0:
                found.records[tp] = reached
    written = [tp for tp in current.ends if tp[0] in declared.writer[1]]
    applied = next(
        (mark for mark in reversed(old) if _applied(mark, last, declared.writer[0], written)), None
    )
    if applied is not None:
        for stage, (group, topics) in declared.stages.items():
            offsets = applied.committed.get(group, {})
            found.outcomes[stage] = {
                tp: min(offset, _at(current, group, tp)) for tp, offset in offsets.items() if tp[0] in topics
            }
    return found


def of_current_topics(marks: Sequence[ConsumptionMark]) -> list[ConsumptionMark]:
    """Return the notes without what they say of topics that have been created anew since.

    Such a topic has another id, or an end that went backwards.
    """
    if not marks:
        return []
    ids, least = marks[-1].ids, dict(marks[-1].ends)
    renewed, kept = set[str](), list[ConsumptionMark]()
    for mark in reversed(marks):
        renewed |= {topic for topic, topic_id in mark.ids.items() if ids.get(topic) != topic_id}
        renewed |= {tp[0] for tp, end in mark.ends.items() if end > least.get(tp, 0)}
        least |= mark.ends
        kept.append(_without(mark, renewed))
    return kept[::-1]


def _without(mark: ConsumptionMark, topics: Set[str]) -> ConsumptionMark:
    if not topics:
        return mark
    committed = {group: _not_of(topics, offsets) for group, offsets in mark.committed.items()}
    return replace(mark, ends=_not_of(topics, mark.ends), committed=committed)


def _not_of(topics: Set[str], offsets: Offsets) -> Offsets:
    return {tp: offset for tp, offset in offsets.items() if tp[0] not in topics}


def _at(mark: ConsumptionMark, group: str, tp: Partition) -> int:
    return mark.committed.get(group, {}).get(tp, 0)


def _applied(
    earlier: ConsumptionMark, later: ConsumptionMark, writer: str, written: Sequence[Partition]
) -> bool:
    """Tell whether at the later note the writer was past everything that there was at the earlier one."""
    return all(tp in earlier.ends and _at(later, writer, tp) >= earlier.ends[tp] for tp in written)


class ConsumptionMarks:
    """The collection `consumption`: one document a round."""

    def __init__(self, database: AsyncDatabase[Document], names: Names) -> None:
        self._marks = database[names["consumption"]]

    async def add(self, mark: ConsumptionMark) -> None:
        """Store a note; of two notes of the same moment, the later one counts."""
        committed = [{"group": group, "offsets": _rows(offsets)} for group, offsets in mark.committed.items()]
        ids = [[topic, topic_id] for topic, topic_id in sorted(mark.ids.items())]
        document = {"ends": _rows(mark.ends), "committed": committed, "ids": ids}
        await self._marks.replace_one({"_id": mark.at}, document, upsert=True)

    async def since(self, oldest: datetime) -> Sequence[ConsumptionMark]:
        """Return the notes from `oldest` on, oldest first, and remove earlier ones."""
        await self._marks.delete_many({"_id": {"$lt": oldest}})
        return [_mark(document) async for document in self._marks.find().sort("_id", 1)]


def _rows(offsets: Offsets) -> list[list[Any]]:
    return [[topic, number, offset] for (topic, number), offset in sorted(offsets.items())]


def _offsets(rows: Sequence[Sequence[Any]]) -> dict[tuple[str, int], int]:
    return {(topic, number): offset for topic, number, offset in rows}


def _mark(document: Document) -> ConsumptionMark:
    committed = {row["group"]: _offsets(row["offsets"]) for row in document["committed"]}
    return ConsumptionMark(
        document["_id"], _offsets(document["ends"]), committed, dict(document.get("ids", ()))
    )
