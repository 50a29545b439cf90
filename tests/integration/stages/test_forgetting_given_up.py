"""A part of forgetting that was given up keeps the receipt back, until a retry has carried it out."""

from typing import Any

import pytest

from eden_memory.names import Placement
from eden_memory.receipts.receipt import UndoRequest, requests_of
from eden_memory.receipts.receipt_store import erased_by
from eden_memory.schemas.ids import encode
from eden_memory.stages.outcome_store import MongoLedger
from tests.integration.stages.harness import NOON, Bench
from tests.names import NAMES

pytestmark = pytest.mark.servers


def outcome(member: str, **fields: Any) -> dict[str, Any]:
    row: dict[str, Any] = {"_id": member, "stage": "forgetting", "members": [f"forgetting:{member}"]}
    return {**row, "topic": "t", "partition": 0, "offset": 3, "at": NOON, "kinds": [], **fields}


async def erased(kit: Bench) -> list[str] | None:
    found = await erased_by(kit.database, NAMES, Placement(), ["e1"])
    return None if found is None else [erasure.id for erasure in found]


async def test_no_receipt_while_a_slice_is_a_dead_letter(kit: Bench) -> None:
    await MongoLedger(kit.database, NAMES).prepare()
    outcomes, erasures = kit.database[NAMES["outcomes"]], kit.database[NAMES["erasures"]]
    first = {"kind": "session", "target": "s.1", "forgotten_at": NOON, "leads_to": ["e1/after/fact/f"]}
    await erasures.insert_one({"_id": "e1", **first})
    again = {"retry_of": "forgetting:e1/after/fact/f"}
    await outcomes.insert_many([outcome("e1"), outcome("e1/after/fact/f", dead="BSONObjectTooLarge")])
    assert await erased(kit) is None
    await outcomes.insert_one(outcome("e1/after/fact/f#77", dead="again", **again))
    assert await erased(kit) is None
    await outcomes.insert_one(outcome("e1/after/fact/f#78", **again))
    assert await erased(kit) == ["e1"]
    await outcomes.update_one({"_id": "e1"}, {"$set": {"dead": "not published"}})
    assert await erased(kit) is None, "noted, but never published"


async def test_of_ten_million_requests_that_nobody_knows_a_few_are_looked_for(kit: Bench) -> None:
    await MongoLedger(kit.database, NAMES).prepare()
    roots = iter(requests_of(UndoRequest("call", 9_999_999, "a").request_id))
    assert await erased_by(kit.database, NAMES, Placement(), roots) is None
    assert next(roots) == encode("undo/call/9999999/a/#1000")
