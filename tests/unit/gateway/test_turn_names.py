"""Turns keep their names however often, and however much of, a history is sent."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from eden_memory.api.gateway.chat_formats import CHAT_COMPLETIONS, MESSAGES, RESPONSES
from eden_memory.api.gateway.turns import Turns

SESSION = "s.x"
WORDS = st.lists(st.sampled_from(["yes", "no", "ok", "why"]), min_size=1, max_size=12)


def history(texts: list[str]) -> list[dict[str, Any]]:
    return [{"role": ("user", "assistant")[n % 2], "content": text} for n, text in enumerate(texts)]


@settings(deadline=None)
@given(said=WORDS)
def test_a_conversation_sent_turn_by_turn_stores_every_turn_once(said: list[str]) -> None:
    stored: dict[str, str] = {}
    for end in range(1, len(said) + 1, 2):
        turns = Turns(SESSION, history(said[:end]))
        for _ in range(2):  # and once more, by a retry
            stored |= {one.name: one.text for one in turns.new}
            answer = turns.answer(said[end]) if end < len(said) else None
            stored |= {answer.name: answer.text} if answer else {}
    assert list(stored.values()) == said


@settings(deadline=None)
@given(said=WORDS, cut=st.integers(0, 5))
def test_of_a_cut_history_the_new_turn_keeps_its_words_and_nothing_else_is_new(
    said: list[str], cut: int
) -> None:
    asked = said if len(said) % 2 else said[:-1]
    turns = Turns(SESSION, history(asked)[min(cut, max(len(asked) - 1, 0)) :])
    assert [one.text for one in turns.new] == asked[-1:]


def test_sessions_roles_pictures_and_calls_tell_equal_words_apart() -> None:
    picture = {"type": "image_url", "image_url": {"url": "data:a"}}
    text = {"type": "text", "text": "look"}
    requests: list[list[dict[str, Any]]] = [
        [{"role": "user", "content": "look"}],
        [{"role": "user", "content": [text, picture]}],
        [{"role": "tool", "tool_call_id": "1", "content": "look"}],
        [{"role": "tool", "tool_call_id": "2", "content": "look"}],
    ]
    names = [Turns(session, one).new[0].name for one in requests for session in ("s.x", "i.1")]
    assert len(set(names)) == len(names)
    assert all(Turns(SESSION, one).new[0].text == "look" for one in requests)


def test_text_parts_are_the_text_itself() -> None:
    parts = [{"type": "text", "text": "look"}]
    whole = Turns(SESSION, [{"role": "user", "content": "look"}])
    assert Turns(SESSION, [{"role": "user", "content": parts}]).new == whole.new


def test_odd_messages_are_left_out_and_surrogates_can_be_stored() -> None:
    odd: list[Any] = [None, 5, {"role": 7}, {"role": "user"}, {"role": "user", "content": {"$ne": 1}}]
    assert Turns(SESSION, odd).new == []
    (turn,) = Turns(SESSION, [{"role": "user", "content": "a\ud83d"}]).new
    assert turn.text.encode()


def test_a_conversation_has_the_same_turns_over_every_api() -> None:
    chat = [
        {"role": "system", "content": "s"},
        {"role": "user", "content": "weather?"},
        {"role": "assistant", "content": "wait", "tool_calls": [{"id": "c"}]},
        {"role": "tool", "tool_call_id": "c", "content": "21"},
        {"role": "assistant", "content": "warm"},
        {"role": "user", "content": "ok"},
    ]
    items: list[Any] = [
        {"role": "user", "content": [{"type": "input_text", "text": "weather?"}]},
        {"type": "reasoning", "summary": []},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "wait"}]},
        {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c", "output": "21"},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "warm"}]},
        {"role": "user", "content": "ok"},
    ]
    blocks: list[Any] = [
        {"role": "user", "content": "weather?"},
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "?", "signature": "x"},
                {"type": "text", "text": "wait"},
                {"type": "tool_use", "id": "c", "name": "f", "input": {}},
            ],
        },
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c", "content": "21"}]},
        {"role": "assistant", "content": [{"type": "text", "text": "warm"}]},
        {"role": "user", "content": [{"type": "text", "text": "ok"}]},
    ]
    told = [
        CHAT_COMPLETIONS.messages({"messages": chat}),
        RESPONSES.messages({"instructions": "s", "input": items}),
        MESSAGES.messages({"system": "s", "messages": blocks}),
    ]
    first, *others = [Turns(SESSION, messages) for messages in told]
    assert [turn.text for turn in first.history] == ["weather?", "wait", "21", "warm"]
    assert [turn.role for turn in first.new] == ["user"]
    assert all(
        (turns.history, turns.new, turns.lost) == (first.history, first.new, first.lost) for turns in others
    )


def test_behind_an_earlier_response_the_same_words_are_another_turn_and_so_is_their_answer() -> None:
    said = [{"role": "user", "content": "ok"}]
    turns = [
        Turns(SESSION, said, anchor=anchor) for anchor in (None, "response:1", "response:2", "response:2")
    ]
    names = [(one.new[0].name, answer.name) for one in turns if (answer := one.answer("ok"))]
    assert names[2] == names[3]
    assert len({name for pair in names[:3] for name in pair}) == 6
