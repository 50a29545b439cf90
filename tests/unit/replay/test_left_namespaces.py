"""Namespaces that were begun and left: people are told of those in which what is forgotten stays."""

from datetime import UTC, datetime
from typing import Literal

from eden_memory.doctor.mongodb_checks import judge_namespaces
from eden_memory.names import Placement
from eden_memory.replay.namespaces.namespace_store import neglected
from eden_memory.schemas.documents import Namespace


def namespace(name: str, state: Literal["filling", "caught_up", "dropped"]) -> Namespace:
    return Namespace(
        id=name,
        kind="reform",
        prefix=f"memory_ns_{name}_",
        group=f"atlas-writer.{name}",
        source="memory_",
        pipeline=name,
        state=state,
        created_at=datetime.now(UTC),
    )


def rebuild(name: str, pipeline: str, state: Literal["filling", "caught_up"] = "filling") -> Namespace:
    return namespace(name, state).model_copy(update={"kind": "rebuild", "pipeline": pipeline})


def test_what_is_left_in_the_middle_is_no_finding_as_what_is_forgotten_leaves_it() -> None:
    there = [namespace("trial", "filling"), rebuild("may", "original"), namespace("june", "caught_up")]
    there += [rebuild("july", "june"), rebuild("august", "trial"), namespace("gone", "dropped")]
    left = neglected(Placement(), there, ())
    assert left == []
    assert judge_namespaces(Placement(), left).state == "ok"


def test_a_reform_that_is_not_restored_is_named_with_what_to_do() -> None:
    left = neglected(Placement(), [namespace("trial", "filling"), rebuild("may", "original")], {"trial"})
    found = judge_namespaces(Placement(), left)
    assert (found.state, "trial" in found.what, "may" in found.what) == ("warn", True, False)
    assert "`eden reform trial` goes on" in found.hint
    assert "`eden namespace drop trial` removes it" in found.hint


def test_a_half_rebuild_of_a_pipeline_that_nobody_forgets_in_is_named() -> None:
    dropped = namespace("trial", "dropped")
    assert [one.id for one in neglected(Placement(), [dropped, rebuild("may", "trial")], ())] == ["may"]
    whole = [dropped, rebuild("may", "trial"), rebuild("june", "trial", "caught_up")]
    assert neglected(Placement(), whole, ()) == []
