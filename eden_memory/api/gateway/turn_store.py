"""Turns as messages of the application, where its settings say that they are."""

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from pymongo.asynchronous.database import AsyncDatabase
from pymongo.errors import BulkWriteError, DuplicateKeyError

from eden_memory.api.gateway.turns import Lost, Turn
from eden_memory.mongo.ids import encode_id
from eden_memory.settings import Role, Settings

DUPLICATE_KEY = 11_000
BEYOND = "\x7f"
"""Sorts behind every character of a turn's name."""
SESSIONS_KNOWN = 10_000
Row = dict[str, Any]


class TurnStore:
    """`source` is the application's database."""

    def __init__(self, source: AsyncDatabase[Row], settings: Settings) -> None:
        self._fields, self._mapped = settings.messages, settings.sessions
        self._messages = source[settings.messages.collection]
        self._sessions = source[self._mapped.collection] if self._mapped.collection is not None else None
        self._makes_sessions = settings.gateway.create_sessions
        self._roles = {ours: theirs for theirs, ours in settings.messages.roles.items()}
        self._made: OrderedDict[tuple[str, str | None], None] = OrderedDict()

    async def put(self, session: Any, user: Any, turns: Sequence[Turn], at: datetime) -> int:
        """Insert those that are not there yet, in order; how many. The same at every repeat."""
        if not turns:
            return 0
        rows = [self._row(session, user, one, at + timedelta(milliseconds=n)) for n, one in enumerate(turns)]
        return await self._insert_all(rows) if len(rows) > 1 else await self._insert(rows[0])

    async def _insert(self, row: Row) -> int:
        try:
            await self._messages.insert_one(row)
        except DuplicateKeyError as error:
            if not _is_known(error.details or {}):
                raise
            return 0
        return 1

    async def _insert_all(self, rows: list[Row]) -> int:
        try:
            return len((await self._messages.insert_many(rows, ordered=False)).inserted_ids)
        except BulkWriteError as error:
            if not all(_is_known(one) for one in error.details["writeErrors"]):
                raise
            return int(error.details["nInserted"])

    async def put_lost(self, session: Any, lost: Lost, before: datetime) -> int:
        """Insert an answer that the history shows and that is not stored (yet), as said before a time; 0 or 1."""
        asked = await self._messages.find_one({"_id": lost.behind}, {"_id": 1})
        if asked is None or await self._messages.find_one({"_id": _beginning(lost.answer.slot)}, {"_id": 1}):
            return 0
        return await self.put(session, None, [lost.answer], before - timedelta(milliseconds=1))

    async def make_session(self, session: Any, agent: Any, user: Any) -> None:
        """The session's document with this user in it, where the gateway is to make it."""
        key = (encode_id(session), None if user is None else encode_id(user))
        if self._sessions is None or not self._makes_sessions or key in self._made:
            return
        users: Row = {"$addToSet": {self._mapped.users: user}} if user is not None else {}
        new: Row = {self._mapped.agent_id: agent, **({} if users else {self._mapped.users: []})}
        await self._sessions.update_one({"_id": session}, {"$setOnInsert": new, **users}, upsert=True)
        self._made[key] = None
        if len(self._made) > SESSIONS_KNOWN:
            self._made.popitem(last=False)

    def _row(self, session: Any, user: Any, turn: Turn, at: datetime) -> Row:
        row: Row = {"_id": turn.name}
        fields = self._fields
        _put(row, fields.session_id, session)
        _put(row, fields.role, self._role(turn.role))
        _put(row, fields.content, turn.text)
        _put(row, fields.created_at, at)
        if turn.role == "user" and user is not None:
            _put(row, fields.user_id, user)
        return row

    def _role(self, role: Role) -> str:
        """As the application calls it."""
        return self._roles.get(role, role)


def _is_known(refused: Mapping[str, Any]) -> bool:
    """The turn is there already: not refused by an index of the application's own."""
    return refused.get("code") == DUPLICATE_KEY and "_id" in refused.get("keyPattern", {"_id": 1})


def _beginning(prefix: str) -> Row:
    return {"$gte": prefix, "$lt": prefix + BEYOND}


def _put(row: Row, path: str, value: Any) -> None:
    """Set a dotted path."""
    *above, last = path.split(".")
    for name in above:
        row = row.setdefault(name, {})
    row[last] = value
