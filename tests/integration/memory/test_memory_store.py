"""The memory collections on a real server: what is written, what it is derived from, and who writes first."""

import asyncio
import sys
from decimal import Decimal
from random import Random
from subprocess import PIPE, Popen
from typing import Any

import pytest
from bson.binary import Binary, BinaryVectorDtype
from bson.decimal128 import Decimal128
from pydantic import ValidationError

from eden_memory.forgotten import Marks
from eden_memory.memory.memory_batch import AppliedScope, memory_batch
from eden_memory.memory.memory_store import SMALL_SCOPE
from eden_memory.mongo.documents import document_of
from eden_memory.schemas.documents import BUFFER, LASTING_FACTS, RECENT_FACTS, Fact
from eden_memory.schemas.provenance import Call
from eden_memory.schemas.scopes import Scope
from eden_memory.stages.stage import Delivery
from tests.integration.memory.writer_kit import (
    Database,
    all_of,
    apply,
    documents,
    fact_rows,
    snapshot,
    store_of,
)
from tests.servers import TestServers
from tests.unit.memory.memory_histories import (
    SESSION,
    USER,
    batches,
    blob,
    delivered,
    fact,
    forgotten_of,
    history,
    minute,
    reflection,
    source,
    tombstone,
)
from tests.unit.memory.memory_in_mind import Mind

pytestmark = pytest.mark.servers
OTHER = Scope.of_user("s.assistant", "i.12")


async def test_a_fact_is_stored_in_bsons_own_types_and_read_back_the_same(database: Database) -> None:
    call = Call(call_id="call", model="m", prompt="fact-dedup/1", cost_usd=Decimal("0.000425"))
    event = fact("f", sources=[source(1), source(2)]).model_copy(update={"call": call})
    await apply(store_of(database), [delivered(event)])
    row = (await fact_rows(database))["f"]
    vector: Binary = row["embedding"]
    assert vector.as_vector().dtype is BinaryVectorDtype.FLOAT32
    assert vector.as_vector().data == pytest.approx([0.6, 0.8])  # pyright: ignore[reportUnknownMemberType]
    assert row["call"]["cost_usd"] == Decimal128("0.000425")
    assert row["formed_at"] == event.formed_at
    known = document_of(Fact, row)
    assert known.embedding == (event.embedding.vector if event.embedding else None)
    assert known.call == call
    assert (known.message_ids, known.session_ids) == (("i.1", "i.2"), ("s.one",))


async def test_a_fact_is_read_back_with_fields_of_a_later_version_and_a_plain_vector(
    database: Database,
) -> None:
    await apply(store_of(database), [delivered(fact("f"))])
    await database["memory_facts"].update_one({}, {"$set": {"mood": "blue"}})
    row = (await fact_rows(database))["f"] | {"embedding": [0.5, 0.25]}
    assert document_of(Fact, row).embedding == bytes.fromhex("0000003f0000803e")


@pytest.mark.parametrize("seed", range(6))
async def test_the_server_holds_what_the_records_say(database: Database, seed: int) -> None:
    chance, store = Random(seed), store_of(database)
    for scope in (USER, SESSION):
        events = history(chance, scope)
        lived = [delivered(one) for one in events] + [tombstone(one) for one in forgotten_of(chance, events)]
        mind = Mind()
        for batch in batches(chance, lived):
            mind.take(batch)
            await apply(store, batch)
        stored = [row for row in await documents(database) if _scope(row) == scope.key]
        assert stored == mind.documents()


async def test_a_rebuild_in_any_order_from_compacted_topics_gives_the_same_documents(
    database: Database,
) -> None:
    for seed in range(4):
        chance, scope = Random(100 + seed), Scope.of_user("s.assistant", f"i.{seed}")
        lived, left = _lived_and_left(chance, scope)
        live, rebuilt = (
            database.client[f"{database.name}_live{seed}"],
            database.client[f"{database.name}_re{seed}"],
        )
        for batch in batches(chance, lived):
            await apply(store_of(live), batch)
        chance.shuffle(left)
        for batch in batches(chance, [*left, *chance.choices(left, k=len(left))]):
            await apply(store_of(rebuilt), batch)
        assert _said(await documents(rebuilt)) == _said(await documents(live))


def _lived_and_left(chance: Random, scope: Scope) -> tuple[list[Delivery], list[Delivery]]:
    events = history(chance, scope, size=6)
    gone = forgotten_of(chance, events)
    ended = {one.key() for one in gone}
    lived = [delivered(one) for one in events] + [tombstone(one) for one in gone]
    return lived, [delivered(one) for one in events if one.key() not in ended] + [
        tombstone(one) for one in gone
    ]


def _said(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Without the writer's mark, which counts what was forgotten too."""
    return [{name: value for name, value in row.items() if name != "applied"} for row in rows]


def _scope(row: dict[str, Any]) -> str:
    return str(row["scope_key"])


async def test_a_repeat_changes_nothing_and_says_what_is_there(database: Database) -> None:
    store, batch = store_of(database), [delivered(fact("f")), delivered(reflection("r1"))]
    first = await apply(store, batch)
    before = await documents(database)
    again = await apply(store, batch)
    assert first[USER.key].parts == ("facts", "reflections")
    assert again[USER.key].parts == ()
    assert again[USER.key].snapshot == first[USER.key].snapshot == await snapshot(database, USER.key)
    assert await documents(database) == before


async def test_two_writers_at_once_leave_one_state(database: Database) -> None:
    lived = [delivered(one) for one in history(Random(7), USER, size=8)]
    mind = Mind()
    mind.take(lived)
    writers = [store_of(database), store_of(database), store_of(database)]

    async def write(number: int) -> None:
        for batch in batches(Random(number), lived):
            await apply(writers[number], batch)

    await asyncio.gather(*(write(number) for number in range(3)))
    assert await documents(database) == mind.documents()
    revision = (await snapshot(database, USER.key)).revision
    assert revision <= len(lived), "only commits that change something count"


async def test_writers_that_share_transactions_between_scopes_leave_one_state_of_each(
    database: Database,
) -> None:
    lived: list[Delivery] = []
    expected: list[dict[str, Any]] = []
    for number, scope in enumerate((USER, OTHER, SESSION)):
        told = [delivered(one) for one in history(Random(20 + number), scope, size=6)]
        mind = Mind()
        mind.take(told)
        lived += told
        expected += mind.documents()

    async def write(number: int) -> None:
        chance, store = Random(number), store_of(database)
        for batch in batches(chance, chance.sample(lived, k=len(lived))):
            await apply(store, batch)

    await asyncio.gather(*(write(number) for number in range(3)))
    assert await documents(database) == sorted(expected, key=lambda row: (row["in"], row["_id"]))


async def test_scopes_of_a_batch_go_into_one_transaction(database: Database) -> None:
    scopes = [Scope.of_user("s.assistant", f"i.{number}") for number in range(20)]
    records = [delivered(fact(f"f{number}", scope=scope)) for number, scope in enumerate(scopes)]
    await apply(store_of(database), [*records, delivered(blob(1, [], scope=USER))])
    oplog = database.client["local"]["oplog.rs"]
    written = {"o.applyOps.ns": f"{database.name}.memory_snapshots", "lsid": {"$exists": True}}
    assert await oplog.count_documents(written) == 1
    assert len(await fact_rows(database)) == len(scopes)


async def test_facts_that_say_the_same_are_told_apart_by_age_also_between_two_writers(
    database: Database,
) -> None:
    one, other = store_of(database), store_of(database)
    for number in range(5):
        text = f"Ana owns bicycle {number}."
        young, old = fact(f"young{number}", text=text, at=5), fact(f"old{number}", text=text, at=1)
        await asyncio.gather(apply(one, [delivered(young)]), apply(other, [delivered(old)]))
    active = {name for name, row in (await fact_rows(database)).items() if row["active"]}
    assert active == {f"old{number}" for number in range(5)}
    assert (await snapshot(database, USER.key)).active_facts == 5


async def test_facts_that_say_the_same_are_found_in_large_and_small_scopes_of_one_batch(
    database: Database,
) -> None:
    store, third = store_of(database), Scope.of_user("s.assistant", "i.13")
    told = ((USER, SMALL_SCOPE + 1, 7), (OTHER, SMALL_SCOPE + 5, SMALL_SCOPE + 4), (third, 2, 1))
    older = [
        fact(f"{scope.user_id}-{number}", text=f"Bicycle {number}.", scope=scope)
        for scope, size, _ in told
        for number in range(size)
    ]
    await apply(store, [delivered(event) for event in older])
    known = [
        fact(f"{scope.user_id}-known", text=f"Bicycle {number}.", at=5, scope=scope)
        for scope, _, number in told
    ]
    new = [fact(f"{scope.user_id}-new", text="Bicycle 99.", at=5, scope=scope) for scope, *_ in told]
    await apply(store, [delivered(event) for event in (*known, *new)])
    rows = await fact_rows(database)
    assert not any(rows[event.fact_id]["active"] for event in known)
    assert all(rows[event.fact_id]["active"] for event in (*older, *new))


async def test_a_text_changes_hands_in_one_batch(database: Database) -> None:
    store = store_of(database)
    await apply(store, [delivered(fact("a", text="one")), delivered(fact("b", text="two"))])
    await apply(store, [delivered(fact("a", 2, "two")), delivered(fact("b", 2, "one"))])
    rows = await fact_rows(database)
    assert [(rows[name]["content"], rows[name]["active"]) for name in "ab"] == [("two", True), ("one", True)]


async def test_a_scope_that_cannot_be_read_fails_alone(database: Database) -> None:
    await apply(store_of(database), [delivered(fact("f"))])
    broken = {"$set": {"buffer": "not a list"}}
    await database["memory_snapshots"].update_one({"_id": USER.key}, broken, bypass_document_validation=True)
    both = memory_batch([delivered(fact("g", text="g")), delivered(fact("h", scope=OTHER))], Marks())
    results = await store_of(database).apply(list(both.scopes.values()))
    assert isinstance(results[USER.key], ValidationError)
    assert isinstance(results[OTHER.key], AppliedScope)
    assert set(await fact_rows(database)) == {"f", "h"}


async def test_all_of_a_scope_is_written_or_nothing(database: Database) -> None:
    """The last write of the transaction is refused by the server."""
    await database.command("collMod", "memory_blobs", validator={"version": {"$lt": 2}})
    batch = memory_batch(
        [delivered(fact("f")), delivered(reflection("r")), delivered(blob(2, ["r"]))], Marks()
    )
    (result,) = (await store_of(database).apply(list(batch.scopes.values()))).values()
    assert isinstance(result, Exception)
    assert await documents(database) == []


async def test_older_facts_come_up_into_the_snapshot_for_those_that_leave(database: Database) -> None:
    store = store_of(database)
    count = RECENT_FACTS + 10
    await apply(store, [delivered(fact(f"f{n}", text=f"text {n}", at=n)) for n in range(count)])
    retired = [fact(f"f{n}", 2, f"text {n}", at=n, retired=True) for n in range(count - 4, count)]
    await apply(store, [delivered(one) for one in retired])
    found = await snapshot(database, USER.key)
    assert [one.fact_id for one in found.recent_facts] == [f"f{n}" for n in range(count - 5, 5, -1)]
    assert found.active_facts == count - 4


async def test_older_lasting_facts_come_up_into_the_snapshot_for_those_that_leave(database: Database) -> None:
    store = store_of(database)
    told = [fact("nuts", text="Ana is allergic to nuts.")]
    told += [fact(f"h{n}", text=f"Ana lives in house {n}.", at=n + 1) for n in range(LASTING_FACTS + 2)]
    await apply(store, [delivered(one) for one in told])
    gone = [fact("nuts", 2, "Ana is allergic to nuts.", retired=True)]
    gone += [fact("h9", 2, "Ana lives in house 9.", at=10, retired=True)]
    await apply(store, [delivered(one) for one in gone])
    found = await snapshot(database, USER.key)
    newest = [f"h{n}" for n in range(LASTING_FACTS + 1, -1, -1) if n != 9]
    assert [one.fact_id for one in found.lasting_facts] == newest[:LASTING_FACTS]


async def test_a_full_buffer_is_filled_up_when_some_of_it_is_absorbed(database: Database) -> None:
    store = store_of(database)
    formed = [reflection(f"r{n}", at=n / 10) for n in range(BUFFER + 30)]
    await apply(store, [delivered(one) for one in reversed(formed)])
    assert [one.reflection_id for one in (await snapshot(database, USER.key)).buffer][-1] == f"r{BUFFER - 1}"
    await apply(store, [delivered(blob(1, [f"r{n}" for n in range(20)]))])
    found = (await snapshot(database, USER.key)).buffer
    assert [found[0].reflection_id, found[-1].reflection_id] == ["r20", f"r{BUFFER + 19}"]


async def test_reflections_of_several_scopes_in_one_batch_find_the_blobs_that_absorbed_them(
    database: Database,
) -> None:
    store, third = store_of(database), Scope.of_user("s.assistant", "i.13")
    scopes = USER, OTHER
    blobs = [
        blob(number, [f"{scope.user_id}-r{number}"], scope=scope) for scope in scopes for number in (1, 2)
    ]
    await apply(store, [delivered(one) for one in blobs])
    late = [reflection(f"{scope.user_id}-r{number}", scope=scope) for scope in scopes for number in (1, 2, 3)]
    await apply(store, [delivered(one) for one in (*late, reflection("first", scope=third))])
    rows = await database["memory_reflections"].find({}).to_list()
    absorbed = {row["_id"]: row["absorbed_into"] for row in rows}
    assert absorbed == {
        "first": None,
        **{f"{scope.user_id}-r{number}": number for scope in scopes for number in (1, 2)},
        **{f"{scope.user_id}-r3": None for scope in scopes},
    }


async def test_a_full_buffer_is_filled_up_by_when_it_was_said(database: Database) -> None:
    store = store_of(database)
    formed = [reflection(f"r{n}", at=n / 10) for n in range(BUFFER)]
    formed += [reflection(f"later{n}", at=BUFFER + n) for n in range(5)]
    formed += [reflection(f"read-in{n}", at=BUFFER + 10 + n, said=BUFFER / 10 + n) for n in range(5)]
    await apply(store, [delivered(one) for one in formed])
    await apply(store, [delivered(blob(1, [f"r{n}" for n in range(7)]))])
    found = [one.reflection_id for one in (await snapshot(database, USER.key)).buffer]
    assert found[-7:] == [*(f"read-in{n}" for n in range(5)), "later0", "later1"]


async def test_changed_facts_are_found_by_the_revision_that_wrote_them(database: Database) -> None:
    store = store_of(database)
    await apply(store, [delivered(fact("a", text="a")), delivered(fact("b", text="b"))])
    known = (await snapshot(database, USER.key)).revision
    await apply(store, [delivered(fact("b", 2, "b, and more"))])
    since = {"scope_key": USER.key, "revision": {"$gt": known}}
    assert [row["_id"] for row in await database["memory_facts"].find(since).to_list()] == ["b"]


async def test_the_snapshots_time_is_that_of_the_newest_record(database: Database) -> None:
    store = store_of(database)
    await apply(store, [delivered(fact("a"), at=50)])
    await apply(store, [delivered(fact("b", text="b"), at=20)])
    assert (await snapshot(database, USER.key)).changed_at == minute(50)
    assert len(await all_of(database, Fact)) == 2


OPEN_TRANSACTION = """
import asyncio, sys
from eden_memory.mongo.client import connect
from eden_memory.settings import MongoSettings

async def main(uri, name):
    async with connect(uri) as client, client.start_session() as session:
        await session.start_transaction()
        snapshots = client[name]["memory_snapshots"]
        await snapshots.update_one({}, {"$set": {"revision": 99}}, session=session)
        print("open", flush=True)
        await asyncio.sleep(600)

asyncio.run(main(*sys.argv[1:]))
"""


def _kill_in_the_middle(*arguments: str) -> None:
    with Popen([sys.executable, "-c", OPEN_TRANSACTION, *arguments], stdin=PIPE, stdout=PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"open\n"
        process.kill()


async def test_what_a_killed_writer_left_open_is_ended_and_written_over(
    database: Database, servers: TestServers
) -> None:
    await apply(store_of(database), [delivered(fact("f"))])
    await asyncio.to_thread(_kill_in_the_middle, servers.mongodb_uri, database.name)
    async with asyncio.timeout(30):  # the server itself would keep it for 60 s
        await apply(store_of(database), [delivered(fact("g", text="g"))])
    assert (await snapshot(database, USER.key)).revision == 2
