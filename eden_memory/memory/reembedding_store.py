"""Re-embedding: find facts whose vectors another model made, and write commands for new ones."""

from collections.abc import AsyncGenerator
from typing import Any

from bson import ObjectId
from pymongo.asynchronous.collection import AsyncCollection
from pymongo.asynchronous.database import AsyncDatabase

from eden_memory.errors import EdenError
from eden_memory.mongo.documents import row_of
from eden_memory.names import Names
from eden_memory.schemas.documents import InboxFactCommand
from eden_memory.schemas.scopes import Scope

Row = dict[str, Any]
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
