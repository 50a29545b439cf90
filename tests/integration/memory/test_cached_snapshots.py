"""Snapshots that a writer kept from its last write, where another writer writes the same scope."""

from random import Random

import pytest

from eden_memory.forgotten import Marks
from eden_memory.memory.memory_batch import memory_batch
from eden_memory.memory.memory_store import MongoMemoryStore
from eden_memory.mongo.documents import document_of, row_of
from eden_memory.schemas.documents import RECENT_FACTS, Snapshot
from eden_memory.schemas.scopes import Scope
from eden_memory.stages.stage import Delivery
from tests.integration.memory.writer_kit import Database, apply, documents, fact_rows, snapshot, store_of
from tests.unit.memory.memory_histories import (
    SESSION,
    USER,
    batches,
    blob,
    delivered,
    fact,
    forgotten_of,
    history,
    reflection,
    tombstone,
)
from tests.unit.memory.memory_in_mind import Mind

pytestmark = pytest.mark.servers


def lived(chance: Random, scope: Scope) -> list[list[Delivery]]:
    events = history(chance, scope, size=8)
    return batches(
        chance,
        [delivered(event) for event in events] + [tombstone(gone) for gone in forgotten_of(chance, events)],
    )


async def loaded(store: MongoMemoryStore, batch: list[Delivery], scope: Scope = USER) -> Snapshot | None:
    """Return the snapshot that the next batch of a scope begins from."""
    return (await store.load(list(memory_batch(batch, Marks()).scopes.values())))[scope.key].snapshot


async def test_a_snapshot_is_not_read_again_until_another_writer_has_changed_it(database: Database) -> None:
    store, batch = store_of(database), [delivered(fact("g", text="g"))]
    written = (await apply(store, [delivered(fact("f"))]))[USER.key].snapshot
    assert await loaded(store, batch) is written
    await apply(store_of(database), [delivered(reflection("r"))])
    assert await loaded(store, batch) == await snapshot(database, USER.key)
    await database["memory_snapshots"].delete_many({})
    assert await loaded(store, batch) is None


@pytest.mark.parametrize("seed", range(4))
async def test_what_is_cached_equals_what_is_stored(database: Database, seed: int) -> None:
    chance, store, compared = Random(seed), store_of(database), 0
    for scope in (USER, SESSION):
        for batch in lived(chance, scope):
            written = (await apply(store, batch))[scope.key].snapshot
            if written is not None and await loaded(store, batch, scope) is written:
                assert document_of(Snapshot, row_of(written)) == written
                assert await snapshot(database, scope.key) == written
                compared += 1
    assert compared > 3


async def test_of_many_scopes_only_those_that_another_writer_changed_are_read(database: Database) -> None:
    store, scopes = store_of(database), [Scope.of_user("s.assistant", f"i.{number}") for number in range(6)]
    await apply(store, [delivered(fact(f"f{scope.user_id}", scope=scope)) for scope in scopes])
    await apply(store_of(database), [delivered(reflection("r", scope=scopes[0]))])
    again = [delivered(fact(f"f{scope.user_id}", scope=scope)) for scope in scopes[:2]]
    new = [delivered(fact(f"g{scope.user_id}", scope=scope, text="g")) for scope in scopes[2:4]]
    late = [delivered(fact(f"g{scopes[0].user_id}", scope=scopes[0], text="g"))]
    applied = await apply(store, [*again, *new, *late])
    assert [applied[scope.key].parts for scope in scopes[:4]] == [("facts",), (), ("facts",), ("facts",)]
    found = [await snapshot(database, scope.key) for scope in scopes]
    assert [applied[scope.key].snapshot for scope in scopes[:4]] == found[:4]
    assert [one.revision for one in found] == [3, 1, 2, 2, 1, 1]


async def test_what_comes_up_when_a_list_overflows_comes_up_beside_a_cached_snapshot(
    database: Database,
) -> None:
    store, mind = store_of(database), Mind()
    many = RECENT_FACTS + 5
    batches_of = [
        [delivered(fact(f"f{number}", text=f"text {number}", at=number)) for number in range(many)],
        [tombstone(fact(f"f{number}", text=f"text {number}", at=number)) for number in range(many - 5, many)],
    ]
    for batch in batches_of:
        mind.take(batch)
        await apply(store, batch)
    assert await documents(database) == mind.documents()
    assert len((await snapshot(database, USER.key)).recent_facts) == RECENT_FACTS


@pytest.mark.parametrize("seed", range(4))
async def test_two_writers_by_turns_leave_what_one_leaves(database: Database, seed: int) -> None:
    chance, mind = Random(seed), Mind()
    writers = store_of(database), store_of(database)
    for batch in lived(chance, USER):
        mind.take(batch)
        await apply(chance.choice(writers), batch)
        if chance.random() < 0.3:
            await apply(chance.choice(writers), batch)
    assert await documents(database) == mind.documents()


async def test_a_repeat_says_what_another_writer_has_changed_since(database: Database) -> None:
    store, batch = store_of(database), [delivered(fact("f")), delivered(reflection("r"))]
    await apply(store, batch)
    await apply(store_of(database), [delivered(blob(1, ["r"])), delivered(fact("old", at=-5))])
    again = (await apply(store, batch))[USER.key]
    assert again.snapshot == await snapshot(database, USER.key)
    assert [duplicate.id for duplicate in again.duplicates] == ["f"]
    assert again.parts == ()


async def test_a_tombstone_that_comes_again_is_applied_to_what_another_writer_wrote(
    database: Database,
) -> None:
    store, event = store_of(database), fact("f")
    await apply(store, [delivered(event)])
    await apply(store, [tombstone(event)])
    await apply(store_of(database), [delivered(event)])
    assert (await apply(store, [tombstone(event)]))[USER.key].parts == ("facts",)
    assert await fact_rows(database) == {}


async def test_a_snapshot_that_was_deleted_is_made_anew(database: Database) -> None:
    store = store_of(database)
    await apply(store, [delivered(fact("f"))])
    await database["memory_snapshots"].delete_many({})
    await apply(store, [delivered(fact("g", text="g"))])
    found = await snapshot(database, USER.key)
    assert (found.revision, [recent.fact_id for recent in found.recent_facts]) == (1, ["g"])
    assert set(await fact_rows(database)) == {"f", "g"}


async def test_what_could_not_be_written_is_not_cached(database: Database) -> None:
    store = store_of(database)
    await apply(store, [delivered(fact("f"))])
    await database.command("collMod", "memory_blobs", validator={"version": {"$lt": 2}})
    failing = memory_batch([delivered(blob(2, []))], Marks())
    (result,) = (await store.apply(list(failing.scopes.values()))).values()
    assert isinstance(result, Exception)
    found = await loaded(store, [delivered(blob(2, []))])
    assert found == await snapshot(database, USER.key)
    assert found is not None
    assert found.blob_version == 0
