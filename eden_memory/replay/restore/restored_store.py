"""Write formation-trigger's state, and the state of an installation whose MongoDB was lost."""

from collections.abc import AsyncGenerator, Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, Literal

from pymongo import ReplaceOne, UpdateOne
from pymongo.asynchronous.collection import AsyncCollection
from pymongo.asynchronous.database import AsyncDatabase
from pymongo.write_concern import WriteConcern

from eden_memory.errors import EdenError
from eden_memory.mongo.change_stream import ChangeStream
from eden_memory.names import Names
from eden_memory.replay.namespaces.namespace_store import KINDS
from eden_memory.schemas.documents import (
    CountedCall,
    Document,
    ForgottenMark,
    Message,
    Outcome,
    PartitionState,
    SessionState,
    Snapshot,
    UsageTotal,
    WindowTexts,
)
from eden_memory.settings import Settings
from eden_memory.windows import trigger_write_store as documents
from eden_memory.windows.formation_requests import StoredWindow
from eden_memory.windows.session_state import Session, StoredMessage
from eden_memory.windows.trigger_store import MongoTriggerStore
from eden_memory.windows.window_rule import Limits

Row = dict[str, Any]
TRIGGER = (Message, SessionState, WindowTexts, PartitionState)
"""The documents of formation-trigger."""
NOTES = "installation"
State = Literal["begun", "going on", "done"]
RESTORED: tuple[type[Document], ...] = (
    *KINDS,
    *TRIGGER,
    Outcome,
    ForgottenMark,
    UsageTotal,
    CountedCall,
)
"""The collections that have to be empty; others may be there (keys, streams, budgets, answers, the inbox)."""
KEY = "from_nothing"
TOGETHER = 1_000
FIRST_EPOCH = 0
"""Below that of any lease."""


def note_of(names: Names) -> str:
    """The id of the note that the trigger's state under `names` is restored: `done`."""
    return f"restored:{names[SessionState.COLLECTION]}"


def _of(database: AsyncDatabase[Row], names: Names, collection: str) -> AsyncCollection[Row]:
    concern = WriteConcern("majority", j=True)
    return database.get_collection(names[collection], write_concern=concern)


class MongoRestored:
    """The trigger's collections under `names`; the note of what was done is in `installation`, shared by all."""

    def __init__(self, database: AsyncDatabase[Row], names: Names) -> None:
        self._database, self._names = database, names
        self._notes = _of(self._database, self._names, NOTES)
        self._id = note_of(names)

    async def begin(self) -> Mapping[str, Any] | None:
        """Make room; what an earlier, completed run said. EdenError where there is state of another origin."""
        note = await self._notes.find_one({"_id": self._id})
        if note is not None and note["done"]:
            return note["told"]
        for kind in TRIGGER:
            collection = _of(self._database, self._names, kind.COLLECTION)
            if note is not None:
                await collection.delete_many({})
            elif await collection.find_one({}, {"_id": 1}) is not None:
                raise EdenError(
                    f"{collection.name} is not empty: formation has a state of its own",
                    "It is restored only where there is none.",
                )
        begun = {"$set": {"done": False, "begun_at": datetime.now(UTC)}}
        await self._notes.update_one({"_id": self._id}, begun, upsert=True)
        await MongoTriggerStore(self._database, self._names, Limits()).create_indexes()
        return None

    async def write(
        self,
        messages: Iterable[StoredMessage],
        sessions: Iterable[Session],
        windows: Iterable[StoredWindow],
        erased: Iterable[StoredWindow],
    ) -> None:
        """Store documents in the place of what is there; `erased`: windows without texts, long complete."""
        rows = {
            Message: [documents.message_row(message) for message in messages],
            SessionState: [documents.session_row(session)[0] for session in sessions],
            WindowTexts: [
                *(documents.window_row(window) for window in windows),
                *(_erased(window) for window in erased),
            ],
        }
        for kind, some in rows.items():
            if some:
                writes = [ReplaceOne({"_id": row["_id"]}, row, upsert=True) for row in some]
                await _of(self._database, self._names, kind.COLLECTION).bulk_write(writes, ordered=False)

    async def count(self) -> dict[str, int]:
        """Return what is there: messages that wait, windows, messages of windows whose text is gone."""
        messages, windows = (
            _of(self._database, self._names, Message.COLLECTION),
            _of(self._database, self._names, WindowTexts.COLLECTION),
        )
        textless = {"$filter": {"input": "$messages", "cond": {"$eq": ["$$this.text", None]}}}
        counted = await windows.aggregate(
            [
                {"$match": {"erased_at": None}},
                {"$group": {"_id": None, "gone": {"$sum": {"$size": textless}}}},
            ]
        )
        return {
            "waiting": await messages.count_documents({"formation_id": None, "place": {"$gt": 0}}),
            "windows": await windows.count_documents({}),
            "gone": sum([row["gone"] async for row in counted]),
        }

    async def finish(self, told: Mapping[str, Any]) -> None:
        """Note that all is there."""
        done = {"$set": {"done": True, "told": dict(told), "done_at": datetime.now(UTC)}}
        await self._notes.update_one({"_id": self._id}, done)

    async def forget(self) -> None:
        """The note goes with the namespace."""
        await self._notes.delete_one({"_id": self._id})


def _erased(window: StoredWindow) -> Row:
    """A window whose memory was formed long ago: without its texts, as they are seven days later."""
    at = window.closed.at
    row = documents.window_row(window)
    for message in row["messages"]:
        message["text"] = None
    return {**row, "completed_at": at, "erase_after": at, "erased_at": at}


class MongoLost:
    """The collections under `names`; how far it is stands in `installation`."""

    def __init__(self, database: AsyncDatabase[Row], names: Names) -> None:
        self._database, self._names = database, names
        self._notes = _of(self._database, self._names, "installation")

    async def state(self) -> State | None:
        """How far an earlier run has come; None: there was none."""
        note = await self._notes.find_one({"_id": KEY})
        if note is None:
            return None
        return "done" if note.get("done_at") is not None else "going on"

    async def in_the_way(self) -> Mapping[str, int]:
        """Collections that are not empty, with their documents."""
        names = [self._names[kind.COLLECTION] for kind in RESTORED]
        counts = {name: await self._database[name].estimated_document_count() for name in names}
        return {name: count for name, count in counts.items() if count}

    async def begin(self) -> None:
        """From now on what is there is what a restoration has written; notes of an earlier one go."""
        await self._notes.delete_many({"_id": {"$in": [KEY, f"restored:{self._names['sessions']}"]}})
        await self._notes.insert_one({"_id": KEY, "begun_at": datetime.now(UTC), "done_at": None})

    async def done(self, told: Mapping[str, Any]) -> None:
        """Everything is there."""
        change = {"$set": {"done_at": datetime.now(UTC), "told": dict(told)}}
        await self._notes.update_one({"_id": KEY}, change)

    async def beyond(self, revisions: Mapping[str, int]) -> None:
        """Let snapshots go on above the published revisions of their scopes: who keeps copies reads anew."""
        writes: list[UpdateOne] = []
        for key, revision in revisions.items():
            raised = {"$max": ["$revision", revision + 1]}
            change = [
                {"$set": {"revision": raised}},
                {"$set": {"reset_revision": {"$max": ["$reset_revision", "$revision"]}}},
            ]
            writes.append(UpdateOne({"_id": key}, change))
        if writes:
            await _of(self._database, self._names, Snapshot.COLLECTION).bulk_write(writes, ordered=False)

    async def forgotten_blobs(self) -> AsyncGenerator[list[str]]:
        """Names (`KEY@5`) of blob versions that are marked as forgotten, some at a time."""
        some: list[str] = []
        async for row in _of(self._database, self._names, ForgottenMark.COLLECTION).find(
            {"kind": "blob"}, {"target": 1}
        ):
            some.append(str(row["target"]))
            if len(some) == TOGETHER:
                yield some
                some = []
        if some:
            yield some


async def follow_from_now(
    database: AsyncDatabase[dict[str, Any]], settings: Settings, source: str, inbox: str
) -> bool:
    """Save a position of this moment if the messages' collection is empty; False: it is not, or one is saved.

    Without it the tailer would merge `chat.messages` against an empty collection, and end every message there.
    """
    client, messages = database.client, settings.messages.collection
    if await client[settings.source_database][messages].find_one({}, {"_id": 1}) is not None:
        return False
    positions = database[settings.names["positions"]]
    if await positions.find_one({"_id": source, "token": {"$exists": True}}) is not None:
        return False
    fields, batch = {messages: ["_id"], inbox: ["_id"]}, settings.tailer.batch_messages
    now = await ChangeStream(client, settings.source_database, fields, batch=batch).now()
    position = {"token": now.position, "version": now.version, "phase": "stream", "page": None, "read": 0}
    await positions.update_one({"_id": source}, {"$set": {**position, "epoch": FIRST_EPOCH}}, upsert=True)
    return True
