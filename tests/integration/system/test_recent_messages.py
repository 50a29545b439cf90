"""Messages that no memory is formed from yet: shown to their user in other sessions, to nobody else, and found."""

from collections.abc import AsyncGenerator, Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest

from eden_memory.context import recent_message_store, written_message_store
from eden_memory.context.context_xml import query_of
from eden_memory.context.written_message_store import WrittenMessages
from eden_memory.mongo.ids import encode_id
from tests.integration.system.every_door import Asker, EveryDoor, every_door
from tests.integration.system.obedient_model import WORD
from tests.integration.system.running_system import System, until

pytestmark = pytest.mark.servers
SAID = "We adopted a greyhound named Pixel on Sunday."


def somebody() -> str:
    return f"u{uuid4().hex[:8]}"


@pytest.fixture(autouse=True)
def however_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine, too: answers would rather lack what is not formed yet than wait for it."""
    monkeypatch.setattr(recent_message_store, "MOST_SECONDS", 30.0)
    monkeypatch.setattr(written_message_store, "MOST_MILLISECONDS", 30_000)


@pytest.fixture(scope="module")
async def doors(shared: System) -> AsyncGenerator[EveryDoor]:
    async with every_door(shared) as opened:
        yield opened


async def seen(running: System, user: str, session: str | None = None) -> str:
    """What a user's context and search say in a session of the user's own."""
    session = session or await running.session(user)
    found = await running.service.explain_search(query_of(SAID, running.settings), session=session, user=user)
    return await running.context(session, user) + str(found.unformed)


async def says(running: System, user: str, text: str) -> bool:
    return text in await seen(running, user)


async def test_what_was_said_a_moment_ago_is_known_at_every_door_before_it_is_formed(
    shared: System, doors: EveryDoor
) -> None:
    user = somebody()
    said_in, asked_in = await shared.session(user), await shared.session(user)
    await shared.write(said_in, user, SAID)
    row = {
        "session_id": said_in,
        "role": "assistant",
        "content": "Is <b>Pixel</b> fast?",
        "created_at": now(),
    }
    await shared.source["messages"].insert_one({"_id": f"m-{uuid4().hex}", **row})
    xml = await shared.context(asked_in, user)
    assert "[user] We adopted a greyhound named Pixel on Sunday. (just now)" in xml
    assert "[agent] Is &lt;b&gt;Pixel&lt;/b&gt; fast?" in xml
    asker = Asker(asked_in, user)
    said = await doors.quick(asker, [SAID]) | await doors.slow(asker, [SAID])
    for door in (
        "python unformed",
        "http context",
        "http search",
        "gateway",
        f"eden search {SAID}",
        "mcp stdio",
    ):
        assert any("greyhound" in text for name, text in said.items() if name.startswith(door)), door
    assert "greyhound" not in await shared.context(said_in, user), "never in the session itself"
    assert await shared.memory("facts").count_documents({"user_id": encode_id(user)}) == 0


async def test_it_goes_when_its_memory_has_landed_and_when_nothing_came_of_it(shared: System) -> None:
    user = somebody()
    told, empty, dead, asked_in = [await shared.session(user) for _ in range(4)]
    await shared.write(told, user, "fact user: Pixel is a greyhound.")
    await shared.write(empty, user, "The weather is dull.")
    await shared.write(dead, user, f"The boiler is {WORD}.")
    await shared.shows(asked_in, user, "fact user: Pixel", "weather is dull", "boiler")
    for session in (told, empty, dead):
        await shared.form(session)
    await shared.shows(
        asked_in,
        user,
        "[user] Pixel is a greyhound.",
        without=["fact user:", "weather is dull", "boiler", "<Recent>"],
    )


async def test_turns_that_come_through_the_inbox_are_shown_before_and_after_they_are_carried(
    shared: System,
) -> None:
    user = somebody()
    turn = {"kind": "added_text", "session_id": await shared.session(user), "user_id": user, "text": SAID}
    await shared.source["memory_inbox"].insert_one(turn | {"role": "user"})
    await until(lambda: says(shared, user, "greyhound"), "the turn in the inbox, or just carried")

    async def carried() -> bool:
        waits = await shared.source["memory_inbox"].count_documents({"user_id": user})
        return (
            not waits and await shared.memory("messages").count_documents({"user_id": encode_id(user)}) == 1
        )

    await until(carried, "formation-trigger has the text")
    assert "greyhound" in await seen(shared, user)


async def test_secrets_are_shown_as_little_as_in_memory(shared: System) -> None:
    user = somebody()
    session, key = await shared.session(user), "AKIA" + "IOSFODNN7EXAMPLE"
    await shared.write(session, user, f"{SAID} The bucket's key is {key}.")
    shown = await seen(shared, user)
    assert (key in shown, "greyhound" in shown, "[redacted:" in shown) == (False, True, True), shown


async def grouped(running: System, user: str) -> str:
    session = await running.session(user, somebody())
    await running.write(session, user, SAID)
    return session


async def joined(running: System, user: str) -> str:
    session = await running.session(user)
    await running.write(session, user, SAID)
    await running.write(session, somebody(), "Hello, I have just joined.")
    return session


async def left(running: System, user: str) -> str:
    """Another user was listed when memory was formed, and never wrote."""
    other = somebody()
    session = await running.session(user, other)
    await running.told(session, user, "note session: They plan a tour.")
    await running.source["sessions"].update_one({"_id": session}, {"$set": {"users": [user]}})
    await running.write(session, user, SAID)
    return session


async def incognito(running: System, user: str) -> str:
    session = await running.session(user, incognito=True)
    await running.write(session, user, SAID)
    return session


async def switched_off(running: System, user: str) -> str:
    await running.source["users"].insert_one({"_id": user, "memory": False})
    session = await running.session(user)
    await running.write(session, user, SAID)
    return session


async def of_another_agent(running: System, user: str) -> str:
    session = await running.session(user, agent_id="another")
    await running.write(session, user, SAID)
    return session


async def of_another_user(running: System, user: str) -> str:
    del user
    other = somebody()
    session = await running.session(other)
    await running.write(session, other, SAID)
    return session


async def of_yesterday(running: System, user: str) -> str:
    session = await running.session(user)
    await running.write(session, user, SAID, at=now() - timedelta(hours=25))
    return session


async def without_document(running: System, user: str) -> str:
    """Who is in it cannot be known yet."""
    session = f"session-{uuid4().hex[:8]}"
    await running.write(session, user, SAID)
    return session


async def of_a_tool(running: System, user: str) -> str:
    session = await running.session(user)
    await running.write(session, user, "Hello.")
    row = {"session_id": session, "role": "tool", "content": SAID, "created_at": now()}
    await running.source["messages"].insert_one({"_id": f"m-{uuid4().hex}", **row})
    return session


NOT_ALONE = (grouped, joined, left, incognito, switched_off, of_another_agent, of_another_user)
NOT_SHOWN = (of_yesterday, without_document, of_a_tool)


@pytest.mark.parametrize("written", [*NOT_ALONE, *NOT_SHOWN])
async def test_what_is_not_this_users_alone_is_shown_nowhere(
    shared: System, written: Callable[[System, str], Awaitable[str]]
) -> None:
    user = somebody()
    await written(shared, user)
    assert "greyhound" not in await seen(shared, user)


async def test_nobody_else_hears_it_in_a_session_of_several(shared: System) -> None:
    user, other = somebody(), somebody()
    await shared.write(await shared.session(user), user, SAID)
    both = await shared.session(user, other)
    assert "greyhound" not in await seen(shared, user, both) + await seen(shared, other, both)
    alone = await shared.session(user)
    assert "greyhound" in await seen(shared, user, alone)
    await shared.source["sessions"].update_one({"_id": alone}, {"$push": {"users": other}})
    found = await shared.service.explain_search(SAID, session=alone, user=user)
    assert found.unformed == (), "at once where it is read"
    await shared.shows(alone, user, without=["greyhound"])


async def test_edits_moves_and_deletions_hold_at_once(shared: System) -> None:
    user = somebody()
    session, both = await shared.session(user), await shared.session(user, somebody())
    edited, moved, deleted = await shared.write(session, user, SAID, "Pixel has a vet.", "Pixel bit Tom.")
    messages = shared.source["messages"]
    before = await seen(shared, user)
    assert all(word in before for word in ("greyhound", "vet", "bit Tom"))
    await messages.update_one({"_id": edited}, {"$set": {"content": "We adopted a whippet."}})
    await messages.update_one({"_id": moved}, {"$set": {"session_id": both}})
    await messages.delete_one({"_id": deleted})
    found = await seen(shared, user)
    assert "whippet" in found
    assert not any(word in found for word in ("greyhound", "vet", "bit Tom"))


async def test_a_secret_is_redacted_before_it_is_shown(shared: System) -> None:
    user = somebody()
    await shared.write(await shared.session(user), user, f"{SAID} Pay with 4111 1111 1111 1111.")
    found = await seen(shared, user) + str(await shared.service.why("greyhound", user=user))
    assert found.count("[redacted: card number]") == 3
    assert "4111" not in found


@pytest.mark.parametrize("what", ["message", "session", "user"])
async def test_what_is_to_be_forgotten_is_gone_at_once_and_stays_away(shared: System, what: str) -> None:
    user = somebody()
    session = await shared.session(user)
    (message,) = await shared.write(session, user, SAID)
    assert "greyhound" in await seen(shared, user)
    await shared.forget(what, {"message": message, "session": session, "user": user}[what])
    assert "greyhound" not in await seen(shared, user), "while the request waits"

    async def marked() -> bool:
        return (
            await shared.memory("forgotten").count_documents({"kind": what, "reach": {"$ne": "derived"}}) > 0
        )

    await until(marked, "a mark of forgetting")
    assert "greyhound" not in await seen(shared, user)


async def test_what_is_forgotten_between_the_read_and_the_answer_is_not_shown(
    shared: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    user = somebody()
    session = await shared.session(user)
    (message,) = await shared.write(session, user, SAID)
    read = WrittenMessages.messages_of

    async def forgotten_after(self: WrittenMessages, *asked: Any, **more: Any) -> Any:
        found = await read(self, *asked, **more)
        await shared.forget("message", message)
        return found

    monkeypatch.setattr(WrittenMessages, "messages_of", forgotten_after)
    assert "greyhound" not in await seen(shared, user)


async def test_a_user_who_joins_between_the_read_and_the_answer_takes_it_back(
    shared: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    user = somebody()
    session = await shared.session(user)
    await shared.write(session, user, SAID)
    read = WrittenMessages.messages_of

    async def joined_after(self: WrittenMessages, *asked: Any, **more: Any) -> Any:
        found = await read(self, *asked, **more)
        await shared.write(session, somebody(), "Hello, I have just joined.")
        return found

    monkeypatch.setattr(WrittenMessages, "messages_of", joined_after)
    assert "greyhound" not in await seen(shared, user)


async def test_ready_contexts_have_it_within_seconds_and_lose_it_when_it_must_go(shared: System) -> None:
    user = somebody()
    active = await shared.session(user)
    await shared.told(active, user, "note session: The talk is about dogs.")
    other, third = await shared.session(user), await shared.session(user)
    await until(lambda: ready_says(shared, active, "about dogs", True), "a ready context")
    (message,) = await shared.write(other, user, SAID)
    await shared.write(third, user, "Pixel sleeps upstairs.")
    await until(lambda: ready_says(shared, active, "greyhound", True), "the message in the ready context")
    await until(lambda: ready_says(shared, active, "upstairs", True), "the other message, too")
    await shared.source["messages"].delete_one({"_id": message})
    await until(lambda: ready_says(shared, active, "greyhound", False), "it is gone with the message")
    await shared.write(third, somebody(), "Hello, I have just joined.")
    await until(lambda: ready_says(shared, active, "upstairs", False), "it is gone with whoever joined")
    assert await ready_says(shared, active, "about dogs", True)


async def ready_says(running: System, session: str, text: str, wanted: bool) -> bool:
    rows = await running.memory("contexts").find({"session_id": encode_id(session)}).to_list()
    return bool(rows) and all((text in row["xml"]) == wanted for row in rows)


async def test_the_switch_leaves_it_out(shared: System) -> None:
    user = somebody()
    await shared.write(await shared.session(user), user, SAID)
    assert "greyhound" in await seen(shared, user)
    off = shared.settings.model_copy(
        update={"memory": shared.settings.memory.model_copy(update={"recent": False})}
    )
    async with type(shared.service)("helper", client=shared.database.client, settings=off) as service:
        asked_in = await shared.session(user)
        assert "greyhound" not in await service.get_memory_context(asked_in, user)
        assert (await service.explain_search(SAID, session=asked_in, user=user)).unformed == ()


def now() -> datetime:
    return datetime.now(UTC)


async def test_a_large_collection_without_an_index_on_the_author_is_not_read(
    shared: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("eden_memory.context.written_message_store.SMALL", -1)
    monkeypatch.setattr("eden_memory.context.written_message_store.LOOK_AGAIN_SECONDS", -1.0)
    user = somebody()
    await shared.write(await shared.session(user), user, SAID)
    assert "greyhound" not in await seen(shared, user)
    await shared.source["messages"].create_index({"user_id": 1, "created_at": -1, "_id": -1})
    try:
        assert "greyhound" in await seen(shared, user)
    finally:
        await shared.source["messages"].drop_index("user_id_1_created_at_-1__id_-1")
