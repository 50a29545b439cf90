"""What makes two documents the same, and names that cannot reach live memory."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eden_memory.errors import EdenError
from eden_memory.names import MEMORY
from eden_memory.replay.namespaces.namespace_store import prefix_of
from eden_memory.replay.rebuild.document_comparing import (
    NOT_CONTENT,
    ComparedMemories,
    difference,
    says_something,
)
from eden_memory.schemas.documents import DOCUMENTS

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5) | st.binary(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)
ROWS = st.dictionaries(st.sampled_from(["_id", "content", "history", *NOT_CONTENT]), VALUES)
LIVE = "memory_"


@given(ROWS)
def test_neither_the_order_of_fields_nor_what_is_not_content_is_a_difference(row: dict[str, Any]) -> None:
    other = dict(reversed(row.items())) | dict.fromkeys(NOT_CONTENT, "anything")
    assert difference("facts", "f", row, other) is None


@given(ROWS, ROWS)
def test_a_difference_names_what_differs_and_is_found_from_either_side(
    live: dict[str, Any], rebuilt: dict[str, Any]
) -> None:
    found, back = difference("facts", "f", live, rebuilt), difference("facts", "f", rebuilt, live)
    named = {one.name for one in (found.fields if found else ())}
    assert named == {one.name for one in (back.fields if back else ())}
    assert not NOT_CONTENT & named
    assert difference("facts", "f", live, live) is None


def test_what_is_equal_leaves_nothing_behind_and_what_becomes_equal_is_taken_back() -> None:
    compared = ComparedMemories()
    for number in range(1_000):
        compared.take("facts", f"f-{number}", {"content": number}, {"content": number})
    assert (compared.counts["facts"], compared.differing) == (1_000, {})
    compared.take("facts", "f", {"content": 1}, None)
    compared.take("facts", "g", {"content": 1}, {"content": 1.0})
    assert {name: found.what for (_, name), found in compared.differing.items()} == {
        "f": "missing",
        "g": "other",
    }
    compared.again("facts", "f", {"content": 1}, {"content": 1})
    assert [*compared.differing] == [("facts", "g")]


@given(st.from_regex(r"[a-z][a-z0-9-]{0,31}", fullmatch=True).filter(lambda name: name != "live"))
def test_no_collection_of_a_namespace_is_a_live_one(name: str) -> None:
    prefix = prefix_of(LIVE, name)
    mine = {prefix + short for short in MEMORY}
    assert not mine & {LIVE + kind.COLLECTION for kind in DOCUMENTS}


@pytest.mark.parametrize("name", ["live", "", "a_b", "A", "1a", "a.b", "a$", "a" * 33, "facts_"])
def test_a_name_that_could_be_mistaken_is_refused(name: str) -> None:
    with pytest.raises(EdenError, match="cannot name a namespace"):
        prefix_of(LIVE, name)


def test_only_a_snapshot_without_anything_in_it_says_nothing() -> None:
    empty: dict[str, Any] = {
        "_id": "user:s.a:s.u",
        "recent_facts": [],
        "buffer": [],
        "blob": None,
        "applied": 3,
    }
    assert not says_something(empty)
    assert says_something({**empty, "buffer": [{"reflection_id": "r"}]})
    assert not says_something({**empty, "highest_blob_version": 1}), "compaction leaves the tombstone alone"
    assert says_something({"_id": "f1", "content": ""})
