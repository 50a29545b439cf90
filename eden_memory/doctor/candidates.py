"""Collections of the application that may hold its messages, the likeliest first."""

from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from typing import Any

from pymongo import AsyncMongoClient
from pymongo.asynchronous.collection import AsyncCollection
from pymongo.errors import OperationFailure

from eden_memory.doctor.proposing import Proposal, propose
from eden_memory.errors import EdenError
from eden_memory.mongo.change_stream import PLAIN
from eden_memory.settings import Settings

Client = AsyncMongoClient[dict[str, Any]]
Row = dict[str, Any]
SAMPLE, GLANCE = 200, 20
"""Documents of the collection that is mapped, and of each that may be."""
LIKELY = 4
"""So many fields of a message a collection needs to be taken unasked."""
NOT_THEIRS = frozenset({"admin", "local", "config", "eden_demo"})
"""Databases of the server, and of `eden demo`."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A collection, and the mapping that its newest documents suggest."""

    database: str
    collection: str
    documents: list[Row]
    proposal: Proposal

    @property
    def name(self) -> str:
        """As `--collection` takes it."""
        return f"{self.database}.{self.collection}"


async def candidates(client: Client, settings: Settings, named: str | None) -> list[Candidate]:
    """The collection named (`DATABASE.COLLECTION`, or of the source's database); else those like chat messages."""
    if named is not None:
        database, dot, collection = named.partition(".")
        if not dot:
            database, collection = settings.source_database, named
        return [await _named(client, database, collection)]
    found = [one async for one in _glances(client, settings)]
    found.sort(key=lambda one: (-one.proposal.likeness, "messag" not in one.collection.lower(), one.name))
    if not found:
        raise EdenError(
            "no collection holds documents that look like chat messages",
            "Name it: eden doctor --init --collection DATABASE.COLLECTION",
        )
    whole = await _sampled(_collection(client, found[0].database, found[0].collection), SAMPLE)
    return [replace(found[0], documents=whole, proposal=propose(whole)), *found[1:]]


async def _named(client: Client, database: str, collection: str) -> Candidate:
    documents = await _sampled(_collection(client, database, collection), SAMPLE)
    if not documents:
        raise EdenError(
            f"the collection {database}.{collection} does not exist or is empty",
            "Check the name, or write some messages first.",
        )
    return Candidate(database, collection, documents, propose(documents))


async def _glances(client: Client, settings: Settings) -> AsyncIterator[Candidate]:
    for database in await _databases(client, settings):
        for collection in await client[database].list_collection_names(filter={"type": "collection"}):
            if collection.startswith(("system.", settings.mongodb.prefix)):
                continue
            documents = await _sampled(_collection(client, database, collection), GLANCE)
            proposal = propose(documents)
            if proposal.likeness >= LIKELY:
                yield Candidate(database, collection, documents, proposal)


async def _databases(client: Client, settings: Settings) -> list[str]:
    """The source's database if one is set, else all that this user may list."""
    if settings.source.database is not None:
        return [settings.source.database]
    try:
        return sorted(set(await client.list_database_names()) - NOT_THEIRS)
    except OperationFailure:
        return [settings.source_database]


def _collection(client: Client, database: str, collection: str) -> AsyncCollection[Row]:
    return client.get_database(database, codec_options=PLAIN).get_collection(collection)


async def _sampled(collection: AsyncCollection[Row], count: int) -> list[Row]:
    """The newest documents."""
    return await collection.find(sort=[("_id", -1)], limit=count).to_list()
