"""The collection `dead_letters`: what each dead letter names, for all pipelines. Forgetting ends letters by it.

A letter is noted before it is published, and its publisher looks for marks afterwards (invariant
mark-read-write-mark).
"""

from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import Any

from pymongo import ReadPreference, UpdateOne
from pymongo.asynchronous.collection import AsyncCollection
from pymongo.asynchronous.database import AsyncDatabase
from pymongo.errors import BulkWriteError
from pymongo.read_concern import ReadConcern
from pymongo.write_concern import WriteConcern

from eden_memory.forgotten import ForgottenMarks, Mark
from eden_memory.mongo.indexes import Indexes, index_on
from eden_memory.mongo.shared_reads import SharedReads
from eden_memory.names import Names
from eden_memory.schemas.documents import IndexedDeadLetter, Outcome
from eden_memory.schemas.provenance import SourceMessage
from eden_memory.stages.dead_letter_ids import LetterIds, NamedIds, letter_id
from eden_memory.stages.stage import EndLetter

Row = dict[str, Any]
KEPT = timedelta(days=30, hours=12)
"""How long a dead letter may lie in its topic: its retention, and until its segment is closed (topics.yaml)."""
FORGOTTEN = "forgotten"
BY_MARKS = "marks"
"""In place of the Forgotten record: whoever published the letter found that something in it is forgotten."""
DUPLICATE = 11_000
TOGETHER = 1_000
ENTITY_KINDS = ("fact", "reflection", "blob")
DEAD_LETTER_INDEXES: Indexes = {
    IndexedDeadLetter.COLLECTION: (
        index_on("named"),
        index_on("ends_at", expireAfterSeconds=0),
    )
}


class DeadLetterIndex:
    """`forgotten`: the marks of the pipeline whose stages note letters; `names`: its collections."""

    def __init__(self, database: AsyncDatabase[Row], names: Names, forgotten: ForgottenMarks) -> None:
        self._database = database.with_options(
            read_preference=ReadPreference.PRIMARY,
            read_concern=ReadConcern("majority"),
            write_concern=WriteConcern("majority", j=True),
        )
        self._letters: AsyncCollection[Row] = self._database[names[IndexedDeadLetter.COLLECTION]]
        self._outcomes, self._forgotten = names[Outcome.COLLECTION], forgotten
        self._reading_named = SharedReads(self._read_named)

    async def prepare(self) -> None:
        """Create the indexes."""
        await self._letters.create_indexes(list(DEAD_LETTER_INDEXES[IndexedDeadLetter.COLLECTION]))

    async def note(self, letters: Iterable[LetterIds]) -> None:
        """Store what letters name; of one key the newest counts, and a copy changes nothing."""
        writes = [_noted(letter, self._outcomes) for letter in letters]
        if not writes:
            return
        try:
            await self._letters.bulk_write(writes, ordered=False)
        except BulkWriteError as error:
            if any(refused["code"] != DUPLICATE for refused in error.details["writeErrors"]):
                raise

    async def note_ended(self, letters: Iterable[tuple[str, bytes]]) -> None:
        """Note that letters have ended whose tombstones, by topic and key, stand in their topics."""
        if ended := [letter_id(topic, key) for topic, key in letters]:
            query = {"_id": {"$in": ended}, "ended_by": None}
            await self._letters.update_many(query, {"$set": {"ended_by": BY_MARKS}})

    async def gone(self, letters: Iterable[LetterIds]) -> list[EndLetter]:
        """Return tombstones for those of the noted letters that were ended, or that name something forgotten."""
        rows = await self._letters.find({"_id": {"$in": [letter.id for letter in letters]}}).to_list()
        return await self._ended([row for row in rows if row.get("ended_by") is not None], None) + (
            await self._ended(await self._reached([row for row in rows if not row.get("ended_by")]), BY_MARKS)
        )

    async def naming(self, mark: Mark, event_id: str) -> list[EndLetter]:
        """Return tombstones for all letters that name what is forgotten; a repeat returns the same."""
        found: list[EndLetter] = []
        name = f"{mark.kind}:{mark.target}"
        after = "" if await self._reading_named.get([name]) else None
        while after is not None:
            ends, after = await self.page(mark, event_id, after, TOGETHER)
            found += ends
        return found

    async def _read_named(self, names: list[str]) -> dict[str, bool]:
        """Tell of each name whether any letter has it."""
        wanted: Row = {"$match": {"named": {"$in": names}}}
        found = await self._letters.aggregate(
            [wanted, {"$unwind": "$named"}, wanted, {"$group": {"_id": "$named"}}]
        )
        return {row["_id"]: True async for row in found}

    async def page(
        self, mark: Mark, event_id: str, after: str, most: int
    ) -> tuple[list[EndLetter], str | None]:
        """Return tombstones for letters behind the id `after`, of `most` at once, and where to go on, if at all."""
        query: Row = {
            "named": f"{mark.kind}:{mark.target}",
            "ended_by": {"$in": [None, event_id]},
            "_id": {"$gt": after},
        }
        rows = await self._letters.find(query).sort("_id").limit(most).to_list()
        ends = await self._ended(await self._reached(rows), event_id)
        return ends, rows[-1]["_id"] if len(rows) == most else None

    async def _reached(self, rows: Sequence[Row]) -> list[Row]:
        found = [(row, _ids(row)) for row in rows]
        marks = await self._forgotten.among({pair for _, ids in found for pair in ids.pairs()})
        return [row for row, ids in found if ids.gone(marks)]

    async def _ended(self, rows: Sequence[Row], by: str | None) -> list[EndLetter]:
        """Erase letters from the outcomes that hold them, note who ended them, and return their tombstones."""
        for row in rows:
            await self._pull(row)
        if rows and by is not None:
            wanted = {"_id": {"$in": [row["_id"] for row in rows]}}
            await self._letters.update_many(wanted, {"$set": {"ended_by": by}})
        return [EndLetter(row["topic"], bytes(row["key"]), FORGOTTEN) for row in rows]

    async def _pull(self, row: Row) -> None:
        named = {"$in": row["members"]}
        held = {"$or": [{"members": named}, {"retry_of": named}], "records.t": row["topic"]}
        letter = {"records": {"t": row["topic"], "k": row["key"]}}
        if row["outcomes"] is not None:
            await self._database[row["outcomes"]].update_many(held, {"$pull": letter})


def _noted(letter: LetterIds, outcomes: str) -> UpdateOne:
    row: Row = {
        "topic": letter.topic,
        "key": letter.key,
        "named": sorted(f"{kind}:{name}" for kind, name in letter.ids.pairs()),
        "sources": [_source(source) for source in letter.ids.sources],
        "outcomes": outcomes if letter.members else None,
        "members": list(letter.members),
        "at": letter.at,
        "ends_at": letter.at + KEPT,
        "ended_by": None,
    }
    return UpdateOne({"_id": letter.id, "at": {"$lt": letter.at}}, {"$set": row}, upsert=True)


def _source(source: SourceMessage) -> Row:
    return {
        "message_id": source.message_id,
        "version": source.version,
        "session_id": source.session_id,
        "user_id": source.user_id,
        "time": source.time,
    }


def _ids(row: Row) -> NamedIds:
    """Read back what a letter names; the entities are those named that no source is."""
    sources = tuple(
        SourceMessage.model_construct(None, **source, said_at=source["time"]) for source in row["sources"]
    )
    pairs = (tuple(name.split(":", 1)) for name in row["named"])
    entities = frozenset((kind, name) for kind, name in pairs if kind in ENTITY_KINDS)
    return NamedIds(sources, entities)
