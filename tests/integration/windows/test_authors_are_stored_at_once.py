"""From chat writes through the tailer: who writes in a session stands in its document, before any window closes."""

from collections.abc import Sequence

import pytest

from eden_memory.mongo.client import connect
from eden_memory.processors.pipeline import FORMATION_TRIGGER
from eden_memory.settings import Settings
from tests.integration.system.running_system import PARTITIONS, prepare, stages, until
from tests.integration.windows.harness import changed

pytestmark = pytest.mark.servers


async def test_each_new_author_is_stored_with_the_first_message(settings: Settings) -> None:
    settings = changed(settings, kafka={"partitions": PARTITIONS}, tailer={"watermark_seconds": 60.0})
    await prepare(settings)
    assert settings.mongodb.uri is not None
    async with (
        connect(settings.mongodb.uri.get_secret_value()) as client,
        stages(settings, {FORMATION_TRIGGER}),
    ):
        database = client[settings.mongodb.database]

        async def are(*users: str) -> bool:
            row = await database["memory_sessions"].find_one({"_id": "s.one"})
            return row is not None and row["users"] == list(users)

        async def says(author: str | None, known: Sequence[str]) -> None:
            message = {"session_id": "one", "user_id": author, "role": "user", "content": "Hello there"}
            await database["messages"].insert_one(message)
            await until(lambda: are(*known), f"{known} are known")

        await says("ada", ["s.ada"])
        await says(None, ["s.ada"])
        await says("bob", ["s.ada", "s.bob"])
        assert await database["memory_windows"].count_documents({}) == 0
