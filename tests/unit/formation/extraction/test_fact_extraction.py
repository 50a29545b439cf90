"""fact-extraction: one answer becomes facts of the scopes that were shown, each resting on messages shown."""

import re
from datetime import timedelta

import pytest

from eden_memory.errors import PermanentError
from eden_memory.forgotten import Mark
from eden_memory.formation.fact_statements import proposals_of
from eden_memory.formation.prompt_material import FactMaterial
from eden_memory.limits import STANDARD
from eden_memory.schemas.answers import ExtractedFacts
from eden_memory.schemas.documents import Stream
from eden_memory.schemas.events import FactsExtracted, decode
from eden_memory.schemas.scopes import Scope
from tests.unit.formation.extraction.windows import (
    AGENT,
    AGENT_SCOPE,
    FORMATION,
    GROUP_SCOPE,
    MARA,
    NOON,
    SESSION,
    SESSION_SCOPE,
    SHARD_SCOPE,
    TOM,
    USER_SCOPE,
    Bench,
    ScriptedModel,
    Talk,
    fact,
    said,
    stating,
    talk,
    texts,
)


async def test_facts_go_to_their_scopes_with_the_messages_that_they_rest_on() -> None:
    model = stating(fact("The yard has two cranes.", "group", 2, 1), fact("Mara's boat is Tern.", "user", 3))
    extracted, proposed = await Bench(talk("a", "b", "c"), model).facts()
    assert extracted.outcome == "extracted"
    assert [(one.number, one.scope.key) for one in extracted.facts] == [
        (1, GROUP_SCOPE.key),
        (2, USER_SCOPE.key),
    ]
    assert [one.message_id for one in extracted.facts[0].sources] == ["s.m1", "s.m2"]
    source = extracted.facts[1].sources[0]
    stored = said(3, "c")
    assert (source.session_id, source.user_id, source.time) == (SESSION, MARA, stored.time)
    assert source.version == stored.version
    assert texts(proposed) == {
        GROUP_SCOPE.key: ["The yard has two cranes."],
        USER_SCOPE.key: ["Mara's boat is Tern."],
    }
    assert {one.formed_at for one in proposed} == {extracted.window.closed_at}
    assert extracted.call is not None
    assert extracted.call.items == 2


async def test_no_fact_calls_a_user_without_a_name_by_a_number_of_ours() -> None:
    """Such a number means somebody in this window alone; the third user says nothing in it."""
    messages = (said(1, "a", MARA), said(2, "b", TOM))
    scopes = (USER_SCOPE, Scope.of_user(AGENT, TOM))
    window = Talk(messages, scopes, ("s.eve", MARA, TOM), names={}, shared_sessions="authors")
    stated = (
        fact("User 2's invoices go to Lund, since user 2 moved.", "user", 1),
        fact("The boat of User 3 is Tern.", "user", 2),
        fact("The yard of user 2 is closed.", "user", 2),
        fact("The cat of User 1 is Mimi.", "user", 2),
    )
    extracted, _ = await Bench(window, stating(*stated)).facts()
    found = [one.text for one in extracted.facts]
    assert found == ["User's invoices go to Lund, since User moved.", "The boat of User is Tern."]


ALL_OF_IT = (1, 2, 3, 4, 5, 6)
RUNAWAY = tuple(range(1, 114))


@pytest.mark.parametrize("cited", [ALL_OF_IT, (1, 2, 3, 4, 5), RUNAWAY])
async def test_who_names_all_messages_names_those_whose_words_the_fact_has(cited: tuple[int, ...]) -> None:
    messages = (
        said(1, "My sister Lea moved to Porto in May.", MARA),
        said(2, "Greetings to Lea! How is Porto?", role="assistant"),
        said(3, "I keep bees behind the house.", TOM),
        said(4, "And I moved nowhere.", TOM),
        said(5, "How many hives?", role="assistant"),
        said(6, "Four.", TOM),
    )
    scopes = (USER_SCOPE, Scope.of_user(AGENT, TOM))
    window = Talk(messages, scopes, (MARA, TOM), names={MARA: "Mara", TOM: "Tom"}, shared_sessions="authors")
    stated = (
        fact("Mara's sister Lea moved to Porto in May.", "user", *cited),
        fact("Tom keeps bees behind his house.", "user", *cited),
        fact("The sister of Lea keeps bees in Porto behind the house.", "user", *cited),
        fact("They talk.", "user", *cited),
    )
    extracted, _ = await Bench(window, stating(*stated)).facts()
    found = [
        (one.text, one.scope.user_id, [source.message_id for source in one.sources])
        for one in extracted.facts
    ]
    assert found == [
        ("Mara's sister Lea moved to Porto in May.", MARA, ["s.m1"]),
        ("Tom keeps bees behind his house.", TOM, ["s.m3"]),
    ], "what mixes the words of two, or has nobody's, belongs to neither"


async def test_the_record_of_what_was_found_gives_the_same_proposals_again() -> None:
    found = (
        fact("The yard has two cranes.", "group", 2, 1),
        fact("Mara's boat is Tern.", "user", 3),
        fact("Mara sails to Riga.", "user", 1),
    )
    extracted, proposed = await Bench(talk("a", "b", "c"), stating(*found)).facts()
    recorded = decode(extracted.NAME, extracted.VERSION, extracted.json_bytes())
    assert isinstance(recorded, FactsExtracted)
    again = proposals_of(recorded)
    assert len(again) == 2
    assert [one.json_bytes() for one in again] == [one.json_bytes() for one in proposed]


async def test_a_window_without_messages_asks_nothing_and_still_says_that_it_is_empty() -> None:
    model = stating(fact("x"))
    extracted, proposed = await Bench(talk(because="ended"), model).facts()
    assert (extracted.outcome, proposed, model.prompts) == ("empty", [], [])


async def test_an_answer_without_facts_is_empty_and_keeps_its_call() -> None:
    extracted, proposed = await Bench(talk("a"), stating()).facts()
    assert (extracted.outcome, extracted.facts, proposed) == ("empty", (), [])
    assert extracted.call is not None


async def test_a_session_that_may_form_nothing_but_its_own_memory_asks_for_no_facts() -> None:
    model = stating(fact("x", "session"))
    extracted, _ = await Bench(talk("a", scopes=(SESSION_SCOPE,)), model).facts()
    assert (extracted.outcome, model.prompts) == ("empty", [])


async def test_what_names_no_message_shown_rests_on_the_whole_window() -> None:
    bench = Bench(talk("a", "b"), stating(fact("x is y", "user", 0, 3, -1), fact("z is y", "user", 2, 9)))
    extracted, _ = await bench.facts()
    first, second = extracted.facts
    assert (first.whole_window, [one.message_id for one in first.sources]) == (True, ["s.m1", "s.m2"])
    assert (second.whole_window, [one.message_id for one in second.sources]) == (False, ["s.m2"])
    assert bench.left == {"whole_window": 1}


async def test_facts_beyond_the_limit_are_cut_and_counted() -> None:
    bench = Bench(talk("a"), stating(*(fact(f"Berth {n} is free.") for n in range(33))))
    extracted, _ = await bench.facts()
    assert (len(extracted.facts), extracted.cut) == (30, 3)
    assert bench.left["beyond"] == 3


async def test_a_fact_over_its_words_is_shortened_at_a_sentence() -> None:
    long = "The first twenty words " + "on and " * 8 + "end here. " + "Then more " * 20
    bench = Bench(talk("a"), stating(fact(long)))
    extracted, _ = await bench.facts()
    assert extracted.facts[0].text.endswith("end here.")
    assert len(extracted.facts[0].text.split()) <= STANDARD.fact_words
    assert bench.left["shortened"] == 1


async def test_a_streams_own_word_limit_comes_first() -> None:
    bench = Bench(talk("a"), stating(fact("word " * 60, "user"), fact("term " * 60, "group")))
    bench.kept.streams["user"] = Stream(_id="x", agent_id=AGENT, scope="user", item_word_limit=50)
    extracted, _ = await bench.facts()
    assert [len(one.text.split()) for one in extracted.facts] == [50, STANDARD.fact_words]
    assert "at most 50 words" in bench.model.prompts[0].system


@pytest.mark.parametrize(
    "label", ["session", "user:s.tom", "shard:other outages", "shard:", "", "s.mara", USER_SCOPE.key]
)
async def test_a_scope_that_was_not_shown_gets_nothing(label: str) -> None:
    bench = Bench(talk("a"), stating(fact("x is y", label, 1)))
    extracted, proposed = await bench.facts()
    assert (extracted.outcome, extracted.dropped, proposed) == ("empty", 1, [])


async def test_a_shard_holds_facts_of_its_subject_and_its_guidance_asks_for_them() -> None:
    stated = (
        fact("Outages of port 3 last 2 hours.", "shard:known outages", 1),
        fact("Mara runs it.", "agent", 1),
    )
    bench = Bench(talk("a"), stating(*stated))
    guidance = "Outages of ports, with times."
    bench.kept.streams["shard:known outages"] = Stream(
        _id="x", agent_id=AGENT, scope="shard", shard="known outages", extraction_guidance=guidance
    )
    _, proposed = await bench.facts()
    assert texts(proposed) == {SHARD_SCOPE.key: [stated[0].text], USER_SCOPE.key: [stated[1].text]}
    assert re.search(rf"^- shard:known outages: .*{guidance}$", bench.model.prompts[0].system, re.MULTILINE)


async def test_contact_data_leaves_what_others_see_for_the_user_alone() -> None:
    bench = Bench(talk("a"), stating(fact("Mara's number is +46 31 123 45 67.", "agent", 1)))
    extracted, proposed = await bench.facts()
    assert extracted.facts[0].demoted_from == "agent"
    assert list(texts(proposed)) == [USER_SCOPE.key]
    assert bench.left == {"demoted": 1}


async def test_contact_data_of_a_session_with_several_users_is_dropped() -> None:
    window = talk("a", scopes=(AGENT_SCOPE, SESSION_SCOPE), participants=(MARA, TOM))
    bench = Bench(window, stating(fact("Mara's number is +46 31 123 45 67.", "agent", 1)))
    extracted, proposed = await bench.facts()
    assert (extracted.facts, extracted.dropped, proposed) == ((), 1, [])
    assert bench.left == {"personal": 1}


@pytest.mark.parametrize(("strict", "scope"), [(False, GROUP_SCOPE), (True, USER_SCOPE)])
async def test_the_stricter_setting_also_keeps_names_of_participants_from_others(
    strict: bool, scope: object
) -> None:
    bench = Bench(talk("a"), stating(fact("Mara ordered eleven bolts.", "group", 1)), demote_names=strict)
    extracted, _ = await bench.facts()
    assert extracted.facts[0].scope == scope


async def test_forgotten_messages_are_not_shown() -> None:
    bench = Bench(talk("keep this", "forget this"), stating(fact("x is y", "user", 1)))
    bench.kept.marks.append(Mark("message", "s.m2", "for_ever"))
    extracted, _ = await bench.facts()
    assert "forget" not in bench.model.prompts[0].user
    assert bench.model.askings[0].shown == ("s.m1",)
    assert [one.message_id for one in extracted.facts[0].sources] == ["s.m1"]


async def test_a_window_whose_messages_are_all_forgotten_asks_nothing() -> None:
    bench = Bench(talk("a", "b"), stating(fact("x is y")))
    bench.kept.marks.append(Mark("session", SESSION, "for_ever"))
    extracted, _ = await bench.facts()
    assert (extracted.outcome, bench.model.prompts) == ("empty", [])


async def test_what_rests_on_messages_forgotten_while_the_model_was_asked_is_dropped() -> None:
    bench = Bench(
        talk("a", "b"),
        stating(fact("of one", "user", 1), fact("of two", "user", 2), fact("of both", "user", 1, 2)),
    )
    bench.model.while_asked = lambda: bench.kept.marks.append(Mark("message", "s.m2", "for_ever"))
    extracted, _ = await bench.facts()
    assert [one.text for one in extracted.facts] == ["of one"]
    assert bench.left == {"forgotten": 2}


@pytest.mark.parametrize("arrived", [False, True])
async def test_what_rests_on_answers_to_a_user_forgotten_meanwhile_is_dropped(arrived: bool) -> None:
    until = NOON + timedelta(minutes=3)  # the window closes later
    window = Talk((said(1, "a"), said(2, "b", role="assistant"), said(4, "c", role="assistant")))
    bench = Bench(window, stating(fact("of the answer", "user", 2), fact("of the next", "user", 3)))
    mark = Mark("user", MARA, "created_up_to", until=until)
    if arrived:
        await bench.facts()
        bench.kept.marks.append(mark)
    else:
        bench.model.while_asked = lambda: bench.kept.marks.append(mark)
    extracted, _ = await bench.facts()
    assert [one.text for one in extracted.facts] == ["of the next"]


async def test_a_redelivery_after_a_crash_takes_the_answer_that_had_arrived_for_what_was_shown_then() -> None:
    bench = Bench(talk("a", "b", "c"), stating(fact("of three", "user", 3)))
    before, _ = await bench.facts()
    bench.kept.marks.append(Mark("message", "s.m1", "for_ever"))
    after, _ = await bench.facts()
    assert len(bench.model.prompts) == 1
    assert after.facts == before.facts, "number 3 still means the third message"


async def test_a_dead_letter_sent_again_is_asked_anew() -> None:
    bench = Bench(talk("a"), stating(fact("x is y", "user", 1)))
    await bench.facts()
    again, proposed = await bench.facts(sent_again=1)
    assert len(bench.model.prompts) == 2
    assert (again.attempt, proposed[0].attempt) == (2, 2)


async def test_texts_that_are_kept_no_longer_are_given_up_at_once() -> None:
    bench = Bench(talk("a"), stating())
    bench.kept.stored.clear()
    with pytest.raises(PermanentError, match="kept no longer"):
        await bench.facts()


async def test_streams_guide_the_question_and_choose_its_model() -> None:
    bench = Bench(talk("a"), stating())
    bench.kept.streams["agent"] = Stream(
        _id="x", agent_id=AGENT, scope="agent", extraction_guidance="Only boats.", extraction_model="big"
    )
    await bench.facts()
    (asking,) = bench.model.askings
    assert (asking.model, asking.role, asking.tier, asking.user_id) == ("big", "facts", 1, MARA)
    assert "Only boats." in bench.model.prompts[0].system
    material = bench.model.prompts[0].material
    assert isinstance(material, FactMaterial)
    assert [one.label for one in material.scopes] == ["agent", "shard:known outages", "group", "user"]


async def test_texts_that_are_empty_once_cleaned_are_left_out() -> None:
    bench = Bench(talk("a"), stating(fact(" \n\u200b\u202e "), fact("x\nis\u2028y")))
    extracted, _ = await bench.facts()
    assert [one.text for one in extracted.facts] == ["x is y"]
    assert bench.left["empty"] == 1


async def test_every_repeat_is_byte_for_byte_the_same() -> None:
    model = stating(fact("x is y", "agent", 1), fact("z", "user"))
    first, second = [await Bench(talk("a"), model).facts() for _ in range(2)]
    assert first[0].json_bytes() == second[0].json_bytes()
    assert [one.json_bytes() for one in first[1]] == [one.json_bytes() for one in second[1]]


async def test_an_answer_of_no_model_has_no_call() -> None:
    model = ScriptedModel(lambda prompt: ExtractedFacts(facts=[fact("x is y")]), call=None)
    extracted, _ = await Bench(talk("a"), model).facts()
    assert (extracted.call, extracted.facts[0].call) == (None, None)


async def test_the_same_fence_stands_around_the_same_window_at_every_attempt() -> None:
    window = Talk((said(1, "a"),))
    one, two = Bench(window, stating()), Bench(window, stating())
    await one.facts()
    await two.facts(sent_again=3)
    assert one.model.prompts[0].user == two.model.prompts[0].user
    assert FORMATION not in one.model.prompts[0].user
    assert f"{NOON:%Y-%m-%d}" in one.model.prompts[0].user
