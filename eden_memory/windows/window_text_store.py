"""Which windows still hold texts, and what the ledger says of those who read them."""

import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from pymongo.asynchronous.collection import AsyncCollection
from pymongo.asynchronous.database import AsyncDatabase

from eden_memory.names import Names
from eden_memory.windows.window_text_rules import Concluded

Row = dict[str, Any]
HELD: Row = {"erased_at": None}
"""Windows with texts; the index is over these alone."""


async def erase_window_texts(
    windows: AsyncCollection[Row], message_ids: Sequence[str], up_to: str | None = None
) -> None:
    """Erase the texts of messages in closed windows; with `up_to`, only of versions up to that one."""
    if not message_ids:
        return
    of = {} if up_to is None else {"one.version": {"$lte": up_to}}
    await windows.update_many(
        {"messages.message_id": {"$in": message_ids}},
        {"$set": {"messages.$[one].text": None}},
        array_filters=[{"one.message_id": {"$in": message_ids}, **of}],
    )


class MongoWindowTexts:
    """Over the collections `windows`, `outcomes` and `controls`."""

    def __init__(self, database: AsyncDatabase[Row], names: Names) -> None:
        self._windows, self._outcomes = database[names["windows"]], database[names["outcomes"]]
        self._controls = database[names["controls"]]

    async def incomplete(self, after: str, most: int) -> Sequence[str]:
        """Formations that were asked for and are not known to be complete, by id, from behind `after` on."""
        wanted: Row = {**HELD, "erase_after": None, "_id": {"$gt": after}, "requested": {"$ne": None}}
        rows = await self._windows.find(wanted, {"_id": 1}, sort={"_id": 1}, limit=most).to_list()
        return [row["_id"] for row in rows]

    async def concluded(self, members: Sequence[str]) -> Mapping[str, Concluded]:
        """How the ledger's members ended; those that have not are left out."""
        fields = {"members": 1, "at": 1, "dead": 1}
        found: dict[str, Concluded] = {}
        for row in await self._outcomes.find({"members": {"$in": list(members)}}, fields).to_list():
            dead = row.get("dead") is not None
            for member in set(row["members"]) & set(members):
                settled = dead and await self._settled(member)
                found[member] = Concluded(row["at"], dead=dead, settled=settled)
        return found

    async def note_complete(self, formation_ids: Sequence[str], at: datetime, erase_after: datetime) -> None:
        """Write down that nothing reads these any more."""
        change = {"$set": {"completed_at": at, "erase_after": erase_after}}
        await self._windows.update_many({"_id": {"$in": list(formation_ids)}}, change)

    async def erase(self, now: datetime) -> int:
        """Erase the texts that were to be erased by now; of how many windows."""
        gone: Row = {"$set": {"messages.$[].text": None, "names": {}, "erased_at": now}}
        done = await self._windows.update_many({**HELD, "erase_after": {"$lte": now}}, gone)
        return done.modified_count

    async def _settled(self, member: str) -> bool:
        """Whether a dead letter was tried again with success, or dropped."""
        again = {"members": {"$regex": f"^{re.escape(member)}#"}, "dead": None}
        if await self._outcomes.find_one(again, {"_id": 1}) is not None:
            return True
        return await self._controls.find_one({"state": "dropped", "member": member}) is not None
