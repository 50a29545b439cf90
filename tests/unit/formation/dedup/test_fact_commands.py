"""Commands on facts: carried out without a model, in order with proposals."""

from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import quote

import pytest

from eden_memory.forgotten import Mark
from eden_memory.memory.projection import undo_id
from eden_memory.schemas.events import FactChanged, FactCommanded, FactsProposed
from eden_memory.stages.stage import Delivery, Erase
from tests.unit.formation.dedup.dedup_kit import ANA, Bench, at, command, embedded, proposal, source

LYON = "Ana lives in Lyon"
DOG = "The dog of Ben is called Rex"


async def one_fact(kit: Bench, text: str = LYON) -> FactChanged:
    (fact,) = await kit.decide(proposal("one", text))
    kit.memory.apply()
    return fact


async def test_an_added_text_becomes_a_fact() -> None:
    kit = Bench()
    (fact,) = await kit.decide(command("c", "add", text=LYON, sources=(source("m"),), expires_at=at(60)))
    assert (fact.text, fact.decision, fact.expires_at) == (LYON, "ADD", at(60))
    assert fact.statement
    assert fact.statement.sources == fact.sources == (source("m"),)
    assert fact.command
    assert (fact.command.command_id, fact.command.by) == ("s.c", "person")


async def test_an_added_text_that_is_known_changes_nothing_or_adds_its_sources() -> None:
    kit = Bench()
    fact = await one_fact(kit)
    assert await kit.decide(command("c", "add", text="ana lives in lyon!")) == []
    (joined,) = await kit.decide(command("d", "add", text=LYON, sources=(source("m"),)))
    assert (joined.fact_id, joined.version, len(joined.sources)) == (fact.fact_id, 2, 2)


@pytest.mark.parametrize("marked", [False, True])
async def test_words_that_outlive_an_undone_attack_are_a_fact_before_forgetting_has_marked_it_too(
    marked: bool,
) -> None:
    kit = Bench()
    fact = await one_fact(kit)
    await kit.decide(command("c", "edit", fact_id=fact.fact_id, text=DOG))
    doomed = Mark("fact", fact.fact_id, "for_ever")
    if marked:
        kit.memory.forgotten.append(doomed)
    add = command(quote(undo_id("session:s.bad", fact.fact_id, 2)), "add", text=DOG, private=True, minutes=1)
    *retired, added = await kit.decide(add)
    assert [(event.fact_id, event.retired_because) for event in retired] == (
        [] if marked else [(fact.fact_id, "asked")]
    )
    assert (added.fact_id != fact.fact_id, added.text, added.private) == (True, DOG, True)
    kit.memory.forgotten = [doomed]
    assert await kit.decide(add) == [], "it stands"


async def test_words_that_were_edited_since_an_undo_was_asked_for_are_left_to_the_next_one() -> None:
    kit = Bench()
    fact = await one_fact(kit)
    await kit.decide(command(quote(undo_id("session:s.bad", fact.fact_id, 1)), "add", text=DOG))
    assert kit.memory.texts() == [LYON, DOG]


async def test_an_edited_fact_says_something_else_from_then_on() -> None:
    kit = Bench()
    fact = await one_fact(kit)
    (event,) = await kit.decide(command("c", "edit", fact_id=fact.fact_id, text=DOG, minutes=5))
    assert (event.text, event.version, event.decision, event.reason) == (DOG, 2, "EDIT", "as asked")
    assert event.embedding == embedded(DOG)
    assert (event.statement, event.sources, event.valid_from) == (None, fact.sources, at(5))
    assert await kit.decide(command("d", "edit", fact_id=fact.fact_id, text=DOG)) == []
    (again,) = await kit.decide(proposal("two", DOG))
    assert (again.fact_id, again.version) == (fact.fact_id, 3)


async def test_a_fact_edited_to_what_is_known_already_ends_as_its_duplicate() -> None:
    kit = Bench()
    fact = await one_fact(kit)
    (other,) = await kit.decide(proposal("two", DOG))
    joined, retired = await kit.decide(command("c", "edit", fact_id=fact.fact_id, text=f"{DOG}."))
    assert (joined.fact_id, len(joined.sources)) == (other.fact_id, 2)
    assert (retired.fact_id, retired.retired_because, retired.replaced_by) == (
        fact.fact_id,
        "duplicate",
        other.fact_id,
    )
    assert kit.memory.texts() == [DOG]


async def test_a_mark_is_a_version_that_says_the_same_and_can_be_taken_away() -> None:
    kit = Bench()
    fact = await one_fact(kit)
    (marked,) = await kit.decide(command("c", "mark", fact_id=fact.fact_id, private=True, minutes=5))
    assert (marked.private, marked.version, marked.decision, marked.reason) == (True, 2, "MARK", "as asked")
    same = {"text", "hash", "embedding", "sources", "valid_from", "expires_at", "retired_at"}
    assert marked.model_dump(include=same) == fact.model_dump(include=same)
    assert await kit.decide(command("d", "mark", fact_id=fact.fact_id, private=True)) == []
    (edited,) = await kit.decide(command("e", "edit", fact_id=fact.fact_id, text=DOG))
    (joined,) = await kit.decide(proposal("two", DOG))
    assert (edited.private, joined.private) == (True, True), "every later version keeps it"
    (open_again,) = await kit.decide(command("f", "mark", fact_id=fact.fact_id, private=False))
    assert (open_again.private, open_again.version) == (False, 5)
    await kit.decide(command("g", "retire", fact_id=fact.fact_id))
    assert await kit.decide(command("h", "mark", fact_id=fact.fact_id, private=True)) == []


async def test_a_private_fact_that_ends_as_a_duplicate_hands_its_mark_on() -> None:
    kit = Bench()
    fact = await one_fact(kit)
    (other,) = await kit.decide(proposal("two", DOG))
    await kit.decide(command("c", "mark", fact_id=fact.fact_id, private=True))
    joined, retired = await kit.decide(command("d", "edit", fact_id=fact.fact_id, text=DOG))
    assert (joined.fact_id, joined.private) == (other.fact_id, True)
    assert (retired.retired_because, retired.private) == ("duplicate", True)


async def test_a_text_may_be_added_as_private_and_marks_the_fact_that_says_it_already() -> None:
    kit = Bench()
    (added,) = await kit.decide(command("c", "add", text=DOG, private=True))
    assert added.private
    fact = await one_fact(kit)
    (joined,) = await kit.decide(command("d", "add", text=LYON, private=True))
    assert (joined.fact_id, joined.private, joined.version) == (fact.fact_id, True, 2)


@pytest.mark.parametrize(
    ("by", "because"),
    [("person", "asked"), ("expiry", "expired"), ("limit", "limit")],
)
async def test_a_retired_fact_says_why(by: str, because: str) -> None:
    kit = Bench()
    fact = await one_fact(kit)
    (event,) = await kit.decide(command("c", "retire", fact_id=fact.fact_id, by=by, minutes=5))
    assert (event.retired_because, event.retired_at, event.embedding) == (because, at(5), None)
    assert (event.text, event.decision, event.version) == (LYON, "RETIRE", 2)
    assert await kit.decide(command("d", "retire", fact_id=fact.fact_id)) == []
    (new,) = await kit.decide(proposal("two", LYON))
    assert new.fact_id != fact.fact_id, "what was retired may be stated anew"


async def test_a_fact_is_given_a_vector_of_the_model_in_use_and_of_no_other() -> None:
    kit = Bench()
    fact = await one_fact(kit)
    kit.embedder.model = "better"
    ask: dict[str, Any] = {"fact_id": fact.fact_id, "embedding_model": "better", "by": "model_change"}
    third: dict[str, Any] = ask | {"embedding_model": "third"}
    assert await kit.decide(command("c", "reembed", **third)) == []
    (event,) = await kit.decide(command("d", "reembed", **ask))
    assert event.embedding == embedded(LYON, "better")
    assert (event.text, event.hash, event.decision) == (LYON, fact.hash, "REEMBED")
    assert await kit.decide(command("e", "reembed", **ask)) == []
    assert kit.counts == {"ADD": 1, "other_model": 1, "REEMBED": 1, "needless": 1}


def dated(name: str, moment: datetime) -> Delivery:
    """A formation's fact that tells when it happened."""
    told = proposal(name, "Ana moved to Lyon on 1 January 2026")
    assert isinstance(told.event, FactsProposed)
    (stated,) = told.event.facts
    facts = (stated.model_copy(update={"occurred_at": moment}),)
    return told._replace(event=told.event.model_copy(update={"facts": facts}))


async def test_a_fact_that_is_said_again_learns_when_it_happened_and_keeps_the_time() -> None:
    kit, moment = Bench(), datetime(2026, 1, 1, tzinfo=UTC)
    await one_fact(kit, "Ana moved to Lyon on 1 January 2026")
    (joined,) = await kit.decide(dated("two", moment))
    kit.memory.apply()
    (again,) = await kit.decide(dated("three", moment + timedelta(hours=1)))
    assert (joined.decision, again.decision) == ("NONE", "NONE")
    assert joined.occurred_at == again.occurred_at == moment


async def test_a_fact_with_a_new_vector_keeps_when_it_happened() -> None:
    kit, stored = Bench(), datetime(2025, 12, 31, 22, 30, tzinfo=UTC)
    (fact,) = await kit.decide(dated("one", stored))
    kit.memory.apply()
    kit.embedder.model = "better"
    again = command("c", "reembed", fact_id=fact.fact_id, embedding_model="better", by="model_change")
    (embedded_again,) = await kit.decide(again)
    assert fact.occurred_at == embedded_again.occurred_at == stored
    (said_otherwise,) = await kit.decide(command("d", "edit", fact_id=fact.fact_id, text=LYON))
    assert said_otherwise.occurred_at is None


async def test_a_command_for_another_version_is_not_carried_out() -> None:
    kit = Bench()
    fact = await one_fact(kit)
    name = fact.fact_id
    assert await kit.decide(command("c", "edit", text=DOG, fact_id=name, expected_version=2)) == []
    assert await kit.decide(command("d", "retire", fact_id="unknown", expected_version=2)) == []
    assert kit.counts == {"ADD": 1, "stale": 1, "unknown": 1}
    (event,) = await kit.decide(command("e", "edit", text=DOG, fact_id=name, expected_version=1))
    assert event.version == 2


async def test_a_fact_that_was_retired_as_a_duplicate_of_a_forgotten_one_holds_again() -> None:
    kit = Bench()
    first, second = [
        (await kit.decide(command(name, "add", text=text, sources=(source(message),))))[0]
        for name, text, message in (("a", LYON, "m1"), ("b", DOG, "m2"))
    ]
    edited = await kit.decide(command("c", "edit", text=LYON, fact_id=second.fact_id))
    assert [event.retired_because for event in edited if event.fact_id == second.fact_id] == ["duplicate"]
    kit.memory.forgotten.append(Mark("message", source("m1").message_id, "for_ever"))
    (again,) = await kit.decide(command("d", "unmerge", fact_id=second.fact_id, by="forgetting"))
    assert (again.fact_id, again.decision, again.retired_at) == (second.fact_id, "UNMERGE", None)
    assert first.fact_id != second.fact_id


async def test_the_text_of_a_command_ends_with_a_decision_that_it_leads_to_nothing() -> None:
    kit = Bench()
    fact = await one_fact(kit)
    stale = command("c", "edit", text=DOG, fact_id=fact.fact_id, expected_version=2)
    repeated = command("d", "add", text=LYON)
    for delivery in (stale, repeated):
        (ended,) = (await kit.handler()([delivery])).events
        assert isinstance(ended, Erase)
        assert (ended.of, ended.key) == (FactCommanded, delivery.key)


async def test_a_command_reaches_no_fact_of_another_scope() -> None:
    kit = Bench()
    fact = await one_fact(kit)
    ben = ANA.of_user("s.agent", "s.ben")
    assert await kit.decide(command("c", "retire", fact_id=fact.fact_id, scope=ben)) == []
    assert kit.memory.texts() == [LYON]


async def test_nothing_joins_a_fact_of_which_a_source_is_forgotten() -> None:
    kit = Bench()
    (fact,) = await kit.decide(proposal("one", (LYON, ["a", "b"])))
    assert await kit.decide(command("c", "unmerge", fact_id=fact.fact_id)) == [], "nothing is forgotten"
    kit.memory.forgotten.append(Mark("message", "s.a", "for_ever"))
    assert await kit.decide(command("d", "edit", text=DOG, fact_id=fact.fact_id)) == []
    (event,) = await kit.decide(proposal("two", (LYON, ["c"])))
    assert (event.fact_id != fact.fact_id, [source.message_id for source in event.sources]) == (True, ["s.c"])


@pytest.mark.parametrize("applied", [None, 0], ids=["in the store", "decided only"])
async def test_the_younger_of_two_equal_facts_ends_and_leaves_its_sources_to_the_older(
    applied: int | None,
) -> None:
    kit = Bench()
    older = await one_fact(kit)
    (event,) = await kit.decide(proposal("two", DOG))
    younger = event.model_copy(update={"text": LYON, "hash": older.hash, "formed_at": at(9)})
    kit.memory.decisions[ANA.key][-1] = [younger]
    kit.memory.apply(to=applied)
    ask: dict[str, Any] = {"fact_id": younger.fact_id, "by": "duplicate"}
    joined, retired = await kit.decide(command("c", "retire", **ask))
    assert (joined.fact_id, len(joined.sources)) == (older.fact_id, 2)
    assert (retired.fact_id, retired.retired_because) == (younger.fact_id, "duplicate")
    assert retired.replaced_by == older.fact_id
    assert kit.memory.texts() == [LYON]


async def test_a_fact_is_no_duplicate_of_one_that_has_ended_meanwhile() -> None:
    kit = Bench()
    fact = await one_fact(kit)
    assert await kit.decide(command("c", "retire", fact_id=fact.fact_id, by="duplicate")) == []
    assert kit.memory.texts() == [LYON]
    assert kit.counts["needless"] == 1


async def test_of_two_facts_that_say_the_same_one_takes_over_the_sources_of_the_other() -> None:
    kit = Bench()
    fact = await one_fact(kit)
    (other,) = await kit.decide(proposal("two", DOG))
    merge = command("c", "retire", fact_id=other.fact_id, replaced_by=fact.fact_id)
    joined, retired = await kit.decide(merge)
    assert (joined.fact_id, joined.text) == (fact.fact_id, LYON)
    assert joined.sources == (*fact.sources, *other.sources)
    assert (retired.fact_id, retired.retired_because) == (other.fact_id, "duplicate")
    assert retired.replaced_by == fact.fact_id
    assert kit.memory.texts() == [LYON]


async def test_a_fact_stays_if_the_one_that_is_to_take_its_place_is_gone() -> None:
    kit = Bench()
    fact = await one_fact(kit)
    (other,) = await kit.decide(proposal("two", DOG))
    await kit.decide(command("c", "retire", fact_id=fact.fact_id))
    assert await kit.decide(command("d", "retire", fact_id=other.fact_id, replaced_by=fact.fact_id)) == []
    assert kit.memory.texts() == [DOG]
