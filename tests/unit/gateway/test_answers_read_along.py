"""Bytes pass as they came, cut anywhere: what is said is read along, and the hits join the first object."""

import json
from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from eden_memory.api.gateway.exchange import Announced, StreamedAnswer, answer_of

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
    answer = StreamedAnswer()
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
    assert answer_of(b'{"choices":[{"message":{"content":"hi"}}]}') == "hi"
    for odd in (
        b"",
        b"[]",
        b"{}",
        b'{"choices":[]}',
        b'{"choices":[{"message":{"content":null}}]}',
        b'{"choices":7}',
    ):
        assert answer_of(odd) == ""
