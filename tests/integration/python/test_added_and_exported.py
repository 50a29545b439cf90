"""What is added stands in the inbox as the tailer wants it; changes come as they are committed; exports are whole."""

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import aclosing
from datetime import UTC, datetime
from typing import Any

import pytest
from bson import ObjectId

from eden_memory.api.service import Memory, MemoryService
from eden_memory.directory.directory_store import MongoDirectory
from eden_memory.directory.participants import SessionFacts, own_session, whose
from eden_memory.errors import Conflict, Invalid, NotFound
from eden_memory.memory.memory_views import MemoryChange
from eden_memory.mongo.ids import encode_id
from eden_memory.schemas.scopes import Scope
from eden_memory.source.source_mapping import InboxMapping
from tests.integration.context.harness import Kit, mapped
from tests.integration.python.stored import (
    ADA,
    AGENT,
    ALONE,
    AT,
    BOB,
    YARD,
    fact,
    fact_of,
    fill,
    inbox,
    marked,
    source,
    store,
)

pytestmark = pytest.mark.servers
NOTHING = "e30"
"""What a reader has seen that has seen nothing."""
MAPPING = InboxMapping("test", encode_id, 8_000)


def carried(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The records that the tailer makes of the inbox; Unusable if it cannot."""
    return [json.loads(MAPPING.record(row, "0" * 16, AT).value or b"") for row in rows]


async def test_an_added_text_is_a_message_of_its_users_own_session_and_formed_at_once(kit: Kit) -> None:
    await kit.database["agents"].insert_one({"_id": "a"})
    async with kit.service("a") as service:
        added = await service.add("Ada keeps bees.", user="ada")
        again = await service.add("Ada sold her bees.", user="ada")
    rows = await inbox(kit)
    assert [row["kind"] for row in rows] == ["added_text", "form_now"] * 2
    records = carried(rows)
    assert records[0]["text"] == "Ada keeps bees."
    assert (records[0]["user_id"], records[0]["session_id"]) == ("s.ada", added.session)
    assert (records[0]["message_id"],) == added.request_ids
    assert added.session == again.session == records[1]["session_id"]
    assert whose(added.session) == ("s.a", "s.ada", None)


async def test_the_own_session_is_known_without_a_document_and_only_its_user_sees_it(kit: Kit) -> None:
    name = encode_id(own_session("s.a", "s.ada"))
    directory = MongoDirectory(kit.database, kit.database["memory_streams"], mapped(kit.settings))
    await kit.database["agents"].insert_one({"_id": "a"})
    (facts,) = (await directory.look_up([name])).values()
    assert isinstance(facts, SessionFacts)
    assert (facts.agent_id, facts.users) == ("s.a", ("s.ada",))
    await kit.put(Scope.of_session("s.a", name, ("s.ada",)), blob="added by her")
    session = own_session("s.a", "s.ada")
    async with kit.service("a") as service:
        assert "added by her" in await service.get_memory_context(session, "ada")
        assert await service.get_memory_context(session, "bob") == ""


async def test_messages_join_the_session_that_is_named(kit: Kit) -> None:
    session, at = ObjectId(), datetime(2026, 2, 3, tzinfo=UTC)
    await kit.session(session, ["ada"])
    async with kit.service("a", asked_by="import") as service:
        await service.add(
            [
                {"role": "user", "content": [{"type": "text", "text": "Hi"}], "created_at": at},
                {"role": "assistant", "content": "Hello!"},
                {"role": "assistant", "content": None},
            ],
            session=session,
            user="ada",
        )
        with pytest.raises(NotFound):
            await service.add("I am Ada", session=session, user="mallory")
    rows = await inbox(kit)
    assert [(row["role"], row.get("user_id"), row["text"]) for row in rows] == [
        ("user", "ada", "Hi"),
        ("assistant", None, "Hello!"),
    ]
    assert {(row["session_id"], row["asked_by"]) for row in rows} == {(session, "import")}
    assert carried(rows)[0]["created_at"] == "2026-02-03T00:00:00.000Z"


async def test_a_long_text_is_added_whole_in_parts(plain: Kit) -> None:
    text = "\n\n".join(f"Paragraph {number}. " + "word " * 300 for number in range(30))
    async with plain.service() as service:
        await service.add(text, user="ada")
    parts = [row["text"] for row in await inbox(plain) if row["kind"] == "added_text"]
    assert len(parts) > 2
    assert max(map(len, parts)) <= plain.settings.tailer.text_limit
    assert " ".join(" ".join(parts).split()) == " ".join(text.split())


@pytest.mark.parametrize(
    "bad",
    [
        "",
        "  \n",
        [],
        5,
        None,
        b"x",
        ["x"],
        [{"role": {"$ne": 1}, "content": "x"}],
        [{"role": "king", "content": "x"}],
        [{"content": 5}],
        [{"content": "x", "created_at": {"$gt": 0}}],
        [{"content": "x"}] * 501,
        "x" * 1_000_001,
    ],
    ids=lambda one: repr(one)[:30],
)
async def test_what_is_no_text_is_refused_whole(plain: Kit, bad: Any) -> None:
    async with plain.service() as service:
        with pytest.raises(Invalid):
            await service.add(bad, user="ada")
    assert await inbox(plain) == []


async def test_a_command_on_what_has_changed_is_refused_at_once(kit: Kit) -> None:
    await fill(kit)
    await store(kit, [fact("gone", ADA, "x", active=False, retired_at=AT, retired_because="asked")])
    async with kit.service("a") as service:
        for call in (
            service.edit(fact_of(ADA), "new", user="ada", expected_version=3),
            service.retire("gone", user="ada"),
        ):
            with pytest.raises(Conflict):
                await call
        for text in ("", "  ", "x" * 2_001):
            with pytest.raises(Invalid):
                await service.edit(fact_of(ADA), text, user="ada")
        with pytest.raises(Invalid):
            await service.retire(fact_of(ADA), user="ada", reason="x" * 1_001)
        await service.edit(fact_of(ADA), "Ada lives in Turin.", user="ada", expected_version=1)
    (record,) = carried(await inbox(kit))
    assert (record["action"], record["by"], record["expected_version"]) == ("edit", "application", 1)


async def next_of(changes: AsyncGenerator[MemoryChange]) -> MemoryChange:
    async with asyncio.timeout(60):
        return await anext(changes)


async def test_changes_come_as_they_are_committed_and_only_to_who_may_see_them(kit: Kit) -> None:
    await fill(kit)
    async with (
        kit.service("a") as service,
        aclosing(service.changes(user="ada", after=NOTHING)) as changes,
    ):
        assert {(await next_of(changes)).scope.key for _ in range(3)} == {AGENT.key, ADA.key, YARD.key}
        for scope in (BOB, ALONE):
            await kit.put(scope, blob="not hers to see outside of the session")
        await kit.put(ADA, blob="new", active_facts=4, blob_version=3)
        first = await next_of(changes)
        assert (first.scope, first.what, first.facts, first.blob_version) == (ADA, "changed", 4, 3)
        await kit.put(AGENT, blob="new")
        assert (await next_of(changes)).scope == AGENT
        await kit.database["memory_snapshots"].delete_one({"_id": ADA.key})
        gone = await next_of(changes)
        assert (gone.scope, gone.what, gone.revision) == (ADA, "gone", 0)


async def test_a_reader_that_was_away_hears_of_what_changed_meanwhile_once(kit: Kit) -> None:
    await fill(kit)
    async with kit.service("a") as service:
        async with aclosing(service.changes(user="ada", after=NOTHING)) as changes:
            seen = [(await next_of(changes)).id for _ in range(2)][-1]
        for number in range(5):
            await kit.put(ADA, blob=f"missed {number}")
        async with aclosing(service.changes(user="ada", after=seen)) as changes:
            assert (await next_of(changes)).scope == ADA
            await kit.put(AGENT, blob="after")
            after = await next_of(changes)
            assert after.scope == AGENT
        await kit.database["memory_snapshots"].delete_one({"_id": ADA.key})
        async with aclosing(service.changes(user="ada", after=after.id)) as changes:
            assert (await next_of(changes)).what == "gone"


async def test_who_follows_changes_is_done_when_the_memory_is_closed(plain: Kit) -> None:
    async with plain.service("a") as service:
        following = asyncio.create_task(_all_of(service.changes(user="ada")))
        await service.ready()
        await _listened(service)
    async with asyncio.timeout(60):
        assert await following == []


async def _all_of(changes: AsyncGenerator[MemoryChange]) -> list[MemoryChange]:
    return [one async for one in changes]


async def _listened(service: MemoryService) -> None:
    async with asyncio.timeout(60):
        while not service.memory.contexts._listeners:  # noqa: ASYNC110 # pyright: ignore[reportPrivateUsage]
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("bad", ["x", "e30x", {"$gt": ""}, "W10", "eyJhIjp7fX0"])
async def test_what_is_no_id_of_a_change_is_refused(plain: Kit, bad: Any) -> None:
    async with plain.service() as service:
        with pytest.raises(Invalid):
            await next_of(service.changes(user="ada", after=bad))


async def test_an_export_holds_all_of_a_user_and_nothing_of_another(kit: Kit) -> None:
    await fill(kit)
    name = kit.settings.mongodb.database
    shared = (source("s.ada", "s.both", "s.m2"), source("s.bob", "s.both", "s.secret"))
    await store(kit, [fact("shared", YARD, "the yard is shared", sources=shared)])
    database = kit.client[name]
    await database["memory_messages"].insert_many(
        [
            {"_id": "s.m1", "session_id": "s.one", "user_id": "s.ada", "text": "I am Ada"},
            {"_id": "s.m9", "session_id": "s.both", "user_id": "s.bob", "text": "I am Bob"},
        ]
    )
    await database["memory_windows"].insert_many(
        [
            {"_id": "w1", "session_id": "s.one", "seq": 1, "messages": _said("s.ada", "mine alone")},
            {"_id": "w2", "session_id": "s.both", "seq": 1, "messages": _said("s.bob", "bob's words")},
        ]
    )
    await database["agents"].insert_one({"_id": "a"})
    await database["memory_access"].insert_one(
        {"_id": fact_of(ADA), "access_count": 2, "last_accessed_at": AT}
    )
    await database["memory_contexts"].insert_one(
        {"_id": "s.one/s.ada", "session_id": "s.one", "user_id": "s.ada"}
    )
    await database["memory_usage"].insert_one({"_id": "u", "user_id": "s.ada", "day": "2026-03-01"})
    await database["memory_forgotten"].insert_one(
        {
            "_id": "user:s.ada/x",
            "kind": "user",
            "target": "s.ada",
            "reach": "for_ever",
            "event_id": "e",
            "forgotten_at": AT,
        }
    )
    async with Memory(mapped(kit.settings), client=kit.client) as memory:
        await memory.agent("a").add("on its way", user="ada")
        await memory.agent("a").add("bob's, on its way", user="bob")
        whole = await memory.export_user("ada")
        nobody = await memory.export_user("nobody")
    assert set(whole) == {
        "facts",
        "reflections",
        "consolidated",
        "snapshots",
        "contexts",
        "messages",
        "windows",
        "access",
        "usage",
        "forgotten",
        "inbox",
    }
    text = repr(whole)
    assert all(marked(one) in text for one in (ADA, ALONE))
    assert marked(Scope.of_user("s.b", "s.ada")) in text
    assert "the yard is shared" in text
    assert not [one for one in ("bob", "s.secret", "mark-3-mark") if one in text]
    assert nobody == {}


def _said(user: str, text: str) -> list[dict[str, Any]]:
    return [{"message_id": "m", "role": "user", "user_id": user, "text": text}]
