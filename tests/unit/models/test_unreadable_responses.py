"""Bodies that no provider should send: each is a failed call, never another error."""

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from eden_memory.models import google, openai
from eden_memory.models.provider_calls import CallFailed, Completion

KEYS = st.sampled_from(
    [
        "choices",
        "message",
        "content",
        "refusal",
        "finish_reason",
        "usage",
        "prompt_tokens",
        "data",
        "index",
        "embedding",
        "candidates",
        "parts",
        "text",
        "finishReason",
        "usageMetadata",
        "promptTokenCount",
        "embeddings",
        "values",
        "promptFeedback",
        "blockReason",
    ]
)
ANY = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=15,
)
BODIES = st.dictionaries(KEYS, ANY, max_size=6)


@given(BODIES)
@example({"candidates": [{"finishReason": []}]})
def test_any_chat_response_is_a_completion_or_a_failed_call(body: dict[str, Any]) -> None:
    for read in (openai.completion, google.completion):
        try:
            found = read(body)
        except CallFailed:
            continue
        assert isinstance(found, Completion)
        assert min(found.tokens.input, found.tokens.output) >= 0


@given(BODIES, st.integers(1, 3))
def test_any_vectors_are_as_many_as_asked_for_and_of_one_length(body: dict[str, Any], wanted: int) -> None:
    for read in (openai.vectors, google.vectors):
        try:
            found, _ = read(body, wanted)
        except CallFailed:
            continue
        assert len(found) == wanted
        assert len({len(vector) for vector in found}) == 1


@pytest.mark.parametrize("embedding", ["AAAA", "!", "", [], None, {}])
def test_a_vector_that_cannot_be_read_fails_the_call(embedding: object) -> None:
    with pytest.raises(CallFailed):
        openai.vectors({"data": [{"index": 0, "embedding": embedding}]}, 1)


@pytest.mark.parametrize(
    ("reason", "finish"),
    [
        ("STOP", "complete"),
        ("MAX_TOKENS", "truncated"),
        ("CONTINUATION", "truncated"),
        (None, "truncated"),
        ("SAFETY", "refused"),
        ("RECITATION", "refused"),
        ("SPII", "refused"),
    ],
)
def test_google_answers_are_complete_only_at_a_stop(reason: str | None, finish: str) -> None:
    body = {"candidates": [{"content": {"parts": [{"text": "{}"}]}, "finishReason": reason}]}
    assert google.completion(body).finish == finish


def test_thoughts_are_no_part_of_the_answer() -> None:
    parts = [{"text": "hm", "thought": True}, {"text": '{"a"'}, {"text": ": 1}"}]
    body: dict[str, Any] = {"candidates": [{"content": {"parts": parts}, "finishReason": "STOP"}]}
    assert google.completion(body).text == '{"a": 1}'
    thinking = {"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}
    for thought in (thinking, {"type": "reasoning", "text": "hm"}, parts[0]):
        content = [thought, {"type": "text", "text": '{"a"'}, parts[2]]
        body = {"choices": [{"message": {"content": content}, "finish_reason": "stop"}]}
        assert openai.completion(body).text == '{"a": 1}'
