"""Reflections that matter to a broader scope go up once, name what they came from, and nothing private does."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from eden_memory.directory.participants import Missing, Off, SessionFacts
from eden_memory.forgotten import Mark
from eden_memory.formation.prompt_material import PropagationMaterial
from eden_memory.schemas.documents import Reflection, Stream
from eden_memory.schemas.events import Propagated, ReflectionFormed
from eden_memory.schemas.scopes import Scope
from tests.unit.formation.propagation.propagation_kit import (
    AGENT,
    ANN,
    GROUP,
    NOON,
    SESSION,
    SOURCE,
    TALK,
    USER,
    WIDE,
    Judging,
    JudgingModel,
    everything,
    reflection,
)

SHARED = "The team deploys on Tuesdays."
OTHER = "The office closes at 18:00 on Fridays."


def stream(**fields: Any) -> dict[str, Stream]:
    return {"agent": Stream(_id=f"{AGENT}/agent", agent_id=AGENT, scope="agent", **fields)}


async def test_a_users_reflection_goes_to_the_group_and_a_groups_to_the_agent() -> None:
    (climbed,) = await Judging([reflection(SHARED)]).run()
    assert (climbed.scope, climbed.text, climbed.origin) == (GROUP, SHARED, "propagated")
    assert climbed.propagated_from == Propagated(reflection_id="r1", scope=USER)
    assert (climbed.sources, climbed.formed_at, climbed.private) == ((SOURCE,), NOON, False)
    (climbed,) = await Judging([reflection(SHARED, scope=GROUP)]).run()
    assert (climbed.scope, climbed.propagated_from) == (WIDE, Propagated(reflection_id="r1", scope=GROUP))


@pytest.mark.parametrize(
    ("installation", "agents", "climbs"),
    [(False, None, False), (False, True, True), (True, None, True), (True, False, False)],
)
async def test_it_is_off_unless_the_settings_or_the_agent_say_otherwise(
    installation: bool, agents: bool | None, climbs: bool
) -> None:
    stage = Judging([reflection(SHARED)], streams=stream(propagation=agents), on=installation)
    assert bool(await stage.run()) is climbs
    assert isinstance(stage.model, JudgingModel)
    assert stage.model.paid == int(climbs)


async def test_what_is_marked_private_or_of_a_private_user_is_never_shown_to_the_model() -> None:
    stage = Judging([reflection(SHARED, private=True), reflection(OTHER, 2)])
    assert [one.text for one in await stage.run()] == [OTHER]
    stage.sessions[SESSION] = replace(TALK, private_users=(ANN,))
    assert await stage.run(2) == []
    of_group = Judging([reflection(SHARED, scope=GROUP)], sessions=stage.sessions)
    assert await of_group.run() == [], "its author's memory is private"
    assert of_group.results() == {"private": 1}
    for model in (stage.model, of_group.model):
        assert isinstance(model, JudgingModel)
        assert all(SHARED not in prompt.user for prompt in model.asked)


async def test_what_rests_on_a_message_of_a_private_fact_is_never_shown_to_the_model() -> None:
    apart = {"message_ids": ("s.m2",)}
    for scope, climbs in ((USER, [OTHER]), (GROUP, [OTHER])):
        stored = [reflection(SHARED, scope=scope), reflection(OTHER, 2, scope, **apart)]
        stage = Judging(stored, private_facts=[{SOURCE.message_id, "s.m3"}])
        assert [one.text for one in await stage.run()] == climbs
        assert stage.results() == {"propagated": 1, "private": 1}
        assert isinstance(stage.model, JudgingModel)
        assert SHARED not in stage.model.asked[0].user


async def test_a_fact_that_is_marked_while_the_model_is_asked_holds_back_what_rests_on_its_messages() -> None:
    model = JudgingModel()
    stage = Judging([reflection(SHARED)], model)
    model.meanwhile = lambda: stage.private_facts.append({SOURCE.message_id})
    assert await stage.run() == []
    assert model.paid == 1


async def test_a_private_user_in_a_session_that_lists_no_users_is_never_shown_to_the_model() -> None:
    unlisted: dict[str, SessionFacts | Missing] = {SESSION: replace(TALK, users=None)}
    for scope in (USER, GROUP):
        stage = Judging([reflection(SHARED, scope=scope)], sessions=unlisted, private_users={ANN})
        assert await stage.run() == []
        assert stage.results() == {"private": 1}
        assert isinstance(stage.model, JudgingModel)
        assert not stage.model.asked
        stage.private_users.clear()
        assert len(await stage.run(2)) == 1


@pytest.mark.parametrize(
    "off", [Off(users=frozenset({ANN})), Off(sessions=frozenset({SESSION}))], ids=["user", "session"]
)
async def test_where_memory_is_off_nothing_is_shown_to_the_model(off: Off) -> None:
    for scope in (USER, GROUP):
        stage = Judging([reflection(SHARED, scope=scope)], switched_off=off)
        assert await stage.run() == []
        assert isinstance(stage.model, JudgingModel)
        assert not stage.model.asked


@pytest.mark.parametrize(
    "session",
    [
        replace(TALK, group_id=None),
        replace(TALK, group_members=frozenset({"i.2"})),
        replace(TALK, agent_memory=False),
        replace(TALK, off=frozenset({"group"})),
        replace(TALK, agent_id="s.other"),
        Missing("deleted"),
    ],
    ids=["no group", "no member", "no agent memory", "group off", "another agent's", "deleted"],
)
async def test_without_a_group_that_the_user_is_in_nothing_goes_up(session: Any) -> None:
    stage = Judging([reflection(SHARED)], sessions={SESSION: session})
    assert await stage.run() == []
    assert stage.results() == {"nowhere": 1}


async def test_what_was_said_in_sessions_of_two_groups_belongs_to_neither() -> None:
    both = reflection(SHARED, session_ids=(SESSION, "s.other"))
    stage = Judging([both], sessions={SESSION: TALK, "s.other": replace(TALK, group_id="i.8")})
    assert await stage.run() == []
    own = [reflection(SHARED), reflection(OTHER, 2, session_ids=("s.other",))]
    scopes = [one.scope.group_id for one in await Judging(own, sessions=stage.sessions).run()]
    assert scopes == ["i.7", "i.8"], "each goes to the group of its own session"


async def test_a_reflection_is_judged_once_whichever_blobs_absorb_it() -> None:
    stage = Judging([reflection(SHARED), reflection("Ann wants brief answers.", 2)])
    assert len(await stage.run()) == 1
    assert await stage.run(2) == []
    stage.stored.append(reflection(OTHER, 3))
    assert [one.text for one in await stage.run(3)] == [OTHER]


async def test_after_a_crash_the_answer_counts_for_what_it_was_given_for() -> None:
    stage = Judging([reflection("Ann wants maps."), reflection(SHARED, 2)])
    before = await stage.run()
    stage.writes.clear()  # killed before the outcome was stored
    stage.marks = [Mark("reflection", "r1", "for_ever")]  # and its first reflection forgotten since
    assert await stage.run() == before
    assert isinstance(stage.model, JudgingModel)
    assert stage.model.paid == 1


@pytest.mark.parametrize(
    "mark",
    [
        Mark("message", SOURCE.message_id, "for_ever"),
        Mark("user", ANN, "created_up_to", until=NOON),
        Mark("reflection", "r1", "for_ever"),
        Mark("reflection", Propagated.id_of("r1"), "for_ever"),
    ],
    ids=["message", "user", "reflection", "marked private later"],
)
async def test_what_is_forgotten_while_the_model_is_asked_does_not_go_up(mark: Mark) -> None:
    model = JudgingModel()
    stage = Judging([reflection(SHARED)], model)
    model.meanwhile = lambda: stage.marks.append(mark)
    assert await stage.run() == []
    assert model.paid == 1


@pytest.mark.parametrize("change", [{"private": True}, {"retired_at": NOON}], ids=["private", "retired"])
async def test_what_is_decided_and_not_applied_yet_withdraws_a_reflection(change: dict[str, Any]) -> None:
    decided = ReflectionFormed(
        cause="c",
        reflection_id="r1",
        version=2,
        scope=USER,
        text=SHARED,
        position=1,
        origin="formed",
        formed_at=NOON,
        said_at=NOON,
        **change,
    )
    stage = Judging([reflection(SHARED), reflection(OTHER, 2)], decided=[decided])
    assert [one.text for one in await stage.run()] == [OTHER]
    assert isinstance(stage.model, JudgingModel)
    assert SHARED not in stage.model.asked[0].user
    model = JudgingModel()
    stage = Judging([reflection(SHARED)], model)
    model.meanwhile = lambda: stage.decided.append(decided)
    assert await stage.run() == []


def numbered(number: int) -> Callable[[PropagationMaterial], list[tuple[int, str]]]:
    return lambda _: [(number, SHARED)]


@pytest.mark.parametrize("number", [-1, 0, 3, 9_999])
async def test_a_number_that_was_not_shown_names_nothing(number: int) -> None:
    stage = Judging([reflection(SHARED), reflection(OTHER, 2)], JudgingModel(numbered(number)))
    assert await stage.run() == []


async def test_of_two_texts_about_one_reflection_the_first_counts() -> None:
    twice = JudgingModel(lambda material: [*everything(material), (1, "The team deploys.")])
    assert [one.text for one in await Judging([reflection(SHARED)], twice).run()] == [SHARED]


def shown_by(*groups: str) -> list[Reflection]:
    """The same in these groups, each resting on a message of its own."""
    return [
        reflection(
            f"{SHARED} ({group})",
            number,
            Scope.of_group(AGENT, group),
            sources=(SOURCE.model_copy(update={"message_id": f"s.{group}"}),),
        )
        for number, group in enumerate(groups, 11)
    ]


async def test_what_several_groups_must_show_goes_up_when_enough_do_and_rests_on_all_of_them() -> None:
    wants = stream(propagation=True, propagation_from=3)
    alone = Judging([reflection(SHARED, scope=GROUP)], streams=wants, beside=shown_by("i.8"))
    assert await alone.run() == []
    assert isinstance(alone.model, JudgingModel)
    assert (alone.model.paid, alone.results()) == (0, {"alone": 1}), "two groups cannot be three"
    model = JudgingModel()
    stage = Judging(
        [reflection(SHARED, scope=GROUP)], model, streams=wants, beside=shown_by("i.8", "i.8", "i.9")
    )
    model.same = [2, 3]
    assert await stage.run() == []
    assert stage.results() == {"alone": 1}, "both are of one group"
    later = Judging([reflection(SHARED, 2, GROUP)], model, streams=wants, beside=stage.beside)
    model.same = [1, 2, 3, 4, 99]
    (climbed,) = await later.run(2)
    assert {source.message_id for source in climbed.sources} == {"s.m1", "s.i.8", "s.i.9"}
    assert model.asked[-1].name == "propagation-shown/1"
    assert "# of other groups" in model.asked[-1].user


async def test_those_who_show_the_same_are_found_behind_any_number_of_other_groups() -> None:
    """Newer reflections of people whose sessions belong to another group do not hide them."""
    bob = Scope.of_user(AGENT, "i.2")
    of_others = [reflection(SHARED, n, bob, session_ids=("s.away",)) for n in range(100, 300)]
    model = JudgingModel()
    model.same = [2]
    wants = stream(propagation=True, propagation_from=2)
    beside = [*of_others, reflection(SHARED, 2, bob)]
    stage = Judging([reflection(SHARED)], model, streams=wants, beside=beside)
    stage.sessions["s.away"] = replace(TALK, group_id="i.8")
    assert [climbed.scope for climbed in await stage.run()] == [GROUP]


async def test_what_names_somebody_of_another_group_that_the_model_saw_stays() -> None:
    model = JudgingModel()
    model.same = [2]
    stage = Judging(
        [reflection("Bo Berg's team deploys on Tuesdays.", scope=GROUP)],
        model,
        streams=stream(propagation=True, propagation_from=2),
        beside=[shown.model_copy(update={"session_ids": ("s.theirs",)}) for shown in shown_by("i.8")],
    )
    stage.sessions["s.theirs"] = replace(TALK, names={"i.2": "Bo Berg"})
    assert await stage.run() == []
    assert stage.results() == {"personal": 1}


async def test_what_others_took_back_while_the_model_was_asked_supports_nothing() -> None:
    model = JudgingModel()
    model.same = [2]
    wants = stream(propagation=True, propagation_from=2)
    stage = Judging([reflection(SHARED, scope=GROUP)], model, streams=wants, beside=shown_by("i.8"))
    model.meanwhile = lambda: stage.marks.append(Mark("message", "s.i.8", "for_ever"))
    assert await stage.run() == []
    assert stage.results() == {"alone": 1}
