"""The last messages of a session, fewer than make a window, become memory when the session has been quiet."""

import asyncio
from datetime import UTC, datetime, timedelta

import pytest
from pydantic import SecretStr

from eden_memory.cli import sessions
from eden_memory.mongo.ids import encode_id
from eden_memory.settings import Settings
from eden_memory.windows import window_list_store
from eden_memory.windows.window_list_store import PENDING
from tests.integration.system.commands import eden
from tests.integration.system.running_system import System, fast, stages, system, until
from tests.model_server.serving import Serving

pytestmark = pytest.mark.servers
LONG_AGO = datetime.now(UTC).replace(second=0, microsecond=0) - timedelta(days=90)


async def closed(at: System, session: str) -> list[tuple[str, list[str]]]:
    rows = await at.memory("windows").find({"session_id": encode_id(session)}).sort("seq").to_list()
    return [(row["closed"]["because"], [one["message_id"] for one in row["messages"]]) for row in rows]


async def test_a_rest_read_in_forms_by_itself_and_what_is_written_months_later_waits_apart(
    settings: Settings, shared_models: Serving
) -> None:
    mine = fast(settings, shared_models)
    async with system(mine, shared_models, run=False) as at:
        left = await at.session("ana")
        names = await at.write(left, "ana", "fact user: Ana's boat is called Gaivota.", at=LONG_AGO)
        resumed = await at.session("rui")
        old = await at.write(resumed, "rui", "fact user: Rui moors at pier nine.", "thanks", at=LONG_AGO)
        new = await at.write(resumed, "rui", "fact user: Rui has sold his mooring.")
        async with stages(mine):
            await at.formed([*names, *old], 2)
            assert await closed(at, left) == [("stale", [encode_id(one) for one in names])]
            assert await closed(at, resumed) == [("stale", [encode_id(one) for one in old])]
            waiting = await at.memory("messages").find({"formation_id": None}).to_list()
            assert [row["_id"] for row in waiting] == [encode_id(one) for one in new]
            said = " ".join((await eden(mine, "status")).split())
    assert (
        "waiting to be formed: 1 message in 1 session of fewer than 4 messages: they form 24 hours after"
        in said
    )


async def test_a_single_message_becomes_memory_when_the_session_stays_quiet(
    settings: Settings, shared_models: Serving
) -> None:
    mine = fast(settings, shared_models, windows={"stale_hours": 2 / 3_600})
    async with system(mine, shared_models) as at:
        session = await at.session("eve")
        names = await at.write(session, "eve", "fact user: Eve keeps two goats.")
        await until(lambda: _is_closed(at, session), "the window closes, though nobody asks")
        await at.formed(names, 1)
        assert await closed(at, session) == [("stale", [encode_id(one) for one in names])]


async def test_status_says_what_closes_a_window_that_has_enough(
    settings: Settings, shared_models: Serving
) -> None:
    mine = fast(settings, shared_models)
    async with system(mine, shared_models) as at:
        await at.write(await at.session("bob"), "bob", *(f"message {number}" for number in range(5)))

        async def all_wait() -> bool:
            return await at.memory("messages").count_documents({"place": {"$gt": 0}}) == 5

        await until(all_wait, "formation-trigger has stored the messages")
        said = " ".join((await eden(mine, "status")).split())
    assert "5 messages in 1 session: they form at 45 messages or 1,500 weighted tokens" in said
    assert "or 10 minutes after its last one (" in said


@pytest.mark.slow
async def test_what_waits_is_counted_by_its_index_and_never_left_out(
    settings: Settings, shared_models: Serving, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = fast(settings, shared_models)
    async with system(mine, shared_models, run=False) as at:
        names = await at.write(await at.session("ida"), "ida", *(f"message {number}" for number in range(5)))
        async with stages(mine):

            async def all_wait() -> bool:
                return await at.memory("messages").count_documents({"place": {"$gt": 0}}) == len(names)

            await until(all_wait, "formation-trigger has stored the messages")
        row = await at.memory("messages").find_one({"_id": encode_id(names[0])})
        formed = [{**row, "_id": f"s.f{n}", "place": n + 10, "formation_id": "s.f:1"} for n in range(3_000)]
        await at.memory("messages").insert_many(formed)
        plan = await at.memory("messages").find(PENDING).explain()
        assert plan["executionStats"]["totalDocsExamined"] == len(names)
        assert "5 messages in 1 session" in (await asyncio.to_thread(sessions.standing, mine))[0]
        waiting = [{**row, "_id": f"s.w{n}", "place": n + 9_000} for n in range(40_000)]
        await at.memory("messages").insert_many(waiting)
        with monkeypatch.context() as patch:
            patch.setattr(window_list_store, "MOST_MILLISECONDS", 1)
            assert await asyncio.to_thread(sessions.standing, mine) == [window_list_store.NOT_COUNTED]
        await at.memory("messages").drop_index("pending")
        assert "made index memory_messages.pending" in await eden(mine, "setup")


async def test_status_says_where_mongodb_does_not_say_what_waits(settings: Settings) -> None:
    uri = SecretStr("mongodb://127.0.0.1:9/?serverSelectionTimeoutMS=100")
    away = settings.model_copy(update={"mongodb": settings.mongodb.model_copy(update={"uri": uri})})
    assert await asyncio.to_thread(sessions.standing, away) == [sessions.NOT_ANSWERED]


async def _is_closed(at: System, session: str) -> bool:
    return bool(await closed(at, session))
