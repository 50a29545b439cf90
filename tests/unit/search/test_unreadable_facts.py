"""A stored fact that cannot be read is left out of its scope, counted and named; the others are found."""

from datetime import datetime
from typing import Any

import bson
import pytest
from prometheus_client import REGISTRY

from eden_memory.search.fact_candidates import cached_candidate, cached_facts

WHOLE: dict[str, Any] = {
    "scope_key": "user:s.a:s.ada",
    "content": "Ada likes tea.",
    "formed_at": datetime(2026, 1, 1),
    "said_at": datetime(2026, 1, 1),
    "valid_from": datetime(2026, 1, 1),
    "version": 1,
    "active": True,
    "revision": 1,
}
BROKEN: list[dict[str, Any]] = [
    *({name: None} for name in ("content", "formed_at", "valid_from", "version")),
    {"content": 5},
    {"scope_key": "agent:s.a", "sources": 5},
    {"scope_key": "agent:s.a", "sources": [5]},
    {"scope_key": 5},
    {"expires_at": "soon"},
    {"embedding": ["x"], "embedding_model": "m"},
]


def left_out() -> float:
    return REGISTRY.get_sample_value("eden_unreadable_documents_total", {"document": "fact"}) or 0


@pytest.mark.parametrize("broken", BROKEN, ids=str)
def test_a_broken_fact_costs_no_other_its_place(broken: dict[str, Any]) -> None:
    before = left_out()
    rows = [{"_id": "f1", **WHOLE}, {"_id": "f2", **WHOLE, **broken}, {"_id": "f3", **WHOLE}]
    facts = cached_facts(b"".join(map(bson.encode, rows)), "m")
    assert facts["f2"] is None, "an earlier version of it leaves, too"
    for name in ("f1", "f3"):
        fact = facts[name]
        assert fact is not None
        assert cached_candidate(name, "user:s.a:s.ada", fact.document, None).text == "Ada likes tea."
    assert left_out() == before + 1


def test_a_fact_that_lacks_its_switch_is_left_out() -> None:
    lacking = {name: value for name, value in WHOLE.items() if name != "active"}
    assert cached_facts(bson.encode({"_id": "f1", **lacking}), "m") == {"f1": None}
