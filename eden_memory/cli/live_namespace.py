"""Find the namespace for commands that open a database: the live one, or the one that is named."""

import asyncio
from collections.abc import Awaitable, Iterable
from typing import Any, TypeVar

from pymongo.asynchronous.database import AsyncDatabase
from pymongo.errors import PyMongoError

from eden_memory.directory.id_reader_store import IdKind, IdReader
from eden_memory.errors import EdenError
from eden_memory.local.servers import endpoints, mongodb_endpoint
from eden_memory.mongo.client import connect
from eden_memory.replay.namespaces.namespace_store import live_settings
from eden_memory.settings import Settings

Database = AsyncDatabase[dict[str, Any]]


async def live_now(settings: Settings, *, restored_too: bool = True) -> Settings:
    """Return the settings of the live namespace, over a connection of its own."""
    async with connect(endpoints(settings).mongodb) as client:
        return await live_settings(settings, client[settings.mongodb.database], restored_too=restored_too)


async def live_if_there(settings: Settings) -> Settings:
    """Return the live namespace's settings; the original's if MongoDB does not answer at once."""
    return await soon(live_now(settings)) or settings


def standing(settings: Settings) -> list[str]:
    """Return a line that names the live namespace; TimeoutError or MongoDB's error if there is no answer at once."""
    placement = asyncio.run(asyncio.wait_for(live_now(settings), ANSWER_SECONDS)).placement
    of = "" if placement.pipeline == placement.memory else f", formed by the pipeline of {placement.pipeline}"
    return [f"live namespace: {placement.memory}{of}"]


def typed_ids(given: Iterable[tuple[IdKind, str]]) -> list[str]:
    """Return ids that a person gives, typed, over one connection (IdReader.read); none opens none."""
    pairs = list(given)

    async def read(settings: Settings) -> list[str]:
        async with connect(mongodb_endpoint(settings)) as client:
            ids = IdReader(client[settings.source_database], settings)
            return [await ids.typed(kind, text) for kind, text in pairs]

    return asyncio.run(read(Settings())) if pairs else []


def agent_and_user(agent: str | None, user: str | None) -> tuple[str | None, str | None]:
    """Return the ids of an agent and a user that a person gives, typed; None stays None."""
    named: dict[IdKind, str | None] = {"agent": agent, "user": user}
    given: dict[IdKind, str] = {kind: text for kind, text in named.items() if text is not None}
    found = dict(zip(given, typed_ids(given.items()), strict=True))
    return found.get("agent"), found.get("user")


T = TypeVar("T")
ANSWER_SECONDS = 3.0


async def soon(work: Awaitable[T], seconds: float = ANSWER_SECONDS) -> T | None:
    """Await the work with a timeout; None if no server answers in time or access is denied."""
    try:
        async with asyncio.timeout(seconds):
            return await work
    except (EdenError, PyMongoError, TimeoutError):
        return None
