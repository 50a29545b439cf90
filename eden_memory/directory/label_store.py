"""Names that the application gives agents, users, sessions and groups; and who may see a group's memory."""

from collections.abc import Collection
from typing import Any, Literal

from pymongo.asynchronous.database import AsyncDatabase

from eden_memory.directory.directory_store import text_of
from eden_memory.mongo.bson_ids import decode_id, encode_id
from eden_memory.mongo.document_fields import getter
from eden_memory.schemas.ids import NoId
from eden_memory.settings import Settings

Row = dict[str, Any]
Labelled = Literal["agent", "user", "session", "group"]


class Labels:
    """Reads the application's documents, where they are mapped."""

    def __init__(self, source: AsyncDatabase[Row], settings: Settings) -> None:
        self._source, self._settings = source, settings
        self._paths = {
            "agent": (settings.agents.collection, settings.agents.name),
            "user": (settings.users.collection, settings.users.name),
            "session": (settings.sessions.collection, settings.sessions.title),
            "group": (settings.groups.collection, settings.groups.name),
        }

    async def of(self, kind: Labelled, ids: Collection[str]) -> dict[str, str]:
        """Return the names by typed id, of those that have one."""
        collection, path = self._paths[kind]
        if collection is None or not ids:
            return {}
        wanted = [decode_id(typed) for typed in ids]
        rows = await self._source[collection].find({"_id": {"$in": wanted}}, {path: 1}).to_list()
        named = ((_first_id([row["_id"]]), text_of(getter(path)(row))) for row in rows)
        return {identity: name for identity, name in named if identity is not None and name is not None}

    async def member_of(self, group_id: str) -> str | None:
        """Return a user whom a group lists; None where nothing lists any."""
        paths = self._settings.groups
        if paths.collection is None:
            return None
        row = await self._source[paths.collection].find_one({"_id": decode_id(group_id)}, {paths.members: 1})
        listed: Any = None if row is None else getter(paths.members)(row)
        return _first_id(listed)

    async def session_of(self, group_id: str) -> str | None:
        """Return a session of a group; None where sessions are not mapped, or none names it."""
        paths = self._settings.sessions
        if paths.collection is None:
            return None
        row = await self._source[paths.collection].find_one({paths.group_id: decode_id(group_id)}, {"_id": 1})
        return None if row is None else _first_id([row["_id"]])


def _first_id(listed: Any) -> str | None:
    try:
        return encode_id(listed[0]) if isinstance(listed, list) and listed else None
    except NoId:
        return None
