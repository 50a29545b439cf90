"""A chat's body: memory's fields leave it, memory's messages join it, everything else keeps its bytes."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eden_memory.api.gateway.chat_formats import MESSAGES as CLAUDE
from eden_memory.api.gateway.chat_formats import RESPONSES
from eden_memory.api.gateway.chat_request import MEMORY_FIELDS, ChatRequest
from eden_memory.api.gateway.turns import Turns, last_user_text
from eden_memory.errors import Invalid

TEXTS = st.text(max_size=8)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=8,
)
MESSAGES = st.lists(
    st.fixed_dictionaries(
        {"role": st.sampled_from(["system", "user", "assistant", "tool"]), "content": VALUES}
    ),
    max_size=5,
)
FIELDS = st.dictionaries(
    TEXTS.filter(lambda name: name not in {"user", "n", "messages", *MEMORY_FIELDS}), VALUES
)


@settings(deadline=None)
@given(messages=MESSAGES, fields=FIELDS, indent=st.sampled_from([None, 1]), ascii_only=st.booleans())
def test_only_what_is_ours_is_added_and_taken_away(
    messages: list[Any], fields: dict[str, Any], indent: int | None, ascii_only: bool
) -> None:
    whole = {**fields, "memory_id": "s", "messages": messages, "memory_top_k": 1}
    body = json.dumps(whole, indent=indent, ensure_ascii=ascii_only).encode("utf-8", "surrogatepass")
    chat = ChatRequest(body)
    assert json.loads(chat.forwarded()) == {**fields, "messages": messages}
    grown = json.loads(chat.forwarded("S", "C"))
    added = [one for one in grown.pop("messages") if one not in messages]
    assert grown == fields
    expected = [{"role": "system", "content": text} for text in ("S", "C")] if messages else []
    assert [one for one in added if one in expected] == [one for one in expected if one not in messages]


@pytest.mark.parametrize(
    ("roles", "wanted"),
    [
        ("u", "SCu"),
        ("su", "sSCu"),
        ("sduau", "sdSuaCu"),
        ("uauat", "SuaCuat"),
        ("ss", "ssSC"),
        ("aa", "SCaa"),
    ],
)
def test_what_stays_stands_behind_the_instructions_and_what_changes_before_the_last_user_turn(
    roles: str, wanted: str
) -> None:
    names = {"s": "system", "d": "developer", "u": "user", "a": "assistant", "t": "tool"}
    body = json.dumps({"messages": [{"role": names[one], "content": one} for one in roles]}).encode()
    grown = json.loads(ChatRequest(body).forwarded("S", "C"))
    assert "".join(one["content"] for one in grown["messages"]) == wanted


def test_numbers_white_space_and_escapes_of_others_stay_as_they_were_written() -> None:
    body = (
        b'{"x":1.50, "y" : 1e400,"memory_id":"a","z":"\\ud83d\\u00e9",  "big":123456789012345678901234567890}'
    )
    forwarded = ChatRequest(body).forwarded()
    assert forwarded == b'{"x":1.50,"y" : 1e400,"z":"\\ud83d\\u00e9","big":123456789012345678901234567890}'


@pytest.mark.parametrize(
    "body", [b"", b"{", b'{"a" 1}', b'{"a":1,}', b"{1:2}", b'{"a":1}}', b"\xef\xbb\xbf{}"]
)
def test_what_is_no_object_is_refused(body: bytes) -> None:
    with pytest.raises(Invalid):
        ChatRequest(body)


def test_thoughts_and_cache_marks_keep_their_bytes_when_memory_joins_the_system_blocks() -> None:
    body = (
        b'{"model":"m", "system":[ {"text":"s","type":"text","cache_control":{"type":"ephemeral"}} ],'
        b'"memory_id":"a","messages":[{"role":"assistant","content":[{"type":"thinking", "thinking":"\\u00e9",'
        b'"signature":"x=="}]}]}'
    )
    grown = ChatRequest(body, CLAUDE).forwarded("S", "C")
    assert body.partition(b'"messages"')[2] in grown
    assert b'{"text":"s","type":"text","cache_control":{"type":"ephemeral"}},' in grown
    assert [block["text"] for block in json.loads(grown)["system"]] == ["s", "S", "C"]


@pytest.mark.parametrize(
    ("own", "wanted"),
    [
        ({}, "S\n\nC"),
        ({"instructions": None}, "S\n\nC"),
        ({"instructions": "Be \ud83d"}, "Be \ud83d\n\nS\n\nC"),
    ],
)
def test_instructions_are_joined_and_put_back_where_a_response_repeats_them(
    own: dict[str, Any], wanted: str
) -> None:
    asked = {"input": "hi", **own}
    chat = ChatRequest(json.dumps(asked).encode(), RESPONSES)
    assert chat.echo(streamed=True) is None, "nothing was added"
    assert json.loads(chat.forwarded("S", "C")) == {"input": "hi", "instructions": wanted}
    for streamed in (False, True):
        echo = chat.echo(streamed=streamed)
        assert echo is not None
        response = {"id": "r", "instructions": wanted, "output": [{"instructions": "S"}]}
        event = {"type": "response.created", "response": response} if streamed else response
        response_then = json.loads(echo(json.dumps(event).encode()))
        found = response_then["response"] if streamed else response_then
        assert found == response | {"instructions": own.get("instructions")}
        for odd in (b"", b"[DONE]", b"{}", b'{"response":1}', b"\xff"):
            assert echo(odd) == odd


@pytest.mark.parametrize("spoken", [RESPONSES, CLAUDE])
@settings(deadline=None)
@given(
    fields=st.dictionaries(
        st.sampled_from(["input", "system", "messages", "instructions", "metadata"]), VALUES
    )
)
def test_odd_requests_of_the_other_apis_pass_with_what_is_ours_taken_away(spoken: Any, fields: Any) -> None:
    body = json.dumps({**fields, "memory_id": "s"}).encode("utf-8", "surrogatepass")
    try:
        chat = ChatRequest(body, spoken)
    except Invalid:
        return
    assert json.loads(chat.forwarded()) == fields
    grown = json.loads(chat.forwarded("S", "C"))
    left = {"instructions", "system"}
    assert {name: grown[name] for name in fields if name not in left} == {
        name: value for name, value in fields.items() if name not in left
    }
    Turns("s.x", chat.messages, anchor=chat.anchor)
    last_user_text(chat.messages)
