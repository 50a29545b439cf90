"""`eden setup` on a real server: everything is made once, what lacks is named, what is no document is refused."""

import re
from typing import Any

import pytest
from pymongo import MongoClient
from pymongo.errors import DuplicateKeyError, WriteError
from typer.testing import CliRunner, Result

from eden_memory.assembly.mongo_setup import INDEXES, check, check_all, set_up
from eden_memory.cli.main import app
from eden_memory.errors import EdenError
from eden_memory.names import Names
from eden_memory.schemas.documents import DOCUMENTS
from eden_memory.search import atlas_list_store as search_indexes
from eden_memory.settings import Settings
from tests.integration.memory.writer_kit import PREFIX, Database, apply, fact_rows, store_of
from tests.names import NAMES
from tests.unit.memory.memory_histories import delivered, fact

pytestmark = pytest.mark.servers


async def test_what_is_made_is_made_once(database: Database) -> None:
    fresh = database.client[database.name + "_fresh"]
    made = await set_up(fresh, Names("m_"), dimensions=384, wait_seconds=5)
    assert "collection m_facts" in made
    assert "index m_facts.one_active_of_a_text" in made
    assert "validator of m_snapshots" in made
    assert await set_up(fresh, Names("m_"), dimensions=384, wait_seconds=5) == []
    assert await check_all(fresh, Names("m_"), 384) == []


async def test_only_collections_of_documents_are_made(database: Database) -> None:
    known = {PREFIX + one.COLLECTION for one in DOCUMENTS}
    assert set(await database.list_collection_names()) <= known


async def test_what_lacks_is_named(database: Database) -> None:
    await database["memory_facts"].drop_index("one_active_of_a_text")
    await database["memory_contexts"].drop()
    await database.command("collMod", "memory_snapshots", validator={})
    assert await check(database, NAMES) == [
        "collection memory_contexts is missing",
        "index memory_facts.one_active_of_a_text is missing",
        "validator of memory_snapshots is missing or old",
    ]


async def test_an_index_with_other_options_is_an_error_for_people(database: Database) -> None:
    await database["memory_facts"].drop_index("one_active_of_a_text")
    await database["memory_facts"].create_index("agent_id", name="one_active_of_a_text")
    with pytest.raises(EdenError, match="memory_facts is there with other options"):
        await set_up(database, NAMES)


async def test_what_no_reader_could_read_is_refused(database: Database) -> None:
    await apply(store_of(database), [delivered(fact("f"))])
    good = (await fact_rows(database))["f"] | {"_id": "g", "hash": "0" * 64}
    broken: list[dict[str, Any]] = [
        {"version": 0},
        {"formed_at": "yesterday"},
        {"scope": "planet"},
        {"embedding": "text"},
        {"history": [{"version": 1}]},
    ]
    for change in broken:
        with pytest.raises(WriteError, match="failed validation"):
            await database["memory_facts"].insert_one(good | change)
    await database["memory_facts"].insert_one(good | {"a_field_of_tomorrow": 1})


async def test_a_scope_has_one_active_fact_of_a_text(database: Database) -> None:
    await apply(store_of(database), [delivered(fact("f"))])
    other = (await fact_rows(database))["f"] | {"_id": "g"}
    with pytest.raises(DuplicateKeyError):
        await database["memory_facts"].insert_one(other)
    await database["memory_facts"].insert_one(other | {"active": False})


async def test_streams_are_written_by_people(database: Database) -> None:
    stream = {"_id": "s.a/user", "agent_id": "s.a", "scope": "user", "threshold": 5.0}
    await database["memory_streams"].insert_one(stream)
    with pytest.raises(WriteError):
        await database["memory_streams"].insert_one({**stream, "_id": "s.a/x", "threshold": "five"})


@pytest.mark.parametrize(
    ("query", "sort"),
    [
        ({"scope_key": "k", "hash": {"$in": ["h"]}, "retired_at": None}, None),
        ({"scope_key": "k", "revision": {"$gt": 4}}, None),
        ({"scope_key": "k", "active": True}, {"formed_at": -1, "_id": 1}),
        ({"message_ids": "i.1"}, None),
        ({"$or": [{"sources.user_id": "i.1"}, {"user_id": "i.1"}]}, None),
    ],
)
async def test_facts_are_looked_up_by_indexes(
    database: Database, query: dict[str, Any], sort: dict[str, int] | None
) -> None:
    find = {"find": "memory_facts", "filter": query, **({"sort": sort} if sort else {})}
    plan = str((await database.command("explain", find))["queryPlanner"]["winningPlan"])
    assert "IXSCAN" in plan
    assert "COLLSCAN" not in plan
    assert "'stage': 'SORT'" not in plan


async def test_facts_are_found_by_their_words(database: Database) -> None:
    await apply(store_of(database), [delivered(fact("f", text="Ana habite à Porto."))])
    query: dict[str, Any] = {"agent_id": "s.assistant", "$text": {"$search": "porto"}}
    assert [row["_id"] for row in await database["memory_facts"].find(query).to_list()] == ["f"]


async def test_a_server_without_search_has_no_search_indexes(database: Database) -> None:
    there = await search_indexes.found(database["memory_facts"])
    if there is not None:
        pytest.skip("this server has search")
    assert await search_indexes.make(database["memory_facts"], 384) is None


def eden(settings: Settings, *arguments: str) -> Result:
    assert settings.mongodb.uri is not None
    environment = {
        "EDEN_MONGODB_URI": settings.mongodb.uri.get_secret_value(),
        "EDEN_MONGODB_DATABASE": settings.mongodb.database,
        "EDEN_KAFKA_BOOTSTRAP": settings.kafka.bootstrap or "",
    }
    return CliRunner().invoke(app, list(arguments), env=environment)


def test_the_command_says_what_it_made_and_what_lacks(settings: Settings) -> None:
    lacking = eden(settings, "setup", "--check")
    assert lacking.exit_code == 1
    assert "collection memory_facts is missing" in lacking.output
    made = eden(settings, "setup").output
    assert re.search(
        rf"made \d+ collections, .*indexes in the database {settings.mongodb.database}$", made, re.MULTILINE
    )
    assert eden(settings, "setup").output == "everything is there\n"
    assert eden(settings, "setup", "--check").exit_code == 0


INDEXED = [(short, str(model.document["name"])) for short, models in INDEXES.items() for model in models]


def test_the_check_names_every_index_that_is_gone(settings: Settings) -> None:
    """As after an update: `pending`, by which `eden status` counts, came with a later version."""
    eden(settings, "setup")
    assert settings.mongodb.uri is not None
    with MongoClient[dict[str, Any]](settings.mongodb.uri.get_secret_value()) as client:
        for short in INDEXES:
            client[settings.mongodb.database][settings.names[short]].drop_indexes()
    lacking = eden(settings, "setup", "--check")
    assert lacking.exit_code == 1
    missing = {f"index {settings.names[short]}.{name} is missing" for short, name in INDEXED}
    assert set(lacking.output.splitlines()) == missing
    assert f"index {settings.names['messages']}.pending is missing" in missing
    made = {line.replace(" is missing", "") for line in missing}
    assert {line.removeprefix("made ") for line in eden(settings, "setup").output.splitlines()} == made
