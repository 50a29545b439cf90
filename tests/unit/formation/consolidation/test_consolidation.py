"""consolidation as a function: when it asks, what it absorbs, and what becomes of answers."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eden_memory.errors import PermanentError, QuestionSpent
from eden_memory.forgotten import Mark
from eden_memory.formation.consolidation_rules import (
    BlobEdit,
    BlobText,
    change_of,
    due,
    stored_blob,
    versioned,
    within_limit,
)
from eden_memory.formation.prompt_material import DatedText
from eden_memory.limits import CHARACTERS_OF_A_WORD, DEFAULTS, limits_of, words_of
from eden_memory.schemas.answers import ConsolidatedText
from eden_memory.schemas.documents import Stream
from eden_memory.schemas.events import ScopeConsolidated
from eden_memory.schemas.provenance import SourceMessage
from eden_memory.schemas.scopes import Scope
from eden_memory.stages.stage import Dead, Decision, Retry
from tests.unit.formation.consolidation.kit import (
    USER,
    Around,
    Model,
    as_stored,
    at,
    delivery,
    reflection,
    snapshot,
)

FOUR = [reflection(number) for number in (1, 2, 3, 4)]
SESSION = Scope.of_session("s.a", "s.one", ("i.1",), 2)


def blob(result: Any) -> ScopeConsolidated:
    assert isinstance(result, Decision)
    (event,) = result.events
    assert isinstance(event, ScopeConsolidated)
    return event


async def test_a_full_buffer_becomes_the_next_version_of_the_blob() -> None:
    stored = snapshot(*FOUR[::-1], blob="old", blob_version=6, highest_blob_version=6)
    around = Around(stored, Model(["merged text"]))
    result = await around.run()
    event = blob(result)
    assert (event.version, event.based_on, event.text, event.words) == (7, 6, "merged text", 2)
    assert event.absorbed == ("r1", "r2", "r3", "r4")
    assert event.consolidated_at == at(240)
    assert result.writes == (f"blob:{USER.key}@7",)
    assert result.key == f"{USER.key}@7"
    prompt, asking = around.model.asked[0]
    shown = tuple(DatedText(one.said_at, one.content) for one in FOUR)
    assert prompt.material.buffer == shown  # pyright: ignore
    assert (asking.role, asking.user_id, asking.scope, asking.tier) == ("consolidation", "i.1", USER.key, 0)
    assert asking.shown == ("6", "r1", "r2", "r3", "r4")


async def test_below_the_threshold_nothing_is_read_or_asked() -> None:
    around = Around(snapshot(*FOUR[:3]), Model([]))
    assert await around.run() == ()


async def test_a_stream_sets_threshold_limit_guidance_and_model() -> None:
    stream = Stream(
        _id="s.a/user",
        agent_id="s.a",
        scope="user",
        threshold=2,
        word_limit=10,
        consolidation_guidance="keep names",
        consolidation_model="other",
    )
    around = Around(snapshot(*FOUR[:2]), Model(["text"]), streams={"user": stream})
    event = blob(await around.run())
    prompt, asking = around.model.asked[0]
    assert event.word_limit == 10
    assert prompt.material.guidance == "keep names"  # pyright: ignore
    assert asking.model == "other"


async def test_a_blob_says_its_version_in_its_first_line_if_the_stream_wants_that() -> None:
    stream = Stream(
        _id="s.a/user", agent_id="s.a", scope="user", version_line=True, consolidation_prompt="In {words}."
    )
    stored = snapshot(*FOUR, blob="[VERSION 6]\nold", blob_version=6, highest_blob_version=8)
    around = Around(stored, Model(["[VERSION 6]\nmerged text"]), streams={"user": stream})
    event = blob(await around.run())
    assert (event.text, event.words) == ("[VERSION 9]\nmerged text", 2)
    prompt, _ = around.model.asked[0]
    assert prompt.material.blob == "old"  # pyright: ignore
    assert "VERSION" not in prompt.user
    assert "In 300." in prompt.system
    limits = limits_of(USER, {"user": stream})
    edit = BlobEdit("edit_blob", "[VERSION 6]\nold and more")
    changed = edit.applied_to(stored_blob(stored), limits)
    assert isinstance(changed, BlobText)
    assert versioned(changed.text, 10, limits) == "[VERSION 10]\nold and more"
    assert BlobEdit("edit_blob", "[VERSION 1]\nold").applied_to(stored_blob(stored), limits) == "needless"


async def test_a_closed_session_consolidates_whatever_its_buffer() -> None:
    around = Around(snapshot(FOUR[0], scope=SESSION, closed=True), Model(["text"]))
    event = blob(await around.run())
    assert (event.because, event.scope) == ("closed", SESSION)


async def test_a_closed_session_with_nothing_to_absorb_asks_nothing() -> None:
    around = Around(snapshot(scope=SESSION, closed=True, blob="b", blob_version=1), Model([]))
    assert await around.run() == ()


async def test_several_changes_taken_together_are_one_question() -> None:
    around = Around(snapshot(*FOUR), Model(["text"]))
    change = change_of(around.snapshot)
    result = await around.run(*(delivery(change, f"d{number}") for number in range(5)))
    assert blob(result).cause == "d4"
    assert around.model.paid == 1


async def test_a_hot_scope_waits_for_thirty_seconds_of_its_windows_time() -> None:
    fields: dict[str, Any] = {
        "blob": "b",
        "blob_version": 1,
        "highest_blob_version": 1,
        "consolidated_at": at(211),
    }
    assert await Around(snapshot(*FOUR, **fields), Model([])).run() == ()
    fields["consolidated_at"] = at(210)
    assert blob(await Around(snapshot(*FOUR, **fields), Model(["text"])).run()).version == 2


async def test_a_buffer_that_contexts_cannot_show_whole_does_not_wait() -> None:
    eight = [reflection(number, seconds=float(number)) for number in range(1, 9)]
    fields: dict[str, Any] = {
        "blob": "b",
        "blob_version": 1,
        "highest_blob_version": 1,
        "consolidated_at": at(0),
    }
    assert await Around(snapshot(*eight, **fields), Model([])).run() == ()
    nine = [*eight, reflection(9, seconds=9.0)]
    assert len(blob(await Around(snapshot(*nine, **fields), Model(["text"])).run()).absorbed) == 9


async def test_reflections_older_than_the_blob_are_not_left_over_for_ever() -> None:
    late = [reflection(number, seconds=-1000.0 * number) for number in (1, 2, 3, 4)]
    fields: dict[str, Any] = {
        "blob": "b",
        "blob_version": 1,
        "highest_blob_version": 1,
        "consolidated_at": at(0),
    }
    assert blob(await Around(snapshot(*late, **fields), Model(["text"])).run()).absorbed == (
        "r4",
        "r3",
        "r2",
        "r1",
    )


async def test_at_most_two_hundred_of_the_oldest_are_absorbed() -> None:
    many = [reflection(number) for number in range(1, 251)]
    event = blob(await Around(snapshot(*many), Model(["text"])).run())
    assert event.absorbed == tuple(f"r{number}" for number in range(1, 201))


async def test_a_version_that_is_decided_but_not_applied_is_not_asked_for_again() -> None:
    around = Around(snapshot(*FOUR), Model([]), writes={f"blob:{USER.key}@1"})
    assert await around.run() == ()


async def test_forgotten_reflections_are_left_out_and_a_forgotten_user_has_no_blob() -> None:
    around = Around(snapshot(*FOUR), Model(["text"]), marks=[Mark("reflection", "r2", "for_ever")])
    assert blob(await around.run()).absorbed == ("r1", "r3", "r4")
    gone = Around(snapshot(*FOUR), Model([]), marks=[Mark("user", "i.1", "for_ever")])
    assert await gone.run() == ()


async def test_what_was_formed_before_a_user_was_forgotten_is_left_out() -> None:
    mark = Mark("user", "i.1", "created_up_to", until=at(120))
    assert blob(await Around(snapshot(*FOUR), Model(["text"]), marks=[mark]).run()).absorbed == ("r3", "r4")


async def test_what_rests_on_something_forgotten_is_left_out_before_forgetting_reaches_it() -> None:
    said = SourceMessage(message_id="s.m", version="1" * 16, session_id="s.gone", time=at(0))
    marks = [Mark("session", "s.gone", "created_up_to", until=at(600))]
    around = Around(snapshot(*FOUR, closed=True), Model(["text"]), marks=marks)
    around.stored["r2"] = as_stored("r2", said)
    around.stored["r3"] = as_stored("r3", said.model_copy(update={"session_id": "s.stays"}))
    assert blob(await around.run()).absorbed == ("r1", "r3", "r4")
    around.stored |= {name: as_stored(name, said) for name in ("r1", "r2", "r3", "r4")}
    assert (await around.run(), around.model.paid) == ((), 1), "nothing is left to ask about"


async def test_nothing_is_built_on_a_forgotten_blob() -> None:
    stored = snapshot(*FOUR, blob="with a secret", blob_version=3, highest_blob_version=3)
    around = Around(stored, Model([]), marks=[Mark("blob", f"{USER.key}@3", "for_ever")])
    assert await around.run() == ()


async def test_what_is_forgotten_while_the_model_answers_is_not_published() -> None:
    around = Around(snapshot(*FOUR), Model(["with r2", "without"]))
    around.model.meanwhile = lambda: around.marks.append(Mark("reflection", "r2", "for_ever"))
    assert isinstance(await around.run(), Retry)
    around.model.meanwhile = lambda: None
    event = blob(await around.run())
    assert (event.text, event.absorbed) == ("without", ("r1", "r3", "r4"))


async def test_after_a_blob_was_taken_back_the_rest_consolidates_at_once() -> None:
    stored = snapshot(
        *FOUR[:2], blob="first", blob_version=1, highest_blob_version=2, consolidated_at=at(120)
    )
    around = Around(stored, Model(["anew"]))
    change = change_of(stored).model_copy(update={"changed": ("blob",)})
    event = blob(await around.run(delivery(change)))
    assert (event.version, event.based_on, event.because) == (3, 1, "forgotten")


async def test_a_redelivery_uses_the_answer_that_had_arrived_on_what_was_shown_then() -> None:
    around = Around(snapshot(*FOUR), Model(["text"]))
    first = blob(await around.run())
    around.change(buffer=(*around.snapshot.buffer, reflection(5)))
    second = blob(await around.run())
    assert second == first
    assert around.model.paid == 1


async def test_an_answer_of_another_state_of_the_scope_is_not_used() -> None:
    around = Around(snapshot(*FOUR), Model(["first", "second"]))
    await around.run()
    around.change(buffer=tuple(reflection(number) for number in (1, 3, 4, 5)))
    event = blob(await around.run())
    assert (event.text, event.absorbed) == ("second", ("r1", "r3", "r4", "r5"))


async def test_after_a_dead_attempt_the_next_waits_for_a_fuller_buffer_and_asks_anew() -> None:
    around = Around(snapshot(*FOUR), Model([None, "text"]))
    with pytest.raises(PermanentError):
        await around.run()
    assert await around.run() == ()
    around.change(buffer=tuple(reflection(number) for number in range(1, 9)))
    event = blob(await around.run())
    assert (event.version, len(event.absorbed)) == (1, 8)
    assert around.model.asked[-1][1].anew == 1


async def test_a_dead_letter_sent_again_asks_anew_at_once() -> None:
    around = Around(snapshot(*FOUR), Model([None, "text"]))
    with pytest.raises(PermanentError):
        await around.run()
    assert blob(await around.run(around.again(1))).attempt == 2
    assert around.model.asked[-1][1].anew == 1


async def test_an_empty_text_never_takes_the_place_of_a_blob() -> None:
    around = Around(snapshot(*FOUR), Model(["", "  ", "text"]))
    assert isinstance(await around.run(), Dead)
    around.change(buffer=tuple(reflection(number) for number in range(1, 9)))
    assert blob(await around.run()).text == "text"


async def test_a_text_over_the_limit_is_asked_for_once_more_then_cut_and_counted() -> None:
    long = "One two three. " * 150
    around = Around(snapshot(*FOUR), Model([long, long]))
    event = blob(await around.run())
    assert around.model.paid == 2
    assert event.cut
    assert event.words <= 300
    assert event.text.endswith(".")
    assert around.consolidated() == {("user", "threshold", "true"): 1}


async def test_a_blob_that_absorbed_something_private_is_private() -> None:
    buffer = [*FOUR[:3], reflection(4, private=True)]
    assert blob(await Around(snapshot(*buffer), Model(["text"])).run()).private
    assert not blob(await Around(snapshot(*FOUR), Model(["text"])).run()).private


@given(st.text(max_size=400), st.integers(1, 20))
def test_no_text_is_ever_over_its_limit(text: str, limit: int) -> None:
    kept, cut = within_limit(ConsolidatedText(text=text), limit)
    assert words_of(kept) <= limit
    assert len(kept) <= limit * CHARACTERS_OF_A_WORD
    assert cut or kept == text.strip()


@given(st.lists(st.integers(0, 400), min_size=1, max_size=60))
def test_every_backlog_is_worked_off_to_within_thirty_seconds_of_windows_time(seconds: list[int]) -> None:
    """Each consolidation absorbs something, and what is left is below the threshold or recent."""
    limits = DEFAULTS["user"]
    left = [reflection(number, float(second)) for number, second in enumerate(seconds)]
    state = snapshot(*left)
    for version in range(1, len(left) + 2):
        if due(state, limits) is None:
            break
        absorbed = sorted(state.buffer, key=lambda one: one.formed_at)[:3]
        state = state.model_copy(
            update={
                "buffer": tuple(one for one in state.buffer if one not in absorbed),
                "blob_version": version,
                "highest_blob_version": version,
                "consolidated_at": absorbed[-1].formed_at,
            }
        )
    assert due(state, limits) is None
    if len(state.buffer) >= limits.threshold:
        newest = max(one.formed_at for one in state.buffer)
        assert state.consolidated_at is not None
        assert abs((newest - state.consolidated_at).total_seconds()) < 30


@pytest.mark.parametrize(
    ("scope", "tier"),
    [
        (USER, 2),
        (Scope.of_session("s.a", "s.s", ("i.3", "i.1")), 2),
        (Scope.of_session("s.a", "s.s", ("i.3",)), 0),
        (Scope.of_session("s.a", "s.paid", tuple(f"i.{n}" for n in range(3, 200))), 2),
        (Scope.of_session("s.a", "s.free", tuple(f"i.{n}" for n in range(3, 200))), 0),
        (Scope.of_group("s.a", "s.g"), 0),
        (Scope.of_agent("s.a"), 0),
        (Scope.of_shard("s.a", "notes"), 0),
    ],
)
async def test_the_tier_is_the_highest_of_the_scopes_users(scope: Scope, tier: int) -> None:
    buffer = [one.model_copy(update={"reflection_id": f"r{n}"}) for n, one in enumerate(FOUR * 3)]
    around = Around(snapshot(*buffer, scope=scope), Model(["merged text"]), tiers={"i.1": 2, "s.paid": 2})
    blob(await around.run())
    assert around.model.asked[0][1].tier == tier


async def test_after_a_failure_without_answers_it_waits_for_a_fuller_buffer() -> None:
    model = Model(["merged text"])
    model.spent = {f"consolidation:{USER.key}@1:1"}
    around = Around(snapshot(*FOUR), model)
    assert await around.run() == ()
    around.change(buffer=tuple(reflection(number) for number in range(1, 9)))
    assert blob(await around.run()).version == 1
    assert model.paid == 1


async def test_a_delivery_whose_own_calls_are_used_up_is_given_up() -> None:
    model = Model([])
    model.spent = {f"consolidation:{USER.key}@1:1"}
    around = Around(snapshot(*FOUR), model)
    with pytest.raises(QuestionSpent):
        await around.run(delivery(change_of(around.snapshot))._replace(attempt=2))
