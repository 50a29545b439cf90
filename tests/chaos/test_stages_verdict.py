"""The stages' verdict finds each kind of violation: a judge that cannot say no is none."""

from dataclasses import replace
from typing import Any, cast

import orjson

from eden_memory.stages.outcome import StoredRecord
from eden_memory.stages.publishing import Publisher
from tests.chaos import stages_verdict as verdict
from tests.chaos.stages_inputs import Chat
from tests.chaos.stages_reader import Arrived

HEADERS = {"ce_type": "eden.Answered.v1"}


def answered(number: int, offset: int, text: str = "yes") -> Arrived:
    value = orjson.dumps({"session": "q", "number": number, "text": text})
    return Arrived("out", 0, offset, f"q-{number}", value, HEADERS, 0.0)


def kept(version: int, numbers: list[int], texts: list[str]) -> Arrived:
    value = orjson.dumps({"session": "q", "version": version, "numbers": numbers, "texts": texts})
    return Arrived("kept", 0, version, f"q@{version:06}", value, {"ce_type": "eden.Kept.v1"}, 0.0)


def formed(seq: int, ids: list[str], session: str = "s.c", because: str = "messages") -> Arrived:
    refs = [{"message_id": one, "version": "0"} for one in ids]
    value = orjson.dumps({"session_id": session, "seq": seq, "messages": refs, "closed_because": because})
    return Arrived("formations", 0, seq, f"{session}/{seq}", value, {}, 0.0)


OUT = [answered(0, 0), answered(1, 1), answered(0, 2), answered(2, 3)]
TEXTS = {"q-0": "yes", "q-1": "yes", "q-2": "yes"}


def test_a_faithful_output_passes_repeats_included() -> None:
    assert verdict.lost(["q-0", "q-1", "q-2"], OUT) == []
    assert verdict.doubled(OUT) == verdict.reordered(OUT) == verdict.misjudged(OUT, ()) == []
    assert not any(verdict.versions([kept(1, [0, 1], ["yes"] * 2), kept(2, [2], ["yes"])], TEXTS).values())


def test_what_did_not_come_is_lost() -> None:
    assert len(verdict.lost(["q-0", "q-9"], OUT)) == 1


def test_two_outcomes_of_one_question_are_doubled() -> None:
    assert len(verdict.doubled([*OUT, answered(1, 4, "no")])) == 1
    assert len(verdict.unlike_the_ledger(OUT, {one.key: one.value or b"" for one in OUT[1:2]})) == 3


def test_first_arrivals_out_of_order_are_found() -> None:
    assert len(verdict.reordered([answered(1, 0), answered(0, 1)])) == 1


def test_a_good_question_given_up_and_a_poisoned_one_answered_are_misjudged() -> None:
    given_up = replace(OUT[0], headers={"ce_type": "eden.Unanswered.v1"})
    assert len(verdict.misjudged([given_up, OUT[1]], {"q-1"})) == 2


def test_the_second_hop_tells_lost_doubled_reordered_and_wrong() -> None:
    found = verdict.versions([kept(1, [0, 2], ["yes", "no"]), kept(3, [2], ["yes"])], TEXTS)
    assert {name: len(lines) for name, lines in found.items()} == {
        "lost": 1,
        "doubled": 1,
        "reordered": 1,
        "wrong": 1,
    }
    assert verdict.versions([kept(1, [1, 0], ["yes"] * 2)], TEXTS)["reordered"]


def test_dead_letters_are_missing_unexpected_or_doubled() -> None:
    letter = verdict.Letter("in", "p")
    assert verdict.dead_letters([letter], {"p"}, ()) == []
    assert len(verdict.dead_letters([letter, letter], {"p"}, ())) == 1
    assert len(verdict.dead_letters([letter], {"other"}, ())) == 2


def line(what: str, at: float, **more: float) -> dict[str, Any]:
    return {"what": what, "key": "q-0", "at": at, **more}


def test_a_call_in_flight_may_be_repeated_and_one_that_was_answered_may_not() -> None:
    first = line("asked", 1.0, looked=0.9, found=0.8)
    answer = [line("answered", 3.0), line("stored", 3.2), line("decided", 3.5)]
    moved = verdict.calls([first, line("asked", 2.0, looked=1.9, found=1.8), *answer])
    assert (moved.repeated, moved.after_the_answer, moved.after_the_outcome) == (1, [], [])
    again = verdict.calls([first, *answer, line("asked", 4.0, looked=3.3, found=3.1)])
    assert (len(again.after_the_answer), len(again.after_the_outcome)) == (1, 0)
    late = verdict.calls([first, *answer, line("asked", 4.0, looked=3.9, found=3.8)])
    assert (len(late.after_the_answer), len(late.after_the_outcome)) == (1, 1)


def test_an_answer_that_forgetting_deleted_may_be_asked_for_again() -> None:
    first, again = (line("asked", at, looked=at, found=at) for at in (1.0, 4.0))
    stored = line("stored", 2.0, new=1.0)
    assert verdict.calls([first, stored, again, line("stored", 5.0, new=1.0)]).after_the_answer == []
    assert len(verdict.calls([first, stored, again, line("stored", 5.0, new=0.0)]).after_the_answer) == 1
    assert len(verdict.calls([first, stored, again]).after_the_answer) == 1


def test_a_failed_call_that_is_tried_again_is_no_repeat() -> None:
    first, second = (line("asked", at, looked=at, found=at) for at in (1.0, 2.0))
    assert verdict.calls([first, line("failed", 1.5), second, line("stored", 3.0)]).repeated == 0


def test_messages_in_two_windows_in_none_or_out_of_order_are_found() -> None:
    living = {"s.a": {"s.c"}, "s.b": {"s.c"}, "s.gone": {"s.c"}}
    stored = {"s.c/1": ["s.a", "s.b"], "s.c/3": ["s.b"]}
    found = verdict.windows([formed(1, ["s.a", "s.b"]), formed(3, ["s.b"])], stored, living)
    assert {name: len(lines) for name, lines in found.items()} == {
        "lost": 1,
        "doubled": 1,
        "reordered": 1,
        "wrong": 0,
    }
    assert len(verdict.windows([formed(1, ["s.a"])], {"s.c/1": []}, {"s.a": {"s.other"}})["wrong"]) == 2


def test_a_moved_message_may_be_in_a_window_of_either_session_but_not_of_both() -> None:
    living, there = {"s.a": {"s.c", "s.d"}}, replace(formed(1, ["s.a"], "s.d"), key="s.d/1")
    stored = {"s.c/1": ["s.a"], "s.d/1": ["s.a"]}
    assert not any(verdict.windows([formed(1, ["s.a"])], stored, living).values())
    assert not any(verdict.windows([there], stored, living).values())
    assert len(verdict.windows([formed(1, ["s.a"]), there], stored, living)["doubled"]) == 1
    assert len(verdict.windows([formed(1, ["s.a"])], stored, {"s.a": {"s.d"}})["wrong"]) == 1


def test_what_the_chat_puts_in_has_an_id_of_its_own() -> None:
    put: list[StoredRecord] = []
    chat = Chat(1, cast("Publisher", None))
    for _ in range(400):
        put += chat.records()
    ids = [dict(one.headers)["ce_id"] for one in put]
    assert chat.moves > 5
    assert chat.transactions > 5
    assert len(ids) == len(set(ids))


def test_an_edited_message_has_a_second_window_of_its_own() -> None:
    living, stored = {"s.a": {"s.c"}}, {"s.c/1": ["s.a"], "s.c/2": ["s.a"]}
    again = [formed(1, ["s.a"]), formed(2, ["s.a"], because="edited")]
    assert not any(verdict.windows(again, stored, living).values())
    assert len(verdict.windows([again[0], formed(2, ["s.a"])], stored, living)["doubled"]) == 1
