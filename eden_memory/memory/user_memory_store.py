"""Memory by its users: everything held about one user, and what came from users into memory that others see.

An export of one user does not repeat what stands in the records of Kafka's topics, and what the machinery keeps to
publish a decision again (outcomes, answers); the application's own documents are its own.
"""

from collections.abc import AsyncGenerator, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from hashlib import blake2b
from typing import Any, Literal, cast
from uuid import UUID

from bson import Binary, Decimal128, ObjectId
from pymongo.asynchronous.database import AsyncDatabase

from eden_memory.directory.directory_store import MongoAudiences
from eden_memory.memory.snapshot_store import MongoHidden, of_users, wide_scopes
from eden_memory.mongo.ids import decode_id, encode_id, typed
from eden_memory.names import Names
from eden_memory.schemas.documents import (
    Access,
    Budget,
    Consolidated,
    Context,
    Fact,
    ForgottenMark,
    InboxFactCommand,
    InboxForget,
    InboxFormNow,
    InboxMemoryCommand,
    Message,
    Reflection,
    SessionState,
    Snapshot,
    UsageTotal,
    WindowTexts,
)
from eden_memory.schemas.envelope import rfc3339
from eden_memory.schemas.provenance import SourceMessage
from eden_memory.schemas.scopes import Scope

Row = dict[str, Any]
Items = AsyncGenerator[tuple[str, Row]]
PAGE = 500
WRITTEN: Mapping[type, Callable[[Any], str | None]] = {
    ObjectId: encode_id,
    UUID: encode_id,
    datetime: rfc3339,
    Decimal128: lambda value: format(value.to_decimal(), "f"),
    Binary: lambda _: None,
    bytes: lambda _: None,
}
NOT_SHOWN = {"embedding": 0}
"""Derived from the text, and large."""


@dataclass(frozen=True, slots=True)
class Export:
    """`memory` is our own database, `source` the application's, with the inbox."""

    memory: AsyncDatabase[Row]
    source: AsyncDatabase[Row]
    names: Names

    async def of(self, user: Any) -> Items:
        """Yield (collection, document) pairs; ids typed, times in RFC 3339; raises NotAnId."""
        name = typed(user, "user")
        heard, sessions = await self._sessions(name)
        mine: Row = {"$or": [{"user_id": name}, {"sources.user_id": name}, {"scope_key": {"$in": heard}}]}
        others: Row = {"scope": "user", "user_id": {"$ne": name}}
        about = {"$and": [mine, {"$nor": [others]}]}
        async for fact in self._facts(about, name):
            yield fact
        async for row in self._find(Reflection.COLLECTION, about):
            yield Reflection.COLLECTION, _own_sources(row, name)
        for collection in (Consolidated.COLLECTION, Snapshot.COLLECTION):
            async for row in self._find(collection, {"$or": [{"user_id": name}, {"_id": {"$in": heard}}]}):
                yield collection, _without_audience(row, name)
        for collection in (Context, Message, UsageTotal, Budget):
            async for row in self._find(collection.COLLECTION, {"user_id": name}):
                yield collection.COLLECTION, row
        async for conversation in self._conversations(sessions, name):
            yield conversation
        async for row in self._find(ForgottenMark.COLLECTION, {"kind": "user", "target": name}):
            yield ForgottenMark.COLLECTION, row
        async for row in self._asked(user, name):
            yield InboxFormNow.COLLECTION, row

    async def _sessions(self, user: str) -> tuple[list[str], list[str]]:
        """Return keys of the session memories that the user may see, and all sessions that they took part in."""
        listed = await self._all(Snapshot.COLLECTION, {"audience": user}, {"session_id": 1})
        heard = {row["_id"]: row.get("session_id") for row in listed}
        heard |= await MongoAudiences(self.memory, self.names).heard_by(user)
        messages = self.memory[self.names[Message.COLLECTION]]
        wrote = await messages.distinct("session_id", {"user_id": user})
        named = dict.fromkeys([*heard.values(), *wrote])
        return list(heard), [session for session in named if session is not None]

    async def _facts(self, about: Mapping[str, Any], user: str) -> Items:
        """Yield facts, and after each page of facts how often they were found."""
        ids: list[str] = []
        async for row in self._find(Fact.COLLECTION, about):
            ids.append(row["_id"])
            yield Fact.COLLECTION, _own_sources(row, user)
            if len(ids) == PAGE:
                async for access in self._find(Access.COLLECTION, {"_id": {"$in": ids}}):
                    yield Access.COLLECTION, access
                ids = []
        async for access in self._find(Access.COLLECTION, {"_id": {"$in": ids}}):
            yield Access.COLLECTION, access

    async def _conversations(self, sessions: Sequence[str], user: str) -> Items:
        """Yield sessions and their windows, with what this user wrote, or all if nobody else wrote."""
        for start in range(0, len(sessions), PAGE):
            some = {"$in": list(sessions[start : start + PAGE])}
            async for row in self._find(SessionState.COLLECTION, {"_id": some}):
                yield SessionState.COLLECTION, {name: row[name] for name in ("_id", "seq") if name in row}
            async for row in self._find(WindowTexts.COLLECTION, {"session_id": some}):
                if kept := _heard(row["messages"], user):
                    fields = {name: row[name] for name in ("_id", "session_id", "seq")}
                    yield WindowTexts.COLLECTION, {**fields, "messages": kept}

    async def _asked(self, user: Any, name: str) -> AsyncGenerator[Row]:
        """Yield the requests that wait in the inbox."""
        mine = [{"user_id": user}, {"what": "user", "target": user}, {"scope.user_id": name}]
        async for row in self.source[self.names[InboxFormNow.COLLECTION]].find({"$or": mine}):
            yield _plain(row)

    async def _find(self, name: str, query: Mapping[str, Any]) -> AsyncGenerator[Row]:
        fields = NOT_SHOWN if name == Fact.COLLECTION else None
        async for row in self.memory[self.names[name]].find(query, fields, batch_size=PAGE):
            yield _plain(row)

    async def _all(self, name: str, query: Mapping[str, Any], fields: Mapping[str, int]) -> list[Row]:
        return await self.memory[self.names[name]].find(query, fields).to_list()


def _own_sources(row: Row, user: str) -> Row:
    """Leave out sources and statements of others: they name others' messages and sessions."""
    if "sources" not in row or row.get("user_id") == user:
        return row
    own = [source for source in row["sources"] if source.get("user_id") == user]
    ids = {source["message_id"] for source in own}
    sessions = {source["session_id"] for source in own}
    return {
        **row,
        "sources": own,
        "statements": [said for said in row.get("statements", ()) if _is_own(said, user)],
        "message_ids": [name for name in row.get("message_ids", ()) if name in ids],
        "session_ids": [name for name in row.get("session_ids", ()) if name in sessions],
    }


def _is_own(said: Row, user: str) -> bool:
    return all(source.get("user_id") == user for source in said.get("sources", ()))


def _without_audience(row: Row, user: str) -> Row:
    return {**row, "audience": [user]} if row.get("audience") else row


def _heard(messages: Sequence[Row], user: str) -> list[Row]:
    authors = {message.get("user_id") for message in messages} - {None}
    return [message for message in messages if message.get("user_id") == user or authors == {user}]


def _plain(value: Any) -> Any:
    """Convert a document to JSON's types: ids typed, times in RFC 3339, money as text, no vectors."""
    if isinstance(value, dict):
        return {str(name): _plain(item) for name, item in cast("Row", value).items()}
    if isinstance(value, list):
        return [_plain(item) for item in cast("list[Any]", value)]
    written = WRITTEN.get(cast("object", value).__class__)
    return value if written is None else written(value)


TAKEN_BACK = "taken out of shared memory: it belongs to its user"
"""The reason of a retirement by which a person corrects where an item belongs."""


@dataclass(frozen=True, slots=True)
class SharedItem:
    """A fact or reflection of an agent, shard or group that rests on what users said."""

    kind: Literal["fact", "reflection"]
    id: str
    scope: Scope
    content: str
    said_at: datetime
    session_ids: tuple[str, ...]
    users: tuple[str, ...]
    """Whose messages it rests on; typed ids."""
    absorbed: bool = False
    """Whether a blob has taken it in."""
    sources: tuple[SourceMessage, ...] = ()


class SharedItems:
    """Of one namespace; `forgets`: whether memory forgets messages that the application deletes."""

    def __init__(self, database: AsyncDatabase[Row], names: Names, *, forgets: bool) -> None:
        self._database, self._names, self._forgets = database, names, forgets

    async def newest(self, limit: int, agent_id: str | None = None) -> list[SharedItem]:
        """Return what stands of it, of an agent or of all, newest first."""
        return await self._found({}, limit, agent_id)

    async def of(self, ids: Collection[str], agent_id: str | None = None) -> list[SharedItem]:
        """Return those of the items that stand."""
        return await self._found({"_id": {"$in": list(ids)}}, len(ids), agent_id)

    async def _found(self, query: Row, limit: int, agent_id: str | None) -> list[SharedItem]:
        wide = await wide_scopes(self._database[self._names[Snapshot.COLLECTION]])
        scopes = {scope.key: scope for scope in wide if agent_id in (None, scope.agent_id)}
        hidden = MongoHidden(self._database, self._names)
        gone = await hidden.resting_on(await hidden.deleted_just_now(forgets=self._forgets), scopes)
        there: Row = {"_id": {"$nin": list(gone)}} if gone else {}
        found: list[SharedItem] = []
        for kind, collection, standing in (
            ("fact", Fact.COLLECTION, {"active": True}),
            ("reflection", Reflection.COLLECTION, {"retired_at": None}),
        ):
            wanted = {"$and": [of_users(scopes), {**query, **standing}, there]}
            rows = self._database[self._names[collection]].find(wanted, {"embedding": 0, "history": 0})
            found += [_item(kind, row, scopes) async for row in rows.sort("said_at", -1).limit(limit)]
        return sorted(found, key=lambda item: item.said_at, reverse=True)[:limit]


def _item(kind: Any, row: Row, scopes: dict[str, Scope]) -> SharedItem:
    users = dict.fromkeys(source["user_id"] for source in row["sources"] if source.get("user_id"))
    return SharedItem(
        kind,
        row["_id"],
        scopes[row["scope_key"]],
        row["content"],
        row["said_at"],
        tuple(row.get("session_ids", ())),
        tuple(users),
        row.get("absorbed", False),
        tuple(SourceMessage(**source) for source in row["sources"]),
    )


def taken_back(item: SharedItem, by: str | None, *, move: bool) -> list[Row]:
    """Return the inbox documents that retire an item as a correction, and with `move` give it to its only user.

    A reflection that a blob has absorbed is forgotten instead, so that the blob is made anew without it. Moved
    twice, it is given to its user once: the request has the same id each time.
    """
    given = ObjectId(blake2b(f"{item.kind}/{item.id}".encode(), digest_size=12).digest())
    asked = {"by": "person", "reason": TAKEN_BACK, "asked_by": by}
    facts: Row = {"kind": "fact_command", **asked}
    notes: Row = {"kind": "memory_command", **asked}
    requests: list[Any] = []
    if item.kind == "fact":
        requests.append(
            InboxFactCommand(_id=ObjectId(), scope=item.scope, action="retire", fact_id=item.id, **facts)
        )
    elif item.absorbed:
        requests.append(
            InboxForget(_id=ObjectId(), kind="forget", what="reflection", target=item.id, asked_by=by)
        )
    else:
        retire: Row = {"action": "retire_reflection", "reflection_id": item.id}
        requests.append(InboxMemoryCommand(_id=ObjectId(), scope=item.scope, **retire, **notes))
    if move:
        (user,) = item.users
        session = next(source.session_id for source in item.sources if source.user_id == user)
        added: Row = {"text": item.content, "said_at": item.said_at, "sources": item.sources}
        added["session_id"] = decode_id(session)
        own = Scope.of_user(item.scope.agent_id, user)
        requests.append(
            InboxFactCommand(_id=given, scope=own, action="add", **added, **facts)
            if item.kind == "fact"
            else InboxMemoryCommand(_id=given, scope=own, action="add_reflection", **added, **notes)
        )
    return [request.model_dump(exclude_none=True) for request in requests]
