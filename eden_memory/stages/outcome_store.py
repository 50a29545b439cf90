"""The ledger of outcomes: written once, acknowledged by a majority, one insert per decision."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any
from uuid import uuid4

from pymongo.asynchronous.database import AsyncDatabase

from eden_memory.mongo.client import majority
from eden_memory.mongo.documents import GroupedInserts
from eden_memory.mongo.transactions import SharedReads
from eden_memory.mongo.validators import Indexes, index_on
from eden_memory.names import Names
from eden_memory.schemas.documents import GivenUp
from eden_memory.stages.outcome import OutcomeTooLarge, Reread, StageOutcome, StoredRecord

LIMIT_BYTES = 4_000_000
UNPUBLISHED = "unpublished"
"""Marks a record of an outcome that is not to be published again: nobody counts on it any more."""
Document = dict[str, Any]
OUTCOME_INDEXES: Indexes = {
    "outcomes": (
        index_on("members", unique=True),
        index_on("writes", unique=True, sparse=True),
        index_on("retry_of", sparse=True),
        index_on("topic", "partition", "at"),
        index_on(
            "stage",
            "topic",
            "partition",
            "offset",
            partialFilterExpression={"records": {"$exists": True}},
        ),
    ),
}


class MongoLedger:
    """The collection `outcomes`.

    `_id` is the decision key; `members` (`stage:event id`) and `writes` are each unique over all documents.
    A decision too large for one document has further ones, named in its `parts`; they count once it is there.
    """

    def __init__(self, database: AsyncDatabase[Document], names: Names, limit: int = LIMIT_BYTES) -> None:
        self._outcomes = majority(database, names["outcomes"])
        self._limit = limit
        self._inserts = GroupedInserts(self._outcomes)
        self._reads = SharedReads(self._read)

    async def prepare(self) -> None:
        """Create the indexes."""
        await self._outcomes.create_indexes(list(OUTCOME_INDEXES["outcomes"]))

    async def find(self, stage: str, members: Sequence[str]) -> Mapping[str, StageOutcome]:
        """The outcomes that the members were decided in; requests of the same moment share one query."""
        found = await self._reads.get(f"{stage}:{member}" for member in members)
        return {name.removeprefix(f"{stage}:"): outcome for name, outcome in found.items()}

    async def decided(self, stage: str, members: Sequence[str]) -> set[str]:
        """Those of the members that are decided, without reading what was decided."""
        names = [f"{stage}:{member}" for member in members]
        found = self._outcomes.find({"members": {"$in": names}}, {"members": 1})
        held = {member for row in await found.to_list() for member in row["members"]}
        return {member for member, name in zip(members, names, strict=True) if name in held}

    async def given_up(self, stage: str, members: Sequence[str]) -> set[str]:
        """Those of the members that were given up, and that no retry has decided since."""
        names = {f"{stage}:{member}": member for member in members}
        dead = self._outcomes.find(
            {"members": {"$in": list(names)}, "dead": {"$exists": True}}, {"members": 1}
        )
        given_up = {name for row in await dead.to_list() for name in row["members"] if name in names}
        decided = {"retry_of": {"$in": list(given_up)}, "dead": {"$exists": False}}
        again: list[str] = await self._outcomes.distinct("retry_of", decided)
        return {names[name] for name in given_up.difference(again)}

    async def store(self, outcome: StageOutcome) -> StageOutcome:
        """Insert it, or return what is stored under its key; Reread if a member or write is another's."""
        large = outcome.dead is None and outcome.size > self._limit
        if large and not outcome.in_parts:
            raise OutcomeTooLarge(f"{outcome.key}: {outcome.size} bytes of events, {self._limit} are allowed")
        document = await self._in_parts(outcome) if large else _document(outcome)
        taken = await self._inserts.insert(document)
        if taken is None:
            return outcome
        if parts := document.get("parts"):
            await self._outcomes.delete_many({"_id": {"$in": parts}})
        stored = await self._outcomes.find_one({"_id": outcome.key})
        if stored is None:
            raise Reread(f"{outcome.key}: another decision has what it needs of {taken}")
        return (await self._whole([stored]))[0]

    async def _in_parts(self, outcome: StageOutcome) -> Document:
        """Insert all parts but the first, under names that no other attempt gives; the first names them."""
        first, *more = _cut(outcome.records, self._limit // 2)  # stored, small records take twice their bytes
        attempt = uuid4().hex
        names = [f"{outcome.key}/{attempt}/{number}" for number in range(1, len(more) + 1)]
        for name, records in zip(names, more, strict=True):
            part = _document(replace(outcome, key=name, members=(), writes=(), kinds=(), records=records))
            await self._outcomes.insert_one({**part, "members": [name]})
        return {**_document(replace(outcome, records=first)), "parts": names}

    async def remove_consumed(self, stage: str, topic: str, partition: int, before: int) -> int:
        """Remove the records of outcomes whose input ends below an offset; keys stay. How many there were.

        With them goes why members are dead letters: a redelivery stores none again.
        """
        consumed = {"stage": stage, "topic": topic, "partition": partition, "offset": {"$lt": before}}
        result = await self._outcomes.update_many(
            {**consumed, "records": {"$exists": True}},
            [{"$set": {"record_count": {"$size": "$records"}}}, {"$unset": ["records", "letters"]}],
        )
        return result.modified_count

    async def _read(self, members: list[str]) -> dict[str, StageOutcome]:
        documents = await self._outcomes.find({"members": {"$in": members}}).to_list()
        found: dict[str, StageOutcome] = {}
        for document, outcome in zip(documents, await self._whole(documents), strict=True):
            found.update(dict.fromkeys(document["members"], outcome))
        return found

    async def _whole(self, documents: Sequence[Document]) -> list[StageOutcome]:
        """The outcomes, those in parts put together."""
        names = [name for document in documents for name in document.get("parts", ())]
        parts = (
            {row["_id"]: row async for row in self._outcomes.find({"_id": {"$in": names}})} if names else {}
        )
        return [
            _outcome(document, [parts.get(name, {}) for name in document.get("parts", ())])
            for document in documents
        ]


def _document(outcome: StageOutcome) -> Document:
    document: Document = {
        "_id": outcome.key,
        "stage": outcome.stage,
        "members": [f"{outcome.stage}:{member}" for member in outcome.members],
        "kinds": list(outcome.kinds),
        "topic": outcome.topic,
        "partition": outcome.partition,
        "offset": outcome.offset,
        "at": outcome.decided_at,
        "records": [_packed(record) for record in outcome.records],
    }
    if outcome.writes:
        document["writes"] = list(outcome.writes)
    if outcome.dead is not None:
        document["dead"] = outcome.dead
    if outcome.letters:
        document["letters"] = [why.model_dump() for why in outcome.letters]
    if outcome.retry_of is not None:
        document["retry_of"] = f"{outcome.stage}:{outcome.retry_of}"
    return document


def _packed(record: StoredRecord) -> Document:
    headers = [[name, value] for name, value in record.headers]
    return {
        "t": record.topic,
        "o": record.ordering_key,
        "k": record.key,
        "v": record.value,
        "h": headers,
    }


def _cut(records: Sequence[StoredRecord], limit: int) -> list[tuple[StoredRecord, ...]]:
    """The records in order, in parts of about `limit` bytes at most."""
    parts: list[list[StoredRecord]] = [[]]
    size = 0
    for record in records:
        size += record.size
        if size > limit and parts[-1]:
            parts.append([])
            size = record.size
        parts[-1].append(record)
    return [tuple(part) for part in parts]


def _outcome(document: Mapping[str, Any], more: Sequence[Mapping[str, Any]]) -> StageOutcome:
    """`more`: the documents of its further parts, in order."""
    stage: str = document["stage"]
    decided_at: datetime = document["at"]
    whole = (document, *more)
    retried: str | None = document.get("retry_of")
    return StageOutcome(
        key=document["_id"],
        stage=stage,
        members=tuple(member.removeprefix(f"{stage}:") for member in document["members"]),
        writes=tuple(document.get("writes", ())),
        records=tuple(
            _unpacked(record)
            for mapping in whole
            for record in mapping.get("records", ())
            if UNPUBLISHED not in record
        ),
        topic=document["topic"],
        partition=document["partition"],
        offset=document["offset"],
        decided_at=decided_at,
        kinds=tuple(document["kinds"]),
        dead=document.get("dead"),
        letters=tuple(GivenUp.model_validate(why, strict=False) for why in document.get("letters", ())),
        retry_of=retried and retried.removeprefix(f"{stage}:"),
        removed=any("records" not in mapping for mapping in whole),
        in_parts=bool(more),
    )


def _unpacked(record: Mapping[str, Any]) -> StoredRecord:
    headers = tuple((name, None if value is None else bytes(value)) for name, value in record["h"])
    return StoredRecord(record["t"], record["o"], record["k"], record["v"], headers)
