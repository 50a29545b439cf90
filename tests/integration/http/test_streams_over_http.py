"""Streams over HTTP and in Python: what is set is what stages read, by whom may, and what is wrong is named."""

import asyncio
from typing import Any

import pytest

from eden_memory.access.admission_store import Refused
from eden_memory.directory.stream_store import SETTABLE, MongoStreams
from eden_memory.errors import Invalid, NotFound
from eden_memory.operations.parameters import StreamFields, StreamView
from tests.integration.doors.conftest import Doors
from tests.integration.doors.world import Key
from tests.integration.http.conftest import key_of

pytestmark = pytest.mark.servers
PATH = "/v1/agents/a/streams"


async def as_read(api: Doors) -> dict[str, Any]:
    """The agent's streams as stages read them: what is set, by label."""
    found = await MongoStreams(api.kit.database, api.kit.settings.names).of("s.a")
    return {name: stream.model_dump(exclude_none=True) for name, stream in found.items()}


def test_every_field_of_a_stream_is_shown_and_may_be_set() -> None:
    assert set(StreamFields.model_fields) == set(SETTABLE)
    assert set(StreamView.model_fields) == {"agent_id", "scope", "shard", *SETTABLE}


async def test_a_shard_is_made_changed_switched_off_and_listed(api: Doors) -> None:
    path = f"{PATH}/shard:net%2Fknown%20outages"
    assert (await api.http.get(path)).status_code == 404
    body = {"extraction_guidance": "Outages, with times.", "min_items": 1, "sharing": "team"}
    made = await api.http.patch(path, json=body)
    assert (made.status_code, made.json()["shard"], made.json()["threshold"]) == (
        200,
        "net/known outages",
        None,
    )
    changed = await api.http.patch(path, json={"min_items": None, "active": False})
    assert (changed.json()["min_items"], changed.json()["active"]) == (None, False)
    assert (await api.http.get(path)).json() == changed.json()
    assert (await api.http.get(PATH)).json() == [changed.json()]
    stored = (await as_read(api))["shard:net/known outages"]
    assert stored.keys() == {"_id", "agent_id", "scope", "shard", "active", "sharing", "extraction_guidance"}
    assert (await api.http.get("/v1/agents/b/streams")).json() == []


@pytest.mark.parametrize(
    ("scope", "body", "named"),
    [
        ("planet", {}, "planet"),
        ("shard:", {}, "shard:"),
        ("user", {"treshold": 5}, "treshold"),
        ("user", {"threshold": "5"}, "threshold"),
        ("user", {"threshold": 0}, "threshold"),
        ("user", {"_id": "other"}, "_id"),
        ("user", {"agent_id": "s.b"}, "agent_id"),
        ("user", {"sharing": "team"}, "sharing"),
        ("shard:x", {"search_tool": False}, "search_tool"),
        ("user", {"min_items": 3, "max_items": 2}, "min_items"),
        ("session", {"active": False}, "active"),
        ("session", {"fifo_limit": 5}, "fifo_limit"),
        ("user", {"extraction_model": "http://localhost:1/v1"}, "extraction_model"),
        ("user", {"extraction_model": "https://user:secret@host/v1#m"}, "extraction_model"),
        ("user", {"extraction_guidance": "x" * 4_001}, "extraction_guidance"),
    ],
)
async def test_what_no_stream_can_be_is_refused_by_name(
    api: Doors, scope: str, body: dict[str, Any], named: str
) -> None:
    before = await as_read(api)
    refused = await api.http.patch(f"{PATH}/{scope}", json=body)
    assert refused.status_code == 422
    assert named in refused.text
    assert await as_read(api) == before


async def test_reading_takes_the_right_to_read_setting_takes_admin_and_neither_is_for_one_user(
    api: Doors,
) -> None:
    for number, (rights, users, statuses) in enumerate(
        [
            (("read", "write"), None, (200, 403)),
            (("admin",), None, (200, 200)),
            (("admin",), ("s.ada",), (403, 403)),
            (("write",), None, (403, 403)),
        ]
    ):
        headers = await key_of(api, Key(f"streams-{number}", None, users, rights))
        read = await api.http.get(PATH, headers=headers)
        written = await api.http.patch(f"{PATH}/group", json={"threshold": 7}, headers=headers)
        assert (read.status_code, written.status_code) == statuses
    others = await key_of(api, Key("streams-of-b", ("s.b",), None, ("admin",)))
    assert (await api.http.get(PATH, headers=others)).status_code == 403


async def test_an_agent_whose_search_tool_is_off_is_not_searched_through_this_door(api: Doors) -> None:
    where, wanted = "/v1/agents/quiet", {"queries": ["boats"]}

    async def searched() -> int:
        return (await api.http.post(f"{where}/search", json=wanted)).status_code

    assert await searched() == 200
    for off, status in ((False, 403), (None, 200)):
        changed = await api.http.patch(f"{where}/streams/agent", json={"search_tool": off})
        assert changed.json()["search_tool"] is off
        async with asyncio.timeout(60):
            while await searched() != status:  # noqa: ASYNC110 - a change stream reports it
                await asyncio.sleep(0.02)
    assert (await api.http.post("/v1/agents/a/search", json=wanted)).status_code == 200


async def test_of_a_models_endpoint_only_its_host_is_shown(api: Doors) -> None:
    streams = api.kit.database[api.kit.settings.names["streams"]]
    urls = {
        "extraction_model": "https://user:secret@host:8/v1?key=secret#m",
        "consolidation_model": "openai:m",
    }
    await streams.insert_one({"_id": "s.a/user", "agent_id": "s.a", "scope": "user", **urls})
    headers = await key_of(api, Key("streams-read", None, None, ("read",)))
    for path in (PATH, f"{PATH}/user"):
        text = (await api.http.get(path, headers=headers)).text
        assert '"extraction_model":"host:8 m"' in text
        assert '"consolidation_model":"openai:m"' in text
        assert "secret" not in text


async def test_python_has_the_same_calls_and_errors(api: Doors) -> None:
    service = api.memory.agent("c")
    with pytest.raises(NotFound):
        await service.get_stream("shard:pricing")
    made = await service.set_stream("shard:pricing", threshold=5, word_limit=300)
    assert await service.set_stream("shard:pricing", word_limit=None) == made.model_copy(
        update={"word_limit": None}
    )
    assert [stream.threshold for stream in await service.list_streams()] == [5]
    for fields in ({"treshold": 5}, {"_id": "x"}, {"threshold": "many"}, {"sharing": "all"}):
        with pytest.raises(Invalid) as refused:
            await service.set_stream("agent", **fields)
        assert next(iter(fields)) in refused.value.what
    bound = api.memory.agent("c", changes_shared=False)
    with pytest.raises(Refused):
        await bound.set_stream("shard:pricing", active=False)
