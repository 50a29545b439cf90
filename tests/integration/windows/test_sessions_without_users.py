"""From chat writes through the tailer: where no message names its author, whose memory is formed."""

import json
from typing import Any

import pytest

from eden_memory import metrics
from eden_memory.assembly import tailer as source_tailing
from eden_memory.mongo.client import connect
from eden_memory.processors.pipeline import FORMATION_TRIGGER
from eden_memory.settings import Settings
from eden_memory.source.inbox_store import ask
from tests.integration.system.running_system import PARTITIONS, prepare, stages, until
from tests.integration.windows.harness import changed

pytestmark = pytest.mark.servers


@pytest.mark.parametrize(
    ("groups", "kinds"),
    [
        ({}, {"agent", "session"}),
        ({"users": {"collection": "users"}}, {"session"}),
        ({"users": {"collection": "users"}, "memory": {"without_users": True}}, {"agent", "session"}),
        ({"memory": {"without_users": False}}, {"session"}),
    ],
)
async def test_a_session_without_known_users_forms_memory_of_the_agent_only_if_settings_say_so(
    settings: Settings, groups: dict[str, dict[str, Any]], kinds: set[str]
) -> None:
    settings = changed(settings, kafka={"partitions": PARTITIONS}, **groups)
    await prepare(settings)
    assert settings.mongodb.uri is not None
    counted = metrics.TAILER_AUTHORLESS._value.get()  # pyright: ignore
    async with (
        connect(settings.mongodb.uri.get_secret_value()) as client,
        stages(settings, {FORMATION_TRIGGER}),
    ):
        database = client[settings.mongodb.database]
        for session, author in (("nobody", None), ("ada", "ada")):
            message = {"session_id": session, "user_id": author, "role": "user", "content": "Hello there"}
            await database["messages"].insert_one(message)
            inbox = database[source_tailing.inbox_name(settings)]
            await ask(inbox, {"kind": "form_now", "session_id": session, "asked_by": "test"})

        async def requested() -> bool:
            return await database["memory_windows"].count_documents({"requested": {"$ne": None}}) == 2

        await until(requested, "both windows are asked for")
        rows = await database["memory_windows"].find().to_list()
    scopes = {row["session_id"]: json.loads(row["requested"])["scopes"] for row in rows}
    assert {one["kind"] for one in scopes["s.nobody"]} == kinds
    assert {one["kind"] for one in scopes["s.ada"]} == {"agent", "user", "session"}
    assert metrics.TAILER_AUTHORLESS._value.get() == counted + 1  # pyright: ignore
