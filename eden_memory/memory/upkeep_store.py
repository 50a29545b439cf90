"""Commands that upkeep writes: facts to retire, and facts whose vectors another model made.

One process among all looks for them in rounds. Commands go to the facts' scope, in order with what is proposed
there; each expects the version that was found, so a fact that is stated again meanwhile stays.
"""

from collections.abc import AsyncGenerator, Mapping
from datetime import datetime
from typing import Any, Literal

from bson import ObjectId
from pymongo import ReadPreference
from pymongo.asynchronous.collection import AsyncCollection
from pymongo.asynchronous.database import AsyncDatabase
from pymongo.read_concern import ReadConcern

from eden_memory.directory.stream_store import streams_in
from eden_memory.errors import EdenError
from eden_memory.memory.memory_index_store import BEGINNING
from eden_memory.mongo.client import server_time
from eden_memory.mongo.documents import row_of
from eden_memory.mongo.leases import MongoLease
from eden_memory.names import Names, traceparent
from eden_memory.schemas.documents import InboxFactCommand, Stream
from eden_memory.schemas.events import FactCommanded
from eden_memory.schemas.scopes import Scope
from eden_memory.stages.codec import TopicOf, record_of
from eden_memory.stages.leased import Leased
from eden_memory.stages.outcome import Publishing, StoredRecord

Row = dict[str, Any]
MOST = 10_000
"""Facts of one look that have expired, and of one scope that are beyond a limit; a later look finds the others."""
MOST_REMEMBERED = 100_000
FIELDS = dict.fromkeys(("scope_key", "agent_id", "version", "formed_at", "valid_from", "expires_at"), 1)
NEWEST_FIRST = [("valid_from", -1), ("_id", 1)]
REASONS: Mapping[str, str] = {"expiry": "expired", "limit": "beyond the limit of its stream"}


class MongoRetirements:
    """Finds the facts of one namespace that are to be retired, by MongoDB's clock: retiring cannot be undone."""

    def __init__(self, database: AsyncDatabase[Row], names: Names) -> None:
        self._client = database.client
        self._facts = _majority(database, names["facts"])
        self._snapshots = _majority(database, names["snapshots"])
        self._streams = database[names["streams"]]
        self._within: dict[str, tuple[int, int]] = {}
        """Scopes in which no conversation exceeded its limit, each with (revision, limit)."""

    async def due(self) -> AsyncGenerator[FactCommanded]:
        """Yield a command for each fact that is due; its id depends on the fact's version alone."""
        async for command in self._expired():
            yield command
        wanted: Row = {"$or": [{name: {"$type": "number"}} for name in ("fifo_limit", "max_entries")]}
        async for row in self._streams.find({**wanted, "active": {"$ne": False}}):
            for stream in streams_in([row]).values():
                async for command in self._beyond_limits(stream):
                    yield command

    async def _expired(self) -> AsyncGenerator[FactCommanded]:
        now = await server_time(self._client)
        query: Row = {"active": True, "expires_at": {"$gt": BEGINNING, "$lte": now}}
        async for row in self._facts.find(query, FIELDS).sort("expires_at").limit(MOST):
            yield _command("expiry", row, row["expires_at"])

    async def _beyond_limits(self, stream: Stream) -> AsyncGenerator[FactCommanded]:
        least = min(limit for limit in (stream.fifo_limit, stream.max_entries) if limit is not None)
        query = {**_scopes_of(stream), "active_facts": {"$gt": least}}
        async for scope in self._snapshots.find(query, {"revision": 1}):
            key, revision = scope["_id"], int(scope["revision"])
            if stream.fifo_limit is not None:
                async for command in self._oldest({"scope_key": key}, stream.fifo_limit):
                    yield command
            if stream.max_entries is not None:
                async for command in self._of_conversations(key, revision, stream.max_entries):
                    yield command

    async def _of_conversations(self, key: str, revision: int, most: int) -> AsyncGenerator[FactCommanded]:
        """Yield commands for conversations beyond their limit; a fact counts if all its messages are from one."""
        if self._within.get(key) == (revision, most):
            return
        within = True
        pipeline: list[Row] = [
            {"$match": {"scope_key": key, "active": True, "session_ids": {"$size": 1}}},
            {"$group": {"_id": "$session_ids", "facts": {"$sum": 1}}},
            {"$match": {"facts": {"$gt": most}}},
        ]
        async for found in await self._facts.aggregate(pipeline):
            within = False
            async for command in self._oldest({"scope_key": key, "session_ids": found["_id"]}, most):
                yield command
        if len(self._within) >= MOST_REMEMBERED:
            self._within.clear()
        if within:
            self._within[key] = revision, most

    async def _oldest(self, of: Row, most: int) -> AsyncGenerator[FactCommanded]:
        """Yield commands for all but the `most` facts said last, dated by when the newest was said."""
        active = {**of, "active": True}
        newest = await self._facts.find_one(active, {"valid_from": 1}, sort=NEWEST_FIRST)
        if newest is None:
            return
        rows = self._facts.find(active, FIELDS).sort(NEWEST_FIRST).skip(most).limit(MOST)
        async for row in rows:
            yield _command("limit", row, newest["valid_from"])


def _scopes_of(stream: Stream) -> Row:
    if stream.shard is not None:
        return {"_id": Scope.of_shard(stream.agent_id, stream.shard).key}
    return {"agent_id": stream.agent_id, "scope": stream.scope}


def _command(by: Literal["expiry", "limit"], row: Row, at: datetime) -> FactCommanded:
    """Return the command that retires a version: asked after the fact was formed, true after that version was."""
    said_at = max(at, row["valid_from"])
    return FactCommanded(
        command_id=f"{by}/{row['_id']}/{row['version']}",
        scope=Scope.of_key(row["scope_key"], row["agent_id"]),
        action="retire",
        fact_id=row["_id"],
        expected_version=row["version"],
        by=by,
        asked_by=None,
        reason=REASONS[by],
        asked_at=max(said_at, row["formed_at"]),
        said_at=said_at,
    )


def _majority(database: AsyncDatabase[Row], name: str) -> AsyncCollection[Row]:
    return database.get_collection(
        name, read_preference=ReadPreference.PRIMARY, read_concern=ReadConcern("majority")
    )


ROUND_SECONDS = 10.0
PAUSE_SECONDS = 10.0
TOGETHER = 200


class RetirementRounds(Leased):
    """Ask for the retirement of due facts, round after round; `source` is the stage that asks."""

    def __init__(
        self,
        lease: MongoLease,
        retirements: MongoRetirements,
        publisher: Publishing,
        topic_of: TopicOf,
        source: str,
    ) -> None:
        super().__init__("retiring", lease, self.round, ROUND_SECONDS, PAUSE_SECONDS)
        self._retirements, self._publisher = retirements, publisher
        self._topic_of, self._source = topic_of, source
        self._asked: set[str] = set()
        """Commands on their way: what is found again because it is not carried out yet is not asked for again."""

    async def round(self) -> None:
        """Publish the new commands; those published again after a restart are decided once."""
        found, waiting = set[str](), list[StoredRecord]()
        async for command in self._retirements.due():
            found.add(command.command_id)
            if command.command_id in self._asked:
                continue
            waiting.append(self._record(command))
            if len(waiting) == TOGETHER:
                await self._publisher.publish(waiting)
                waiting = []
        if waiting:
            await self._publisher.publish(waiting)
        self._asked = found

    def _record(self, command: FactCommanded) -> StoredRecord:
        return record_of(
            command,
            self._topic_of,
            identity=command.command_id,
            source=self._source,
            time=command.asked_at,
            traceparent=traceparent(command.scope.key, command.command_id),
        )


AT_ONCE = 500
ASKED_BY = "eden reembed"
_ALLOWED = "embedding_model"


async def embedding_models_in(database: AsyncDatabase[Row], names: Names) -> set[str]:
    """Return the models that made the vectors of the active facts."""
    found = await database[names["facts"]].distinct("embedding_model", {"active": True})
    return {model for model in found if model is not None}


async def refuse_another_model(database: AsyncDatabase[Row], names: Names, model: str) -> None:
    """Raise EdenError if stored facts have vectors of another model, and nobody has asked for `model` instead."""
    others = sorted(await embedding_models_in(database, names) - {model})
    if not others:
        return
    allowed = await database[names["installation"]].find_one({"_id": _ALLOWED})
    if allowed is None or allowed["model"] != model:
        raise EdenError(
            f"stored facts have vectors of {', '.join(others)}, and {model} is configured: they cannot be compared",
            f"Configure {others[0]} again (EDEN_EMBEDDER, EDEN_MODELS_EMBEDDINGS), or run `eden reembed`: it gives "
            "every fact a new vector, in the background, once `eden run` is started.",
        )


class Reembedding:
    """`database` and `names` are of the memory, `inbox` the application's `memory_inbox`."""

    def __init__(
        self, database: AsyncDatabase[Row], names: Names, inbox: AsyncCollection[Row], model: str
    ) -> None:
        self._facts = database[names["facts"]]
        self._installation = database[names["installation"]]
        self._inbox, self._model = inbox, model

    async def left(self) -> int:
        """Return how many active facts have no vector of the model yet."""
        return await self._facts.count_documents(self._others())

    async def ask(self) -> AsyncGenerator[int]:
        """Write a command for each of them into the inbox; yield how many are written so far.

        Those whose command still waits there are passed over, and a command on a fact that has its vector by then
        changes nothing: it may be stopped and begun again at any time.
        """
        await self._installation.update_one({"_id": _ALLOWED}, {"$set": {"model": self._model}}, upsert=True)
        waiting = {row["fact_id"] async for row in self._inbox.find(self._asked(), {"fact_id": 1})}
        rows = self._facts.find(
            self._others(), {"scope": 1, "agent_id": 1, "user_id": 1, "group_id": 1}, batch_size=AT_ONCE
        ).sort("_id")
        written, commands = 0, list[Row]()
        async for row in rows:
            if row["_id"] not in waiting:
                commands.append(self._command(row))
            if len(commands) == AT_ONCE:
                written, commands = written + await self._write(commands), []
                yield written
        yield written + await self._write(commands)

    async def _write(self, commands: list[Row]) -> int:
        if commands:
            await self._inbox.insert_many(commands)
        return len(commands)

    def _others(self) -> Row:
        return {"active": True, "embedding_model": {"$ne": self._model}}

    def _asked(self) -> Row:
        return {"kind": "fact_command", "action": "reembed", "embedding_model": self._model}

    def _command(self, row: Row) -> Row:
        command = InboxFactCommand.model_validate(
            {
                "_id": ObjectId(),
                "kind": "fact_command",
                "scope": _scope(row),
                "action": "reembed",
                "fact_id": row["_id"],
                "embedding_model": self._model,
                "by": "model_change",
                "asked_by": ASKED_BY,
            }
        )
        return row_of(command)


def _scope(row: Row) -> Scope:
    match row["scope"]:
        case "user":
            return Scope.of_user(row["agent_id"], row["user_id"])
        case "group":
            return Scope.of_group(row["agent_id"], row["group_id"])
        case _:
            return Scope.of_agent(row["agent_id"])
