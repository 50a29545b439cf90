"""Namespaces that were begun and left: people are told of them, as what is forgotten stays there."""

from datetime import UTC, datetime
from typing import Literal

from eden_memory.doctor.mongodb import judge_namespaces
from eden_memory.domain.placement import Placement
from schemas.documents import Namespace


def namespace(name: str, state: Literal["filling", "caught_up", "dropped"]) -> Namespace:
    return Namespace(
        id=name,
        kind="reform",
        prefix=f"memory_ns_{name}_",
        group=f"atlas-writer.{name}",
        source="memory_",
        pipeline=name,
        places=(),
        state=state,
        created_at=datetime.now(UTC),
    )


def test_what_is_kept_true_or_gone_is_no_finding() -> None:
    found = judge_namespaces(Placement(), [namespace("may", "caught_up"), namespace("june", "dropped")])
    assert found.state == "ok"


def test_what_was_begun_and_left_is_named_with_what_to_do() -> None:
    found = judge_namespaces(Placement(), [namespace("trial", "filling"), namespace("may", "caught_up")])
    assert (found.state, "trial" in found.what, "may" in found.what) == ("warn", True, False)
    assert "`eden reform trial` goes on" in found.hint
    assert "`eden namespace drop trial` removes it" in found.hint
