"""The requests by which a person takes an item out of shared memory, and gives it back to its user."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from eden_memory.memory.user_memory_store import TAKEN_BACK, SharedItem, taken_back
from eden_memory.schemas.provenance import SourceMessage
from eden_memory.schemas.scopes import Scope
from tests.unit.source.mappings import change, mapped

NOON = datetime(2026, 2, 2, 12, tzinfo=UTC)
SOURCE = SourceMessage(
    message_id="s.m",
    version="0000000000000001",
    session_id="s.1",
    user_id="s.dora",
    time=NOON,
    participants=1,
)


def shared(kind: Any, *, absorbed: bool = False) -> SharedItem:
    agent = Scope.of_agent("s.a")
    return SharedItem(
        kind, "x1", agent, "The spare key is here.", NOON, ("s.1",), ("s.dora",), absorbed, (SOURCE,)
    )


@pytest.mark.parametrize(("kind", "gives"), [("fact", "add"), ("reflection", "add_reflection")])
def test_an_item_is_retired_as_a_correction_and_given_to_its_user(kind: str, gives: str) -> None:
    retired, given = taken_back(shared(kind), "ann", move=True)
    assert (retired["reason"], retired["asked_by"]) == (TAKEN_BACK, "ann")
    assert retired["action"].startswith("retire")
    assert (given["action"], given["scope"]["key"]) == (gives, "user:s.a:s.dora")
    (carried,) = mapped(change(1, "insert", given, collection="memory_inbox")).records
    assert carried.value is not None
    assert [source["message_id"] for source in json.loads(carried.value)["sources"]][1:] == ["s.m"]
    assert len(taken_back(shared(kind), None, move=False)) == 1
    again = taken_back(shared(kind), "ann", move=True)
    assert again[1]["_id"] == given["_id"], "asked for twice, it is given once"


def test_a_reflection_that_a_blob_has_absorbed_is_forgotten() -> None:
    (forgotten,) = taken_back(shared("reflection", absorbed=True), None, move=False)
    assert (forgotten["kind"], forgotten["what"], forgotten["target"]) == ("forget", "reflection", "x1")
