"""The application's messages collection: does it exist, can it be read in order, what do deletions say."""

import json
from collections.abc import Mapping
from typing import Any

from pymongo.asynchronous.database import AsyncDatabase

from eden_memory.directory.author_store import begins_with, create_index, index_hint, messages_of_user_hint
from eden_memory.doctor.finding import Finding
from eden_memory.recent.written_message_store import SMALL
from eden_memory.settings import MessagesSettings, Settings
from eden_memory.source.messages_store import reading_order
from eden_memory.source.position_store import another_source, named, other_sources

Database = AsyncDatabase[dict[str, Any]]
Indexes = Mapping[str, Mapping[str, Any]]


async def messages_collection(database: Database, messages: MessagesSettings) -> Finding:
    """An empty or misnamed collection is the commonest reason for silence."""
    name = f"{database.name}.{messages.collection}"
    if not await exists(database, messages.collection):
        return Finding(
            "messages collection",
            "warn",
            f"{name} does not exist (yet)",
            "If your messages are elsewhere set EDEN_SOURCE_DATABASE and EDEN_MESSAGES_COLLECTION, or let "
            "`eden doctor --init` find them.",
        )
    count = await database[messages.collection].estimated_document_count()
    return Finding("messages collection", "ok", f"{name}, about {count:,} messages")


async def stored_source(memory: Database, settings: Settings) -> Finding:
    """Memory is formed from one collection; `eden run` refuses to start on another one."""
    source = settings.source_name
    others = await other_sources(memory[settings.names["positions"]], source)
    if not others:
        return Finding("source", "ok", f"memory is formed from {named(source)}, and from no other collection")
    refusal = another_source(source, others)
    return Finding("source", "fail", refusal.what, refusal.hint)


async def pre_images(database: Database, messages: MessagesSettings) -> Finding:
    """A delete event holds only the id; the pre-image says which session it was in."""
    entry = await _options(database, messages.collection)
    enabled = bool(entry.get("options", {}).get("changeStreamPreAndPostImages", {}).get("enabled"))
    if enabled:
        return Finding("pre-images", "ok", "on: deletions and moves find their session")
    return Finding(
        "pre-images",
        "warn",
        "off: a deletion is announced to every partition, a move to another session is not seen as one",
        f"db.getSiblingDB({json.dumps(database.name)}).runCommand({{collMod: {json.dumps(messages.collection)}, "
        "changeStreamPreAndPostImages: {enabled: true}})",
    )


async def ttl_index(database: Database, messages: MessagesSettings) -> Finding:
    """A TTL index deletes messages, and a deletion forgets: that must be wanted."""
    return judge_ttl(await database[messages.collection].index_information(), messages)


def judge_ttl(indexes: Indexes, messages: MessagesSettings) -> Finding:
    """Of the collection's indexes."""
    found = [name for name, index in indexes.items() if "expireAfterSeconds" in index]
    if not found:
        return Finding("TTL index", "ok", "none")
    what = f"index {found[0]} deletes messages after {indexes[found[0]]['expireAfterSeconds']:,} s"
    if messages.on_delete:
        return Finding("TTL index", "ok", f"{what}; on_delete = {messages.on_delete} was chosen")
    return Finding(
        "TTL index",
        "fail",
        f"{what}, and a deletion forgets what came of a message",
        "Choose: EDEN_MESSAGES_ON_DELETE=keep (memory outlives the messages) or =forget (it goes with them).",
    )


async def backfill_index(database: Database, messages: MessagesSettings) -> Finding:
    """Reading an existing collection in order is cheap with this index, and a sort of everything without."""
    return judge_index(await database[messages.collection].index_information(), database.name, messages)


def judge_index(indexes: Indexes, database: str, messages: MessagesSettings) -> Finding:
    """Of the collection's indexes; partial and sparse ones would hide messages."""
    wanted = reading_order(messages.created_at)
    keys = ", ".join(f"{field}: {order}" for field, order in wanted)
    whole = (
        index
        for index in indexes.values()
        if "partialFilterExpression" not in index and not index.get("sparse")
    )
    if any([(field, order) for field, order in mapping["key"]] == wanted for mapping in whole):
        return Finding("backfill index", "ok", f"{{{keys}}}")
    return Finding(
        "backfill index",
        "warn",
        f"none on {{{keys}}}: the first start sorts the whole collection",
        create_index(database, messages.collection, dict(wanted)),
    )


async def session_index(database: Database, settings: Settings) -> Finding:
    """Where no document lists a session's users, each context and search looks up the authors of its messages."""
    mapped, messages = settings.sessions.collection, settings.messages
    if mapped is not None and await database[mapped].find_one({settings.sessions.users: {"$type": "array"}}):
        return Finding("session index", "ok", f"not needed while {mapped} lists who is in a session")
    indexes = await database[messages.collection].index_information()
    return judge_session_index(indexes, database.name, messages)


def judge_session_index(indexes: Indexes, database: str, messages: MessagesSettings) -> Finding:
    """Of the collection's indexes: one that begins with the session and holds every message."""
    for index in indexes.values():
        if begins_with(index, messages.session_id):
            keys = ", ".join(f"{field}: {order}" for field, order in index["key"])
            return Finding("session index", "ok", f"{{{keys}}}")
    return Finding(
        "session index",
        "warn",
        f"none that begins with {messages.session_id}: to learn who is in a session, every context and search reads "
        "the whole collection, and shows no user's memory if that takes longer than two seconds",
        index_hint(database, messages),
    )


async def author_index(database: Database, settings: Settings) -> Finding:
    """Contexts and searches look up what a user wrote last, which no memory holds yet."""
    name, messages = "author index", settings.messages
    if not settings.memory.recent:
        return Finding(name, "ok", "not needed (EDEN_MEMORY_RECENT=false)")
    collection = database[messages.collection]
    if any(begins_with(index, messages.user_id) for index in (await collection.index_information()).values()):
        return Finding(name, "ok", f"begins with {messages.user_id}")
    if await collection.estimated_document_count() <= SMALL:
        return Finding(name, "ok", f"not needed up to {SMALL:,} messages")
    return Finding(
        name,
        "warn",
        f"none that begins with {messages.user_id}: what a user wrote a moment ago in another session is not shown "
        "before memory is formed from it",
        messages_of_user_hint(database.name, messages),
    )


async def exists(database: Database, collection: str) -> bool:
    """Return whether there is such a collection, or view."""
    return bool(await _options(database, collection))


async def _options(database: Database, collection: str) -> dict[str, Any]:
    cursor = await database.list_collections(filter={"name": collection})
    found = await cursor.to_list()
    return dict(found[0]) if found else {}
