"""The application's messages collection: does it exist, can it be read in order, what do deletions say."""

from collections.abc import Mapping
from typing import Any

from pymongo.asynchronous.database import AsyncDatabase

from eden_memory.doctor.finding import Finding
from eden_memory.settings import MessagesSettings, Settings
from schemas.documents import ApiKey

Database = AsyncDatabase[dict[str, Any]]
Indexes = Mapping[str, Mapping[str, Any]]


async def messages_collection(database: Database, messages: MessagesSettings) -> Finding:
    """An empty or misnamed collection is the commonest reason for silence."""
    name = f"{database.name}.{messages.collection}"
    if not await _options(database, messages.collection):
        return Finding(
            "messages collection",
            "warn",
            f"{name} does not exist (yet)",
            "If your messages are elsewhere set EDEN_SOURCE_DATABASE and EDEN_MESSAGES_COLLECTION.",
        )
    count = await database[messages.collection].estimated_document_count()
    return Finding("messages collection", "ok", f"{name}, about {count:,} messages")


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
        f'db.runCommand({{collMod: "{messages.collection}", '
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
    return judge_index(await database[messages.collection].index_information(), messages)


def judge_index(indexes: Indexes, messages: MessagesSettings) -> Finding:
    """Of the collection's indexes; partial and sparse ones would hide messages."""
    wanted = [(messages.created_at, 1), ("_id", 1)]
    whole = (
        one for one in indexes.values() if "partialFilterExpression" not in one and not one.get("sparse")
    )
    if any([(field, order) for field, order in one["key"]] == wanted for one in whole):
        return Finding("backfill index", "ok", f"{{{messages.created_at}: 1, _id: 1}}")
    return Finding(
        "backfill index",
        "warn",
        f"none on {{{messages.created_at}: 1, _id: 1}}: the first start sorts the whole collection",
        f'db.{messages.collection}.createIndex({{"{messages.created_at}": 1, "_id": 1}})',
    )


async def session_index(database: Database, settings: Settings) -> Finding:
    """Where no document lists a session's users, its messages are asked for others than the key's, with each chat."""
    mapped, messages = settings.sessions.collection, settings.messages
    if mapped is not None:
        return Finding("session index", "ok", f"not needed while {mapped} lists who is in a session")
    keys = database.client[settings.mongodb.database][settings.names[ApiKey.COLLECTION]]
    asked = settings.gateway.upstream is not None or await keys.find_one(
        {"users": {"$type": "array"}, "revoked_at": None}, {"_id": 1}
    )
    if not asked:
        return Finding("session index", "ok", "not needed: no gateway is set up, no key is bound to users")
    return judge_session_index(await database[messages.collection].index_information(), messages)


def judge_session_index(indexes: Indexes, messages: MessagesSettings) -> Finding:
    """Of the collection's indexes: one that begins with the session and holds every message."""
    field = messages.session_id
    for index in indexes.values():
        first, order = next(iter(index["key"]))
        if first == field and order in (1, -1, "hashed") and "partialFilterExpression" not in index:
            return Finding("session index", "ok", f"{{{field}: {order}}}")
    return Finding(
        "session index",
        "warn",
        f"none on {{{field}: 1}}: for a key bound to users the gateway and the API search the whole collection, and "
        "refuse the key after two seconds",
        f'db.{messages.collection}.createIndex({{"{field}": 1}})',
    )


async def _options(database: Database, collection: str) -> dict[str, Any]:
    cursor = await database.list_collections(filter={"name": collection})
    found = await cursor.to_list()
    return dict(found[0]) if found else {}
