"""Answers of models, stored under keys that are the same in every process and at every attempt."""

import asyncio
import json
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from functools import lru_cache
from hashlib import sha256
from typing import Any, Protocol

from bson import Decimal128
from pymongo.asynchronous.database import AsyncDatabase
from pymongo.errors import ConnectionFailure, WaitQueueTimeoutError, WTimeoutError

from eden_memory.errors import describe
from eden_memory.logs import LibraryLogger
from eden_memory.models.judging import CALLS, MOST_INVALID, SET_ASIDE, TRUNCATED
from eden_memory.models.provider_calls import schema_of
from eden_memory.models.question import Prompt
from eden_memory.mongo.client import majority
from eden_memory.mongo.documents import GroupedInserts
from eden_memory.mongo.transactions import SharedReads
from eden_memory.mongo.validators import Indexes, index_on
from eden_memory.names import Names
from eden_memory.schemas.answers import ModelAnswer
from eden_memory.schemas.documents import Answer
from eden_memory.stages.patience import SERVERS
from eden_memory.stages.retry_waits import backoff

log = LibraryLogger()


LAYOUT = "1"
"""Of the values that are hashed."""


def first_key(
    model: str,
    prompt: Prompt,
    answer: type[ModelAnswer],
    anew: int = 0,
    parameters: Mapping[str, str] | None = None,
) -> str:
    """SHA-256 of model, parameters, prompt and the answer's schema; `anew` asks past what is kept."""
    asked = [model, dict(parameters or {}), prompt.system, prompt.user, _schema(answer)]
    return _hash("chat", *asked, anew) if anew else _hash("chat", *asked)


def next_key(key: str, text: str) -> str:
    """Of what is asked after an answer fell short: it follows from that answer alone, not from the prompt."""
    return _hash("after", key, text)


def text_key(model: str, dimensions: int | None, text: str) -> str:
    """Of one text's vector."""
    return _hash("embeddings", model, dimensions, text)


@lru_cache(maxsize=64)
def _schema(answer: type[ModelAnswer]) -> str:
    return json.dumps(schema_of(answer), sort_keys=True)


def _hash(*values: object) -> str:
    text = json.dumps([LAYOUT, *values], sort_keys=True, ensure_ascii=True, separators=(",", ":"))
    return sha256(text.encode()).hexdigest()


def exhausted(chain: Sequence[Answer]) -> bool:
    """Whether no valid answer is among them and none can be asked for."""
    aside = max((place for place, answer in enumerate(chain, 1) if answer.invalid == SET_ASIDE), default=0)
    chain = chain[aside:]
    judged = sum(answer.invalid not in (None, TRUNCATED) for answer in chain)
    spent = judged >= MOST_INVALID or len(chain) >= CALLS
    return spent and all(answer.invalid is not None for answer in chain)


def chain_of(found: Mapping[str, Answer]) -> list[Answer]:
    """A unit's answers in the order in which they were asked for, from the earliest first one on."""
    following = {next_key(answer.id, answer.text or ""): answer.id for answer in found.values()}
    starts = _oldest(answer for answer in found.values() if answer.id not in following)
    chain = starts[:1]
    while chain and (after := found.get(next_key(chain[-1].id, chain[-1].text or ""))) is not None:
        chain.append(after)
    return chain


def _oldest(answers: Iterable[Answer]) -> list[Answer]:
    return sorted(answers, key=lambda answer: (answer.answered_at, answer.id))


class AnswerStore(Protocol):
    """Answers by the hash of what was asked; each is written once and never changed, but for `invalid`."""

    async def of_unit(self, unit: str, answer_id: str | None = None) -> Mapping[str, Answer]:
        """All answers that a unit's question and its repairs have got, by id; `answer_id` too, whosever it is."""
        ...

    async def find(self, ids: Iterable[str]) -> Mapping[str, Answer]:
        """Those of the answers that are kept, by id, in one query."""
        ...

    async def of_call(self, call_id: str) -> Answer | None:
        """The answer that a call brought, if it is kept."""
        ...

    async def keep(self, answer: Answer) -> Answer:
        """Store it until that is confirmed; what is stored under its id already is returned in its place."""
        ...

    async def keep_all(self, answers: Sequence[Answer]) -> list[Answer]:
        """The same of several, together."""
        ...

    async def judged_invalid(self, answer_id: str, reason: str) -> None:
        """Mark it as of no use."""
        ...


class Forwarding:
    """An AnswerStore before another, for those that do one thing otherwise."""

    def __init__(self, answers: AnswerStore) -> None:
        self._answers = answers

    async def of_unit(self, unit: str, answer_id: str | None = None) -> Mapping[str, Answer]:
        """As the store."""
        return await self._answers.of_unit(unit, answer_id)

    async def find(self, ids: Iterable[str]) -> Mapping[str, Answer]:
        """As the store."""
        return await self._answers.find(ids)

    async def of_call(self, call_id: str) -> Answer | None:
        """As the store."""
        return await self._answers.of_call(call_id)

    async def keep(self, answer: Answer) -> Answer:
        """As the store."""
        return await self._answers.keep(answer)

    async def keep_all(self, answers: Sequence[Answer]) -> list[Answer]:
        """As the store."""
        return await self._answers.keep_all(answers)

    async def judged_invalid(self, answer_id: str, reason: str) -> None:
        """As the store."""
        await self._answers.judged_invalid(answer_id, reason)


AWAY = (ConnectionFailure, WaitQueueTimeoutError, WTimeoutError)

REASON_CHARACTERS = 1_000

Document = dict[str, Any]

Unit = tuple[str, str | None]
"""A unit, and the id of an answer that may be another's."""


ANSWER_INDEXES: Indexes = {Answer.COLLECTION: (index_on("unit", sparse=True), index_on("answered_at"))}


class MongoAnswers:
    """The collection `answers` (eden_memory.models.stored_answers.AnswerStore)."""

    def __init__(self, database: AsyncDatabase[Document], names: Names) -> None:
        self._answers = majority(database, names[Answer.COLLECTION])
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

    async def of_call(self, call_id: str) -> Answer | None:
        """The answer that a call brought, if it is kept: the call's id begins the answer's own, in hexadecimal."""
        found = await self._answers.find_one({"_id": {"$gte": call_id, "$lt": f"{call_id}g"}})
        return None if found is None else _answer(found)

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
