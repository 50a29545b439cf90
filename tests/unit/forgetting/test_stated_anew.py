"""What is left of a merged fact when a part of what it was merged from is forgotten."""

import pytest

from eden_memory.forgetting.forgetting_rules import Resting, gone, stated_anew, takes_its_place
from eden_memory.forgotten import Mark, Marks
from eden_memory.memory.memory_batch import statement_of
from eden_memory.memory.projection import MOST_ALIKE
from eden_memory.schemas.documents import FactStatement
from eden_memory.schemas.events import FactCommanded, Forgotten
from eden_memory.schemas.provenance import Statement
from tests.unit.memory.memory_histories import USER, fact, minute, source

FORGOTTEN = Forgotten(
    kind="message", id="i.1", reach="for_ever", because="asked", asked_by=None, forgotten_at=minute(30)
)
MARKS = Marks([Mark("message", "i.1", "for_ever")])


def said(version: int, text: str, *messages: int) -> FactStatement:
    return FactStatement(version=version, text=text, sources=tuple(map(source, messages)))


def merged(*statements: FactStatement) -> Resting:
    sources = tuple(source for statement in statements for source in statement.sources)
    return Resting("fact", "f", USER, sources, minute(0), versions=len(statements), statements=statements)


def left(fact: Resting, marks: Marks = MARKS, *, decides: bool = True) -> list[FactCommanded]:
    return stated_anew(FORGOTTEN, gone([fact], marks), marks, lambda _: decides)


def test_the_only_other_statement_comes_back_word_for_word_without_a_model() -> None:
    (command,) = left(merged(said(1, "Ana lives in Porto.", 1), said(2, "Ana rows.", 2)))
    assert (command.text, command.sources, command.decide) == ("Ana rows.", (source(2),), False)
    assert command.said_at == source(2).said_at


def test_a_text_that_was_added_without_a_message_keeps_its_time() -> None:
    added = fact("f", text="Ana rows.", at=3, sources=[])
    joined = fact("f", 2, "Ana lives in Porto and rows.", at=5, sources=[source(1)])
    joined = joined.model_copy(
        update={"statement": Statement(number=1, text="Ana lives in Porto.", sources=(source(1),))}
    )
    statements = [said for event in (added, joined) if (said := statement_of(event)) is not None]
    (command,) = left(merged(*statements))
    assert (command.text, command.said_at) == ("Ana rows.", added.said_at)
    assert statements[1].said_at is None, "its source tells"


def test_statements_that_say_the_same_need_no_model_and_different_ones_do() -> None:
    same = merged(said(1, "Ana rows!", 1), said(2, "Ana rows.", 2), said(3, "ana rows", 3))
    assert [command.decide for command in left(same)] == [False, False]
    other = merged(said(1, "Ana rows!", 1), said(2, "Ana rows.", 2), said(3, "Ana swims.", 3))
    assert [command.decide for command in left(other)] == [True, True]
    assert [command.decide for command in left(other, decides=False)] == [False, False]


def test_of_many_statements_that_say_the_same_the_newest_are_stated_anew() -> None:
    same = [said(version, "Ana rows.", version) for version in range(1, 100)]
    commands = left(merged(*same, said(100, "Ana swims.", 100)))
    numbers = [int(command.command_id.rpartition("/")[2]) for command in commands]
    assert numbers == list(range(100 - MOST_ALIKE, 101))


def test_a_statement_that_names_the_message_among_others_goes_with_it() -> None:
    assert left(merged(said(1, "Ana rows.", 1, 2))) == []


@pytest.mark.parametrize("reach", ["user", "fact"])
def test_nothing_comes_back_of_what_is_meant_itself(reach: str) -> None:
    fact = merged(said(1, "Ana rows.", 1), said(2, "Ana rows.", 2))
    user = Marks([Mark("user", "i.4711", "created_up_to", until=minute(60))])
    assert left(fact, user if reach == "user" else Marks()) == []


def test_a_fact_that_it_had_contradicted_stays_contradicted_by_what_is_left() -> None:
    fact = merged(said(1, "Ana rows.", 2), said(2, "Ana rows.", 1))
    commands = left(fact)
    assert [command.command_id for command in commands] == ["restated/f/1"]
    assert takes_its_place(fact, commands) not in (None, "f")
    assert takes_its_place(fact, []) is None
