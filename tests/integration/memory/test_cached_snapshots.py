"""Snapshots that a writer kept from its last write, where another writer writes the same scope."""

from random import Random

import pytest

from eden_memory.forgotten import Marks
from eden_memory.memory.memory_batch import memory_batch
from eden_memory.mongo.documents import document_of, row_of
from eden_memory.schemas.documents import Snapshot
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


async def is_cached(database: Database, written: list[Delivery], more: list[Delivery]) -> bool:
    """Return whether a store begins the second batch from the snapshot that it wrote with the first."""
    store = store_of(database)
    await apply(store, written)
    scopes = memory_batch(more, Marks()).scopes
    return (await store.load(list(scopes.values())))[USER.key].cached


async def test_a_snapshot_that_was_written_is_not_read_again(database: Database) -> None:
    assert await is_cached(database, [delivered(fact("f"))], [delivered(fact("g", text="g"))])


@pytest.mark.parametrize("seed", range(4))
async def test_what_is_cached_equals_what_is_stored(database: Database, seed: int) -> None:
    chance, store = Random(seed), store_of(database)
    for scope in (USER, SESSION):
        for batch in lived(chance, scope):
            await apply(store, batch)
            scopes = memory_batch(batch, Marks()).scopes
            stored = (await store.load(list(scopes.values())))[scope.key]
            if stored.cached and stored.snapshot is not None:
                assert document_of(Snapshot, row_of(stored.snapshot)) == stored.snapshot
                assert await snapshot(database, scope.key) == stored.snapshot


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


async def test_a_scope_that_could_not_be_written_is_read_anew(database: Database) -> None:
    store = store_of(database)
    await apply(store, [delivered(fact("f"))])
    await database.command("collMod", "memory_blobs", validator={"version": {"$lt": 2}})
    failing = memory_batch([delivered(blob(2, []))], Marks())
    (result,) = (await store.apply(list(failing.scopes.values()))).values()
    assert isinstance(result, Exception)
    assert not (await store.load(list(failing.scopes.values())))[USER.key].cached
