"""The examples of consumers on what the real pipeline has written: their view is MongoDB's, in whatever order."""

import json
import random
from collections import defaultdict
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer

from eden_memory.settings import Settings
from tests.integration.replay.reform_kit import quiet
from tests.integration.subscribing.consumer_programs import in_go, needs_go, plain
from tests.integration.subscribing.published import MEMORY
from tests.integration.system.conftest import shared_settings as shared_settings  # noqa: PLC0414
from tests.integration.system.obedient_model import obey
from tests.integration.system.running_system import (
    AGENT,
    System,
    fast,
    prepare,
    stages,
    system,
    until,
)
from tests.model_server.serving import serving

pytestmark = [pytest.mark.servers, pytest.mark.timeout(400)]
Row = dict[str, Any]


@pytest.fixture(scope="module")
async def lived(shared_settings: Settings) -> AsyncGenerator[System]:
    """Added, changed, contradicted, retired, forgotten; then everything stops."""
    async with serving(obey) as models:
        settings = fast(shared_settings, models)
        await prepare(settings)
        async with system(settings, models, run=False) as found:
            async with stages(settings):
                await _live(found)
            yield found


async def _live(here: System) -> None:
    first = await here.session("ana")
    await here.told(first, "ana", "fact user: same-town Lyon is her town.", "fact user: same-pet is a cat.")
    for number in range(4):
        await here.told(first, "ana", f"note user: Likes answer {number}.")
    await until(lambda: _some(here.memory("consolidated"), {"scope": "user"}), "a blob")
    await here.told(first, "ana", "note session: They talk about towns.")
    forgotten = await here.told(first, "ana", "fact user: same-secret is 17.", "note user: Speaks low.")
    await here.told(
        first, "ana", "fact user: same-town Porto instead.", "fact user: same-pet is called Mo, moreover."
    )
    other = await here.session("bob")
    await here.told(other, "bob", "fact user: same-boat is red.", "fact agent: The company has a crane.")
    await quiet(here)
    (pet,) = [row async for row in here.memory("facts").find({"content": {"$regex": "Mo"}, "active": True})]
    await here.service.retire(pet["_id"], user="ana")
    for one in forgotten:
        await here.forget("message", one)
    await here.forget("user", "bob")
    gone = {"content": {"$regex": "same-secret|same-boat|crane"}}
    await until(lambda: _none(here.memory("facts"), gone), "facts forgotten")
    await until(lambda: _none(here.memory("facts"), {"_id": pet["_id"], "active": True}), "fact retired")
    await quiet(here)


async def _some(collection: Any, query: Row) -> bool:
    return await collection.count_documents(query) > 0


async def _none(collection: Any, query: Row) -> bool:
    return await collection.count_documents(query) == 0


async def _stored(here: System) -> Row:
    """What MongoDB holds, as the programs say it."""
    scopes: defaultdict[str, Row] = defaultdict(lambda: {"facts": {}, "buffer": {}, "blob": None})
    async for row in here.memory("facts").find({"active": True}):
        scopes[row["scope_key"]]["facts"][row["_id"]] = row["content"]
    async for row in here.memory("reflections").find({"absorbed": False}):
        scopes[row["scope_key"]]["buffer"][row["_id"]] = row["content"]
    async for row in here.memory("consolidated").find():
        scopes[row["_id"]]["blob"] = row["content"]
    return dict(scopes)


async def _once_more(here: System) -> int:
    """Every record of the three topics again, in any order: older versions late, values after their tombstones."""
    records = [(topic, one) for topic in MEMORY for one in await here.records(topic)]
    random.Random(7).shuffle(records)
    producer: Any = AIOKafkaProducer(**here.client, acks="all")
    async with producer:
        for topic, one in records:
            name = here.settings.kafka.topic_prefix + topic
            headers = [(name, value.encode()) for name, value in one.headers.items()]
            await producer.send_and_wait(
                name, one.value, one.key.encode(), partition=one.partition, headers=headers
            )
    return len(records)


async def test_their_view_is_what_mongodb_holds_and_stays_so_when_all_comes_again(lived: System) -> None:
    stored = await _stored(lived)
    *lines, last = await plain(lived.settings)
    view = json.loads(last)
    assert view["scopes"] == stored
    texts = {text for scope in stored.values() for text in scope["facts"].values()}
    assert texts == {"same-town Porto instead."}
    assert any(scope["blob"] for scope in stored.values())
    assert any(scope["buffer"] for scope in stored.values())
    assert view["erased"] >= 3
    assert f"user:s.{AGENT}:s.bob" not in stored or not stored[f"user:s.{AGENT}:s.bob"]["facts"]
    repeated = await _once_more(lived)
    *again, last = await plain(lived.settings)
    assert len(again) == len(lines) + repeated
    said = json.loads(last)
    assert (said["scopes"], said["erased"]) == (view["scopes"], view["erased"])


@needs_go
async def test_the_program_in_go_holds_the_same(lived: System, tmp_path: Path) -> None:
    assert json.loads((await in_go(lived.settings, tmp_path))[-1])["scopes"] == await _stored(lived)
