"""Which sharing holds in a store: what is chosen, else private."""

from itertools import product
from typing import Any

import pytest

from eden_memory.access.visible import in_force, private_keys, rests_on_users
from eden_memory.assembly.mongo_setup import set_up
from eden_memory.doctor.finding import State
from eden_memory.doctor.mongodb_checks import judge_sharing
from eden_memory.formation.sharing_store import Learning
from eden_memory.memory.memory_index_store import settle_sharing
from eden_memory.memory.snapshot_store import of_users, without
from eden_memory.mongo.client import connect
from eden_memory.schemas.documents import Stream
from eden_memory.schemas.scopes import Scope, Sharing, SharingMode
from eden_memory.settings import Settings

pytestmark = pytest.mark.servers


async def test_a_new_store_is_private_until_somebody_chooses(settings: Settings) -> None:
    assert settings.mongodb.uri is not None
    async with connect(settings.mongodb.uri.get_secret_value()) as client:
        database, names = client[settings.mongodb.database], settings.names
        await set_up(database, names)
        assert await settle_sharing(database, names, None) == "private"
        await database[names["facts"]].insert_one({"_id": "of today"}, bypass_document_validation=True)
        assert await settle_sharing(database, names, None) == "private", "what is recorded holds"
        assert await settle_sharing(database, names, "team") == "team"
        assert await settle_sharing(database, names, None) == "team"
        first = await database[names["versions"]].find_one({"_id": "sharing"})
        assert await settle_sharing(database, names, "team") == "team"
        assert await database[names["versions"]].find_one({"_id": "sharing"}) == first, "nothing changed"
        assert await settle_sharing(database, names, "private") == "private"
        then = await database[names["versions"]].find_one({"_id": "sharing"})
        assert first is not None
        assert then is not None
        assert then["since"] > first["since"]


@pytest.mark.parametrize(
    ("chosen", "stored", "state", "said"),
    [
        (None, None, "ok", "private:"),
        (None, "team", "ok", "team:"),
        ("private", "private", "ok", "private:"),
        ("private", "team", "warn", "settings say private"),
    ],
)
def test_doctor_says_which_holds(
    chosen: SharingMode | None, stored: SharingMode | None, state: State, said: str
) -> None:
    mode = stored or chosen or "private"
    found = judge_sharing(chosen, stored, Learning(mode, f"{mode}: as it is said"))
    assert found.state == state
    assert said in found.what


OPERATORS, RUIS = "s.eden%3Aadded%3As.helper", "s.eden%3Aadded%3As.helper%3As.rui"
SOURCES: tuple[tuple[dict[str, Any], ...], ...] = tuple(
    tuple({"session_id": session} | ({} if number == "absent" else {"participants": number}) for number in of)
    for session in ("s.talk", OPERATORS, RUIS)
    for of in (("absent",), (None,), (0,), (1,), (2,), (0, 2), (2, 1), ())
)


async def test_mongodb_and_this_process_hide_the_same(settings: Settings) -> None:
    assert settings.mongodb.uri is not None
    async with connect(settings.mongodb.uri.get_secret_value()) as client:
        facts = client[settings.mongodb.database]["facts"]
        keys = ("agent:s.helper", "shard:s.helper:x", "group:s.helper:s.red", "user:s.helper:s.rui")
        for number, (key, sources) in enumerate(product(keys, SOURCES)):
            await facts.insert_one({"_id": number, "scope_key": key, "sources": list(sources)})
        found = {row["_id"] async for row in facts.find(of_users(keys[:3]))}
        hidden = {at for at, one in enumerate(product(keys, SOURCES)) if rests_on_users(*one)}
        assert found == hidden
        left = {row["_id"] async for row in facts.find(without(keys[:3]))}
        assert left == set(range(len(keys) * len(SOURCES))) - hidden
        kept = [
            one for at, one in enumerate(product(keys[2:3], SOURCES)) if 2 * len(SOURCES) + at not in hidden
        ]
        assert ("group:s.helper:s.red", ({"session_id": "s.talk", "participants": 2},)) in kept
        assert 20 < len(hidden) < 3 * len(SOURCES)
        assert without(()) == {}


@pytest.mark.parametrize(
    ("store", "agent", "shard", "private"),
    [
        ("team", None, None, set[str]()),
        ("private", None, None, {"agent", "group", "shard"}),
        ("private", "team", None, {"agent", "group", "shard"}),
        ("agents", None, None, {"agent", "group", "shard"}),
        ("agents", "team", None, set[str]()),
        ("agents", None, "team", {"agent", "group"}),
        ("team", "private", None, {"agent", "group", "shard"}),
        ("private", None, "team", {"agent", "group", "shard"}),
        ("team", None, "private", {"shard"}),
    ],
)
def test_an_agents_stream_and_a_shards_own_go_before_the_store_unless_that_is_private(
    store: SharingMode, agent: Sharing | None, shard: Sharing | None, private: set[str]
) -> None:
    streams = {
        "agent": Stream(_id="1", agent_id="s.a", scope="agent", sharing=agent),
        "shard:x": Stream(_id="2", agent_id="s.a", scope="shard", shard="x", sharing=shard),
    }
    scopes = [
        Scope.of_agent("s.a"),
        Scope.of_shard("s.a", "x"),
        Scope.of_group("s.a", "s.g"),
        Scope.of_user("s.a", "s.u"),
    ]
    assert {one.partition(":")[0] for one in private_keys(scopes, streams, store)} == private


@pytest.mark.parametrize(
    ("stored", "chosen", "holds"),
    [
        (None, None, "private"),
        (None, "team", "team"),
        ("team", None, "team"),
        ("team", "private", "private"),
        ("private", "team", "private"),
        ("agents", "team", "agents"),
        ("private", None, "private"),
    ],
)
def test_readers_go_by_the_stricter_mode(
    stored: SharingMode | None, chosen: SharingMode | None, holds: SharingMode
) -> None:
    assert in_force(stored, chosen) == holds
