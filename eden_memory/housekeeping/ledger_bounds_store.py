"""Bound models' answers by age and size, and the ledger by what can never be asked for again.

An answer stays for PROMISED at least, whatever the collection's size: for so long nothing is paid for twice. An
outcome goes when Kafka has deleted its input, all of it is applied, and it is old: nothing can ask for it again.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from pymongo.asynchronous.database import AsyncDatabase

from eden_memory.housekeeping.consumption_store import Offsets
from eden_memory.metrics import JANITOR_REMOVED
from eden_memory.names import Names
from eden_memory.schemas.documents import Answer, Fact, Outcome, Snapshot
from eden_memory.stages.dead_letter_store import KEPT as LETTERS_KEPT
from eden_memory.windows.trigger_store import FACTS, REFLECTIONS

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
