"""What is kept true beside live: who writes silently, and whose forgetting runs."""

from datetime import UTC, datetime
from typing import Literal

from hypothesis import given
from hypothesis import strategies as st

from eden_memory.names import Placement
from eden_memory.replay.namespaces.namespace_store import beside
from eden_memory.schemas.documents import Namespace

State = Literal["filling", "caught_up", "verified", "dropped"]
ORIGINAL = Placement()
MAY, JUNE = Placement("may"), Placement("june", "june")
JULY = Placement("july", "june")
ALL = (MAY, JUNE, JULY)


def document(placement: Placement, state: State = "caught_up") -> Namespace:
    return Namespace(
        id=placement.memory,
        kind="reform" if placement.memory == placement.pipeline else "rebuild",
        prefix="p",
        group="g",
        source="s",
        pipeline=placement.pipeline,
        state=state,
        created_at=datetime(2026, 1, 1, tzinfo=UTC),
    )


def test_a_rebuild_beside_the_original_is_written_silently_and_the_original_after_a_switch() -> None:
    assert beside(ORIGINAL, []).silent == ()
    assert beside(ORIGINAL, [document(MAY)]).silent == (MAY,)
    found = beside(MAY, [document(MAY)])
    assert (found.silent, found.forgetting) == ((ORIGINAL,), ())


def test_another_pipeline_has_one_forgetting_and_its_other_memories_silent_writers() -> None:
    found = beside(ORIGINAL, [document(JUNE), document(JULY)])
    assert (found.silent, found.forgetting) == ((JULY,), (JUNE,))
    found = beside(JUNE, [document(MAY), document(JUNE), document(JULY)])
    assert (found.silent, found.forgetting) == ((JULY, MAY), (ORIGINAL,))


def test_a_pipeline_whose_first_memory_is_dropped_has_its_forgetting_with_another() -> None:
    found = beside(ORIGINAL, [document(JUNE, "dropped"), document(JULY)])
    assert (found.silent, found.forgetting) == ((), (JULY,))


def test_a_reform_left_in_the_middle_has_its_forgetting_and_a_rebuild_only_what_is_forgotten() -> None:
    found = beside(ORIGINAL, [document(MAY, "filling"), document(JUNE, "filling"), document(JULY)])
    assert (found.silent, found.forgetting, found.sweeping) == ((JULY,), (JUNE,), (MAY,))
    found = beside(JULY, [document(JUNE, "filling"), document(JULY)])
    assert (found.silent, found.forgetting) == ((JUNE,), (ORIGINAL,))


@given(
    st.sampled_from((ORIGINAL, *ALL)),
    st.lists(
        st.tuples(
            st.sampled_from((ORIGINAL, *ALL)),
            st.sampled_from(("filling", "caught_up", "verified", "dropped")),
        ),
        unique_by=lambda one: one[0],
    ),
)
def test_whatever_there_is_each_is_kept_once_and_live_never(
    live: Placement, there: list[tuple[Placement, State]]
) -> None:
    found = beside(live, [document(*one) for one in there])
    ready = {one for one, state in there if state in ("caught_up", "verified")}
    half = {one for one, state in there if state == "filling"}
    assert set(found.sweeping) == {one for one in half if one.memory != one.pipeline}
    ready |= half - set(found.sweeping)
    ready |= {ORIGINAL} - {one for one, _ in there}
    assert sorted([*found.silent, *found.forgetting], key=str) == sorted(ready - {live}, key=str)
    pipelines = [one.pipeline for one in found.forgetting]
    assert len(set(pipelines)) == len(pipelines)
    assert live.pipeline not in pipelines
    assert {one.pipeline for one in found.silent} <= {live.pipeline, *pipelines}
