"""Turns keep their names however often, and however much of, a history is sent."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

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
