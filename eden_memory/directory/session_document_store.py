"""The application's documents of sessions: found by the id that messages name, read by the mapped paths."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import Any, cast

from pymongo.asynchronous.database import AsyncDatabase

from eden_memory.mongo.changes import Unreadable
from eden_memory.mongo.document_fields import getter, marked_if, paths_of, stored_path, without_nested
from eden_memory.mongo.ids import encode_id
from eden_memory.mongo.lenient_decoding import grouped_by_id
from eden_memory.schemas.ids import NoId
from eden_memory.settings import SessionsSettings

Row = Mapping[str, Any]


class SessionDocuments:
    """`source` is the application's database; nothing is found where sessions are not mapped."""

    def __init__(self, source: AsyncDatabase[dict[str, Any]], paths: SessionsSettings) -> None:
        self._source, self.paths = source, paths
        said = (
            paths.id,
            paths.agent_id,
            paths.users,
            paths.group_id,
            paths.title,
            paths.memory,
            paths.incognito,
        )
        read = filter(None, map(stored_path, (*said, *paths_of(paths.exclude))))
        self._fields = dict.fromkeys(without_nested(list(dict.fromkeys(read))), 1)

    @property
    def collection(self) -> Any:
        """Return the mapped collection; None where sessions are not mapped."""
        return None if self.paths.collection is None else self._source[self.paths.collection]

    async def by_id(self, session_ids: Iterable[str]) -> dict[str, Row]:
        """Return the documents by typed id; those that cannot be decoded are Unreadable.

        Several documents of one session, as one for each of its users, are read as one: all of their users count,
        and one that keeps the session out of memory is enough.
        """
        if self.paths.collection is None:
            return {}
        found = await grouped_by_id(self.collection, session_ids, self._fields, self.paths.id)
        return {name: rows[0] if len(rows) == 1 else self._merged(rows) for name, rows in found.items()}

    async def one(self, session_id: str) -> Row | None:
        """Return the document of a session; None if there is none that can be read."""
        row = (await self.by_id([session_id])).get(session_id)
        return None if isinstance(row, Unreadable) else row

    def _merged(self, rows: Sequence[Row]) -> Row:
        unreadable = next((row for row in rows if isinstance(row, Unreadable)), None)
        if unreadable is not None:
            return unreadable
        excluded = marked_if(self.paths.exclude)
        switched_off = (row for row in rows if is_switched_off(self.paths, row))
        merged: Row = next(chain(filter(excluded, rows), switched_off), rows[0])
        lists = [listed for row in rows if (listed := listed_users(self.paths, row)) is not None]
        users = [user for listed in lists for user in listed]
        return _with(merged, self.paths.users.split("."), users) if lists else merged


def listed_users(paths: SessionsSettings, row: Row) -> list[Any] | None:
    """Return the users that a session's document names, as the application has them; None: their authors count.

    A list, or the one id of a field that the settings name.
    """
    users = getter(paths.users)(row)
    if isinstance(users, list):
        return cast("list[Any]", users)
    if "users" not in paths.model_fields_set or users in (None, ""):
        return None
    try:
        encode_id(users)
    except NoId:
        return None
    return [users]


def is_switched_off(paths: SessionsSettings, session: Row) -> bool:
    """Tell whether a session's document keeps the session out of memory."""
    off = getter(paths.memory)(session) is False or getter(paths.incognito)(session) is True
    return off or marked_if(paths.exclude)(session)


def _with(row: Row, path: Sequence[str], value: Any) -> dict[str, Any]:
    """Return a copy of a document with a value at a path."""
    name, *rest = path
    inner = row.get(name)
    below: Row = cast("Row", inner) if isinstance(inner, Mapping) else {}
    return {**row, name: _with(below, rest, value) if rest else value}
