"""MongoDB: the server, its permissions, and the application's messages collection."""

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from bson import Timestamp
from pymongo import AsyncMongoClient
from pymongo.asynchronous.database import AsyncDatabase
from pymongo.errors import OperationFailure

from eden_memory.context.written_message_store import SMALL
from eden_memory.directory.author_store import (
    begins_with,
    create_index,
    index_hint,
    messages_of_user_hint,
    newest_of_session_hint,
)
from eden_memory.directory.participants import ROOM_CHOICES
from eden_memory.directory.session_document_store import listed_users
from eden_memory.doctor.finding import Finding, Privilege, missing
from eden_memory.forgetting.mark_store import MongoForgetting
from eden_memory.formation.sharing_store import Learning, learning, rooms_without_facts
from eden_memory.kafka.topics import load_topics
from eden_memory.memory.memory_index_store import stored_sharing
from eden_memory.names import Placement
from eden_memory.replay.namespaces.namespace_store import MongoLive, goes_on
from eden_memory.replay.reform.reform_store import neglected
from eden_memory.schemas.documents import ForgottenMark, Message, Namespace
from eden_memory.schemas.scopes import SharingMode
from eden_memory.settings import MessagesSettings, SessionsSettings, Settings
from eden_memory.source.messages_store import reading_order
from eden_memory.stages.dead_letter_store import DeadLetters

OLDEST = (6, 0)

SKEW_WARN, SKEW_FAIL = timedelta(seconds=1), timedelta(seconds=30)

OPLOG_WARN, OPLOG_FAIL = timedelta(hours=72), timedelta(hours=24)

REWRITTEN, TRIMMED = 20, 3
"""Messages written again, and sessions that lost their oldest messages: from so many on, a framework may do it."""
LOOKED_AT = 200
"""Newest deletions that are looked at."""

FULL = 0.9
"""Share of its size from which an oplog counts as full."""


Client = AsyncMongoClient[dict[str, Any]]

Answer = Mapping[str, Any]


async def server_version(client: Client) -> Finding:
    """Change streams with pre-images need MongoDB 6.0."""
    return judge_version(str((await client.admin.command("buildInfo"))["version"]))


def judge_version(text: str) -> Finding:
    """Of a version as the server writes it, `6.0.5`."""
    major, minor = (int(part) for part in text.split(".")[:2])
    if (major, minor) < OLDEST:
        return Finding("MongoDB version", "fail", f"MongoDB {text}", "Upgrade to MongoDB 6.0 or newer.")
    return Finding("MongoDB version", "ok", f"MongoDB {text}")


async def live_namespace(client: Client, settings: Settings) -> Finding:
    """Which memory is read and formed, and whether what is forgotten leaves all that there is beside it."""
    database, prefix = client[settings.mongodb.database], settings.mongodb.prefix
    placement = await MongoLive(database, prefix).placement()
    return judge_namespaces(placement, await neglected(database, prefix))


async def sharing(client: Client, settings: Settings) -> Finding:
    """Which agents learn from what their users say, and whether their models may share it."""
    memory, chosen = client[settings.mongodb.database], settings.memory.sharing
    stored = await stored_sharing(memory, settings.names)
    found = await learning(client[settings.source_database], memory, settings, stored or chosen or "private")
    return judge_sharing(chosen, stored, found)


async def rooms(client: Client, settings: Settings) -> list[Finding]:
    """How many sessions of several users keep no facts, unless a setting says that they are to keep none."""
    memory = client[settings.mongodb.database]
    mode = await stored_sharing(memory, settings.names) or settings.memory.sharing or "private"
    found = await rooms_without_facts(client[settings.source_database], memory, settings, mode)
    if not found:
        return []
    return [Finding("rooms", "warn", f"{found:,} sessions of several users keep no facts", ROOM_CHOICES)]


def judge_sharing(chosen: SharingMode | None, stored: SharingMode | None, found: Learning) -> Finding:
    """`chosen` by the settings, and what the store says; `found` with the mode that holds."""
    if chosen is not None and stored not in (None, chosen):
        what = f"{found.says}; settings say {chosen}"
        return Finding("sharing", "warn", what, "Restart every `eden run`.")
    if found.lacking:
        what = f"{found.says}; but their models share nothing of it: {'; '.join(found.lacking)}"
        return Finding("sharing", "warn", what, "Run `eden models check --sharing`, or choose another model.")
    return Finding("sharing", "ok", found.says)


async def dead_letters(client: Client, settings: Settings) -> Finding:
    """Count what was given up, and nobody has tried again or dropped."""
    database, topics = client[settings.mongodb.database], load_topics(settings.kafka, settings.placement)
    letters = DeadLetters(database, settings.names, MongoForgetting(database, settings.names))
    found = await letters.count(settings.placement.group(program) for program in topics.file.programs)
    waiting = {program: count for program, count in found.items() if count}
    if not waiting:
        return Finding("dead letters", "ok", "none waits")
    what = ", ".join(f"{count:,} of {program}" for program, count in waiting.items())
    hint = "See `eden dead list`; then `eden dead retry`, or `eden dead drop` for what is not worth it."
    return Finding("dead letters", "fail", f"{sum(waiting.values()):,} wait: {what}", hint)


def judge_namespaces(live: Placement, left: Sequence[Namespace]) -> Finding:
    """`left`: those in which what is forgotten stays."""
    what = f"{live.memory} is live, pipeline {live.pipeline}"
    if not left:
        return Finding("namespace", "ok", what)
    named = ", ".join(namespace.id for namespace in left)
    return Finding(
        "namespace",
        "warn",
        f"{what}; begun and left, so that what is forgotten stays in them: {named}",
        "; ".join(goes_on(namespace) for namespace in left),
    )


async def replica_set(client: Client) -> Finding:
    """Change streams exist on replica sets and sharded clusters only."""
    return judge_topology(await client.admin.command("hello"))


def judge_topology(hello: Answer) -> Finding:
    """Of the server's answer to `hello`."""
    if hello.get("msg") == "isdbgrid":
        return Finding("replica set", "ok", "sharded cluster")
    if "setName" not in hello:
        return Finding(
            "replica set",
            "fail",
            "a standalone server: it has no change streams",
            "Start mongod with --replSet rs0 and run rs.initiate() once; one member is enough.",
        )
    members = len(hello.get("hosts", []))
    return Finding("replica set", "ok", f"{hello['setName']}, {members} member{'s' if members != 1 else ''}")


async def clock(client: Client) -> Finding:
    """This machine's clock against the server's, half the answer's time taken off."""
    before = datetime.now(UTC)
    hello = await client.admin.command("hello")
    middle = before + (datetime.now(UTC) - before) / 2
    return judge_clock(middle - hello["localTime"].replace(tzinfo=UTC))


def judge_clock(skew: timedelta) -> Finding:
    """Of this machine's time less the server's."""
    seconds = skew.total_seconds()
    what = f"this machine is {abs(seconds):.1f} s {'ahead of' if seconds > 0 else 'behind'} MongoDB"
    hint = "Let both machines follow the same time servers (chrony, systemd-timesyncd)."
    if abs(skew) >= SKEW_FAIL:
        return Finding("clock", "fail", what, hint)
    if abs(skew) >= SKEW_WARN:
        return Finding("clock", "warn", what, hint)
    return Finding("clock", "ok", f"{abs(seconds) * 1000:.0f} ms from MongoDB's")


async def oplog_window(client: Client) -> Finding:
    """For how long a stopped tailer finds its place again."""
    oplog = client["local"]["oplog.rs"]
    try:
        first = await oplog.find_one(sort=[("$natural", 1)], projection={"ts": 1})
        last = await oplog.find_one(sort=[("$natural", -1)], projection={"ts": 1})
        size = await client["local"].command("collStats", "oplog.rs")
    except OperationFailure as error:
        return _oplog_unknown(f"it cannot be read: {error.details or error}")
    if first is None or last is None:
        return _oplog_unknown("this server shows none (a sharded cluster has one on every shard)")
    return judge_oplog(_span(first["ts"], last["ts"]), float(size["size"]) / float(size["maxSize"]))


def judge_oplog(span: timedelta, filled: float) -> Finding:
    """Of the time between first and last entry, and how full it is (0 to 1): until full it is projected."""
    if filled < FULL and span < timedelta(hours=1):
        return Finding("oplog window", "ok", f"{filled:.1%} full after {_hours(span)}: too young to judge")
    window = span if filled >= FULL else span / max(filled, 1e-6)
    projected = "" if filled >= FULL else f" ({filled:.0%} full: {_hours(window)} at this pace)"
    state = "fail" if window < OPLOG_FAIL else "warn" if window < OPLOG_WARN else "ok"
    hint = "" if state == "ok" else "db.adminCommand({replSetResizeOplog: 1, minRetentionHours: 72})"
    return Finding("oplog window", state, f"{_hours(span)} held{projected}", hint)


async def permissions(client: Client, needed: list[Privilege]) -> Finding:
    """Compare the rights of the connection's user with the least that the program needs."""
    status = await client.admin.command("connectionStatus", showPrivileges=True)
    return judge_permissions(status["authInfo"], needed)


def judge_permissions(info: Answer, needed: list[Privilege]) -> Finding:
    """Of `authInfo` in the server's answer to `connectionStatus`."""
    if not info["authenticatedUsers"]:
        return Finding(
            "MongoDB permissions",
            "warn",
            "connected without a user",
            "Fine for trying out; elsewhere give the program the role that `eden doctor --rights` prints.",
        )
    lacking = missing(needed, info["authenticatedUserPrivileges"])
    user = info["authenticatedUsers"][0]["user"]
    if lacking:
        named = "; ".join(map(str, lacking))
        return Finding(
            "MongoDB permissions",
            "fail",
            f"{user} lacks {named}",
            "Grant the role that `eden doctor --rights` prints.",
        )
    return Finding("MongoDB permissions", "ok", f"{user} may do all that is needed")


def _span(first: Timestamp, last: Timestamp) -> timedelta:
    return timedelta(seconds=last.time - first.time)


def _hours(span: timedelta) -> str:
    return f"{span.total_seconds() / 3600:,.1f} h"


def _oplog_unknown(why: str) -> Finding:
    hint = (
        "It should hold 72 hours: a tailer that stood still for longer has to compare the whole collection."
    )
    return Finding("oplog window", "warn", why, hint)


Database = AsyncDatabase[dict[str, Any]]

Indexes = Mapping[str, Mapping[str, Any]]


async def messages_collection(database: Database, messages: MessagesSettings) -> Finding:
    """An empty or misnamed collection is the commonest reason for silence."""
    name = f"{database.name}.{messages.collection}"
    if not await exists(database, messages.collection):
        return Finding(
            "messages collection",
            "fail",
            f"{name} does not exist (yet)",
            "Write a first message. If your messages are elsewhere set EDEN_SOURCE_DATABASE and "
            "EDEN_MESSAGES_COLLECTION, or let `eden doctor --init` find them.",
        )
    count = await database[messages.collection].estimated_document_count()
    of = "messages" if messages.list is None else "documents that list messages"
    return Finding("messages collection", "ok", f"{name}, about {count:,} {of}")


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


async def edited_messages(messages: MessagesSettings) -> Finding:
    """An edit of a formed text forgets what was formed from it, whatever is chosen for the new text."""
    new = "the new text forms" if messages.on_edit == "form" else "the new text forms nothing"
    return Finding(
        "edited messages", "ok", f"the earlier text is forgotten, {new} (on_edit = {messages.on_edit})"
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


async def deletions(client: Client, settings: Settings) -> Finding:
    """What a deletion means, and whether a framework rather than a user seems to delete."""
    messages, database = settings.messages, client[settings.mongodb.database]
    if messages.on_delete:
        return Finding("deletions", "ok", f"on_delete = {messages.on_delete} was chosen")
    again: dict[str, Any] = {"alias_of": {"$exists": True, "$gt": ""}}
    rewritten = await database[settings.names[Message.COLLECTION]].count_documents(again, limit=REWRITTEN)
    trimmed = await _trimmed(database, settings)
    if rewritten < REWRITTEN and trimmed < TRIMMED:
        grace = f"{messages.delete_grace_seconds:g} s"
        return Finding("deletions", "ok", f"memory is hidden at once, and erased after {grace}")
    seen = [f"{rewritten} messages and more were deleted and written again"] if rewritten >= REWRITTEN else []
    seen += [f"{trimmed} sessions that go on have lost their oldest messages"] if trimmed >= TRIMMED else []
    return Finding(
        "deletions",
        "warn",
        f"{'; '.join(seen)}: a framework may rewrite or trim its history",
        "Choose: EDEN_MESSAGES_ON_DELETE=keep (memory outlives what is trimmed) or =forget (it goes with it).",
    )


async def _trimmed(database: Database, settings: Settings) -> int:
    """Count the sessions of the newest deletions that have no message left from before the deleted ones."""
    deleted = {"kind": "message", "reach": "up_to_version"}
    marks = database[settings.names[ForgottenMark.COLLECTION]].find(deleted, {"target": 1})
    targets = [row["target"] async for row in marks.sort("$natural", -1).limit(LOOKED_AT)]
    messages, newest = database[settings.names[Message.COLLECTION]], dict[str, datetime]()
    gone = {"_id": {"$in": targets}, "deleted": True, "session_id": {"$ne": None}}
    async for row in messages.find(gone, {"session_id": 1, "time": 1}):
        newest[row["session_id"]] = max(row["time"], newest.get(row["session_id"], row["time"]))
    found = 0
    for session_id, time in newest.items():
        left: dict[str, Any] = {"session_id": session_id, "deleted": False, "forgotten": {"$ne": True}}
        later = await messages.find_one({**left, "time": {"$gte": time}}, {"_id": 1})
        earlier = await messages.find_one({**left, "time": {"$lt": time}}, {"_id": 1})
        found += later is not None and earlier is None
    return found


async def backfill_index(database: Database, messages: MessagesSettings) -> Finding:
    """Reading an existing collection in order is cheap with this index, and a sort of everything without."""
    return judge_index(await database[messages.collection].index_information(), database.name, messages)


def judge_index(indexes: Indexes, database: str, messages: MessagesSettings) -> Finding:
    """Of the collection's indexes; partial and sparse ones would hide messages."""
    wanted = reading_order(messages.created_at if messages.list is None else "_id")
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
    if mapped is not None and await _lists_users(database[mapped], settings.sessions):
        return Finding("session index", "ok", f"not needed while {mapped} lists who is in a session")
    indexes = await database[messages.collection].index_information()
    return judge_session_index(indexes, database.name, messages)


async def _lists_users(sessions: Any, paths: SessionsSettings) -> bool:
    some: Any = {paths.users: {"$type": "array"}}
    row = await sessions.find_one(
        some if "users" not in paths.model_fields_set else {paths.users: {"$ne": None}}
    )
    return row is not None and listed_users(paths, row) is not None


async def joined_index(database: Database, settings: Settings) -> list[Finding]:
    """Where messages name a session by another field than `_id`, each message, context and search looks it up."""
    sessions = settings.sessions
    if sessions.collection is None or sessions.id == "_id":
        return []
    indexes = await database[sessions.collection].index_information()
    if any(begins_with(index, sessions.id) for index in indexes.values()):
        return [Finding("session documents", "ok", f"of {sessions.collection}, begins with {sessions.id}")]
    return [
        Finding(
            "session documents",
            "warn",
            f"none of {sessions.collection} begins with {sessions.id}: each look-up of a session reads all of it",
            create_index(database.name, sessions.collection, {sessions.id: 1}),
        )
    ]


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
    if await collection.estimated_document_count() <= SMALL:
        return Finding(name, "ok", f"not needed up to {SMALL:,} messages")
    indexes = (await collection.index_information()).values()
    if any(begins_with(index, messages.user_id) for index in indexes):
        newest = [messages.session_id, messages.created_at]
        if any([field for field, _ in index["key"]][:2] == newest for index in indexes):
            return Finding(name, "ok", f"begins with {messages.user_id}, and {', '.join(newest)}")
        return Finding(
            name,
            "warn",
            f"none that begins with {', '.join(newest)}: to find what a user wrote a moment ago, whole sessions are "
            "read",
            newest_of_session_hint(database.name, messages),
        )
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
