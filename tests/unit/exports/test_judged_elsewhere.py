"""Which reflections of an export propagation need not judge again."""

from eden_memory.files.record_rules import ForgottenHere, JudgedElsewhere
from eden_memory.memory.memory_batch import Memory
from eden_memory.schemas.events import Propagated, ReflectionFormed
from eden_memory.schemas.scopes import Scope
from tests.unit.memory.memory_histories import NOON, blob, reflection

ANN = Scope.of_user("s.helper", "s.ann")
CREW = Scope.of_group("s.helper", "s.crew")


def made(of: str, version: int = 1, *, ended: bool = False) -> ReflectionFormed:
    """The reflection of the crew that was propagated from one of ann's."""
    changes = {
        "origin": "propagated",
        "propagated_from": Propagated(reflection_id=of, scope=ANN),
        "version": version,
        "retired_at": NOON if ended else None,
    }
    return reflection(f"from-{of}", scope=CREW).model_copy(update=changes)


def judged(*events: Memory, held: Scope | None = None) -> list[str]:
    found = JudgedElsewhere(ForgottenHere())
    for event in events:
        found.learn(event, held=event.scope == held)
    return found.ids


def test_what_published_blobs_absorbed_and_what_went_up_is_not_judged_again() -> None:
    assert judged(blob(1, ["a", "b"], scope=ANN), made("b"), made("c")) == ["a", "b", "c"]


def test_a_scope_that_takes_no_records_leaves_the_judging_to_propagation() -> None:
    assert judged(blob(1, ["a"], scope=ANN), held=ANN) == []
    assert judged(blob(1, ["a", "b"], scope=ANN), made("b"), held=CREW) == ["a"]


def test_what_somebody_retired_after_it_went_up_does_not_go_up_again() -> None:
    events = [blob(1, ["a"], scope=ANN), made("a", 2, ended=True), made("a")]
    assert judged(*events, held=CREW) == ["a"]
