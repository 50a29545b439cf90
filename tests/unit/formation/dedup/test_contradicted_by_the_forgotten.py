"""What becomes of facts whose contradiction is forgotten: found by forgetting, carried out by fact-dedup."""

from eden_memory.forgetting.forgetting_rules import Contradicted, taken_up_again
from eden_memory.schemas.events import FactCommanded, Forgotten
from tests.unit.formation.dedup.dedup_kit import ANA, at

FORGOTTEN = Forgotten(
    kind="message", id="s.m", reach="for_ever", because="asked", asked_by="ana", forgotten_at=at(900)
)


def fact(name: str, by: str, minutes: float, version: int = 1) -> Contradicted:
    return Contradicted(name, version, ANA, by, at(minutes))


def instead(commands: list[FactCommanded]) -> dict[str | None, str | None]:
    return {one.fact_id: one.replaced_by for one in commands}


def test_of_several_the_one_that_was_said_last_holds_again_and_contradicts_the_others() -> None:
    commands = taken_up_again(
        FORGOTTEN, {"new": None}, [fact("first", "new", 1), fact("third", "new", 3), fact("second", "new", 2)]
    )
    assert instead(commands) == {"third": None, "first": "third", "second": "third"}
    restored = commands[0]
    assert (restored.action, restored.by, restored.said_at, restored.expected_version) == (
        "unmerge",
        "forgetting",
        at(3),
        1,
    )
    assert restored.forgotten == (FORGOTTEN.key(),)


def test_what_contradicted_the_forgotten_fact_takes_its_place() -> None:
    old = fact("old", "middle", 1)
    assert instead(taken_up_again(FORGOTTEN, {"middle": "newest"}, [old])) == {"old": "newest"}
    both = {"middle": "next", "next": "newest"}
    assert instead(taken_up_again(FORGOTTEN, both, [old])) == {"old": "newest"}
    assert instead(taken_up_again(FORGOTTEN, {"middle": "next", "next": None}, [old])) == {"old": None}
    assert instead(taken_up_again(FORGOTTEN, {"middle": "next", "next": "middle"}, [old])) == {"old": None}


def test_what_several_forgotten_ones_contradicted_in_turn_is_one_chain() -> None:
    commands = taken_up_again(
        FORGOTTEN, {"middle": "last", "last": None}, [fact("first", "middle", 1), fact("late", "last", 2)]
    )
    assert instead(commands) == {"late": None, "first": "late"}


def test_a_fact_that_is_forgotten_itself_is_not_taken_up_again() -> None:
    assert taken_up_again(FORGOTTEN, {"new": None, "old": "new"}, [fact("old", "new", 1)]) == []


def test_the_same_version_of_a_fact_is_asked_for_once() -> None:
    first, again = (taken_up_again(FORGOTTEN, {"new": None}, [fact("old", "new", 1, 2)]) for _ in range(2))
    assert first == again
    assert first[0].command_id == "contradicted/old/2"
