"""formation-trigger's state as it is restored: into empty collections, all of it or again from the beginning."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from pymongo.asynchronous.collection import AsyncCollection
from pymongo.asynchronous.database import AsyncDatabase
from pymongo.write_concern import WriteConcern

from eden_memory.errors import EdenError
from eden_memory.names import Names
from eden_memory.replay.restore.restore_writer import DocumentBatch
from eden_memory.schemas.documents import Message, PartitionState, SessionState, WindowTexts
from eden_memory.windows import trigger_documents as documents
from eden_memory.windows.trigger_store import MongoTriggerStore
from eden_memory.windows.window_request import StoredWindow
from eden_memory.windows.window_rule import Limits

Row = dict[str, Any]
KINDS = (Message, SessionState, WindowTexts, PartitionState)
NOTES = "installation"


def note_of(names: Names) -> str:
    """The id of the note that the trigger's state under `names` is restored: `done`."""
    return f"restored:{names[SessionState.COLLECTION]}"


class MongoRestored:
    """The trigger's collections under `names`; the note of what was done is in `installation`, shared by all."""

    def __init__(self, database: AsyncDatabase[Row], names: Names) -> None:
        self._database, self._names = database, names
        self._notes = self._of(NOTES)
        self._id = note_of(names)

    async def begin(self) -> Mapping[str, Any] | None:
        """Make room; what an earlier, completed run said. EdenError where there is state of another origin."""
        note = await self._notes.find_one({"_id": self._id})
        if note is not None and note["done"]:
            return note["told"]
        for kind in KINDS:
            collection = self._of(kind.COLLECTION)
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

    async def write(self, part: DocumentBatch) -> None:
        """Add documents that are not there."""
        windows = [documents.window_row(window) for window in part.windows]
        windows += [_erased(window) for window in part.erased]
        rows = {
            Message: [documents.message_row(message) for message in part.messages],
            WindowTexts: windows,
            SessionState: [documents.session_row(session)[0] for session in part.sessions],
        }
        for kind, some in rows.items():
            if some:
                await self._of(kind.COLLECTION).insert_many(some, ordered=False)

    async def finish(self, places: Mapping[int, int], told: Mapping[str, Any]) -> None:
        """Each partition's last place; then note that all is there."""
        if places:
            rows: list[Row] = [{"_id": partition, "place": place} for partition, place in places.items()]
            await self._of(PartitionState.COLLECTION).insert_many(rows)
        done = {"$set": {"done": True, "told": dict(told), "done_at": datetime.now(UTC)}}
        await self._notes.update_one({"_id": self._id}, done)

    async def forget(self) -> None:
        """The note goes with the namespace."""
        await self._notes.delete_one({"_id": self._id})

    def _of(self, collection: str) -> AsyncCollection[Row]:
        concern = WriteConcern("majority", j=True)
        return self._database.get_collection(self._names[collection], write_concern=concern)


def _erased(window: StoredWindow) -> Row:
    """A window whose memory was formed long ago: without its texts, as they are seven days later."""
    at = window.closed.at
    row = documents.window_row(window)
    for message in row["messages"]:
        message["text"] = None
    return {**row, "completed_at": at, "erase_after": at, "erased_at": at}
