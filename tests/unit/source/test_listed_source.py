"""Changes of documents that list messages, and leaders that die between any two of their steps."""

import asyncio
from collections.abc import Collection, Mapping
from copy import deepcopy
from datetime import UTC, datetime
from typing import Any
from unittest.mock import patch

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from eden_memory.directory import listed_store
from eden_memory.directory.listed_messages import (
    FORGOTTEN,
    Listed,
    ListState,
    MessageList,
    aligned,
    packed,
    place_in_document,
    unpacked,
)
from eden_memory.directory.listed_store import StoredList, rows_of, stored_list
from eden_memory.doctor.mapping_checks import judge_documents
from eden_memory.metrics import TAILER_LEFT_OUT
from eden_memory.mongo.changes import DELETE, INSERT, UPDATE, ChangeEvent, version_of
from eden_memory.mongo.ids import encode_id
from eden_memory.processors.tailer import Tailer
from eden_memory.schemas.envelope import Envelope
from eden_memory.settings import MessagesSettings, Settings
from eden_memory.source.listed_source import ListedSource
from eden_memory.source.message_mapping import FieldPaths, MessageMapping
from eden_memory.source.source_mapping import InboxMapping, SourceMapping

KEY = b"k" * 32
TIME = datetime(2026, 1, 1, tzinfo=UTC)
MAPPED = MessagesSettings(
    list="m", session_id="_id", user_id="user", role="m.role", content="m.content", created_at="m.ts"
)


class Rows:
    """The stored lists, in memory; `dies` at a write, before or behind it."""

    def __init__(self) -> None:
        self.rows: dict[str, dict[str, Any]] = {}

    async def read(self, documents: Collection[str]) -> dict[str, StoredList]:
        return {
            document: stored_list(
                document,
                {
                    name: deepcopy(row)
                    for name, row in self.rows.items()
                    if name.partition("/")[0] == document
                },
            )
            for document in documents
        }

    async def write(self, source: str, epoch: int, lists: Mapping[str, StoredList]) -> bool:
        for document, stored in lists.items():
            kept = {name: row for name, row in self.rows.items() if name.partition("/")[0] != document}
            self.rows = kept | rows_of(document, stored)
        return True

    async def drop_deleted(self, documents: Mapping[str, str]) -> None:
        for document, version in documents.items():
            if self.rows.get(document, {}).get("deleted") == version:
                del self.rows[document]


def mapping() -> MessageMapping:
    paths = FieldPaths(place_in_document("_id"), "m.role", "m.content", "user", "m.ts")
    return MessageMapping(paths, "test", encode_id, text_limit=1_000)


def leader(rows: Rows) -> tuple[ListedSource, Tailer]:
    messages = mapping()
    listing = MessageList(MAPPED, KEY)

    source: Any = rows
    listed = ListedSource(listing, source, messages, "chats", "test", source)
    inbox = InboxMapping("test", encode_id, 1_000)
    return listed, Tailer(SourceMapping(messages, inbox, "chats", "inbox", lambda _: b"{}"))


class World:
    """An application's lists, the changes that its server tells, and what the topic holds."""

    def __init__(self) -> None:
        self.rows = Rows()
        self.documents: dict[str, list[str]] = {}
        self.changes: list[tuple[str, str]] = []
        """(document, operation) by version."""
        self.topic: dict[str, tuple[str, str | None]] = {}
        """(version, text) by message, as a consumer that ignores lower versions has it."""
        self.saved = 0
        self.at = 0
        self.listed, self.tailer = leader(self.rows)

    def does(self, document: str, operation: str) -> None:
        self.changes.append((document, operation))

    def read(self, count: int, *, dies: bool, publishes: bool) -> None:
        """Let the leader read some changes; one that dies may have published what it read."""
        batch = self.changes[self.at : self.at + count]
        events = [
            ChangeEvent(
                operation,
                "chats",
                name,
                self._now(name) if operation != DELETE else None,
                None,
                ("m",) if operation == UPDATE else None,
                version_of(1_000 + self.at + number, 1),
                TIME,
            )
            for number, (name, operation) in enumerate(batch)
        ]
        mapped = self.tailer(asyncio.run(self.listed.changes(events)))
        assert not mapped.unmapped
        if not dies or publishes:
            for record in mapped.records:
                self._arrives(record)
        self.at += len(batch)
        if dies:
            self.at = self.saved
            self.listed, self.tailer = leader(self.rows)

    def saves(self) -> None:
        self.saved = self.at
        asyncio.run(self.listed.final(version_of(1_000 + self.at - 1, 1)))

    def _now(self, name: str) -> dict[str, Any] | None:
        """The document as it is now, which may be later than the change."""
        texts = self.documents.get(name)
        return None if texts is None else document(name, texts)

    def _arrives(self, record: Any) -> None:
        key = record.key.decode()
        version = Envelope.of_headers(record.headers).id.partition("@")[2].partition("/")[0]
        text = None
        if record.value is not None:
            text = orjson.loads(record.value)["text"]
        before = self.topic.get(key)
        if before is None or before[0] < version:
            self.topic[key] = version, text
        elif before[0] == version:
            assert before[1] == text, "a repeated record says the same"

    def stands(self) -> list[str]:
        return sorted(text for _, text in self.topic.values() if text is not None)


def document(name: str, texts: list[str]) -> dict[str, Any]:
    return {"_id": name, "user": "ann", "m": [{"role": "user", "content": text} for text in texts]}


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("push"), st.sampled_from("ab"), st.integers(0, 3)),
        st.tuples(st.just("edit"), st.sampled_from("ab"), st.integers(0, 9)),
        st.tuples(st.just("pull"), st.sampled_from("ab"), st.integers(0, 9)),
        st.tuples(st.just("trim"), st.sampled_from("ab"), st.integers(1, 4)),
        st.tuples(st.just("delete"), st.sampled_from("ab"), st.just(0)),
        st.tuples(st.just("read"), st.booleans(), st.integers(1, 5)),
        st.tuples(st.just("dies"), st.booleans(), st.integers(1, 5)),
        st.tuples(st.just("saves"), st.just("a"), st.just(0)),
    ),
    max_size=40,
)


@given(STEPS)
def test_whenever_leaders_die_the_topic_holds_what_the_lists_hold(steps: list[tuple[str, Any, int]]) -> None:
    with patch.object(listed_store, "TOGETHER", 2):  # so that lists have several rows
        _live(steps)


def _live(steps: list[tuple[str, Any, int]]) -> None:
    world = World()
    for number, (step, name, much) in enumerate(steps):
        texts = world.documents.get(name) if isinstance(name, str) else None
        match step:
            case "push" if texts is None:
                world.documents[name] = [f"text {number}"]
                world.does(name, INSERT)
            case "push" if texts is not None:
                texts.append(f"text {number}" if much else "ok")
                world.does(name, UPDATE)
            case "edit" if texts:
                texts[much % len(texts)] = f"text {number}"
                world.does(name, UPDATE)
            case "pull" if texts:
                del texts[much % len(texts)]
                world.does(name, UPDATE)
            case "trim" if texts:
                del texts[:-much]
                world.does(name, UPDATE)
            case "delete" if texts is not None:
                del world.documents[name]
                world.does(name, DELETE)
            case "read":
                world.read(much, dies=False, publishes=True)
            case "dies":
                world.read(much, dies=True, publishes=bool(name))
            case "saves":
                world.saves()
            case _:
                pass
    while world.at < len(world.changes):
        world.read(3, dies=False, publishes=True)
    assert world.stands() == sorted(text for texts in world.documents.values() for text in texts)


@pytest.mark.parametrize("path", ["m.session", "m", "data::json.session"])
def test_a_session_is_named_by_the_document_alone(path: str) -> None:
    with pytest.raises(ValidationError, match="outside of a list of messages and of JSON"):
        MessagesSettings(list="m", session_id=path)


def test_lists_are_compared_as_people_change_them() -> None:
    def same(old: str, new: str) -> list[int | None]:
        of = {"_": FORGOTTEN}
        old_digests, new_digests = ([of.get(one, one.encode() * 8) for one in text] for text in (old, new))
        return aligned(old_digests, new_digests)

    assert same("abc", "abcd") == [0, 1, 2, None]
    assert same("abc", "bcd") == [1, 2, None], "trimmed"
    assert same("abc", "axc") == [0, 1, 2], "edited"
    assert same("abc", "axcd") == [0, 1, 2, None], "edited, and another one behind it"
    assert same("abc", "ac") == [0, 2], "pulled"
    assert same("abc", "xyz") == [None, None, None], "written anew"
    assert same("abcd", "zabcd") == [None, 0, 1, 2, 3], "the newest first"
    assert same("abcdef", "Sef") == [None, 4, 5], "summed up"
    assert same("__cd", "ycde") == [1, 2, 3, None], "what is forgotten stays forgotten when it is trimmed"
    assert same("___", "abcd") == [0, 1, 2, None]


@given(
    st.lists(st.tuples(st.integers(0, 2**32 - 1), st.none() | st.integers(0, 99), st.booleans()), max_size=5)
)
def test_a_list_is_read_as_it_was_stored(marks: list[tuple[int, int | None, bool]]) -> None:
    entries = [
        Listed(f"{number}.ab", b"12345678", version_of(seconds, 7, place), edited)
        for number, (seconds, place, edited) in enumerate(marks)
    ]
    assert unpacked(*packed(entries)) == entries


def test_an_element_that_is_no_document_is_counted_and_hides_no_other() -> None:
    listed, tailer = leader(Rows())
    odd = {
        "_id": "d",
        "user": "ana",
        "m": ["Hello", {"role": "user", "content": "The boat is red."}, 5, None],
    }
    counted = TAILER_LEFT_OUT.labels("element")
    before: float = counted._value.get()  # pyright: ignore
    event = ChangeEvent(INSERT, "chats", "d", odd, None, None, version_of(1_000, 1), TIME)
    mapped = tailer(asyncio.run(listed.changes([event])))
    assert (len(mapped.records), len(mapped.unmapped)) == (1, 0)
    assert counted._value.get() - before == len(["Hello", 5, None])  # pyright: ignore
    texts = next(
        one for one in judge_documents([odd], Settings(messages=MAPPED)) if one.check == "message texts"
    )
    assert "element 3" in texts.what


def test_what_was_told_of_another_branch_stays_and_what_was_never_shown_is_not_told() -> None:
    listed, tailer = leader(Rows())

    def tells(place: int, operation: str, *elements: dict[str, Any]) -> list[tuple[str, bool]]:
        now = {"_id": "d", "user": "ana", "m": list(elements)}
        event = ChangeEvent(operation, "chats", "d", now, None, ("m",), version_of(1_000 + place, 1), TIME)
        mapped = tailer(asyncio.run(listed.changes([event])))
        return sorted((record.key.decode(), record.value is not None) for record in mapped.records)

    def element(name: str, *ancestors: str, text: str | None = None) -> dict[str, Any]:
        said: dict[str, Any] = {"role": "user", "content": text or f"The boat {name}.", "children": []}
        return {"id": name, "ancestors": list(ancestors), **said}

    first, answer = element("u"), element("a", "u")
    again, followed = element("b", "u"), element("c", "u", "a")
    assert tells(0, INSERT, first, answer) == [("s.s.d%2Fs.a", True), ("s.s.d%2Fs.u", True)]
    assert tells(1, UPDATE, first, answer, again) == [("s.s.d%2Fs.b", True)], "the first answer is not ended"
    assert tells(2, UPDATE, first, answer, again, followed) == [("s.s.d%2Fs.c", True)]
    assert tells(3, UPDATE, first, answer, followed) == [("s.s.d%2Fs.b", False)], "removed from the list"
    changed = element("a", "u", text="The boat is green.")
    unseen, shown = element("e", "u"), element("f", "u", "a", "c")
    expected = [("s.s.d%2Fs.a", True), ("s.s.d%2Fs.f", True)]
    assert tells(4, UPDATE, first, changed, followed, unseen, shown) == expected, "e was never shown"
    assert tells(5, DELETE, first) == [(f"s.s.d%2Fs.{name}", False) for name in "acfu"]


def test_what_two_speakers_said_in_a_document_keeps_its_ids_whatever_is_edited_or_forgotten() -> None:
    paths = MessagesSettings(list="question+answer", session_id="chat", user_id="user", created_at="at")
    listing, state = MessageList(paths, KEY), ListState()
    told = {"_id": 1, "chat": "c", "question": "Is it ready?", "answer": "In March."}
    names = [f"i.1/s.{name}" for name in ("question", "answer")]
    assert [message["_id"] for message, _ in listing.identified(told, state)] == names
    state.entries = [Listed("s.question", b"q" * 8, "1"), Listed("s.answer", FORGOTTEN, "1")]
    edited = {**told, "question": "Is the boat ready?", "answer": "In May."}
    compared = listing.compared(edited, state)
    assert compared.matches == state.entries, "none is new: what was forgotten stays so"
    assert not compared.removed
    assert listing.compared({**edited, "answer": ""}, state).removed == state.entries[1:]
