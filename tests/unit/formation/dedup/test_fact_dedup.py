"""What fact-dedup decides on proposals, and what it asks for it."""

from collections.abc import Sequence

import pytest

from eden_memory.directory.participants import own_session
from eden_memory.errors import PermanentError
from eden_memory.forgotten import Mark
from eden_memory.formation.prompt_material import DecisionMaterial
from eden_memory.limits import MOST_SOURCES
from eden_memory.metrics import DEDUP
from eden_memory.models.judging import parsed
from eden_memory.processors import fact_dedup
from eden_memory.schemas.answers import FactDecision, FactDecisions
from eden_memory.schemas.documents import Stream
from eden_memory.schemas.ids import encode
from eden_memory.schemas.provenance import Embedding
from eden_memory.schemas.scopes import Scope
from tests.counted import Grown
from tests.unit.formation.dedup.dedup_kit import (
    ANA,
    Bench,
    Killed,
    ScriptedModel,
    at,
    command,
    proposal,
    said,
)

LYON = "Ana lives in Lyon"
PORTO = "Ana lives in Porto"
BEN = "Ben lives in Porto"
DOG = "The dog of Ben is called Rex"


def bench(*decisions: FactDecision) -> Bench:
    return Bench(model=ScriptedModel(lambda _: list(decisions)))


async def known(bench: Bench, *texts: str | tuple[str, Sequence[str]]) -> None:
    """Facts that the writer has applied."""
    await bench.decide(proposal("known", *texts))
    bench.memory.apply()
    bench.embedder.calls.clear()
    bench.grown = Grown(DEDUP)


async def test_facts_with_nothing_near_are_added_without_a_model() -> None:
    kit = Bench()
    lyon, dog = await kit.decide(proposal("one", LYON, DOG, minutes=3))
    assert (kit.model.asked, kit.embedder.calls) == ([], [[LYON, DOG]])
    assert (lyon.text, lyon.decision, lyon.version, lyon.outcome, lyon.call) == (LYON, "ADD", 1, 1, None)
    assert (lyon.formed_at, lyon.valid_from) == (at(3), at(3))
    assert [one.message_id for one in dog.sources] == ["s.one-2"]
    assert dog.statement
    assert dog.statement.text == DOG
    assert dog.embedding
    assert dog.embedding.model == "test"


@pytest.mark.parametrize("applied", [True, False])
async def test_the_same_words_again_add_their_sources_and_ask_nobody(applied: bool) -> None:
    kit = Bench()
    (first,) = await kit.decide(proposal("one", LYON))
    if applied:
        kit.memory.apply()
    kit.embedder.calls.clear()
    (again,) = await kit.decide(proposal("two", " ana lives in  LYON. ", minutes=5))
    assert (again.fact_id, again.version, again.decision, again.text) == (first.fact_id, 2, "NONE", LYON)
    assert [one.message_id for one in again.sources] == ["s.one-1", "s.two-1"]
    assert again.embedding == first.embedding
    assert (again.formed_at, again.valid_from) == (at(0), at(5))
    assert (kit.model.asked, kit.embedder.calls) == ([], [])


async def test_the_same_words_from_the_same_messages_change_nothing() -> None:
    kit = Bench()
    await kit.decide(proposal("one", (LYON, ["m"])))
    assert await kit.decide(proposal("two", (LYON, ["m"]))) == []
    assert kit.counts["known"] == 1


async def test_the_same_fact_said_in_twenty_sessions_at_once_is_one_fact() -> None:
    kit = Bench()
    await kit.decide(*(proposal(f"p{number}", LYON) for number in range(20)))
    (fact,) = kit.memory.active()
    assert len(fact.sources) == 20
    assert kit.model.asked == []


async def test_one_question_for_all_that_have_something_near_them() -> None:
    kit = bench(said(1, "UPDATE", 1, "Ana lives in Porto since May"))
    await known(kit, LYON, DOG)
    await kit.decide(
        proposal("one", PORTO, "Cleo sails on Sundays"),
        proposal("two", "The dog of Ben is called Max"),
    )
    ((material, asking),) = kit.model.asked
    assert [one.text for one in material.known] == [LYON, DOG]
    assert [(one.text, one.candidates) for one in material.new] == [
        (PORTO, (1,)),
        ("The dog of Ben is called Max", (2,)),
    ]
    assert (asking.unit, asking.role, asking.user_id, asking.scope) == (
        "fact-dedup:proposed-one",
        "decisions",
        "s.ana",
        ANA.key,
    )
    assert kit.memory.texts() == sorted(
        ["Ana lives in Porto since May", DOG, "Cleo sails on Sundays", "The dog of Ben is called Max"]
    )


async def test_an_update_keeps_the_fact_and_gives_it_a_vector_of_the_merged_text() -> None:
    kit = bench(said(1, "UPDATE", 1, "Ana lives in Porto, not Lyon"))
    await known(kit, LYON)
    (event,) = await kit.decide(proposal("one", PORTO, minutes=9))
    assert (event.text, event.version, event.decision) == ("Ana lives in Porto, not Lyon", 2, "UPDATE")
    assert event.embedding == (await kit.embedder.embed([event.text]))[0]
    assert [one.message_id for one in event.sources] == ["s.known-1", "s.one-1"]
    assert event.statement
    assert event.statement.text == PORTO
    assert event.call
    assert (event.call.call_id, event.call.items, event.reason) == ("call-1", 1, "so it is")
    assert [(one.fact_id, one.version) for one in event.considered] == [(event.fact_id, 1)]
    assert kit.embedder.calls[:2] == [[PORTO], [event.text]], "one call for the new, one for the merged"


async def test_a_contradicted_fact_is_retired_and_the_new_one_takes_its_place() -> None:
    kit = bench(said(1, "DELETE", 1))
    await known(kit, LYON)
    old, new = await kit.decide(proposal("one", PORTO, minutes=9))
    assert (old.text, old.retired_because, old.retired_at, old.embedding) == (
        LYON,
        "contradicted",
        at(9),
        None,
    )
    assert (old.version, old.replaced_by, new.replaces, new.version) == (2, new.fact_id, old.fact_id, 1)
    assert (old.decision, new.decision, new.text) == ("DELETE", "DELETE", PORTO)
    assert kit.memory.texts() == [PORTO]


GIVEN = encode(own_session("s.agent", None)).removeprefix("s.")
CLOSES, LATER = "The office closes at six every Monday", "The office closes at nine every Monday"


@pytest.mark.parametrize("decision", ["UPDATE", "DELETE"])
async def test_users_words_neither_change_nor_replace_what_the_operator_gave(decision: str) -> None:
    merged = "The office closes at nine" if decision == "UPDATE" else None
    kit, scope = bench(said(1, decision, 1, merged)), Scope.of_agent("s.agent")
    await kit.decide(proposal(GIVEN, CLOSES, scope=scope))
    kit.memory.apply()
    (event,) = await kit.decide(proposal("one", LATER, scope=scope, minutes=9))
    replaced = (event.retired_because, event.replaced_by is not None, event.retired_at)
    assert (event.text, event.version) == (LATER, 1)
    assert replaced == (("contradicted", True, at(9)) if decision == "DELETE" else (None, False, None))
    assert set(kit.memory.texts(scope)) == ({CLOSES} if decision == "DELETE" else {CLOSES, LATER})


async def test_what_the_operator_gives_later_replaces_what_was_given_before() -> None:
    kit, scope = bench(said(1, "DELETE", 1)), Scope.of_agent("s.agent")
    await kit.decide(proposal(GIVEN, CLOSES, scope=scope))
    kit.memory.apply()
    old, new = await kit.decide(proposal(f"{GIVEN}-2", LATER, scope=scope, minutes=9))
    assert (old.text, old.retired_because, new.text) == (CLOSES, "contradicted", LATER)


async def test_what_is_known_in_other_words_gains_the_sources() -> None:
    kit = bench(said(1, "NONE", 1))
    await known(kit, LYON)
    (event,) = await kit.decide(proposal("one", "In Lyon lives Ana now"))
    assert (event.text, event.version, event.decision) == (LYON, 2, "NONE")
    assert [one.message_id for one in event.sources] == ["s.known-1", "s.one-1"]


async def test_a_fact_with_plenty_of_sources_takes_no_statement_that_forgetting_would_not_find() -> None:
    kit = bench(said(1, "NONE", 1))
    await known(kit, (LYON, [f"m{number}" for number in range(MOST_SOURCES)]))
    (event,) = await kit.decide(proposal("again", "Ana resides in Lyon now", minutes=9))
    assert (len(event.sources), event.valid_from, event.statement) == (MOST_SOURCES, at(9), None)


async def test_earlier_new_facts_are_candidates_behind_the_known_ones() -> None:
    kit = bench(said(2, "NONE", 2), said(3, "UPDATE", 2, "Ana lives in Porto since May"))
    await known(kit, "Ana lives in a house")
    await kit.decide(
        proposal("one", PORTO),
        proposal("two", "In Porto Ana lives"),
        proposal("three", "Ana lives in Porto since this May"),
    )
    ((material, _),) = kit.model.asked
    assert [sorted(one.candidates) for one in material.new] == [[1], [1, 2], [1, 2, 3]]
    assert kit.memory.texts() == ["Ana lives in Porto since May", "Ana lives in a house"]


@pytest.mark.parametrize(
    "decision",
    [
        said(1, "DELETE", 2),
        said(1, "UPDATE", 2, "Ben has no dog"),
        said(1, "UPDATE", 1, None),
        said(1, "UPDATE", 1, "  "),
        said(1, "UPDATE", 1, "word " * 61),
        said(1, "DELETE", None),
        said(1, "NONE", 0),
        said(1, "NONE", -1),
        said(1, "NONE", 3),
        said(0, "DELETE", 1),
        said(7, "DELETE", 1),
        said(1, "NONE", "K3"),
        said(1, "NONE", "N1"),
        said(1, "NONE", "the first"),
    ],
)
async def test_a_decision_that_names_what_was_not_shown_or_lacks_its_text_is_void(
    decision: FactDecision,
) -> None:
    kit = bench(decision)
    await known(kit, LYON, DOG)
    (event,) = await kit.decide(proposal("one", PORTO))
    assert (event.decision, event.text) == ("ADD", PORTO)
    assert kit.memory.texts() == sorted([LYON, DOG, PORTO])
    assert kit.counts["void"] == 1


@pytest.mark.parametrize("decision", ["DELETE", "UPDATE", "NONE"])
async def test_a_decision_on_facts_with_little_in_common_is_refused_and_the_new_fact_says_why(
    decision: str,
) -> None:
    kit = bench(said(1, decision, 1, "Ben Ben reads" if decision == "UPDATE" else None))
    await known(kit, BEN)
    (event,) = await kit.decide(proposal("one", "Ben Ben reads"))
    assert (event.decision, event.text) == ("ADD", "Ben Ben reads")
    assert event.reason == f"the model answered {decision}, but the two facts have too little in common"
    assert kit.memory.texts() == ["Ben Ben reads", BEN]
    assert kit.counts["void"] == 1


async def test_new_words_for_another_thing_of_the_same_person_are_not_said_to_be_known() -> None:
    kit = bench(said(1, "NONE", 1))
    await known(kit, "Ana is fond of quiet green lakes")
    await kit.decide(proposal("one", "Ana is afraid of large black dogs"))
    assert len(kit.memory.texts()) == 2


async def test_a_fact_with_another_number_is_not_said_to_be_known() -> None:
    kit = bench(said(1, "NONE", 1))
    await known(kit, "The aunt of Ana has the number 555-0147")
    (event,) = await kit.decide(proposal("one", "The aunt of Ana has the number 555-0148"))
    assert event.reason == "the model answered NONE, but the new fact names another number"
    assert len(kit.memory.texts()) == 2


@pytest.mark.parametrize(("people", "left"), [(3, 3), (4, 8)])
async def test_more_than_a_few_deletes_of_one_answer_need_facts_that_are_alike_in_words_and_vectors(
    people: int, left: int
) -> None:
    def script(material: DecisionMaterial) -> list[FactDecision]:
        new = enumerate(material.new, 1)
        return [said(number, "DELETE", one.candidates[0]) for number, one in new if "alone" in one.text]

    kit = Bench(model=ScriptedModel(script))
    places = [("Ben", "Porto"), ("Cleo", "Rome"), ("Dora", "Nice"), ("Emil", "Turin")][:people]
    await known(kit, *(f"{who} lives in {where}" for who, where in places))
    await kit.decide(proposal("one", *(f"{who} lives now elsewhere alone" for who, _ in places)))
    assert len(kit.memory.texts()) == left


DOSE, OTHER_DOSE = "Ana takes 20 mg of Ramipril", "Ana takes 40 mg of Torasemid at night"


@pytest.mark.parametrize(
    ("before", "new", "text"),
    [
        (DOSE, OTHER_DOSE, DOSE),
        (DOSE, OTHER_DOSE, f"{DOSE.upper()}."),
        (DOSE, OTHER_DOSE, "Ana takes 20 mg of Ramipril at night"),
        (DOSE, OTHER_DOSE, "Ana takes 40 mg"),
        (LYON, PORTO, "Yes."),
        (LYON, PORTO, "Bob lives in Rome"),
        (LYON, PORTO, "Ana lives in Lyon since May"),
    ],
)
async def test_an_update_whose_text_leaves_out_what_is_new_adds_it(before: str, new: str, text: str) -> None:
    kit = bench(said(1, "UPDATE", 1, text))
    await known(kit, before)
    (event,) = await kit.decide(proposal("one", new))
    assert kit.memory.texts() == sorted([before, new])
    assert event.reason is not None
    assert event.reason.startswith("the model answered UPDATE, but ")


@pytest.mark.parametrize(
    ("before", "new", "text"),
    [
        (LYON, "In Lyon Ana lives", LYON),
        (DOSE, "Ana takes 40 mg of Ramipril", "Ana takes 40 mg of Ramipril"),
        (DOSE, OTHER_DOSE, "Ana takes 20 mg of Ramipril and, at night, 40 mg of Torasemid"),
    ],
)
async def test_an_update_whose_text_says_both_facts_is_carried_out(before: str, new: str, text: str) -> None:
    kit = bench(said(1, "UPDATE", 1, text))
    await known(kit, before)
    await kit.decide(proposal("one", new))
    assert kit.memory.texts() == [text]


async def test_a_decision_that_was_refused_is_refused_again_after_a_crash() -> None:
    kit = Bench(model=ScriptedModel(lambda _: [said(1, "DELETE", 1)], crashes=1))
    await known(kit, BEN)
    one = proposal("one", "Ben Ben reads")
    with pytest.raises(Killed):
        await kit.decide(one)
    await kit.decide(one)
    assert (kit.memory.texts(), len(kit.model.asked)) == (["Ben Ben reads", BEN], 1)


async def test_what_is_said_of_a_forgotten_statement_reaches_no_fact_that_was_not_compared() -> None:
    kit = bench(said(1, "DELETE", "K1"), said(2, "DELETE", "N1"))
    await known(kit, LYON)
    kit.model.between = lambda: forget(kit, "session", "s.one")
    (event,) = await kit.decide(proposal("one", PORTO), proposal("two", "Porto Porto rains"))
    assert event.reason == "the model answered DELETE, but the two facts were not compared"
    assert kit.memory.texts() == [LYON, "Porto Porto rains"]


@pytest.mark.parametrize("label", ["K1", "[K1]", "1"])
async def test_known_and_new_facts_are_named_by_labels_of_their_own(label: str) -> None:
    kit = bench(said(1, "UPDATE", label, "Ben's dog is called Max"), said(2, "NONE", "N1"))
    await known(kit, LYON, DOG)
    await kit.decide(proposal("one", "The dog of Ben is called Max", "Ben calls his dog Max"))
    assert kit.memory.texts() == sorted([LYON, "Ben's dog is called Max"])
    assert kit.counts["void"] == 0


def test_an_answer_that_was_kept_with_numbers_is_read() -> None:
    kept = '{"decisions": [{"fact": 1, "decision": "NONE", "existing": 2, "text": null, "reason": null}]}'
    answer = parsed(kept, FactDecisions)
    assert isinstance(answer, FactDecisions)
    assert [(decision.fact, decision.existing) for decision in answer.decisions] == [("1", "2")]


@pytest.mark.parametrize("decision", ["DELETE", "UPDATE", "NONE"])
async def test_what_was_shown_for_one_new_fact_is_out_of_reach_of_another(decision: str) -> None:
    kit = bench(said(1, decision, 2, "Ben has no dog" if decision == "UPDATE" else None))
    await known(kit, LYON, DOG)
    await kit.decide(proposal("one", PORTO, "The dog of Ben is called Max"))
    assert kit.memory.texts() == sorted([LYON, DOG, PORTO, "The dog of Ben is called Max"])
    assert kit.counts["void"] == 1


async def test_the_first_word_on_a_new_fact_counts() -> None:
    kit = bench(said(1, "NONE", 1), said(1, "DELETE", 1))
    await known(kit, LYON)
    await kit.decide(proposal("one", PORTO))
    assert kit.memory.texts() == [LYON]


async def test_two_updates_of_one_fact_follow_each_other_if_nothing_is_lost() -> None:
    kit = bench(
        said(1, "UPDATE", 1, "Ana lives in Lyon with a cat"),
        said(2, "UPDATE", 1, "Ana lives in Lyon with a cat and a dog"),
    )
    await known(kit, LYON)
    events = await kit.decide(
        proposal("one", "Ana lives in Lyon, a cat"), proposal("two", "Ana lives in Lyon, a dog")
    )
    assert [(one.version, one.decision) for one in events] == [(2, "UPDATE"), (3, "UPDATE")]
    assert kit.memory.texts() == ["Ana lives in Lyon with a cat and a dog"]


async def test_a_second_update_that_does_not_know_the_first_takes_nothing_away() -> None:
    kit = bench(
        said(1, "UPDATE", 1, "Ana lives in Lyon with a cat"),
        said(2, "UPDATE", 1, "Ana lives in Lyon with a dog"),
    )
    await known(kit, LYON)
    await kit.decide(proposal("one", "Ana lives in Lyon, a cat"), proposal("two", "Ana lives in Lyon, a dog"))
    assert kit.memory.texts() == ["Ana lives in Lyon with a cat", "Ana lives in Lyon, a dog"]


async def test_a_fact_that_was_updated_is_not_contradicted_by_who_did_not_see_that() -> None:
    kit = bench(said(1, "UPDATE", 1, "Ana lives in Lyon and Porto"), said(2, "DELETE", 1))
    await known(kit, LYON)
    await kit.decide(proposal("one", PORTO), proposal("two", "Ana lives in Rome"))
    assert kit.memory.texts() == ["Ana lives in Lyon and Porto", "Ana lives in Rome"]


async def test_a_fact_contradicted_twice_is_retired_once() -> None:
    kit = bench(said(1, "DELETE", 1), said(2, "DELETE", 1))
    await known(kit, LYON)
    await kit.decide(proposal("one", PORTO), proposal("two", "Ana lives in Rome"))
    assert kit.memory.texts() == [PORTO, "Ana lives in Rome"]


async def test_a_merged_text_that_is_known_already_joins_that_fact_and_the_other_is_a_duplicate() -> None:
    kit = bench(said(1, "UPDATE", 2, "Ana lives in Porto."))
    await known(kit, PORTO, LYON)
    joined, retired = await kit.decide(proposal("one", "Ana lives in Porto now, in Lyon no longer"))
    assert (joined.text, joined.decision, len(joined.sources)) == (PORTO, "NONE", 2)
    assert (retired.text, retired.retired_because, retired.replaced_by) == (LYON, "duplicate", joined.fact_id)
    assert kit.memory.texts() == [PORTO]


async def test_a_merged_text_is_found_by_its_hash_later_and_in_the_same_call() -> None:
    kit = bench(said(1, "UPDATE", 1, "Ana lives in Porto since May"))
    await known(kit, LYON)
    await kit.decide(proposal("one", PORTO), proposal("two", "Ana lives in Porto since May!"))
    await kit.decide(proposal("three", "ana lives in porto since may"))
    (fact,) = kit.memory.active()
    assert [one.message_id for one in fact.sources] == ["s.known-1", "s.one-1", "s.two-1", "s.three-1"]


async def test_a_statement_whose_twin_was_merged_follows_it() -> None:
    kit = bench(said(1, "NONE", 1))
    await known(kit, LYON)
    events = await kit.decide(proposal("one", "In Lyon Ana lives"), proposal("two", "in lyon ana lives."))
    assert [(one.text, one.decision, one.version) for one in events] == [(LYON, "NONE", 2), (LYON, "NONE", 3)]


async def test_a_known_text_that_is_contradicted_in_the_same_call_may_be_stated_again() -> None:
    kit = bench(said(1, "DELETE", 1))
    await known(kit, LYON)
    await kit.decide(proposal("one", PORTO), proposal("two", "Ana lives in Lyon."))
    assert kit.memory.texts() == ["Ana lives in Lyon.", PORTO]


async def test_without_dedup_only_exact_repeats_are_found() -> None:
    kit = Bench(dedup=False)
    await known(kit, LYON)
    await kit.decide(proposal("one", PORTO, LYON))
    assert kit.memory.texts() == [LYON, PORTO]
    assert (kit.model.asked, kit.memory.nearest_asked) == ([], 0)


async def test_facts_of_a_stream_with_retention_expire() -> None:
    kit = Bench()
    row = {"_id": "s.agent/user", "agent_id": "s.agent", "scope": "user", "retention_days": 1}
    kit.memory.streams = {"user": Stream.model_validate(row)}
    (event,) = await kit.decide(proposal("one", LYON))
    assert event.expires_at == at(24 * 60)


async def test_a_statement_decided_before_is_not_decided_again() -> None:
    kit = Bench()
    await kit.decide(proposal("one", LYON))
    (edited,) = await kit.decide(command("c", "edit", fact_id=kit.memory.active()[0].fact_id, text=DOG))
    first = proposal("one", LYON)
    repeat = first._replace(envelope=first.envelope._replace(id="another"))
    assert await kit.decide(repeat) == []
    assert (kit.memory.texts(), kit.counts["repeated"], edited.version) == ([DOG], 1, 2)


async def test_an_answer_that_had_arrived_is_used_for_those_that_it_was_asked_about() -> None:
    kit = Bench(
        model=ScriptedModel(lambda _: [said(1, "UPDATE", 1, "Ana lives in Porto since May")], crashes=1)
    )
    await known(kit, LYON, DOG)
    one, two, three = proposal("one", PORTO), proposal("two", DOG), proposal("three", "Ana lives in Rome")
    with pytest.raises(Killed):
        await kit.decide(one, two)
    first = await kit.handler()([one, two, three])
    assert (first.covers, len(kit.model.asked)) == (2, 1)
    kit.memory.take(first)
    assert kit.memory.texts() == ["Ana lives in Porto since May", DOG]
    await kit.decide(three)
    assert len(kit.model.asked) == 2


async def test_a_redelivery_of_fewer_uses_the_answer_for_those() -> None:
    script = [said(1, "NONE", 1), said(2, "DELETE", 2)]
    kit = Bench(model=ScriptedModel(lambda _: script, crashes=1))
    await known(kit, LYON, DOG)
    one, two = proposal("one", "In Lyon Ana lives"), proposal("two", "The dog of Ben is called Max")
    with pytest.raises(Killed):
        await kit.decide(one, two)
    kit.memory.take(await kit.handler()([one]))
    assert (kit.memory.texts(), len(kit.model.asked)) == ([LYON, DOG], 1)


async def test_an_answer_on_facts_that_have_changed_since_is_not_used() -> None:
    answers = iter([[said(1, "UPDATE", 1, "Ana lives in Porto, not Lyon")], [said(1, "DELETE", 1)]])
    kit = Bench(model=ScriptedModel(lambda _: next(answers), crashes=1))
    await known(kit, LYON)
    with pytest.raises(Killed):
        await kit.decide(proposal("one", PORTO))
    (fact,) = kit.memory.active()
    await kit.decide(command("edit", "edit", fact_id=fact.fact_id, text="Ana lives in Nice"))
    kit.model.crashes = 1
    with pytest.raises(Killed):
        await kit.decide(proposal("one", PORTO))
    await kit.decide(proposal("one", PORTO))
    assert kit.memory.texts() == [PORTO]
    assert [material.known[0].text for material, _ in kit.model.asked] == [LYON, "Ana lives in Nice"]


async def test_what_was_never_answered_well_is_asked_in_halves_and_given_up_alone() -> None:
    kit = Bench(model=ScriptedModel(crashes=1))
    await known(kit, LYON)
    one, two = proposal("one", PORTO), proposal("two", "Ana lives in Rome")
    with pytest.raises(Killed):
        await kit.decide(one, two)
    kit.model.exhausted = set(kit.model.answers)
    with pytest.raises(PermanentError):
        await kit.handler()([one, two])
    kit.model.crashes = 1
    with pytest.raises(Killed):
        await kit.handler()([one])
    assert len(kit.model.asked) == 2, "the half is another question"
    kit.model.exhausted = set(kit.model.answers)
    with pytest.raises(PermanentError):
        await kit.handler()([one])
    assert len(kit.model.asked) == 2


async def test_a_dead_letter_sent_again_asks_anew() -> None:
    kit = Bench(model=ScriptedModel(crashes=1))
    await known(kit, LYON)
    with pytest.raises(Killed):
        await kit.decide(proposal("one", PORTO))
    (event,) = await kit.decide(proposal("one", PORTO, sent_again=1))
    assert (len(kit.model.asked), event.attempt) == (2, 2)


def forget(kit: Bench, kind: str, target: str) -> None:
    kit.memory.forgotten.append(Mark(kind, target, "for_ever"))  # pyright: ignore[reportArgumentType]


async def test_what_rests_on_forgotten_messages_is_dropped_also_among_others() -> None:
    kit = Bench()
    forget(kit, "message", "s.a")
    await kit.decide(proposal("one", (LYON, ["a", "b"]), (DOG, ["b"])))
    assert kit.memory.texts() == [DOG]
    assert kit.embedder.calls == [[DOG]], "forgotten text reaches no model"
    assert kit.counts["forgotten"] == 1


async def test_what_is_forgotten_while_the_model_thinks_is_dropped_too() -> None:
    kit = bench(said(1, "UPDATE", 1, "Ana lives in Lyon and Porto"), said(2, "NONE", 1))
    await known(kit, LYON)
    kit.model.between = lambda: forget(kit, "session", "s.one")
    await kit.decide(proposal("one", PORTO), proposal("two", "In Lyon Ana lives"))
    (fact,) = kit.memory.active()
    assert (fact.text, [one.message_id for one in fact.sources]) == (LYON, ["s.known-1", "s.two-1"])


async def test_a_forgotten_fact_is_not_brought_back_by_a_decision_about_it() -> None:
    kit = bench(said(1, "UPDATE", 1, "Ana lives in Lyon and Porto"))
    await known(kit, LYON)
    kit.model.between = lambda: forget(kit, "fact", kit.memory.active()[0].fact_id)
    (event,) = await kit.decide(proposal("one", PORTO))
    assert (event.decision, event.text, event.version) == ("ADD", PORTO, 1)


async def test_the_same_words_as_a_forgotten_fact_begin_a_fact_of_their_own() -> None:
    kit = Bench()
    await known(kit, LYON)
    forget(kit, "message", "s.known-1")
    (event,) = await kit.decide(proposal("one", LYON))
    assert (event.decision, event.version, [one.message_id for one in event.sources]) == (
        "ADD",
        1,
        ["s.one-1"],
    )


async def test_facts_of_another_model_are_not_compared() -> None:
    kit = Bench()
    await known(kit, LYON)
    (fact,) = kit.memory.active()
    other = Embedding(model="other", vector=fact.embedding.vector if fact.embedding else b"")
    kit.memory.decisions[ANA.key] = [[fact.model_copy(update={"embedding": other})]]
    await kit.decide(proposal("one", PORTO))
    assert kit.model.asked == []


async def test_a_decision_of_too_many_bytes_leaves_the_rest_to_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(fact_dedup, "MOST_BYTES", 5_000)
    kit = Bench()
    proposals = [proposal(f"p{number}", f"number {number} stands alone") for number in range(6)]
    decision = await kit.handler()(proposals)
    assert decision.covers is not None
    assert 1 <= decision.covers < 6
    assert len(decision.events) == decision.covers
    assert sum(one.startswith("fact:") for one in decision.writes) == decision.covers
    assert len(await kit.decide(*proposals)) == 6


async def test_plenty_of_sources_are_enough() -> None:
    kit = Bench()
    await kit.decide(proposal("one", (LYON, [f"m{number}" for number in range(600)])))
    assert await kit.decide(proposal("two", LYON)) == []


async def test_a_tombstone_is_passed_over() -> None:
    gone = proposal("one", LYON)._replace(event=None)
    assert (await Bench().handler()([gone])).events == ()


async def test_the_prompt_is_fenced_by_the_decision_and_names_no_id() -> None:
    kit = Bench()
    await known(kit, LYON)
    await kit.decide(proposal("one", PORTO))
    (prompt,) = kit.model.prompts
    assert isinstance(prompt.material, DecisionMaterial)
    assert kit.memory.active()[0].fact_id not in prompt.user + prompt.system
    assert prompt.user.splitlines()[0] == prompt.user.splitlines()[-1] != ""


async def test_scopes_do_not_see_each_other() -> None:
    kit = Bench()
    ben = ANA.of_user("s.agent", "s.ben")
    await known(kit, LYON)
    (event,) = await kit.decide(proposal("one", LYON, scope=ben))
    assert (event.decision, event.scope.key, event.outcome) == ("ADD", ben.key, 1)
