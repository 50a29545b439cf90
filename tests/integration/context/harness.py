"""An application's database with sessions, users, groups and agents, and what the writer would have stored beside."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

from pymongo import AsyncMongoClient

from eden_memory.api.service import MemoryService
from eden_memory.mongo.client import connect
from eden_memory.mongo.documents import row_of
from eden_memory.mongo.ids import encode_id
from eden_memory.schemas.documents import BufferedReflection, RecentFact
from eden_memory.schemas.scopes import Scope
from eden_memory.settings import Settings
from tests.unit.context.parts import stored_snapshot


def now() -> datetime:
    return datetime.now(UTC)


class Kit:
    """One namespace, and what writes to it."""

    def __init__(self, settings: Settings, client: AsyncMongoClient[dict[str, Any]]) -> None:
        self.settings, self.client = settings, client
        self.database = client[settings.mongodb.database]

    async def put(self, scope: Scope, **fields: Any) -> None:
        """A scope's snapshot, as the writer stores it: one more revision each time."""
        known = await self.database["memory_snapshots"].find_one({"_id": scope.key}, {"revision": 1})
        rest: dict[str, Any] = {"revision": (known or {"revision": 0})["revision"] + 1, "changed_at": now()}
        snapshot = stored_snapshot(
            scope,
            **(rest | fields),
        )
        await self.database["memory_snapshots"].replace_one({"_id": scope.key}, row_of(snapshot), upsert=True)

    async def session(self, session: Any, users: Sequence[Any], agent: Any = "a", **fields: Any) -> None:
        """A session's document; its users are in the group that it names."""
        if (group := fields.get("group_id")) is not None:
            members = {"$addToSet": {"members": {"$each": list(users)}}}
            await self.database["groups"].update_one({"_id": group}, members, upsert=True)
        document = {"agent_id": agent, "users": list(users), **fields}
        await self.database["sessions"].replace_one({"_id": session}, document, upsert=True)

    async def authors(self, session: Any, *users: Any) -> None:
        """What formation-trigger keeps of a session: whose messages it has seen."""
        named = [encode_id(user) for user in users]
        await self.database["memory_sessions"].update_one(
            {"_id": encode_id(session)}, {"$set": {"users": named}, "$inc": {"rev": 1}}, upsert=True
        )

    @asynccontextmanager
    async def service(self, agent: Any = "a", **options: Any) -> AsyncGenerator[MemoryService]:
        async with MemoryService(
            agent, client=self.client, settings=options.pop("settings", self.settings), **options
        ) as service:
            yield service


@asynccontextmanager
async def kit_for(settings: Settings) -> AsyncGenerator[Kit]:
    assert settings.mongodb.uri is not None
    async with connect(settings.mongodb.uri.get_secret_value()) as client:
        yield Kit(settings, client)


def mapped(settings: Settings) -> Settings:
    """Sessions, agents, users and groups are mapped."""
    groups = {name: {"collection": name} for name in ("sessions", "agents", "users", "groups")}
    return settings.model_copy(
        update={name: getattr(settings, name).model_copy(update=fields) for name, fields in groups.items()}
    )


def reflection(content: str, ago: float = 1.0) -> BufferedReflection:
    at = now() - timedelta(minutes=ago)
    name = f"r-{abs(hash(content))}"
    return BufferedReflection(reflection_id=name, content=content, formed_at=at, said_at=at)


def fact(content: str, ago: float = 1.0) -> RecentFact:
    at = now() - timedelta(minutes=ago)
    name = f"f-{abs(hash(content))}"
    return RecentFact(fact_id=name, version=1, content=content, formed_at=at, valid_from=at)
