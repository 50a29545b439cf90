"""Decide what every consumer has had behind it for long enough, by notes taken round by round, and remove it.

Nothing goes by a record's age: a long pause, outage or deferral removes nothing. Offsets of a topic that was deleted
and created anew say nothing about the new one: notes from before that do not count for it. A model's answer stays for
PROMISED at least, whatever the collection's size: for so long nothing is paid for twice. An outcome goes when Kafka
has deleted its input, all of it is applied, and it is old: nothing can ask for it again."""

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from pymongo.asynchronous.database import AsyncDatabase

from eden_memory.metrics import JANITOR_REMOVED
from eden_memory.names import Names
from eden_memory.schemas.documents import Answer, Fact, Outcome, Snapshot
from eden_memory.stages.dead_letter_store import KEPT as LETTERS_KEPT
from eden_memory.windows.trigger_store import FACTS, REFLECTIONS

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


Row = dict[str, Any]
PROMISED = timedelta(days=7)
TOGETHER = 1_000
WINDOWS_NEED = LETTERS_KEPT + timedelta(days=7)
"""A window's texts go once both stages that read it are done for good, which their outcomes say: a dead letter is
removed after LETTERS_KEPT."""


class AppliedMarks(NamedTuple):
    """How far memory has come with some facts and scopes."""

    versions: Mapping[str, int]
    """The stored version of each fact."""
    numbers: Mapping[str, int]
    """The highest decision of each scope that is applied."""

    def hold(self, writes: Iterable[str]) -> bool:
        """Return whether memory holds all of these, so that nobody asks the ledger for them any more."""
        return all(self._holds(write) for write in writes)

    def _holds(self, write: str) -> bool:
        if write.startswith("fact:"):
            fact_id, _, version = write.removeprefix("fact:").rpartition("@")
            return self.versions.get(fact_id, 0) >= int(version)
        scope_key, number_sign, number = write.rpartition("#")
        return bool(number_sign) and self.numbers.get(scope_key, 0) >= int(number)


ANSWER_BYTES = 10_000_000_000
"""Size of all answers above which the oldest are deleted, but none of the last seven days."""
OUTCOMES_STAY = timedelta(days=30)
"""After it, an applied decision is deleted, if Kafka has deleted its input."""


@dataclass(frozen=True, slots=True)
class LedgerBounds:
    """Removes answers and outcomes of one namespace that are beyond the bounds."""

    database: AsyncDatabase[Row]
    names: Names
    answers_stay: timedelta
    answer_bytes: int = ANSWER_BYTES
    outcomes_stay: timedelta = OUTCOMES_STAY

    async def round(self, now: datetime, deleted: Offsets) -> Mapping[str, int]:
        """Remove what is beyond the bounds, and return how many; `deleted`: offsets below which Kafka has nothing."""
        removed = {"answers": await self._answers(now), "outcomes": await self._outcomes(now, deleted)}
        for what, count in removed.items():
            JANITOR_REMOVED.labels(what).inc(count)
        return removed

    async def _answers(self, now: datetime) -> int:
        """Remove answers that are too old, and the oldest while the collection is too large."""
        before = now - max(self.answers_stay, PROMISED)
        if (beyond := await self._beyond_size()) is not None:
            before = max(before, min(beyond, now - PROMISED))
        answers = self.database[self.names[Answer.COLLECTION]]
        return (await answers.delete_many({"answered_at": {"$lt": before}})).deleted_count

    async def _beyond_size(self) -> datetime | None:
        """Return the time before which answers have to go for the others to fit; None if all fit."""
        answers = self.database[self.names[Answer.COLLECTION]]
        if await answers.find_one({}, {"_id": 1}) is None:
            return None  # the collection may not exist yet, and so have no size
        stats: Row = {"$collStats": {"storageStats": {"scale": 1}}}
        found = await (await answers.aggregate([stats])).to_list()
        size, count = (int(found[0]["storageStats"].get(name, 0)) for name in ("size", "count"))
        most = self.answer_bytes
        if size <= most:
            return None
        oldest = answers.find({}, {"answered_at": 1}, sort={"answered_at": 1})
        row = await oldest.skip(-(-count * (size - most) // size)).limit(1).to_list()
        return row[0]["answered_at"] if row else datetime.max.replace(tzinfo=UTC)

    async def _outcomes(self, now: datetime, deleted: Offsets) -> int:
        before = now - max(self.outcomes_stay, PROMISED)
        reads_windows: Row = {"stage": {"$in": [FACTS, REFLECTIONS]}, "at": {"$gte": now - WINDOWS_NEED}}
        removed = 0
        for (topic, partition), offset in deleted.items():
            gone: Row = {
                "topic": topic,
                "partition": partition,
                "at": {"$lt": before},
                "offset": {"$lt": offset},
                "$nor": [reads_windows],
            }
            removed += await self._settled(gone | {"records": {"$exists": False}, "dead": {"$exists": False}})
        return removed

    async def _settled(self, gone: Row) -> int:
        """Remove the outcomes of a query whose writes memory holds."""
        outcomes, removed, after = self.database[self.names[Outcome.COLLECTION]], 0, ""
        while rows := await outcomes.find(
            gone | {"_id": {"$gt": after}}, {"writes": 1, "parts": 1}, sort={"_id": 1}, limit=TOGETHER
        ).to_list():
            marks, after = await self._marks(rows), rows[-1]["_id"]
            settled = [row for row in rows if marks.hold(row.get("writes", ()))]
            names = [name for row in settled for name in (row["_id"], *row.get("parts", ()))]
            removed += (await outcomes.delete_many({"_id": {"$in": names}})).deleted_count
        return removed

    async def _marks(self, rows: Sequence[Row]) -> AppliedMarks:
        writes = [write for row in rows for write in row.get("writes", ())]
        facts = [
            write.removeprefix("fact:").rpartition("@")[0] for write in writes if write.startswith("fact:")
        ]
        keys = [write.rpartition("#")[0] for write in writes]
        return AppliedMarks(
            await self._numbers(Fact.COLLECTION, facts, "version"),
            await self._numbers(Snapshot.COLLECTION, keys, "applied"),
        )

    async def _numbers(self, collection: str, ids: Sequence[str], field: str) -> Mapping[str, int]:
        rows = self.database[self.names[collection]].find({"_id": {"$in": ids}}, {field: 1})
        return {row["_id"]: int(row.get(field, 0)) async for row in rows}
