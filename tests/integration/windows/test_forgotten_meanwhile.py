"""Forgetting and formation-trigger at the same time, from real chat writes through the tailer."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

import pytest

from eden_memory.assembly import tailer as source_tailing
from eden_memory.assembly.handlers import Handlers
from eden_memory.forgetting.mark_store import MongoBatchMarks
from eden_memory.mongo.ids import encode_id
from eden_memory.processors import pipeline
from eden_memory.settings import Settings
from eden_memory.source.inbox_store import ask
from eden_memory.stages.stage import Delivery, Handler, Result
from eden_memory.windows.formation_requests import BatchWrite
from eden_memory.windows.trigger_store import MongoTriggerStore
from eden_memory.windows.window_rule import Limits
from tests.awaiting import until
from tests.integration.stages_on_servers import OnServers, on_servers, running
from tests.integration.windows.harness import changed
from tests.names import NAMES
from tests.unit.windows.records import Sessions, trigger

pytestmark = pytest.mark.servers
SESSION, USER, SECRET = "chat", "ann", "the safe opens with 4711"
SOON = 60.0
Row = dict[str, Any]


class Gate:
    """A stage that can be made to stand: its process lives, and remembers what it keeps in memory."""

    def __init__(self, handler: Handler) -> None:
        self._handler = handler
        self.open = asyncio.Event()
        self.open.set()

    async def __call__(self, deliveries: Sequence[Delivery]) -> Result:
        await self.open.wait()
        return await self._handler(deliveries)


class Chat(OnServers):
    """The application's side, and what is stored of it."""

    @property
    def source(self) -> Any:
        return self.mongo[self.settings.source_database]

    @property
    def messages(self) -> Any:
        return self.source[self.settings.messages.collection]

    async def write(self, *names: str, session: str = SESSION, text: str = SECRET, user: str = USER) -> None:
        """Messages as the application writes them."""
        made = {"session_id": session, "role": "user", "user_id": user, "content": text}
        await self.messages.insert_many(
            [{"_id": one, **made, "created_at": datetime.now(UTC)} for one in names]
        )

    async def ask(self, kind: str, **fields: str) -> None:
        inbox = self.source[source_tailing.inbox_name(self.settings)]
        await ask(inbox, {"kind": kind, "asked_by": "test", **fields})

    async def form(self, session: str = SESSION) -> None:
        await self.ask("form_now", session_id=session)

    async def forget(self, what: str, target: str) -> None:
        """Forgetting has done its part once this returns."""
        before = await self._decided()
        await self.ask("forget", what=what, target=target)
        await until(lambda: self._more_than(before), f"{what} {target} is forgotten")

    async def _decided(self) -> int:
        return await self.database[NAMES["outcomes"]].count_documents({"stage": pipeline.FORGETTING})

    async def _more_than(self, before: int) -> bool:
        return await self._decided() > before

    async def waiting(self) -> set[str]:
        """The messages that wait for a window."""
        rows = self.database[NAMES["messages"]].find({"formation_id": None, "place": {"$ne": None}})
        return {row["_id"].removeprefix("s.") async for row in rows}

    async def waits(self, *names: str) -> None:
        async def so() -> bool:
            return await self.waiting() == set(names)

        await until(so, f"{names} wait")

    async def row(self, name: str) -> Row:
        return await self.database[NAMES["messages"]].find_one({"_id": encode_id(name)}) or {}

    async def forgotten(self, *names: str, secret: str = SECRET) -> None:
        """Until each has a row that says so, and no text of theirs stands anywhere."""

        async def so() -> bool:
            rows = [await self.row(one) for one in names]
            return all(one.get("forgotten") for one in rows) and not await self.left(secret)

        await until(so, f"{names} are forgotten")
        assert all([(await self.row(one))["time"] is not None for one in names])
        assert not await self.waiting() & set(names)

    async def left(self, secret: str = SECRET) -> list[str]:
        """Where a text still stands, or would after compaction."""
        found = [
            name
            for name in ("messages", "windows")
            if any([secret in str(row) async for row in self.database[NAMES[name]].find()])
        ]
        async with self.topic("chat.messages") as topic:
            last: dict[bytes, Any] = {}
            await topic.until_true(lambda: bool(topic.records), "records")
            for _ in range(3):
                await topic.read()
            for one in topic.records:
                last[one.key] = one
        return found + [str(one.key) for one in last.values() if one.value and secret.encode() in one.value]

    async def windows(self) -> list[list[str]]:
        """The messages of each window, by the order in which they closed."""
        rows = await self.database[NAMES["windows"]].find(sort=[("closed.at", 1), ("seq", 1)]).to_list()
        return [[one["message_id"].removeprefix("s.") for one in row["messages"]] for row in rows]

    async def after_this_second(self) -> None:
        """Records carry whole seconds: what is written in that of the request is forgotten with the rest."""
        rows = self.database[NAMES["forgotten"]].find({"reach": "created_up_to"}).sort("until", -1)
        (mark,) = await rows.to_list(1)

        async def passed() -> bool:
            now = (await self.mongo.admin.command("hello"))["localTime"]
            return now.replace(microsecond=0, tzinfo=UTC) > mark["until"]

        await until(passed, "the second is over")

    @asynccontextmanager
    async def going(self, handler: Handler | None = None) -> AsyncGenerator[Gate]:
        """Tailer, trigger and forgetting for the block; the trigger behind a gate."""
        made = await Handlers(self.settings, self.mongo).plain(
            {pipeline.FORMATION_TRIGGER, pipeline.FORGETTING}
        )
        gate = Gate(handler or made[pipeline.FORMATION_TRIGGER])
        handlers: dict[str, Handler] = {
            pipeline.FORMATION_TRIGGER: gate,
            pipeline.FORGETTING: made[pipeline.FORGETTING],
        }
        async with source_tailing.tailing(self.settings) as tailer:
            workers = [self.worker_of(one) for one in pipeline.stages(handlers)]
            async with running([tailer, *workers]):
                yield gate


@pytest.fixture
async def chat(settings: Settings) -> AsyncGenerator[Chat]:
    quick = changed(settings, tailer={"watermark_seconds": 0.5, "commit_seconds": 1.0})
    async with on_servers(Chat, quick) as made:
        await made.source.create_collection(made.settings.messages.collection)
        yield made


FORGETS = {"session": SESSION, "user": USER, "message": "m2"}


@pytest.mark.parametrize("what", FORGETS)
async def test_a_message_that_the_paused_trigger_had_not_read_is_forgotten(chat: Chat, what: str) -> None:
    async with chat.going() as gate:
        await chat.write("m1")
        await chat.waits("m1")
        gate.open.clear()
        await chat.write("m2")
        await chat.forget(what, FORGETS[what])
        if what == "message":
            await chat.forget(what, "m1")
        gate.open.set()
        await chat.forgotten("m1", "m2")
        await chat.form()
        await goes_on(chat, what)


async def goes_on(chat: Chat, what: str) -> None:
    """What is written from now on is formed, and nothing of what was forgotten."""
    if what != "message":
        await chat.after_this_second()
    await chat.write("m9", text="the cat is well")
    await chat.waits("m9")
    await chat.form()
    await until(lambda: _is(chat, [["m9"]]), "one window, of the new message")


async def _is(chat: Chat, windows: list[list[str]]) -> bool:
    return await chat.windows() == windows


@pytest.mark.parametrize(
    "what", ["message", *(pytest.param(what, marks=pytest.mark.slow) for what in ("session", "user"))]
)
async def test_a_trigger_that_starts_behind_forgetting_stores_no_text(chat: Chat, what: str) -> None:
    async with chat.going() as gate:
        gate.open.clear()
        await chat.write("m2")
        await chat.form()
        await chat.forget(what, FORGETS[what])
    async with chat.going():
        await chat.forgotten("m2")
        await goes_on(chat, what)


@pytest.mark.parametrize("what", FORGETS)
async def test_what_waits_in_a_warm_session_is_forgotten_right_after_the_last_message(
    chat: Chat, what: str
) -> None:
    async with chat.going() as gate:
        await chat.write("m2")
        await chat.waits("m2")
        gate.open.clear()  # it keeps the text in memory, and has not read the tombstone when it is to form
        await chat.form()
        await chat.forget(what, FORGETS[what])
        gate.open.set()
        await chat.forgotten("m2")
        await goes_on(chat, what)


class Interrupted(MongoTriggerStore):
    """Somebody forgets at a moment of the first batch that has a message: before its write, or right after."""

    def __init__(self, chat: Chat, what: str, moment: str) -> None:
        super().__init__(chat.database, NAMES, Limits())
        self._chat, self._what, self._moment, self._done = chat, what, moment, False

    async def put(self, write: BatchWrite) -> int | None:
        touched = [*write.messages, *(one for part in write.closing for one in part.messages)]
        now, self._done = bool(touched) and not self._done, self._done or bool(touched)
        if now and self._moment == "before":
            await self._chat.forget(self._what, FORGETS[self._what])
        place = await super().put(write)
        if now and self._moment == "after":
            await self._chat.forget(self._what, FORGETS[self._what])
        return place


@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize(
    ("what", "formed"), [("session", False), ("session", True), ("user", True), ("message", True)]
)
async def test_forgetting_between_the_triggers_read_and_its_write(
    chat: Chat, what: str, moment: str, formed: bool
) -> None:
    store = Interrupted(chat, what, moment)
    stage = trigger(store, Sessions(), MongoBatchMarks(chat.database, NAMES))
    async with chat.going(stage) as gate:
        gate.open.clear()
        await chat.write("m2")
        if formed:
            await chat.form()
            await published(chat, 2)
        gate.open.set()
        await chat.forgotten("m2")
        if what != "message":
            await chat.after_this_second()
        await chat.write("m9", text="the cat is well")
        await chat.waits("m9")


async def published(chat: Chat, count: int) -> None:
    """Until the tailer has published so many messages and requests."""
    async with chat.topic("chat.messages") as topic:

        def there() -> bool:
            return len({one.key for one in topic.records if not one.key.startswith(b"watermark")}) >= count

        await topic.until_true(there, f"{count} records")


@pytest.mark.parametrize(
    ("what", "formed"), [("session", False), ("session", True), ("user", False), ("message", True)]
)
async def test_an_edit_of_a_forgotten_message_stays_forgotten(chat: Chat, what: str, formed: bool) -> None:
    async with chat.going():
        await chat.write("m2")
        await chat.waits("m2")
        if formed:
            await chat.form()
            await chat.waits()
        await chat.forget(what, FORGETS[what])
        await chat.forgotten("m2")
        if what != "message":
            await chat.after_this_second()
        before = (await chat.row("m2"))["version"]
        await chat.messages.update_one({"_id": "m2"}, {"$set": {"content": SECRET + ", still"}})
        await until(lambda: _newer(chat, before), "the trigger has seen the edit")
        await chat.forgotten("m2")


async def _newer(chat: Chat, before: str) -> bool:
    return (await chat.row("m2"))["version"] > before


@pytest.mark.parametrize("what", FORGETS)
async def test_a_forgotten_message_that_is_read_anew_stays_forgotten(chat: Chat, what: str) -> None:
    async with chat.going():
        await chat.write("m2")
        await chat.waits("m2")
        await chat.forget(what, FORGETS[what])
        await chat.forgotten("m2")
    before = (await chat.row("m2"))["version"]
    positions = chat.database[NAMES["positions"]]
    await positions.update_one({}, {"$set": {"token": "82" + "00" * 8 + "garbage"}})
    await chat.messages.update_one({"_id": "m2"}, {"$set": {"content": SECRET + ", unseen"}})
    async with chat.going():
        await until(lambda: _newer(chat, before), "the messages are read anew")
        await chat.forgotten("m2")
        await goes_on(chat, what)


async def test_a_message_that_was_there_before_the_first_start_and_is_forgotten_then(chat: Chat) -> None:
    await chat.write("m1", "m2")
    async with chat.going() as gate:
        gate.open.clear()
        await published(chat, 2)
        await chat.forget("session", SESSION)
        gate.open.set()
        await chat.forgotten("m1", "m2")


async def test_a_deleted_message_that_is_written_anew_keeps_its_text(chat: Chat) -> None:
    async with chat.going():
        await chat.write("m2")
        await chat.waits("m2")
        await chat.messages.delete_one({"_id": "m2"})
        await chat.waits()
        await chat.write("m2", text="the cat is well")
        await chat.waits("m2")
        await until(lambda: _marked(chat), "the deletion is marked")
        assert (await chat.row("m2"))["text"] == "the cat is well"


async def _marked(chat: Chat) -> bool:
    decided = chat.database[NAMES["outcomes"]].count_documents({"stage": pipeline.FORGETTING})
    return await decided == 1
