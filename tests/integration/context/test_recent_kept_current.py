"""Messages that are not formed yet: what a process keeps of them is what a read of MongoDB would find."""

import asyncio
import random
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from eden_memory.access.visible import Asker
from eden_memory.api.service import MemoryService
from eden_memory.context import recent_message_store
from eden_memory.context.context_feed import ContextChange, Feed
from eden_memory.forgetting.mark_store import MongoForgetting
from eden_memory.forgotten import Mark
from eden_memory.settings import Settings
from tests.integration.context.harness import Kit, kit_for, mapped
from tests.integration.context.test_memory_service import (
    _kill_change_streams,  # pyright: ignore[reportPrivateUsage]
)

pytestmark = pytest.mark.servers
NOON = datetime(2026, 3, 2, 12, tzinfo=UTC)
SESSIONS, USERS = ("one", "two", "three", "four", "shared"), ("ada", "bob")
ASKERS = [("one", "ada"), ("two", "ada"), ("desk", "ada"), ("two", "bob")]
SAID = "We adopted a greyhound."


@pytest.fixture(autouse=True)
def only_what_is_heard_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is read again for its age, and nothing is left out on a slow machine."""
    monkeypatch.setattr(recent_message_store, "LASTS", timedelta(hours=1))
    monkeypatch.setattr(recent_message_store, "MOST_SECONDS", 30.0)


@pytest.fixture
async def kit(settings: Settings) -> AsyncGenerator[Kit]:
    messages = settings.messages.model_copy(update={"deleted": ("removed",), "exclude": ("private",)})
    async with kit_for(mapped(settings).model_copy(update={"messages": messages})) as kit:
        await kit.database["agents"].insert_one({"_id": "a"})
        for name in ("one", "two", "desk"):
            await kit.session(name, ["ada"])
        yield kit


@asynccontextmanager
async def warm(kit: Kit) -> AsyncGenerator[MemoryService]:
    async with kit.service(clock=lambda: NOON) as service:
        await service.ready()
        async with asyncio.timeout(60):
            while not service.memory.contexts.cache.hears:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        yield service


async def soon(condition: Callable[[], Awaitable[bool]], what: str) -> None:
    async with asyncio.timeout(30):
        while not await condition():  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    assert await condition(), what


def message(name: str, session: str = "two", user: str | None = "ada", text: str = SAID) -> dict[str, Any]:
    said = {"role": "user", "content": text, "created_at": NOON - timedelta(hours=1)}
    return {"_id": name, "session_id": session, "user_id": user, **said}


def is_kept(service: MemoryService, session: str, user: str) -> bool:
    kept = service.memory.contexts.cache._kept  # pyright: ignore[reportPrivateUsage]
    context = kept.get(Asker("s.a", f"s.{session}", f"s.{user}"))
    return context is not None and context.is_current


async def test_each_change_is_shown_by_a_warm_context_once_it_is_heard(kit: Kit) -> None:
    messages, inbox = kit.database["messages"], kit.database["memory_inbox"]
    marks = MongoForgetting(kit.database, kit.settings.names)
    async with warm(kit) as service:

        async def becomes(shown: str, *gone: str) -> None:
            async def so() -> bool:
                xml = await service.get_memory_context("one", "ada")
                return shown in xml and not any(word in xml for word in gone)

            await soon(so, shown)
            assert is_kept(service, "one", "ada")

        await becomes("")
        await messages.insert_one(message("m1"))
        await becomes("greyhound")
        await messages.update_one({"_id": "m1"}, {"$set": {"content": "We adopted a whippet."}})
        await becomes("whippet", "greyhound")
        await messages.update_one({"_id": "m1"}, {"$set": {"private": True}})
        await becomes("", "whippet")
        await messages.update_one({"_id": "m1"}, {"$unset": {"private": 1}})
        await becomes("whippet")
        await kit.session("two", ["ada"], incognito=True)
        await becomes("", "whippet")
        await kit.session("two", ["ada"])
        await becomes("whippet")
        await messages.insert_one(message("m2", user="bob", text="Hello."))
        await becomes("", "whippet", "Hello")
        await messages.delete_one({"_id": "m2"})
        await becomes("whippet")
        await kit.session("two", ["ada", "bob"])
        await becomes("", "whippet")
        await kit.session("two", ["ada"])
        await messages.insert_one(message("m3", text="The key is AKIA" + "IOSFODNN7EXAMPLE."))
        await becomes("[redacted:", "IOSFODNN7EXAMPLE")
        await messages.delete_one({"_id": "m3"})
        await becomes("whippet", "[redacted:")
        await inbox.insert_one({"kind": "forget", "what": "message", "target": "m1", "asked_by": "test"})
        await becomes("", "whippet")
        await messages.insert_one(message("m4", text="Pixel sleeps upstairs."))
        await becomes("upstairs")
        away = await messages.rename("messages_away")
        assert away["ok"]
        await becomes("", "upstairs")
        await kit.database["messages_away"].rename("messages")
        await becomes("upstairs")
        await marks.mark([Mark("session", "s.two", "for_ever")], "e", NOON)
        await becomes("", "upstairs")


async def test_what_changed_while_the_stream_was_away_is_never_missed(kit: Kit) -> None:
    async with warm(kit) as service:
        for number in range(3):
            assert f"word{number}." not in await service.get_memory_context("one", "ada")
            await _kill_change_streams(kit)
            await kit.database["messages"].insert_one(message(f"m{number}", text=f"word{number}."))

            async def shown(number: int = number) -> bool:
                xml = await service.get_memory_context("one", "ada")
                return f"word{number}." in xml and is_kept(service, "one", "ada")

            await soon(shown, "the stream is back")


async def test_without_a_stream_of_messages_each_read_looks_for_them(
    kit: Kit, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where the application's messages may be read and not followed; memory is still kept."""
    refused = Feed(kit.settings.mongodb.database, [{"$nonsense": 1}], _nothing)

    def recent_feeds(_: Settings) -> dict[str, Feed]:
        return {"/recent": refused}

    monkeypatch.setattr("eden_memory.context.cached_contexts.recent_feeds", recent_feeds)
    async with kit.service(clock=lambda: NOON) as service:
        await service.ready()
        for number in range(5):
            await kit.database["messages"].insert_one(message(f"m{number}", text=f"word{number}."))
            assert f"word{number}." in await service.get_memory_context("one", "ada")
        cache = service.memory.contexts.cache
        assert (cache.live, cache.hears, is_kept(service, "one", "ada")) == (True, False, False)
        assert len(cache._kept) == 1  # pyright: ignore[reportPrivateUsage]


def _nothing(_: Mapping[str, Any]) -> Iterable[ContextChange]:
    return ()


class History:
    """Random changes of everything that decides what is shown."""

    def __init__(self, kit: Kit, seed: int) -> None:
        self._kit, self._dice, self._count = kit, random.Random(seed), 0
        self._sessions = list(SESSIONS)
        self._marks = MongoForgetting(kit.database, kit.settings.names)
        self._changes: list[Callable[[], Awaitable[Any]]] = [
            *[self._write] * 6,
            *[self._begin] * 2,
            self._edit,
            self._move,
            self._delete,
            self._mark_message,
            self._session,
            self._leave_session,
            self._user,
            self._add,
            self._carry,
            self._ask_to_forget,
            self._forget,
            self._see,
            self._close,
        ]

    async def step(self) -> str:
        """Change something; what."""
        change = self._dice.choice(self._changes)
        await change()
        return getattr(change, "__name__", "")

    def _any(self, values: Any) -> Any:
        return self._dice.choice(values)

    async def _some(self) -> Any:
        found = await self._kit.database["messages"].find({}, {"_id": 1}).sort("_id").to_list()
        return self._any(found)["_id"] if found else "none"

    async def _write(self) -> None:
        self._count += 1
        role = self._any(["user", "user", "user", "assistant", "tool"])
        said = message(f"m{self._count:03}", self._any(self._sessions[-6:]), self._any([*USERS, "ada", None]))
        ago = timedelta(minutes=self._dice.randrange(1, 1_500))
        text = f"{role}{self._count}. " + "word " * self._dice.randrange(90)
        await self._kit.database["messages"].insert_one(
            said | {"role": role, "content": text, "created_at": NOON - ago}
        )

    async def _begin(self) -> None:
        self._count += 1
        self._sessions.append(f"new{self._count}")
        await self._kit.session(self._sessions[-1], ["ada"])

    async def _set(self, fields: dict[str, Any]) -> None:
        await self._kit.database["messages"].update_one({"_id": await self._some()}, {"$set": fields})

    async def _edit(self) -> None:
        self._count += 1
        await self._set({"content": self._any([f"edited{self._count}.", " "])})

    async def _move(self) -> None:
        await self._set({"session_id": self._any(self._sessions[-6:]), "user_id": self._any(USERS)})

    async def _delete(self) -> None:
        await self._kit.database["messages"].delete_one({"_id": await self._some()})

    async def _mark_message(self) -> None:
        await self._set({self._any(["removed", "private"]): self._any([True, False])})

    async def _session(self) -> None:
        users = self._any([["ada"], ["ada"], ["ada"], ["bob"], ["ada", "bob"], None])
        fields = {"incognito": self._dice.random() < 0.2}
        await self._kit.database["sessions"].replace_one(
            {"_id": self._any(self._sessions[-6:])}, {"agent_id": "a", "users": users, **fields}, upsert=True
        )

    async def _leave_session(self) -> None:
        await self._kit.database["sessions"].delete_one({"_id": self._any(self._sessions[-6:])})

    async def _user(self) -> None:
        memory = {"memory": self._any([True, True, True, False])}
        await self._kit.database["users"].replace_one({"_id": self._any(USERS)}, memory, upsert=True)

    async def _add(self) -> None:
        self._count += 1
        added = {
            "kind": "added_text",
            "session_id": self._any(self._sessions[-6:]),
            "user_id": self._any(USERS),
        }
        text = {"_id": f"x{self._count}", "text": f"added{self._count}.", "created_at": NOON}
        await self._kit.database["memory_inbox"].insert_one(added | text)

    async def _carry(self) -> None:
        """The tailer erases a text, and formation-trigger has it then."""
        text = await self._kit.database["memory_inbox"].find_one_and_delete({"kind": "added_text"})
        if text is not None:
            row = self._row(text["_id"], text["session_id"]) | {"user_id": f"s.{text['user_id']}"}
            await self._kit.database["memory_messages"].insert_one(row | {"text": text["text"]})

    async def _ask_to_forget(self) -> None:
        asked = {"kind": "forget", "what": "message", "target": await self._some(), "asked_by": "test"}
        await self._kit.database["memory_inbox"].insert_one(asked)

    async def _forget(self) -> None:
        kind = self._any(["message", "message", "message", "session", "user"])
        targets: dict[str, Any] = {"message": await self._some(), "session": "four", "user": "bob"}
        mark = Mark(kind, f"s.{targets[kind]}", "created_up_to", until=NOON - timedelta(hours=5))
        if kind == "message":
            mark = Mark(kind, f"s.{targets[kind]}", "for_ever")
        await self._marks.mark([mark], f"e{self._count}", NOON)

    def _row(self, name: str, session: str) -> dict[str, Any]:
        flags = dict.fromkeys(("deleted", "opted_out", "forgotten"), False)
        known = {"session_id": f"s.{session}", "version": "1" * 16, "time": NOON, "role": "user", **flags}
        return {
            "_id": f"s.{name}",
            "formation_id": None,
            "mapping": None,
            "place": 1,
            "created_at": NOON,
            **known,
        }

    async def _see(self) -> None:
        """formation-trigger has seen a message, and who wrote it."""
        found = await self._kit.database["messages"].find_one({"_id": await self._some()})
        if found is None:
            return
        row = self._row(found["_id"], found["session_id"]) | {"mapping": "v1", "text": None}
        await self._kit.database["memory_messages"].replace_one({"_id": row["_id"]}, row, upsert=True)
        users = {"$addToSet": {"users": f"s.{self._any([found['user_id'] or 'ada', 'ada', 'ada'])}"}}
        await self._kit.database["memory_sessions"].update_one({"_id": row["session_id"]}, users, upsert=True)

    async def _close(self) -> None:
        """A window closes of which nothing is decided yet, or nothing is to be formed."""
        session = f"s.{self._any(self._sessions[-6:])}"
        left_out = {"opted_out": self._dice.random() < 0.5}
        closed = {"formation_id": f"f{self._count}", **left_out}
        await self._kit.database["memory_messages"].update_many(
            {"session_id": session, "formation_id": None}, {"$set": closed}
        )
        await self._kit.database["memory_sessions"].update_one(
            {"_id": session}, {"$inc": {"seq": 1}, "$setOnInsert": {"users": []}}, upsert=True
        )


@pytest.mark.parametrize(
    ("seed", "steps"), [(0, 25), *(pytest.param(one, 50, marks=pytest.mark.slow) for one in range(2))]
)
async def test_after_any_history_a_warm_context_is_what_a_fresh_read_finds(
    kit: Kit, seed: int, steps: int
) -> None:
    history, seen, shown = History(kit, seed), list[str](), set[str]()
    for session in SESSIONS:
        await kit.session(session, ["ada"] if session != "shared" else list(USERS))
    async with warm(kit) as service, kit.service(clock=lambda: NOON) as fresh:
        await fresh.memory.contexts.close()  # it follows nothing, so each of its reads asks MongoDB

        async def same() -> bool:
            kept = [await service.get_memory_context(*asker) for asker in ASKERS]
            shown.update(xml for xml in kept if "<Recent>" in xml)
            return kept == [await fresh.get_memory_context(*asker) for asker in ASKERS]

        for _ in range(steps):
            seen.append(await history.step())
            await soon(same, f"{seen}")
        await asyncio.sleep(1.2)
        assert await same(), seen
        assert any(is_kept(service, *asker) for asker in ASKERS)
    assert len(shown) > 3, "there is something to compare"
