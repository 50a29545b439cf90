"""Messages that the application marks as deleted, and keeps: memory forgets them as if their documents were gone."""

from typing import Any

import pytest

from eden_memory.mongo.ids import encode_id
from eden_memory.settings import Settings
from tests.integration.system.running_system import fast, system, until
from tests.model_server.serving import Serving

pytestmark = pytest.mark.servers
MARKS = ("deletedAt", "meta.isDeleted", "t=rm", "content=[deleted]", "content=")
SETS: tuple[dict[str, Any], ...] = (
    {"deletedAt": "2026-11-02T10:00:00Z"},
    {"meta.isDeleted": True},
    {"t": "rm"},
    {"content": "[deleted]"},
    {"content": ""},
)


async def test_a_message_is_forgotten_when_it_is_marked_in_any_of_the_ways_and_comes_back_when_it_is_restored(
    settings: Settings, shared_models: Serving
) -> None:
    marked = fast(settings, shared_models, messages={"deleted": MARKS})
    async with system(marked, shared_models) as running:
        told, other = await running.session("una"), await running.session("una")
        texts = [f"fact user: Una owns boat {number}." for number in range(len(SETS) + 1)]
        names = await running.told(told, "una", *texts)
        assert len(await running.facts("una")) == len(texts)
        for name, change in zip(names, SETS, strict=False):
            await running.source["messages"].update_one({"_id": name}, {"$set": change})
        kept = [f"Una owns boat {len(SETS)}."]
        await until(lambda: _are(running.facts("una"), kept), "only what is not marked is remembered")
        await running.shows(other, "una", kept[0], without=["boat 0", "boat 1"])

        (waiting,) = await running.write(told, "una", "The mast is broken.")
        await running.shows(other, "una", "The mast is broken.")
        await running.source["messages"].update_one({"_id": waiting}, {"$set": {"meta": {"isDeleted": True}}})
        await running.shows(other, "una", without=["The mast is broken."])
        await running.source["messages"].insert_one(
            {"_id": "never", "session_id": told, "role": "user", "user_id": "una", "t": "rm", "content": "x"}
        )

        await running.source["messages"].update_one({"_id": names[0]}, {"$unset": {"deletedAt": 1}})
        await running.form(told)
        await until(
            lambda: _are(running.facts("una"), ["Una owns boat 0.", *kept]),
            "what is restored is formed again",
        )
        assert await running.memory("messages").find_one({"_id": encode_id("never")}) is None


async def _are(found: Any, wanted: list[str]) -> bool:
    return await found == wanted
