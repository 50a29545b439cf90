"""From chat writes through the tailer: messages that nobody waits for are stored with those that come after them."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Collection
from typing import Any

import pytest
from pymongo.asynchronous.database import AsyncDatabase

from eden_memory import metrics
from eden_memory.assembly import handlers
from eden_memory.mongo.client import connect
from eden_memory.processors.pipeline import FORMATION_TRIGGER
from eden_memory.settings import Settings
from tests.counted import Grown
from tests.integration.system.running_system import PARTITIONS, prepare, stages, until
from tests.integration.windows.harness import changed

pytestmark = pytest.mark.servers
Database = AsyncDatabase[dict[str, Any]]


@pytest.fixture
def without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Messages wait until something else happens."""
    monkeypatch.setattr(handlers, "GATHER_SECONDS", 3_600.0)


@pytest.fixture
async def prepared(settings: Settings) -> Settings:
    made = changed(
        settings,
        kafka={"partitions": PARTITIONS},
        tailer={"watermark_seconds": 3_600.0},
        windows={"messages": 4},
    )
    await prepare(made)
    return made


@pytest.fixture
async def database(prepared: Settings) -> AsyncGenerator[Database]:
    assert prepared.mongodb.uri is not None
    async with connect(prepared.mongodb.uri.get_secret_value()) as client:
        yield client[prepared.mongodb.database]


async def say(database: Database, *names: str) -> None:
    """Write messages, each by itself."""
    for name in names:
        message = {"_id": name, "session_id": "one", "user_id": "ada", "role": "user", "content": "Hello"}
        await database["messages"].insert_one(message)


async def stored(database: Database, names: Collection[str]) -> bool:
    rows = await database["memory_messages"].find({}, {"_id": 1}).to_list()
    return {row["_id"] for row in rows} == {f"s.{name}" for name in names}


def watermarks_are_behind() -> Callable[[], Awaitable[bool]]:
    """The first watermark of each partition is finished; the next ones come in an hour."""
    grown = Grown(metrics.STAGE_RECORDS)

    async def found() -> bool:
        return sum(n for labels, n in grown().items() if FORMATION_TRIGGER in labels) >= PARTITIONS

    return found


@pytest.mark.usefixtures("without_end")
async def test_the_message_that_fills_a_window_takes_those_before_it_along(
    prepared: Settings, database: Database
) -> None:
    behind = watermarks_are_behind()
    async with stages(prepared, {FORMATION_TRIGGER}):
        await until(behind, "no watermark comes between the messages")
        await say(database, "a")
        await until(lambda: stored(database, "a"), "the first message of a session waits for nothing")
        begun = await database["memory_partitions"].find_one({"place": {"$gt": 0}})
        await say(database, "b", "c", "d")
        await until(lambda: stored(database, "abcd"), "the window is full")
    (window,) = await database["memory_windows"].find().to_list()
    assert [member["message_id"] for member in window["messages"]] == ["s.a", "s.b", "s.c", "s.d"]
    assert begun is not None
    ended = await database["memory_partitions"].find_one({"_id": begun["_id"]})
    assert ended is not None
    assert ended["place"] - begun["place"] == 3 + 1, "three messages, in one write"


@pytest.mark.usefixtures("without_end")
async def test_messages_that_wait_when_a_process_ends_are_the_next_ones(
    prepared: Settings, database: Database
) -> None:
    async with stages(prepared, {FORMATION_TRIGGER}):
        await say(database, "a")
        await until(lambda: stored(database, "a"), "the first message is stored")
        await say(database, "b", "c")
    async with stages(prepared, {FORMATION_TRIGGER}):
        await until(lambda: stored(database, "abc"), "the others are stored")


async def test_messages_wait_for_a_while_only(prepared: Settings, database: Database) -> None:
    async with stages(prepared, {FORMATION_TRIGGER}):
        await say(database, "a")
        await until(lambda: stored(database, "a"), "the first message is stored")
        await say(database, "b", "c")
        await until(lambda: stored(database, "abc"), "the others are stored")
