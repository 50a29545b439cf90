"""What the program stores in MongoDB is what the document schemas say."""

from datetime import UTC, datetime
from typing import Any

import pytest

from eden_memory.mongo.leases import MongoLease
from eden_memory.schemas.documents import Document, Lease, Outcome, Position
from eden_memory.source.position_store import MongoPositions, TailerPosition
from eden_memory.stages.outcome import StageOutcome as Decided
from eden_memory.stages.outcome import StoredRecord
from eden_memory.stages.outcome_store import MongoLedger
from tests.names import NAMES

pytestmark = pytest.mark.servers
NOW = datetime(2026, 3, 2, 9, 15, tzinfo=UTC)
VALUE = StoredRecord("memory.facts", b"agent:s.a", b"f@1", b"{}", (("ce_id", b"1"),))
TOMBSTONE = StoredRecord("memory.facts", b"agent:s.a", b"f@1", None, ())


async def stored(database: Any, kind: type[Document]) -> list[Document]:
    """Everything in the collection of a kind of document; a ValidationError if one is not what it should be."""
    found = await database["memory_" + kind.COLLECTION].find().to_list()
    return [kind.model_validate(one, strict=False) for one in found]


async def test_outcomes_are_stored_as_described(database: Any) -> None:
    ledger = MongoLedger(database, NAMES)
    full = Decided(
        "k1", "s", ("e1", "e2"), ("fact:f@1",), (VALUE, TOMBSTONE), "t", 0, 7, NOW, ("FactChanged",)
    )
    await ledger.store(full)
    await ledger.store(Decided("k2", "s", ("e3",), (), (), "t", 0, 9, NOW, dead="not JSON"))
    await ledger.store(Decided("k3", "s", ("e3#7",), (), (VALUE,), "t", 0, 9, NOW, retry_of="e3"))
    await database["memory_outcomes"].update_one({"_id": "k3"}, {"$set": {"records.0.unpublished": True}})
    await ledger.remove_consumed("s", "t", 0, 8)
    first, second, third = await stored(database, Outcome)
    assert isinstance(first, Outcome)
    assert isinstance(second, Outcome)
    assert isinstance(third, Outcome)
    assert (first.records, first.writes, first.kinds) == (None, ("fact:f@1",), ("FactChanged",))
    assert first.record_count == 2
    assert (second.records, second.dead) == ((), "not JSON")
    assert third.retry_of == "s:e3"
    again = (await ledger.find("s", ["e3#7"]))["e3#7"]
    assert (again.retry_of, again.records) == ("e3", ())


async def test_positions_are_stored_as_described(database: Any) -> None:
    positions = MongoPositions(database["memory_positions"], "app.messages", database["memory_leases"])
    await positions.claim(3)
    assert len(await stored(database, Position)) == 1
    reached = TailerPosition(
        token="8265", version="69a5555000000001", phase="backfill", page={"x": [1]}, read=12
    )
    await positions.save(3, reached)
    (saved,) = await stored(database, Position)
    assert isinstance(saved, Position)
    assert (saved.epoch, saved.version, saved.read) == (3, reached.version, 12)


async def test_leases_are_stored_as_described(database: Any) -> None:
    async with MongoLease(database["memory_leases"], "tailer", 5.0).held() as epoch:
        (held,) = await stored(database, Lease)
        assert isinstance(held, Lease)
        assert (held.id, held.epoch) == ("tailer", epoch)
