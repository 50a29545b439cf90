"""The store of models' answers: written once, the moment they arrive, acknowledged by a majority."""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from typing import Any

from bson import Decimal128
from pymongo import ReadPreference
from pymongo.asynchronous.collection import AsyncCollection
from pymongo.asynchronous.database import AsyncDatabase
from pymongo.errors import ConnectionFailure, WaitQueueTimeoutError, WTimeoutError
from pymongo.read_concern import ReadConcern
from pymongo.write_concern import WriteConcern

from eden_memory.error_text import describe
from eden_memory.logs import LibraryLogger
from eden_memory.mongo.grouped_inserts import GroupedInserts
from eden_memory.mongo.indexes import Indexes, index_on
from eden_memory.mongo.shared_reads import SharedReads
from eden_memory.names import Names
from eden_memory.schemas.documents import Answer
from eden_memory.stages.patience import SERVERS
from eden_memory.stages.retry_waits import backoff

log = LibraryLogger()
AWAY = (ConnectionFailure, WaitQueueTimeoutError, WTimeoutError)
REASON_CHARACTERS = 1_000
Document = dict[str, Any]
Unit = tuple[str, str | None]
"""A unit, and the id of an answer that may be another's."""

ANSWER_INDEXES: Indexes = {Answer.COLLECTION: (index_on("unit", sparse=True),)}


class MongoAnswers:
    """The collection `answers` (eden_memory.models.asking.answer_forwarding.AnswerStore)."""

    def __init__(self, database: AsyncDatabase[Document], names: Names) -> None:
        self._answers: AsyncCollection[Document] = database.get_collection(
            names[Answer.COLLECTION],
            read_preference=ReadPreference.PRIMARY,
            read_concern=ReadConcern("majority"),
            write_concern=WriteConcern("majority", j=True),
        )
        self._inserts = GroupedInserts(self._answers)
        self._of_units = SharedReads(self._read_units)
        self._of_ids = SharedReads(self._read_ids)

    async def prepare(self) -> None:
        """Create the index."""
        await self._answers.create_indexes(list(ANSWER_INDEXES[Answer.COLLECTION]))

    async def of_unit(self, unit: str, answer_id: str | None = None) -> Mapping[str, Answer]:
        """All answers of a unit, by id, and the one under `answer_id`; look-ups of the same moment share a query."""
        asked = (unit, answer_id)
        return (await self._of_units.get([asked])).get(asked, {})

    async def find(self, ids: Iterable[str]) -> Mapping[str, Answer]:
        """Those of the answers that are kept, by id; look-ups of the same moment share a query."""
        return await self._of_ids.get(ids)

    async def keep(self, answer: Answer) -> Answer:
        """Store it until that is confirmed; what is stored under its id already is returned in its place."""
        attempts = 0
        while True:
            try:
                return await self._keep(answer)
            except AWAY as error:
                log.warning("answer not stored yet", error=describe(error))
                attempts += 1
                await asyncio.sleep(backoff(SERVERS, attempts))

    async def keep_all(self, answers: Sequence[Answer]) -> list[Answer]:
        """The same of several, together: who keeps a window's vectors one by one makes a task for each."""
        kept = await self._inserts.insert_all([_document(answer) for answer in answers])
        return [
            answer if done else await self.keep(answer) for answer, done in zip(answers, kept, strict=True)
        ]

    async def judged_invalid(self, answer_id: str, reason: str) -> None:
        """Mark it as of no use; the first reason stays."""
        await self._answers.update_one(
            {"_id": answer_id, "invalid": {"$exists": False}},
            {"$set": {"invalid": reason[:REASON_CHARACTERS]}},
        )

    async def _keep(self, answer: Answer) -> Answer:
        if await self._inserts.insert(_document(answer)) is None:
            return answer
        stored = await self._answers.find_one({"_id": answer.id})
        return answer if stored is None else _answer(stored)

    async def _read_units(self, asked: list[Unit]) -> dict[Unit, dict[str, Answer]]:
        of_units: Document = {"unit": {"$in": [unit for unit, _ in asked]}}
        ids = [answer_id for _, answer_id in asked if answer_id is not None]
        query = {"$or": [of_units, {"_id": {"$in": ids}}]} if ids else of_units
        found = [_answer(answer) async for answer in self._answers.find(query)]
        units: dict[str | None, dict[str, Answer]] = {}
        for answer in found:
            units.setdefault(answer.unit, {})[answer.id] = answer
        by_id = {answer.id: answer for answer in found}
        return {
            (unit, answer_id): units.get(unit, {})
            | ({answer_id: by_id[answer_id]} if answer_id in by_id else {})
            for unit, answer_id in asked
        }

    async def _read_ids(self, ids: list[str]) -> dict[str, Answer]:
        return {answer["_id"]: _answer(answer) async for answer in self._answers.find({"_id": {"$in": ids}})}


def _document(answer: Answer) -> Document:
    """Return the fields that differ from their defaults; money as Decimal128."""
    document = answer.model_dump(exclude_defaults=True)
    for name in ("shown", "vectors"):
        if name in document:
            document[name] = list(document[name])
    if answer.cost_usd is not None:
        document["cost_usd"] = Decimal128(answer.cost_usd)
    return document


def _answer(document: Document) -> Answer:
    cost = document.get("cost_usd")
    if isinstance(cost, Decimal128):
        document["cost_usd"] = _plain(cost.to_decimal())
    return Answer.model_validate(document, strict=False)


def _plain(cost: Decimal) -> Decimal:
    """Without the exponent that a zero may carry."""
    return Decimal(0) if cost == 0 else cost
