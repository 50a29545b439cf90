"""`eden stream` as a person uses it: what it writes the system reads, and what is wrong is refused by name."""

import asyncio
import json
from typing import Any

import pytest
from pymongo.errors import WriteError
from typer.testing import CliRunner

from eden_memory.assembly.mongo_setup import set_up
from eden_memory.cli.main import app
from eden_memory.directory.stream_store import MongoStreams
from eden_memory.errors import Invalid, NotFound
from eden_memory.mongo.client import connect
from eden_memory.schemas.documents import Stream
from eden_memory.settings import Settings

pytestmark = pytest.mark.servers


@pytest.fixture
def environment(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Settings:
    assert settings.mongodb.uri is not None
    monkeypatch.setenv("EDEN_MONGODB_URI", settings.mongodb.uri.get_secret_value())
    monkeypatch.setenv("EDEN_MONGODB_DATABASE", settings.mongodb.database)
    monkeypatch.setenv("EDEN_KAFKA_BOOTSTRAP", str(settings.kafka.bootstrap))
    asyncio.run(within(settings))
    return settings


async def within(settings: Settings, *rows: dict[str, Any]) -> dict[str, Stream]:
    """Set up, and with these documents of people's own; the agent's streams as stages read them."""
    assert settings.mongodb.uri is not None
    async with connect(settings.mongodb.uri.get_secret_value()) as client:
        database = client[settings.mongodb.database]
        await set_up(database, settings.names)
        if rows:
            await database[settings.names["streams"]].insert_many(rows)
        return dict(await MongoStreams(database, settings.names).of("s.a"))


def run(*arguments: str) -> Any:
    return CliRunner().invoke(app, ["stream", *arguments])


def test_what_is_set_is_what_stages_read(environment: Settings) -> None:
    assert "no streams" in run("list").stdout
    assert run("set", "a", "user", "threshold=6", "word_limit=250", "max_items=2").exit_code == 0
    assert run("set", "s.a", "shard:pricing", "extraction_guidance=Prices, with dates.").exit_code == 0
    assert run("set", "a", "user", "word_limit=", "extraction_model=openai:gpt-5-mini").exit_code == 0
    assert run("off", "a", "group").exit_code == 0
    found = asyncio.run(within(environment))
    user, shard = found["user"], found["shard:pricing"]
    assert (user.threshold, user.word_limit, user.max_items) == (6, None, 2)
    assert user.extraction_model == "openai:gpt-5-mini"
    assert shard.extraction_guidance == "Prices, with dates."
    assert [name for name, one in found.items() if not one.active] == ["group"]
    assert run("set", "a", "group", "active=true").exit_code == 0
    assert asyncio.run(within(environment))["group"].active
    assert json.loads(run("show", "a", "user").stdout)["threshold"] == 6
    listed = json.loads(run("list", "--agent", "a", "--json").stdout)
    assert [one["_id"] for one in listed] == ["s.a/group", "s.a/shard/pricing", "s.a/user"]
    assert "pricing" in run("list").stdout


def test_a_shards_name_may_hold_spaces(environment: Settings) -> None:
    assert run("set", "a", "shard:known outages", "threshold=5").exit_code == 0
    assert run("set", "a", "shard:known outages", "threshold=", "max_items=1").exit_code == 0
    assert json.loads(run("show", "a", "shard:known outages").stdout) == {
        "_id": "s.a/shard/known%20outages",
        "agent_id": "s.a",
        "scope": "shard",
        "shard": "known outages",
        "active": True,
        "max_items": 1,
    }
    assert list(asyncio.run(within(environment))) == ["shard:known outages"]


def test_a_document_that_people_wrote_is_changed_where_it_is(environment: Settings) -> None:
    row = {"_id": "mine", "agent_id": "s.a", "scope": "shard", "shard": "x", "threshold": 3.0}
    asyncio.run(within(environment, row))
    assert run("set", "a", "shard:x", "max_items=1").exit_code == 0
    found = asyncio.run(within(environment))["shard:x"]
    assert (found.id, found.threshold, found.max_items) == ("mine", 3, 1)


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("set", "a", "user", "treshold=5"), "treshold"),
        (("set", "a", "user", "threshold=many"), "threshold"),
        (("set", "a", "user", "threshold=0"), "threshold"),
        (("set", "a", "user", "threshold"), "threshold"),
        (("set", "a", "user", "agent_id=s.b"), "agent_id"),
        (("set", "a", "user", "min_items=3", "max_items=2"), "min_items 3"),
        (("set", "a", "planet", "threshold=5"), "planet"),
        (("set", "a", "shard:", "threshold=5"), "shard:"),
        (("set", "a", "user:x", "threshold=5"), "user:x"),
        (("set", "a", "shard: x", "threshold=5"), "shard: x"),
        (("set", "a", f"shard:{'x' * 101}", "threshold=5"), "names no shard"),
        (("set", "a", "shard:a\u200bb", "threshold=5"), "names no shard"),
        (("set", "a", "user", "sharing=team"), "sharing"),
        (("set", "a", "session", "retention_days=5"), "retention_days"),
        (("set", "a", "user", "retention_days=99999999"), "retention_days"),
        (("set", "a", "user", f"extraction_guidance={'x' * 4_001}"), "extraction_guidance"),
        (("set", "a", "user", "extraction_model=http://localhost:1/v1"), "extraction_model"),
        (("set", "a", "user", "consolidation_model=a model"), "consolidation_model"),
        (("set", "a", "session", "active=false"), "active"),
        (("off", "a", "session"), "session"),
    ],
)
def test_what_no_stream_can_be_is_refused_by_name(
    environment: Settings, arguments: tuple[str, ...], named: str
) -> None:
    refused = run(*arguments)
    assert isinstance(refused.exception, Invalid)
    assert named in refused.exception.what
    assert asyncio.run(within(environment)) == {}


def test_what_is_not_there_is_said(environment: Settings) -> None:
    assert isinstance(run("show", "a", "user").exception, NotFound)


def test_the_database_refuses_a_field_that_it_does_not_know_and_names_it(environment: Settings) -> None:
    row = {"_id": "s.a/user", "agent_id": "s.a", "scope": "user", "treshold": 5}
    with pytest.raises(WriteError) as refused:
        asyncio.run(_insert(environment, row))
    assert "'treshold'" in str(refused.value.details)


async def _insert(settings: Settings, row: dict[str, Any]) -> None:
    assert settings.mongodb.uri is not None
    async with connect(settings.mongodb.uri.get_secret_value()) as client:
        await client[settings.mongodb.database][settings.names["streams"]].insert_one(row)
