"""reflection-extraction: one call for all scopes; the session's last word follows its last reflections."""

from dataclasses import replace
from datetime import timedelta

import pytest

from eden_memory.errors import PermanentError
from eden_memory.forgotten import Mark
from eden_memory.formation.prompt_material import ReflectionMaterial, ScopeBrief
from eden_memory.limits import STANDARD
from eden_memory.schemas.documents import BufferedReflection, Snapshot, Stream
from eden_memory.schemas.events import FactsExtracted
from eden_memory.schemas.scopes import Scope
from tests.unit.context.parts import stored_snapshot
from tests.unit.formation.extraction.windows import (
    AGENT,
    AGENT_SCOPE,
    FORMATION,
    MARA,
    NOON,
    SESSION_SCOPE,
    SHARD_SCOPE,
    TOM,
    USER_SCOPE,
    Bench,
    Talk,
    fact,
    reflecting,
    reflection,
    said,
    stating,
    talk,
)

GOAL = reflection("The goal is a plan for Tern.", "session", 1)


def snapshot(scope: Scope, blob: str | None, *buffer: str) -> Snapshot:
    """What the store holds of a scope; reflections are called `r0`, `r1`, …"""
    return stored_snapshot(
        scope,
        blob=blob,
        blob_version=3 if blob else 0,
        buffer=tuple(
            BufferedReflection(reflection_id=f"r{number}", content=text, formed_at=at, said_at=at)
            for number, (text, at) in enumerate(
                (text, NOON + timedelta(seconds=n)) for n, text in enumerate(buffer)
            )
        ),
        changed_at=NOON,
    )


def brief(bench: Bench, label: str) -> ScopeBrief:
    """How a scope was shown."""
    material = bench.model.prompts[0].material
    assert isinstance(material, ReflectionMaterial)
    return next(one for one in material.scopes if one.label == label)


async def test_one_call_forms_reflections_of_all_scopes_and_shards() -> None:
    stated = (
        reflection("The office has little larch this year.", "agent", 1),
        reflection("Port 3 fails on Mondays.", "shard:known outages", 2),
        reflection("Wants short numbered lists.", "user", 2),
        reflection("Wants no tables.", "user"),
        GOAL,
    )
    bench = Bench(talk("a", "b"), reflecting(*stated))
    formed, closed = await bench.reflections()
    assert len(bench.model.prompts) == 1
    assert [(one.scope.key, one.position) for one in formed] == [
        (AGENT_SCOPE.key, 1),
        (SHARD_SCOPE.key, 1),
        (USER_SCOPE.key, 1),
        (USER_SCOPE.key, 2),
        (SESSION_SCOPE.key, 1),
    ]
    assert len({one.reflection_id for one in formed}) == len(formed)
    assert [one.whole_window for one in formed] == [False, False, False, True, False]
    assert {one.formed_at for one in formed} == {NOON + timedelta(hours=1)}
    assert formed[0].call is not None
    assert formed[0].call.items == 5
    assert closed == []


async def test_a_reflection_was_said_when_the_newest_of_its_messages_was_whenever_its_window_closed() -> None:
    january = NOON - timedelta(days=50)
    told = tuple(
        replace(said(number, "a"), created_at=january + timedelta(days=number)) for number in (1, 2, 3)
    )
    stated = (reflection("Wants lists.", "user", 1, 2), reflection("Wants no tables.", "user"))
    formed, _ = await Bench(Talk(told), reflecting(*stated, GOAL)).reflections()
    days = {one.text: (one.said_at - january).days for one in formed}
    assert days == {"Wants lists.": 2, "Wants no tables.": 3, GOAL.text: 1}
    assert {one.formed_at for one in formed} == {NOON + timedelta(hours=1)}


async def test_failed_and_empty_extractions_form_the_sessions_reflections_all_the_same() -> None:
    window = talk("a").requested.window()
    for outcome in ("failed", "empty"):
        bench = Bench(talk("a"), reflecting(GOAL))
        extracted = FactsExtracted(cause="e0", window=window, outcome=outcome)
        formed, _ = await bench.reflections(extracted)
        assert [one.scope for one in formed] == [SESSION_SCOPE]


async def test_an_ended_session_is_closed_after_its_last_reflections() -> None:
    bench = Bench(talk("a", because="ended"), reflecting(GOAL, reflection("Wants lists.", "user", 1)))
    _, (closed,) = await bench.reflections()
    assert (closed.scope, closed.reflections, closed.formation_id) == (SESSION_SCOPE, 1, FORMATION)


async def test_an_ended_session_with_nothing_pending_is_closed_without_a_call() -> None:
    bench = Bench(talk(because="ended"), reflecting(GOAL))
    formed, (closed,) = await bench.reflections()
    assert (formed, closed.reflections, bench.model.prompts) == ([], 0, [])


async def test_a_session_without_reflections_is_counted_and_none_is_invented() -> None:
    bench = Bench(talk("a"), reflecting())
    formed, _ = await bench.reflections()
    assert (formed, bench.left) == ([], {"asked_again": 1, "missing": 1})


async def test_a_scope_with_fewer_reflections_than_wanted_is_named_to_the_model() -> None:
    port = reflection("Port 3 fails on Mondays.", "shard:known  outages", 1)
    bench = Bench(talk("a"), reflecting(port, reflection(" ", "session", 1)))
    bench.kept.streams["shard:known outages"] = Stream(
        _id="x", agent_id=AGENT, scope="shard", shard="known outages", min_items=2
    )
    formed, _ = await bench.reflections()
    (complaint,) = bench.model.complaints
    assert (
        "shard:known outages has 1, wanted are at least 2; session has 0, wanted are at least 1" in complaint
    )
    assert len(formed) == 1
    assert bench.left == {"asked_again": 1, "missing": 2, "empty": 1}
    enough = Bench(talk("a"), reflecting(GOAL))
    await enough.reflections()
    assert enough.model.complaints == []


@pytest.mark.parametrize(
    ("least", "most", "wanted"), [(5, None, (5, 5)), (None, 0, (0, 0)), (None, 2, (1, 2)), (0, None, (0, 3))]
)
async def test_of_a_stream_that_sets_one_limit_of_items_the_other_follows(
    least: int | None, most: int | None, wanted: tuple[int, int]
) -> None:
    bench = Bench(talk("a"), reflecting(GOAL))
    bench.kept.streams["session"] = Stream(
        _id="x", agent_id=AGENT, scope="session", min_items=least, max_items=most
    )
    await bench.reflections()
    shown = brief(bench, "session")
    assert (shown.least, shown.most) == wanted


async def test_the_newest_of_each_buffer_and_the_text_are_shown_with_the_facts_just_found() -> None:
    bench = Bench(talk("a"), reflecting(GOAL))
    buffer = [f"reflection {number}" for number in range(11)]
    bench.kept.shots[USER_SCOPE.key] = snapshot(USER_SCOPE, "Likes lists.", *buffer)
    found, _ = await Bench(talk("a"), stating(fact("Tern is blue.", "user", 1))).facts()
    await bench.reflections(found)
    shown = brief(bench, "user")
    assert (shown.blob, [one.text for one in shown.buffer]) == ("Likes lists.", buffer[-8:])
    assert (shown.least, shown.most) == (0, 4)
    assert "- Tern is blue." in bench.model.prompts[0].user
    assert (bench.model.askings[0].role, bench.model.askings[0].tier) == ("reflections", 1)


async def test_forgotten_texts_and_reflections_are_not_shown() -> None:
    bench = Bench(talk("a", "secret"), reflecting(GOAL))
    bench.kept.shots[USER_SCOPE.key] = snapshot(USER_SCOPE, "Old text.", "one", "two")
    found, _ = await Bench(talk("a", "secret"), stating(fact("It is secret.", "user", 2))).facts()
    bench.kept.marks += [
        Mark("blob", f"{USER_SCOPE.key}@3", "for_ever"),
        Mark("reflection", "r0", "for_ever"),
        Mark("message", "s.m2", "for_ever"),
    ]
    await bench.reflections(found)
    shown = brief(bench, "user")
    assert (shown.blob, [one.text for one in shown.buffer]) == (None, ["two"])
    assert "secret" not in bench.model.prompts[0].user


async def test_facts_of_answers_to_a_forgotten_user_are_not_shown() -> None:
    window = Talk((said(1, "a"), said(2, "b", role="assistant"), said(4, "c")))
    bench = Bench(window, reflecting(GOAL))
    found, _ = await Bench(window, stating(fact("It is secret.", "user", 2))).facts()
    bench.kept.marks.append(Mark("user", MARA, "created_up_to", until=said(2, "").time))
    await bench.reflections(found)
    assert "secret" not in bench.model.prompts[0].user


async def test_what_rests_on_messages_forgotten_meanwhile_is_dropped() -> None:
    bench = Bench(talk("a", "b"), reflecting(reflection("of b", "user", 2), GOAL))
    bench.model.while_asked = lambda: bench.kept.marks.append(Mark("message", "s.m2", "for_ever"))
    formed, _ = await bench.reflections()
    assert [one.text for one in formed] == [GOAL.text]


async def test_limits_hold_per_scope_and_a_streams_own_come_first() -> None:
    many = [
        reflection(f"The team had insight {n}.", scope)
        for scope in ("user", "agent", "session")
        for n in range(6)
    ]
    bench = Bench(talk("a"), reflecting(*many))
    bench.kept.streams["agent"] = Stream(_id="x", agent_id=AGENT, scope="agent", min_items=1, max_items=5)
    formed, _ = await bench.reflections()
    kinds = [one.scope.kind for one in formed]
    assert {kind: kinds.count(kind) for kind in kinds} == {"user": 4, "agent": 5, "session": 3}
    assert bench.left["beyond"] == 6
    assert (brief(bench, "agent").least, brief(bench, "agent").most) == (1, 5)


async def test_reflections_keep_to_their_words() -> None:
    bench = Bench(talk("a"), reflecting(reflection("word " * 60, "session")))
    formed, _ = await bench.reflections()
    assert len(formed[0].text.split()) == STANDARD.reflection_words


async def test_contact_data_leaves_agent_group_and_shard_for_the_user_within_the_users_limit() -> None:
    personal = [
        reflection(f"Write to mara{n}@example.org first.", scope)
        for n, scope in enumerate(("agent", "group", "shard:known outages"))
    ]
    own = [reflection(f"Wants list {n}.", "user") for n in range(4)]
    bench = Bench(talk("a"), reflecting(*personal, *own))
    formed, _ = await bench.reflections()
    assert [one.scope for one in formed] == [USER_SCOPE] * 4
    assert [one.demoted_from for one in formed] == ["agent", "group", "shard", None]
    assert bench.left["beyond"] == 3


@pytest.mark.parametrize(
    ("numbers", "private"),
    [((1,), True), ((2,), False), ((3,), True), ((2, 3), False), ((), True)],
    ids=["of the private user", "of another", "of the agent alone", "of another and the agent", "of all"],
)
async def test_what_rests_on_a_private_users_words_is_private(
    numbers: tuple[int, ...], private: bool
) -> None:
    messages = (said(1, "a", MARA), said(2, "b", TOM), said(3, "c", role="assistant"))
    window = Talk(messages, (AGENT_SCOPE, SESSION_SCOPE), (MARA, TOM), private=(MARA,))
    formed, _ = await Bench(window, reflecting(reflection("An insight.", "agent", *numbers))).reflections()
    assert formed[0].private is private


async def test_a_private_users_own_reflections_are_private() -> None:
    bench = Bench(talk("a", private=(MARA,)), reflecting(reflection("Wants lists.", "user", 1)))
    formed, _ = await bench.reflections()
    assert formed[0].private


async def test_a_redelivery_after_a_crash_takes_the_answer_for_what_was_shown_then() -> None:
    bench = Bench(talk("a", "b"), reflecting(reflection("Of b.", "session", 2)))
    before, _ = await bench.reflections()
    bench.kept.shots[USER_SCOPE.key] = snapshot(USER_SCOPE, "The memory has moved on.")
    bench.kept.marks.append(Mark("message", "s.m1", "for_ever"))
    after, _ = await bench.reflections()
    assert len(bench.model.prompts) == 1
    assert [one.json_bytes() for one in after] == [one.json_bytes() for one in before]


async def test_texts_that_are_kept_no_longer_are_given_up_at_once_here_too() -> None:
    bench = Bench(talk("a"), reflecting())
    bench.kept.stored.clear()
    with pytest.raises(PermanentError):
        await bench.reflections()
