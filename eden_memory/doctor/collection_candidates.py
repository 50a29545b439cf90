"""Collections of the application that may hold its messages, the likeliest first."""

from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from pymongo import AsyncMongoClient
from pymongo.asynchronous.collection import AsyncCollection
from pymongo.errors import InvalidName, OperationFailure

from eden_memory.doctor.finding import Finding
from eden_memory.doctor.proposing import Proposal, json_messages, listed_messages, propose
from eden_memory.doctor.proposing_sessions import SessionsProposal, propose_sessions
from eden_memory.doctor.sampled_fields import is_id
from eden_memory.doctor.source_checks import judge_index, judge_session_index
from eden_memory.errors import EdenError
from eden_memory.mongo.change_stream import PLAIN
from eden_memory.mongo.document_fields import getter
from eden_memory.names import DEMO_DATABASE, EVAL_DATABASES
from eden_memory.settings import Settings

Client = AsyncMongoClient[dict[str, Any]]
Row = dict[str, Any]
SAMPLE, GLANCE = 200, 20
"""Documents of the collection that is mapped, and of each that may be."""
SESSIONS = 100
"""Sessions of the messages that are looked for in other collections."""
NOT_THEIRS = frozenset({"admin", "local", "config", DEMO_DATABASE})
"""Databases of the server, and of `eden demo`; those of `eden eval` have a beginning in common."""


@dataclass(frozen=True, slots=True)
class MessagesCandidate:
    """A collection, and the mapping that its newest documents suggest."""

    database: str
    collection: str
    documents: list[Row]
    proposal: Proposal

    @property
    def holds_json(self) -> bool:
        """Whether each document holds a session and a message, the message as JSON text."""
        paths = self.proposal
        return None not in (paths.session_id, paths.content) and bool(
            json_messages(self.documents, paths.content or "")
        )

    @property
    def name(self) -> str:
        """As `--collection` takes it."""
        return f"{self.database}.{self.collection}"


async def candidates(client: Client, settings: Settings, named: str | None) -> list[MessagesCandidate]:
    """The collections named (`DATABASE.COLLECTION`, or COLLECTION of any database), or those like chat messages."""
    databases = await _databases(client, settings)
    if named is not None:
        found = await _named(client, databases, named)
    else:
        found = await _glances(client, settings, databases)
    found.sort(
        key=lambda candidate: (
            -candidate.proposal.likeness,
            "messag" not in candidate.collection.lower(),
            candidate.name,
        )
    )
    whole = await _sampled(_collection(client, found[0].database, found[0].collection), SAMPLE)
    return [replace(found[0], documents=whole, proposal=propose(whole)), *found[1:]]


async def _named(client: Client, databases: Sequence[str], named: str) -> list[MessagesCandidate]:
    """The collection of that whole name, in whatever databases there is one."""
    database, dot, collection = named.partition(".")
    places = [(database, named) for database in databases]
    if dot and "" not in (database, collection):
        places.insert(0, (database, collection))
    found: list[MessagesCandidate] = []
    for place in places:
        if documents := await _glance(client, *place):
            found.append(MessagesCandidate(*place, documents, propose(documents)))
            if place[1] != named:
                return found
    if found:
        return found
    raise EdenError(
        f"the collection {named} does not exist, is empty, or may not be read (looked into {', '.join(databases)})",
        "Check the name and this user's rights, or write some messages first.",
    )


async def _glance(client: Client, database: str, collection: str) -> list[Row]:
    """A few of the newest documents; none where this user may not read them, or there can be no such name."""
    try:
        return await _sampled(_collection(client, database, collection), GLANCE)
    except (OperationFailure, InvalidName):
        return []


async def _glances(client: Client, settings: Settings, databases: Sequence[str]) -> list[MessagesCandidate]:
    found: list[MessagesCandidate] = []
    listed = ""
    for database in databases:
        for collection in await _collections(client, settings, database):
            documents = await _glance(client, database, collection)
            candidate = MessagesCandidate(database, collection, documents, propose(documents))
            if candidate.proposal.likely or candidate.holds_json:
                found.append(candidate)
            elif (inner := listed_messages(documents)) is not None:
                listed = f"; {candidate.name} holds several messages in each document (`{inner[0]}`)"
    if not found:
        raise EdenError(
            f"no collection holds documents that look like chat messages{listed}",
            "Name it: eden doctor --init --collection DATABASE.COLLECTION",
        )
    return found


async def _collections(client: Client, settings: Settings, database: str) -> list[str]:
    """The application's collections of a database."""
    names = await client[database].list_collection_names(filter={"type": "collection"})
    return sorted(name for name in names if not name.startswith(("system.", settings.mongodb.prefix)))


async def sessions_beside(
    client: Client, settings: Settings, messages: MessagesCandidate, answering: Collection[str]
) -> SessionsProposal | None:
    """The collection of the same database whose ids are the sessions' of the messages; of several the fullest.

    `answering`: ids of those who only answer.
    """
    if messages.proposal.session_id is None:
        return None
    values = map(getter(messages.proposal.session_id), messages.documents)
    ids = list({repr(value): value for value in values if is_id(value)}.values())[:SESSIONS]
    found: list[SessionsProposal] = []
    for collection in await _collections(client, settings, messages.database):
        if collection != messages.collection:
            place = _collection(client, messages.database, collection)
            with suppress(OperationFailure):  # this user may not read it
                documents = await place.find({"_id": {"$in": ids}}).to_list()
                proposal = propose_sessions(collection, documents, len(ids), answering)
                found += [proposal] if proposal is not None else []
    return max(
        found,
        key=lambda sessions_proposal: (len(sessions_proposal.paths), sessions_proposal.described),
        default=None,
    )


async def missing_indexes(
    client: Client, settings: Settings, database: str, *, listed: bool
) -> list[Finding]:
    """Of the indexes that the mapping needs, those that are not there; `listed`: sessions list their users."""
    try:
        indexes = await client[database][settings.messages.collection].index_information()
    except OperationFailure:  # a view has none
        return []
    found = [judge_index(indexes, database, settings.messages)]
    found += [] if listed else [judge_session_index(indexes, database, settings.messages)]
    return [finding for finding in found if finding.state != "ok"]


async def _databases(client: Client, settings: Settings) -> list[str]:
    """The source's database if one is set, else all that this user may list."""
    if settings.source.database is not None:
        return [settings.source.database]
    try:
        names = set(await client.list_database_names()) - NOT_THEIRS
        return sorted(name for name in names if not name.startswith(EVAL_DATABASES))
    except OperationFailure:
        return [settings.source_database]


def _collection(client: Client, database: str, collection: str) -> AsyncCollection[Row]:
    return client.get_database(database, codec_options=PLAIN).get_collection(collection)


async def _sampled(collection: AsyncCollection[Row], count: int) -> list[Row]:
    """The newest documents."""
    return await collection.find(sort=[("_id", -1)], limit=count).to_list()
