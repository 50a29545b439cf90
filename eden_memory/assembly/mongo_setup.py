"""Everything that MongoDB needs before memory is written: collections, validators, indexes, search indexes."""

import asyncio
from collections.abc import Iterable, Sequence
from typing import Any

from pymongo import IndexModel
from pymongo.asynchronous.database import AsyncDatabase
from pymongo.errors import CollectionInvalid, OperationFailure

from eden_memory.errors import EdenError
from eden_memory.forgetting.ledger_store import ERASURE_INDEXES
from eden_memory.memory.memory_index_store import MEMORY_INDEXES, refuse_foreign
from eden_memory.models.catalogue import embedding_model
from eden_memory.models.stored_answers import ANSWER_INDEXES, MongoAnswers
from eden_memory.mongo.validators import VALIDATED, Indexes, validator_of
from eden_memory.names import Names
from eden_memory.schemas.documents import (
    DOCUMENTS,
    Answer,
    Budget,
    CountedCall,
    DeadLetter,
    Document,
    Erasure,
    Fact,
    Message,
    Outcome,
    SessionState,
    UsageState,
    UsageTotal,
    WebhookNotice,
    WindowTexts,
)
from eden_memory.search import atlas_list_store as search_indexes
from eden_memory.settings import Settings
from eden_memory.stages.dead_letter_store import DEAD_LETTER_INDEXES
from eden_memory.stages.outcome_store import OUTCOME_INDEXES, MongoLedger
from eden_memory.usage.usage_store import USAGE_INDEXES, MongoUsage
from eden_memory.webhooks.webhook_store import WEBHOOK_INDEXES
from eden_memory.windows.trigger_store import TRIGGER_INDEXES, MongoTriggerStore
from eden_memory.windows.window_rule import Limits

LOCAL_DIMENSIONS, UNKNOWN_DIMENSIONS = 384, 1_536
"""Dimensions of the local model, and of a model that nobody knows."""


def dimensions_of(settings: Settings) -> int:
    """Of the embedding model that the settings name."""
    model = embedding_model(settings)
    return LOCAL_DIMENSIONS if model is None else model.dimensions or UNKNOWN_DIMENSIONS


Row = dict[str, Any]
Database = AsyncDatabase[Row]

OTHER_OPTIONS = {85, 86}
"""IndexOptionsConflict, IndexKeySpecsConflict."""
STAGES_OWN = (
    Outcome,
    Answer,
    Message,
    SessionState,
    WindowTexts,
    UsageTotal,
    CountedCall,
    UsageState,
    Budget,
    Erasure,
    DeadLetter,
    WebhookNotice,
)
"""Collections whose indexes are made by the stores that use them."""
INDEXES: Indexes = {
    **MEMORY_INDEXES,
    **OUTCOME_INDEXES,
    **ANSWER_INDEXES,
    **TRIGGER_INDEXES,
    **USAGE_INDEXES,
    **ERASURE_INDEXES,
    **DEAD_LETTER_INDEXES,
    **WEBHOOK_INDEXES,
}


async def set_up(
    database: Database, names: Names, dimensions: int | None = None, wait_seconds: float = 0.0
) -> list[str]:
    """Create what is missing, and return it; nothing if all exists.

    `dimensions`: numbers of a vector; None: no search indexes are made. `wait_seconds`: how long to wait for these to
    answer; 0: not at all. EdenError as `refuse_foreign`.
    """
    await refuse_foreign(database, names)
    made = await _collections(database, names)
    made += await _validators(database, names)
    before = await _indexes(database, names)
    for name, models in MEMORY_INDEXES.items():
        await _create(database, names[name], models)
    for name, models in {**ERASURE_INDEXES, **DEAD_LETTER_INDEXES, **WEBHOOK_INDEXES}.items():
        await _create(database, names[name], models)
    await MongoLedger(database, names).prepare()
    await MongoAnswers(database, names).prepare()
    await MongoTriggerStore(database, names, Limits()).create_indexes()
    await MongoUsage(database, names).prepare()
    made += [f"index {index}" for index in sorted(await _indexes(database, names) - before)]
    if dimensions is not None:
        made += await _search(database, names, dimensions, wait_seconds)
    return made


async def check_all(database: Database, names: Names, dimensions: int) -> list[str]:
    """Return a line for each thing that `set_up` would create or wait for."""
    problems = await check(database, names, INDEXES)
    return problems + await search_indexes.problems(database[names[Fact.COLLECTION]], dimensions)


async def check(database: Database, names: Names, indexes: Indexes = MEMORY_INDEXES) -> list[str]:
    """Return a line for whatever is missing or differs; empty when all is there that the stages do not make."""
    validators = await _current_validators(database)
    indexed = {names[short]: models for short, models in indexes.items()}
    there = [name for name in indexed if name in validators]
    found = await asyncio.gather(*(_of(database, name) for name in there))
    problems = [f"collection {name} is missing" for name in indexed if name not in validators]
    for name, its_indexes in zip(there, found, strict=True):
        lacking = _named(indexed[name]) - its_indexes
        problems += [f"index {name}.{index} is missing" for index in sorted(lacking)]
    problems += [
        f"validator of {name} is missing or old"
        for kind in VALIDATED
        if (name := names[kind.COLLECTION]) in validators and validators[name] != _validation(kind)
    ]
    return problems


async def _collections(database: Database, names: Names) -> list[str]:
    there = set(await database.list_collection_names())
    wanted = dict.fromkeys(
        names[short] for short in (*MEMORY_INDEXES, *(kind.COLLECTION for kind in STAGES_OWN))
    )
    made: list[str] = []
    for name in wanted:
        if name not in there:
            try:
                await database.create_collection(name)
            except CollectionInvalid:
                continue  # another process was first
            made.append(f"collection {name}")
    return made


async def _validators(database: Database, names: Names) -> list[str]:
    there = await _current_validators(database)
    made: list[str] = []
    for kind in VALIDATED:
        name, wanted = names[kind.COLLECTION], _validation(kind)
        if there.get(name) != wanted:
            await database.command("collMod", name, **wanted)
            made.append(f"validator of {name}")
    return made


def _validation(document: type[Document]) -> Row:
    return {
        "validator": validator_of(document),
        "validationLevel": "moderate",
        "validationAction": "error",
    }


async def _current_validators(database: Database) -> dict[str, Row]:
    """Return the validator of every collection that is there."""
    found = await (await database.list_collections()).to_list()
    fields = ("validator", "validationLevel", "validationAction")
    return {
        collection["name"]: {
            name: collection["options"][name] for name in fields if name in collection["options"]
        }
        for collection in found
    }


async def _create(database: Database, name: str, models: Sequence[IndexModel]) -> None:
    try:
        await database[name].create_indexes(list(models))
    except OperationFailure as error:
        if error.code not in OTHER_OPTIONS:
            raise
        reason = str(error).partition(", full error")[0]
        raise EdenError(
            f"an index of {name} is there with other options: {reason}",
            f'Drop it (db["{name}"].dropIndex(…)) and run `eden setup` again.',
        ) from None


async def _search(database: Database, names: Names, dimensions: int, wait_seconds: float) -> list[str]:
    facts = database[names[Fact.COLLECTION]]
    made = await search_indexes.make(facts, dimensions)
    if made is None:
        return []
    if wait_seconds:
        await search_indexes.wait_until_queryable(facts, wait_seconds)
    return [f"search index {facts.name}.{name}" for name in made]


async def _indexes(database: Database, names: Names) -> set[str]:
    """`<collection>.<index>` of everything that exists."""
    called = dict.fromkeys(names[kind.COLLECTION] for kind in DOCUMENTS)
    return {f"{name}.{index}" for name in called for index in await _of(database, name) if index != "_id_"}


async def _of(database: Database, name: str) -> set[str]:
    return set(await database[name].index_information())


def _named(models: Iterable[IndexModel]) -> set[str]:
    return {str(model.document["name"]) for model in models}
