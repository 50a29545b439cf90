"""The second system's collections `memory2_facts`, `memory2_reflections` and `memory2_consolidated`.

A fact: content, scope (user, agent), agent_id, user_id, session_id, source_message_ids, embedding, embedding_model,
formed_at, version, previous_content, updated_at, access_count, last_accessed_at. A reflection, also of a session: the
same ids, formed_at, absorbed. A blob: the same ids, consolidated_content, version (1 where it has none),
last_consolidated_at.
"""

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from datetime import datetime
from functools import partial
from math import isfinite
from typing import Any

from pymongo.asynchronous.database import AsyncDatabase

from eden_memory.directory.participants import Directory, SessionFacts
from eden_memory.files.earlier_records import EarlierMemory, blob_is_readable, memory_id
from eden_memory.files.earlier_v1 import Row, earlier_database, listed
from eden_memory.files.import_items import BEGINNING, Entry, ImportedAs, Unimportable, imported_or_skipped
from eden_memory.mongo.ids import typed
from eden_memory.schemas.fields import pack_vector
from eden_memory.schemas.provenance import Embedding
from eden_memory.schemas.scopes import Scope

FACTS, REFLECTIONS, BLOBS = "memory2_facts", "memory2_reflections", "memory2_consolidated"

MODEL = "text-embedding-3-small"
"""The model of a vector that names none."""

TOGETHER = 500


async def v2(path: str, to: ImportedAs, directory: Directory) -> AsyncIterator[EarlierMemory | Entry]:
    """Yield the memories of a database: reflections, then blobs, then facts."""
    async with earlier_database(path) as database:
        async for entry in V2Memories(database, to, directory).read():
            yield entry


async def v2_accesses(path: str, to: ImportedAs) -> AsyncIterator[Mapping[str, tuple[int, datetime]]]:
    """Yield how often facts were found, and when last, by their ids here."""
    async with earlier_database(path) as database:
        async for rows in _pages(database, FACTS, {"access_count": {"$gt": 0}}, {"embedding": 0}):
            found = [imported_or_skipped("", partial(_access, row, to)) for row in rows]
            yield dict(access for access in found if isinstance(access, tuple))


class V2Memories:
    """Reads one database."""

    def __init__(self, database: AsyncDatabase[Row], to: ImportedAs, directory: Directory) -> None:
        self._database, self._to, self._directory = database, to, directory
        self._blobs: dict[tuple[str, ...], bool] = {}
        """Whose documents have a consolidated text, and whether it is taken: the first of its scope is."""

    async def read(self) -> AsyncIterator[EarlierMemory | Entry]:
        """Yield everything."""
        scopes = set[str]()
        async for rows in _pages(self._database, BLOBS, {"consolidated_content": {"$gt": ""}}):
            await self._find_blobs(rows, scopes)
        for name, make in ((REFLECTIONS, self._reflection), (BLOBS, self._blob), (FACTS, self._fact)):
            query: Row = {"consolidated_content": {"$nin": [None, ""]}} if name == BLOBS else {}
            async for rows in _pages(self._database, name, query):
                users = await self._users(rows)
                for row in rows:
                    where = f"{name} {row['_id']}"
                    yield imported_or_skipped(where, partial(make, row, where, users))

    async def _find_blobs(self, rows: Sequence[Row], scopes: set[str]) -> None:
        users = await self._users(rows)
        for row in rows:
            scope = imported_or_skipped("", partial(self._scope, row, users))
            if isinstance(scope, Scope) and blob_is_readable(self._to, *_text(row)):
                self._blobs.setdefault(_place(row), scope.key not in scopes)
                scopes.add(scope.key)

    def _reflection(self, row: Row, where: str, users: Mapping[str, frozenset[str]]) -> EarlierMemory:
        absorbed = row.get("absorbed") is True
        if absorbed and _place(row) not in self._blobs:
            raise Unimportable("a consolidated text that is gone, or cannot be read, has absorbed it")
        scope, at = self._scope(row, users), row.get("formed_at") or row["_id"]
        return EarlierMemory(
            where,
            "reflection",
            row["_id"],
            row.get("content"),
            scope,
            at,
            session=row.get("session_id"),
            messages=listed(row, "source_message_ids"),
            absorbed=absorbed and self._blobs[_place(row)],
        )

    def _blob(self, row: Row, where: str, users: Mapping[str, frozenset[str]]) -> EarlierMemory:
        text, at, version = _text(row)
        return EarlierMemory(where, "blob", row["_id"], text, self._scope(row, users), at, version=version)

    def _fact(self, row: Row, where: str, users: Mapping[str, frozenset[str]]) -> EarlierMemory:
        if row.get("scope") == "session":
            raise Unimportable("a session holds no facts", bad=True)
        return EarlierMemory(
            where,
            "fact",
            row["_id"],
            row.get("content"),
            self._scope(row, users),
            row.get("formed_at") or row["_id"],
            changed_at=row.get("updated_at"),
            session=row.get("session_id"),
            messages=listed(row, "source_message_ids"),
            version=row.get("version", 1),
            previous=row.get("previous_content"),
            embedding=_embedding(row),
        )

    def _scope(self, row: Row, users: Mapping[str, frozenset[str]]) -> Scope:
        if row.get("scope") != "session":
            return _scope(row, self._to)
        session = _session(row)
        if not (audience := users.get(session)):
            raise Unimportable("nobody is known to have taken part in its session")
        agent = self._to.mapping.agent_of(row.get("agent_id"))
        return Scope.of_session(agent, session, tuple(sorted(audience)))

    async def _users(self, rows: Iterable[Row]) -> dict[str, frozenset[str]]:
        """Return who took part in the sessions of these session memories: as the application says, else as the
        memories of users say that were formed there."""
        sessions: dict[str, Any] = {}
        for row in rows:
            if row.get("scope") == "session":
                imported_or_skipped("", lambda row=row: sessions.setdefault(_session(row), row["session_id"]))
        known = await self._directory.look_up(sessions)
        found = {
            name: frozenset(facts.users)
            for name, facts in known.items()
            if isinstance(facts, SessionFacts) and facts.users
        }
        if left := {name: session for name, session in sessions.items() if name not in found}:
            query: Row = {"session_id": {"$in": list(left.values())}, "user_id": {"$ne": None}}
            for collection in (FACTS, REFLECTIONS):
                async for row in self._database[collection].find(query, {"session_id": 1, "user_id": 1}):
                    user = imported_or_skipped("", lambda row=row: self._to.mapping.user_of(row["user_id"]))
                    if isinstance(user, str):
                        found[_session(row)] = found.get(_session(row), frozenset()) | {user}
        return found


async def _pages(
    database: AsyncDatabase[Row], name: str, query: Row, fields: Mapping[str, int] | None = None
) -> AsyncIterator[list[Row]]:
    """Yield the documents of a collection in lists, in the order of their ids."""
    page: list[Row] = []
    async for row in database[name].find(query, fields, sort=[("_id", 1)], batch_size=TOGETHER):
        page.append(row)
        if len(page) == TOGETHER:
            yield page
            page = []
    if page:
        yield page


def _text(row: Row) -> tuple[Any, Any, Any]:
    """Return text, time and version of a blob."""
    at = row.get("last_consolidated_at") or row["_id"]
    return row.get("consolidated_content"), at, row.get("version", 1)


def _place(row: Row) -> tuple[str, ...]:
    """Return whose a document is, as text: of a user's and of an agent's the session does not count."""
    names = {"agent": ("agent_id",), "user": ("agent_id", "user_id")}.get(
        str(row.get("scope")), ("session_id",)
    )
    return (str(row.get("scope")), *(str(row.get(name)) for name in names))


def _scope(row: Row, to: ImportedAs) -> Scope:
    agent = to.mapping.agent_of(row.get("agent_id"))
    match row.get("scope"):
        case "agent":
            return Scope.of_agent(agent)
        case "user" if row.get("user_id") is not None:
            return Scope.of_user(agent, to.mapping.user_of(row["user_id"]))
        case _:
            raise Unimportable("its scope is not one of agent, user and session, or names nobody", bad=True)


def _session(row: Row) -> str:
    if row.get("session_id") is None:
        raise Unimportable("it names no session", bad=True)
    return typed(row["session_id"], "session")


def _embedding(row: Row) -> Embedding | None:
    """Return the vector; None where it is none: the fact is then embedded here."""
    numbers: Any = row.get("embedding")
    try:
        vector = [float(number) for number in numbers]
        usable = any(vector) and all(map(isfinite, vector))
        model = str(row.get("embedding_model") or MODEL)
        return Embedding(model=model, vector=pack_vector(vector)) if usable else None
    except (TypeError, ValueError, OverflowError):
        return None


def _access(row: Row, to: ImportedAs) -> tuple[str, tuple[int, datetime]]:
    at = to.moment(row.get("last_accessed_at")) or BEGINNING
    return memory_id(to, "fact", row["_id"], _scope(row, to)), (int(row["access_count"]), at)
