"""A field mapping that was wrong when memory formed: said, read again, and what was formed of it formed anew."""

import asyncio
import sys
from collections.abc import Sequence
from typing import Any
from uuid import uuid4

import pytest

from eden_memory.mongo.ids import encode_id
from eden_memory.settings import Settings
from eden_memory.source.messages_store import message_mapping
from tests.integration.replay.reform_kit import placed, quiet, reform
from tests.integration.source.harness import _environment  # pyright: ignore[reportPrivateUsage]
from tests.integration.system.running_system import System, fast, stages, system, until
from tests.model_server.serving import Serving

pytestmark = pytest.mark.servers
ROLES = {"human": "user", "ai": "assistant"}
Row = dict[str, Any]


def wrong(settings: Settings, models: Serving) -> Settings:
    """Roles of the application's own are not mapped; the author is looked for where the bot stands, too."""
    return fast(
        settings, models, sessions={"collection": None}, users={"collection": None},
        messages={"user_id": "by"}, memory={"sharing": "private"},
    )  # fmt: skip


def corrected(settings: Settings) -> Settings:
    """The same installation with the mapping as it should have been."""
    messages = settings.messages.model_copy(update={"user_id": "author.id", "roles": ROLES})
    return settings.model_copy(update={"messages": messages})


async def say(at: System, session: str, *texts: str) -> list[str]:
    """A conversation of ana and a bot, as the application writes it."""
    rows: list[Row] = []
    for text in texts:
        for role, words in (("human", text), ("ai", "I see.")):
            author = {"author": {"id": "ana"}} if role == "human" else {}
            by = "web" if role == "human" else "bot-7"
            rows.append(
                {
                    "_id": f"m-{uuid4().hex[:10]}",
                    "session_id": session,
                    "role": role,
                    "content": words,
                    "by": by,
                }
                | author
                | {"created_at": at._next_moment()}  # pyright: ignore[reportPrivateUsage]
            )
    await at.source["messages"].insert_many(rows)
    return [row["_id"] for row in rows]


async def eden(settings: Settings, *words: str) -> tuple[int, str]:
    """A command of `eden` and what it says."""
    names = settings.messages
    environment = {
        **_environment(settings),
        "EDEN_MESSAGES_USER_ID": names.user_id,
    }
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "eden_memory.cli.main", *words,
        env={"PATH": "/usr/bin:/bin", **environment},
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip
    said, _ = await process.communicate()
    return process.returncode or 0, said.decode()


async def messages(at: System, names: Sequence[str]) -> list[Row]:
    wanted = [encode_id(one) for one in names]
    return await at.memory("messages").find({"_id": {"$in": wanted}}).sort("place").to_list()


async def windows(at: System, settings: Settings) -> list[Row]:
    found = at.database[settings.names["windows"]].find({"requested": {"$ne": None}})
    return await found.sort("_id").to_list()


async def test_what_waits_is_corrected_and_what_is_formed_is_formed_anew_by_a_reform(
    settings: Settings, shared_models: Serving, caplog: pytest.LogCaptureFixture
) -> None:
    before = wrong(settings, shared_models)
    async with system(before, shared_models, run=False) as at:
        async with stages(before):
            formed = await say(at, "s-formed", "fact user: Ana's boat is called Gaivota.")
            await at.form("s-formed")
            await until(lambda: _has(windows(at, before), 1), "a window is asked for")
            waiting = await say(at, "s-waiting", "fact user: Ana's dog is called Skot.")
            gone = await say(at, "s-gone", "fact user: Ana's code is 4711.")
            await until(lambda: _has(messages(at, [*waiting, *gone]), 4), "they are stored")
            for name in gone:
                await at.forget("message", name)
            await until(lambda: _all(messages(at, gone), "forgotten"), "they are forgotten")
            await quiet(at)
        assert await at.facts("ana") == []
        after = corrected(before)
        _, said = await eden(after, "status")
        said = " ".join(said.split())
        assert "4 stored messages were read by another field mapping" in said, said
        code, said = await eden(after, "source", "reread")
        assert (code, "Start (or restart) every `eden run`" in said) == (1, True), said
        async with stages(after):
            await until(lambda: _mapping(at, after), "the tailer leads")
            await until(lambda: _said(caplog), "`eden run` says it")
            code, said = await eden(after, "source", "reread")
            assert code == 0, said
            assert "6 messages read, 4 recorded anew" in said
            assert "formed from 2 messages that an earlier field mapping read wrong" in said
            assert "eden reform corrected" in said
            code, said = await eden(after, "source", "reread")
            assert (code, "6 messages read, 0 recorded anew" in said) == (0, True), said
            rows = await messages(at, waiting)
            assert [(one["role"], one["user_id"]) for one in rows] == [("user", "s.ana"), ("assistant", None)]
            await at.form("s-waiting")
            await until(lambda: _has(at.facts("ana"), 1), "it is formed as it is read now")
            assert await at.facts("ana") == ["Ana's dog is called Skot."]
            assert all(one["forgotten"] and one["text"] is None for one in await messages(at, gone))
            assert all(one["misread"] for one in await messages(at, formed))
            await quiet(at)
        ended, said = await reform(after, "corrected", at_once=1)
        assert ended == "formed", said
        anew = placed(after, "corrected")
        rows = await at.database[anew.names["facts"]].find({"active": True}).to_list()
        assert sorted(row["content"] for row in rows) == [
            "Ana's boat is called Gaivota.",
            "Ana's dog is called Skot.",
        ]
        assert {row["user_id"] for row in rows} == {"s.ana"}
        first, second = await windows(at, before), await windows(at, anew)
        assert [row["_id"] for row in first] == [row["_id"] for row in second]
        members = [one["message_id"] for row in second for one in row["messages"]]
        assert len(members) == len(set(members)) == 4
        left = await at.database[anew.names["messages"]].count_documents({"misread": True})
        assert left == 0
        ended, said = await reform(after, "corrected", at_once=1, switch=True)
        assert ended == "switched", said
        _, told = await eden(after, "tap", "memory.facts", "--until-end")
        assert "Gaivota" in told, "those of the memory that is live"
        code, told = await eden(after, "forget", "user", "ana", "--yes")
        assert code == 0, told
        hers = {"_id": encode_id(formed[0]), "forgotten": True}
        async with stages(anew):
            await until(lambda: _has(_found(at.database[anew.names["messages"]], hers), 1), "by its author")


async def _has(found: Any, count: int) -> bool:
    return len(await found) == count


async def _found(collection: Any, query: Row) -> list[Row]:
    return await collection.find(query).to_list()


async def _all(found: Any, field: str) -> bool:
    return all(one[field] for one in await found)


async def _said(caplog: pytest.LogCaptureFixture) -> bool:
    return "4 stored messages were read by another field mapping" in caplog.text


async def _mapping(at: System, settings: Settings) -> bool:
    position = await at.database[settings.names["positions"]].find_one({})
    return position is not None and position["mapping"] == message_mapping(settings).version
