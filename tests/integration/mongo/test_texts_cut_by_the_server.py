"""What MongoDB cuts of a message's content is what the tailer cuts of it."""

from typing import Any

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as how
from hypothesis import strategies as st
from pymongo import MongoClient

from eden_memory.mongo.document_fields import (
    TEXT_PARTS,
    Unusable,
    cut,
    cut_in_query,
    first_with_text,
    text_of,
)
from eden_memory.settings import Settings

pytestmark = pytest.mark.servers
Strategy = st.SearchStrategy[Any]
TEXT = st.text(st.sampled_from("ab \n[…]é船🛶$"), max_size=130)
KIND: Strategy = st.sampled_from([*TEXT_PARTS, "image_url", "thinking", 5])
OTHER: Strategy = st.one_of(st.none(), st.integers(0, 9), st.lists(TEXT, max_size=2), st.just({"value": 5}))


def _value(text: str) -> dict[str, Any]:
    return {"value": text}


def _part(kind: Any, text: Any) -> dict[str, Any]:
    return {"type": kind, "text": text}


def _untyped(text: Any) -> dict[str, Any]:
    return {"text": text}


def _spoken(name: str, text: Any) -> dict[str, Any]:
    return {"type": "audio", name: text}


def _attached(kind: Any, name: str, text: Any) -> dict[str, Any]:
    return {"type": kind, name: text, "file": {"filename": text}}


def _named_by_a_field(field: str, text: Any) -> dict[str, Any]:
    return {field: {}, "caption": text}


def _document(parts: Any) -> dict[str, Any]:
    return {"content_type": "text", "parts": parts}


VALUE: Strategy = st.one_of(TEXT, st.builds(_value, TEXT), OTHER)
PART: Strategy = st.one_of(
    TEXT,
    st.builds(_part, KIND, VALUE),
    st.builds(_untyped, VALUE),
    st.builds(_spoken, st.sampled_from(["transcript", "caption"]), VALUE),
    st.builds(
        _attached,
        st.sampled_from(["Image_URL", "file", "tool_use", 5]),
        st.sampled_from(["alt", "title"]),
        VALUE,
    ),
    st.builds(_named_by_a_field, st.sampled_from(["inlineData", "functionCall", "other"]), VALUE),
    st.just({"type": "text", "text": "hm", "thought": True}),
    OTHER,
)
CONTENT: Strategy = st.one_of(
    TEXT,
    PART,
    st.lists(PART, max_size=12),
    st.builds(_document, st.lists(PART, max_size=3)),
    st.lists(st.sampled_from("ab"), max_size=300),
    OTHER,
)


@pytest.fixture
def things(settings: Settings) -> Any:
    assert settings.mongodb.uri is not None
    with MongoClient[dict[str, Any]](settings.mongodb.uri.get_secret_value()) as client:
        yield client[settings.mongodb.database]["things"]


@how(
    max_examples=300,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    content=CONTENT,
    other=st.one_of(st.none(), CONTENT),
    caption=st.one_of(st.none(), TEXT),
    limit=st.sampled_from([1, 7, 20, 60]),
)
def test_it_is_cut_alike(things: Any, content: Any, other: Any, caption: Any, limit: int) -> None:
    message = {"said": content, "other": other, "caption": caption}
    things.replace_one({"_id": 1}, {"message": message}, upsert=True)
    asked = cut_in_query(["message.said", "message.other"], limit, ["message.caption"])
    found = things.find_one({"_id": 1}, {"message.said": asked})
    expected = _text(content, limit)
    expected = _text(other, limit) if expected == "" else expected
    assert _text(found["message"]["said"], limit) == (_text(caption, limit) if expected == "" else expected)
    read = first_with_text(["said", "other"])
    uncut = content if _text(content, 1_000_000) != "" else other
    try:
        assert _text(read(message), limit) == _text(uncut, limit)
    except Unusable:
        assert expected is None


def test_a_message_without_content_and_the_largest_one_are_cut_alike(things: Any) -> None:
    parts = ["x" * 4_000_000, {"type": "text", "text": "é" * 4_000_000}, {"type": "text", "text": "end"}]
    things.insert_many(
        [{"_id": "none"}, {"_id": "parts", "said": parts}, {"_id": "text", "said": "é船" * 3_000_000}]
    )
    found = {row["_id"]: row.get("said") for row in things.find({}, {"said": cut_in_query(["said"], 8_000)})}
    assert found == {
        "none": None,
        "parts": cut(text_of(parts), 8_000),
        "text": cut("é船" * 3_000_000, 8_000),
    }


def _text(content: Any, limit: int) -> str | None:
    try:
        return text_of(cut(text_of(content), limit))
    except Unusable:
        return None
