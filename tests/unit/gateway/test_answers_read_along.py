"""Bytes pass as they came, cut anywhere: what is said is read along, and the hits join the first object."""

import json
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eden_memory.api.gateway.chat_formats import (
    CHAT_COMPLETIONS,
    MESSAGES,
    RESPONSES,
    ChatFormat,
    answer_of,
)
from eden_memory.api.gateway.exchange import Announced, Echoes, StreamedAnswer

STREAM = (
    b": ping\n\nevent: x\ndata: "
    + json.dumps({"choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}}]}).encode()
    + b"\r\n\r\ndata:"
    + json.dumps({"choices": [{"index": 1, "delta": {"content": "other"}}]}).encode()
    + b"\n\ndata: "
    + json.dumps({"choices": [{"index": 0, "delta": {"content": 'Ca"f\u00e9'}}]}, ensure_ascii=False).encode()
    + b'\n\ndata: {"choices":[{"delta":{"content":" noir"}}]}\n\ndata: {"choices":[],"usage":{"content":1}}\n\n'
    + b'data: {"choices":[{"index":0,"delta":{"tool_calls":[{"content":"x"}]}}]}\n\ndata: broken "content"\n\n'
    + b"data: [DONE]\n\n"
)
CUTS = st.lists(st.integers(0, len(STREAM)), max_size=12).map(lambda cuts: [0, *sorted(cuts), len(STREAM)])


def pieces(cuts: list[int]) -> list[bytes]:
    return [STREAM[start:end] for start, end in pairwise(cuts)]


@settings(deadline=None)
@given(cuts=CUTS)
def test_what_the_first_choice_says_is_read_however_the_stream_is_cut(cuts: list[int]) -> None:
    answer = StreamedAnswer(CHAT_COMPLETIONS)
    for piece in pieces(cuts):
        answer.feed(piece)
    assert answer.text == 'Ca"f\u00e9 noir'


@settings(deadline=None)
@given(cuts=CUTS)
def test_the_hits_join_the_first_object_and_every_other_byte_stays(cuts: list[int]) -> None:
    announced = Announced(b'[{"id":"f"}]', streamed=True)
    out = b"".join(announced.put(piece) for piece in pieces(cuts)) + announced.end()
    assert out == STREAM.replace(b"data: {", b'data: {"memory_hits":[{"id":"f"}],', 1)


def test_a_whole_answer_is_given_the_hits_too() -> None:
    def put(body: bytes) -> bytes:
        announced = Announced(b"[]", streamed=False)
        return announced.put(body) + announced.end()

    assert put(b' {"a":1} ') == b' {"memory_hits":[],"a":1} '
    assert put(b"{}") == b'{"memory_hits":[]}'
    assert [put(body) for body in (b"", b"{", b"[1]", b"text")] == [b"", b"{", b"[1]", b"text"]


def test_an_answer_without_text_says_nothing() -> None:
    assert answer_of(CHAT_COMPLETIONS, b'{"choices":[{"message":{"content":"hi"}}]}') == "hi"
    for odd in (
        b"",
        b"[]",
        b"{}",
        b'{"choices":[]}',
        b'{"choices":[{"message":{"content":null}}]}',
        b'{"choices":7}',
    ):
        assert answer_of(CHAT_COMPLETIONS, odd) == ""


def events(*each: object) -> bytes:
    return b"".join(b"data: " + json.dumps(one).encode() + b"\n\n" for one in each)


def deltas(kind: str, *texts: str) -> list[object]:
    if kind == "messages":
        thought = {
            "type": "content_block_delta",
            "index": 0,
            "delta": {"type": "thinking_delta", "thinking": "?"},
        }
        said = [{"index": 1, "delta": {"type": "text_delta", "text": text}} for text in texts]
        return [thought, *said, {"index": 2, "delta": {"type": "text_delta", "text": "more"}}]
    named = {"type": "response.output_text.delta", "output_index": 0}
    said = [{**named, "content_index": 0, "delta": text} for text in texts]
    return [*said, {**named, "content_index": 1, "delta": "more"}]


@pytest.mark.parametrize(("kind", "spoken"), [("messages", MESSAGES), ("responses", RESPONSES)])
def test_the_text_of_a_stream_is_that_of_the_whole_answer_white_space_included(
    kind: str, spoken: ChatFormat
) -> None:
    answer = StreamedAnswer(spoken)
    answer.feed(events(*deltas(kind, "One", "\n\n", "two"), {"type": "odd", "delta": '"text_delta"'}))
    parts = [{"type": "text", "text": "One\n\ntwo"}, {"type": "text", "text": "more"}]
    thought = {"type": "thinking", "thinking": "?"}
    whole = {
        "messages": {"content": [thought, *parts]},
        "responses": {"output": [{"type": "message", "content": parts}]},
    }
    assert answer.text == answer_of(spoken, json.dumps(whole[kind]).encode()) == "One\n\ntwo\nmore"


def test_white_space_between_the_words_of_a_streamed_chat_is_kept() -> None:
    answer = StreamedAnswer(CHAT_COMPLETIONS)
    answer.feed(events(*({"choices": [{"delta": {"content": text}}]} for text in ("One", "\n\n", "two"))))
    assert answer.text == "One\n\ntwo"


ECHOED = events({"response": {"instructions": "S"}}, {"delta": '"instructions"'}) + b"data: [DONE]"


@settings(deadline=None)
@given(cuts=st.lists(st.integers(0, len(ECHOED)), max_size=12))
def test_only_the_lines_that_repeat_instructions_change_however_the_stream_is_cut(cuts: list[int]) -> None:
    echoes = Echoes(lambda event: event.replace(b'"S"', b"null"))
    pieces = [ECHOED[start:end] for start, end in pairwise([0, *sorted(cuts), len(ECHOED)])]
    out = b"".join(echoes.put(piece) for piece in pieces) + echoes.end()
    assert out == ECHOED.replace(b'"S"', b"null")
