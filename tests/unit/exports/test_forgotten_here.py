"""Memory of an export that is forgotten where it is imported."""

from datetime import timedelta

from eden_memory.files.record_rules import ForgottenHere
from eden_memory.forgotten import Mark, Marks
from eden_memory.memory.memory_batch import Memory
from eden_memory.schemas.events import FactChanged
from tests.unit.memory.memory_histories import blob, fact, reflection, source

NOTHING = Marks()


def forgotten(number: int) -> Marks:
    """A message that somebody has forgotten here."""
    return Marks([Mark("message", f"i.{number}", "for_ever")])


def learned(marks: Marks, *events: Memory) -> ForgottenHere:
    found = ForgottenHere()
    for event in events:
        found.learn(event, marks)
    return found


def contradicted(name: str, by: str, message: int) -> FactChanged:
    retired = fact(name, 2, retired=True, sources=[source(message)])
    return retired.model_copy(update={"retired_because": "contradicted", "replaced_by": by})


def test_a_blob_goes_with_what_it_absorbed_and_with_it_all_later_versions() -> None:
    notes = [reflection(str(number), sources=[source(number)]) for number in range(3)]
    blobs = [blob(1, ["0"]), blob(2, ["1"]), blob(3, ["2"])]
    found = learned(forgotten(1), *notes, *blobs)
    assert [found.drops(note, NOTHING) for note in notes] == [False, True, False]
    assert [found.withdraws(version) for version in blobs] == [False, True, True]


def test_every_version_of_a_fact_goes_that_rests_on_something_forgotten() -> None:
    gone = [fact("a", 2, sources=[source(1)]), fact("a", sources=[source(1)])]
    merged = [fact("b", 2, sources=[source(1), source(2)]), fact("b", sources=[source(2)])]
    found = learned(forgotten(1), *gone, *merged)
    assert [found.drops(event, forgotten(1)) for event in (*gone, *merged)] == [True, True, True, True]


def test_a_fact_holds_again_that_only_a_forgotten_one_had_contradicted() -> None:
    retired = contradicted("old", "new", 2)
    found = learned(forgotten(1), fact("new", sources=[source(1)]), retired, fact("old", sources=[source(2)]))
    assert found.drops(retired, NOTHING)
    assert not found.drops(fact("old", sources=[source(2)]), NOTHING)


def test_it_stays_retired_where_a_later_fact_contradicts_it_too() -> None:
    middle, retired = contradicted("new", "newest", 1), contradicted("old", "new", 2)
    found = learned(forgotten(1), middle, retired, fact("newest", sources=[source(3)]))
    assert not found.drops(retired, NOTHING)


def test_facts_that_contradict_one_another_in_a_ring_end() -> None:
    ring = [contradicted("a", "b", 1), contradicted("b", "a", 1), contradicted("c", "a", 2)]
    assert learned(forgotten(1), *ring).drops(ring[2], NOTHING)


def test_what_was_said_after_a_session_was_forgotten_stays() -> None:
    until = source(10).time + timedelta(seconds=1)
    marks = Marks([Mark("session", "s.one", "created_up_to", until=until)])
    found = learned(marks, reflection("early", sources=[source(1)]), reflection("late", sources=[source(99)]))
    assert found.reflections == {"early"}
