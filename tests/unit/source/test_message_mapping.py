"""One document of the application → one record: fields, shapes, ids, times, and what cannot be used."""

from collections import Counter
from datetime import UTC, datetime, timedelta, timezone
from typing import Any
from uuid import UUID

import pytest
from bson import Binary, Decimal128, Int64, ObjectId, Timestamp
from bson.datetime_ms import DatetimeMS
from hypothesis import given
from hypothesis import strategies as st

from eden_memory.mongo.document_fields import Unusable, cut, moment_of, text_of
from eden_memory.names import traceparent
from eden_memory.schemas.envelope import Envelope, rfc3339
from eden_memory.schemas.events import Watermark, decode
from eden_memory.schemas.events.chat import MessageRecorded
from eden_memory.source.message_mapping import FieldPaths, watermark
from tests.unit.source.mappings import (
    BEGAN,
    PATHS,
    SOURCE,
    change,
    map_one,
    mapped,
    mapping,
    message,
    recorded,
    source_mapping,
)

VERSION = "69a42fc000000001"


def test_fields_are_read_from_dotted_paths() -> None:
    paths = FieldPaths("chat.session.id", "meta.role", "body.text", "meta.author.id", "meta.at")
    document = {
        "_id": 7,
        "chat": {"session": {"id": "s 1"}},
        "meta": {"role": "user", "author": {"id": "ann"}, "at": datetime(2026, 1, 2, 3, 4, 5)},
        "body": {"text": "hello"},
    }
    event = map_one(document, mapping(paths))
    assert (event.message_id, event.session_id, event.user_id) == ("i.7", "s.s%201", "s.ann")
    assert (event.role, event.text) == ("user", "hello")
    assert event.created_at == datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


@pytest.mark.parametrize(
    "session", [{"chat": None}, {"chat": "text"}, {"chat": []}, {"chat": {"session": 5}}, {}]
)
def test_a_path_that_leads_nowhere_is_a_missing_field(session: dict[str, Any]) -> None:
    paths = FieldPaths("chat.session.id", "role", "content", "user_id", "created_at")
    with pytest.raises(Unusable, match="it has no session_id"):
        mapping(paths).record({**message(), **session}, VERSION, b"", "stream")


def test_a_session_may_not_bear_the_name_of_added_texts_also_where_an_author_bore_it_before() -> None:
    """What stands there is for all users of the agent."""
    rules = mapping()
    assert (
        map_one({**message(), "user_id": "eden:added:s.default"}, rules).user_id
        == "s.eden%3Aadded%3As.default"
    )
    with pytest.raises(Unusable, match="reserved"):
        rules.record({**message(), "session_id": "eden:added:s.default"}, VERSION, b"", "stream")


CONTENTS: list[tuple[Any, str]] = [
    ("plain", "plain"),
    ([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}], "a\nb"),
    ([{"type": "input_text", "text": "a"}, {"type": "input_image", "image_url": "x"}], "a"),
    ([{"type": "output_text", "text": "a", "annotations": []}], "a"),
    ([{"type": "text", "text": "a"}, {"type": "image_url", "image_url": {"url": "x"}}], "a"),
    ([{"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "a"}], "a"),
    ([{"type": "tool_use", "id": "1", "input": {"text": "x"}}], ""),
    ([{"type": "reasoning", "text": "not said aloud"}, {"type": "text", "text": "a"}], "a"),
    ([{"text": "a"}, {"inlineData": {"mimeType": "image/png", "data": ""}}, {"text": "b"}], "a\nb"),
    (["a", "", "b"], "a\nb"),
    ([{"type": "text", "text": ["not", "text"]}, 5, None], ""),
    ({"type": "text", "text": "a"}, "a"),
    ({"text": "a"}, "a"),
    ({"content_type": "text", "parts": ["a", {"text": "b"}]}, "a\nb"),
    ({"a": 1}, ""),
    ([{"type": "input_audio", "transcript": "a"}, {"type": "audio", "audio": {"data": "x"}}], "[audio: a]"),
    (
        [{"type": "image", "caption": "a"}, {"type": "thinking", "thought": True, "caption": "hm"}],
        "[image: a]",
    ),
    ([{"type": "image", "alt": "a", "source": {}}, "b"], "[image: a]\nb"),
    ([{"type": "file", "mediaType": "application/pdf", "filename": "a.pdf", "url": "x"}], "[file: a.pdf]"),
    ([{"type": "file", "file": {"filename": "a.pdf", "file_data": "x"}}], "[file: a.pdf]"),
    ([{"type": "video", "caption": "", "title": "a"}, {"type": "quote", "caption": "b"}], "[video: a]\nb"),
    ([{"type": "tool_result", "content": "b"}, {"type": "text", "text": "a"}], "a"),
    ("\u200b\u2060 \ufeff\n", ""),
    (["\u200b", {"text": "\u00ad"}], ""),
    ("a\u200b", "a\u200b"),
    ([], ""),
    (None, ""),
    ("", ""),
]


@pytest.mark.parametrize(("content", "text"), CONTENTS)
def test_the_text_parts_of_every_shape_of_content_count(content: Any, text: str) -> None:
    assert text_of(content) == text


@pytest.mark.parametrize(
    ("fields", "role", "text"),
    [
        ({"content": None, "caption": "a"}, "user", "a"),
        ({"content": [{"type": "image"}], "caption": "a", "audio": {"transcript": "b"}}, "user", "a"),
        ({"content": "\u200b", "caption": "\u200b", "audio": {"transcript": "b"}}, "user", "b"),
        ({"content": "c", "caption": "a"}, "user", "c"),
        ({"content": [{"type": "tool_result", "content": "b"}]}, "tool", "b"),
        ({"content": [{"type": "tool_result", "content": [{"type": "text", "text": "b"}]}]}, "tool", "b"),
        ({"content": [{"type": "tool_result", "content": "b"}, {"text": "a"}]}, "user", "a"),
    ],
)
def test_words_beside_the_content_count_and_a_tools_are_no_users(
    fields: dict[str, Any], role: str, text: str
) -> None:
    event = map_one(message(**fields))
    assert (event.role, event.text) == (role, text)


CALLS: list[tuple[dict[str, Any], str, list[str]]] = [
    (
        {"content": [{"type": "tool_use", "id": "1", "name": "find", "input": {"a": 1}}]},
        '[call: find {"a": 1}]',
        [],
    ),
    (
        {
            "content": None,
            "tool_calls": [{"type": "function", "function": {"name": "find", "arguments": "{}"}}],
        },
        "[call: find {}]",
        [],
    ),
    ({"content": [{"functionCall": {"name": "find", "args": {}}}]}, "[call: find]", []),
    (
        {"content": ["a", {"type": "tool-find", "input": {"a": 1}, "output": "b"}]},
        'a\n[call: find {"a": 1}]',
        ["tool_result"],
    ),
    (
        {"content": [{"type": "tool_call", "tool_call": {"name": "find", "args": "{}", "output": "b"}}, "a"]},
        "a\n[call: find {}]",
        ["tool_result"],
    ),
    (
        {"content": "a", "tool_calls": [{"name": "find", "args": "x\n" * 900}]},
        f"a\n[call: find {'x ' * 147}x]",
        [],
    ),
]


@pytest.mark.parametrize(("fields", "text", "lost"), CALLS)
def test_a_tools_call_is_a_short_line_and_a_result_within_it_is_counted(
    fields: dict[str, Any], text: str, lost: list[str]
) -> None:
    result = mapped(change(1, "insert", message(role="assistant", **fields)))
    (event,) = map(recorded, result.records)
    assert (event.role, event.text) == ("assistant", text)
    assert result.left_out == Counter(lost)


def test_what_has_no_text_is_counted_by_kind_in_our_words() -> None:
    parts: list[Any] = [
        *(
            {"type": kind}
            for kind in ("image_url", "input_image", "tool_use", "tool_result", "thinking", SECRET)
        ),
        *({name: {}} for name in ("inlineData", "functionCall", "voice", SECRET)),
        {"text": "a"},
    ]
    result = mapped(change(1, "insert", message(content=parts)))
    kinds = [
        "image",
        "image",
        "tool_call",
        "tool_result",
        "thought",
        "file",
        "tool_call",
        "audio",
        "other",
        "other",
    ]
    assert result.left_out == Counter(kinds)


@pytest.mark.parametrize(
    ("fields", "text", "lost"),
    [
        (
            {"content": "", "attachments": [{"filename": "a.png", "image_type": "image/png"}]},
            "[image: a.png]",
            [],
        ),
        (
            {"content": "a", "attachments": [{"description": "b", "title": "c.pdf", "type": "x/y"}]},
            "a\n[file: b]",
            [],
        ),
        (
            {"content": "a", "attachments": [{"video_url": "x"}, {"id": 1, "type": "x"}, {"q": 1}, 5]},
            "a",
            ["video", "file", "other"],
        ),
        ({"content": "a", "attachments": "b"}, "a", []),
        (
            {
                "content": "a",
                "attachments": [{"filename": "b.pdf", "type": "x/y"}],
                "files": [
                    {"type": "hash", "name": "c.png", "value": "0f", "mime": "image/png"},
                    {"type": "x"},
                ],
            },
            "a\n[file: b.pdf]\n[image: c.png]",
            ["file"],
        ),
        (
            {"content": None, "type": "function_call", "name": "find", "arguments": "{}"},
            "[call: find {}]",
            [],
        ),
        ({"content": "a", "type": "function_call", "name": "find"}, "a", []),
    ],
)
def test_files_beside_the_content_and_items_that_are_calls_have_a_line(
    fields: dict[str, Any], text: str, lost: list[str]
) -> None:
    result = mapped(change(1, "insert", message(**fields)))
    assert [recorded(record).text for record in result.records] == [text]
    assert result.left_out == Counter(lost)


def test_an_item_that_has_no_text_is_counted_by_its_type() -> None:
    items = [message(content=None, type=kind) for kind in ("reasoning", "image", "message", SECRET)]
    result = mapped(*(change(number, "insert", item) for number, item in enumerate(items)))
    assert (result.records, result.left_out) == ([], Counter(["thought", "image"]))


def test_fields_beside_the_content_overlap_with_no_mapped_one() -> None:
    paths = mapping(PATHS._replace(user_id="name.id"), deleted=["attachments.gone"]).read_paths
    assert not {"name", "attachments"} & {*paths}
    assert {"type", "arguments", "name.id", "attachments.gone"} <= {*paths}


@pytest.mark.parametrize("content", [None, {"tool_calls": []}, [{"type": "tool_use"}], "\u200b"])
def test_a_message_without_text_waits_for_it(content: Any) -> None:
    result = mapped(change(1, "insert", message(content=content)))
    assert (result.records, result.empty, result.unmapped) == ([], 1, [])


@pytest.mark.parametrize(
    ("role", "ours"),
    [
        *((name, name) for name in ("user", "assistant", "tool", "system", "other")),
        ("human", "user"),
        ("model", "assistant"),
        ("narrator", "other"),
        (None, "other"),
        (["user"], "other"),
    ],
)
def test_role_names_are_mapped_to_ours(role: Any, ours: str) -> None:
    assert map_one(message(role=role), mapping(roles={"human": "user", "model": "assistant"})).role == ours


@pytest.mark.parametrize(
    ("author", "ours"),
    [
        ("bot-1", "assistant"),
        (7, "assistant"),
        (7.0, "assistant"),
        (ObjectId("65b2f7a0c3d4e5f60718293a"), "assistant"),
        ("ana", "user"),
        (8, "user"),
        (8.5, "user"),
        (None, "user"),
    ],
)
def test_the_author_may_say_the_role(author: Any, ours: str) -> None:
    roles = dict.fromkeys(("bot-1", "7", "65b2f7a0c3d4e5f60718293a"), "assistant") | {"*": "user"}
    by_author = mapping(PATHS._replace(role="user_id"), roles=roles)
    assert map_one(message(user_id=author), by_author).role == ours


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"content": "a", "text": "b"}, "a"),
        ({"content": [{"type": "image"}], "text": "b"}, "b"),
        ({"content": None, "text": ["b"]}, "b"),
        ({"content": None, "text": "", "caption": "c"}, "c"),
    ],
)
def test_the_first_content_that_holds_text_counts(fields: dict[str, Any], text: str) -> None:
    several = mapping(PATHS._replace(otherwise=("text",)))
    assert map_one(message(**fields), several).text == text
    assert several.version != mapping().version
    assert {"content", "text", "caption"} <= {*several.text_paths}


def test_a_mapped_role_name_may_take_the_place_of_one_of_ours() -> None:
    assert map_one(message(role="tool"), mapping(roles={"tool": "system"})).role == "system"


@pytest.mark.parametrize(
    ("value", "encoded"),
    [
        ("5", "s.5"),
        (5, "i.5"),
        (Int64(2**40), f"i.{2**40}"),
        (-1, "i.-1"),
        (ObjectId("65b2f7a0c3d4e5f60718293a"), "o.65b2f7a0c3d4e5f60718293a"),
        (UUID(int=1), "u.00000000-0000-0000-0000-000000000001"),
        ("a:b@c#d/e f", "s.a%3Ab%40c%23d%2Fe%20f"),
        ("ä", "s.%C3%A4"),
    ],
)
def test_ids_keep_their_type(value: Any, encoded: str) -> None:
    event = map_one(message(value, session_id=value, user_id=value))
    assert (event.message_id, event.session_id, event.user_id) == (encoded, encoded, encoded)


IDS = st.one_of(st.text(min_size=1, max_size=80), st.integers(-(2**63), 2**63 - 1), st.uuids())


@given(IDS, IDS)
def test_different_ids_never_share_a_key(one: Any, other: Any) -> None:
    messages = mapping()
    same = type(one) is type(other) and one == other
    assert (messages.message_id(one) == messages.message_id(other)) is same


NO_IDS = [True, 1.5, b"raw", Binary(b"raw"), Decimal128("1.5"), {"a": 1}, [1], datetime(2026, 1, 1)]


@pytest.mark.parametrize("value", NO_IDS)
@pytest.mark.parametrize("field", ["_id", "session_id"])
def test_what_is_no_id_makes_a_document_unusable(field: str, value: Any) -> None:
    result = mapped(change(1, "insert", {**message(), field: value}))
    assert not result.records
    assert result.unmapped[0].reason.startswith(f"{field}: an id is text, an integer, a UUID or an ObjectId")


@pytest.mark.parametrize("value", [*NO_IDS, "", "a" * 1_100])
@pytest.mark.parametrize(("role", "read"), [("user", "user"), ("odd", "user"), ("assistant", "assistant")])
def test_an_author_that_is_no_id_is_a_user_whom_nobody_names(value: Any, role: str, read: str) -> None:
    result = mapped(change(1, "insert", message(user_id=value, role=role)))
    (event,) = map(recorded, result.records)
    assert (event.role, event.user_id, result.authorless) == (read, None, read == "user")


@pytest.mark.parametrize("field", ["session_id", "_id"])
@pytest.mark.parametrize("value", ["", None])
def test_a_document_without_an_id_or_session_is_unusable(field: str, value: Any) -> None:
    (one,) = mapped(change(1, "insert", {**message(), field: value})).unmapped
    assert one.reason == f"it has no {field}"


SECRET = "a secret that must not be seen"


@pytest.mark.parametrize(
    "fields",
    [
        {"session_id": [SECRET]},
        {"session_id": SECRET * 60},
        {"content": Binary(SECRET.encode())},
        {"content": 5},
    ],
)
def test_the_reason_names_the_field_and_never_its_content(fields: dict[str, Any]) -> None:
    (one,) = mapped(change(1, "insert", message(**fields))).unmapped
    assert one.reason.startswith(next(iter(fields)))
    assert "secret" not in one.reason


def test_the_text_of_a_message_is_cut_to_head_and_tail() -> None:
    text = "".join(f"{number:05d}" for number in range(4_000))
    event = map_one(message(content=text))
    assert (len(event.text), event.characters, event.truncated) == (8_000, 20_000, True)
    head, tail = event.text.split("\n[…]\n")
    assert text.startswith(head)
    assert text.endswith(tail)
    assert len(head) > len(tail) > 2_000


@given(st.text(max_size=60), st.integers(1, 70))
def test_a_cut_text_is_as_long_as_it_may_be(text: str, limit: int) -> None:
    assert len(cut(text, limit)) == min(len(text), limit)
    assert (cut(text, limit) == text) is (len(text) <= limit) or len(text) > limit


@pytest.mark.parametrize("length", [7_999, 8_000])
def test_a_text_within_the_limit_is_whole(length: int) -> None:
    event = map_one(message(content="x" * length))
    assert (event.text, event.truncated) == ("x" * length, False)


@pytest.mark.parametrize(
    ("value", "moment"),
    [
        (datetime(2026, 1, 2, 3, 4, 5, 678_900), "2026-01-02T03:04:05.678Z"),
        (datetime(2026, 1, 2, 3, 4, 5, tzinfo=timezone(timedelta(hours=2))), "2026-01-02T01:04:05.000Z"),
        ("2026-01-02T03:04:05Z", "2026-01-02T03:04:05.000Z"),
        ("2026-01-02T03:04:05.678901+02:00", "2026-01-02T01:04:05.678Z"),
        ("2026-01-02 03:04", "2026-01-02T03:04:00.000Z"),
        ("2026-01-02", "2026-01-02T00:00:00.000Z"),
        (1_767_323_045, "2026-01-02T03:04:05.000Z"),
        (1_767_323_045.678, "2026-01-02T03:04:05.678Z"),
        (Int64(1_767_323_045_678), "2026-01-02T03:04:05.678Z"),
        (ObjectId("69573e65" + "0" * 16), "2026-01-02T03:41:25.000Z"),
        (None, None),
        (True, None),
        ("yesterday", None),
        ("", None),
        (float("nan"), None),
        (float("inf"), None),
        (10**30, None),
        (-(10**30), None),
        ("0001-01-01T00:00:00+05:00", None),
        ("9999-12-31T23:59:59-05:00", None),
        (DatetimeMS(2**60), None),
        (1_767_323_045_678_901, "2026-01-02T03:04:05.678Z"),
        (1_767_323_045_678_901_000, "2026-01-02T03:04:05.678Z"),
        ("1767323045", "2026-01-02T03:04:05.000Z"),
        (" 1767323045678 ", "2026-01-02T03:04:05.678Z"),
        ("1767323045678901", "2026-01-02T03:04:05.678Z"),
        ("1767323045.5", "2026-01-02T03:04:05.500Z"),
        ("Fri, 02 Jan 2026 03:04:05 +0000", "2026-01-02T03:04:05.000Z"),
        ("2 Jan 2026 05:04:05 +0200", "2026-01-02T03:04:05.000Z"),
        (Decimal128("1767323045678"), "2026-01-02T03:04:05.678Z"),
        (Decimal128("sNaN"), None),
        (Timestamp(1_767_323_045, 7), "2026-01-02T03:04:05.000Z"),
        ("2026", None),
        ("May 5 2026", None),
        ({"$date": 1}, None),
        ({"low": 1_767_323_045, "high": 0, "unsigned": True}, "2026-01-02T03:04:05.000Z"),
        ({"low": 2_091_485_546, "high": 411, "unsigned": True}, "2026-01-02T03:04:04.202Z"),
    ],
)
def test_times_of_every_kind_are_read_or_left_out(value: Any, moment: str | None) -> None:
    assert moment_of(value) == moment
    event = map_one(message(created_at=value))
    assert (None if event.created_at is None else rfc3339(event.created_at)) == moment


@pytest.mark.parametrize("created_at", [None, "yesterday", {}])
def test_a_message_without_a_time_of_its_own_is_as_old_as_its_object_id(created_at: Any) -> None:
    event = map_one(message(ObjectId("69573e65" + "0" * 16), created_at=created_at))
    assert event.created_at is not None
    assert rfc3339(event.created_at) == "2026-01-02T03:41:25.000Z"


def test_a_message_that_was_read_is_as_old_as_it_says_but_never_newer_than_the_read() -> None:
    messages, read = mapping(), BEGAN
    old, ahead = message(created_at=BEGAN - timedelta(days=9)), message(created_at=BEGAN + timedelta(days=9))
    assert messages.written_at(old, read) == rfc3339(BEGAN - timedelta(days=9)).encode()
    assert messages.written_at(ahead, read) == messages.written_at(message(), read) == rfc3339(read).encode()


VALUES: st.SearchStrategy[Any] = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(),
    st.text(max_size=40),
    st.binary(max_size=8),
    st.datetimes(),
    st.uuids(),
    st.builds(ObjectId),
)
CONTENT: st.SearchStrategy[Any] = st.one_of(
    st.text(max_size=300),
    st.lists(
        st.one_of(
            st.text(max_size=20),
            st.fixed_dictionaries(
                {"text": VALUES}, optional={"type": st.sampled_from(["text", "input_text", "image"])}
            ),
        ),
        max_size=5,
    ),
    VALUES,
)
DOCUMENTS: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {"_id": st.one_of(IDS, st.builds(ObjectId)), "session_id": IDS},
    optional={"role": VALUES, "content": CONTENT, "user_id": st.one_of(IDS, VALUES), "created_at": VALUES},
)


@given(DOCUMENTS, st.sampled_from(["stream", "backfill", "merge"]))
def test_a_record_is_written_as_the_schema_writes_it(document: dict[str, Any], origin: Any) -> None:
    messages = mapping(text_limit=100)
    try:
        outgoing = messages.record(document, VERSION, b"2026-03-01T12:00:00.000Z", origin)
    except Unusable:
        return
    event = recorded(outgoing)
    assert outgoing.value == event.json_bytes()
    assert (outgoing.key, outgoing.ordering_key) == (event.key().encode(), event.ordering_key().encode())
    assert event.origin == origin


@given(IDS, IDS, st.datetimes(timezones=st.just(UTC)))
def test_headers_are_those_of_the_envelope(identity: Any, session: Any, moment: datetime) -> None:
    messages = mapping()
    document = message(identity, session_id=session)
    outgoing = messages.record(document, VERSION, messages.second(moment), "stream")
    event = recorded(outgoing)
    event_id = f"{event.message_id}@{VERSION}"
    envelope = Envelope(
        id=event_id,
        name=MessageRecorded.NAME,
        version=MessageRecorded.VERSION,
        source=SOURCE,
        time=moment,
        subject=event.subject(),
        ordering_key=event.ordering_key(),
        traceparent=traceparent(event.session_id, event_id),
    )
    assert len(outgoing.headers) == len(set(outgoing.headers))
    assert set(outgoing.headers) == set(envelope.headers())


def test_messages_of_a_session_share_a_trace_and_each_is_its_own_root() -> None:
    first, again, other = (traceparent("s.1", one) for one in ("s.m@1", "s.m@1", "s.m@2"))
    assert first == again != other
    assert first.split("-")[1] == other.split("-")[1] != traceparent("s.2", "s.m@1").split("-")[1]
    assert [len(part) for part in first.split("-")] == [2, 32, 16, 2]


def test_a_watermark_says_that_everything_up_to_a_time_is_published() -> None:
    outgoing = watermark(3, VERSION, BEGAN, SOURCE)
    envelope = Envelope.of_headers(outgoing.headers)
    assert outgoing.value is not None
    event = decode(envelope.name, envelope.version, outgoing.value)
    assert event == Watermark(partition=3, time=BEGAN, version=VERSION)
    assert (outgoing.partition, outgoing.key) == (3, b"watermark:3")
    assert source_mapping().watermark(3, VERSION, BEGAN) == outgoing


def test_a_list_of_turns_is_refused_and_a_list_of_parts_is_not() -> None:
    turns = [{"sender": "user", "text": "My PIN is 4711."}, {"sender": "bot", "text": "Noted."}]
    refused = mapped(change(1, "insert", message(content=turns)))
    assert (refused.records, len(refused.unmapped)) == ([], 1)
    assert "4711" not in refused.unmapped[0].reason
    parts = [{"role": "user", "text": "My boat"}, {"role": "user", "text": "is old."}]
    assert map_one(message(content=parts)).text == "My boat\nis old."
