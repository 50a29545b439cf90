"""`<prefix>reforms`: what was asked, what it was expected to cost, how far it is; and who is forming one."""

import asyncio
from collections.abc import AsyncGenerator, Collection
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import datetime
from typing import Any

from pymongo.asynchronous.database import AsyncDatabase
from pymongo.errors import DuplicateKeyError
from pymongo.write_concern import WriteConcern

from eden_memory.errors import EdenError
from eden_memory.mongo.documents import with_plain_money, with_stored_money
from eden_memory.mongo.leases import MongoLease
from eden_memory.names import Names, Placement
from eden_memory.replay.namespaces import namespace_store as judging
from eden_memory.replay.namespaces.namespace_store import MongoLive, MongoNamespaces
from eden_memory.replay.restore.restored_store import NOTES, note_of
from eden_memory.schemas.documents import Namespace, Reform, WindowTexts
from eden_memory.schemas.events import FormationRequested

Row = dict[str, Any]
LEASE_SECONDS = 15.0
BUSY_SECONDS = 20.0


class MongoReforms:
    """The reforms of one installation."""

    def __init__(self, database: AsyncDatabase[Row], prefix: str) -> None:
        durable = WriteConcern("majority", j=True)
        self._prefix, self._notes = prefix, database[prefix + NOTES]
        self._reforms = database.get_collection(prefix + Reform.COLLECTION, write_concern=durable)
        self._namespaces = database.get_collection(prefix + Namespace.COLLECTION, write_concern=durable)

    async def get(self, name: str) -> Reform | None:
        """The reform, or None."""
        row = await self._reforms.find_one({"_id": name})
        return (
            None
            if row is None
            else Reform.model_validate(with_plain_money(row), strict=False, extra="ignore")
        )

    async def begun(self, reform: Reform) -> None:
        """Keep a new one; EdenError where another command was first."""
        try:
            await self._reforms.insert_one(with_stored_money(reform.stored()))
        except DuplicateKeyError:
            raise EdenError(f"{reform.id} was begun by another command meanwhile", "Run it again.") from None

    async def note(self, name: str, **fields: Any) -> None:
        """Write down some of its fields."""
        await self._reforms.update_one({"_id": name}, {"$set": with_stored_money(fields)})

    async def reused(self, name: str, more: int) -> None:
        """So many more answers were found kept."""
        if more:
            await self._reforms.update_one({"_id": name}, {"$inc": {"reused": more}})

    async def remove(self, name: str) -> None:
        """Its namespace is gone."""
        await self._reforms.delete_one({"_id": name})

    async def goes_on(self, name: str) -> None:
        """It is no longer caught up: nobody is to switch to it until it is again."""
        found = await self._namespaces.update_one(
            {"_id": name, "state": {"$ne": "dropped"}}, {"$set": {"state": "filling"}}
        )
        if not found.matched_count:
            raise EdenError(f"{name} is being dropped", f"eden namespace drop {name}")
        await self.note(name, state="running")

    async def unrestored(self, names: Collection[str]) -> set[str]:
        """Those of which not all is there yet that a reform begins from: topics, collections, the trigger's state."""
        if not names:
            return set()
        made = {
            row["_id"]: row["asked"]["rewindow"]
            async for row in self._reforms.find({"_id": {"$in": list(names)}, "state": {"$ne": "restoring"}})
        }
        notes = {note_of(Placement(name, name).names(self._prefix)): name for name in made}
        done = {"_id": {"$in": list(notes)}, "done": True}
        restored = {notes[row["_id"]] async for row in self._notes.find(done, {"_id": 1})}
        return {name for name in names if name not in made or not (made[name] or name in restored)}

    async def caught_up(self, name: str, at: datetime) -> None:
        """All there is is formed; the namespace says so by itself."""
        await self.note(name, state="caught_up", caught_up_at=at)


async def requested_windows(database: AsyncDatabase[Row], names: Names) -> AsyncGenerator[FormationRequested]:
    """Yield the windows of a reform whose request is written, in no order."""
    windows = database[names[WindowTexts.COLLECTION]]
    async for row in windows.find({"requested": {"$ne": None}}, {"requested": 1}):
        yield FormationRequested.model_validate_json(row["requested"], extra="ignore")


async def neglected(database: AsyncDatabase[dict[str, Any]], prefix: str) -> list[Namespace]:
    """By age; none as a rule. `prefix` is the installation's."""
    known = await MongoNamespaces(database, prefix).all()
    reforms = [namespace.id for namespace in known if judging.half_formed(namespace)]
    unrestored = await MongoReforms(database, prefix).unrestored(reforms)
    return judging.neglected(await MongoLive(database, prefix).placement(), known, unrestored)


@asynccontextmanager
async def alone(database: AsyncDatabase[dict[str, Any]], names: Names, name: str) -> AsyncGenerator[None]:
    """Hold the reform's lease; of a command that was killed, it runs out. EdenError where another command has it."""
    lease = MongoLease(database[names["leases"]], _lease(name), LEASE_SECONDS)
    async with AsyncExitStack() as stack:
        try:
            async with asyncio.timeout(BUSY_SECONDS):
                await stack.enter_async_context(lease.held())
        except TimeoutError:
            raise EdenError(
                f"another command is forming {name}", "Stop it first, or look at what it says."
            ) from None
        yield


async def at_work(
    database: AsyncDatabase[dict[str, Any]], names: Names, reforms: Collection[str]
) -> set[str]:
    """Those of the reforms that a command is forming, or dropping."""
    leases = {_lease(reform): reform for reform in reforms}
    held = {"_id": {"$in": list(leases)}, "$expr": {"$gte": ["$until", "$$NOW"]}}
    return {leases[row["_id"]] async for row in database[names["leases"]].find(held, {"_id": 1})}


def _lease(name: str) -> str:
    return f"reform/{name}"
