"""Answers that bear an id (a bot's, a person's who answers, the chat's owner's): who takes part in the session."""

from collections import Counter
from collections.abc import AsyncGenerator
from typing import Any
from uuid import uuid4

import pytest

from eden_memory.api.service import MemoryService
from eden_memory.cli.replay.rebuild import from_nothing
from eden_memory.errors import EdenError
from eden_memory.mongo.ids import encode_id
from eden_memory.schemas.events import FactsExtracted, chat
from eden_memory.settings import Settings
from eden_memory.source import message_mapping
from tests.integration.system.running_system import System, fast, stages, system, until
from tests.integration.system.test_corrected_mapping import eden
from tests.integration.system.test_restored_from_nothing import QUIET, lose_everything, settled
from tests.model_server.serving import Serving

pytestmark = pytest.mark.servers
BOAT = "fact user: Ana's boat is called Gaivota."
Row = dict[str, Any]


def undescribed(settings: Settings, models: Serving) -> Settings:
    """No document says who is in a session: its messages do."""
    unmapped = {"collection": None}
    return fast(settings, models, sessions=unmapped, users=unmapped, memory={"sharing": "private"})


async def wrote(at: System, session: str, *said: tuple[str, str | None, str]) -> list[str]:
    """Messages (role, author, text); their ids."""
    rows: list[Row] = [
        {"_id": f"m-{uuid4().hex[:10]}", "session_id": session, "role": role, "content": text}
        | ({"user_id": author} if author is not None else {})
        | {"created_at": at._next_moment()}  # pyright: ignore[reportPrivateUsage]
        for role, author, text in said
    ]
    await at.source["messages"].insert_many(rows)
    return [row["_id"] for row in rows]


async def talked(at: System, session: str, by: str, text: str = BOAT) -> list[str]:
    """Ana and whoever answers her, formed; returns once the fact is stored."""
    names = await wrote(at, session, ("user", "ana", text), ("assistant", by, "I see."))
    await at.form(session)
    await at.formed(names, 1)
    return names


async def users_of(at: System, session: str) -> list[str]:
    row: Row = await at.memory("sessions").find_one({"_id": encode_id(session)}) or {}
    return row.get("users", [])


async def sees(at: System, session: str) -> bool:
    """Whether ana's own memory is shown in a session."""
    service = MemoryService(memory=at.service.memory)
    return "Gaivota" in str(await service.search_facts("the boat", session=session, user="ana"))


async def greeted(at: System, session: str, by: str) -> None:
    """An answer that nobody has asked for, formed."""
    await wrote(at, session, ("assistant", by, "fact agent: The office in Haarlem closes at six."))
    await at.form(session)

    async def formed() -> bool:
        events = [record.event for record in await at.records("memory.extractions")]
        windows = [event.window for event in events if isinstance(event, FactsExtracted)]
        return any(window.session_id == encode_id(session) for window in windows)

    await until(formed, f"{session} is formed")


@pytest.mark.parametrize("by", ["bot-7", "ana"])
async def test_who_answers_is_no_user_of_the_session(
    settings: Settings, shared_models: Serving, by: str
) -> None:
    async with system(undescribed(settings, shared_models), shared_models) as at:
        formed = await talked(at, "s-1", by)
        assert await at.facts("ana") == ["Ana's boat is called Gaivota."]
        assert await users_of(at, "s-1") == ["s.ana"]
        await wrote(at, "s-2", ("assistant", by, "Hello."), ("user", "ana", "My boat?"))
        assert [await sees(at, session) for session in ("s-1", "s-2")] == [True, True], "her own memory"
        await wrote(at, "s-2", ("narrator", "eve", "Meanwhile, at sea."))
        assert not await sees(at, "s-2"), "one whose role nobody knows may be a user"
        await greeted(at, "s-3", by)
        assert await at.memory("facts").count_documents({"scope": "agent"}) == 0, "somebody is behind it"
        await at.forget("user", by)
        answer = {"_id": encode_id(formed[1]), "forgotten": True}

        async def gone() -> bool:
            return await at.memory("messages").count_documents(answer) == 1

        await until(gone, "answers that bear a forgotten id are forgotten")


async def test_a_flag_tells_the_bot_from_the_users(settings: Settings, shared_models: Serving) -> None:
    flag: Row = {"role": "isBot", "roles": {"true": "assistant", "false": "user"}}
    placed = undescribed(settings, shared_models)
    placed = placed.model_copy(update={"messages": placed.messages.model_copy(update=flag)})
    async with system(placed, shared_models) as at:
        rows: list[Row] = [
            {"_id": name, "session_id": "s-1", "content": text, "user_id": by, **flags}
            | {"created_at": at._next_moment()}  # pyright: ignore[reportPrivateUsage]
            for name, by, text, flags in (
                ("m-1", "ana", BOAT, {}),
                ("m-2", "bot-7", "I see.", {"isBot": True}),
                ("m-3", "ana", "fact user: Ana's dog is called Skot.", {"isBot": False}),
            )
        ]
        await at.source["messages"].insert_many(rows)
        await at.form("s-1")
        await at.formed(["m-1", "m-3"], 2)
        assert await at.facts("ana") == ["Ana's boat is called Gaivota.", "Ana's dog is called Skot."]
        assert await sees(at, "s-1"), "the bot is no user of the session"


@pytest.fixture
async def before(
    settings: Settings, shared_models: Serving, monkeypatch: pytest.MonkeyPatch
) -> AsyncGenerator[System]:
    """Sessions that an earlier program took for shared: answers bear the owner's id, and a bot's."""
    placed = undescribed(settings, shared_models)
    async with system(placed, shared_models, run=False) as at:
        with monkeypatch.context() as earlier:
            earlier.setattr(chat, "AGENT_SIDE", frozenset[str]())
            earlier.setattr(message_mapping, "RULES", 1)
            async with stages(placed):
                await talked(at, "s-own", "ana")
                await wrote(at, "s-bot", ("user", "ana", BOAT), ("assistant", "bot-7", "I see."))
                await at.form("s-bot")
                await until(lambda: _windows(at, 1), "a window is asked for")
                await wrote(at, "s-bot", ("user", "ana", "fact user: Ana's dog is called Skot."))
                await at.form("s-bot")
                await until(lambda: _windows(at, 2), "one without an answer, too")
                assert len(await users_of(at, "s-bot")) == 2, "both count"
                await settled(at)
        assert not await sees(at, "s-bot")
        yield at


async def misread(at: System) -> dict[str, int]:
    """How many messages count as read wrong when they were formed, by session."""
    rows = await at.memory("messages").find({"misread": True}).to_list()
    return Counter(row["session_id"] for row in rows)


@pytest.mark.slow
async def test_sessions_that_an_earlier_program_took_for_shared_are_read_again(before: System) -> None:
    at, placed = before, before.settings
    _, said = await eden(placed, "status")
    assert "5 stored messages were read by another field mapping" in " ".join(said.split())
    async with stages(placed):

        async def read_again() -> bool:
            code, said = await eden(placed, "source", "reread")
            assert code == 0 or "restart" in said, said
            return code == 0

        await until(read_again, "the tailer reads them again")
        await until(lambda: _is_anas(at), "the bot counts no more")
        assert await sees(at, "s-bot")
        assert await misread(at) == {"s.s-bot": 1}, "the owner takes part as before"
        code, said = await eden(placed, "source", "reread")
        assert (code, "5 messages read, 0 recorded anew" in said) == (0, True), said
        await settled(at)
    await restored(at)
    assert await misread(at) == {"s.s-bot": 1}
    assert await users_of(at, "s-bot") == ["s.ana"]


@pytest.mark.slow
async def test_a_restored_store_reads_the_answers_by_the_rules_that_hold_now(before: System) -> None:
    at = before
    await restored(at)
    for _ in range(2):  # what the tailer corrected stands in the topics
        async with stages(at.settings):
            await until(lambda: _is_anas(at), "the bot counts no more")
            assert await sees(at, "s-bot")
            await settled(at)
        assert await misread(at) == {"s.s-bot": 1}
        await restored(at)
    assert await misread(at) == {"s.s-bot": 1}
    assert await users_of(at, "s-bot") == ["s.ana"]


async def restored(at: System) -> None:
    """Everything of ours lost, and restored from the topics."""

    async def done() -> bool:
        await lose_everything(at)
        try:
            await from_nothing(at.settings, QUIET)
        except EdenError as error:
            if "not everything is lost: memory_usage" not in str(error):
                raise
            return (
                False  # a search's cost, which is written some seconds after the search, was written just now
            )
        return True

    await until(done, "restored")


async def _windows(at: System, count: int) -> bool:
    return await at.memory("windows").count_documents({"session_id": encode_id("s-bot")}) == count


async def _is_anas(at: System) -> bool:
    return await users_of(at, "s-bot") == ["s.ana"]
